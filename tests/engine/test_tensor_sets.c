/* Proves: a model file that lost any one tensor is refused by its name, or computes the same without it. For
 * every golden model, of tests/data and ../shared/data, each of its tensors is left out: in the first, a
 * middle and the last layer that has it. Only what a GGUF file cannot say is exempt, and listed here. */
#include "engine/arch/arch.h"
#include "engine/gguf/gguf.h"
#include "tests/engine/golden.h"

/* Tensors whose absence means something else in every reader of GGUF files. */
static const struct {
    const char *name, *means;
} EXEMPT[] = {
    { "output.weight", "the embedding is the output matrix" },
    { "output.bias", "the output has no bias" },
    { "rope_freqs.weight", "RoPE is not scaled" },
};

/* What a golden model computes, for comparison. */
struct golden {
    const struct entry *entry;
    struct gguf *file;
    float *logits;
    int64_t numbers;
    int refused, unused;
};

static enum err_code run(float *logits, const struct golden *golden, const struct gguf *g, struct err *why)
{
    const struct entry *e = golden->entry;
    struct config config;
    struct model *m;
    if (config_parse(&config, EXACT, why)) fail_msg("%s", why->message);
    const struct model_options o = { .gguf = g, .config = &config, .ctx = e->ctx, .sequences = 1 };
    const enum err_code rc = model_open(&m, &o, why);
    if (rc) return rc;
    run_ids(e, m, GOLDEN_IDS, logits);
    model_close(m);
    return ERR_OK;
}

/* The model without its tensor number `lost`. */
static struct gguf *without(const struct gguf *g, int64_t lost)
{
    struct err why = { 0 };
    struct gguf_parts p = { .weight_files = 1 };
    struct gguf_writer *w;
    struct gguf *made;
    CHECK_OK(gguf_writer_open_memory(&w, &why));
    for (int64_t i = 0; i < gguf_kv_count(g); i++) gguf_writer_copy_kv(w, gguf_kv_at(g, i));
    CHECK_OK(gguf_writer_preview(w, &p.header, &why));
    gguf_writer_abort(w);
    p.tensors = arena_alloc(&p.memory, (size_t)gguf_tensor_count(g) * sizeof *p.tensors);
    assert_non_null(p.tensors);
    for (int64_t i = 0; i < gguf_tensor_count(g); i++)
        if (i != lost) p.tensors[p.tensor_count++] = *gguf_tensor_at(g, i);
    CHECK_OK(gguf_assemble(&made, gguf_path(g), &p, &why));
    return made;
}

/* The layer of a tensor (-1: none), and its name within the layer. */
static int layer_of(const char *name, const char **local)
{
    int layer = -1, behind = 0;
    if (sscanf(name, "blk.%d.%n", &layer, &behind) != 1 || !behind) layer = -1;
    *local = layer < 0 ? name : name + behind;
    return layer;
}

/* Is it in the first, middle or last of the layers that have a tensor of this name? */
static bool is_chosen(const struct gguf *g, int64_t at)
{
    const char *name, *other;
    const int layer = layer_of(gguf_tensor_at(g, at)->name, &name);
    int before = 0, behind = 0;
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const int l = layer_of(gguf_tensor_at(g, i)->name, &other);
        if (strcmp(name, other)) continue;
        before += l < layer;
        behind += l > layer;
    }
    return !before || !behind || before == behind || before == behind + 1;
}

static bool is_exempt(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(EXEMPT); i++)
        if (!strcmp(EXEMPT[i].name, name)) return true;
    return false;
}

static int faults;

static void check_without(struct golden *golden, int64_t at)
{
    struct err why = { 0 };
    const char *name = gguf_tensor_at(golden->file, at)->name, *model = golden->entry->name;
    struct gguf *g = without(golden->file, at);
    float *logits = malloc((size_t)golden->numbers * sizeof *logits);
    const enum err_code rc = run(logits, golden, g, &why);
    if (rc == ERR_FORMAT) {
        golden->refused++;
        if (!strstr(why.message, name) && !strstr(why.message, "layer")) {
            print_message("%s without %s: the message does not name it: %s\n", model, name, why.message);
            faults++;
        }
    } else if (rc) {
        print_message("%s without %s: want a refusal with status 5: %s\n", model, name, why.message);
        faults++;
    } else if (!memcmp(logits, golden->logits, (size_t)golden->numbers * sizeof *logits)) {
        golden->unused++;
    } else if (!is_exempt(name)) {
        print_message("%s without %s: runs, with other logits\n", model, name);
        faults++;
    }
    free(logits);
    gguf_close(g);
}

static int total_refused;

static void check_entry(const struct entry *e)
{
    struct err why = { 0 };
    struct golden golden = { .entry = e };
    CHECK_OK(gguf_open(&golden.file, e->model, &why));
    golden.numbers = (int64_t)(e->want.size / sizeof(float));
    golden.logits = malloc((size_t)golden.numbers * sizeof *golden.logits);
    CHECK_OK(run(golden.logits, &golden, golden.file, &why));
    for (int64_t i = 0; i < gguf_tensor_count(golden.file); i++)
        if (is_chosen(golden.file, i)) check_without(&golden, i);
    CHECK_LT(0, golden.refused);
    total_refused += golden.refused;
    free(golden.logits);
    gguf_close(golden.file);
}

static void test_golden(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, GOLDEN "manifest.json");
    faults = 0;
    for_entries(true, check_entry);
    for_entries_of(GOLDEN_2, true, check_entry);
    for_entries_of(GOLDEN_3, true, check_entry);
    print_message("%d copies with one tensor less are refused\n", total_refused);
    CHECK_EQ(faults, 0);
}

/* Files that ended with SIGSEGV, an assertion, or other answers. */
static void test_cases(void **state)
{
    (void)state;
    static const struct {
        const char *file, *tensor, *others;
    } CASES[] = {
        { "attack-06-shexp-up-missing-segv/bailingmoe2-no-up_shexp.gguf", "blk.2.ffn_up_shexp.weight",
          "layer 2" },
        { "attack-06-shexp-up-missing-segv/nemotron_h_moe-no-up_shexp.gguf", "blk.4.ffn_up_shexp.weight",
          "layer 1" },
        { "attack-11-missing-shexp-silent/no-down.gguf", "blk.2.ffn_down_shexp.weight", "layer 1" },
        { "attack-11-missing-shexp-silent/no-gate.gguf", "blk.2.ffn_gate_shexp.weight", "layer 1" },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        char path[4096];
        struct err why = { 0 };
        struct model *m;
        SHARED_OR_SKIP(path, "cases/attack-06-shexp-up-missing-segv/bailingmoe2-no-up_shexp.gguf");
        data_path(path, sizeof path, "cases/%s", CASES[i].file);
        CHECK_EQ(session_try(&m, path, EXACT, 64, 1, &why), ERR_FORMAT);
        if (!strstr(why.message, CASES[i].tensor) || !strstr(why.message, CASES[i].others))
            fail_msg("%s: %s", CASES[i].file, why.message);
    }
}

/* What the message says: the tensor, its layer, and why it must be there. */
static void test_messages(void **state)
{
    (void)state;
    static const struct {
        const char *model, *lost, *says;
    } CASES[] = {
        { GOLDEN_2 "granitemoe-shared.gguf", "blk.1.ffn_up_shexp.weight", "layer 1 needs it" },
        { GOLDEN_2 "gemma4-moe.gguf", "blk.1.layer_output_scale.weight", "because layers 0, 2 to " },
        { GOLDEN "falcon-40b-style.gguf", "blk.0.attn_norm_2.bias", "layer 0 needs it" },
        { GOLDEN "phi3-longrope.gguf", "rope_factors_short.weight", "the RoPE factors of long and short" },
        { GOLDEN_2 "deepseek2-yarn.gguf", "blk.1.exp_probs_b.bias", "'deepseek2.expert_gating_func' is 2" },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        char path[4096];
        struct err why = { 0 };
        struct gguf *g;
        struct model_shape s;
        SHARED_OR_SKIP(path, CASES[i].model);
        CHECK_OK(gguf_open(&g, path, &why));
        int64_t at = 0;
        while (strcmp(gguf_tensor_at(g, at)->name, CASES[i].lost)) CHECK_LT(++at, gguf_tensor_count(g));
        struct gguf *copy = without(g, at);
        CHECK_OK(model_shape_read(&s, copy, &why));
        CHECK_EQ(
            arch_walk(arch_find(gguf_get_string(copy, "general.architecture")), &s, copy, NULL, NULL, &why),
            ERR_FORMAT);
        if (!strstr(why.message, CASES[i].lost) || !strstr(why.message, CASES[i].says))
            fail_msg("%s: %s", CASES[i].model, why.message);
        gguf_close(copy);
        gguf_close(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
