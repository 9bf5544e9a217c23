/* Proves: a pause begins between two cells, ends the arms' processes, costs no budget, spoils no verdict and
 * is known from the database alone; a block that it cut is not counted; what waits can be stopped and
 * resumed. A run that is being measured is read from the database as it is.
 */
#include "tests/advisor/fake_bench.h"

#include <math.h>

#include "advisor/experiment/experiment.h"

/* The state, once `ready` says so. */
static void wait_until(struct experiment *x, struct experiment_state *s,
                       bool (*ready)(const struct experiment_state *s))
{
    int64_t version = 0;
    do {
        CHECK(!experiment_finished(x));
        experiment_wait(x, &version, 20);
        experiment_state(x, s);
    } while (!ready(s));
}

static bool in_a_block(const struct experiment_state *s)
{
    return s->phase == PHASE_BLOCKS && s->blocks >= 1 && s->slot == 1;
}
static bool loading(const struct experiment_state *s)
{
    return s->running_arm == 0;
}
static bool is_paused(const struct experiment_state *s)
{
    return s->paused_since_ms != 0;
}

static void finish(struct experiment *x, struct bench *b)
{
    int64_t version = 0;
    while (!experiment_finished(x)) experiment_wait(x, &version, 1000);
    experiment_state(x, &b->s);
    experiment_close(x);
}

/* One block's cells in the database, chosen by `reason`: those that a pause cut. */
static int cells_cut(const struct bench *b, const char *reason)
{
    struct cell_row *cells = NULL;
    struct err why = { 0 };
    int n = 0, count = 0;
    struct db *d = bench_db(b);
    CHECK_OK(db_cell_list(d, b->s.run_id, &cells, &n, &why));
    for (int i = 0; i < n; i++) count += cells[i].discarded && !strcmp(cells[i].discard_reason, reason);
    free(cells);
    db_close(d);
    return count;
}

static void check_the_database_says_the_same(const struct bench *b)
{
    struct err why = { 0 };
    struct experiment_state *t = malloc(sizeof *t);
    struct db *d = bench_db(b);
    assert_non_null(t);
    CHECK_OK(experiment_load(t, d, b->s.run_id, &why));
    assert_int_equal(t->pauses, b->s.pauses);
    assert_int_equal(t->blocks, b->s.blocks);
    assert_int_equal(t->discarded, b->s.discarded);
    assert_int_equal(t->verdict, b->s.verdict);
    assert_int_equal(t->paused_since_ms, 0);
    CHECK_NEAR(t->paused_s, b->s.paused_s, 0.2);
    free(t);
    db_close(d);
}

static void nothing_timed_spans_a_pause(void **state)
{
    struct bench *b = *state;
    struct experiment *x = NULL;
    struct err why = { 0 };
    struct experiment_spec s = bench_spec("rate=1000+noise=0.01+seed=1", "rate=1500+noise=0.01+seed=2");
    const int64_t began = clock_ns();
    CHECK_OK(bench_start(&x, b, &s, &why));
    wait_until(x, &b->s, in_a_block);
    experiment_pause(x, true);
    wait_until(x, &b->s, is_paused);
    CHECK(!b->s.pausing);
    CHECK_EQ(b->s.running_arm, -1);
    CHECK(!b->s.arm[0].ready);
    CHECK(!b->s.arm[1].ready);
    const double elapsed = b->s.elapsed_s;
    const int blocks = b->s.blocks;
    clock_sleep_ns(400000000);
    experiment_state(x, &b->s);
    assert_int_equal(b->s.blocks, blocks);
    CHECK_NEAR(b->s.elapsed_s, elapsed, 0.001);
    experiment_pause(x, false);
    finish(x, b);
    assert_int_equal(b->s.phase, PHASE_DONE);
    assert_int_equal(b->s.verdict, VERDICT_BETTER);
    CHECK_NEAR(b->s.comparison[1].effect.estimate, log(1.5), 0.02);
    assert_int_equal(b->s.discarded, 0); /* a pause disturbs nothing */
    assert_int_equal(b->s.pauses, 1);
    CHECK_GE(b->s.paused_s, 0.4);
    const double wall = (double)(clock_ns() - began) * 1e-9;
    CHECK_LE(b->s.elapsed_s, wall - b->s.paused_s + 0.01); /* a pause is not part of it */
    CHECK(bench_told(b, "paused: the arms' processes have ended"));
    CHECK(bench_told(b, "continued after a pause of"));
    CHECK_GE(cells_cut(b, "paused"), 1);
    CHECK_LE(cells_cut(b, "paused"), 3);
    check_the_database_says_the_same(b);
    json_t *o = experiment_to_json(&b->s);
    assert_int_equal(json_get_int(o, "pauses", -1), 1);
    CHECK_NEAR(json_get_num(o, "paused_s", NAN), b->s.paused_s, 1e-6);
    json_decref(o);
}

/* Asked before anything runs: the arms load, when it is over, as if nothing had been. */
static void a_pause_while_loading(void **state)
{
    struct bench *b = *state;
    struct experiment *x = NULL;
    struct err why = { 0 };
    const struct experiment_spec s = bench_spec("rate=1000+noise=0.01+seed=1+open_ms=100",
                                                "rate=1500+noise=0.01+seed=2+open_ms=100");
    CHECK_OK(bench_start(&x, b, &s, &why));
    wait_until(x, &b->s, loading);
    experiment_pause(x, true);
    wait_until(x, &b->s, is_paused);
    assert_int_equal(b->s.run_id, 0);
    experiment_pause(x, false);
    finish(x, b);
    assert_int_equal(b->s.verdict, VERDICT_BETTER);
    assert_int_equal(b->s.pauses, 1);
    check_the_database_says_the_same(b);
}

static void what_waits_can_be_stopped_and_resumed(void **state)
{
    struct bench *b = *state;
    struct experiment *x = NULL;
    struct err why = { 0 };
    struct experiment_spec s = bench_spec("rate=1000+noise=0.01+seed=1", "rate=1500+noise=0.01+seed=2");
    CHECK_OK(bench_start(&x, b, &s, &why));
    wait_until(x, &b->s, in_a_block);
    experiment_pause(x, true);
    wait_until(x, &b->s, is_paused);
    const int blocks = b->s.blocks;
    experiment_stop(x);
    finish(x, b);
    assert_int_equal(b->s.phase, PHASE_STOPPED);
    assert_int_equal(b->s.paused_since_ms, 0);
    check_the_database_says_the_same(b);
    s.resume_id = b->s.run_id;
    bench_run(b, &s);
    assert_int_equal(b->s.verdict, VERDICT_BETTER);
    CHECK_GT(b->s.blocks, blocks);
    assert_int_equal(b->s.pauses, 1);
    check_the_database_says_the_same(b);
}

/* A run that another process reads while it is measured: its control and the blocks that count are the same
 * there, although no outcome is stored yet. What a session that is continued had before is not its budget. */
static void a_running_run_is_read_as_it_is(void **state)
{
    struct bench *b = *state;
    struct experiment_spec s = bench_spec(
        "rate=1000+noise=0.002+seed=1+sleep_ms=40+faults_from=2+faults_to=1000000",
        "rate=1100+noise=0.002+seed=2+sleep_ms=40+faults_from=2+faults_to=1000000");
    struct err why = { 0 };
    struct experiment *x = NULL;
    struct experiment_state *read = calloc(1, sizeof *read);
    assert_non_null(read);
    CHECK_OK(bench_start(&x, b, &s, &why));
    int64_t version = 0;
    do {
        experiment_wait(x, &version, 1000);
        experiment_state(x, &b->s);
    } while (b->s.complete < 2 && !experiment_finished(x));
    struct db *d = bench_db(b);
    CHECK_OK(experiment_load(read, d, b->s.run_id, &why));
    assert_true(read->running);
    assert_int_equal(b->s.estimand, ESTIMAND_LOADED);
    assert_int_equal(read->estimand, ESTIMAND_LOADED);
    assert_int_equal(read->control_blocks, b->s.control_blocks);
    CHECK_NEAR(read->noise_floor, b->s.noise_floor, 1e-12);
    CHECK_GE(read->blocks, 2);
    assert_int_equal(read->discarded, 0);
    experiment_stop(x);
    while (!experiment_finished(x)) experiment_wait(x, &version, 1000);
    experiment_close(x);
    s.resume_id = b->s.run_id;
    bench_run(b, &s);
    CHECK_OK(experiment_load(read, d, b->s.run_id, &why));
    assert_false(read->running);
    int resumes = 0;
    for (int i = 0; i < read->events; i++) resumes += !strcmp(read->event[i].kind, "resume");
    assert_int_equal(resumes, 1);
    db_close(d);
    free(read);
}

int main(void)
{
#define PAUSE_TEST(f) cmocka_unit_test_setup_teardown(f, bench_set_up, bench_tear_down)
    const struct CMUnitTest tests[] = {
        PAUSE_TEST(nothing_timed_spans_a_pause),
        PAUSE_TEST(a_pause_while_loading),
        PAUSE_TEST(what_waits_can_be_stopped_and_resumed),
        PAUSE_TEST(a_running_run_is_read_as_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
