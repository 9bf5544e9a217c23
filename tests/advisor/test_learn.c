/* Proves: without past runs a prediction is the model's, within its interval; runs correct what is like them,
 * less what is less like them, and narrow the interval where they agree; the order of runs does not matter; a
 * systematic error is found; intervals hold nine in ten of what follows the model; accuracy counts right. */
#include <math.h>

#include "tests/advisor/fake.h"
#include "advisor/predict/predict.h"

struct teaching {
    struct db *d;
    struct machine_ceilings ceilings;
    char basis[64];
};

static int set_up(void **state)
{
    struct teaching *t = calloc(1, sizeof *t);
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
    struct teaching *t = *state;
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

static void teach(struct teaching *t, struct residual_traits given, double untaught, double measured)
{
    struct err why = { 0 };
    struct residual_row r = { .untaught = untaught, .predicted = untaught, .measured = measured };
    snprintf(r.machine, sizeof r.machine, "m");
    snprintf(r.basis, sizeof r.basis, "%s", t->basis);
    snprintf(r.metric, sizeof r.metric, "decode_tok_s");
    snprintf(r.traits, sizeof r.traits, "%s", given.text);
    CHECK_OK(db_residual_insert(t->d, &r, &why));
}

static struct estimate ask(struct teaching *t, struct residual_traits given, double untaught, double sd)
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
    return log(e.high / e.low);
}

static void nothing_learned_is_the_model_alone(void **state)
{
    const struct estimate e = ask(*state, traits("q4_0", 3, ""), 100, 0.1);
    CHECK(e.value == 100 && e.runs == 0);
    CHECK_NEAR(e.high, 100 * exp(1.645 * 0.1), 1e-9);
    CHECK_NEAR(e.low, 100 * exp(-1.645 * 0.1), 1e-9);
    CHECK(isnan(ask(*state, traits("q4_0", 3, ""), NAN, 0.1).value));
}

static void what_is_like_a_run_learns_most(void **state)
{
    struct teaching *t = *state;
    const struct estimate before = ask(t, traits("q4_0", 3, "threads=2"), 100, 0.1);
    for (int i = 0; i < 4; i++) teach(t, traits("q4_0", 3, "threads=2"), 50, 45); /* a tenth less */
    const struct estimate same = ask(t, traits("q4_0", 3, "threads=2"), 100, 0.1),
                          threads = ask(t, traits("q4_0", 3, "threads=1"), 100, 0.1),
                          recipe = ask(t, traits("q8_0", 3, "threads=1"), 100, 0.1),
                          other = ask(t, traits("q8_0", 9, "threads=1"), 100, 0.1);
    CHECK(same.value < threads.value && threads.value < recipe.value && recipe.value < other.value);
    CHECK(fabs(same.value - 90) < 1.5 && other.value < 100);
    CHECK(width(same) < 0.6 * width(before) && width(same) < width(other) && same.runs == 4);
    /* another basis has nothing to do with it */
    t->ceilings.kernels.measured = true;
    t->ceilings.kernels.measured_unix_ms = 78;
    CHECK(ask(t, traits("q4_0", 3, "threads=2"), 100, 0.1).value == 100);
    correction_basis(&t->ceilings, t->basis, sizeof t->basis);
    teach(t, traits("q4_0", 3, "threads=2"), 50, 45);
    CHECK(ask(t, traits("q4_0", 3, "threads=2"), 100, 0.1).value < 100);
    t->ceilings.kernels.measured_unix_ms++; /* kernels were timed anew */
    CHECK(ask(t, traits("q4_0", 3, "threads=2"), 100, 0.1).value == 100);
}

static void the_order_of_runs_does_not_matter(void **state)
{
    struct teaching *t = *state;
    const double measured[4] = { 40, 44, 60, 52 };
    const char *recipe[4] = { "q4_0", "q8_0", "q4_K", "q6_K" };
    struct estimate e[2];
    for (int turn = 0; turn < 2; turn++) {
        struct err why = { 0 };
        CHECK_OK(db_residual_clear(t->d, "m", &why));
        for (int i = 0; i < 4; i++) {
            const int k = turn ? 3 - i : i;
            teach(t, traits(recipe[k], 3, ""), 50, measured[k]);
        }
        e[turn] = ask(t, traits("q5_K", 3, ""), 100, 0.1);
    }
    CHECK_NEAR(e[0].value / e[1].value, 1, 1e-9);
    CHECK_NEAR(e[0].high / e[1].high, 1, 1e-9);
}

/* A number between -1 and 1. */
static double toss(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(*seed >> 11) * 0x1p-52 - 1;
}

/* Machines whose model is wrong by a factor of their own, and by one of each recipe: shown half of their
 * configurations, the others are predicted. */
static void unseen_configurations_lie_in_their_intervals(void **state)
{
    static const char *const RECIPES[] = { "q4_0", "q8_0", "q4_K", "q6_K", "f16", "q5_0" };
    struct teaching *t = *state;
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
                    if (!phase && shown) teach(t, traits(RECIPES[r], 3, line), 80, truth);
                    if (!phase || shown) continue;
                    const struct estimate e = ask(t, traits(RECIPES[r], 3, line), 80, 0.1);
                    n++;
                    in += truth >= e.low && truth <= e.high;
                    close += fabs(e.value / truth - 1) <= 0.10;
                }
    }
    CHECK(n == 72);
    CHECK(in >= 0.85 * n);
    CHECK(close >= 0.9 * n);
}

static void accuracy_counts(void **state)
{
    (void)state;
    struct accuracy a[ACCURACY_MAX];
    struct residual_row rows[5] = {
        { .predicted = 105, .low = 90, .high = 120, .measured = 100 },  /* within 10 % */
        { .predicted = 85, .low = 80, .high = 99, .measured = 100 },    /* within 20 %, beside its interval */
        { .predicted = 150, .low = 50, .high = 250, .measured = 100 },  /* far off, and said so */
        { .predicted = NAN, .low = NAN, .high = NAN, .measured = 100 }, /* nothing was told */
        { .predicted = 10, .low = 9, .high = 11, .measured = 10 },
    };
    for (int i = 0; i < 5; i++)
        snprintf(rows[i].metric, sizeof rows[i].metric, "%s", i < 4 ? "decode_tok_s" : "load_s");
    assert_int_equal(accuracy_of(a, rows, 5), 2);
    CHECK(a[0].n == 3 && a[0].within_10 == 1 && a[0].within_20 == 2 && a[0].in_interval == 2);
    CHECK_NEAR(a[0].median_error, 0.15, 1e-12);
    CHECK(a[1].n == 1 && a[1].within_10 == 1);
}

/* Memory that is slower than it was measured is what models that wait for it have in common. */
static void waiting_for_memory_is_learned_by_its_share(void **state)
{
    struct teaching *t = *state;
    for (int i = 0; i < 3; i++) {
        teach(t, traits_of("bf16", 3, "threads=1", 0.9), 50, 40);
        teach(t, traits_of("q4_0", 4, "threads=1", 0.1), 50, 49);
    }
    const struct estimate waits = ask(t, traits_of("q8_0", 5, "threads=1", 0.9), 100, 0.1),
                          thinks = ask(t, traits_of("q8_0", 5, "threads=1", 0.1), 100, 0.1),
                          others = ask(t, traits_of("q8_0", 5, "threads=2", 0.9), 100, 0.1);
    CHECK(waits.value < 92.5 && thinks.value > 94 && thinks.value < 100);
    CHECK(waits.value < others.value && others.value < thinks.value);
    CHECK(width(waits) > width(thinks)); /* as memory is now, it may not be when this runs */
}

/* A run beside which memory was looked at says more of everything else. */
static void a_known_memory_is_less_noise(void **state)
{
    struct teaching *t = *state;
    const struct residual_traits blind = traits_of("bf16", 3, "threads=1", 0.9),
                                 seen = traits_at("bf16", 3, "threads=1", 0.9, 0.7);
    CHECK(!blind.conditions.memory_ratio && seen.conditions.memory_ratio == 0.7 &&
          strstr(seen.text, " pace=0.700"));
    teach(t, blind, 50, 40);
    const double after_blind = ask(t, traits_of("q8_0", 3, "threads=1", 0.9), 100, 0.1).value;
    struct err why = { 0 };
    CHECK_OK(db_residual_clear(t->d, "m", &why));
    teach(t, seen, 50, 40);
    const struct estimate e = ask(t, traits_at("q8_0", 3, "threads=1", 0.9, 0.7), 100, 0.1),
                          unknown = ask(t, traits_of("q8_0", 3, "threads=1", 0.9), 100, 0.1);
    CHECK(e.value < after_blind && width(e) < width(unknown));
}

/* One run that says what no other does moves none of them by much; several that agree are no outliers. */
static void what_no_other_run_says_counts_little(void **state)
{
    static const char *const RECIPES[] = { "q4_0", "q8_0", "q4_K", "q6_K", "f16", "q5_0" };
    struct teaching *t = *state;
    for (size_t r = 0; r < COUNT_OF(RECIPES); r++)
        for (int th = 1; th <= 2; th++) {
            char line[16];
            snprintf(line, sizeof line, "threads=%d", th);
            teach(t, traits(RECIPES[r], 3, line), 50, 47 + 0.3 * (double)((r + (size_t)th) % 3));
        }
    const struct residual_traits like = traits("q5_K", 3, "threads=2"), same = traits("q4_1", 3, "threads=2");
    const struct estimate before = ask(t, like, 100, 0.1);
    CHECK(before.value > 93 && before.value < 96);
    teach(t, same, 50, 100);
    const struct estimate after = ask(t, like, 100, 0.1);
    CHECK_NEAR(after.value / before.value, 1, 0.01);
    CHECK(width(after) < 1.2 * width(before));
    for (int i = 0; i < 4; i++) teach(t, same, 50, 100);
    CHECK(ask(t, same, 100, 0.1).value > 150); /* they agree with each other */
}

/* A run whose repetitions differ much teaches little. */
static void repetitions_say_how_much_a_run_teaches(void **state)
{
    static const struct model_shape SHAPE = { .arch = "llama", .params = 3 };
    struct teaching *t = *state;
    struct err why = { 0 };
    struct config c;
    double value[3];
    CHECK_OK(config_parse(&c, "q4_0,threads=1", &why));
    for (int i = 0; i < 3; i++) {
        struct residual_traits given;
        residual_traits_of(&given, &SHAPE, &c,
                           &(struct residual_work){
                               .depth = 64, .threads = 1, .noise = 0.1 * i, .conditions = { 0.9, 0.8 } });
        CHECK(given.conditions.core_ratio == 0.8 && !strstr(given.text, " noise=") == !i);
        CHECK_NEAR(given.noise, 0.1 * i, 1e-12);
        CHECK_OK(db_residual_clear(t->d, "m", &why));
        teach(t, given, 50, 40);
        value[i] = ask(t, traits("q4_0", 3, "threads=1"), 100, 0.1).value;
    }
    CHECK(80 < value[0] && value[0] < value[1] - 1 && value[1] < value[2] - 1 && value[2] < 100);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(nothing_learned_is_the_model_alone),         T(what_is_like_a_run_learns_most),
        T(the_order_of_runs_does_not_matter),          T(unseen_configurations_lie_in_their_intervals),
        T(waiting_for_memory_is_learned_by_its_share), T(a_known_memory_is_less_noise),
        T(repetitions_say_how_much_a_run_teaches),     T(accuracy_counts),
        T(what_no_other_run_says_counts_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
