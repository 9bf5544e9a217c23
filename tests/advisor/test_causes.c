/* Proves: the metric that moved before the main one is named first, metrics that did not move are not named,
 * noise names almost none, and a run whose neighbours woke up says so. */
#include <math.h>

#include "tests/check.h"
#include "advisor/history/history.h"
#include "advisor/stats/stats.h"

static double gauss(uint64_t *random)
{
    return stats_normal_quantile(((double)(stats_random(random) >> 11) + 0.5) * 0x1p-53);
}

enum { POINTS = 30, AT = 15 };

/* Noise of 2 % around 1 in every metric; `at` is where `metric` doubles. */
static void table_fill(struct metric_table *t, uint64_t *random)
{
    struct err why;
    CHECK_OK(metric_table_open(t, POINTS, &why));
    for (int m = 0; m < METRIC_COUNT; m++)
        for (int i = 0; i < POINTS; i++) metric_table_add(t, (enum metric_id)m, i, 1 + 0.02 * gauss(random));
}

static void table_move(struct metric_table *t, enum metric_id metric, int at, double factor)
{
    for (int i = at; i < POINTS; i++) t->value[metric * POINTS + i] *= factor;
}

static void the_first_to_move_is_named_first(void **state)
{
    (void)state;
    uint64_t random = 7;
    struct err why;
    struct metric_table t;
    struct moved m[MOVED_MAX];
    struct str s = { 0 };
    int n;
    table_fill(&t, &random);
    table_move(&t, METRIC_OTHERS_BUSY, AT - 2, 2);
    table_move(&t, METRIC_CPU_TEMPERATURE, AT, 1.5);
    table_move(&t, METRIC_MEM_USED, AT - 9, 3);  /* too early to be of this change */
    table_move(&t, METRIC_DECODE_RATE, AT, 0.5); /* the main metric itself is not searched */
    CHECK_OK(moved_find(m, &n, &t, AT, 5, 2, &why));
    assert_int_equal(n, 2);
    CHECK_EQ(m[0].metric, METRIC_OTHERS_BUSY);
    CHECK_EQ(m[0].at, AT - 2);
    CHECK_NEAR(m[0].after / m[0].before, 2, 0.1);
    CHECK_EQ(m[1].metric, METRIC_CPU_TEMPERATURE);
    moved_sentence(&s, m, n, AT, "decode_tok_s", true, "run");
    CHECK_CONTAINS(str_text(&s), "others_busy_ratio rose from 1");
    CHECK_CONTAINS(str_text(&s), "2 runs before decode_tok_s fell");
    CHECK_CONTAINS(str_text(&s), "at the same time");
    str_free(&s);
    metric_table_close(&t);
}

static void noise_names_almost_nothing(void **state)
{
    (void)state;
    uint64_t random = 1;
    struct err why;
    struct moved m[MOVED_MAX];
    struct str s = { 0 };
    int n, named = 0;
    for (int i = 0; i < 200; i++) {
        struct metric_table t;
        table_fill(&t, &random);
        CHECK_OK(moved_find(m, &n, &t, AT, POINTS, POINTS, &why));
        named += n > 0;
        metric_table_close(&t);
    }
    CHECK_LE(named, 4); /* in 2 % of the tables, each of about 70 metrics */
    moved_sentence(&s, m, 0, AT, "decode_tok_s", true, "run");
    CHECK_CONTAINS(str_text(&s), "no other metric moved");
    str_free(&s);
}

/* ---------------------------------------------------------------- a run */

static void put_cell(struct db *d, int64_t run, int i, double rate, double busy)
{
    struct err why;
    struct cell_row c = {
        .run_id = run, .arm = i % 2, .block = i / 2, .slot = i % 2, .started_ms = 1000 + i, .seconds = 1
    };
    snprintf(c.phase, sizeof c.phase, "block");
    snprintf(c.config, sizeof c.config, "%s", i % 2 ? "q8_0" : "f32");
    const struct measurement m[] = { { .metric = "decode_tok_s", .unit = "tokens/s", .value = rate },
                                     { .metric = "others_busy_ratio", .unit = "ratio", .value = busy } };
    CHECK_OK(db_cell_insert(d, &c, m, COUNT_OF(m), NULL, 0, NULL, 0, &why));
}

static void a_run_says_what_moved_first(void **state)
{
    (void)state;
    uint64_t random = 3;
    struct err why;
    struct db *d;
    struct run_causes c;
    CHECK_OK(db_open(&d, ":memory:", &why));
    struct run_row r = { .started_ms = 1 };
    snprintf(r.kind, sizeof r.kind, "ab");
    snprintf(r.state, sizeof r.state, "done");
    CHECK_OK(db_run_insert(d, &r, &why));
    for (int i = 0; i < 2 * POINTS;
         i++) /* arm B is three times as fast; from cell 40 on both lose a quarter */
        put_cell(d, r.id, i, (i % 2 ? 300 : 100) * (i < 40 ? 1 : 0.75) * (1 + 0.01 * gauss(&random)),
                 (i < 37 ? 0.1 : 0.8) * (1 + 0.02 * gauss(&random)));
    CHECK_OK(run_causes_read(&c, d, r.id, 0.01, &why));
    CHECK_EQ(c.metric, METRIC_DECODE_RATE);
    CHECK_EQ(c.cells, 2 * POINTS);
    assert_int_equal(c.changes, 1); /* the arms' different levels are no change */
    CHECK_EQ(c.change[0].change.at, 40);
    CHECK_NEAR(exp(c.change[0].change.effect), 0.75, 0.02);
    CHECK_EQ(c.change[0].priority, PRIORITY_HIGH);
    assert_int_equal(c.change[0].n_moved, 1);
    CHECK_EQ(c.change[0].moved[0].metric, METRIC_OTHERS_BUSY);
    CHECK_EQ(c.change[0].moved[0].at, 37);
    run_causes_free(&c);
    db_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_to_move_is_named_first),
        cmocka_unit_test(noise_names_almost_nothing),
        cmocka_unit_test(a_run_says_what_moved_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
