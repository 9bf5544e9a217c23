/* Proves: a step down needs its requests in a row, a step up many; in between nothing happens; a step up that
 * had to be taken back waits longer, so that load at the edge does not make it swing; unknown values move
 * nothing; rules are read and refused. */
#include <math.h>
#include <string.h>

#include "advisor/recipe/recipe.h"
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
    CHECK(r.signal == GOVERN_ITL && r.limit == 0.02 && r.down_after > 0 && r.up_after > r.down_after);
    r = rule_of("memory=2G");
    CHECK(r.signal == GOVERN_MEMORY && r.limit == 2147483648.0);
    CHECK(rule_of("decode=30").limit == 30 && rule_of("power=25").signal == GOVERN_POWER);
    for (size_t i = 0; i < COUNT_OF(BAD); i++)
        if (governor_rule_parse(&r, BAD[i], &why) != ERR_USAGE) fail_msg("'%s' was taken", BAD[i]);
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
    CHECK(strstr(reason, "itl") && strstr(reason, "in a row"));
    assert_int_equal(feed(&s, &r, 0.019, 500), 1); /* within the limit, and not well within it */
    CHECK(feed(&s, &r, 0.004, r.up_after - 1) == 1);
    assert_int_equal(governor_step(&s, &r, 0.004, reason), 0);
    assert_int_equal(feed(&s, &r, 0.5, 100), 2); /* and never beyond the cheapest */
}

/* More is better, and what it costs to be exact is known: no step up that would break the limit again. */
static void knows_what_a_step_costs(void **state)
{
    (void)state;
    const struct governor_rule r = rule_of("decode=100");
    struct governor_state s;
    governor_init(&s, 2);
    assert_int_equal(feed(&s, &r, 20, r.down_after), 1); /* 20 tokens/s when exact */
    assert_int_equal(feed(&s, &r, 150, 1000), 1);        /* 150 when cheap: exact would be near 20 */
    assert_int_equal(feed(&s, &r, 4000, 1000), 0);       /* the machine is free again */
}

static int swings(const struct governor_rule *r, int requests)
{
    struct governor_state s;
    char reason[160];
    int n = 0;
    governor_init(&s, 2);
    for (int i = 0; i < requests; i++) { /* memory: too little whenever the large one is loaded */
        const int level = s.level;
        n += governor_step(&s, r, s.level ? 3e9 : 1e9, reason) != level;
    }
    return n;
}

static void does_not_swing(void **state)
{
    (void)state;
    const struct governor_rule r = rule_of("memory=2G");
    const int cycle = r.up_after + r.down_after, n = swings(&r, 200 * cycle);
    CHECK(n > 2 && n < 20); /* without patience it would be 400 */
    assert_int_equal(n, swings(&r, 200 * cycle));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(rules), cmocka_unit_test(down_and_up),
                                        cmocka_unit_test(knows_what_a_step_costs),
                                        cmocka_unit_test(does_not_swing) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
