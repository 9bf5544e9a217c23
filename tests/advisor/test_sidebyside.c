/* Proves: two arms generate in turns and neither starves; the position where their texts diverge is the
 * beginning of a token; a failing arm does not stop the other; stopping ends both at once. */
#include "tests/advisor/fake.h"

#include <math.h>

#include "advisor/experiment/experiment.h"
#include "advisor/sidebyside/sidebyside.h"

static struct sidebyside_state run(const char *a, const char *b, int tokens)
{
    struct sidebyside *s = NULL;
    struct err why = { 0 };
    struct sidebyside_state state;
    struct sidebyside_spec spec = { .prompt = "Once", .tokens = tokens, .program = FAKE_PROGRAM };
    spec.config[0] = fake_config(a);
    spec.config[1] = fake_config(b);
    CHECK_OK(sidebyside_start(&s, &spec, &why));
    do {
        clock_sleep_ns(2000000);
        sidebyside_state(s, &state);
        CHECK(!(state.arm[0].works && state.arm[1].works));
    } while (!sidebyside_finished(s));
    sidebyside_state(s, &state);
    sidebyside_close(s);
    return state;
}

static void they_take_turns(void **state)
{
    (void)state;
    char dir[256], path[300], a[400], b[400], command[320], *order = NULL;
    struct err why = { 0 };
    snprintf(path, sizeof path, "%s/order", scratch(dir, sizeof dir));
    snprintf(a, sizeof a, "name=a+log=%s+open_ms=50+write=was.a.small.dog.who.sat", path);
    snprintf(b, sizeof b, "name=b+log=%s+write=was.a.small.dot.who.sat", path);
    const struct sidebyside_state s = run(a, b, 6);
    CHECK_OK(file_read(&order, NULL, path, 100, &why));
    assert_string_equal(order, "abababababab"); /* the fake worker asks before every word */
    free(order);
    assert_string_equal(s.arm[0].text, " was a small dog who sat");
    assert_string_equal(s.arm[1].text, " was a small dot who sat");
    assert_int_equal(s.arm[0].phase, SIDEBYSIDE_DONE);
    assert_int_equal(s.arm[0].tokens, 6);
    CHECK_NEAR(s.arm[0].tok_s, 5 / 0.06, 1e-9);
    CHECK_LE(0.05, s.arm[0].load_s);
    CHECK(s.random_weights);
    CHECK(s.differ);
    assert_int_equal(s.same_tokens, 3);
    assert_int_equal(s.same_bytes, strlen(" was a small"));
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
}

static void where_texts_part(void **state)
{
    (void)state;
    struct sidebyside_state s = run("write=a.b.c", "write=a.b.c", 8);
    CHECK(!s.differ);
    assert_int_equal(s.same_tokens, 3);
    assert_string_equal(s.arm[0].ended, "end of text");
    s = run("write=a.b", "write=a.b.c", 8); /* the end of the text counts as a word */
    CHECK(s.differ);
    assert_int_equal(s.same_tokens, 2);
    assert_int_equal(s.same_bytes, strlen(" a b"));
    s = run("write=a.b.c.d", "write=a.b.c.e", 3); /* unknown: both stopped before */
    CHECK(!s.differ);
    assert_string_equal(s.arm[0].ended, "limit");
    s = run("write=x", "write=y", 3);
    CHECK(s.differ);
    assert_int_equal(s.same_tokens, 0);
    assert_int_equal(s.same_bytes, 0);
}

static void one_that_fails_leaves_the_other(void **state)
{
    (void)state;
    struct sidebyside_state s = run("open=fit", "write=a.b.c", 8);
    assert_int_equal(s.arm[0].phase, SIDEBYSIDE_FAILED);
    assert_non_null(strstr(s.arm[0].error, "needs 9G"));
    assert_int_equal(s.arm[1].phase, SIDEBYSIDE_DONE);
    assert_string_equal(s.arm[1].text, " a b c");
    s = run("write=a.b.c.d", "write=a.b.c.d+at=3+do=crash+say=dead", 8); /* killed while it generates */
    assert_int_equal(s.arm[0].phase, SIDEBYSIDE_DONE);
    assert_int_equal(s.arm[0].tokens, 4);
    assert_int_equal(s.arm[1].phase, SIDEBYSIDE_FAILED);
    assert_int_equal(s.arm[1].tokens, 2);
    assert_non_null(strstr(s.arm[1].error, "dead"));
    CHECK(!s.differ);
}

static void stopping(void **state)
{
    (void)state;
    struct sidebyside *s = NULL;
    struct err why = { 0 };
    struct sidebyside_state now;
    struct sidebyside_spec spec = { .prompt = "Once", .tokens = 100, .program = FAKE_PROGRAM };
    spec.config[0] = fake_config("sleep_ms=400+write=a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s.t.u.v.w.x.y.z");
    spec.config[1] = spec.config[0];
    CHECK_OK(sidebyside_start(&s, &spec, &why));
    do {
        clock_sleep_ns(2000000);
        sidebyside_state(s, &now);
    } while (now.arm[1].tokens < 2);
    sidebyside_stop(s);
    while (!sidebyside_finished(s)) clock_sleep_ns(1000000);
    sidebyside_state(s, &now);
    assert_int_equal(now.arm[0].phase, SIDEBYSIDE_STOPPED);
    assert_int_equal(now.arm[1].phase, SIDEBYSIDE_STOPPED);
    CHECK_LT(now.arm[0].tokens, 26);
    CHECK(!now.arm[0].works);
    CHECK(!now.arm[1].works);
    sidebyside_close(s);
    CHECK_OK(sidebyside_start(&s, &spec, &why));
    sidebyside_close(s); /* at once */

    spec.prompt = "";
    assert_int_equal(sidebyside_start(&s, &spec, &why), ERR_USAGE);
    assert_null(s);
    spec.prompt = "x";
    spec.tokens = SIDEBYSIDE_TOKENS + 1;
    assert_int_equal(sidebyside_start(&s, &spec, &why), ERR_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_take_turns),
        cmocka_unit_test(where_texts_part),
        cmocka_unit_test(one_that_fails_leaves_the_other),
        cmocka_unit_test(stopping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
