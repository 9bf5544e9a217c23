/* Proves: a step down needs its number of requests in a row, a step up many; nothing happens in between; a
 * step up that had to be undone waits longer the next time, so that load near the limit does not oscillate;
 * unknown values change nothing; rules are parsed, and errors refused. */
#include <math.h>
#include <string.h>

#include "advisor/govern/govern.h"
#include "tests/check.h"

static struct governor_rule rule_of(const char *text)
{
    struct governor_rule r;
    struct err why;
    CHECK_OK(governor_rule_parse(&r, text, &why));
    return r;
}

static void rules(void **state)
{
    (void)state;
    static const char *const BAD[] = { "itl", "itl=", "itl=-1",   "speed=3",   "memory=x",
                                       "=3",  "",     "decode=0", "decode=nan" };
    struct governor_rule r = rule_of("itl=20ms");
    struct err why;
    CHECK_EQ(r.signal, GOVERN_ITL);
    CHECK_NEAR(r.limit, 0.02, 0);
    CHECK_LT(0, r.down_after);
    CHECK_LT(r.down_after, r.up_after);
    r = rule_of("memory=2G");
    CHECK_EQ(r.signal, GOVERN_MEMORY);
    CHECK_NEAR(r.limit, 2147483648.0, 0);
    CHECK_EQ(rule_of("decode=30").limit, 30);
    CHECK_EQ(rule_of("power=25").signal, GOVERN_POWER);
    CHECK_EQ(rule_of("queue=4").signal, GOVERN_QUEUE);
    CHECK_EQ(rule_of("queue=4").limit, 4);
    for (size_t i = 0; i < COUNT_OF(BAD); i++)
        if (governor_rule_parse(&r, BAD[i], &why) != ERR_USAGE) fail_msg("'%s' was taken", BAD[i]);
}

static int feed(struct governor_state *s, const struct governor_rule *r, double value, int times);

/* An empty queue is a value, and leads back up; 0 seconds are none. */
static void an_empty_queue_counts(void **state)
{
    (void)state;
    const struct governor_rule r = rule_of("queue=4"), itl = rule_of("itl=20ms");
    struct governor_state s;
    governor_init(&s, 2);
    CHECK_EQ(feed(&s, &r, 9, r.down_after - 1), 0);
    CHECK_EQ(feed(&s, &r, 9, 1), 1);
    CHECK_EQ(feed(&s, &r, 0, r.up_after - 1), 1);
    CHECK_EQ(feed(&s, &r, 0, 1), 0);
    governor_init(&s, 2);
    feed(&s, &itl, 0.030, itl.down_after);
    CHECK_EQ(feed(&s, &itl, 0, 100), 1);
}

static int feed(struct governor_state *s, const struct governor_rule *r, double value, int times)
{
    char reason[160];
    for (int i = 0; i < times; i++) governor_step(s, r, value, reason);
    return s->level;
}

static void down_and_up(void **state)
{
    (void)state;
    const struct governor_rule r = rule_of("itl=20ms");
    struct governor_state s;
    char reason[160];
    governor_init(&s, 3);
    assert_int_equal(feed(&s, &r, 0.030, r.down_after - 1), 0);
    assert_int_equal(feed(&s, &r, 0.010, 1), 0); /* not in a row */
    assert_int_equal(feed(&s, &r, 0.030, r.down_after - 1), 0);
    assert_int_equal(feed(&s, &r, NAN, 50), 0);
    assert_int_equal(governor_step(&s, &r, 0.030, reason), 1);
    CHECK_CONTAINS(reason, "itl");
    CHECK_CONTAINS(reason, "in a row");
    assert_int_equal(feed(&s, &r, 0.019, 500), 1); /* within the limit, but not by the margin */
    CHECK_NEAR(feed(&s, &r, 0.004, r.up_after - 1), 1, 0);
    assert_int_equal(governor_step(&s, &r, 0.004, reason), 0);
    assert_int_equal(feed(&s, &r, 0.5, 100), 2); /* never beyond the cheapest */
}

/* For a rate, with the known cost of the exact level: no step up that would violate the limit again. */
static void the_cost_of_a_step_is_learned(void **state)
{
    (void)state;
    const struct governor_rule r = rule_of("decode=100");
    struct governor_state s;
    governor_init(&s, 2);
    assert_int_equal(feed(&s, &r, 20, r.down_after), 1); /* 20 tokens/s at the exact level */
    /* 150 at the cheap level: the exact one would be near 20 */
    assert_int_equal(feed(&s, &r, 150, 1000), 1);
    assert_int_equal(feed(&s, &r, 4000, 1000), 0); /* the machine is idle again */
}

static int swings(const struct governor_rule *r, int requests)
{
    struct governor_state s;
    char reason[160];
    int n = 0;
    governor_init(&s, 2);
    for (int i = 0; i < requests; i++) { /* memory: violated whenever the large level is loaded */
        const int level = s.level;
        n += governor_step(&s, r, s.level ? 3e9 : 1e9, reason) != level;
    }
    return n;
}

static void it_does_not_oscillate(void **state)
{
    (void)state;
    const struct governor_rule r = rule_of("memory=2G");
    const int cycle = r.up_after + r.down_after, n = swings(&r, 200 * cycle);
    CHECK_LT(2, n);
    CHECK_LT(n, 20); /* without the back-off it would be 400 */
    assert_int_equal(n, swings(&r, 200 * cycle));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(rules), cmocka_unit_test(an_empty_queue_counts),
                                        cmocka_unit_test(down_and_up),
                                        cmocka_unit_test(the_cost_of_a_step_is_learned),
                                        cmocka_unit_test(it_does_not_oscillate) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
