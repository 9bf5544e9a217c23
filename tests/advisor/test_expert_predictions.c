/* Proves: predictions of mixtures of experts count each expert that works on a batch once: with random
 * choices, with a measured curve, or with the experts that a run really used; more distinct experts cost more
 * time; one row and dense models are not affected. */
#include "advisor/predict/predict.h"
#include "engine/gguf/gguf.h"
#include "engine/synth/synth.h"
#include "tests/advisor/fake.h"

#include <math.h>

enum { EXPERTS = 6, USED = 2, BANDWIDTH = 10000000 };

struct bench {
    struct gguf *g;
    struct config config;
    struct machine machine;
    struct machine_ceilings ceilings;
};

/* The caches are too small for the model, and memory is so slow that it always limits. */
static void bench_open(struct bench *b, const char *model)
{
    struct err why = { 0 };
    *b = (struct bench){
        .machine = { .isa = ISA_SSE41 | ISA_AVX2,
                     .cores = 4,
                     .processors = 4,
                     .memory_bytes = 1 << 30,
                     .memory_available_bytes = 1 << 30,
                     .cgroup_memory_bytes = -1,
                     .cgroup_cpus = NAN,
                     .cache_bytes = { 1024, 2048, 4096 } },
        .ceilings = { .read_bytes_s_1 = BANDWIDTH,
                      .read_bytes_s_all = BANDWIDTH,
                      .threads_all = 4,
                      .count = 1,
                      .row = { { "f32_fma", "avx2", 1e12, 4e12 } } },
    };
    CHECK_OK(gguf_open(&b->g, model, &why));
    CHECK_OK(config_parse(&b->config, "ctk=f32,ctv=f32", &why));
}

static struct prediction predicted(const struct bench *b, const struct predict_for *what)
{
    struct prediction p;
    struct err why = { 0 };
    CHECK_OK(predict(&p, b->g, &b->config, &b->machine, &b->ceilings, what, &why));
    return p;
}

/* Weights that a step reads with so many distinct experts in a layer, by the tensors of the file. */
static double bytes_with(const struct bench *b, const struct prediction *p, double distinct)
{
    double experts = 0;
    for (int64_t i = 0; i < gguf_tensor_count(b->g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(b->g, i);
        if (strstr(t->name, "_exps.weight")) experts += (double)t->bytes / EXPERTS;
    }
    return (double)p->plan.decode_read_bytes + experts * (distinct - USED);
}

static void limits_count_distinct_experts(void **state)
{
    (void)state;
    enum { DEPTH = 10, SEQUENCES = 4 };
    char model[4096];
    struct bench b;
    SHARED_OR_SKIP(model, "arch-golden-2/olmoe.gguf");
    bench_open(&b, model);
    const struct expert_curve measured = { { 2, 2.5, 3, 3.25, NAN } };
    const struct {
        struct predict_for what;
        double distinct;
    } CASES[] = {
        { { .sequences = 1 }, USED },
        { { .sequences = 1, .experts_apart = &measured }, USED },
        { { .sequences = SEQUENCES }, EXPERTS * (1 - pow(2.0 / 3, SEQUENCES)) },
        { { .sequences = SEQUENCES, .experts_apart = &measured }, 3 },
        { { .sequences = SEQUENCES, .experts_consecutive = &measured },
          EXPERTS * (1 - pow(2.0 / 3, SEQUENCES)) },
        { { .sequences = SEQUENCES, .experts_apart = &measured, .decode_experts = 4.5 }, 4.5 },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct predict_for what = CASES[i].what;
        what.ctx = 512;
        what.depth = DEPTH;
        const struct prediction p = predicted(&b, &what);
        const double weights = bytes_with(&b, &p, CASES[i].distinct);
        const double cache = (double)p.plan.kv_bytes_per_token * DEPTH * what.sequences;
        CHECK_NEAR(p.step_read_bytes, weights, 1e-6 * weights);
        CHECK(p.decode_bound_by_memory);
        CHECK_NEAR(p.decode_limit_tok_s / (what.sequences * BANDWIDTH / (weights + cache)), 1, 1e-9);
    }
    gguf_close(b.g);
}

static double step_s(const struct bench *b, int rows, bool consecutive, const struct expert_curve *curve)
{
    struct err why = { 0 };
    double s = NAN;
    const struct predict_for what = { .ctx = 64,
                                      .experts_consecutive = curve,
                                      .experts_apart = curve,
                                      .rows = &rows,
                                      .steps = 1,
                                      .consecutive = consecutive };
    CHECK_OK(predict_steps(&s, b->g, &b->config, &b->machine, &b->ceilings, &what, &why));
    return s;
}

static void more_experts_take_longer(void **state)
{
    (void)state;
    char model[4096];
    struct bench b;
    SHARED_OR_SKIP(model, "arch-golden-2/olmoe.gguf");
    bench_open(&b, model);
    const struct expert_curve same = { { 2, 2, 2, 2, NAN } }, all = { { 2, 4, 6, 6, NAN } };
    const double one = step_s(&b, 1, false, &same);
    CHECK_NEAR(step_s(&b, 1, false, &all), one, 1e-12 * one);
    for (int consecutive = 0; consecutive < 2; consecutive++) {
        const double few = step_s(&b, 8, consecutive, &same), many = step_s(&b, 8, consecutive, &all),
                     random = step_s(&b, 8, consecutive, NULL);
        CHECK_LT(few, random); /* 2, 5.77 and 6 experts */
        CHECK_LT(random, many);
        /* memory limits: the experts take 3 times as long, the rest as long as before */
        const double experts_s = bytes_with(&b, &(struct prediction){ 0 }, 4 + USED) / BANDWIDTH;
        CHECK_NEAR((many - few) / experts_s, 1, 0.35);
    }
    /* prompts, too: here all their tokens use the same experts */
    const struct prediction narrow = predicted(
        &b, &(struct predict_for){ .ctx = 512, .prompt = 8, .experts_consecutive = &same });
    const struct prediction wide = predicted(
        &b, &(struct predict_for){ .ctx = 512, .prompt = 8, .experts_consecutive = &all });
    CHECK_LT(wide.prefill_tok_s.estimate, narrow.prefill_tok_s.estimate);
    gguf_close(b.g);
}

/* What `info --experts` stored for a file counts in place of random choices, for files of that content. */
static void stored_curves_are_used(void **state)
{
    (void)state;
    char model[4096], dir[256], hex[HASH_HEX];
    struct err why = { 0 };
    struct bench b;
    const struct predict_for four = { .ctx = 512, .depth = 1, .sequences = 4 };
    const struct stored_experts stored = { .consecutive = { { 2, 2.2, 2.4, NAN, NAN, NAN, NAN, NAN, NAN,
                                                              NAN } },
                                           .apart = { { 2, 2.5, 3, NAN, NAN, NAN, NAN, NAN, NAN, NAN } },
                                           .text = "some.txt",
                                           .tokens = 640,
                                           .effective_mean = 4.5,
                                           .layers = 1,
                                           .layer = { { 2, { 1.5, 2.8, 1, { 4, 0, -1 }, { 0.5, 0.25 } } } } };
    struct stored_experts found;
    SHARED_OR_SKIP(model, "arch-golden-2/olmoe.gguf");
    scratch(dir, sizeof dir);
    setenv("XDG_CACHE_HOME", dir, 1);
    bench_open(&b, model);
    CHECK(!model_identity_known(b.g, hex));
    const struct prediction before = predicted(&b, &four);
    const double random = EXPERTS * (1 - pow(2.0 / 3, 4));
    CHECK_NEAR(before.step_read_bytes, bytes_with(&b, &before, random), 1e-3);
    char stored_state[2][48];
    assert_string_equal(stored_experts_state(stored_state[0], sizeof stored_state[0]), "0 0");
    CHECK_OK(stored_experts_save(b.g, &stored, &why));
    CHECK(!strncmp(stored_experts_state(stored_state[1], sizeof stored_state[1]), "1 ", 2) &&
          strcmp(stored_state[1], "1 0"));
    CHECK(model_identity_known(b.g, hex));
    const struct prediction after = predicted(&b, &four);
    CHECK_NEAR(after.step_read_bytes, bytes_with(&b, &after, 3), 1e-3);
    CHECK_LT(before.prefill_tok_s.estimate, after.prefill_tok_s.estimate);
    CHECK(stored_experts_find(&found, b.g, USED));
    CHECK_NEAR(found.consecutive.distinct[2], 2.4, 1e-12);
    CHECK_NAN(found.apart.distinct[3]);
    assert_string_equal(found.text, "some.txt");
    CHECK_EQ(found.tokens, 640);
    CHECK_NEAR(found.effective_mean, 4.5, 1e-12);
    CHECK_EQ(found.layers, 1);
    CHECK_EQ(found.layer[0].layer, 2);
    CHECK_EQ(found.layer[0].use.never, 1);
    CHECK_EQ(found.layer[0].use.hottest[1], 0);
    CHECK_EQ(found.layer[0].use.hottest[2], -1);
    CHECK_NEAR(found.layer[0].use.share[1], 0.25, 1e-12);
    CHECK(!stored_experts_find(&found, b.g, USED + 1)); /* of another model */
    gguf_close(b.g);
}

static void dense_models_have_none(void **state)
{
    (void)state;
    char model[4096];
    struct bench b;
    SHARED_OR_SKIP(model, "arch-golden-2/mistral3.gguf");
    bench_open(&b, model);
    const struct expert_curve curve = { { 2, 4, 6, NAN } };
    CHECK_NEAR(step_s(&b, 4, false, &curve), step_s(&b, 4, false, NULL), 0);
    const struct prediction p = predicted(&b, &(struct predict_for){ .ctx = 512, .sequences = 4 });
    CHECK_NEAR(p.step_read_bytes, (double)p.plan.decode_read_bytes, 0);
    assert_int_equal(p.plan.expert_read_bytes, 0);
    gguf_close(b.g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_count_distinct_experts),
        cmocka_unit_test(more_experts_take_longer),
        cmocka_unit_test(stored_curves_are_used),
        cmocka_unit_test(dense_models_have_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
