/* Proves: the mixes give every matrix the format that llama-quantize gives it. The tables were obtained by
 * running it (February 2025) on small files of these shapes, not derived from its rules. */
#include "engine/quant/mixes.h"

#include <string.h>

#include "tests/check.h"

static const struct {
    struct mix_facts facts;
    int64_t cols;
} MODELS[] = {
    { { .falcon = false,
        .heads = 8,
        .kv_heads = 2,
        .layers = 22,
        .values = 22,
        .experts = 0,
        .seventy_b = false,
        .has_output = false },
      256 },
    { { .falcon = false,
        .heads = 8,
        .kv_heads = 8,
        .layers = 32,
        .values = 32,
        .experts = 0,
        .seventy_b = false,
        .has_output = true },
      256 },
    { { .falcon = false,
        .heads = 8,
        .kv_heads = 1,
        .layers = 80,
        .values = 80,
        .experts = 0,
        .seventy_b = true,
        .has_output = true },
      256 },
    { { .falcon = true,
        .heads = 8,
        .kv_heads = 1,
        .layers = 32,
        .values = 32,
        .experts = 0,
        .seventy_b = false,
        .has_output = true },
      256 },
    { { .falcon = false,
        .heads = 4,
        .kv_heads = 4,
        .layers = 12,
        .values = 12,
        .experts = 0,
        .seventy_b = false,
        .has_output = false },
      256 },
    { { .falcon = false,
        .heads = 4,
        .kv_heads = 4,
        .layers = 16,
        .values = 16,
        .experts = 0,
        .seventy_b = false,
        .has_output = true },
      288 },
    { { .falcon = false,
        .heads = 4,
        .kv_heads = 4,
        .layers = 16,
        .values = 16,
        .experts = 0,
        .seventy_b = false,
        .has_output = false },
      288 },
    { { .falcon = false,
        .heads = 8,
        .kv_heads = 2,
        .layers = 32,
        .values = 32,
        .experts = 8,
        .seventy_b = false,
        .has_output = true },
      256 },
};

static const char *const TENSORS[] = { "attn_q",      "attn_k", "attn_v",  "attn_qkv",
                                       "attn_output", "ffn_up", "ffn_down" };
enum { KINDS = COUNT_OF(TENSORS) };

/* One letter for each layer, or one for all layers; "-": the model has no such tensor. */
static const struct {
    int model;
    const char *mix;
    bool imatrix;
    const char *embedding, *output, *formats[KINDS];
} SEEN[] = {
    /* llama of 22 layers, rows of 256, tied */
    { 0, "q2_k", false, "6", "-", { "2", "2", "4", "-", "3", "2", "3" } },
    { 0, "q2_k_s", true, "6", "-", { "2", "2", "4", "-", "2", "2", "4422222222222222222222" } },
    { 0, "q3_k_s", false, "6", "-", { "3", "3", "3", "-", "3", "3", "3" } },
    { 0,
      "q3_k_m",
      false,
      "6",
      "-",
      { "3", "3", "5544444444444444444444", "-", "4", "3", "5444444444444444444444" } },
    { 0, "q3_k_l", false, "6", "-", { "3", "3", "5", "-", "5", "3", "5" } },
    { 0,
      "q4_k_s",
      false,
      "6",
      "-",
      { "4", "4", "5555444444444444444444", "-", "4", "4", "5544444444444444444444" } },
    { 0,
      "q4_k_m",
      false,
      "6",
      "-",
      { "4", "4", "6644644644644644644666", "-", "4", "4", "6644644644644644644666" } },
    { 0, "q5_k_s", false, "6", "-", { "5", "5", "5", "-", "5", "5", "5" } },
    { 0,
      "q5_k_m",
      false,
      "6",
      "-",
      { "5", "5", "6655655655655655655666", "-", "5", "5", "6655655655655655655666" } },
    { 0, "q6_k", false, "6", "-", { "6", "6", "6", "-", "6", "6", "6" } },
    { 0, "q4_0", false, "6", "-", { "a", "a", "a", "-", "a", "a", "a" } },
    { 0, "q8_0", false, "8", "-", { "8", "8", "8", "-", "8", "8", "8" } },
    { 0, "iq4_nl", false, "6", "-", { "n", "n", "5", "-", "n", "n", "55nnnnnnnnnnnnnnnnnnnn" } },
    { 0, "iq4_xs", false, "6", "-", { "x", "x", "5", "-", "x", "x", "55xxxxxxxxxxxxxxxxxxxx" } },
    { 0, "tq1_0", false, "6", "-", { "s", "s", "s", "-", "s", "s", "s" } },
    /* llama of 32 layers, rows of 256 */
    { 1, "q2_k", true, "2", "6", { "2", "2", "3", "-", "3", "2", "3" } },
    { 1, "q2_k_s", true, "2", "6", { "2", "2", "2", "-", "2", "2", "44442222222222222222222222222222" } },
    { 1, "q3_k_s", true, "3", "6", { "3", "3", "3", "-", "3", "3", "3" } },
    { 1,
      "q3_k_m",
      true,
      "3",
      "6",
      { "3", "3", "55444444444444444444444444444444", "-", "4", "3", "55444444444444444444444444444444" } },
    { 1, "q3_k_l", true, "3", "6", { "3", "3", "5", "-", "5", "3", "5" } },
    { 1,
      "q4_k_s",
      true,
      "4",
      "6",
      { "4", "4", "55554444444444444444444444444444", "-", "4", "4", "55554444444444444444444444444444" } },
    { 1,
      "q4_k_m",
      true,
      "4",
      "6",
      { "4", "4", "66664464464464464464464464466666", "-", "4", "4", "66664464464464464464464464466666" } },
    { 1, "q5_k_s", true, "5", "6", { "5", "5", "5", "-", "5", "5", "5" } },
    { 1,
      "q5_k_m",
      true,
      "5",
      "6",
      { "5", "5", "66665565565565565565565565566666", "-", "5", "5", "66665565565565565565565565566666" } },
    { 1, "q6_k", true, "6", "6", { "6", "6", "6", "-", "6", "6", "6" } },
    { 1, "q4_0", true, "a", "6", { "a", "a", "a", "-", "a", "a", "bbbbaaaaaaaaaaaaaaaaaaaaaaaaaaaa" } },
    { 1, "q8_0", true, "8", "8", { "8", "8", "8", "-", "8", "8", "8" } },
    { 1, "iq4_nl", true, "n", "6", { "n", "n", "n", "-", "n", "n", "n" } },
    { 1, "iq4_xs", true, "x", "6", { "x", "x", "x", "-", "x", "x", "x" } },
    { 1, "tq1_0", true, "4", "6", { "s", "s", "s", "-", "s", "s", "s" } },
    /* llama of 80 layers, rows of 256 */
    { 2, "q2_k", false, "2", "6", { "2", "2", "5", "-", "3", "2", "3" } },
    { 2, "q3_k_s", false, "3", "6", { "3", "3", "5", "-", "3", "3", "3" } },
    { 2,
      "q4_k_s",
      false,
      "4",
      "6",
      { "4", "4", "5", "-", "4", "4",
        "55555555554444444444444444444444444444444444444444444444444444444444444444444444" } },
    { 2,
      "q4_k_m",
      false,
      "4",
      "6",
      { "4", "4", "66666666665565565565565565565565565565565565565565565565565565565565566666666666", "-",
        "4", "4", "66666666664464464464464464464464464464464464464464464464464464464464466666666666" } },
    { 2,
      "iq4_xs",
      false,
      "x",
      "6",
      { "x", "x", "5", "-", "x", "x",
        "5555555555xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" } },
    /* falcon of 32 layers, rows of 256 */
    { 3, "q2_k", false, "2", "8", { "-", "-", "-", "2", "2", "2", "3" } },
    { 3, "q2_k_s", true, "2", "8", { "-", "-", "-", "2", "2", "2", "44442222222222222222222222222222" } },
    { 3, "q3_k_s", false, "3", "8", { "-", "-", "-", "3", "3", "3", "3" } },
    { 3, "q3_k_m", false, "3", "8", { "-", "-", "-", "4", "3", "3", "55443343343343343343343343344444" } },
    { 3, "q3_k_l", false, "3", "8", { "-", "-", "-", "4", "4", "3", "4" } },
    { 3, "q4_k_s", false, "4", "8", { "-", "-", "-", "4", "4", "4", "4" } },
    { 3, "q4_k_m", false, "4", "8", { "-", "-", "-", "5", "4", "4", "66554454454454454454454454455555" } },
    { 3, "q5_k_s", false, "5", "8", { "-", "-", "-", "5", "5", "5", "5" } },
    { 3, "q5_k_m", false, "5", "8", { "-", "-", "-", "6", "5", "5", "66665565565565565565565565566666" } },
    { 3, "q6_k", false, "6", "8", { "-", "-", "-", "6", "6", "6", "6" } },
    { 3, "q4_0", false, "a", "8", { "-", "-", "-", "a", "a", "a", "a" } },
    { 3, "q8_0", false, "8", "8", { "-", "-", "-", "8", "8", "8", "8" } },
    { 3, "iq4_nl", false, "n", "8", { "-", "-", "-", "n", "n", "n", "5555nnnnnnnnnnnnnnnnnnnnnnnnnnnn" } },
    { 3, "iq4_xs", false, "x", "8", { "-", "-", "-", "x", "x", "x", "5555xxxxxxxxxxxxxxxxxxxxxxxxxxxx" } },
    { 3, "tq1_0", false, "4", "8", { "-", "-", "-", "s", "s", "s", "s" } },
    /* gpt2 of 12 layers, rows of 256, tied */
    { 4, "q2_k", false, "6", "-", { "-", "-", "-", "2", "3", "2", "3" } },
    { 4, "q2_k_s", true, "6", "-", { "-", "-", "-", "2", "2", "2", "422222222222" } },
    { 4, "q3_k_s", false, "6", "-", { "-", "-", "-", "3", "3", "3", "3" } },
    { 4, "q3_k_m", false, "6", "-", { "-", "-", "-", "4", "4", "3", "4" } },
    { 4, "q3_k_l", false, "6", "-", { "-", "-", "-", "4", "5", "3", "5" } },
    { 4, "q4_k_s", false, "6", "-", { "-", "-", "-", "4", "4", "4", "544444444444" } },
    { 4, "q4_k_m", false, "6", "-", { "-", "-", "-", "5", "4", "4", "644644644666" } },
    { 4, "q5_k_s", false, "6", "-", { "-", "-", "-", "5", "5", "5", "5" } },
    { 4, "q5_k_m", false, "6", "-", { "-", "-", "-", "6", "5", "5", "655655655666" } },
    { 4, "q6_k", false, "6", "-", { "-", "-", "-", "6", "6", "6", "6" } },
    { 4, "q4_0", false, "6", "-", { "-", "-", "-", "a", "a", "a", "a" } },
    { 4, "q8_0", false, "8", "-", { "-", "-", "-", "8", "8", "8", "8" } },
    { 4, "iq4_nl", false, "6", "-", { "-", "-", "-", "n", "n", "n", "5nnnnnnnnnnn" } },
    { 4, "iq4_xs", false, "6", "-", { "-", "-", "-", "x", "x", "x", "5xxxxxxxxxxx" } },
    { 4, "tq1_0", false, "6", "-", { "-", "-", "-", "s", "s", "s", "s" } },
    /* llama of 16 layers, rows of 288 */
    { 5, "q2_k", false, "n", "8", { "n", "n", "n", "-", "n", "n", "n" } },
    { 5, "q2_k_s", true, "n", "8", { "n", "n", "n", "-", "n", "n", "ccnnnnnnnnnnnnnn" } },
    { 5, "q3_k_s", false, "n", "8", { "n", "n", "n", "-", "n", "n", "n" } },
    { 5, "q3_k_m", false, "n", "8", { "n", "n", "ddcccccccccccccc", "-", "c", "n", "dccccccccccccccc" } },
    { 5, "q3_k_l", false, "n", "8", { "n", "n", "d", "-", "d", "n", "d" } },
    { 5, "q4_k_s", false, "c", "8", { "c", "c", "ddddcccccccccccc", "-", "c", "c", "ddcccccccccccccc" } },
    { 5, "q4_k_m", false, "c", "8", { "c", "c", "88cc8cc8cc8cc888", "-", "c", "c", "88cc8cc8cc8cc888" } },
    { 5, "q5_k_s", false, "d", "8", { "d", "d", "d", "-", "d", "d", "d" } },
    { 5, "q5_k_m", false, "d", "8", { "d", "d", "88dd8dd8dd8dd888", "-", "d", "d", "88dd8dd8dd8dd888" } },
    { 5, "q6_k", false, "8", "8", { "8", "8", "8", "-", "8", "8", "8" } },
    { 5, "q4_0", false, "a", "8", { "a", "a", "a", "-", "a", "a", "a" } },
    { 5, "q4_1", false, "b", "8", { "b", "b", "b", "-", "b", "b", "b" } },
    { 5, "q5_0", false, "c", "8", { "c", "c", "c", "-", "c", "c", "c" } },
    { 5, "q5_1", false, "d", "8", { "d", "d", "d", "-", "d", "d", "d" } },
    { 5, "q8_0", false, "8", "8", { "8", "8", "8", "-", "8", "8", "8" } },
    { 5, "iq4_nl", false, "n", "8", { "n", "n", "n", "-", "n", "n", "ddnnnnnnnnnnnnnn" } },
    { 5, "iq4_xs", false, "n", "8", { "n", "n", "n", "-", "n", "n", "ddnnnnnnnnnnnnnn" } },
    { 5, "tq1_0", false, "c", "8", { "a", "a", "a", "-", "a", "a", "a" } },
    { 5, "tq2_0", false, "c", "8", { "a", "a", "a", "-", "a", "a", "a" } },
    /* llama of 16 layers, rows of 288, tied */
    { 6, "q2_k", true, "8", "-", { "n", "n", "n", "-", "n", "n", "n" } },
    { 6, "q2_k_s", true, "8", "-", { "n", "n", "n", "-", "n", "n", "ccnnnnnnnnnnnnnn" } },
    { 6, "q3_k_s", true, "8", "-", { "n", "n", "n", "-", "n", "n", "n" } },
    { 6, "q3_k_m", true, "8", "-", { "n", "n", "ddcccccccccccccc", "-", "c", "n", "dccccccccccccccc" } },
    { 6, "q3_k_l", true, "8", "-", { "n", "n", "d", "-", "d", "n", "d" } },
    { 6, "q4_k_s", true, "8", "-", { "c", "c", "ddddcccccccccccc", "-", "c", "c", "ddcccccccccccccc" } },
    { 6, "q4_k_m", true, "8", "-", { "c", "c", "88cc8cc8cc8cc888", "-", "c", "c", "88cc8cc8cc8cc888" } },
    { 6, "q5_k_s", true, "8", "-", { "d", "d", "d", "-", "d", "d", "d" } },
    { 6, "q5_k_m", true, "8", "-", { "d", "d", "88dd8dd8dd8dd888", "-", "d", "d", "88dd8dd8dd8dd888" } },
    { 6, "q6_k", true, "8", "-", { "8", "8", "8", "-", "8", "8", "8" } },
    { 6, "q4_0", true, "8", "-", { "a", "a", "a", "-", "a", "a", "bbaaaaaaaaaaaaaa" } },
    { 6, "q8_0", true, "8", "-", { "8", "8", "8", "-", "8", "8", "8" } },
    { 6, "iq4_nl", true, "8", "-", { "n", "n", "n", "-", "n", "n", "n" } },
    { 6, "iq4_xs", true, "8", "-", { "n", "n", "n", "-", "n", "n", "n" } },
    { 6, "tq1_0", true, "8", "-", { "a", "a", "a", "-", "a", "a", "a" } },
    /* llama of 32 layers, rows of 256, 8 experts */
    { 7, "q2_k", false, "2", "6", { "2", "8", "8", "-", "5", "2", "3" } },
    { 7, "q2_k_s", true, "2", "6", { "2", "8", "8", "-", "2", "2", "44442222222222222222222222222222" } },
    { 7, "q3_k_s", false, "3", "6", { "3", "8", "8", "-", "5", "3", "3" } },
    { 7, "q3_k_m", false, "3", "6", { "3", "8", "8", "-", "5", "3", "55444444444444444444444444444444" } },
    { 7, "q3_k_l", false, "3", "6", { "3", "8", "8", "-", "3", "3", "5" } },
    { 7, "q4_k_s", false, "4", "6", { "4", "8", "8", "-", "5", "4", "55554444444444444444444444444444" } },
    { 7, "q4_k_m", false, "4", "6", { "4", "8", "8", "-", "5", "4", "66664464464464464464464464466666" } },
    { 7, "q5_k_s", false, "5", "6", { "5", "8", "8", "-", "5", "5", "5" } },
    { 7, "q5_k_m", false, "5", "6", { "5", "8", "8", "-", "5", "5", "66665565565565565565565565566666" } },
    { 7, "q6_k", false, "6", "6", { "6", "8", "8", "-", "6", "6", "6" } },
    { 7, "q4_0", false, "a", "6", { "a", "8", "8", "-", "a", "a", "a" } },
    { 7, "q8_0", false, "8", "8", { "8", "8", "8", "-", "8", "8", "8" } },
    { 7, "iq4_nl", false, "n", "6", { "n", "8", "8", "-", "5", "n", "5555nnnnnnnnnnnnnnnnnnnnnnnnnnnn" } },
    { 7, "iq4_xs", false, "x", "6", { "x", "8", "8", "-", "5", "x", "5555xxxxxxxxxxxxxxxxxxxxxxxxxxxx" } },
    { 7, "tq1_0", false, "4", "6", { "s", "8", "8", "-", "s", "s", "s" } },
};

static const char *format_of(char letter)
{
    static const char *const NAMES[] = {
        "2q2_K", "3q3_K", "4q4_K", "5q5_K",   "6q6_K",   "8q8_0",  "aq4_0",
        "bq4_1", "cq5_0", "dq5_1", "niq4_nl", "xiq4_xs", "stq1_0", "ttq2_0"
    };
    for (size_t i = 0; i < COUNT_OF(NAMES); i++)
        if (NAMES[i][0] == letter) return NAMES[i] + 1;
    fail_msg("no letter '%c'", letter);
    return NULL;
}

static void expect(size_t i, const char *name, int index, char letter)
{
    struct mix_facts facts = MODELS[SEEN[i].model].facts;
    if (letter == '-') return;
    facts.has_imatrix = SEEN[i].imatrix;
    const struct format_mix *mix = mix_find(SEEN[i].mix);
    assert_non_null(mix);
    const char *got = mix_format(mix, &facts, name, index, MODELS[SEEN[i].model].cols)->name;
    if (strcmp(got, format_of(letter)))
        fail_msg("model %d, %s, %s: %s, want %s", SEEN[i].model, SEEN[i].mix, name, got, format_of(letter));
}

static void like_llama_quantize(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(SEEN); i++) {
        expect(i, "token_embd.weight", 0, SEEN[i].embedding[0]);
        expect(i, "output.weight", 0, SEEN[i].output[0]);
        for (int k = 0; k < KINDS; k++)
            for (int layer = 0; layer < MODELS[SEEN[i].model].facts.layers; layer++) {
                char name[64];
                const char *formats = SEEN[i].formats[k];
                snprintf(name, sizeof name, "blk.%d.%s.weight", layer, TENSORS[k]);
                expect(i, name, layer, formats[formats[1] ? layer : 0]);
            }
    }
}

static void names_and_rows_that_fit(void **state)
{
    (void)state;
    for (size_t i = 0; i < MIX_COUNT; i++) {
        CHECK_EQ(mix_find(MIXES[i].name), &MIXES[i]);
        for (size_t j = 0; j < i; j++) CHECK_NE(MIXES[j].file_type, MIXES[i].file_type);
        for (int64_t cols = 1; cols <= 768; cols++) { /* the format must fit every row length */
            const struct mix_facts facts = {
                .heads = 8, .kv_heads = 2, .layers = 8, .values = 8, .has_output = cols % 2
            };
            static const char *const NAMES[] = { "token_embd.weight", "output.weight", "blk.0.attn_v.weight",
                                                 "blk.7.ffn_down.weight" };
            for (size_t n = 0; n < COUNT_OF(NAMES); n++)
                CHECK_EQ(cols % mix_format(&MIXES[i], &facts, NAMES[n], 7, cols)->block_weights, 0);
        }
    }
    CHECK(mix_find("Q4_K_M"));
    CHECK(mix_find("IQ4_XS"));
    CHECK(!mix_find("q4_K"));
    CHECK(!mix_find("q7_K_M"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(like_llama_quantize),
        cmocka_unit_test(names_and_rows_that_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
