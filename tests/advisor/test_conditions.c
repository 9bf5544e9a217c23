/* Proves: what the machine did during two runs is compared before anything is concluded. Two runs on a loaded
 * machine get no verdict on speed, however far apart and however narrow their results are, but one on memory;
 * the same results on a quiet machine get theirs. Everything recorded that differs is listed, conditions
 * first; "nothing differs" is said only when nothing does. A regression in the history names the load, too.
 */
#include <math.h>
#include <string.h>

#include "tests/check.h"
#include "advisor/history/history.h"
#include "advisor/run/run.h"

/* ---------------------------------------------------------------- making runs */

struct made {
    double rate, memory;        /* decode_tok_s, peak_rss_bytes */
    double others, clock, heat; /* sensors; NAN: not read */
    const char *spec, *capsule; /* NULL: none */
};

static struct made quiet(double rate)
{
    return (struct made){ .rate = rate,
                          .memory = 1e9,
                          .others = 0.01,
                          .clock = 3e9,
                          .heat = 50,
                          .spec = "{\"budget_s\":60.0,\"seed\":\"1\",\"workload\":\"tg64\"}",
                          .capsule = "{\"program\":{\"version\":\"1\"}}" };
}

static int64_t put_run(struct db *d, const struct made *x)
{
    struct err why;
    struct run_row r = { .kind = "bench",
                         .state = "done",
                         .workload = "tg64",
                         .metric = "decode_tok_s",
                         .effect_ratio = NAN,
                         .spec_json = (char *)x->spec };
    CHECK_OK(db_run_insert(d, &r, &why));
    if (x->capsule) CHECK_OK(db_capsule_put(d, r.id, x->capsule, &why));
    for (int i = 0; i < 6; i++) {
        struct cell_row c = {
            .run_id = r.id, .block = -1, .phase = "bench", .config = "default", .work_hash = "w"
        };
        const struct measurement m[] = {
            { "decode_tok_s", "tokens/s", x->rate * (1 + 0.001 * i) },
            { "peak_rss_bytes", "bytes", x->memory * (1 + 1e-5 * i) },
            { "others_busy_ratio", "ratio", x->others },
            { "cpu_frequency_hertz", "hertz", x->clock },
            { "cpu_temperature_celsius", "celsius", x->heat },
        };
        CHECK_OK(db_cell_insert(d, &c, m, COUNT_OF(m), NULL, 0, NULL, 0, &why));
    }
    return r.id;
}

struct two {
    struct db *d;
    struct results before, after;
};

static struct two two_open(const struct made *a, const struct made *b)
{
    struct err why;
    struct two t = { .d = NULL };
    CHECK_OK(db_open(&t.d, ":memory:", &why));
    const int64_t first = put_run(t.d, a), second = put_run(t.d, b);
    CHECK_OK(results_read(&t.before, t.d, first, &why));
    CHECK_OK(results_read(&t.after, t.d, second, &why));
    return t;
}

static void two_close(struct two *t)
{
    results_free(&t->before);
    results_free(&t->after);
    db_close(t->d);
}

static struct compared verdict_on(struct two *t, enum metric_id metric)
{
    struct err why;
    struct compared *rows;
    int n;
    CHECK_OK(compare_runs(&rows, &n, &t->before, &t->after, &METRICS[metric], 0.01, &why));
    assert_int_equal(n, 1);
    const struct compared only = rows[0];
    free(rows);
    return only;
}

/* The changes as one text, and the lines before them. */
static char *changes_of(struct two *t, struct str *lead)
{
    const struct run_recorded a = results_recorded(&t->before), b = results_recorded(&t->after);
    json_t *all = run_changes(&a, &b, NULL);
    struct str text = { 0 };
    run_changes_text(&text, all, 100);
    str_clear(lead);
    run_changes_lead(lead, &a, &b, all);
    json_decref(all);
    return text.data ? text.data : strdup("");
}

/* ---------------------------------------------------------------- verdicts */

static void a_loaded_machine_gets_no_verdict_on_speed(void **state)
{
    (void)state;
    struct made a = quiet(100), b = quiet(146);
    struct two t = two_open(&a, &b);
    CHECK_EQ(verdict_on(&t, METRIC_DECODE_RATE).verdict, VERDICT_BETTER);
    two_close(&t);

    a.others = 0.76; /* the case: +46 %, with 76 and 69 % used by other programs */
    b.others = 0.69;
    a.memory = 2e9;
    t = two_open(&a, &b);
    const struct compared c = verdict_on(&t, METRIC_DECODE_RATE);
    CHECK_EQ(c.verdict, VERDICT_INCONCLUSIVE);
    CHECK_CONTAINS(c.reason, "other work loaded the machine");
    CHECK_NEAR(c.effect.estimate, log(1.46), 1e-3); /* still shown */
    CHECK_EQ(verdict_on(&t, METRIC_PEAK_MEMORY).verdict, VERDICT_BETTER);
    two_close(&t);

    a.others = 0.01; /* one loaded run is enough */
    t = two_open(&a, &b);
    CHECK_EQ(verdict_on(&t, METRIC_DECODE_RATE).verdict, VERDICT_INCONCLUSIVE);
    two_close(&t);
}

/* ---------------------------------------------------------------- words */

static void the_load_is_the_first_suspicion(void **state)
{
    (void)state;
    struct made a = quiet(100), b = quiet(146);
    struct str lead = { 0 };
    a.others = 0.76;
    b.others = 0.69;
    struct two t = two_open(&a, &b);
    char *text = changes_of(&t, &lead);
    assert_string_equal(text, "CPU time used by other programs 76 % -> 69 %");
    CHECK(str_starts(str_text(&lead),
                     "first suspicion: both runs were measured on a loaded machine (CPU time used "
                     "by other programs: 76 % and 69 %)"));
    CHECK_CONTAINS(str_text(&lead), "1 recorded thing differs");
    free(text);
    two_close(&t);

    b.others = 0.76; /* equal loads differ in nothing, but they are no reason to say that all is well */
    t = two_open(&a, &b);
    text = changes_of(&t, &lead);
    assert_string_equal(text, "");
    CHECK_CONTAINS(str_text(&lead), "both runs were measured on a loaded machine");
    free(text);
    two_close(&t);

    b.others = NAN;
    t = two_open(&a, &b);
    text = changes_of(&t, &lead);
    CHECK_CONTAINS(text, "CPU time used by other programs 76 % -> n/a");
    CHECK_CONTAINS(str_text(&lead), "the first run was measured on a loaded machine");
    CHECK_CONTAINS(str_text(&lead), "during the second run was not recorded");
    free(text);
    two_close(&t);
    str_free(&lead);
}

static void everything_recorded_is_compared_and_conditions_come_first(void **state)
{
    (void)state;
    struct made a = quiet(100), b = quiet(100);
    struct str lead = { 0 };
    struct two t = two_open(&a, &b);
    char *text = changes_of(&t, &lead);
    assert_string_equal(text, "");
    CHECK_CONTAINS(str_text(&lead), "nothing that was recorded differs");
    CHECK_CONTAINS(str_text(&lead), "load, clock and temperature");
    free(text);
    two_close(&t);

    b.clock = 2e9;
    b.heat = 80;
    b.spec = "{\"budget_s\":300.0,\"seed\":\"2\",\"workload\":\"tg64\",\"turns\":\"on\"}";
    b.capsule = "{\"program\":{\"version\":\"2\"}}";
    t = two_open(&a, &b);
    text = changes_of(&t, &lead);
    assert_string_equal(text,
                        "CPU clock 3.00 GHz -> 2.00 GHz; CPU temperature 50 °C -> 80 °C; "
                        "time budget in seconds 60.0 -> 300.0; arms take turns within a block n/a -> on; "
                        "program.version 1 -> 2");
    CHECK_CONTAINS(str_text(&lead), "5 recorded things differ between the runs:");
    free(text);
    two_close(&t);

    b = quiet(100);
    b.clock = 3.05e9; /* within the sensor's noise */
    b.heat = 53;
    b.capsule = NULL;
    t = two_open(&a, &b);
    text = changes_of(&t, &lead);
    assert_string_equal(text, "");
    CHECK_CONTAINS(str_text(&lead), "the set-up of the second run");
    CHECK(!strstr(str_text(&lead), "nothing that was recorded"));
    free(text);
    two_close(&t);
    str_free(&lead);
}

/* The values of a change are those of the record, also where its key has spaces. */
static void one_change_is_printed_alone(void **state)
{
    (void)state;
    struct str text = { 0 };
    json_t *change = json_pack("{ssssssss}", "group", "environment", "key", "A B", "before", "x y", "after",
                               "z");
    run_change_text(&text, change);
    assert_string_equal(str_text(&text), "environment.A B x y -> z");
    json_object_set_new(change, "group", json_string(CHANGES_SPEC));
    json_object_set_new(change, "key", json_string("quality_file"));
    str_clear(&text);
    run_change_text(&text, change);
    assert_string_equal(str_text(&text), "text for quality x y -> z");
    json_decref(change);
    str_free(&text);
}

/* Cells that only prepare a run say nothing about how it was measured; those of a search do. */
static void conditions_are_those_of_the_cells_that_count(void **state)
{
    (void)state;
    static const struct {
        const char *phase;
        double others;
    } CELLS[] = { { "warmup", 0.9 }, { "control", 0.9 }, { "canary", 0.9 },
                  { "search", 0.9 }, { "race", 0.2 },    { "block", 0.4 } };
    struct err why;
    struct db *d;
    struct run_row run = {
        .kind = "ab", .state = "done", .workload = "tg64", .metric = "decode_tok_s", .effect_ratio = NAN
    };
    struct results r;
    CHECK_OK(db_open(&d, ":memory:", &why));
    CHECK_OK(db_run_insert(d, &run, &why));
    for (size_t i = 0; i < COUNT_OF(CELLS); i++) {
        struct cell_row c = { .run_id = run.id, .block = -1, .config = "default", .work_hash = "w" };
        const struct measurement m = { "others_busy_ratio", "ratio", CELLS[i].others };
        snprintf(c.phase, sizeof c.phase, "%s", CELLS[i].phase);
        CHECK_EQ(cell_phase_is(c.phase, PHASE_CONDITIONS), CELLS[i].others < 0.9);
        CHECK_OK(db_cell_insert(d, &c, &m, 1, NULL, 0, NULL, 0, &why));
    }
    CHECK_OK(results_read(&r, d, run.id, &why));
    CHECK_EQ(r.conditions.count[CONDITION_OTHERS], 2);
    CHECK_NEAR(r.conditions.value[CONDITION_OTHERS], 0.3, 1e-12);
    results_free(&r);
    db_close(d);
}

/* ---------------------------------------------------------------- the history */

static void a_change_in_the_history_names_the_load(void **state)
{
    (void)state;
    struct err why;
    struct db *d;
    struct history h;
    struct history_findings f;
    const struct history_want want = { .limit = 100, .metric = &METRICS[METRIC_DECODE_RATE], .raw = true };
    CHECK_OK(db_open(&d, ":memory:", &why));
    for (int i = 0; i < 12; i++) {
        struct made x = quiet((i < 6 ? 100 : 60) + 0.05 * (i * 7 % 5));
        x.others = i < 6 ? 0.01 : 0.7;
        put_run(d, &x);
    }
    CHECK_OK(history_read(&h, d, &want, &why));
    assert_int_equal(h.n, 1);
    CHECK_OK(history_detect(&f, &h.series[0], 0.02, &why));
    assert_int_equal(f.changes, 1);
    CHECK_CONTAINS(f.change[0].load, "the second run was measured on a loaded machine");
    assert_int_equal(json_array_size(f.change[0].what), 1);
    assert_string_equal(json_get_str(json_array_get(f.change[0].what, 0), "key", ""), "others_busy_ratio");
    history_findings_free(&f);
    history_free(&h);
    db_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loaded_machine_gets_no_verdict_on_speed),
        cmocka_unit_test(the_load_is_the_first_suspicion),
        cmocka_unit_test(everything_recorded_is_compared_and_conditions_come_first),
        cmocka_unit_test(one_change_is_printed_alone),
        cmocka_unit_test(conditions_are_those_of_the_cells_that_count),
        cmocka_unit_test(a_change_in_the_history_names_the_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
