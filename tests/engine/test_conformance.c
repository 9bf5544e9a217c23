/* Proves: logits agree with those of another engine, for every architecture and weight format in our tables:
 * in one batch, in small batches, and one token at a time. Other architectures and formats are refused. */
#include "engine/arch/arch.h"
#include "tests/engine/golden.h"

static void check_exact(const struct entry *e)
{
    check_config(e, EXACT ",batch=16", 7);
}

static void test_exact(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, GOLDEN "manifest.json");
    assert_in_range(for_entries(true, check_exact), GOLDEN_LEAST, GOLDEN_MOST);
}

/* Mixtures of experts, attention sinks, latent attention, and the newer dense architectures. */
static void test_second_set(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, GOLDEN_2 "manifest.json");
    assert_in_range(for_entries_of(GOLDEN_2, true, check_exact), GOLDEN_2_LEAST, GOLDEN_MOST);
}

/* Architectures that only our own float64 reference computes: tests/data/arch-golden-3/make.py. */
static void test_third_set(void **state)
{
    (void)state;
    assert_int_equal(for_entries_of(GOLDEN_3, true, check_exact), GOLDEN_3_LEAST);
}

/* precision=medium may round both operands to bf16 whatever the weights' format is, so a tighter tolerance
 * for f32 or f16 weights does not apply to it. Rounding one operand costs 0.0085 in the peer's two layers
 * (entry llama-gqa-256-BF16): twice that, as everywhere in the manifest, times sqrt(2) for two operands, and
 * independent roundings add up with the square root of the depth. */
static double bf16_nrmse(int layers)
{
    return 2 * 0.0085 * sqrt(2) * sqrt(layers / 2.0);
}

/* nrmse of the logits at a precision; *layers of the model. */
static double nrmse_at(const struct entry *e, const char *config, int *layers)
{
    struct model *m = session_open(e->model, config, e->ctx, 1);
    const int64_t n = e->n * model_shape(m)->vocab;
    const float *want = (const float *)(const void *)e->want.data;
    float *got = malloc((size_t)n * sizeof *got);
    run_ids(e, m, 64, got);
    double mean = 0, variance = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) {
        mean += (double)want[i] / (double)n;
        squares += pow((double)got[i] - (double)want[i], 2) / (double)n;
    }
    for (int64_t i = 0; i < n; i++) variance += pow((double)want[i] - mean, 2) / (double)n;
    *layers = model_shape(m)->layers;
    free(got);
    model_close(m);
    return sqrt(squares / variance);
}

static void check_coarse(const struct entry *e)
{
    int layers;
    const double nrmse = nrmse_at(e, "precision=medium,kv=f32,threads=2", &layers);
    const double tolerance = fmax(e->nrmse, bf16_nrmse(layers)); /* fmax drops a NaN */
    if (!(nrmse <= tolerance))
        fail_msg("%s at precision=medium: nrmse %g, at most %g", e->name, nrmse, tolerance);
}

/* What runs when nobody asks for anything keeps the golden tolerance of every format. */
static void check_default(const struct entry *e)
{
    int layers;
    const double nrmse = nrmse_at(e, "kv=f32,threads=2", &layers);
    const double tolerance = isnan(e->nrmse) ? 1e-4 : e->nrmse;
    if (!(nrmse <= tolerance))
        fail_msg("%s as it runs by default: nrmse %g, at most %g", e->name, nrmse, tolerance);
}

static void test_default(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, GOLDEN "manifest.json");
    for_entries(true, check_default);
    for_entries_of(GOLDEN_2, true, check_default);
}

static void test_medium(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, GOLDEN "manifest.json");
    for_entries(true, check_coarse);
}

/* A 16-bit cache alone moves logits by at most 2.6e-2 in the golden set; the README allows 0.1. */
static void check_f16_cache(const struct entry *e)
{
    struct model *m = session_open(e->model, "precision=highest,kv=f16,threads=1", e->ctx, 1);
    const int64_t n = e->n * model_shape(m)->vocab;
    float *got = malloc((size_t)n * sizeof *got);
    run_ids(e, m, 64, got);
    const double d = max_difference(got, (const float *)(const void *)e->want.data, n);
    if (!(d <= 0.1)) fail_msg("%s with an f16 cache: off by %g", e->name, d);
    CHECK_LT(0, d);
    free(got);
    model_close(m);
}

static void test_f16_cache(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, GOLDEN "manifest.json");
    for_entries(true, check_f16_cache);
}

static void check_refused(const struct entry *e)
{
    struct err why = { 0 };
    struct model *m;
    const enum err_code rc = session_try(&m, e->model, EXACT, e->ctx, 1, &why);
    if (!rc) model_close(m);
    if (rc != ERR_FORMAT) fail_msg("%s: want a refusal, got %d: %s", e->name, rc, why.message);
    if (!known_arch(e->arch)) assert_non_null(strstr(why.message, "llama qwen2 gpt2"));
}

static void test_refused(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, GOLDEN "manifest.json");
    for_entries(false, check_refused);
}

/* The same weights in a version 1 container, with an output matrix of its own that equals the embedding. */
static void test_version_1(void **state)
{
    (void)state;
    char old[4096], new[4096];
    struct err why = { 0 };
    SHARED_OR_SKIP(old, "models/stories260K/stories260K-f32.gguf");
    SHARED_OR_SKIP(new, "models/repacked/stories260K-f32.gguf");
    struct model *a = session_open(old, EXACT, 64, 1), *b = session_open(new, EXACT, 64, 1);
    CHECK(!model_shape(a)->tied_output);
    CHECK(model_shape(b)->tied_output);
    const int32_t ids[] = { 1, 301, 427, 309, 426 };
    struct batch_row rows[COUNT_OF(ids)];
    rows_of(rows, ids, COUNT_OF(ids), 0, 0);
    CHECK_OK(model_forward(a, rows, COUNT_OF(ids), &why));
    CHECK_OK(model_forward(b, rows, COUNT_OF(ids), &why));
    CHECK_NEAR(max_difference(model_logits(a, 0), model_logits(b, 0), 512 * (int64_t)COUNT_OF(ids)), 0, 1e-6);
    model_close(a);
    model_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),      cmocka_unit_test(test_medium),    cmocka_unit_test(test_default),
        cmocka_unit_test(test_second_set), cmocka_unit_test(test_third_set), cmocka_unit_test(test_f16_cache),
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_version_1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
