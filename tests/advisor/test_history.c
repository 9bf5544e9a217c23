/* Proves, on databases made here: results are read by block and by repetition, without cells that do not
 * count; two runs are compared as scipy compares them, paired by config line first, normalized by the canary;
 * an effect that repeats is reproduced, another is not; a baseline is made from the requested result of a
 * run; a planted regression is found at its run with the change of the machine, unless the canary shares it;
 * outliers and alarms. */
#include <math.h>
#include <string.h>

#include "tests/check.h"
#include "advisor/experiment/experiment.h"
#include "advisor/history/history.h"
#include "advisor/run/run.h"
#include "advisor/stats/stats.h"

/* ---------------------------------------------------------------- making runs */

struct plan {
    const char *line[2]; /* arms; second NULL: one arm */
    double rate[2];      /* decode_tok_s */
    double noise;        /* standard deviation of a cell's log */
    int blocks;
    double canary;       /* factor on both canary figures; 0: no canary */
    const char *capsule; /* NULL: none */
    const char *machine, *kind;
    double memory; /* peak_rss_bytes; 0: not measured */
    uint64_t seed;
};

static double gauss(uint64_t *random)
{
    return stats_normal_quantile(((double)(stats_random(random) >> 11) + 0.5) * 0x1p-53);
}

static void put_cell(struct db *d, const struct cell_row *c, const char *m1, double v1, const char *m2,
                     double v2)
{
    struct err why;
    struct cell_row row = *c;
    const struct measurement m[] = { { m1, "", v1 }, { m2, "", v2 } };
    CHECK_OK(db_cell_insert(d, &row, m, COUNT_OF(m), NULL, 0, NULL, 0, &why));
}

static void put_canary(struct db *d, int64_t run, double factor, int slot)
{
    struct cell_row c = { .run_id = run, .arm = -1, .block = -1, .slot = slot };
    snprintf(c.phase, sizeof c.phase, CANARY_PHASE);
    snprintf(c.config, sizeof c.config, "read 64M");
    put_cell(d, &c, "canary_read_bytes_s", factor * 1e10, "canary_ops_s", factor * 1e11);
}

static void put_arm(struct db *d, int64_t run, const struct plan *p, int arm, int block, uint64_t *random)
{
    struct err why;
    struct cell_row c = { .run_id = run, .arm = arm, .block = block };
    const bool bench = !strcmp(p->kind, "bench");
    snprintf(c.phase, sizeof c.phase, "%s", bench ? "bench" : "block");
    snprintf(c.config, sizeof c.config, "%s", p->line[arm]);
    snprintf(c.work_hash, sizeof c.work_hash, "work");
    if (bench) c.block = -1;
    const double rate = p->rate[arm] * exp(p->noise * gauss(random));
    const struct measurement m[] = { { "decode_tok_s", "tokens/s", rate },
                                     { "peak_rss_bytes", "bytes", p->memory > 0 ? p->memory : NAN },
                                     { "itl_p50_s", "seconds", p->memory > 0 ? 1.01 / rate : NAN } };
    CHECK_OK(db_cell_insert(d, &c, m, COUNT_OF(m), NULL, 0, NULL, 0, &why));
}

static int64_t put_run(struct db *d, const struct plan *p)
{
    struct err why;
    struct run_row r = { .state = "done", .workload = "tg64", .metric = "decode_tok_s", .effect_ratio = NAN };
    uint64_t random = p->seed * 1000003;
    snprintf(r.kind, sizeof r.kind, "%s", p->kind);
    snprintf(r.machine, sizeof r.machine, "%s", p->machine);
    snprintf(r.model_sha256, sizeof r.model_sha256, "feed");
    snprintf(r.model_name, sizeof r.model_name, "toy.gguf");
    CHECK_OK(db_machine_put(d, p->machine, "{}", &why));
    CHECK_OK(db_model_put(d, "feed", "toy.gguf", "/m/toy.gguf", "{}", &why));
    CHECK_OK(db_run_insert(d, &r, &why));
    if (p->capsule) CHECK_OK(db_capsule_put(d, r.id, p->capsule, &why));
    if (p->canary > 0) put_canary(d, r.id, p->canary, CANARY_START);
    for (int b = 0; b < p->blocks; b++)
        for (int k = 0; k < 4; k++) { /* ABBA */
            const int arm = (k == 1 || k == 2) && p->line[1];
            put_arm(d, r.id, p, arm, b, &random);
        }
    if (p->canary > 0) put_canary(d, r.id, p->canary, CANARY_END);
    return r.id;
}

static struct plan plan_of(double a, double b, uint64_t seed)
{
    return (struct plan){ .line = { "f32", "q8_0" },
                          .rate = { a, b },
                          .noise = 0.004,
                          .blocks = 8,
                          .canary = 1,
                          .machine = "m1",
                          .kind = "ab",
                          .seed = seed };
}

static struct db *fresh(void)
{
    struct db *d;
    struct err why;
    CHECK_OK(db_open(&d, ":memory:", &why));
    return d;
}

/* ---------------------------------------------------------------- results */

static void only_valid_cells_are_results(void **state)
{
    (void)state;
    struct err why;
    struct db *d = fresh();
    struct plan p = plan_of(100, 120, 1);
    p.noise = 0;
    const int64_t run = put_run(d, &p);
    struct cell_row c = { .run_id = run, .arm = 0, .block = 3, .phase = "control", .config = "f32" };
    put_cell(d, &c, "decode_tok_s", 7, "ttft_s", 1); /* control blocks are no result */
    c = (struct cell_row){ .run_id = run, .arm = 1, .block = -1, .phase = "warmup", .config = "q8_0" };
    put_cell(d, &c, "decode_tok_s", 7, "ttft_s", 1);
    CHECK_OK(db_block_discard(d, run, 2, "block", "steal", &why));

    struct results r;
    CHECK_OK(results_read(&r, d, run, &why));
    assert_int_equal(r.n, 2);
    assert_int_equal(r.result[0].units, 7); /* 8 blocks, one of them discarded */
    assert_int_equal(r.result[1].units, 7);
    assert_string_equal(r.result[1].config, "q8_0");
    assert_string_equal(r.result[1].workload, "tg64");
    CHECK_NEAR(result_mean(&r.result[0], METRIC_DECODE_RATE), log(100), 1e-12);
    CHECK_NEAR(result_mean(&r.result[1], METRIC_DECODE_RATE), log(120), 1e-12);
    CHECK_NAN(result_mean(&r.result[1], METRIC_TTFT));
    CHECK_NAN(result_mean(&r.result[0], METRIC_PEAK_MEMORY));
    CHECK_EQ(result_main_metric(&r.result[0]), METRIC_DECODE_RATE);
    CHECK_NEAR(results_canary(&r, METRIC_DECODE_RATE), log(1e10), 1e-12);
    CHECK_NEAR(results_canary(&r, METRIC_TTFT), -log(1e11), 1e-12);
    CHECK_NEAR(results_canary(&r, METRIC_PEAK_MEMORY), 0, 0);
    CHECK_NEAR(r.canary_drift[METRIC_CANARY_READ - METRIC_SENSOR_COUNT], 0, 0);
    assert_string_equal(results_model(&r, "q8_0"), "feed");
    results_free(&r);

    p.kind = "bench";
    p.canary = 0;
    CHECK_OK(results_read(&r, d, put_run(d, &p), &why));
    assert_int_equal(r.result[0].units, 16); /* each repetition is a unit */
    CHECK_NAN(results_canary(&r, METRIC_DECODE_RATE));
    results_free(&r);
    CHECK_EQ(results_read(&r, d, 99, &why), ERR_USAGE);
    db_close(d);
}

/* ---------------------------------------------------------------- two runs */

struct two {
    struct db *d;
    struct results before, after;
    struct compared *row;
    int n;
};

static struct two compare(const struct plan *a, const struct plan *b)
{
    struct err why;
    struct two t = { .d = fresh() };
    const int64_t first = put_run(t.d, a), second = put_run(t.d, b);
    CHECK_OK(results_read(&t.before, t.d, first, &why));
    CHECK_OK(results_read(&t.after, t.d, second, &why));
    CHECK_OK(compare_runs(&t.row, &t.n, &t.before, &t.after, NULL, 0.01, &why));
    return t;
}

static void two_done(struct two *t)
{
    free(t->row);
    results_free(&t->before);
    results_free(&t->after);
    db_close(t->d);
}

static void a_difference_is_found_and_normalized(void **state)
{
    (void)state;
    struct plan a = plan_of(100, 120, 1), b = plan_of(90, 120, 2);
    struct two t = compare(&a, &b);
    assert_int_equal(t.n, 2);
    CHECK_EQ(t.row[0].verdict, VERDICT_WORSE);
    CHECK_NEAR(t.row[0].n_before, 8, 0);
    CHECK_NEAR(t.row[0].n_after, 8, 0);
    CHECK_NEAR(t.row[0].effect.estimate, log(0.9), 0.01);
    CHECK_LT(t.row[0].effect.lower, t.row[0].effect.estimate);
    CHECK_LT(t.row[0].effect.upper, 0);
    CHECK_NEAR(t.row[0].rate_before.estimate, 100, 1);
    CHECK_NEAR(t.row[0].normalized.estimate, t.row[0].effect.estimate, 1e-12);
    CHECK_EQ(t.row[1].verdict, VERDICT_EQUIVALENT);
    CHECK_EQ(compare_worst(t.row, t.n), VERDICT_WORSE);
    CHECK_EQ(compare_worst(t.row + 1, 1), VERDICT_EQUIVALENT);
    CHECK_EQ(compare_worst(t.row, 0), VERDICT_INVALID);
    two_done(&t);

    b.canary = 0.9; /* the whole machine was 10 % slower: normalized, arm A did not change and B improved */
    t = compare(&a, &b);
    CHECK_EQ(t.row[0].verdict, VERDICT_WORSE); /* as measured */
    CHECK_NEAR(t.row[0].canary, log(0.9), 1e-12);
    char reason[160];
    CHECK(compared_machine_changed(&t.row[0], reason, sizeof reason));
    assert_string_equal(reason,
                        "the canary was 10 % slower in the second run, so the machine itself changed");
    CHECK_NEAR(t.row[0].normalized.estimate, 0, 0.01);
    CHECK_NEAR(t.row[1].normalized.estimate, -log(0.9), 0.01);
    two_done(&t);

    b.canary = 0;
    t = compare(&a, &b);
    CHECK_NAN(t.row[0].canary);
    CHECK(!compared_machine_changed(&t.row[0], reason, sizeof reason));
    assert_string_equal(reason, "");
    CHECK_NAN(t.row[0].normalized.estimate);
    two_done(&t);
}

static void partners_by_line_then_by_place(void **state)
{
    (void)state;
    struct plan a = plan_of(100, 120, 1), b = plan_of(120, 100, 2);
    b.line[0] = "q8_0"; /* the same runs in reverse order */
    b.line[1] = "f32";
    struct two t = compare(&a, &b);
    assert_int_equal(t.n, 2);
    assert_string_equal(t.row[0].after->config, "f32");
    CHECK_EQ(t.row[0].verdict, VERDICT_EQUIVALENT);
    CHECK_EQ(t.row[1].verdict, VERDICT_EQUIVALENT);
    two_done(&t);

    b = plan_of(100, 150, 3);
    b.line[1] = "q4_K"; /* another config at the same position */
    t = compare(&a, &b);
    assert_int_equal(t.n, 2);
    assert_string_equal(t.row[1].before->config, "q8_0");
    assert_string_equal(t.row[1].after->config, "q4_K");
    CHECK_EQ(t.row[1].verdict, VERDICT_BETTER);
    two_done(&t);

    b.line[1] = NULL; /* one arm only */
    b.kind = "bench";
    t = compare(&a, &b);
    assert_int_equal(t.n, 2);
    CHECK_EQ(t.row[1].verdict, VERDICT_NONE);
    CHECK(!t.row[1].after);
    CHECK_CONTAINS(t.row[1].reason, "only the first");
    two_done(&t);

    b = plan_of(100, 120, 4);
    b.blocks = 2;
    t = compare(&a, &b);
    CHECK_EQ(t.row[0].verdict, VERDICT_INCONCLUSIVE);
    CHECK_CONTAINS(t.row[0].reason, "at least 3");
    two_done(&t);
}

static void holm_correction_claims_less(void **state)
{
    (void)state;
    struct err why;
    struct db *d = fresh();
    int64_t run[2];
    for (int r = 0; r < 2; r++) {
        struct plan p = plan_of(100, 100, (uint64_t)r + 1);
        p.blocks = 0;
        run[r] = put_run(d, &p);
        for (int arm = 0; arm < 20; arm++)
            for (int b = 0; b < 6; b++) { /* only the first of twenty configs differs */
                const double noise = 0.01 * (b - 2.5), shift = arm ? 0 : r * 0.0244;
                struct cell_row c = {
                    .run_id = run[r], .arm = arm, .block = b, .phase = "block", .work_hash = "w"
                };
                snprintf(c.config, sizeof c.config, "threads=%d", arm + 1);
                put_cell(d, &c, "decode_tok_s", 100 * exp(noise - shift), "ttft_s", NAN);
            }
    }
    struct two t = { .d = d };
    CHECK_OK(results_read(&t.before, d, run[0], &why));
    CHECK_OK(results_read(&t.after, d, run[1], &why));
    CHECK_OK(compare_runs(&t.row, &t.n, &t.before, &t.after, NULL, 0.01, &why));
    assert_int_equal(t.n, 20);
    /* scipy.stats.ttest_ind(x, x - 0.0244, equal_var=False) of x = 0.01 * (0 .. 5) */
    CHECK_NEAR(t.row[0].p, 0.0474489310018548, 1e-12);
    CHECK_LT(t.row[0].effect.upper, 0); /* by itself it would count as a loss */
    CHECK_NEAR(t.row[0].p_family, 20 * t.row[0].p, 1e-12);
    CHECK_EQ(t.row[0].verdict, VERDICT_INCONCLUSIVE);
    CHECK_CONTAINS(t.row[0].reason, "20 differences");
    free(t.row);
    for (int i = 1; i < 20; i++) free(t.before.result[i].unit), free(t.after.result[i].unit);
    t.before.n = t.after.n = 1; /* with two configs it still does */
    CHECK_OK(compare_runs(&t.row, &t.n, &t.before, &t.after, NULL, 0.01, &why));
    CHECK_NEAR(t.n, 1, 0);
    CHECK_EQ(t.row[0].verdict, VERDICT_WORSE);
    two_done(&t);
}

static void verdicts_by_their_intervals(void **state)
{
    (void)state;
    static const struct {
        struct interval wide, narrow;
        enum verdict want;
    } CASES[] = {
        { { 0.05, 0.03, 0.07 }, { 0.05, 0.035, 0.065 }, VERDICT_BETTER },
        { { -0.05, -0.07, -0.03 }, { -0.05, -0.065, -0.035 }, VERDICT_WORSE },
        { { 0.001, -0.006, 0.008 }, { 0.001, -0.005, 0.007 }, VERDICT_EQUIVALENT },
        { { 0.009, 0.001, 0.017 }, { 0.009, 0.002, 0.016 }, VERDICT_NEGLIGIBLE },
        { { 0.02, -0.01, 0.05 }, { 0.02, -0.005, 0.045 }, VERDICT_INCONCLUSIVE },
        { { 0.02, NAN, NAN }, { 0.02, NAN, NAN }, VERDICT_INCONCLUSIVE },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++)
        assert_int_equal(compare_verdict(CASES[i].wide, CASES[i].narrow, 0.01), CASES[i].want);
}

static enum reproduction again(const struct plan *a, const struct plan *b, int *n)
{
    struct err why;
    struct two t = compare(a, b);
    struct reproduced *r;
    CHECK_OK(compare_effects(&r, n, &t.before, &t.after, &METRICS[METRIC_DECODE_RATE], 0.01, &why));
    const enum reproduction verdict = r[0].verdict;
    CHECK_NEAR(r[0].arm, 1, 0);
    CHECK_NEAR(r[0].n_before, 8, 0);
    CHECK_NEAR(r[0].before.estimate, log(a->rate[1] / a->rate[0]), 0.02);
    CHECK_NEAR(r[0].after.estimate - r[0].before.estimate, r[0].difference.estimate, 1e-12);
    free(r);
    two_done(&t);
    return verdict;
}

static void effects_are_reproduced_or_not(void **state)
{
    (void)state;
    int n;
    const struct plan a = plan_of(100, 120, 1);
    struct plan b = plan_of(80, 96, 2); /* a slower day with the same ratio */
    CHECK_EQ(again(&a, &b, &n), REPRODUCED);
    CHECK_NEAR(n, 1, 0);
    b = plan_of(100, 110, 3);
    CHECK_EQ(again(&a, &b, &n), NOT_REPRODUCED);
    b = plan_of(100, 120, 4);
    b.noise = 0.1;
    CHECK_EQ(again(&a, &b, &n), REPRODUCTION_UNKNOWN);
    b = plan_of(100, 120, 5);
    b.blocks = 2;
    CHECK_EQ(again(&a, &b, &n), REPRODUCTION_UNKNOWN);
    assert_string_equal(reproduction_name(NOT_REPRODUCED), "not reproduced");
}

static void a_winner_counts_by_its_confirmation(void **state)
{
    (void)state;
    struct err why;
    struct db *d = fresh();
    int n;
    struct plan p = plan_of(100, 120, 1);
    const int64_t first = put_run(d, &p);
    p.seed = 2;
    p.rate[1] = 112; /* the measurement after the race */
    const int64_t second = put_run(d, &p);
    for (int64_t run = first; run <= second;
         run++) /* confirmed at 112 in both, with blocks numbered from 0 again */
        for (int b = 0; b < 6; b++)
            for (int arm = 0; arm < 2; arm++) {
                struct cell_row c = {
                    .run_id = run, .arm = arm, .block = b, .phase = "confirm", .work_hash = "work"
                };
                snprintf(c.config, sizeof c.config, "%s", p.line[arm]);
                put_cell(d, &c, "decode_tok_s", (arm ? 112 : 100) * (1 + 0.001 * (b % 3) * arm), "ttft_s",
                         NAN);
            }
    struct results a, b;
    struct reproduced *r;
    CHECK_OK(results_read(&a, d, first, &why));
    CHECK_OK(results_read(&b, d, second, &why));
    assert_int_equal(a.result[1].units, 14); /* blocks with the same number in two phases are two units */
    CHECK_OK(compare_effects(&r, &n, &a, &b, &METRICS[METRIC_DECODE_RATE], 0.01, &why));
    CHECK_NEAR(n, 1, 0);
    CHECK_NEAR(r[0].n_before, 6, 0);
    CHECK_NEAR(r[0].n_after, 6, 0);
    CHECK_NEAR(r[0].before.estimate, log(1.12), 0.002); /* not the 1.2 by which it was selected */
    CHECK_EQ(r[0].verdict, REPRODUCED);
    free(r);
    results_free(&a);
    results_free(&b);
    db_close(d);
}

/* ---------------------------------------------------------------- champions */

#define TWO_MODELS                                                                                           \
    "{\"config\":[{\"line\":\"f32\"},{\"line\":\"q8_0\"}],"                                                  \
    "\"model\":[{\"path\":\"/m/a.gguf\",\"sha256\":\"aaaa\"},{\"path\":\"/m/b.gguf\",\"sha256\":\"bbbb\"}]}"

static void a_champion_comes_from_a_run(void **state)
{
    (void)state;
    struct err why;
    struct db *d = fresh();
    struct results r;
    struct baseline_row b = { .name = "x" };
    struct plan p = plan_of(100, 120, 1);
    p.capsule = TWO_MODELS;
    const int64_t run = put_run(d, &p);
    CHECK_OK(results_read(&r, d, run, &why));
    CHECK_OK(baseline_of_run(&b, &r, -1, NULL, &why)); /* no verdict `better`, so arm A */
    assert_string_equal(b.config, "f32");
    results_free(&r);
    CHECK_OK(db_run_finish(d, run, "done", "better", 1.2, "{}", &why));
    CHECK_OK(results_read(&r, d, run, &why));
    CHECK_OK(baseline_of_run(&b, &r, -1, NULL, &why));
    assert_string_equal(b.config, "q8_0");
    assert_string_equal(b.model_path, "/m/b.gguf");
    assert_string_equal(b.model_sha256, "bbbb");
    assert_string_equal(b.workload, "tg64");
    assert_string_equal(b.metric, "decode_tok_s");
    CHECK_NEAR(b.value, 120, 1.5);
    CHECK_EQ(b.run_id, run);
    CHECK_OK(baseline_of_run(&b, &r, 0, "tg64", &why));
    assert_string_equal(b.config, "f32");
    CHECK_EQ(baseline_of_run(&b, &r, 2, NULL, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "arm C");
    CHECK_EQ(baseline_of_run(&b, &r, 0, "pp512", &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "on pp512");

    struct experiment_spec *s = calloc(1, sizeof *s);
    struct config c;
    config_default(&c);
    CHECK_OK(baseline_of_run(&b, &r, 0, NULL, &why));
    b.margin = 0.01;
    CHECK_EQ(baseline_spec(s, &b, &c, NULL, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "champion of baseline 'x'");
    free(s);
    results_free(&r);

    p.capsule = NULL; /* the file is unknown */
    CHECK_OK(results_read(&r, d, put_run(d, &p), &why));
    CHECK_EQ(baseline_of_run(&b, &r, 0, NULL, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "baseline set NAME CONFIG -m FILE");
    results_free(&r);
    db_close(d);
}

/* ---------------------------------------------------------------- series */

#define CAPSULE(kernel)                                                                                      \
    "{\"kernel\":{\"release\":\"" kernel "\"},\"config\":[{\"line\":\"f32\"},{\"line\":\"q8_0\"}],"          \
    "\"model\":[{\"sha256\":\"feed\"},{\"sha256\":\"feed\"}]}"

enum { RUNS = 20, AT = 12 };

/* Twenty runs; from the thirteenth on, arm B is 8 % slower and the kernel is another one. */
static void plant(struct db *d, double before, double after, double canary_after)
{
    for (int i = 0; i < RUNS; i++) {
        uint64_t random = (uint64_t)i;
        const double day = exp(0.01 * gauss(&random));
        struct plan p = plan_of(100, (i < AT ? before : after) * day, (uint64_t)i + 1);
        p.capsule = i < AT ? CAPSULE("6.1.0") : CAPSULE("6.9.1");
        p.canary = i < AT ? 1 : canary_after;
        p.memory = i == 5 ? 9e8 : 3e8 * exp(0.01 * gauss(&random));
        if (i == 5) p.rate[1] *= 1.03;
        put_run(d, &p);
    }
}

static const struct history_series *series_named(const struct history *h, const char *config)
{
    for (int i = 0; i < h->n; i++)
        if (!strcmp(h->series[i].config, config)) return &h->series[i];
    fail_msg("no series of %s", config);
    return NULL;
}

static void read_history(struct history *h, struct db *d, bool raw, const struct metric *metric)
{
    struct err why;
    CHECK_OK(history_read(h, d, &(struct history_want){ .limit = 1000, .raw = raw, .metric = metric }, &why));
}

static void a_planted_regression_is_found(void **state)
{
    (void)state;
    struct err why;
    struct db *d = fresh();
    struct history h;
    struct history_findings f;
    plant(d, 120, 110, 1);
    read_history(&h, d, false, NULL);
    assert_int_equal(h.n, 4); /* two configs, and the machine's two canary series */
    const struct history_series *s = series_named(&h, "q8_0");
    assert_int_equal(s->n, RUNS);
    CHECK_EQ(s->metric, METRIC_DECODE_RATE);
    CHECK_NEAR(s->point[0].run_id, 1, 0);
    CHECK_NEAR(s->point[0].units, 8, 0);
    CHECK_LT(0, s->point[0].se);
    CHECK_LT(s->point[0].se, 0.01);
    CHECK_OK(history_detect(&f, s, 0.01, &why));
    CHECK(f.judged);
    CHECK_EQ(f.known, RUNS);
    assert_int_equal(f.changes, 1);
    assert_int_equal(f.change[0].change.at, AT);
    CHECK_NEAR(f.change[0].change.effect, log(110.0 / 120), 0.02);
    CHECK_LT(f.change[0].change.p, 1e-4);
    CHECK_LE(PRIORITY_MEDIUM, f.change[0].priority);
    assert_int_equal(json_array_size(f.change[0].what), 1); /* the kernel; the other arm did not change */
    assert_string_equal(json_get_str(json_array_get(f.change[0].what, 0), "after", ""), "6.9.1");
    assert_int_equal(f.outliers, 1);
    CHECK_NEAR(f.outlier[0].at, 5, 0);
    CHECK_EQ(f.outlier[0].metric, METRIC_PEAK_MEMORY);
    CHECK_LT(50, f.outlier[0].z);
    CHECK_LT(HISTORY_OUTLIER, f.isolation[5]);
    CHECK(isfinite(f.average[0]));
    CHECK_LT(f.average[RUNS - 1], f.average[AT - 1] - 0.05);
    CHECK(f.cusum.alarm < 0 || f.cusum.alarm > AT); /* the CUSUM restarts at the change */
    history_findings_free(&f);

    CHECK_OK(history_detect(&f, series_named(&h, "f32"), 0.01, &why)); /* the arm that did not change */
    CHECK(f.judged);
    CHECK_NEAR(f.changes, 0, 0);
    history_findings_free(&f);
    CHECK_OK(history_detect(&f, s, 0.2, &why)); /* below the smallest effect that matters */
    CHECK_NEAR(f.changes, 0, 0);
    CHECK_NEAR(f.cusum.direction, -1, 0); /* the alarm still reports it */
    history_findings_free(&f);
    history_free(&h);

    read_history(&h, d, false, &METRICS[METRIC_PEAK_MEMORY]); /* less is better, and it is not normalized */
    s = series_named(&h, "q8_0");
    CHECK_EQ(s->metric, METRIC_PEAK_MEMORY);
    CHECK_NEAR(s->point[0].canary, 0, 0);
    CHECK_NEAR(s->point[0].level, -s->point[0].y, 1e-12);
    history_free(&h);
    db_close(d);
}

static void a_slow_machine_is_no_regression(void **state)
{
    (void)state;
    struct err why;
    struct db *d = fresh();
    struct history h;
    struct history_findings f;
    plant(d, 120, 108, 0.9); /* the canary dropped by 10 %, too */
    read_history(&h, d, false, NULL);
    CHECK_OK(history_detect(&f, series_named(&h, "q8_0"), 0.01, &why));
    CHECK(f.judged);
    CHECK_NEAR(f.changes, 0, 0);
    history_findings_free(&f);
    const struct history_series *canary = series_named(&h, "read 64M"); /* it is a change of the machine */
    CHECK(canary->canary);
    CHECK_EQ(canary->n, RUNS);
    CHECK_OK(history_detect(&f, canary, 0.01, &why));
    CHECK_NEAR(f.changes, 1, 0);
    CHECK_EQ(f.change[0].change.at, AT);
    CHECK_EQ(f.change[0].priority, PRIORITY_HIGH);
    CHECK_NEAR(f.change[0].change.effect, log(0.9), 1e-12);
    assert_int_equal(json_array_size(f.change[0].what), 1); /* the kernel; the runs' arms do not matter */
    history_findings_free(&f);
    history_free(&h);
    read_history(&h, d, false, &METRICS[METRIC_CANARY_OPS]); /* requested explicitly */
    CHECK(h.series[h.n - 1].canary);
    CHECK_EQ(h.series[h.n - 1].metric, METRIC_CANARY_OPS);
    history_free(&h);
    read_history(&h, d, true, NULL); /* as measured there is a change */
    CHECK_OK(history_detect(&f, series_named(&h, "q8_0"), 0.01, &why));
    CHECK_NEAR(f.changes, 1, 0);
    CHECK_EQ(f.change[0].change.at, AT);
    history_findings_free(&f);
    history_free(&h);
    db_close(d);
}

static void unknown_values_are_not_analysed(void **state)
{
    (void)state;
    struct err why;
    struct db *d = fresh();
    struct history h;
    struct history_findings f;
    for (int i = 0; i < 9; i++) {
        struct plan p = plan_of(100, 120, (uint64_t)i + 1);
        if (i % 2) p.canary = 0;
        if (i == 8) p.machine = "m2";
        put_run(d, &p);
    }
    read_history(&h, d, false, NULL);
    assert_int_equal(h.n, 8); /* machines are separate: two configs and two canaries each */
    CHECK_NAN(h.series[0].point[1].level);
    CHECK(isfinite(h.series[0].point[0].level));
    CHECK_OK(history_detect(&f, &h.series[0], 0.01, &why));
    CHECK(!f.judged);
    CHECK_NEAR(f.known, 4, 0);
    CHECK_NEAR(f.changes, 0, 0);
    CHECK_NEAR(f.cusum.alarm, -1, 0);
    CHECK_NAN(f.average[1]);
    CHECK_NAN(f.z[1]);
    CHECK(isfinite(f.z[2]));
    history_findings_free(&f);
    history_free(&h);
    read_history(&h, d, true, NULL);
    CHECK_OK(history_detect(&f, &h.series[0], 0.01, &why));
    CHECK(f.judged);
    CHECK_NEAR(f.known, 8, 0);
    history_findings_free(&f);
    history_free(&h);
    db_close(d);

    d = fresh();
    read_history(&h, d, false, NULL);
    CHECK_NEAR(h.n, 0, 0);
    history_free(&h);
    db_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_valid_cells_are_results),
        cmocka_unit_test(a_difference_is_found_and_normalized),
        cmocka_unit_test(partners_by_line_then_by_place),
        cmocka_unit_test(holm_correction_claims_less),
        cmocka_unit_test(verdicts_by_their_intervals),
        cmocka_unit_test(effects_are_reproduced_or_not),
        cmocka_unit_test(a_winner_counts_by_its_confirmation),
        cmocka_unit_test(a_champion_comes_from_a_run),
        cmocka_unit_test(a_planted_regression_is_found),
        cmocka_unit_test(a_slow_machine_is_no_regression),
        cmocka_unit_test(unknown_values_are_not_analysed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
