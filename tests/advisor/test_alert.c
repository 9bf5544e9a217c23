/* Proves: every row of ALERTS is complete and clears on the good side of its threshold; thresholds are parsed
 * in the unit of their signal, and errors say what is expected; an alert fires after its minimum duration and
 * not before, ends with hysteresis, and survives flapping, gaps, unknown values and clock steps; rules of one
 * signal and subjects are independent; a lost sensor is detected. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/check.h"
#include "advisor/watch/watch.h"

/* ---------------------------------------------------------------- the table */

static void rows_are_complete(void **state)
{
    (void)state;
    int of_signal[SIGNAL_COUNT] = { 0 };
    for (int i = 0; i < SIGNAL_COUNT; i++) {
        CHECK(SIGNALS[i].name);
        CHECK(*SIGNALS[i].name);
        CHECK(SIGNALS[i].phrase);
        CHECK_LT(0, SIGNALS[i].stands_s);
    }
    for (int i = 0; i < ALERT_COUNT; i++) {
        const struct alert *a = &ALERTS[i];
        CHECK(a->name);
        CHECK(*a->name);
        CHECK(a->meaning);
        CHECK(*a->meaning);
        CHECK(a->todo);
        CHECK(*a->todo);
        CHECK_EQ(alert_find(a->name), a); /* names are unique */
        CHECK_LE(0, a->for_s);
        CHECK_LE(0, a->keep_s);
        CHECK_LE(0, a->threshold);
        CHECK(a->side == SIDE_ABOVE ? a->clear <= a->threshold : a->clear >= a->threshold);
        CHECK(a->actions & ACTION_REPORT);
        CHECK_EQ(!(a->actions & ACTION_NOTIFY), a->grade == GRADE_INFO);
        CHECK_EQ(!(a->actions & ACTION_BELL), a->grade != GRADE_CRITICAL);
        of_signal[a->signal]++;
    }
    for (int i = 0; i < SIGNAL_COUNT; i++) {
        CHECK_LE(1, of_signal[i]);
        CHECK_LE(of_signal[i], SIGNAL_RULES);
    }
}

static void a_higher_grade_comes_later(void **state)
{
    (void)state;
    for (int i = 0; i < ALERT_COUNT; i++)
        for (int k = 0; k < ALERT_COUNT; k++) {
            const struct alert *low = &ALERTS[i], *high = &ALERTS[k];
            if (low->signal != high->signal || low->grade >= high->grade) continue;
            CHECK_EQ(low->side, high->side);
            CHECK(low->side == SIDE_ABOVE ? high->threshold > low->threshold
                                          : high->threshold < low->threshold);
        }
}

/* The thresholds that the documentation promises. */
static void defaults_are_as_promised(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double threshold;
    } PROMISED[] = { { "performance", 0.20 }, { "busy", 0.80 }, { "errors", 0.05 }, { "memory", 0.90 } };
    for (size_t i = 0; i < COUNT_OF(PROMISED); i++)
        CHECK_EQ(alert_find(PROMISED[i].name)->threshold, PROMISED[i].threshold);
}

/* ---------------------------------------------------------------- setting */

static const struct alert *row_of(const struct alert_rules *r, const char *name)
{
    return &r->row[alert_find(name) - ALERTS];
}

static void settings_are_read(void **state)
{
    (void)state;
    struct err why;
    struct alert_rules r;
    alert_rules_default(&r);
    CHECK_OK(alert_rules_set(&r, "memory=95%:2m", &why));
    CHECK_NEAR(row_of(&r, "memory")->threshold, 0.95, 1e-12);
    CHECK_NEAR(row_of(&r, "memory")->clear, 0.95 * 0.85 / 0.90, 1e-12);
    CHECK_EQ(row_of(&r, "memory")->for_s, 120);
    /* the last setting replaces the earlier one completely */
    CHECK_OK(alert_rules_set(&r, "memory=0.5", &why));
    CHECK_EQ(row_of(&r, "memory")->threshold, 0.5);
    CHECK_EQ(row_of(&r, "memory")->for_s, 30);
    CHECK_OK(alert_rules_set(&r, "disk=8G", &why));
    CHECK_EQ(row_of(&r, "disk")->threshold, 8.0 * (1 << 30));
    CHECK_GT(row_of(&r, "disk")->clear, 8.0 * (1 << 30));
    CHECK_OK(alert_rules_set(&r, "cpu_temperature=75:1m", &why));
    CHECK_EQ(row_of(&r, "cpu_temperature")->threshold, 75);
    CHECK_OK(alert_rules_set(&r, "stale=2h", &why));
    CHECK_EQ(row_of(&r, "stale")->threshold, 7200);
    CHECK_OK(alert_rules_set(&r, "cpu_throttle=2", &why));
    CHECK_EQ(row_of(&r, "cpu_throttle")->threshold, 2);
    CHECK_EQ(row_of(&r, "cpu_throttle")->clear, 2);
    CHECK_OK(alert_rules_set(&r, "battery=off", &why));
    CHECK(r.off[alert_find("battery") - ALERTS]);
    CHECK_OK(alert_rules_set(&r, "steal=1%", &why));
    CHECK(!r.off[alert_find("steal") - ALERTS]);
}

static void bad_settings_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } BAD[] = {
        { "memory", "NAME=THRESHOLD" },
        { "=95%", "NAME=THRESHOLD" },
        { "memory=", "NAME=THRESHOLD" },
        { "memry=95%", "did you mean 'memory'" },
        { "zzzzzzzz=1", "--print-alerts" },
        { "memory=95", "a share such as" },
        { "memory=nan", "a share such as" },
        { "memory=9%5", "a share such as" },
        { "memory=-1%", "a share such as" },
        { "memory=95%:soon", "'soon' is not a duration" },
        { "memory=95%:", "is not a duration" },
        { "disk=lots", "bytes such as" },
        { "battery=1", "only off" },
        { "stale=yesterday", "a time such as" },
        { "gpu_ecc=inf", "a number" },
        { "cpu_temperature=hot", "degrees Celsius" },
    };
    for (size_t i = 0; i < COUNT_OF(BAD); i++) {
        struct err why;
        struct alert_rules r, was;
        alert_rules_default(&r);
        was = r;
        CHECK_EQ(alert_rules_set(&r, BAD[i].text, &why), ERR_USAGE);
        if (!strstr(why.message, BAD[i].says)) fail_msg("%s: '%s'", BAD[i].text, why.message);
        CHECK(!memcmp(&r, &was, sizeof r));
    }
}

static void settings_come_from_a_file(void **state)
{
    (void)state;
    struct err why;
    struct alert_rules r;
    char path[] = "/tmp/qdyno-alerts-XXXXXX";
    const int fd = mkstemp(path);
    static const char GOOD[] = "# ours\n\n  memory=80%:1m   # early\r\nbattery=off\n";
    static const char BAD[] = "memory=80%\nbusy=70% steal=1%\n";
    CHECK_LE(0, fd);
    CHECK_EQ(write(fd, GOOD, sizeof GOOD - 1), sizeof GOOD - 1);
    alert_rules_default(&r);
    CHECK_OK(alert_rules_read(&r, path, &why));
    CHECK_EQ(row_of(&r, "memory")->threshold, 0.80);
    CHECK_EQ(row_of(&r, "memory")->for_s, 60);
    CHECK(r.off[alert_find("battery") - ALERTS]);
    CHECK(!ftruncate(fd, 0));
    CHECK_EQ(pwrite(fd, BAD, sizeof BAD - 1, 0), sizeof BAD - 1);
    CHECK_EQ(alert_rules_read(&r, path, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "line 2");
    close(fd);
    unlink(path);
    CHECK_EQ(alert_rules_read(&r, path, &why), ERR_IO);
}

static void values_are_printed_in_their_unit(void **state)
{
    (void)state;
    char buf[128];
    assert_string_equal(alert_text(alert_find("memory"), 0.921, buf, sizeof buf),
                        "92.1 % of memory is in use (limit 90 %)");
    assert_string_equal(alert_text(alert_find("disk"), 512 << 20, buf, sizeof buf),
                        "512M are free on the database's file system (limit 1.00G)");
    assert_string_equal(alert_text(alert_find("battery"), 1, buf, sizeof buf), "the machine runs on battery");
    assert_string_equal(alert_text(alert_find("stale"), 90000, buf, sizeof buf),
                        "no measurement succeeded for 25 h (limit 24 h)");
    assert_string_equal(alert_value_text(SIGNAL_BLIND, NAN, buf, sizeof buf), "n/a");
}

/* ---------------------------------------------------------------- time series */

/* Fires after 30 s above 0.9, ends after 10 s at 0.85 or less. A step: second, value, expected change. */
struct alert_step {
    double t, value;
    enum alert_change want;
};
enum { STEPS = 24 };
static const struct {
    const char *name;
    const char *alert;
    struct alert_step step[STEPS]; /* t = -1 ends the list */
} SERIES[] = {
    { "fires after 30 s, ends after 10 s",
      "memory",
      { { 0, 0.5, CHANGE_NONE },
        { 10, 0.95, CHANGE_PENDING },
        { 20, 0.95, CHANGE_NONE },
        { 39.9, 0.95, CHANGE_NONE },
        { 40, 0.95, CHANGE_FIRING },
        { 50, 0.95, CHANGE_NONE },
        { 60, 0.80, CHANGE_NONE },
        { 69.9, 0.80, CHANGE_NONE },
        { 70, 0.80, CHANGE_RESOLVED },
        { 80, 0.80, CHANGE_NONE },
        { -1, 0, CHANGE_NONE } } },
    { "the threshold itself is not over it",
      "memory",
      { { 0, 0.90, CHANGE_NONE },
        { 30, 0.90, CHANGE_NONE },
        { 60, 0.90, CHANGE_NONE },
        { -1, 0, CHANGE_NONE } } },
    { "flapping around the threshold never fires",
      "memory",
      { { 0, 0.91, CHANGE_PENDING },
        { 20, 0.91, CHANGE_NONE },
        { 25, 0.89, CHANGE_CALM },
        { 26, 0.91, CHANGE_PENDING },
        { 50, 0.91, CHANGE_NONE },
        { 55, 0.90, CHANGE_CALM },
        { 56, 0.91, CHANGE_PENDING },
        { 80, 0.91, CHANGE_NONE },
        { -1, 0, CHANGE_NONE } } },
    { "between clear and threshold it goes on firing",
      "memory",
      { { 0, 0.95, CHANGE_PENDING },
        { 30, 0.95, CHANGE_FIRING },
        { 40, 0.87, CHANGE_NONE },
        { 100, 0.87, CHANGE_NONE },
        { 101, 0.85, CHANGE_NONE },
        { 105, 0.86, CHANGE_NONE }, /* not good for 10 s yet */
        { 106, 0.85, CHANGE_NONE },
        { 115, 0.85, CHANGE_NONE },
        { 116, 0.85, CHANGE_RESOLVED },
        { -1, 0, CHANGE_NONE } } },
    { "unknown neither fires nor counts",
      "memory",
      { { 0, 0.95, CHANGE_PENDING },
        { 20, 0.95, CHANGE_NONE }, /* 20 s */
        { 25, NAN, CHANGE_NONE },
        { 35, NAN, CHANGE_NONE },
        { 45, 0.95, CHANGE_NONE }, /* unknown from 20 to 45 */
        { 54, 0.95, CHANGE_NONE },
        { 55, 0.95, CHANGE_FIRING },
        { -1, 0, CHANGE_NONE } } },
    { "unknown does not end it",
      "memory",
      { { 0, 0.95, CHANGE_PENDING },
        { 30, 0.95, CHANGE_FIRING },
        { 40, NAN, CHANGE_NONE },
        { 400, NAN, CHANGE_NONE },
        { 410, 0.5, CHANGE_NONE },
        { 420, 0.5, CHANGE_RESOLVED },
        { -1, 0, CHANGE_NONE } } },
    { "only unknown",
      "memory",
      { { 0, NAN, CHANGE_NONE }, { 100, NAN, CHANGE_NONE }, { -1, 0, CHANGE_NONE } } },
    { "a gap longer than a value stands is not counted",
      "memory",
      { { 0, 0.95, CHANGE_PENDING },
        { 3600, 0.95, CHANGE_NONE },
        { 3620, 0.95, CHANGE_NONE },
        { 3630, 0.95, CHANGE_FIRING },
        { -1, 0, CHANGE_NONE } } },
    { "a clock that steps back counts nothing",
      "memory",
      { { 100, 0.95, CHANGE_PENDING },
        { 120, 0.95, CHANGE_NONE },
        { 10, 0.95, CHANGE_NONE },
        { 19, 0.95, CHANGE_NONE },
        { 20, 0.95, CHANGE_FIRING },
        { -1, 0, CHANGE_NONE } } },
    { "the same instant twice counts nothing",
      "memory",
      { { 0, 0.95, CHANGE_PENDING },
        { 0, 0.95, CHANGE_NONE },
        { 0, 0.95, CHANGE_NONE },
        { -1, 0, CHANGE_NONE } } },
    { "no minimum duration: at once, and ends at once",
      "gpu_ecc",
      { { 0, 0, CHANGE_NONE },
        { 1, 1, CHANGE_FIRING },
        { 2, 1, CHANGE_NONE },
        { 3, 0, CHANGE_RESOLVED },
        { -1, 0, CHANGE_NONE } } },
    { "below",
      "disk_critical",
      { { 0, 5e9, CHANGE_NONE },
        { 1, 50 << 20, CHANGE_FIRING },
        { 2, 150 << 20, CHANGE_NONE }, /* below the threshold, above clear */
        { 20, 150 << 20, CHANGE_NONE },
        { 21, 1e9, CHANGE_NONE },
        { 31, 1e9, CHANGE_RESOLVED },
        { -1, 0, CHANGE_NONE } } },
    { "rounds: values stand as long as it takes",
      "performance",
      { { 0, 0.1, CHANGE_NONE },
        { 1800, 0.3, CHANGE_FIRING },
        { 3600, 0.17, CHANGE_NONE },
        { 5400, NAN, CHANGE_NONE }, /* a round that could not be measured */
        { 7200, 0.02, CHANGE_RESOLVED },
        { -1, 0, CHANGE_NONE } } },
};

static void series_fire_and_end(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(SERIES); i++) {
        struct alert_state s = { 0 };
        const struct alert *a = alert_find(SERIES[i].alert);
        for (int k = 0; k < STEPS && SERIES[i].step[k].t >= 0; k++) {
            const struct alert_step *x = &SERIES[i].step[k];
            const enum alert_change got = alert_step(a, &s, (int64_t)llround(x->t * 1e9), x->value);
            if (got != x->want)
                fail_msg("%s, at %g s: change %d, want %d", SERIES[i].name, x->t, got, x->want);
        }
    }
}

/* A minimum duration for a value that is measured once per round. */
static void rounds_may_have_a_duration(void **state)
{
    (void)state;
    struct err why;
    struct alert_rules r;
    struct alert_state s = { 0 };
    alert_rules_default(&r);
    CHECK_OK(alert_rules_set(&r, "performance=10%:1h", &why));
    const struct alert *a = row_of(&r, "performance");
    CHECK_EQ(alert_step(a, &s, 0, 0.2), CHANGE_PENDING);
    CHECK_EQ(alert_step(a, &s, 1800 * INT64_C(1000000000), 0.2), CHANGE_NONE);
    CHECK_EQ(alert_step(a, &s, 3600 * INT64_C(1000000000), 0.2), CHANGE_FIRING);
}

/* ---------------------------------------------------------------- all of them */

static int feed(struct alerts *a, enum signal_id signal, const char *subject, double t, double value,
                struct alert_event out[SIGNAL_RULES])
{
    return alerts_feed(
        a, &(struct alert_feed){ signal, subject, (int64_t)(t * 1e9), (int64_t)(t * 1e3) + 5000, value },
        out);
}

static void rules_and_subjects_are_independent(void **state)
{
    (void)state;
    static struct alerts a;
    struct alert_event e[SIGNAL_RULES];
    memset(&a, 0, sizeof a);
    alert_rules_default(&a.rules);
    CHECK_NEAR(alerts_highest(&a), -1, 0);
    CHECK_EQ(feed(&a, SIGNAL_GPU_MEMORY, "gpu0", 0, 0.95, e), 1);
    CHECK_EQ(e[0].change, CHANGE_PENDING);
    CHECK_EQ(feed(&a, SIGNAL_GPU_MEMORY, "gpu1", 0, 0.99, e), 2); /* both grades become pending */
    CHECK_EQ(feed(&a, SIGNAL_GPU_MEMORY, "gpu1", 10, 0.99, e), 1);
    CHECK_EQ(e[0].change, CHANGE_FIRING);
    assert_string_equal(e[0].instance->subject, "gpu1");
    assert_string_equal(a.rules.row[e[0].instance->rule].name, "gpu_memory_critical");
    CHECK_NEAR(e[0].instance->since_ms, 15000, 0);
    CHECK_EQ(alerts_highest(&a), GRADE_CRITICAL);
    CHECK_EQ(feed(&a, SIGNAL_GPU_MEMORY, "gpu0", 30, 0.95, e), 1);
    CHECK_EQ(e[0].change, CHANGE_FIRING);
    assert_string_equal(e[0].instance->subject, "gpu0");
}

static void a_rule_that_is_off_is_silent(void **state)
{
    (void)state;
    struct err why;
    static struct alerts a;
    struct alert_event e[SIGNAL_RULES];
    memset(&a, 0, sizeof a);
    a.at_once = true; /* a single observation: minimum durations do not apply */
    alert_rules_default(&a.rules);
    CHECK_OK(alert_rules_set(&a.rules, "memory=off", &why));
    CHECK_EQ(feed(&a, SIGNAL_MEMORY, "", 0, 0.99, e), 1);
    CHECK_EQ(e[0].change, CHANGE_FIRING);
    assert_string_equal(a.rules.row[e[0].instance->rule].name, "memory_critical");
    CHECK_EQ(feed(&a, SIGNAL_MEMORY, "", 1, 0.5, e), 1);
    CHECK_EQ(e[0].change, CHANGE_RESOLVED);
}

static void a_stored_alert_counts_once_it_has_a_value(void **state)
{
    (void)state;
    static struct alerts a;
    struct alert_event e[SIGNAL_RULES];
    memset(&a, 0, sizeof a);
    alert_rules_default(&a.rules);
    struct alert_instance *busy = alerts_instance(&a, (int)(alert_find("busy") - ALERTS), "");
    busy->state.phase = ALERT_FIRING; /* as a restart restores it */
    CHECK_EQ(alerts_highest(&a), GRADE_WARNING);
    a.at_once = true;
    CHECK_NEAR(alerts_highest(&a), -1, 0);
    feed(&a, SIGNAL_BUSY, "", 0, NAN, e);
    CHECK_NEAR(alerts_highest(&a), -1, 0);
    feed(&a, SIGNAL_BUSY, "", 1, 0.75, e); /* within the hysteresis, so it goes on */
    CHECK_EQ(alerts_highest(&a), GRADE_WARNING);
    CHECK_EQ(feed(&a, SIGNAL_BUSY, "", 2, 0.5, e), 1);
    CHECK_EQ(e[0].change, CHANGE_RESOLVED);
    CHECK_NEAR(alerts_highest(&a), -1, 0);
}

static void a_lost_sensor_is_noticed(void **state)
{
    (void)state;
    static struct alerts a;
    struct alert_event e[SIGNAL_RULES];
    memset(&a, 0, sizeof a);
    alert_rules_default(&a.rules);
    CHECK_NAN(alerts_unknown_s(&a, SIGNAL_STEAL, 100));
    feed(&a, SIGNAL_STEAL, "", 10, NAN, e);
    CHECK_NAN(alerts_unknown_s(&a, SIGNAL_STEAL, 20 * INT64_C(1000000000))); /* it was never known */
    feed(&a, SIGNAL_STEAL, "", 30, 0.0, e);
    feed(&a, SIGNAL_STEAL, "", 40, NAN, e);
    const double s = alerts_unknown_s(&a, SIGNAL_STEAL, 700 * INT64_C(1000000000));
    CHECK_NEAR(s, 670, 1e-9);
    CHECK_EQ(feed(&a, SIGNAL_BLIND, "steal", 700, s, e), 1);
    CHECK_EQ(e[0].change, CHANGE_FIRING);
    feed(&a, SIGNAL_PERFORMANCE, "x", 0, 0.0, e);
    /* values of rounds: `stale` covers them */
    CHECK_NAN(alerts_unknown_s(&a, SIGNAL_PERFORMANCE, INT64_MAX));
}

static void instances_are_limited(void **state)
{
    (void)state;
    static struct alerts a;
    struct alert_event e[SIGNAL_RULES];
    char subject[32];
    memset(&a, 0, sizeof a);
    alert_rules_default(&a.rules);
    for (int i = 0; i < 2 * ALERT_INSTANCES; i++) {
        snprintf(subject, sizeof subject, "w%d", i);
        feed(&a, SIGNAL_QUALITY, subject, 0, 1, e);
    }
    CHECK_EQ(a.n, ALERT_INSTANCES);
    CHECK(!alerts_instance(&a, 0, "one more"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_complete),
        cmocka_unit_test(a_higher_grade_comes_later),
        cmocka_unit_test(defaults_are_as_promised),
        cmocka_unit_test(settings_are_read),
        cmocka_unit_test(bad_settings_are_refused),
        cmocka_unit_test(settings_come_from_a_file),
        cmocka_unit_test(values_are_printed_in_their_unit),
        cmocka_unit_test(series_fire_and_end),
        cmocka_unit_test(rounds_may_have_a_duration),
        cmocka_unit_test(rules_and_subjects_are_independent),
        cmocka_unit_test(a_rule_that_is_off_is_silent),
        cmocka_unit_test(a_stored_alert_counts_once_it_has_a_value),
        cmocka_unit_test(a_lost_sensor_is_noticed),
        cmocka_unit_test(instances_are_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
