/* Proves: every architecture's file opens, tokenizes, loads and gives finite logits; the same options give
 * the same bytes with any number of threads; weights have the documented distribution; every token of a
 * generated vocabulary is reachable; impossible options are refused and leave no file. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "engine/quant/quant.h"
#include "engine/synth/synth.h"
#include "engine/synth/synth_internal.h"
#include "engine/text/text.h"
#include "kernels/kernels.h"
#include "tests/check.h"

static const char *const ARCHITECTURES[] = { "llama", "qwen2", "gpt2" };

static char *temp_path(char *buf, size_t size, const char *name)
{
    snprintf(buf, size, "%s/tests/synth-%d-%s.gguf", TEST_BUILD_DIR, (int)getpid(), name);
    return buf;
}

static struct synth_options options_of(const char *arch, const char *shape, enum format_id format)
{
    return (struct synth_options){
        .arch = arch, .shape = synth_shape_find(shape), .format = &FORMATS[format], .seed = 1, .threads = 2
    };
}

static void make(const char *path, const struct synth_options *o)
{
    struct err why = { 0 };
    CHECK_OK(synth_write(path, o, &why));
}

static void file_hash(const char *path, char hex[HASH_HEX])
{
    struct err why = { 0 };
    CHECK_OK(hash_file(path, hex, &why));
}

static void same_bytes(void **state)
{
    (void)state;
    char path[4096], one[HASH_HEX], other[HASH_HEX];
    temp_path(path, sizeof path, "same");
    for (size_t i = 0; i < COUNT_OF(ARCHITECTURES); i++) {
        struct synth_options o = options_of(ARCHITECTURES[i], "tiny", FORMAT_Q4_0);
        o.threads = 1;
        make(path, &o);
        file_hash(path, one);
        o.threads = 3;
        make(path, &o);
        file_hash(path, other);
        assert_string_equal(one, other);
        o.seed = 2;
        make(path, &o);
        file_hash(path, other);
        CHECK_STR_NE(one, other);
    }
    unlink(path);
}

static void noise_is_normal(void **state)
{
    (void)state;
    struct noise *n = malloc(sizeof *n);
    CHECK_NE(n, NULL);
    noise_init(n);
    double sum = 0, square = 0, fourth = 0;
    for (int i = 0; i < 65536; i++) {
        double x = n->quantile[i];
        CHECK(i == 0 || x > n->quantile[i - 1]);
        CHECK_NEAR(0.5 * erfc(-x / sqrt(2)), (i + 0.5) / 65536, 2e-6); /* it is the quantile it says */
        sum += x, square += x * x, fourth += x * x * x * x;
    }
    CHECK_NEAR(sum / 65536, 0, 1e-9);
    CHECK_NEAR(square / 65536, 1, 1e-3);
    CHECK_NEAR(fourth / 65536, 3, 1e-2);
    float a[1001], b[1001];
    noise_fill(n, (struct noise_stream){ 1, 2, 3 }, a, 1001, 0, 1);
    noise_fill(n, (struct noise_stream){ 1, 3, 2 }, b, 1001, 0, 1);
    double dot = 0;
    for (int i = 0; i < 1001; i++) dot += (double)a[i] * b[i] / 1001;
    CHECK_NEAR(dot, 0, 0.15); /* streams have nothing to do with each other: 1/sqrt(1001) = 0.03 */
    free(n);
}

static void weights(void **state)
{
    (void)state;
    char path[4096];
    struct err why = { 0 };
    struct gguf *g;
    struct synth_options o = options_of("llama", "tiny", FORMAT_F32);
    make(temp_path(path, sizeof path, "weights"), &o);
    CHECK_OK(gguf_open(&g, path, &why));
    CHECK(gguf_get_bool(g, "qdyno.synthetic", false));
    const struct gguf_tensor *t = gguf_tensor_find(g, "blk.2.ffn_down.weight");
    CHECK(t);
    CHECK_EQ(t->shape[0], 512);
    CHECK_EQ(t->shape[1], 256);
    double sum = 0, square = 0;
    int64_t n = t->bytes / 4;
    for (int64_t i = 0; i < n; i++) {
        float x;
        memcpy(&x, t->data + 4 * i, 4);
        sum += x, square += (double)x * x;
    }
    CHECK_NEAR(sum / (double)n, 0, 5e-4); /* 1/sqrt(512)/sqrt(131072) = 1.2e-4 */
    CHECK_NEAR(square / (double)n * 512, 1, 0.02);
    gguf_close(g);
    unlink(path);
}

static void falls_back_to_f16(void **state)
{
    (void)state;
    static const struct synth_shape ODD = { "odd", 1, 2, 1, 40, 96, 512, 64, false, "" };
    char path[4096];
    struct err why = { 0 };
    struct gguf *g;
    struct synth_options o = options_of("llama", "tiny", FORMAT_Q8_0);
    o.shape = &ODD;
    make(temp_path(path, sizeof path, "odd"), &o);
    CHECK_OK(gguf_open(&g, path, &why));
    assert_ptr_equal(gguf_tensor_find(g, "blk.0.ffn_up.weight")->format,
                     &FORMATS[FORMAT_F16]); /* rows of 40 */
    assert_ptr_equal(gguf_tensor_find(g, "blk.0.ffn_down.weight")->format,
                     &FORMATS[FORMAT_Q8_0]); /* rows of 96 */
    CHECK(gguf_tensor_find(g, "output.weight"));
    CHECK_NEAR(gguf_tensor_find(g, "blk.0.attn_k.weight")->shape[1], 20, 0);
    assert_ptr_equal(gguf_tensor_find(g, "blk.0.attn_norm.weight")->format, &FORMATS[FORMAT_F32]);
    gguf_close(g);
    unlink(path);
}

/* ---------------------------------------------------------------- vocabularies */

static void expect_back(const struct tokenizer *t, const char *text, size_t n)
{
    struct err why = { 0 };
    struct token_list l = { 0 };
    struct str s = { 0 };
    CHECK_OK(tokenizer_encode(t, text, n, 0, &l, &why));
    CHECK_OK(tokenizer_decode(t, l.ids, l.n, false, &s, &why));
    CHECK_EQ(s.len, n);
    CHECK(!memcmp(str_text(&s), text, n));
    token_list_free(&l);
    str_free(&s);
}

/* Tokens first..last-1 are letters, maybe behind a space: their text behind a digit, which merges with
 * nothing, ends in them alone. */
static void expect_reachable(const struct tokenizer *t, int32_t first, int32_t last)
{
    struct err why = { 0 };
    for (int32_t id = first; id < last; id++) {
        struct str s = { 0 };
        struct token_list l = { 0 };
        str_append(&s, "1");
        CHECK_OK(tokenizer_piece(t, id, false, &s, &why));
        CHECK_OK(tokenizer_encode(t, str_text(&s), s.len, 0, &l, &why));
        if (l.n < 2 || l.n > 3 || l.ids[l.n - 1] != id)
            fail_msg("token %d, '%s', is never made", id, str_text(&s));
        token_list_free(&l);
        str_free(&s);
    }
}

static void vocabularies(void **state)
{
    (void)state;
    static const char TEXT[] = "The quick brown fox, 42!\n\tna\xc3\xafve \xf0\x9f\x9a\x80 \xff\xfe end";
    for (size_t i = 0; i < COUNT_OF(ARCHITECTURES); i++) {
        char path[4096];
        struct err why = { 0 };
        struct gguf *g;
        struct tokenizer *t;
        struct tokenizer_info info;
        struct synth_options o = options_of(ARCHITECTURES[i], "tiny", FORMAT_Q8_0);
        make(temp_path(path, sizeof path, "vocab"), &o);
        CHECK_OK(gguf_open(&g, path, &why));
        CHECK_OK(tokenizer_open(&t, g, &why));
        tokenizer_describe(t, &info);
        assert_int_equal(info.n_vocab, o.shape->vocab);
        expect_back(t, TEXT, sizeof TEXT - 1);
        bool spm = !strcmp(info.kind, "spm");
        assert_int_equal(info.add_bos, spm);
        expect_reachable(t, spm ? 3 + 256 + 95 : 256, spm ? info.n_vocab : info.n_vocab - 1);
        tokenizer_close(t);
        gguf_close(g);
        unlink(path);
    }
}

/* ---------------------------------------------------------------- it runs */

static void runs(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(ARCHITECTURES); i++) {
        char path[4096];
        struct err why = { 0 };
        struct config c;
        struct model *m;
        struct synth_options o = options_of(ARCHITECTURES[i], "tiny", FORMAT_F16);
        make(temp_path(path, sizeof path, "runs"), &o);
        CHECK_OK(config_parse(&c, "threads=1", &why));
        CHECK_OK(
            recipe_model_open(&m, &(struct model_options){ .path = path, .config = &c, .ctx = 16 }, &why));
        const struct model_shape *s = model_shape(m);
        assert_string_equal(s->arch, ARCHITECTURES[i]);
        CHECK(s->random_weights);
        CHECK_EQ(s->layers, o.shape->layers);
        CHECK_EQ(s->vocab, o.shape->vocab);
        struct batch_row rows[4];
        for (int r = 0; r < 4; r++) rows[r] = (struct batch_row){ 300 + 7 * r, r, 0, r == 3 };
        CHECK_OK(model_forward(m, rows, 4, &why));
        const float *logits = model_logits(m, 0);
        double square = 0;
        for (int64_t v = 0; v < s->vocab; v++) square += (double)logits[v] * logits[v] / (double)s->vocab;
        CHECK_LT(0.2, square);
        CHECK_LT(square, 5); /* near N(0,1); false for NaN */
        model_close(m);
        unlink(path);
    }
}

static void shapes_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < SYNTH_SHAPE_COUNT; i++) {
        const struct synth_shape *s = &SYNTH_SHAPES[i];
        assert_ptr_equal(synth_shape_find(s->name), s);
        CHECK(s->help[0]);
        CHECK_EQ(s->heads % s->kv_heads, 0);
        CHECK_EQ(s->embd % s->heads, 0);
        CHECK_EQ(s->embd / s->heads % 2, 0);
        CHECK_LE(512, s->vocab);
    }
    assert_ptr_equal(synth_shape_find("TINY"), &SYNTH_SHAPES[0]);
    CHECK(!synth_shape_find("0b"));
}

static void refused(void **state)
{
    (void)state;
    static const struct synth_shape FEW = { "few", 1, 2, 1, 64, 64, 100, 64, true, "" };
    static const struct synth_shape CROOKED = { "crooked", 1, 3, 2, 96, 64, 512, 64, true, "" };
    char path[4096];
    struct err why = { 0 };
    temp_path(path, sizeof path, "refused");
    struct synth_options o = options_of("lama", "tiny", FORMAT_F16);
    assert_int_equal(synth_write(path, &o, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "did you mean llama?");
    for (int i = 0; i < FORMAT_COUNT; i++) {
        o = options_of("llama", "tiny", (enum format_id)i);
        if (FORMATS[i].encode) continue;
        assert_int_equal(synth_write(path, &o, &why), ERR_USAGE);
        CHECK_CONTAINS(why.message, "cannot be made yet");
    }
    o = options_of("llama", "tiny", FORMAT_F16);
    o.shape = &FEW;
    assert_int_equal(synth_write(path, &o, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "vocabulary of 100");
    o.arch = "gpt2";
    assert_int_equal(synth_write(path, &o, &why), ERR_USAGE);
    o = options_of("llama", "tiny", FORMAT_F16);
    o.shape = &CROOKED;
    assert_int_equal(synth_write(path, &o, &why), ERR_USAGE);
    o = options_of("llama", "tiny", FORMAT_F16);
    assert_int_equal(synth_write("/nonexistent-folder/x.gguf", &o, &why), ERR_IO);
    CHECK(access(path, F_OK));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bytes),        cmocka_unit_test(noise_is_normal), cmocka_unit_test(weights),
        cmocka_unit_test(falls_back_to_f16), cmocka_unit_test(vocabularies),    cmocka_unit_test(runs),
        cmocka_unit_test(shapes_table),      cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
