/* Proves, on a database made here with known times: counts by outcome and reason, error rates, the most at
 * once and the busiest hour are those worked by hand; latencies are the type 7 quantiles of every stored
 * value, parallel sequences counted one by one; what was not observed is NAN; deleted runs, the canary and
 * what lies outside the period do not count; a filter and labels select runs. */
#include <math.h>
#include <sqlite3.h>
#include <string.h>

#include "advisor/history/history.h"
#include "advisor/run/run.h"
#include "tests/db/temp.h"

#define HOUR INT64_C(3600000)
#define DAY0 (INT64_C(20000) * 24 * HOUR) /* midnight */

/* Runs get their times by hand, because db_run_insert takes those of the clock. to_h NAN: it has not ended.
 */
static void run_at(const char *path, int64_t id, const char *state, const char *verdict, double from_h,
                   double to_h, const char *outcome)
{
    sqlite3 *s = NULL;
    char *sql = sqlite3_mprintf(
        "INSERT INTO run VALUES(%lld,'ab',%Q,NULL,NULL,'toy','tg8','a vs b','decode_tok_s',1,%Q,"
        "NULL,%lld,%lld,NULL,%Q)",
        (long long)id, state, verdict, (long long)(DAY0 + (int64_t)(from_h * (double)HOUR)),
        !isnan(to_h) ? (long long)(DAY0 + (int64_t)(to_h * (double)HOUR)) : 0LL, outcome);
    assert_int_equal(sqlite3_open(path, &s), SQLITE_OK);
    assert_int_equal(sqlite3_exec(s, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_free(sql);
    sqlite3_close(s);
}

struct made_cell {
    int64_t run;
    double at_h, seconds;
    const char *phase, *discarded, *error, *worker, *workload;
    int sequences, n, n_itl;
    struct request_figures figures[4];
    const float *itl;
};

static void put(struct db *d, const struct made_cell *m)
{
    struct err why;
    struct cell_row c = { .run_id = m->run,
                          .block = -1,
                          .started_ms = DAY0 + (int64_t)(m->at_h * (double)HOUR),
                          .seconds = m->seconds,
                          .discarded = m->discarded != NULL };
    struct request_figures figures[4];
    memcpy(figures, m->figures, sizeof figures);
    struct request_rows rows = { .model = "toy", .sequences = m->sequences, .n = m->n, .figures = figures };
    snprintf(rows.workload, sizeof rows.workload, "%s", m->workload ? m->workload : "tg8");
    snprintf(c.phase, sizeof c.phase, "%s", m->phase ? m->phase : "block");
    snprintf(c.discard_reason, sizeof c.discard_reason, "%s", m->discarded ? m->discarded : "");
    snprintf(c.error, sizeof c.error, "%s", m->error ? m->error : "");
    c.worker_json = m->worker ? m->worker : "{}";
    c.requests = &rows;
    CHECK_OK(db_cell_insert(d, &c, NULL, 0, NULL, 0, m->itl, m->n_itl, &why));
}

static struct history_summary summarize(struct db *d, double from_h, double to_h, const char *filter,
                                        const struct run_labels *labels)
{
    struct err why;
    struct history_summary s;
    CHECK_OK(history_summarize(&s, d,
                               &(struct summary_want){ .from_ms = DAY0 + (int64_t)(from_h * (double)HOUR),
                                                       .to_ms = DAY0 + (int64_t)(to_h * (double)HOUR),
                                                       .filter = filter,
                                                       .labels = labels },
                               &why));
    return s;
}

static int64_t counted(const struct history_summary *s, enum summary_subject of, const char *outcome,
                       const char *reason)
{
    for (int i = 0; i < s->counts; i++)
        if (s->count[i].of == of && !strcmp(s->count[i].outcome, outcome) &&
            !strcmp(s->count[i].reason, reason))
            return s->count[i].n;
    return 0;
}

static struct db *open_at(void **state, const char **path)
{
    struct db *d;
    struct err why;
    *path = ((struct temp *)*state)->file;
    CHECK_OK(db_open(&d, *path, &why));
    return d;
}

static void counts_peaks_and_hours_by_hand(void **state)
{
    const char *path;
    struct err why;
    struct db *d = open_at(state, &path);
    run_at(path, 1, "done", "better", 1, 3, NULL);
    run_at(path, 2, "failed", "", 2, 2.5, "{\"error\":\"out of memory\"}");
    run_at(path, 3, "interrupted", "", 2.25, 2.4, NULL);
    run_at(path, 4, "failed", "", 2.3, 2.4, "{\"rows\":[{\"error\":\"out of memory\"}]}");
    run_at(path, 5, "done", "worse", 2.3, 2.4, NULL);    /* deleted below */
    run_at(path, 6, "done", "worse", -30, -29, NULL);    /* before the period */
    run_at(path, 7, "stopped", "", 25, 26, NULL);        /* after it */
    run_at(path, 8, "done", "invalid", -0.5, 0.5, NULL); /* began before it */
    run_at(path, 9, "running", "", 10, NAN, NULL); /* no process measures it: it ended with its last cell */
    put(d, &(struct made_cell){ .run = 9, .at_h = 10, .seconds = 900 });
    CHECK_OK(db_run_delete(d, 5, &why));
    put(d, &(struct made_cell){ .run = 1, .at_h = 1.0, .seconds = 1000 });
    put(d, &(struct made_cell){
               .run = 1, .at_h = 1.9, .seconds = 1440 }); /* 360 s in hour 1, 1080 s in hour 2 */
    put(d, &(struct made_cell){
               .run = 1, .at_h = 2.31, .seconds = 60, .discarded = "12 major page faults: memory" });
    put(d, &(struct made_cell){
               .run = 1, .at_h = 2.35, .seconds = 60, .discarded = "9 major page faults: memory" });
    put(d, &(struct made_cell){ .run = 2, .at_h = 2.315, .seconds = 400, .error = "killed by signal 9" });
    put(d, &(struct made_cell){ .run = 1, .at_h = 2.4, .seconds = 9999, .phase = CANARY_PHASE });
    put(d, &(struct made_cell){ .run = 5, .at_h = 2.4, .seconds = 9999 });
    put(d, &(struct made_cell){ .run = 8, .at_h = -0.2, .seconds = 9999 });

    const struct history_summary s = summarize(d, 0, 24, NULL, NULL);
    CHECK_EQ(s.all[SUMMARY_RUNS], 6);
    CHECK_EQ(s.failed[SUMMARY_RUNS], 4);
    CHECK_EQ(counted(&s, SUMMARY_RUNS, "done", "better"), 1);
    CHECK_EQ(counted(&s, SUMMARY_RUNS, "done", "invalid"), 1);
    CHECK_EQ(counted(&s, SUMMARY_RUNS, "failed", "out of memory"), 2);
    CHECK_EQ(counted(&s, SUMMARY_RUNS, "interrupted", ""), 2);
    CHECK_NEAR(summary_error_ratio(&s, SUMMARY_RUNS), 4.0 / 6, 1e-15);
    CHECK_EQ(s.all[SUMMARY_CELLS], 6);
    CHECK_EQ(counted(&s, SUMMARY_CELLS, "kept", ""), 3);
    CHECK_EQ(counted(&s, SUMMARY_CELLS, "discarded", "major page faults"), 2);
    CHECK_EQ(counted(&s, SUMMARY_CELLS, "failed", "killed by signal 9"), 1);
    CHECK_NEAR(summary_error_ratio(&s, SUMMARY_CELLS), 1.0 / 6, 1e-15);
    CHECK_EQ(s.counts, 7);
    CHECK(s.count[0].of == SUMMARY_RUNS && s.count[0].n == 2); /* runs first, the most first */

    CHECK_EQ(s.peak[SUMMARY_PEAK_RUNS].n, 4); /* 1, 2, 3 and, from 2.3 h on, 4 */
    CHECK_EQ(s.peak[SUMMARY_PEAK_RUNS].at_ms, DAY0 + (int64_t)(2.3 * (double)HOUR));
    CHECK_EQ(s.peak[SUMMARY_PEAK_RUNS].run_id, 4);
    CHECK_EQ(s.peak[SUMMARY_PEAK_CELLS].n, 2); /* 2.31 + 60 s is over before 2.35 */
    CHECK_EQ(s.peak[SUMMARY_PEAK_CELLS].run_id, 2);
    CHECK_EQ(s.peak[SUMMARY_PEAK_REQUESTS].n, 0);
    CHECK_EQ(s.busiest_ms, DAY0 + 2 * HOUR); /* 1080 + 60 + 60 + 400 s against 1360 s in hour 1 */
    CHECK_NEAR(s.busiest_s, 1600, 1e-6);
    CHECK_EQ(s.busiest_cells, 3);
    CHECK_EQ(s.latency[SUMMARY_RUN].n, 2);
    CHECK_NEAR(s.latency[SUMMARY_RUN].most, 7200, 1e-9);
    CHECK_EQ(s.latency[SUMMARY_CELL].n, 5); /* without the failed one */
    CHECK_EQ(summarize(d, 10.1, 24, NULL, NULL).all[SUMMARY_RUNS], 1);
    CHECK_EQ(summarize(d, 10.3, 24, NULL, NULL).all[SUMMARY_RUNS], 0);
    db_close(d);
}

static void latencies_are_quantiles_of_every_value(void **state)
{
    const char *path;
    struct db *d = open_at(state, &path);
    float itl[100], odd[3] = { 0.5F, 0.25F, 0.125F };
    double all[100 + 3 * 4];
    int n = 0;
    for (int i = 0; i < 100; i++)
        all[n++] = (double)(itl[i] = (float)((i * 37 % 100 + 1) * 1e-3)); /* 1 .. 100 ms */
    run_at(path, 1, "done", "", 1, 3, NULL);
    put(d, &(struct made_cell){ .run = 1,
                                .at_h = 1,
                                .seconds = 1,
                                .n_itl = 100,
                                .itl = itl,
                                .sequences = 1,
                                .n = 1,
                                .figures = { { 8, 101, 0.25F, 0.25F, 5.05F } } });
    struct history_summary s = summarize(d, 0, 24, NULL, NULL);
    /* numpy.percentile(range(1, 101), [50, 95, 99]): 50.5, 95.05, 99.01 */
    CHECK_EQ(s.latency[SUMMARY_ITL].n, 100);
    CHECK_NEAR(s.latency[SUMMARY_ITL].p50, 0.0505, 1e-8);
    CHECK_NEAR(s.latency[SUMMARY_ITL].p95, 0.09505, 1e-8);
    CHECK_NEAR(s.latency[SUMMARY_ITL].p99, 0.09901, 1e-8);
    CHECK_NEAR(s.latency[SUMMARY_ITL].most, 0.1, 1e-8);
    CHECK_NEAR(s.latency[SUMMARY_TTFT].p99, 0.25, 0);
    CHECK_NEAR(s.latency[SUMMARY_TPOT].p50, 5.05 / 101, 1e-8);
    CHECK_NEAR(s.latency[SUMMARY_E2E].p50, 5.30, 1e-6);
    CHECK_EQ(s.peak[SUMMARY_PEAK_REQUESTS].n, 1);

    /* four sequences side by side: each is a request */
    put(d, &(struct made_cell){ .run = 1,
                                .at_h = 1.1,
                                .seconds = 1,
                                .n_itl = 3,
                                .itl = odd,
                                .sequences = 4,
                                .n = 1,
                                .figures = { { 8, 16, NAN, NAN, 0.875F } } });
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 4; k++) all[n++] = (double)odd[i];
    stats_sort(all, n);
    s = summarize(d, 0, 24, NULL, NULL);
    CHECK_EQ(s.latency[SUMMARY_ITL].n, n);
    CHECK_NEAR(s.latency[SUMMARY_ITL].p50, stats_quantile_sorted(all, n, 0.50), 1e-12);
    CHECK_NEAR(s.latency[SUMMARY_ITL].p95, stats_quantile_sorted(all, n, 0.95), 1e-12);
    CHECK_NEAR(s.latency[SUMMARY_ITL].p99, stats_quantile_sorted(all, n, 0.99), 1e-12);
    CHECK_EQ(s.latency[SUMMARY_TTFT].n, 1); /* without a prompt there is none */
    CHECK_EQ(s.peak[SUMMARY_PEAK_REQUESTS].n, 4);
    db_close(d);
}

static void a_load_counts_its_requests(void **state)
{
    const char *path;
    struct db *d = open_at(state, &path);
    run_at(path, 1, "done", "", 1, 3, NULL);
    struct made_cell load = { .run = 1,
                              .at_h = 1,
                              .seconds = 9,
                              .sequences = 1,
                              .n = 2,
                              .workload = "load:concurrency=8,requests=2,in=8,out=5",
                              .worker = "{\"served\":{\"running_most\":7}}",
                              .figures = { { 8, 5, 0.1F, 0.05F, 0.4F }, { 8, 1, 0.3F, 0.05F, NAN } } };
    put(d, &load);
    struct history_summary s = summarize(d, 0, 24, NULL, NULL);
    CHECK_EQ(s.peak[SUMMARY_PEAK_REQUESTS].n, 7);
    CHECK_EQ(s.latency[SUMMARY_TPOT].n, 1); /* one token has no gap */
    CHECK_NEAR(s.latency[SUMMARY_TPOT].p50, 0.1, 1e-8);
    CHECK_NEAR(s.latency[SUMMARY_TTFT].p50, 0.2, 1e-8);

    load.worker = "no JSON"; /* an old or damaged row: its most at once is unknown, not 1 */
    load.run = 2;
    run_at(path, 2, "done", "", 5, 6, NULL);
    load.at_h = 5;
    put(d, &load);
    s = summarize(d, 4, 24, NULL, NULL);
    CHECK_EQ(s.peak[SUMMARY_PEAK_REQUESTS].n, 0);
    CHECK_EQ(s.latency[SUMMARY_TTFT].n, 2);
    db_close(d);
}

static void nothing_observed_is_not_a_number(void **state)
{
    const char *path;
    struct err why;
    struct db *d = open_at(state, &path);
    struct history_summary s = summarize(d, 0, 24, NULL, NULL);
    for (int k = 0; k < SUMMARY_LATENCIES; k++) {
        CHECK_EQ(s.latency[k].n, 0);
        CHECK_NAN(s.latency[k].p50);
        CHECK_NAN(s.latency[k].most);
    }
    CHECK_NAN(summary_error_ratio(&s, SUMMARY_RUNS));
    CHECK_EQ(s.busiest_ms, -1);
    CHECK_EQ(s.counts, 0);
    const struct summary_want backwards = { .from_ms = 5, .to_ms = 5 };
    CHECK_EQ(history_summarize(&s, d, &backwards, &why), ERR_USAGE);
    db_close(d);
}

static void filters_and_labels_select_runs(void **state)
{
    const char *path;
    struct err why;
    struct db *d = open_at(state, &path);
    struct run_labels labels = { 0 };
    CHECK_OK(run_labels_add(&labels, "branch=main", &why));
    run_at(path, 1, "done", "better", 1, 2, NULL);
    run_at(path, 2, "done", "worse", 1, 2, NULL);
    put(d, &(struct made_cell){ .run = 1, .at_h = 1, .seconds = 3 });
    put(d, &(struct made_cell){ .run = 2, .at_h = 1, .seconds = 5 });
    CHECK_OK(db_labels_put(d, 2, &labels, &why));
    CHECK_EQ(summarize(d, 0, 24, NULL, NULL).all[SUMMARY_CELLS], 2);
    struct history_summary s = summarize(d, 0, 24, NULL, &labels);
    CHECK_EQ(s.all[SUMMARY_RUNS], 1);
    CHECK_NEAR(s.latency[SUMMARY_CELL].p50, 5, 0);
    s = summarize(d, 0, 24, "better", NULL);
    CHECK_EQ(s.all[SUMMARY_RUNS], 1);
    CHECK_NEAR(s.latency[SUMMARY_CELL].p50, 3, 0);
    CHECK_EQ(summarize(d, 0, 24, "nothing", NULL).all[SUMMARY_CELLS], 0);
    db_close(d);
}

static void reasons_beyond_the_table_are_counted_together(void **state)
{
    const char *path;
    struct db *d = open_at(state, &path);
    enum { REASONS = 100 };
    run_at(path, 1, "done", "", 1, 2, NULL);
    for (int i = 0; i < REASONS; i++) {
        char error[32];
        snprintf(error, sizeof error, "reason %d", i);
        put(d, &(struct made_cell){ .run = 1, .at_h = 1, .seconds = 1, .error = error });
    }
    const struct history_summary s = summarize(d, 0, 24, NULL, NULL);
    int64_t sum = 0;
    for (int i = 0; i < s.counts; i++) sum += s.count[i].of == SUMMARY_CELLS ? s.count[i].n : 0;
    CHECK_EQ(sum, REASONS);
    CHECK_LT(30, counted(&s, SUMMARY_CELLS, "failed", "other"));
    db_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(counts_peaks_and_hours_by_hand, temp_setup, temp_teardown),
        cmocka_unit_test_setup_teardown(latencies_are_quantiles_of_every_value, temp_setup, temp_teardown),
        cmocka_unit_test_setup_teardown(a_load_counts_its_requests, temp_setup, temp_teardown),
        cmocka_unit_test_setup_teardown(nothing_observed_is_not_a_number, temp_setup, temp_teardown),
        cmocka_unit_test_setup_teardown(filters_and_labels_select_runs, temp_setup, temp_teardown),
        cmocka_unit_test_setup_teardown(reasons_beyond_the_table_are_counted_together, temp_setup,
                                        temp_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
