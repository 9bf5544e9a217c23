/* Proves: compile=off, fused and autotune give the same logits on every golden model, within the tolerance of
 * its manifest; a model that is opened with the choices measured before measures nothing; and autotune is
 * refused with batch_invariant=on. */
#include "kernels/kernels.h"
#include "tests/engine/golden.h"

static const char *const MODES[] = { "off", "autotune" };

/* All logits of the entry's ids: the first rows at once, then in batches of 5, then one by one. */
static float *run(const struct entry *e, const char *mode)
{
    struct err why = { 0 };
    struct batch_row rows[GOLDEN_IDS];
    char line[160];
    snprintf(line, sizeof line, "%s,compile=%s", EXACT, mode);
    struct model *m = session_open(e->model, line, e->ctx, 1);
    const int64_t vocab = model_shape(m)->vocab;
    float *got = calloc((size_t)(e->n * vocab), sizeof *got);
    for (int from = 0, n; from < e->n; from += n) {
        n = MIN(e->n - from, from ? from < e->n / 2 ? 5 : 1 : e->n / 3 + 1);
        rows_of(rows, e->ids + from, n, 0, from);
        if (model_forward(m, rows, n, &why)) fail_msg("%s, %s: %s", e->name, mode, why.message);
        for (int i = 0; i < n; i++)
            memcpy(got + (from + i) * vocab, model_logits(m, i), (size_t)vocab * sizeof(float));
    }
    const struct autotuned *a = model_autotuned(m);
    if (!strcmp(mode, "autotune") != (a->measured > 0))
        fail_msg("%s, %s: measured %d products", e->name, mode, a->measured);
    model_close(m);
    return got;
}

static int64_t vocab_of(const struct entry *e)
{
    struct model *m = session_open(e->model, EXACT, e->ctx, 1);
    const int64_t vocab = model_shape(m)->vocab;
    model_close(m);
    return vocab;
}

static void check_entry(const struct entry *e)
{
    float *want = run(e, "fused");
    const int64_t n = e->n * vocab_of(e);
    for (size_t i = 0; i < COUNT_OF(MODES); i++) {
        float *got = run(e, MODES[i]);
        const double most = max_difference(want, got, n);
        if (!(most <= e->tolerance))
            fail_msg("%s: compile=%s differs by %g from fused, tolerance %g", e->name, MODES[i], most,
                     e->tolerance);
        free(got);
    }
    free(want);
}

static void test_golden(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, GOLDEN "manifest.json");
    assert_in_range(for_entries(true, check_entry), 35, 100);
}

static char first_model[4096];
static void remember_first(const struct entry *e)
{
    if (!first_model[0]) snprintf(first_model, sizeof first_model, "%s", e->model);
}

static void test_once(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct config config;
    struct model *first, *second;
    char path[4096];
    SHARED_OR_SKIP(path, GOLDEN "manifest.json");
    for_entries(true, remember_first);
    CHECK_OK(config_parse(&config, "compile=autotune,threads=1", &why));
    struct model_options o = { .path = first_model, .config = &config, .ctx = 32 };
    CHECK_OK(model_open(&first, &o, &why));
    const struct autotuned *a = model_autotuned(first);
    assert_true(a->measured > 0 && a->seconds > 0 && a->text);
    o.shapes = a->text;
    CHECK_OK(model_open(&second, &o, &why));
    assert_int_equal(model_autotuned(second)->measured, 0);
    assert_null(model_autotuned(second)->text);
    model_close(second);
    CHECK_OK(config_parse(&config, "compile=autotune,threads=1,precision=highest",
                          &why)); /* other settings measure again */
    CHECK_OK(model_open(&second, &o, &why));
    assert_int_equal(model_autotuned(second)->measured, a->measured);
    model_close(second);
    model_close(first);
}

static void test_refused(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct config c;
    assert_int_equal(config_parse(&c, "batch_invariant=on,compile=autotune", &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "compile=autotune");
    CHECK_OK(config_parse(&c, "batch_invariant=on,compile=off", &why));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_golden), cmocka_unit_test(test_once),
                                        cmocka_unit_test(test_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
