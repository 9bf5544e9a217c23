/* Proves: an alert and its notices are stored together or not at all; at most one alert fires per machine,
 * name and subject, and it ends once; notices to one address keep their order and do not block other
 * addresses; refused notices no longer block others and can still be read; a new value of a signal
 * replaces the old one. */
#include <math.h>

#include "tests/db/temp.h"

static struct alert_row an_alert(const char *name, const char *subject)
{
    struct alert_row a = {
        .machine = "m1", .grade = "warning", .since_ms = 1000, .value = 0.95, .threshold = 0.9
    };
    snprintf(a.name, sizeof a.name, "%s", name);
    snprintf(a.subject, sizeof a.subject, "%s", subject);
    snprintf(a.text, sizeof a.text, "95 %% of memory is in use");
    return a;
}

static struct notice_row a_notice(const char *url, const char *body)
{
    return (struct notice_row){ .kind = "webhook", .url = (char *)url, .body = (char *)body };
}

static void an_alert_begins_and_ends(void **state)
{
    const struct temp *t = *state;
    struct err why;
    struct db *d;
    struct alert_row a = an_alert("memory", ""), again = an_alert("memory", ""),
                     other = an_alert("memory", "gpu0");
    struct alert_row *rows;
    int n;
    CHECK_OK(db_open(&d, t->file, &why));
    CHECK_OK(db_alert_begin(d, &a, NULL, 0, &why));
    CHECK_EQ(db_alert_begin(d, &again, NULL, 0, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "is already firing");
    CHECK_OK(db_alert_begin(d, &other, NULL, 0, &why));
    snprintf(again.machine, sizeof again.machine, "m2"); /* another machine's, in the same file */
    CHECK_OK(db_alert_begin(d, &again, NULL, 0, &why));
    db_close(d);

    CHECK_OK(db_open(&d, t->file, &why)); /* as after a restart */
    CHECK_OK(db_alert_list(d, "m1", true, 10, &rows, &n, &why));
    CHECK_EQ(n, 2);
    CHECK_EQ(rows[1].id, a.id);
    CHECK_EQ(rows[1].value, 0.95);
    CHECK_EQ(rows[1].threshold, 0.9);
    CHECK_EQ(rows[1].since_ms, 1000);
    CHECK(!rows[1].ended_ms);
    assert_string_equal(rows[0].subject, "gpu0");
    assert_string_equal(rows[1].text, "95 % of memory is in use");
    free(rows);
    CHECK_OK(db_alert_end(d, a.id, "resolved", NULL, 0, &why));
    CHECK_EQ(db_alert_end(d, a.id, "resolved", NULL, 0, &why), ERR_USAGE);
    CHECK_OK(db_alert_list(d, "m1", true, 10, &rows, &n, &why));
    CHECK_EQ(n, 1);
    free(rows);
    CHECK_OK(db_alert_list(d, NULL, false, 10, &rows, &n, &why));
    CHECK_EQ(n, 3);
    CHECK_LT(1000, rows[2].ended_ms);
    assert_string_equal(rows[2].ended, "resolved");
    free(rows);
    a = an_alert("memory", ""); /* it may fire again */
    CHECK_OK(db_alert_begin(d, &a, NULL, 0, &why));
    db_close(d);
}

static void alert_and_notices_are_one(void **state)
{
    (void)state;
    struct err why;
    struct db *d;
    struct alert_row a = an_alert("busy", "");
    struct notice_row bad[2] = { a_notice("http://a", "1"), a_notice(NULL, "no address") };
    struct alert_row *rows;
    int n;
    CHECK_OK(db_open(&d, ":memory:", &why));
    CHECK_NE(db_alert_begin(d, &a, bad, 2, &why), ERR_OK); /* the second cannot be stored */
    CHECK_OK(db_alert_list(d, NULL, false, 10, &rows, &n, &why));
    CHECK_EQ(n, 0);
    CHECK_EQ(db_notice_count(d, NULL), 0);
    CHECK_OK(db_alert_begin(d, &a, bad, 1, &why));
    CHECK_EQ(db_notice_count(d, NULL), 1);
    CHECK_NE(db_alert_end(d, a.id, "resolved", bad, 2, &why), ERR_OK);
    CHECK_OK(db_alert_list(d, NULL, true, 10, &rows, &n, &why)); /* it still fires */
    CHECK_EQ(n, 1);
    CHECK_EQ(db_notice_count(d, NULL), 1);
    free(rows);
    db_close(d);
}

static void next_is(struct db *d, const char *url, int64_t now, const char *body, struct notice_row *out)
{
    struct err why;
    bool found;
    CHECK_OK(db_notice_next(d, url, now, out, &found, &why));
    if (!body) {
        CHECK(!found);
        CHECK(!out->body);
        return;
    }
    CHECK(found);
    assert_string_equal(out->body, body);
    notice_row_free(out);
}

static void notices_keep_their_order(void **state)
{
    (void)state;
    struct err why;
    struct db *d;
    struct alert_row a = an_alert("busy", "");
    struct notice_row x,
        n[3] = { a_notice("http://a", "a1"), a_notice("http://b", "b1"), a_notice("http://a", "a2") };
    CHECK_OK(db_open(&d, ":memory:", &why));
    CHECK_OK(db_alert_begin(d, &a, n, 3, &why));
    next_is(d, "http://a", 100, "a1", &x);
    CHECK_OK(db_notice_failed(d, x.id, 500, "no route", &why));
    next_is(d, "http://a", 100, NULL, &x); /* a2 waits for a1 */
    /* due: no pause is that long, so the clock was set back since */
    next_is(d, "http://a", 499 - DB_RETRY_MOST_MS, "a1", &x);
    next_is(d, "http://b", 100, "b1", &x);
    CHECK_OK(db_notice_done(d, x.id, &why));
    next_is(d, "http://b", 100, NULL, &x);
    next_is(d, "http://a", 499, NULL, &x);
    next_is(d, "http://a", 500, "a1", &x);
    CHECK_EQ(x.attempts, 1);
    assert_string_equal(x.last_error, "no route");
    CHECK_OK(db_notice_refused(d, x.id, "HTTP 404", &why));
    CHECK_EQ(db_notice_count(d, NULL), 1);
    CHECK_EQ(db_notice_count(d, "http://a"), 1);
    CHECK(!db_notice_count(d, "http://b"));
    next_is(d, "http://a", 500, "a2", &x);
    CHECK_OK(db_notice_done(d, x.id, &why));
    next_is(d, "http://a", 1000, NULL, &x);
    CHECK_EQ(db_notice_count(d, NULL), 0);
    db_close(d);
}

static void last_values_replace(void **state)
{
    (void)state;
    struct err why;
    struct db *d;
    struct watch_value v = {
        .signal = "performance", .subject = "tg32 q8_0", .unix_ms = 1000, .value = 0.25
    };
    struct watch_value *rows;
    int n;
    CHECK_OK(db_open(&d, ":memory:", &why));
    CHECK_OK(db_watch_value_put(d, "m1", &v, &why));
    v.unix_ms = 2000;
    v.value = NAN;
    CHECK_OK(db_watch_value_put(d, "m1", &v, &why));
    v = (struct watch_value){ .signal = "canary", .unix_ms = 1500, .value = 0.01 };
    CHECK_OK(db_watch_value_put(d, "m1", &v, &why));
    CHECK_OK(db_watch_value_put(d, "m2", &v, &why));
    CHECK_OK(db_watch_value_list(d, "m1", &rows, &n, &why));
    CHECK_EQ(n, 2);
    CHECK_EQ(rows[0].value, 0.01);
    assert_string_equal(rows[0].machine, "m1");
    CHECK_EQ(rows[1].unix_ms, 2000);
    CHECK_NAN(rows[1].value);
    assert_string_equal(rows[1].subject, "tg32 q8_0");
    free(rows);
    db_close(d);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, temp_setup, temp_teardown)
    const struct CMUnitTest tests[] = {
        T(an_alert_begins_and_ends),
        T(alert_and_notices_are_one),
        T(notices_keep_their_order),
        T(last_values_replace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
