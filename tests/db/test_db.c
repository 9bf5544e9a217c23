/* Proves: every field of a run and a cell is read as it was written; NAN becomes NULL and back; an absent
 * measurement is NAN; truncation respects UTF-8; a cell is stored completely or not at all; references are
 * enforced; the list filter finds plain substrings; only valid cells are listed as values; capsules, links
 * and baselines are read as written; the spool keeps the newest body whatever an older push reports; an
 * exported run fills another database with the same numbers. */
#include <math.h>
#include <sqlite3.h>

#include "tests/db/temp.h"

static void run_round_trip(void **state)
{
    struct err why;
    struct db *d;
    struct run_row r;
    (void)state;
    CHECK_OK(db_open(&d, ":memory:", &why));
    int64_t id = temp_run(d);
    CHECK_OK(db_run_get(d, id, &r, &why));
    CHECK_EQ(r.id, id);
    CHECK_EQ(r.seed, UINT64_MAX);
    CHECK_LT(0, r.started_ms);
    CHECK(!r.ended_ms);
    CHECK(!r.outcome_json);
    CHECK_NAN(r.effect_ratio);
    assert_string_equal(r.machine, "m1");
    assert_string_equal(r.verdict, "");
    assert_string_equal(r.spec_json, "{\"a\":1}");
    run_row_free(&r);

    CHECK_OK(db_run_finish(d, id, "done", "better", 1.25, "{\"v\":2}", &why));
    CHECK_OK(db_run_get(d, id, &r, &why));
    CHECK_EQ(r.effect_ratio, 1.25);
    CHECK_LE(r.started_ms, r.ended_ms);
    assert_string_equal(r.verdict, "better");
    assert_string_equal(r.state, "done");
    assert_string_equal(r.outcome_json, "{\"v\":2}");
    run_row_free(&r);

    CHECK_EQ(db_run_get(d, 99, &r, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "no run 99");
    CHECK_EQ(db_run_finish(d, 99, "done", "", NAN, NULL, &why), ERR_USAGE);
    db_close(d);
}

static void references_hold(void **state)
{
    struct err why;
    struct db *d;
    (void)state;
    CHECK_OK(db_open(&d, ":memory:", &why));
    struct run_row r = { .kind = "bench", .machine = "nobody" };
    CHECK_EQ(db_run_insert(d, &r, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "machine or model");
    r.machine[0] = '\0';
    CHECK_OK(db_run_insert(d, &r, &why)); /* no machine is allowed, a wrong one is not */
    struct cell_row c = { .run_id = r.id + 7 };
    CHECK_EQ(db_cell_insert(d, &c, NULL, 0, NULL, 0, NULL, 0, &why), ERR_USAGE);
    CHECK_EQ(db_event_add(d, r.id + 7, "note", "x", &why), ERR_USAGE);
    CHECK_OK(db_check(d, &why));
    db_close(d);
}

static void take(void *ctx, const char *metric, const char *unit, double value)
{
    struct str *s = ctx;
    char number[32];
    str_printf(s, "%s[%s]=%s ", metric, unit, str_from_double(value, number, sizeof number));
}

static void take_sample(void *ctx, int64_t t_ns, const char *metric, double value)
{
    char number[32];
    str_printf(ctx, "%lld %s=%s ", (long long)t_ns, metric, str_from_double(value, number, sizeof number));
}

static void samples_and_machine_come_back(void **state)
{
    struct err why;
    struct db *d;
    char *json;
    (void)state;
    CHECK_OK(db_open(&d, ":memory:", &why));
    struct cell_row c = { .run_id = temp_run(d), .phase = "block" };
    /* inserted out of order; a value that is not known is no sample */
    const struct sample_row s[] = { { 200, "cpu_busy_ratio", 0.5 },
                                    { 100, "cpu_busy_ratio", NAN },
                                    { 100, "cpu_steal_ratio", 0 } };
    CHECK_OK(db_cell_insert(d, &c, NULL, 0, s, 3, NULL, 0, &why));
    struct str seen = { 0 };
    CHECK_OK(db_sample_list(d, c.id, take_sample, &seen, &why));
    assert_string_equal(str_text(&seen), "100 cpu_steal_ratio=0 200 cpu_busy_ratio=0.5 ");
    str_free(&seen);
    CHECK_OK(db_machine_get(d, "nobody", &json, &why));
    CHECK(!json);
    CHECK_OK(db_machine_put(d, "somebody", "{\"cpu\":\"x\"}", &why));
    CHECK_OK(db_machine_get(d, "somebody", &json, &why));
    assert_string_equal(json, "{\"cpu\":\"x\"}");
    free(json);
    db_close(d);
}

static void cell_round_trip(void **state)
{
    struct err why;
    struct db *d;
    (void)state;
    CHECK_OK(db_open(&d, ":memory:", &why));
    int64_t run = temp_run(d);
    struct cell_row c = { .run_id = run,
                          .arm = 1,
                          .block = 3,
                          .slot = 2,
                          .phase = "block",
                          .config = "q8_0,threads=2",
                          .work_hash = "w",
                          .output_hash = "o",
                          .started_ms = 1234567890123,
                          .seconds = 0.25,
                          .worker_json = "{\"isa\":\"avx2\"}" };
    const struct measurement m[] = { { "decode_tok_s", "token/s", 123.4 },
                                     { "energy_joules", "J", NAN },
                                     { "zero", NULL, 0.0 } };
    const struct sample_row s[] = { { 0, "cpu_busy_ratio", 0.5 }, { 100000000, "cpu_busy_ratio", NAN } };
    const float itl[] = { 0.008f, 0.0081f, 0.0079f };
    CHECK_OK(db_cell_insert(d, &c, m, 3, s, 2, itl, 3, &why));
    CHECK_LT(0, c.id);

    CHECK_NEAR(db_measurement_get(d, c.id, "decode_tok_s"), 123.4, 0);
    CHECK_EQ(db_measurement_get(d, c.id, "zero"), 0.0);
    CHECK_NAN(db_measurement_get(d, c.id, "energy_joules"));
    CHECK_NAN(db_measurement_get(d, c.id, "none"));
    float *back;
    int n_back;
    CHECK_OK(db_itl_get(d, c.id, &back, &n_back, &why));
    CHECK_EQ(n_back, 3);
    CHECK(!memcmp(back, itl, sizeof itl));
    free(back);
    CHECK_OK(db_itl_get(d, c.id + 1, &back, &n_back, &why));
    CHECK_EQ(n_back, 0);
    CHECK(!back);
    struct str seen = { 0 };
    CHECK_OK(db_measurement_list(d, c.id, take, &seen, &why));
    assert_string_equal(str_text(&seen), "decode_tok_s[token/s]=123.4 energy_joules[J]=null zero[]=0 ");
    str_free(&seen);

    struct cell_row failed = {
        .run_id = run, .block = -1, .phase = "warmup", .seconds = NAN, .error = "killed"
    };
    CHECK_OK(db_cell_insert(d, &failed, NULL, 0, NULL, 0, NULL, 0, &why));
    CHECK_OK(db_block_discard(d, run, 3, "block", "swap in use", &why));
    struct cell_row *cells;
    int n;
    CHECK_OK(db_cell_list(d, run, &cells, &n, &why));
    CHECK_EQ(n, 2);
    CHECK_EQ(cells[0].id, c.id);
    CHECK_EQ(cells[0].arm, 1);
    CHECK_EQ(cells[0].block, 3);
    CHECK_EQ(cells[0].slot, 2);
    CHECK_EQ(cells[0].started_ms, 1234567890123);
    CHECK_EQ(cells[0].seconds, 0.25);
    CHECK(cells[0].discarded);
    assert_string_equal(cells[0].discard_reason, "swap in use");
    assert_string_equal(cells[0].config, c.config);
    assert_string_equal(cells[0].worker_json, c.worker_json);
    assert_string_equal(cells[0].work_hash, "w");
    assert_string_equal(cells[0].output_hash, "o");
    CHECK_EQ(cells[1].block, -1);
    CHECK_NAN(cells[1].seconds);
    CHECK(!cells[1].discarded);
    assert_string_equal(cells[1].error, "killed");
    free(cells);
    CHECK_OK(db_cell_list(d, run + 1, &cells, &n, &why));
    CHECK_EQ(n, 0);
    free(cells);
    db_close(d);
}

static void cell_is_whole_or_absent(void **state)
{
    struct err why;
    struct db *d;
    struct cell_row *cells;
    int n;
    (void)state;
    CHECK_OK(db_open(&d, ":memory:", &why));
    int64_t run = temp_run(d);
    struct cell_row c = { .run_id = run };
    const struct measurement twice[] = { { "a", "s", 1 }, { "a", "s", 2 } };
    CHECK_EQ(db_cell_insert(d, &c, twice, 2, NULL, 0, NULL, 0, &why), ERR_USAGE);
    CHECK_OK(db_cell_list(d, run, &cells, &n, &why));
    CHECK_EQ(n, 0);
    free(cells);
    CHECK_OK(db_cell_insert(d, &c, twice, 1, NULL, 0, NULL, 0, &why)); /* the handle is not stuck */
    db_close(d);
}

static enum err_code take_value(void *ctx, const struct value_row *v, struct err *why)
{
    (void)why;
    str_printf(ctx, "%d/%d %s %s %s=%g;", v->arm, v->block, v->phase, v->config, v->metric, v->value);
    return ERR_OK;
}

static enum err_code refuse_value(void *ctx, const struct value_row *v, struct err *why)
{
    (void)ctx, (void)v;
    return err_set(why, ERR_FORMAT, "enough");
}

static void values_of_what_counts(void **state)
{
    struct err why;
    struct db *d;
    (void)state;
    CHECK_OK(db_open(&d, ":memory:", &why));
    int64_t run = temp_run(d);
    static const struct {
        int arm, block;
        const char *phase, *error;
        double value;
    } CELLS[] = { { 0, 0, "block", "", 10 },
                  { 1, 0, "block", "", NAN },
                  { 1, 0, "block", "", 12 },
                  { 0, 1, "block", "", 99 },
                  { 1, -1, "warmup", "killed", 1 } };
    for (size_t i = 0; i < COUNT_OF(CELLS); i++) {
        struct cell_row c = { .run_id = run, .arm = CELLS[i].arm, .block = CELLS[i].block, .config = "q8_0" };
        snprintf(c.phase, sizeof c.phase, "%s", CELLS[i].phase);
        snprintf(c.error, sizeof c.error, "%s", CELLS[i].error);
        const struct measurement m[] = { { "ttft_s", "seconds", 0.5 },
                                         { "decode_tok_s", "tokens/s", CELLS[i].value } };
        CHECK_OK(db_cell_insert(d, &c, m, COUNT_OF(m), NULL, 0, NULL, 0, &why));
    }
    CHECK_OK(db_block_discard(d, run, 1, "block", "swap in use", &why));
    struct str seen = { 0 };
    CHECK_OK(db_value_list(d, run, take_value, &seen, &why));
    assert_string_equal(str_text(&seen), "0/0 block q8_0 decode_tok_s=10;0/0 block q8_0 ttft_s=0.5;"
                                         "1/0 block q8_0 ttft_s=0.5;"
                                         "1/0 block q8_0 decode_tok_s=12;1/0 block q8_0 ttft_s=0.5;");
    str_free(&seen);
    CHECK_EQ(db_value_list(d, run, refuse_value, NULL, &why), ERR_FORMAT);
    assert_string_equal(why.message, "enough");
    CHECK_OK(db_value_list(d, run + 1, refuse_value, NULL, &why)); /* nothing to list */
    db_close(d);
}

/* Disturbed blocks are kept on request, incomplete ones never. */
static void disturbed_blocks_are_kept(void **state)
{
    static const char *const INCOMPLETE[] = { "interrupted", "paused", "changed by hand" };
    static const char *const REASONS[] = { "interrupted", "paused", "changed by hand", "swap in use" };
    struct err why;
    struct db *d;
    struct cell_row *cells;
    int n;
    (void)state;
    CHECK_OK(db_open(&d, ":memory:", &why));
    const int64_t run = temp_run(d);
    for (int i = 0; i < (int)COUNT_OF(REASONS); i++) {
        struct cell_row c = { .run_id = run, .block = i, .phase = "block", .config = "q8_0" };
        CHECK_OK(db_cell_insert(d, &c, NULL, 0, NULL, 0, NULL, 0, &why));
        CHECK_OK(db_block_discard(d, run, i, "block", REASONS[i], &why));
    }
    CHECK_OK(db_blocks_keep(d, run, INCOMPLETE, &why));
    CHECK_OK(db_cell_list(d, run, &cells, &n, &why));
    CHECK_EQ(n, COUNT_OF(REASONS));
    for (int i = 0; i < n; i++) CHECK_EQ(cells[i].discarded, i < 3);
    free(cells);
    db_close(d);
}

static void capsules_and_links(void **state)
{
    struct err why;
    struct db *d;
    char *json, *sql;
    struct link_row l;
    bool found;
    (void)state;
    CHECK_OK(db_open(&d, ":memory:", &why));
    int64_t first = temp_run(d), second = temp_run(d);
    CHECK_OK(db_capsule_get(d, first, &json, &why));
    assert_null(json);
    CHECK_OK(db_capsule_put(d, first, "{\"kernel\":1}", &why));
    CHECK_OK(db_capsule_get(d, first, &json, &why));
    assert_string_equal(json, "{\"kernel\":1}");
    free(json);
    CHECK_EQ(db_capsule_put(d, 99, "{}", &why), ERR_USAGE); /* of no run */
    CHECK_OK(db_run_sql(d, first, &sql, &why));
    CHECK_CONTAINS(sql, "INSERT INTO capsule");
    free(sql);

    CHECK_OK(db_link_get(d, second, &l, &found, &why));
    CHECK(!found);
    CHECK_OK(db_link_put(d, second, first, "replay", "", &why));
    CHECK_OK(db_link_put(d, second, first, "replay", "reproduced", &why));
    CHECK_OK(db_link_get(d, second, &l, &found, &why));
    CHECK(found);
    CHECK_EQ(l.run_id, second);
    CHECK_EQ(l.of_run, first);
    assert_string_equal(l.kind, "replay");
    assert_string_equal(l.verdict, "reproduced");
    CHECK_EQ(db_link_put(d, second, 99, "replay", "", &why), ERR_USAGE);
    db_close(d);
}

static void champions_by_name(void **state)
{
    struct err why;
    struct db *d;
    struct baseline_row *rows;
    int n;
    (void)state;
    CHECK_OK(db_open(&d, ":memory:", &why));
    CHECK_OK(db_baseline_list(d, &rows, &n, &why));
    CHECK_EQ(n, 0);
    CHECK(!rows);
    struct baseline_row b = { .name = "release",
                              .config = "q8_0",
                              .workload = "tg64",
                              .metric = "decode_tok_s",
                              .margin = 0.01,
                              .value = NAN };
    CHECK_OK(db_baseline_put(d, &b, &why));
    strcpy(b.config, "q4_K");
    b.value = 12.5;
    b.run_id = 77; /* no run has to exist */
    CHECK_OK(db_baseline_put(d, &b, &why));
    strcpy(b.name, "nightly");
    CHECK_OK(db_baseline_put(d, &b, &why));
    CHECK_OK(db_baseline_list(d, &rows, &n, &why));
    CHECK_EQ(n, 2);
    assert_string_equal(rows[0].name, "nightly");
    assert_string_equal(rows[1].name, "release");
    assert_string_equal(rows[1].config, "q4_K");
    CHECK_EQ(rows[1].value, 12.5);
    CHECK_EQ(rows[1].run_id, 77);
    CHECK_EQ(rows[1].margin, 0.01);
    CHECK_LT(0, rows[1].set_ms);
    CHECK(!*rows[1].model_sha256);
    free(rows);
    CHECK_OK(db_check(d, &why));
    db_close(d);
}

static void list_filters(void **state)
{
    struct err why;
    struct db *d;
    (void)state;
    CHECK_OK(db_open(&d, ":memory:", &why));
    static const struct {
        const char *label, *kind;
    } RUNS[] = { { "f32 vs q8_0", "ab" }, { "f32 vs q4_K", "ab" }, { "100% f32", "bench" } };
    for (size_t i = 0; i < COUNT_OF(RUNS); i++) {
        struct run_row r = { 0 };
        snprintf(r.label, sizeof r.label, "%s", RUNS[i].label);
        snprintf(r.kind, sizeof r.kind, "%s", RUNS[i].kind);
        CHECK_OK(db_run_insert(d, &r, &why));
    }
    static const struct {
        const char *filter;
        int limit, n;
        int64_t first;
    } CASES[] = { { NULL, 10, 3, 3 }, { "", 10, 3, 3 },    { "Q8_0", 10, 1, 1 },
                  { "ab", 10, 2, 2 }, { "%", 10, 1, 3 },   { "_", 10, 2, 2 },
                  { NULL, 1, 1, 3 },  { "zzz", 10, 0, 0 }, { NULL, 0, 3, 3 } };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct run_row *rows;
        int n;
        CHECK_OK(db_run_list(d, CASES[i].filter, CASES[i].limit, &rows, &n, &why));
        assert_int_equal(n, CASES[i].n);
        if (n) assert_int_equal(rows[0].id, CASES[i].first);
        for (int k = 0; k < n; k++) run_row_free(&rows[k]);
        free(rows);
    }
    db_close(d);
}

static void a_persons_filters(void **state)
{
    struct err why;
    struct db *d;
    (void)state;
    CHECK_OK(db_open(&d, ":memory:", &why));
    static const char *const LABELS[] = { "f32 vs q8_0", "f32 vs q4_K", "a/b vs f16" };
    for (size_t i = 0; i < COUNT_OF(LABELS); i++) {
        struct run_row r = { .kind = "ab" };
        snprintf(r.label, sizeof r.label, "%s", LABELS[i]);
        CHECK_OK(db_run_insert(d, &r, &why));
    }
    static const struct {
        const char *filter;
        int limit, n;
        int64_t first;
    } CASES[] = { { NULL, 10, 3, 3 },       { "Q8", 10, 1, 1 },        { "!q8", 10, 2, 3 },
                  { "/q[48]_/", 10, 2, 2 }, { "!/q[48]_/", 10, 1, 3 }, { "/^ab$/", 2, 2, 3 },
                  { "/f32$/", 10, 0, 0 },   { "!", 10, 0, 0 },         { "/VS Q4/", 10, 1, 2 },
                  { "a/b", 10, 1, 3 },      { "!/x/", 1, 1, 3 } };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct run_row *rows;
        int n;
        CHECK_OK(db_run_find(d, CASES[i].filter, CASES[i].limit, &rows, &n, &why));
        assert_int_equal(n, CASES[i].n);
        if (n) assert_int_equal(rows[0].id, CASES[i].first);
        for (int k = 0; k < n; k++) run_row_free(&rows[k]);
        free(rows);
    }
    struct run_row *rows;
    int n;
    CHECK_EQ(db_run_find(d, "/q[48/", 10, &rows, &n, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "q[48");
    CHECK(!rows);
    CHECK(!n);
    /* exponential time without a limit of steps */
    struct run_row slow = { .kind = "ab" };
    memset(slow.label, 'a', sizeof slow.label - 1);
    CHECK_OK(db_run_insert(d, &slow, &why));
    CHECK_EQ(db_run_find(d, "/^(a+)+[bc]$/", 10, &rows, &n, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "too many steps");
    CHECK(!rows);
    CHECK(!n);
    CHECK_EQ(db_filter_check("/(((a{1,255}){1,255}){1,255}){1,255}/", &why), ERR_USAGE);
    CHECK_EQ(db_filter_check("!/(/", &why), ERR_USAGE);
    CHECK_OK(db_filter_check("(", &why)); /* plain text */
    db_close(d);
}

static void text_is_cut_between_characters(void **state)
{
    struct err why;
    struct db *d;
    (void)state;
    CHECK_OK(db_open(&d, ":memory:", &why));
    char error[600];
    memset(error, 'x', sizeof error);
    memcpy(error + 254, "\xe2\x82\xac tail", 9); /* a euro sign over the end of last_error[256] */
    CHECK_OK(db_spool_put(d, "http://gw/metrics/job/q", "{}", "body 1\n", &why));
    struct spool_row s;
    bool found;
    CHECK_OK(db_spool_find(d, "http://gw/metrics/job/q", &s, &found, &why));
    CHECK(found);
    CHECK_OK(db_spool_failed(d, s.id, 5000, error, &why));
    spool_row_free(&s);
    CHECK_OK(db_spool_find(d, "http://gw/metrics/job/q", &s, &found, &why));
    CHECK(found);
    CHECK_EQ(s.attempts, 1);
    CHECK_EQ(s.next_try_ms, 5000);
    CHECK_EQ(strlen(s.last_error), 254);
    assert_string_equal(s.group_url, "http://gw/metrics/job/q");
    spool_row_free(&s);
    db_close(d);
}

/* Number of pushes that are due. */
static int spool_due(struct db *d, int64_t now_ms)
{
    struct spool_row *rows;
    struct err why;
    int n;
    CHECK_OK(db_spool_list(d, now_ms, &rows, &n, &why));
    for (int i = 0; i < n; i++) spool_row_free(&rows[i]);
    free(rows);
    return n;
}

static void spool_keeps_the_newest(void **state)
{
    struct err why;
    struct db *d;
    struct spool_row s, old;
    bool found;
    (void)state;
    CHECK_OK(db_open(&d, ":memory:", &why));
    CHECK_EQ(db_spool_count(d), 0);
    CHECK_EQ(spool_due(d, INT64_MAX), 0);
    CHECK_OK(db_spool_put(d, "http://gw/a", "{\"t\":1}", "one\n", &why));
    CHECK_OK(db_spool_find(d, "http://gw/a", &old, &found, &why));
    CHECK(found);
    CHECK_OK(db_spool_put(d, "http://gw/a", "{\"t\":2}", "two\n", &why)); /* while "one" is on its way */
    CHECK_EQ(db_spool_count(d), 1);
    CHECK_OK(db_spool_done(d, old.id, &why)); /* must not remove "two" */
    CHECK_EQ(db_spool_count(d), 1);
    CHECK_OK(db_spool_find(d, "http://gw/a", &s, &found, &why));
    CHECK(found);
    assert_string_equal(s.body, "two\n");
    assert_string_equal(s.target_json, "{\"t\":2}");
    CHECK_OK(db_spool_failed(d, s.id, 30000, "no route", &why));
    spool_row_free(&s);
    CHECK_EQ(spool_due(d, 29999), 0);
    CHECK_EQ(spool_due(d, 30000), 1);
    CHECK_EQ(spool_due(d, INT64_MAX), 1);
    /* the clock was set back: a time that no pause can reach was stored with another clock, and is due */
    CHECK_EQ(spool_due(d, 30000 - DB_RETRY_MOST_MS), 0);
    CHECK_EQ(spool_due(d, 30000 - DB_RETRY_MOST_MS - 1), 1);
    CHECK_OK(db_spool_find(d, "http://gw/a", &s, &found, &why));
    CHECK(found);
    CHECK_EQ(s.attempts, 1);
    assert_string_equal(s.last_error, "no route");
    CHECK_OK(db_spool_done(d, s.id, &why));
    CHECK_EQ(db_spool_count(d), 0);
    spool_row_free(&s);
    spool_row_free(&old);
    CHECK_OK(db_group_put(d, "http://gw/a", &why));
    CHECK_OK(db_group_put(d, "http://gw/a", &why));
    db_close(d);
}

static void one_process_sends(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *a, *b;
    struct spool_row s;
    struct group_row *groups;
    bool found;
    int n;
    CHECK_OK(db_open(&a, t->file, &why));
    CHECK_OK(db_open(&b, t->file, &why));
    CHECK_OK(db_spool_lock(a, "http://gw", 0, &why));
    CHECK_OK(db_spool_lock(a, "http://gw", 0, &why));               /* the owner may lock again */
    CHECK_EQ(db_spool_lock(b, "http://gw/", 30, &why), ERR_ABSENT); /* the same address */
    CHECK_CONTAINS(why.message, "is sending results");
    CHECK(!db_run_is_locked(b, &n));                     /* sending measures nothing */
    CHECK_OK(db_spool_lock(b, "http://other", 0, &why)); /* a slow gateway does not delay others */
    db_spool_unlock(b);
    CHECK_OK(db_run_lock(b, 1, &why)); /* another thing */
    db_spool_unlock(a);
    CHECK_OK(db_spool_lock(b, "http://gw", 0, &why));
    CHECK_EQ(db_spool_lock(a, "http://gw", 0, &why), ERR_ABSENT);
    db_spool_unlock(b);
    CHECK_EQ(db_run_lock(a, 1, &why), ERR_USAGE); /* releasing one lets go of nothing else */

    CHECK_OK(db_spool_find(a, "http://gw/metrics/job/x", &s, &found, &why));
    CHECK(!found);
    CHECK_OK(db_spool_put(a, "http://gw/metrics/job/x", "{}", "x\n", &why));
    CHECK_OK(db_spool_find(a, "http://gw/metrics/job/x", &s, &found, &why));
    CHECK(found);
    assert_string_equal(s.body, "x\n");
    CHECK_OK(db_spool_sent(a, s.id, "http://gw/metrics/job/x", &why));
    spool_row_free(&s);
    CHECK_EQ(db_spool_count(b), 0);
    CHECK_OK(db_group_put(a, "http://gw%/metrics/job/y", &why));
    CHECK_OK(db_group_list(b, "http://gw/", &groups, &n, &why)); /* a prefix, no pattern */
    CHECK_EQ(n, 1);
    CHECK_LT(0, groups[0].first_ms);
    CHECK_LE(groups[0].first_ms, groups[0].last_ms);
    assert_string_equal(groups[0].url, "http://gw/metrics/job/x");
    CHECK_OK(db_group_remove(b, groups[0].url, &why));
    free(groups);
    CHECK_OK(db_group_list(a, "http://gw", &groups, &n, &why));
    CHECK_EQ(n, 1);
    free(groups);
    db_close(a);
    db_close(b);
}

struct seen_requests {
    int cells;
    struct cell_requests last;
    struct request_figures figures[2];
    float itl[2];
};

static enum err_code take_requests(void *ctx, const struct cell_requests *c, struct err *why)
{
    struct seen_requests *s = ctx;
    (void)why;
    s->cells++;
    s->last = *c;
    CHECK_LE(c->requests.n, 2);
    CHECK_LE(c->n_itl, 2);
    memcpy(s->figures, c->requests.figures, (size_t)c->requests.n * sizeof *s->figures);
    if (c->n_itl) memcpy(s->itl, c->itl, (size_t)c->n_itl * sizeof *s->itl);
    return ERR_OK;
}

static void requests_come_back(void **state)
{
    struct err why;
    struct db *d;
    struct seen_requests seen = { 0 };
    (void)state;
    CHECK_OK(db_open(&d, ":memory:", &why));
    int64_t run = temp_run(d);
    struct request_figures f[2] = { { 512, 128, 0.25f, 0.24f, 1.5f }, { 512, 128, NAN, NAN, 1.25f } };
    const struct request_rows rows = {
        .model = "toy", .workload = "pp512+tg64", .sequences = 2, .n = 2, .figures = f
    };
    const float itl[] = { 0.008f, 0.009f };
    struct cell_row first = { .run_id = run, .phase = "block", .requests = &rows };
    struct cell_row none = { .run_id = run, .phase = "block", .error = "killed" };
    struct cell_row second = { .run_id = run, .phase = "block", .discarded = true, .requests = &rows };
    CHECK_OK(db_cell_insert(d, &first, NULL, 0, NULL, 0, itl, 2, &why));
    CHECK_OK(db_cell_insert(d, &none, NULL, 0, NULL, 0, NULL, 0, &why));
    CHECK_OK(db_cell_insert(d, &second, NULL, 0, NULL, 0, NULL, 0, &why));
    CHECK_OK(db_request_list(d, 0, take_requests, &seen, &why));
    CHECK_EQ(seen.cells, 2);
    CHECK_EQ(seen.last.cell_id, second.id);
    CHECK_EQ(seen.last.n_itl, 0);
    CHECK_OK(db_request_list(d, second.id, take_requests, &seen, &why));
    CHECK_EQ(seen.cells, 2); /* nothing new */
    CHECK_OK(db_request_list(d, first.id - 1, take_requests, &seen, &why));
    CHECK_EQ(seen.last.requests.sequences, 2);
    CHECK_EQ(seen.last.requests.n, 2);
    CHECK_EQ(seen.itl[1], 0.009f);
    CHECK_EQ(seen.figures[0].ttft_s, 0.25f);
    CHECK_NAN(seen.figures[1].prefill_s);
    CHECK_EQ(seen.figures[1].decode_s, 1.25f);
    assert_string_equal(seen.last.requests.model, "toy");
    assert_string_equal(seen.last.requests.workload, "pp512+tg64");
    struct count_row counts[4];
    int n;
    CHECK_OK(db_cell_counts(d, counts, 4, &n, &why));
    CHECK_EQ(n, 3);
    CHECK_EQ(counts[0].n, 1);
    CHECK_EQ(counts[1].n, 1);
    CHECK_EQ(counts[2].n, 1);
    assert_string_equal(counts[0].what, "discarded");
    assert_string_equal(counts[1].what, "failed");
    assert_string_equal(counts[2].what, "kept");
    db_close(d);
}

static void take_event(void *ctx, int64_t unix_ms, const char *kind, const char *text)
{
    CHECK_LT(0, unix_ms);
    str_printf(ctx, "%s:%s;", kind, text);
}

static void events_in_order(void **state)
{
    struct err why;
    struct db *d;
    struct str seen = { 0 };
    (void)state;
    CHECK_OK(db_open(&d, ":memory:", &why));
    int64_t run = temp_run(d);
    CHECK_OK(db_event_add(d, run, "control", "A/A holds", &why));
    CHECK_OK(db_event_add(d, run, "discard", "block 2: swap", &why));
    CHECK_OK(db_event_list(d, run, take_event, &seen, &why));
    assert_string_equal(str_text(&seen), "control:A/A holds;discard:block 2: swap;");
    str_free(&seen);
    db_close(d);
}

/* Through SQLite itself, as a user's `| sqlite3 other.db` would. */
static void export_fills_a_fresh_database(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    char *sql, *again;
    CHECK_OK(db_open(&d, t->file, &why));
    int64_t run = temp_run(d);
    temp_run(d); /* another run that must not come along */
    struct request_figures f = { 8, 4, 0.5f, 0.25f, NAN };
    const struct request_rows requests = {
        .model = "m", .workload = "w", .sequences = 1, .n = 1, .figures = &f
    };
    struct cell_row c = { .run_id = run, .config = "it's, \"q\"\n", .seconds = 0.1, .requests = &requests };
    const struct measurement m[] = { { "a", "s", 0.1 }, { "b", "s", NAN }, { "c", "s", INFINITY } };
    const struct sample_row s[] = { { 5, "x", 1e-300 } };
    const float itl[] = { 0.5f, 0.25f };
    CHECK_OK(db_cell_insert(d, &c, m, 3, s, 1, itl, 2, &why));
    CHECK_OK(db_event_add(d, run, "note", "n", &why));
    CHECK_OK(
        db_run_finish(d, run, "done", "", NAN, NULL, &why)); /* opening closes runs that nobody measures */
    CHECK_OK(db_run_sql(d, run, &sql, &why));
    CHECK_CONTAINS(sql, "INSERT INTO request(");
    CHECK_CONTAINS(sql, "X'0000003f0000803e'");
    CHECK_CONTAINS(sql, "CREATE TABLE IF NOT EXISTS run(");
    CHECK_EQ(db_run_sql(d, 99, &again, &why), ERR_USAGE);
    CHECK(!again);
    db_close(d);

    char other[96];
    sqlite3 *fresh;
    snprintf(other, sizeof other, "%s/o.db", t->folder);
    assert_int_equal(sqlite3_open(other, &fresh), SQLITE_OK);
    assert_int_equal(sqlite3_exec(fresh, sql, NULL, NULL, NULL),
                     SQLITE_OK); /* no tables yet: it brings them */
    sqlite3_close(fresh);
    CHECK_EQ(db_open(&d, other, &why),
             ERR_FORMAT); /* an extract is not a store of ours: refused, not migrated */

    char whole[96];
    snprintf(whole, sizeof whole, "%s/w.db", t->folder);
    CHECK_OK(db_open(&d, whole, &why));
    db_close(d);
    assert_int_equal(sqlite3_open(whole, &fresh), SQLITE_OK);
    assert_int_equal(sqlite3_exec(fresh, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(fresh);
    CHECK_OK(db_open(&d, whole, &why));
    CHECK_OK(db_check(d, &why));
    CHECK_EQ(db_measurement_get(d, c.id, "a"), 0.1);
    CHECK_NAN(db_measurement_get(d, c.id, "b"));
    CHECK(isinf(db_measurement_get(d, c.id, "c")));
    CHECK_OK(db_run_sql(d, run, &again, &why));
    assert_string_equal(again, sql);
    struct run_row *rows;
    int n;
    CHECK_OK(db_run_list(d, NULL, 10, &rows, &n, &why));
    assert_int_equal(n, 1);
    run_row_free(rows);
    free(rows);
    free(sql);
    free(again);
    db_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_round_trip),
        cmocka_unit_test(references_hold),
        cmocka_unit_test(cell_round_trip),
        cmocka_unit_test(samples_and_machine_come_back),
        cmocka_unit_test(cell_is_whole_or_absent),
        cmocka_unit_test(list_filters),
        cmocka_unit_test(a_persons_filters),
        cmocka_unit_test(values_of_what_counts),
        cmocka_unit_test(disturbed_blocks_are_kept),
        cmocka_unit_test(capsules_and_links),
        cmocka_unit_test(champions_by_name),
        cmocka_unit_test(text_is_cut_between_characters),
        cmocka_unit_test(spool_keeps_the_newest),
        cmocka_unit_test_setup_teardown(one_process_sends, temp_setup, temp_teardown),
        cmocka_unit_test(requests_come_back),
        cmocka_unit_test(events_in_order),
        cmocka_unit_test_setup_teardown(export_fills_a_fresh_database, temp_setup, temp_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
