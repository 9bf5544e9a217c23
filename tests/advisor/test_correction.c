/* Proves: without earlier runs a prediction is the cost model's, within its interval; residuals correct
 * similar configs, less similar ones less, and narrow the interval where they agree; the order of runs does
 * not matter; a systematic error is found; 90 % intervals hold nine in ten of values drawn from the model;
 * accuracy counts correctly. */
#include <math.h>

#include "tests/advisor/fake.h"
#include "advisor/predict/predict.h"

struct correction_fixture {
    struct db *d;
    struct machine_ceilings ceilings;
    char basis[64];
};

static int set_up(void **state)
{
    struct correction_fixture *t = calloc(1, sizeof *t);
    struct err why = { 0 };
    if (!t) return -1;
    t->ceilings.measured_unix_ms = 77;
    CHECK_OK(db_open(&t->d, ":memory:", &why));
    correction_basis(&t->ceilings, t->basis, sizeof t->basis);
    *state = t;
    return 0;
}

static int tear_down(void **state)
{
    struct correction_fixture *t = *state;
    db_close(t->d);
    free(t);
    return 0;
}

static struct residual_traits traits_at(const char *recipe, int layers, const char *line, double reading,
                                        double memory_ratio)
{
    struct model_shape shape = { .params = layers };
    struct config c;
    struct residual_traits t;
    struct err why = { 0 };
    char text[128];
    snprintf(shape.arch, sizeof shape.arch, "llama");
    snprintf(text, sizeof text, "%s%s%s", recipe, *line ? "," : "", line);
    CHECK_OK(config_parse(&c, text, &why));
    const int threads = (int)config_int(&c, KNOB_THREADS);
    residual_traits_of(&t, &shape, &c,
                       &(struct residual_work){ 64, 512, 1, threads, reading, 0, { memory_ratio, 0 } });
    return t;
}

static struct residual_traits traits_of(const char *recipe, int layers, const char *line, double reading)
{
    return traits_at(recipe, layers, line, reading, 0);
}

static struct residual_traits traits(const char *recipe, int layers, const char *line)
{
    return traits_of(recipe, layers, line, 0);
}

static void residual_insert(struct correction_fixture *t, struct residual_traits given, double untaught,
                            double measured)
{
    struct err why = { 0 };
    struct residual_row r = { .untaught = untaught, .predicted = untaught, .measured = measured };
    snprintf(r.machine, sizeof r.machine, "m");
    snprintf(r.basis, sizeof r.basis, "%s", t->basis);
    snprintf(r.metric, sizeof r.metric, "decode_tok_s");
    snprintf(r.traits, sizeof r.traits, "%s", given.text);
    CHECK_OK(db_residual_insert(t->d, &r, &why));
}

static struct estimate estimate_get(struct correction_fixture *t, struct residual_traits given,
                                    double untaught, double sd)
{
    struct correction *l = NULL;
    struct err why = { 0 };
    CHECK_OK(correction_load(&l, t->d, "m", &t->ceilings, &why));
    const struct estimate e = correction_estimate(l, "decode_tok_s", &given, untaught, sd);
    correction_free(l);
    return e;
}

static double width(struct estimate e)
{
    return log(e.value.upper / e.value.lower);
}

static void without_residuals_nothing_is_corrected(void **state)
{
    const struct estimate e = estimate_get(*state, traits("q4_0", 3, ""), 100, 0.1);
    CHECK_NEAR(e.value.estimate, 100, 0);
    CHECK_NEAR(e.runs, 0, 0);
    CHECK_NEAR(e.value.upper, 100 * exp(1.645 * 0.1), 1e-9);
    CHECK_NEAR(e.value.lower, 100 * exp(-1.645 * 0.1), 1e-9);
    CHECK_NAN(estimate_get(*state, traits("q4_0", 3, ""), NAN, 0.1).value.estimate);
}

/* What was measured of a plain 4-bit cache says less of a rotated one; other caches keep their records. */
static void rotation_is_a_trait(void **state)
{
    struct correction_fixture *t = *state;
    for (int i = 0; i < 4; i++) residual_insert(t, traits("q4_0", 4, "kv=q4_0,kv_rotate=off"), 50, 45);
    const struct estimate same = estimate_get(t, traits("q4_0", 4, "kv=q4_0,kv_rotate=off"), 100, 0.1),
                          rotated = estimate_get(t, traits("q4_0", 4, "kv=q4_0"), 100, 0.1);
    CHECK_LT(same.value.estimate, rotated.value.estimate);
    CHECK_CONTAINS(traits("q4_0", 4, "kv=q8_0").text, " kv=q8_0/q8_0 ");
    CHECK_CONTAINS(traits("q4_0", 4, "kv=q4_0").text, " kv=q4_0+rotated/q4_0+rotated ");
    CHECK_CONTAINS(traits("q4_0", 4, "ctk=q4_0,ctv=q8_0").text, " kv=q4_0+rotated/q8_0 ");
}

static void similar_configs_are_corrected_most(void **state)
{
    struct correction_fixture *t = *state;
    const struct estimate before = estimate_get(t, traits("q4_0", 3, "threads=2"), 100, 0.1);
    for (int i = 0; i < 4; i++) residual_insert(t, traits("q4_0", 3, "threads=2"), 50, 45); /* a tenth less */
    const struct estimate same = estimate_get(t, traits("q4_0", 3, "threads=2"), 100, 0.1),
                          threads = estimate_get(t, traits("q4_0", 3, "threads=1"), 100, 0.1),
                          recipe = estimate_get(t, traits("q8_0", 3, "threads=1"), 100, 0.1),
                          other = estimate_get(t, traits("q8_0", 9, "threads=1"), 100, 0.1);
    CHECK_LT(same.value.estimate, threads.value.estimate);
    CHECK_LT(threads.value.estimate, recipe.value.estimate);
    CHECK_LT(recipe.value.estimate, other.value.estimate);
    CHECK_LT(fabs(same.value.estimate - 90), 1.5);
    CHECK_LT(other.value.estimate, 100);
    CHECK_LT(width(same), 0.6 * width(before));
    CHECK_LT(width(same), width(other));
    CHECK_NEAR(same.runs, 4, 0);
    /* another basis is not affected */
    t->ceilings.kernels.measured = true;
    t->ceilings.kernels.measured_unix_ms = 78;
    CHECK_EQ(estimate_get(t, traits("q4_0", 3, "threads=2"), 100, 0.1).value.estimate, 100);
    correction_basis(&t->ceilings, t->basis, sizeof t->basis);
    residual_insert(t, traits("q4_0", 3, "threads=2"), 50, 45);
    CHECK_LT(estimate_get(t, traits("q4_0", 3, "threads=2"), 100, 0.1).value.estimate, 100);
    t->ceilings.kernels.measured_unix_ms++; /* kernels were timed again */
    CHECK_EQ(estimate_get(t, traits("q4_0", 3, "threads=2"), 100, 0.1).value.estimate, 100);
}

static void the_order_of_runs_does_not_matter(void **state)
{
    struct correction_fixture *t = *state;
    const double measured[4] = { 40, 44, 60, 52 };
    const char *recipe[4] = { "q4_0", "q8_0", "q4_K", "q6_K" };
    struct estimate e[2];
    for (int turn = 0; turn < 2; turn++) {
        struct err why = { 0 };
        CHECK_OK(db_residual_clear(t->d, "m", &why));
        for (int i = 0; i < 4; i++) {
            const int k = turn ? 3 - i : i;
            residual_insert(t, traits(recipe[k], 3, ""), 50, measured[k]);
        }
        e[turn] = estimate_get(t, traits("q5_K", 3, ""), 100, 0.1);
    }
    CHECK_NEAR(e[0].value.estimate / e[1].value.estimate, 1, 1e-9);
    CHECK_NEAR(e[0].value.upper / e[1].value.upper, 1, 1e-9);
}

/* A random number between -1 and 1. */
static double toss(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(*seed >> 11) * 0x1p-52 - 1;
}

/* Machines whose model errs by a factor of their own and one per recipe: half of the configurations are
 * recorded, the others are predicted. */
static void unseen_configurations_lie_in_their_intervals(void **state)
{
    static const char *const RECIPES[] = { "q4_0", "q8_0", "q4_K", "q6_K", "f16", "q5_0" };
    struct correction_fixture *t = *state;
    struct err why = { 0 };
    uint64_t seed = 5;
    int in = 0, close = 0, n = 0;
    for (int machine = 0; machine < 12; machine++) {
        const double machines = 0.2 * toss(&seed);
        double recipes[COUNT_OF(RECIPES)];
        CHECK_OK(db_residual_clear(t->d, "m", &why));
        for (size_t r = 0; r < COUNT_OF(RECIPES); r++) recipes[r] = 0.06 * toss(&seed);
        for (int phase = 0; phase < 2; phase++)
            for (size_t r = 0; r < COUNT_OF(RECIPES); r++)
                for (int th = 1; th <= 2; th++) {
                    char line[16];
                    snprintf(line, sizeof line, "threads=%d", th);
                    const double truth = 80 * exp(machines + recipes[r] + 0.02 * toss(&seed));
                    const bool shown = (r + (size_t)th) % 2;
                    if (!phase && shown) residual_insert(t, traits(RECIPES[r], 3, line), 80, truth);
                    if (!phase || shown) continue;
                    const struct estimate e = estimate_get(t, traits(RECIPES[r], 3, line), 80, 0.1);
                    n++;
                    in += truth >= e.value.lower && truth <= e.value.upper;
                    close += fabs(e.value.estimate / truth - 1) <= 0.10;
                }
    }
    CHECK_NEAR(n, 72, 0);
    CHECK_LE(0.85 * n, in);
    CHECK_LE(0.9 * n, close);
}

static void accuracy_counts(void **state)
{
    (void)state;
    struct accuracy a[ACCURACY_MAX];
    struct residual_row rows[5] = {
        { .predicted = 105, .low = 90, .high = 120, .measured = 100 }, /* within 10 % */
        /* within 20 %, outside its interval */
        { .predicted = 85, .low = 80, .high = 99, .measured = 100 },
        /* far off, but inside its wide interval */
        { .predicted = 150, .low = 50, .high = 250, .measured = 100 },
        { .predicted = NAN, .low = NAN, .high = NAN, .measured = 100 }, /* there was no prediction */
        { .predicted = 10, .low = 9, .high = 11, .measured = 10 },
    };
    for (int i = 0; i < 5; i++)
        snprintf(rows[i].metric, sizeof rows[i].metric, "%s", i < 4 ? "decode_tok_s" : "load_s");
    assert_int_equal(accuracy_of(a, rows, 5), 2);
    CHECK_NEAR(a[0].n, 3, 0);
    CHECK_NEAR(a[0].within_10, 1, 0);
    CHECK_NEAR(a[0].within_20, 2, 0);
    CHECK_NEAR(a[0].in_interval, 2, 0);
    CHECK_NEAR(a[0].median_error, 0.15, 1e-12);
    CHECK_NEAR(a[1].n, 1, 0);
    CHECK_NEAR(a[1].within_10, 1, 0);
}

/* Models that wait for memory share an error when memory is slower than it was measured. */
static void memory_errors_apply_by_memory_share(void **state)
{
    struct correction_fixture *t = *state;
    for (int i = 0; i < 3; i++) {
        residual_insert(t, traits_of("bf16", 3, "threads=1", 0.9), 50, 40);
        residual_insert(t, traits_of("q4_0", 4, "threads=1", 0.1), 50, 49);
    }
    const struct estimate waits = estimate_get(t, traits_of("q8_0", 5, "threads=1", 0.9), 100, 0.1),
                          thinks = estimate_get(t, traits_of("q8_0", 5, "threads=1", 0.1), 100, 0.1),
                          others = estimate_get(t, traits_of("q8_0", 5, "threads=2", 0.9), 100, 0.1);
    CHECK_LT(waits.value.estimate, 92.5);
    CHECK_LT(94, thinks.value.estimate);
    CHECK_LT(thinks.value.estimate, 100);
    CHECK_LT(waits.value.estimate, others.value.estimate);
    CHECK_LT(others.value.estimate, thinks.value.estimate);
    CHECK_LT(width(thinks), width(waits)); /* the next run may meet other memory conditions */
}

/* A run with probed memory says more about everything else. */
static void probed_memory_reduces_noise(void **state)
{
    struct correction_fixture *t = *state;
    const struct residual_traits blind = traits_of("bf16", 3, "threads=1", 0.9),
                                 seen = traits_at("bf16", 3, "threads=1", 0.9, 0.7);
    CHECK(!blind.conditions.memory_ratio);
    CHECK_NEAR(seen.conditions.memory_ratio, 0.7, 0);
    CHECK_CONTAINS(seen.text, " pace=0.700");
    residual_insert(t, blind, 50, 40);
    const double after_blind = estimate_get(t, traits_of("q8_0", 3, "threads=1", 0.9), 100, 0.1)
                                   .value.estimate;
    struct err why = { 0 };
    CHECK_OK(db_residual_clear(t->d, "m", &why));
    residual_insert(t, seen, 50, 40);
    const struct estimate e = estimate_get(t, traits_at("q8_0", 3, "threads=1", 0.9, 0.7), 100, 0.1),
                          unknown = estimate_get(t, traits_of("q8_0", 3, "threads=1", 0.9), 100, 0.1);
    CHECK_LT(e.value.estimate, after_blind);
    CHECK_LT(width(e), width(unknown));
}

/* One outlier changes no prediction much; several runs that agree are no outliers. */
static void outliers_have_little_weight(void **state)
{
    static const char *const RECIPES[] = { "q4_0", "q8_0", "q4_K", "q6_K", "f16", "q5_0" };
    struct correction_fixture *t = *state;
    for (size_t r = 0; r < COUNT_OF(RECIPES); r++)
        for (int th = 1; th <= 2; th++) {
            char line[16];
            snprintf(line, sizeof line, "threads=%d", th);
            residual_insert(t, traits(RECIPES[r], 3, line), 50, 47 + 0.3 * (double)((r + (size_t)th) % 3));
        }
    const struct residual_traits like = traits("q5_K", 3, "threads=2"), same = traits("q4_1", 3, "threads=2");
    const struct estimate before = estimate_get(t, like, 100, 0.1);
    CHECK_LT(93, before.value.estimate);
    CHECK_LT(before.value.estimate, 96);
    residual_insert(t, same, 50, 100);
    const struct estimate after = estimate_get(t, like, 100, 0.1);
    CHECK_NEAR(after.value.estimate / before.value.estimate, 1, 0.01);
    CHECK_LT(width(after), 1.2 * width(before));
    for (int i = 0; i < 4; i++) residual_insert(t, same, 50, 100);
    CHECK_LT(150, estimate_get(t, same, 100, 0.1).value.estimate); /* they agree with each other */
}

/* A run whose repetitions scatter has less weight. */
static void scattered_runs_have_less_weight(void **state)
{
    static const struct model_shape SHAPE = { .arch = "llama", .params = 3 };
    struct correction_fixture *t = *state;
    struct err why = { 0 };
    struct config c;
    double value[3];
    CHECK_OK(config_parse(&c, "q4_0,threads=1", &why));
    for (int i = 0; i < 3; i++) {
        struct residual_traits given;
        residual_traits_of(&given, &SHAPE, &c,
                           &(struct residual_work){
                               .depth = 64, .threads = 1, .noise = 0.1 * i, .conditions = { 0.9, 0.8 } });
        CHECK_NEAR(given.conditions.core_ratio, 0.8, 0);
        CHECK_EQ(!strstr(given.text, " noise="), !i);
        CHECK_NEAR(given.noise, 0.1 * i, 1e-12);
        CHECK_OK(db_residual_clear(t->d, "m", &why));
        residual_insert(t, given, 50, 40);
        value[i] = estimate_get(t, traits("q4_0", 3, "threads=1"), 100, 0.1).value.estimate;
    }
    CHECK_LT(80, value[0]);
    CHECK_LT(value[0], value[1] - 1);
    CHECK_LT(value[1], value[2] - 1);
    CHECK_LT(value[2], 100);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(without_residuals_nothing_is_corrected),
        T(rotation_is_a_trait),
        T(similar_configs_are_corrected_most),
        T(the_order_of_runs_does_not_matter),
        T(unseen_configurations_lie_in_their_intervals),
        T(memory_errors_apply_by_memory_share),
        T(probed_memory_reduces_noise),
        T(scattered_runs_have_less_weight),
        T(accuracy_counts),
        T(outliers_have_little_weight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
