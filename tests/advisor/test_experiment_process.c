/* Proves: every block gets new processes where starting them is cheap, so that what differs between two
 * processes of one config is noise and not an effect; they are kept where starting them costs more than
 * measuring, and it is said; each cell gets its own where memory holds one arm at a time. Quick changes of a
 * load all reach the worker. */
#include "tests/advisor/fake_bench.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advisor/experiment/experiment.h"
#include "advisor/experiment/parts.h"

/* An arm whose workers count themselves in a file of the bench. */
static const char *counted(const struct bench *b, const char *options, char buf[CONFIG_VALUE])
{
    snprintf(buf, CONFIG_VALUE, "starts=%s/starts+%s", b->dir, options);
    return buf;
}

static int starts(const struct bench *b)
{
    char path[280];
    int n = 0;
    snprintf(path, sizeof(path), "%s/starts", b->dir);
    const int fd = open(path, O_RDONLY);
    CHECK_GE(fd, 0);
    CHECK_EQ(read(fd, &n, sizeof(n)), sizeof(n));
    close(fd);
    return n;
}

/* A and B are the same, but each process is some 3 % faster or slower than the next. */
static void twins_in_two_places(void **state)
{
    struct bench *b = *state;
    char options[CONFIG_VALUE];
    counted(b, "rate=1000+place=0.03+noise=0.0005", options);
    struct experiment_spec s = bench_spec(options, options);
    s.control_blocks = 2;
    s.max_blocks = 16;
    bench_run(b, &s); /* kept: the blocks agree with each other about nothing but these two processes */
    CHECK(b->s.verdict == VERDICT_BETTER || b->s.verdict == VERDICT_WORSE);
    CHECK_LT(b->s.noise_floor, 0.02); /* which the control of one process cannot see */
    assert_int_equal(starts(b), 2);
    s.processes = PROCESSES_NEW;
    bench_run(b, &s);
    CHECK_NE(b->s.verdict, VERDICT_BETTER);
    CHECK_NE(b->s.verdict, VERDICT_WORSE);
    CHECK_GT(b->s.noise_floor, 0.02);
    assert_int_equal(starts(b), 2 + 2 + 2 * (b->s.control_blocks + b->s.blocks));
    CHECK(bench_told(b, "starts new processes"));
}

/* Seconds that starting the processes takes, as the event says that keeps them for the whole run; else NAN.
 */
static double told_start_s(const struct bench *b)
{
    static const char SAYS[] = "processes are kept for the whole run: starting them takes ";
    for (int i = 0; i < b->s.events; i++) {
        const char *at = strstr(b->s.event[i].text, SAYS);
        if (at) return strtod(at + strlen(SAYS), NULL);
    }
    return NAN;
}

static void automatic_means_where_it_is_cheap(void **state)
{
    struct bench *b = *state;
    char options[CONFIG_VALUE];
    struct experiment_spec s = bench_spec(counted(b, "rate=1000+noise=0.002", options), options);
    s.processes = PROCESSES_AUTO;
    s.control_blocks = -1;
    s.max_blocks = 6;
    bench_run(b, &s);
    const int new_ones = starts(b);
    /* on a machine too busy to start processes quickly they are kept, and an event says so */
    assert_int_equal(new_ones, isnan(told_start_s(b)) ? 2 + 2 * 6 : 2);
    counted(b, "rate=1000+noise=0.002+open_ms=2000", options); /* four cells last a second */
    s.config[0] = s.config[1] = fake_config(options);
    bench_run(b, &s);
    assert_int_equal(starts(b), new_ones + 2);
    CHECK_GE(told_start_s(b), 4); /* two arms; more on a busy machine */
}

static void a_process_that_does_not_start_again_is_a_result(void **state)
{
    struct bench *b = *state;
    char options[2][CONFIG_VALUE];
    struct experiment_spec s = bench_spec("", "");
    s.processes = PROCESSES_NEW;
    s.control_blocks = -1;
    for (int i = 0; i < 2; i++) { /* the seventh is of either arm, as the coin falls */
        counted(b, i ? "rate=1100+open=crash+open_at=7" : "rate=1000+open=crash+open_at=7", options[i]);
        s.config[i] = fake_config(options[i]);
    }
    bench_run(b, &s);
    assert_int_equal(b->s.verdict, VERDICT_INVALID);
    assert_int_equal(b->s.arm[0].failed + b->s.arm[1].failed, 1);
    assert_int_equal(b->s.blocks, 2);
}

static void one_arm_at_a_time_when_memory_is_short(void **state)
{
    struct bench *b = *state;
    char options[2][CONFIG_VALUE];
    for (int i = 0; i < 2; i++)
        snprintf(options[i], sizeof(options[i]), "rate=%d+noise=0.002+seed=%d+alone=%s/lock", 1000 + 100 * i,
                 i, b->dir);
    const struct experiment_spec s = bench_spec(options[0], options[1]);
    bench_run(b, &s);
    assert_int_equal(b->s.verdict, VERDICT_BETTER);
    CHECK_NEAR(b->s.comparison[1].effect.estimate, log(1.1), 0.01);
    CHECK(bench_told(b, "does not fit in memory beside the others"));
}

/* Changes by hand that come before the worker was told of the first one: all of them reach it. */
static void quick_changes_of_a_load_add_up(void **state)
{
    static struct experiment x;
    (void)state;
    pthread_mutex_init(&x.lock, NULL);
    experiment_change_load(&x, 1, "schedule=shortest");
    experiment_change_load(&x, 1.25, "");
    experiment_change_load(&x, 1, "evict=lifo");
    experiment_change_load(&x, 1.25, "schedule=priority");
    CHECK(x.change.wanted);
    CHECK_NEAR(x.change.rate_by, 1.5625, 1e-12);
    CHECK_STR(x.change.settings, "evict=lifo,schedule=priority");
    x.change.wanted = false; /* the worker was told */
    experiment_change_load(&x, 1.25, "");
    CHECK_STR(x.change.settings, "");
    experiment_change_load(&x, 1, "colour=red"); /* the worker says what is wrong */
    CHECK_STR(x.change.settings, "colour=red");
    pthread_mutex_destroy(&x.lock);
}

int main(void)
{
#define EXPERIMENT_TEST(f) cmocka_unit_test_setup_teardown(f, bench_set_up, bench_tear_down)
    const struct CMUnitTest tests[] = {
        EXPERIMENT_TEST(twins_in_two_places),
        EXPERIMENT_TEST(automatic_means_where_it_is_cheap),
        EXPERIMENT_TEST(a_process_that_does_not_start_again_is_a_result),
        EXPERIMENT_TEST(one_arm_at_a_time_when_memory_is_short),
        cmocka_unit_test(quick_changes_of_a_load_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
