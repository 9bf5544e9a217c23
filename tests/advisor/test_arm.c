/* Proves: an arm that works answers; one that crashes, is killed, talks nonsense, answers with an error,
 * hangs or is cancelled becomes an error with a cause, in bounded time, and leaves no process behind. */
#include "tests/advisor/fake.h"

#include <errno.h>
#include <signal.h>

#include "advisor/run/run.h"

static enum err_code open_fake(struct arm **a, const char *options, struct err *why)
{
    const struct config c = fake_config(options);
    const struct arm_spec spec = { .model = "", .config = &c, .ctx = 128, .program = FAKE_PROGRAM };
    return arm_open(a, &spec, NULL, NULL, why);
}

struct seen {
    int events, ticks, until;
};

static bool count_event(void *ctx, const json_t *event)
{
    struct seen *s = ctx;
    if (event)
        s->events++;
    else
        s->ticks++;
    return s->until == 0 || s->events + s->ticks < s->until;
}

static void an_arm_describes_itself_and_runs_cells(void **state)
{
    (void)state;
    struct arm *a = NULL;
    struct err why = { 0 };
    CHECK_OK(open_fake(&a, "rate=2000+sleep_ms=350", &why));
    assert_string_equal(json_get_str(arm_description(a), "name", ""), "Fake 1");
    CHECK(arm_pid(a) > 0 && !kill(arm_pid(a), 0));
    struct seen seen = { 0 };
    json_t *answer = NULL;
    CHECK_OK(arm_cell(a, "tg64", 7, &answer, count_event, &seen, &why));
    CHECK_NEAR(json_get_num(answer, "gen_tokens", 0) / json_get_num(answer, "decode_s", 0), 2000, 1e-6);
    CHECK(seen.events == 1);
    CHECK(seen.ticks >= 2); /* 350 ms of silence, asked at least every 100 ms */
    json_decref(answer);
    const int pid = arm_pid(a);
    arm_close(a);
    CHECK(kill(pid, 0) == -1 && errno == ESRCH);
}

static void every_way_of_dying_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        enum err_code code;
        const char *word;
    } cases[] = {
        { "at=2+do=crash", ERR_INTERNAL, "ABRT" },
        { "at=2+do=bus", ERR_INTERNAL, "BUS" },
        { "at=2+do=kill", ERR_FIT, "probably for memory" },
        { "at=2+do=exit", ERR_INTERNAL, "status 9" },
        { "at=2+do=exit+say=lastwords", ERR_INTERNAL, "lastwords" },
        { "at=2+do=garbage", ERR_INTERNAL, "Segmentation fault (not JSON)" },
        { "at=2+do=error", ERR_FORMAT, "tensor 'x' is damaged" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct arm *a = NULL;
        struct err why = { 0 };
        json_t *answer = NULL;
        CHECK_OK(open_fake(&a, cases[i].options, &why));
        CHECK_OK(arm_cell(a, "tg4", 1, &answer, NULL, NULL, &why));
        json_decref(answer);
        answer = NULL;
        assert_int_equal(arm_cell(a, "tg4", 1, &answer, NULL, NULL, &why), cases[i].code);
        assert_null(answer);
        if (!strstr(why.message, cases[i].word)) fail_msg("'%s' lacks '%s'", why.message, cases[i].word);
        if (cases[i].code != ERR_FORMAT) /* a dead one stays dead, a refused request does not kill it */
            CHECK(arm_cell(a, "tg4", 1, &answer, NULL, NULL, &why) != ERR_OK);
        else
            CHECK_OK(arm_cell(a, "tg4", 1, &answer, NULL, NULL, &why));
        json_decref(answer);
        arm_close(a);
    }
}

static void failing_to_open_is_the_workers_own_error(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        enum err_code code;
    } cases[] = { { "open=fit", ERR_FIT },
                  { "open=error", ERR_FORMAT },
                  { "open=kill", ERR_FIT },
                  { "open=crash", ERR_INTERNAL },
                  { "open=garbage", ERR_INTERNAL } };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct arm *a = NULL;
        struct err why = { 0 };
        assert_int_equal(open_fake(&a, cases[i].options, &why), cases[i].code);
        assert_null(a);
        CHECK(*why.message);
    }
    struct arm *a = NULL;
    struct err why = { 0 };
    const struct config c = fake_config("rate=1");
    const struct arm_spec spec = { .config = &c, .program = "/nowhere/qdyno" };
    assert_int_equal(arm_open(&a, &spec, NULL, NULL, &why), ERR_INTERNAL);
    CHECK(strstr(why.message, "/nowhere/qdyno"));
}

static void cancelling_ends_a_cell_soon(void **state)
{
    (void)state;
    struct arm *a = NULL;
    struct err why = { 0 };
    json_t *answer = NULL;
    CHECK_OK(open_fake(&a, "sleep_ms=60000", &why));
    struct seen seen = { .until = 3 };
    const int64_t start = clock_ns();
    assert_int_equal(arm_cell(a, "tg4", 1, &answer, count_event, &seen, &why), ERR_CANCELLED);
    CHECK(clock_ns() - start < 3000000000);
    const int64_t close_start = clock_ns();
    arm_close(a);
    CHECK(clock_ns() - close_start < 4000000000);
}

static void a_hanging_worker_is_killed(void **state)
{
    (void)state;
    struct arm *a = NULL;
    struct err why = { 0 };
    json_t *answer = NULL;
    CHECK_OK(open_fake(&a, "at=1+do=hang", &why));
    const int pid = arm_pid(a);
    struct seen seen = { .until = 2 };
    const int64_t start = clock_ns();
    assert_int_equal(arm_cell(a, "tg4", 1, &answer, count_event, &seen, &why), ERR_CANCELLED);
    CHECK(clock_ns() - start < 9000000000);
    CHECK(kill(pid, 0) == -1 && errno == ESRCH);
    arm_close(a);
}

static void closing_nothing_is_fine(void **state)
{
    (void)state;
    arm_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_arm_describes_itself_and_runs_cells),
        cmocka_unit_test(every_way_of_dying_is_named),
        cmocka_unit_test(failing_to_open_is_the_workers_own_error),
        cmocka_unit_test(cancelling_ends_a_cell_soon),
        cmocka_unit_test(a_hanging_worker_is_killed),
        cmocka_unit_test(closing_nothing_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
