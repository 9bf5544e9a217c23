/* Proves: a file with one tensor for each expert (the layout of the first Mixtral files) gives bit for bit
 * the logits of the file with one tensor for all of them, as it is and quantized, on the CPU; its plan and
 * its memory estimate are the same; what is missing, has a wrong shape or is there twice is refused by name.
 */
#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/plan/plan.h"
#include "engine/quant/methods.h"
#include "tests/engine/session.h"
#include "tests/engine/split_experts.h"

enum { TOKENS = 40, CTX = 64 };

static char split_path[512];

/* Logits of all of n tokens in one batch, then of one more. *out owned. */
static int64_t run(const char *path, const char *config, float **out)
{
    struct err why = { 0 };
    struct batch_row rows[TOKENS];
    int32_t ids[TOKENS + 1];
    struct model *m = session_open(path, config, CTX, 1);
    const int64_t vocab = model_shape(m)->vocab;
    for (int i = 0; i <= TOKENS; i++) ids[i] = 3 + i * 7 % 50;
    *out = malloc((TOKENS + 1) * (size_t)vocab * sizeof **out);
    rows_of(rows, ids, TOKENS, 0, 0);
    CHECK_OK(model_forward(m, rows, TOKENS, &why));
    memcpy(*out, model_logits(m, 0), TOKENS * (size_t)vocab * sizeof **out);
    rows_of(rows, ids + TOKENS, 1, 0, TOKENS);
    CHECK_OK(model_forward(m, rows, 1, &why));
    memcpy(*out + TOKENS * vocab, model_logits(m, 0), (size_t)vocab * sizeof **out);
    model_close(m);
    return (TOKENS + 1) * vocab;
}

static void check_same(const char *model, const char *config)
{
    float *want, *got;
    const int64_t n = run(model, config, &want);
    CHECK_EQ(run(split_path, config, &got), n);
    if (memcmp(want, got, (size_t)n * sizeof *want))
        fail_msg("%s, %s: logits differ by %g", model, config, max_difference(want, got, n));
    free(want);
    free(got);
}

static void check_plans(const char *model)
{
    struct err why = { 0 };
    struct config c;
    struct memory_plan plan[2];
    struct memory_estimate estimate[2];
    struct model_operations operations[2];
    const char *paths[] = { model, split_path };
    CHECK_OK(config_parse(&c, "threads=1", &why));
    for (int i = 0; i < 2; i++) {
        struct gguf *g;
        CHECK_OK(gguf_open(&g, paths[i], &why));
        CHECK_OK(plan_memory(&plan[i], g, &c, NULL, 0, 1, &why));
        CHECK_OK(memory_estimate_read(&estimate[i], g, 0, &FORMATS[FORMAT_F16], &FORMATS[FORMAT_F16], &why));
        CHECK_OK(plan_operations(&operations[i], g, &c, NULL, &why));
        gguf_close(g);
    }
    assert_int_equal(plan[0].weights, plan[1].weights);
    assert_int_equal(plan[0].decode_read_bytes, plan[1].decode_read_bytes);
    CHECK_EQ(plan[0].flops_per_token, plan[1].flops_per_token);
    assert_int_equal(estimate[0].expert_bytes, estimate[1].expert_bytes);
    assert_int_equal(estimate[0].read_bytes, estimate[1].read_bytes);
    assert_int_equal(operations[0].n, operations[1].n);
    for (int i = 0; i < operations[0].n; i++)
        assert_int_equal(operations[0].product[i].count, operations[1].product[i].count);
}

static void same_as_merged(void **state)
{
    (void)state;
    static const char *const MODELS[] = { "arch-golden/llama-moe.gguf",
                                          "arch-golden-2/qwen3moe-256-Q4_K.gguf" };
    for (size_t i = 0; i < COUNT_OF(MODELS); i++) {
        char model[4096];
        SHARED_OR_SKIP(model, MODELS[i]);
        split_file(split_path, model, SPLIT_RIGHT);
        check_same(model, EXACT);
        check_same(model, "threads=2");
        check_plans(model);
        unlink(split_path);
    }
}

/* The mixes of llama.cpp give single experts the formats that all of them would get together. */
static void quantized(void **state)
{
    (void)state;
    char model[4096];
    SHARED_OR_SKIP(model, "arch-golden/llama-moe.gguf");
    split_file(split_path, model, SPLIT_RIGHT);
    check_same(model, EXACT ",q8_0");
    check_same(model, EXACT ",method=gguf,type=q4_K_M");
    unlink(split_path);
}

static void refused(void **state)
{
    (void)state;
    static const struct {
        enum split_fault fault;
        const char *message;
    } CASES[] = {
        { SPLIT_MISSING, "blk.0.ffn_up.3.weight': expected [" },
        { SPLIT_SHAPE, "blk.0.ffn_up.3.weight': expected [" },
        { SPLIT_BOTH, "blk.0.ffn_up.0.weight' can change answers" },
        { SPLIT_MORE, "blk.0.ffn_up.4.weight' can change answers" },
    };
    char model[4096];
    SHARED_OR_SKIP(model, "arch-golden/llama-moe.gguf");
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct err why = { 0 };
        struct model *m;
        split_file(split_path, model, CASES[i].fault);
        CHECK_EQ(session_try(&m, split_path, EXACT, CTX, 1, &why), ERR_FORMAT);
        if (!strstr(why.message, CASES[i].message)) fail_msg("fault %zu: %s", i, why.message);
        unlink(split_path);
    }
}

/* The mixes of llama.cpp depend on a tensor's layer, not on how many tensors the layers before it have. */
static void mixes_count_layers(void **state)
{
    enum { LAYERS = 16, EXPERTS = 4 };
    (void)state;
    struct err why = { 0 };
    struct gguf_writer *w;
    struct gguf *g;
    struct config c;
    char name[64];
    static const float ROW[256];
    const int64_t shape[2] = { 256, 1 };
    CHECK_OK(gguf_writer_open(&w, split_path, &why));
    gguf_writer_put_string(w, "general.architecture", "llama");
    gguf_writer_put_u32(w, "llama.block_count", LAYERS);
    gguf_writer_put_u32(w, "llama.expert_count", EXPERTS);
    for (int i = 0; i < LAYERS * EXPERTS; i++) {
        snprintf(name, sizeof name, "blk.%d.ffn_down.%d.weight", i / EXPERTS, i % EXPERTS);
        gguf_writer_add_tensor(w, name, &FORMATS[FORMAT_F32], 2, shape);
    }
    for (int i = 0; i < LAYERS * EXPERTS; i++) CHECK_OK(gguf_writer_write(w, ROW, sizeof ROW, &why));
    CHECK_OK(gguf_writer_commit(w, &why));
    CHECK_OK(gguf_open(&g, split_path, &why));
    CHECK_OK(config_parse(&c, "method=gguf,type=q4_K_S", &why));
    for (int i = 0; i < LAYERS * EXPERTS; i++) { /* the first eighth of the layers is q5_K */
        const char *want = i / EXPERTS < LAYERS / 8 ? "q5_K" : "q4_K";
        assert_string_equal(recipe_tensor_format(&c, g, gguf_tensor_at(g, i), NULL)->name, want);
    }
    gguf_close(g);
    unlink(split_path);
}

static void names(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int expert;
        bool of_experts;
    } CASES[] = {
        { "blk.3.ffn_up.12.weight", 12, true },
        { "blk.3.ffn_gate.0.weight", 0, true },
        { "blk.0.ffn_down.007.weight", -1, false },
        { "blk.0.ffn_up_exps.weight", -1, true },
        { "blk.0.ffn_up.weight", -1, false },
        { "blk.0.ffn_up.1.bias", -1, false },
        { "ffn_up.1.weight", -1, false },
        { "blk.0.ffn_up.-1.weight", -1, false },
        { "blk.0.ffn_up.99999999999999999999.weight", -1, false },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        assert_int_equal(arch_expert_of(CASES[i].name), CASES[i].expert);
        CHECK_EQ(arch_is_of_experts(CASES[i].name), CASES[i].of_experts);
    }
}

int main(void)
{
    const char *folder = getenv("TMPDIR");
    snprintf(split_path, sizeof split_path, "%s/test_split_experts.%d.gguf", folder ? folder : "/tmp",
             (int)getpid());
    const struct CMUnitTest tests[] = { cmocka_unit_test(same_as_merged), cmocka_unit_test(quantized),
                                        cmocka_unit_test(refused), cmocka_unit_test(mixes_count_layers),
                                        cmocka_unit_test(names) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
