/* Proves: spans are read as they were stored, all of them or none; a run that waits for a collector is
 * noted once per address. */
#include "tests/db/temp.h"

static void spans_come_back(void **state)
{
    struct err why;
    struct db *d;
    struct span_row *back;
    int n;
    (void)state;
    CHECK_OK(db_open(&d, ":memory:", &why));
    const int64_t run = temp_run(d);
    struct span_row s[] = {
        { .run_id = run,
          .arm = 1,
          .block = 3,
          .phase = "block",
          .name = "load",
          .begun_ns = 1700000000000000001,
          .ended_ns = 1700000000000000009,
          .error = "gone" },
        { .run_id = run,
          .cell_id = 7,
          .arm = -1,
          .block = -1,
          .name = "prefill",
          .begun_ns = 5,
          .ended_ns = 5 },
    };
    CHECK_OK(db_span_insert(d, s, 2, &why));
    CHECK_LT(0, s[0].id);
    CHECK_LT(s[0].id, s[1].id);
    CHECK_OK(db_span_list(d, run, &back, &n, &why));
    CHECK_EQ(n, 2);
    CHECK_EQ(back[0].arm, 1);
    CHECK_EQ(back[0].block, 3);
    CHECK_EQ(back[0].cell_id, 0);
    CHECK_EQ(back[0].begun_ns, 1700000000000000001);
    CHECK_EQ(back[0].ended_ns, 1700000000000000009);
    assert_string_equal(back[0].phase, "block");
    assert_string_equal(back[0].name, "load");
    assert_string_equal(back[0].error, "gone");
    CHECK_EQ(back[1].cell_id, 7);
    CHECK_EQ(back[1].arm, -1);
    CHECK_EQ(back[1].block, -1);
    CHECK(!*back[1].error);
    free(back);
    /* one of no run: none of them is kept */
    struct span_row bad[] = { { .run_id = run, .name = "decode" }, { .run_id = run + 7, .name = "decode" } };
    CHECK_EQ(db_span_insert(d, bad, 2, &why), ERR_USAGE);
    CHECK_OK(db_span_list(d, run, &back, &n, &why));
    CHECK_EQ(n, 2);
    free(back);
    CHECK_OK(db_span_insert(d, NULL, 0, &why));
    db_close(d);
}

static void traces_wait_for_their_collector(void **state)
{
    struct err why;
    struct db *d;
    int64_t *ids;
    int n;
    (void)state;
    CHECK_OK(db_open(&d, ":memory:", &why));
    const int64_t first = temp_run(d), second = temp_run(d);
    CHECK_EQ(db_trace_due_count(d), 0);
    CHECK_OK(db_trace_due_put(d, second, "http://c", "no route", &why));
    CHECK_OK(db_trace_due_put(d, first, "http://c", "no route", &why));
    CHECK_OK(db_trace_due_put(d, second, "http://c", "still none", &why)); /* once, however often */
    CHECK_OK(db_trace_due_put(d, first, "", "no route", &why));
    CHECK_EQ(db_trace_due_count(d), 3);
    CHECK_OK(db_trace_due_list(d, "http://c", &ids, &n, &why));
    CHECK_EQ(n, 2);
    CHECK_EQ(ids[0] + ids[1], first + second);
    free(ids);
    CHECK_OK(db_trace_due_done(d, second, "http://c", &why));
    CHECK_OK(db_trace_due_done(d, second, "http://c", &why));
    CHECK_OK(db_trace_due_list(d, "http://c", &ids, &n, &why));
    CHECK_EQ(n, 1);
    CHECK_EQ(ids[0], first);
    free(ids);
    CHECK_EQ(db_trace_due_put(d, first + 100, "http://c", "of no run", &why), ERR_USAGE);
    db_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_come_back),
        cmocka_unit_test(traces_wait_for_their_collector),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
