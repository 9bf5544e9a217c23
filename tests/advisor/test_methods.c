/* Proves: each method of `history --detect --method` finds a known step or outlier where it is, and reports
 * nothing in a flat series; the band is the one worked by hand; the forest finds a run that is unusual in one
 * metric only; too few runs, changes below the margin and unknown levels are not reported; false alarms stay
 * within the rates that docs/history.md states. Reference values: scipy 1.17.1. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/advisor/series.h"
#include "tests/check.h"

static struct simulated_series *made(const struct noise *noise, uint64_t number, int runs, int at,
                                     double step)
{
    struct simulated_series *s = malloc(sizeof *s);
    assert_non_null(s);
    series_simulate(s, noise, number, runs, 0.02, at, step);
    return s;
}

static struct method_findings found(enum history_method_id m, const struct simulated_series *s,
                                    double min_effect)
{
    struct method_findings f;
    struct err why;
    CHECK_OK(history_method_find(&f, m, &s->series, min_effect, &why));
    return f;
}

static void rows_are_complete(void **state)
{
    (void)state;
    for (int m = 0; m < HISTORY_METHOD_COUNT; m++) {
        assert_non_null(HISTORY_METHOD_NAMES[m]);
        assert_non_null(HISTORY_METHODS[m].what);
        assert_non_null(HISTORY_METHODS[m].finding);
        assert_non_null(HISTORY_METHODS[m].param[0].name);
        CHECK_LE(HISTORY_LEAST, HISTORY_METHODS[m].least);
    }
    assert_null(HISTORY_METHOD_NAMES[HISTORY_METHOD_COUNT]);
    CHECK_EQ(HISTORY_METHODS[HISTORY_METHOD_BASELINE_TEST].least -
                 (int)HISTORY_METHODS[HISTORY_METHOD_BASELINE_TEST].param[0].value,
             5); /* a variance of the runs before needs some */
}

static void band_by_hand(void **state)
{
    (void)state;
    /* five values before: mean 10, sd sqrt(0.5 / 4) = 0.35355; scipy.stats.t.ppf(0.975, 4)
     * = 2.7764451051977987; half width 2.7764451 * 0.35355339 * sqrt(1.2) = 1.0753126 */
    const double x[] = { 10, 10.5, 9.5, 10, 10, 14, 1 };
    double low[7], high[7];
    series_band(x, 7, 5, 0.05, low, high);
    for (int i = 0; i < BAND_LEAST; i++) CHECK_NAN(low[i]);
    CHECK_NEAR(low[5], 10 - 1.0753126, 1e-6);
    CHECK_NEAR(high[5], 10 + 1.0753126, 1e-6);
    CHECK_NEAR(0.5 * (low[6] + high[6]), (10.5 + 9.5 + 10 + 10 + 14) / 5, 1e-12); /* the window moved on */
}

/* Every method but the forest, whose outlier has a test of its own, on series with a fixed seed. */
static void a_known_step_is_found(void **state)
{
    (void)state;
    static const struct {
        enum history_method_id method;
        int after; /* runs of the new level */
    } CASES[] = {
        { HISTORY_METHOD_CHANGES, 10 },
        { HISTORY_METHOD_MOVING_AVERAGE, 1 },
        { HISTORY_METHOD_ROBUST_Z, 1 },
        { HISTORY_METHOD_BASELINE_TEST, 5 },
    };
    enum { RUNS = 40 };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        const int at = RUNS - CASES[i].after;
        struct simulated_series *s = made(&SERIES_NOISES[0], 3, RUNS, at, 12);
        struct method_findings f = found(CASES[i].method, s, 0.01);
        CHECK_LE(1, f.n);
        const struct method_finding *last = &f.finding[f.n - 1];
        CHECK_EQ(last->at, at);
        CHECK_NEAR(last->effect, -0.24, 0.05);
        CHECK(last->now); /* about the newest run: it sets the exit status */
        CHECK_EQ(last->metric, METRIC_DECODE_RATE);
        method_findings_free(&f);
        f = found(CASES[i].method, s, 0.5); /* smaller than what matters */
        CHECK_EQ(f.n, 0);
        method_findings_free(&f);
        free(s);
    }
}

static void a_flat_series_has_no_finding(void **state)
{
    (void)state;
    for (int m = 0; m < HISTORY_METHOD_COUNT; m++) {
        struct simulated_series *s = made(&SERIES_NOISES[0], 7, 40, 40, 0);
        struct method_findings f = found((enum history_method_id)m, s, 0);
        CHECK_EQ(f.n, 0);
        method_findings_free(&f);
        for (int i = 0; i < 40; i++) { /* without any noise */
            s->point[i].level = 1;
            for (int k = 0; k < RESULT_METRICS; k++) s->point[i].metric[k] = 1;
        }
        f = found((enum history_method_id)m, s, 0);
        CHECK_EQ(f.n, 0);
        method_findings_free(&f);
        free(s);
    }
}

static void the_forest_finds_an_outlier_in_one_metric(void **state)
{
    (void)state;
    enum { RUNS = 60, AT = 31 };
    struct simulated_series *s = made(&SERIES_NOISES[0], 5, RUNS, RUNS, 0);
    const int memory = METRIC_PEAK_MEMORY - METRIC_SENSOR_COUNT;
    s->point[AT].metric[memory] += 20 * 0.02;
    struct method_findings f = found(HISTORY_METHOD_ISOLATION_FOREST, s, 0.01);
    CHECK_EQ(f.n, 1);
    CHECK_EQ(f.finding[0].at, AT);
    CHECK_EQ(f.finding[0].metric, METRIC_PEAK_MEMORY);
    CHECK_LT(HISTORY_METHODS[HISTORY_METHOD_ISOLATION_FOREST].param[0].value, f.finding[0].score);
    CHECK_NAN(f.finding[0].effect);
    CHECK(!f.finding[0].now);
    method_findings_free(&f);
    for (int m = 0; m < HISTORY_METHOD_ISOLATION_FOREST; m++) { /* the others look at one metric */
        f = found((enum history_method_id)m, s, 0.05);
        CHECK_EQ(f.n, 0);
        method_findings_free(&f);
    }
    free(s);
}

static void what_is_unknown_is_left_out(void **state)
{
    (void)state;
    struct simulated_series *s = made(&SERIES_NOISES[0], 3, 40, 39, 12);
    for (int i = 5; i < 10; i++) s->point[i].level = NAN;
    struct method_findings f = found(HISTORY_METHOD_MOVING_AVERAGE, s, 0.01);
    CHECK_EQ(f.n, 1);
    CHECK_EQ(f.finding[0].at, 39);
    CHECK_NAN(f.low[7]);
    CHECK(f.low[20] < f.high[20]);
    method_findings_free(&f);
    for (int m = 0; m < HISTORY_METHOD_COUNT; m++) {
        struct history_series few = s->series;
        few.n = HISTORY_METHODS[m].least - 1;
        few.point = s->point + 40 - few.n; /* with the step, but too short */
        struct err why;
        CHECK_OK(history_method_find(&f, (enum history_method_id)m, &few, 0, &why));
        CHECK_EQ(f.n, 0);
        method_findings_free(&f);
    }
    free(s);
}

/* Upper bounds of the table in docs/history.md, with room for the few series that a test can afford. */
static void false_alarms_are_as_documented(void **state)
{
    (void)state;
    enum { SERIES = 100, RUNS = 20 };
    static const struct {
        enum history_method_id method;
        const char *noise;
        int most; /* of SERIES */
    } CASES[] = {
        { HISTORY_METHOD_MOVING_AVERAGE, "independent", 4 },
        { HISTORY_METHOD_MOVING_AVERAGE, "AR(1) 0.5", 6 },
        { HISTORY_METHOD_BASELINE_TEST, "independent", 3 },
        { HISTORY_METHOD_BASELINE_TEST, "heavy tails", 3 },
        { HISTORY_METHOD_ROBUST_Z, "independent", 20 },
        { HISTORY_METHOD_ISOLATION_FOREST, "independent", 10 },
    };
    for (size_t c = 0; c < COUNT_OF(CASES); c++) {
        int alarms = 0, kind = 0;
        while (strcmp(SERIES_NOISES[kind].name, CASES[c].noise)) kind++;
        for (uint64_t i = 0; i < SERIES; i++) {
            struct simulated_series *s = made(&SERIES_NOISES[kind], i, RUNS, RUNS, 0);
            struct method_findings f = found(CASES[c].method, s, 0);
            alarms += f.n > 0;
            method_findings_free(&f);
            free(s);
        }
        CHECK_LE(alarms, CASES[c].most);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_complete),
        cmocka_unit_test(band_by_hand),
        cmocka_unit_test(a_known_step_is_found),
        cmocka_unit_test(a_flat_series_has_no_finding),
        cmocka_unit_test(the_forest_finds_an_outlier_in_one_metric),
        cmocka_unit_test(what_is_unknown_is_left_out),
        cmocka_unit_test(false_alarms_are_as_documented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
