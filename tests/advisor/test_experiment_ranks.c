/* Proves: what the processes of an arm used is known while a cell runs, after the run, and when the run is
 * read from the database again; each arm has its own, also where arms take turns; however many there are. */
#include "tests/advisor/fake_bench.h"

#include <math.h>

#include "advisor/experiment/experiment.h"
#include "advisor/experiment/parts.h"

static void check_ranks(const struct experiment_state *s, int ranks)
{
    CHECK_EQ(s->arm[0].ranks, 0);
    CHECK_EQ(s->arm[1].ranks, ranks);
    CHECK_EQ(experiment_ranks(s), ranks);
    for (int i = 0; i < ranks; i++) {
        CHECK_EQ(s->arm[1].rank[i].weight_bytes, i + 1);
        CHECK(isnan(s->arm[1].rank[i].wait_s)); /* the worker did not say */
    }
}

static void run_and_read_again(struct bench *b, const char *parallel, enum turns_mode turns)
{
    char options[CONFIG_VALUE];
    struct err why;
    struct config tail;
    CHECK_OK(config_parse(&tail, parallel, &why));
    const struct parallel mode = config_parallel(&tail);
    const int ranks = parallel_ranks(&mode);
    snprintf(options, sizeof options, "rate=1000+ranks=%d", ranks);
    struct experiment_spec s = bench_spec("rate=1000", options);
    CHECK_OK(config_set(&s.config[1], "parallel", config_text(&tail, KNOB_PARALLEL), &why));
    s.max_blocks = 6;
    s.turns = turns;
    bench_run(b, &s);
    CHECK_EQ(b->s.phase, PHASE_DONE);
    check_ranks(&b->s, ranks);
    struct db *d = bench_db(b);
    struct experiment_state *t = malloc(sizeof *t);
    assert_non_null(t);
    CHECK_OK(experiment_load(t, d, b->s.run_id, &why));
    check_ranks(t, ranks);
    CHECK_NEAR(t->arm[1].rank[0].work_s, b->s.arm[1].rank[0].work_s, 0); /* of the newest cell */
    free(t);
    db_close(d);
}

static void known_after_the_run(void **state)
{
    run_and_read_again(*state, "parallel=tp2", TURNS_OFF);
    run_and_read_again(*state, "parallel=tp2", TURNS_ON);
}

/* Bug: the text of a cell had room for some 16 ranks, and lost all of them when there were more. */
static void as_many_as_there_can_be(void **state)
{
    run_and_read_again(*state, "parallel=tp8.dp8", TURNS_OFF);
}

static json_t *event_of(double work_s)
{
    json_t *o = json_object(), *list = json_array(), *one = json_object();
    json_put_str(o, "event", "progress");
    json_put_num(one, "work_s", work_s);
    json_array_append_new(list, one);
    json_put(o, "ranks", list);
    return o;
}

/* Events of two arms that come at the same time each reach their arm: none is left out as too frequent. */
static void known_while_a_cell_runs(void **state)
{
    (void)state;
    struct experiment *x = calloc(1, sizeof *x);
    assert_non_null(x);
    const struct experiment_spec spec = bench_spec("rate=1", "rate=2");
    pthread_mutex_init(&x->lock, NULL);
    pthread_cond_init(&x->changed, NULL);
    state_init(&x->state, &spec);
    for (int arm = 0; arm < 2; arm++) {
        json_t *event = event_of(1 + arm);
        CHECK(experiment_arm_event(&(struct arm_events){ x, arm }, event));
        json_decref(event);
    }
    for (int arm = 0; arm < 2; arm++) {
        CHECK_EQ(x->state.arm[arm].ranks, 1);
        CHECK_NEAR(x->state.arm[arm].rank[0].work_s, 1 + arm, 0);
    }
    json_t *none = json_object();
    json_put_str(none, "event", "progress");
    CHECK(experiment_arm_event(&(struct arm_events){ x, 1 }, none));
    CHECK_EQ(x->state.arm[1].ranks, 1); /* an event without the list changes nothing */
    json_decref(none);
    free(x);
}

#define EXPERIMENT_TEST(f) cmocka_unit_test_setup_teardown(f, bench_set_up, bench_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EXPERIMENT_TEST(known_after_the_run),
        EXPERIMENT_TEST(as_many_as_there_can_be),
        cmocka_unit_test(known_while_a_cell_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
