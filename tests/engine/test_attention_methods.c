/* Proves: with attention=plain the logits of every golden model agree with those of another engine as closely
 * as with attention=flash, also with quantized caches and in both layouts of the cache; with
 * batch_invariant=on their bits do not depend on the batch; and it is refused where it cannot run. */
#include "tests/engine/golden.h"

static void check_exact(const struct entry *e)
{
    check_config(e, EXACT ",batch=16,attention=plain", 7);
    check_config(e, "precision=highest,kv=f32,threads=2,batch=64,attention=plain,kv_cache=contiguous", 5);
}

static void test_golden(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, GOLDEN "manifest.json");
    assert_in_range(for_entries(true, check_exact), GOLDEN_LEAST, GOLDEN_MOST);
    assert_in_range(for_entries_of(GOLDEN_2, true, check_exact), GOLDEN_2_LEAST, GOLDEN_MOST);
    assert_int_equal(for_entries_of(GOLDEN_3, true, check_exact), GOLDEN_3_LEAST);
}

/* Logits of the entry's ids, in batches of `step`. free(). */
static float *logits_of(const struct entry *e, const char *line, int step, size_t *n)
{
    struct model *m = session_open(e->model, line, e->ctx, 1);
    *n = (size_t)(e->n * model_shape(m)->vocab);
    float *got = malloc(*n * sizeof *got);
    run_ids(e, m, step, got);
    model_close(m);
    return got;
}

static double root_mean_square(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += pow((double)a[i] - (double)b[i], 2) / (double)n;
    return sqrt(sum);
}

/* Both read the same rounded keys and values. Other last bits of a layer's outputs can change how the next
 * layer's keys and values are rounded, but few of them: the two differ by less than half of what the cache's
 * format costs (0.28 times at most in the golden set). */
static void check_quantized(const struct entry *e)
{
    static const char *const CACHES[] = { "f16", "q8_0", "q4_0", "fp8_e4m3" };
    size_t n;
    float *exact = logits_of(e, EXACT, 9, &n);
    for (size_t i = 0; i < COUNT_OF(CACHES); i++) {
        struct err why = { 0 };
        char flash[96], plain[128];
        struct model *m;
        snprintf(flash, sizeof flash, "precision=highest,threads=1,kv=%s", CACHES[i]);
        snprintf(plain, sizeof plain, "%s,attention=plain", flash);
        if (session_try(&m, e->model, flash, e->ctx, 1, &why)) continue; /* heads do not fill blocks */
        model_close(m);
        float *want = logits_of(e, flash, 9, &n), *got = logits_of(e, plain, 9, &n);
        const double d = root_mean_square(got, want, n), cost = root_mean_square(want, exact, n);
        if (!(d <= cost / 2)) fail_msg("%s, %s: off by %g, the cache costs %g", e->name, plain, d, cost);
        free(want);
        free(got);
    }
    free(exact);
}

static void test_quantized(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, GOLDEN "manifest.json");
    for_entries(true, check_quantized);
    for_entries_of(GOLDEN_2, true, check_quantized);
}

static void check_invariant(const struct entry *e)
{
    size_t n;
    float *want = logits_of(e, "batch_invariant=on,threads=1,attention=plain", 1, &n),
          *got = logits_of(e, "batch_invariant=on,threads=3,batch=16,attention=plain", GOLDEN_IDS, &n);
    if (memcmp(want, got, n * sizeof *got)) fail_msg("%s: batches change the bits of logits", e->name);
    free(want);
    free(got);
}

static void test_invariant(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, GOLDEN "manifest.json");
    for_entries(true, check_invariant);
    for_entries_of(GOLDEN_2, true, check_invariant);
}

static void test_refused(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct config c;
    assert_int_equal(config_parse(&c, "attention=plain,device=opencl:0", &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "attention=plain is possible on the CPU only");
    assert_int_equal(config_parse(&c, "attention=flsh", &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "flash");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_golden), cmocka_unit_test(test_quantized),
                                        cmocka_unit_test(test_invariant), cmocka_unit_test(test_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
