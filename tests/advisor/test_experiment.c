/* Proves: with arms of known speeds the experiment reaches the verdict that is true, keeps every cell in the
 * database, discards what was disturbed, turns a failing arm into a result, and goes on after kill -9 without
 * losing a finished block. */
#include "tests/advisor/fake_bench.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>

#include "advisor/experiment/experiment.h"
#include "advisor/experiment/parts.h"
#include "advisor/run/run.h"
#include "advisor/stats/stats.h"

static int count_cells(const struct bench *b, const char *phase, bool discarded, const char *reason)
{
    struct cell_row *cells = NULL;
    struct err why = { 0 };
    int n = 0, count = 0;
    struct db *d = bench_db(b);
    CHECK_OK(db_cell_list(d, b->s.run_id, &cells, &n, &why));
    for (int i = 0; i < n; i++)
        count += !strcmp(cells[i].phase, phase) && cells[i].discarded == discarded &&
                 (!reason || strstr(cells[i].discard_reason, reason));
    free(cells);
    db_close(d);
    return count;
}

static void check_comparison(const struct comparison *x, const struct comparison *y)
{
    assert_int_equal(x->blocks, y->blocks);
    assert_int_equal(x->verdict, y->verdict);
    assert_int_equal(x->dropped, y->dropped);
    for (int i = 0; i < x->blocks; i++) CHECK_NEAR(x->d[i], y->d[i], 1e-12);
    if (!isnan(y->effect.lower)) CHECK_NEAR(x->effect.lower, y->effect.lower, 1e-9);
    const struct interval *m = &x->by_metric[METRIC_DECODE_RATE - METRIC_SENSOR_COUNT];
    const struct interval *n = &y->by_metric[METRIC_DECODE_RATE - METRIC_SENSOR_COUNT];
    if (!isnan(n->upper)) CHECK_NEAR(m->upper, n->upper, 1e-9);
}

/* What the database alone says agrees with what the thread said. */
static void check_reload(const struct bench *b)
{
    struct err why = { 0 };
    struct db *d = bench_db(b);
    struct experiment_state *t = malloc(sizeof(*t));
    assert_non_null(t);
    CHECK_OK(experiment_load(t, d, b->s.run_id, &why));
    assert_int_equal(t->phase, b->s.phase);
    assert_int_equal(t->verdict, b->s.verdict);
    assert_int_equal(t->blocks, b->s.blocks);
    assert_int_equal(t->discarded, b->s.discarded);
    assert_int_equal(t->control_blocks, b->s.control_blocks);
    assert_string_equal(t->reason, b->s.reason);
    assert_string_equal(t->machine_id, b->s.machine_id);
    assert_int_equal(t->cell_repeats, b->s.cell_repeats);
    /* the time of a block, from which follows what more blocks would take */
    if (t->complete) assert_true(t->block_s > 0);
    assert_int_equal(t->headline, b->s.headline);
    assert_int_equal(t->confirming, b->s.confirming);
    if (b->s.phase == PHASE_DONE && b->s.verdict != VERDICT_INVALID)
        for (int k = 1; k < b->s.spec.arms; k++) check_comparison(&t->comparison[k], &b->s.comparison[k]);
    if (b->s.confirming) check_comparison(&t->confirmation, &b->s.confirmation);
    for (int i = 0; i < EXPERIMENT_ARMS; i++) {
        const struct experiment_arm *x = &t->arm[i], *y = &b->s.arm[i];
        assert_string_equal(x->line, y->line);
        assert_int_equal(x->failed, y->failed);
        assert_int_equal(x->cells, y->cells);
        if (!isnan(y->rate)) CHECK_NEAR(x->rate, y->rate, 1e-9 * y->rate);
        assert_int_equal(x->itl_samples, y->itl_samples);
        if (!isnan(y->value[METRIC_ITL_P99]))
            CHECK_NEAR(x->value[METRIC_ITL_P99], y->value[METRIC_ITL_P99], 1e-12);
        if (y->cells) assert_int_equal(x->plan.total, y->plan.total);
    }
    free(t);
    db_close(d);
}

static void ten_percent_faster_is_better(void **state)
{
    struct bench *b = *state;
    struct experiment_spec s = bench_spec("rate=1000+noise=0.02+seed=1", "rate=1100+noise=0.02+seed=2");
    s.warmup_cells = 0; /* as many as it takes */
    bench_run(b, &s);
    const int warmups = count_cells(b, "warmup", false, NULL);
    CHECK_GE(warmups, 2 * (1 + 4));
    CHECK_LE(warmups, 2 * (1 + 12));
    assert_int_equal(b->s.phase, PHASE_DONE);
    assert_int_equal(b->s.verdict, VERDICT_BETTER);
    CHECK_NEAR(b->s.comparison[1].effect.estimate, log(1.1), 0.01);
    CHECK_LT(b->s.comparison[1].effect.lower, b->s.comparison[1].effect.estimate);
    CHECK_LT(b->s.comparison[1].effect.estimate, b->s.comparison[1].effect.upper);
    CHECK_NEAR(b->s.arm[1].rate / b->s.arm[0].rate, exp(b->s.comparison[1].effect.estimate), 1e-9);
    CHECK_NEAR(b->s.arm[0].rate, 1000, 20);
    CHECK_GE(b->s.blocks, 6);
    CHECK_LE(b->s.blocks, 20); /* ten margins: soon decided */
    CHECK_GE(b->s.planned_blocks, 6);
    CHECK_GE(b->s.comparison[1].e, 20);
    CHECK(b->s.control_blocks == 3 || b->s.control_blocks == 6);
    CHECK_GT(b->s.noise_floor, 0);
    CHECK_LT(b->s.noise_floor, 0.05);
    CHECK(b->s.random_weights);
    CHECK_GE(b->s.arm[0].itl_samples, 459);
    CHECK(!isnan(b->s.arm[0].value[METRIC_ITL_P99]));
    CHECK_GT(b->s.cell_repeats, 1);
    check_reload(b);
}

static void slower_is_worse_and_less_latency_is_better(void **state)
{
    struct bench *b = *state;
    struct experiment_spec s = bench_spec("rate=1000+noise=0.02+seed=3", "rate=950+noise=0.02+seed=4");
    bench_run(b, &s);
    assert_int_equal(b->s.verdict, VERDICT_WORSE);
    check_reload(b);
    /* B has the longer time to first token: worse, and B/A is above 1. */
    s.metric = &METRICS[METRIC_TTFT];
    bench_run(b, &s);
    assert_int_equal(b->s.verdict, VERDICT_WORSE);
    CHECK_LT(b->s.comparison[1].effect.estimate, 0);
    json_t *o = experiment_to_json(&b->s);
    CHECK_NEAR(json_get_num(json_object_get(o, "effect"), "ratio", NAN), 1000.0 / 950, 0.01);
    json_decref(o);
}

static void equal_arms_are_never_better_or_worse(void **state)
{
    struct bench *b = *state;
    const struct experiment_spec s = bench_spec("rate=1000+noise=0.02+seed=5", "rate=1000+noise=0.02+seed=6");
    bench_run(b, &s);
    CHECK(b->s.verdict == VERDICT_EQUIVALENT || b->s.verdict == VERDICT_NEGLIGIBLE ||
          b->s.verdict == VERDICT_INCONCLUSIVE);
    check_reload(b);
}

static void too_much_noise_is_inconclusive_with_a_number(void **state)
{
    struct bench *b = *state;
    struct experiment_spec s = bench_spec("rate=1000+noise=1+seed=5", "rate=1010+noise=1+seed=6");
    s.max_blocks = 6;
    bench_run(b, &s);
    assert_int_equal(b->s.verdict, VERDICT_INCONCLUSIVE);
    CHECK_GT(b->s.blocks_needed, 0);
    CHECK_CONTAINS(b->s.reason, "more blocks");
    check_reload(b);
}

static void drift_is_not_an_effect(void **state)
{
    struct bench *b = *state;
    char options[2][128];
    for (int i = 0; i < 2; i++) /* the machine loses 2 % a second: as much as the margin in each block */
        snprintf(options[i], sizeof(options[i]),
                 "rate=1000+drift=0.02+t0=%lld+noise=0.001+seed=%d+sleep_ms=40",
                 (long long)(clock_ns() / 1000000000), i);
    const struct experiment_spec s = bench_spec(options[0], options[1]);
    bench_run(b, &s);
    CHECK_LT(b->s.arm[0].rate, 980);
    CHECK(b->s.verdict == VERDICT_EQUIVALENT || b->s.verdict == VERDICT_NEGLIGIBLE ||
          b->s.verdict == VERDICT_INCONCLUSIVE);
    CHECK_NEAR(b->s.comparison[1].effect.estimate, 0, 0.01);
}

static void a_disturbed_block_is_discarded_whole_and_made_up_for(void **state)
{
    struct bench *b = *state;
    /* Arm B has no control cells: its requests are one warm-up, then two cells of each block. A cell that
     * sleeps longer than a quarter of a second is not repeated, however busy the machine is; the faults fall
     * into its 2nd block. */
    struct experiment_spec s = bench_spec(
        "rate=1000+noise=0.002+seed=1+sleep_ms=260",
        "rate=1100+noise=0.002+seed=2+sleep_ms=260+faults_from=4+faults_to=4");
    s.min_blocks = s.max_blocks = 7;
    s.turns = TURNS_OFF;
    bench_run(b, &s);
    assert_int_equal(b->s.cell_repeats, 1);
    assert_int_equal(b->s.discarded, 1);
    assert_int_equal(b->s.blocks, 7);
    assert_int_equal(b->s.verdict, VERDICT_BETTER);
    CHECK_GT(count_cells(b, "block", true, "major page faults"), 0);
    assert_int_equal(count_cells(b, "block", false, NULL), 4 * b->s.blocks);
    check_reload(b);
}

/* Load does not make a run invalid: all of its blocks together still say which arm is faster here. */
static void a_machine_that_is_always_disturbed_has_a_verdict(void **state)
{
    struct bench *b = *state;
    struct experiment_spec s = bench_spec("rate=1000+noise=0.002+seed=1+faults_from=2+faults_to=1000000",
                                          "rate=1100+noise=0.002+seed=2+faults_from=2+faults_to=1000000");
    bench_run(b, &s);
    assert_int_equal(b->s.verdict, VERDICT_BETTER);
    assert_int_equal(b->s.estimand, ESTIMAND_LOADED);
    assert_int_equal(b->s.disturbed, b->s.complete);
    assert_int_equal(b->s.blocks, b->s.complete);
    assert_int_equal(b->s.comparison[1].by_estimand[ESTIMAND_QUIET].blocks, 0);
    assert_int_equal(b->s.comparison[1].by_estimand[ESTIMAND_LOADED].blocks, b->s.blocks);
    CHECK(bench_told(b, "the result is the speed under that load"));
    check_reload(b);
    s.estimand = ESTIMAND_QUIET; /* somebody who asks for quiet blocks gets no other answer */
    s.control_blocks = -1;
    s.max_blocks = 6;
    s.budget_s = 8;
    bench_run(b, &s);
    assert_int_equal(b->s.verdict, VERDICT_INCONCLUSIVE);
    assert_int_equal(b->s.blocks, 0);
    CHECK(b->s.discarded > 0);
    CHECK(strstr(b->s.reason, "no undisturbed block was measured"));
    check_reload(b);
}

static void an_arm_that_dies_midway_is_a_result(void **state)
{
    struct bench *b = *state;
    struct experiment_spec s = bench_spec("rate=1000+sleep_ms=60", "rate=1100+sleep_ms=60+at=14+do=kill");
    bench_run(b, &s);
    assert_int_equal(b->s.phase, PHASE_DONE);
    assert_int_equal(b->s.verdict, VERDICT_INVALID);
    CHECK(b->s.arm[1].failed);
    CHECK(!b->s.arm[0].failed);
    assert_int_equal(b->s.arm[1].code, ERR_FIT);
    CHECK_CONTAINS(b->s.arm[1].error, "memory");
    CHECK(!isnan(b->s.arm[0].rate));
    CHECK_GE(b->s.blocks, 1); /* what was whole before stays */
    check_reload(b);
}

static void an_arm_that_never_opens_leaves_the_other_measured(void **state)
{
    struct bench *b = *state;
    struct experiment_spec s = bench_spec("rate=1000", "open=error");
    bench_run(b, &s);
    assert_int_equal(b->s.phase, PHASE_DONE);
    assert_int_equal(b->s.verdict, VERDICT_INVALID);
    assert_int_equal(b->s.arm[1].code, ERR_FORMAT);
    CHECK_NEAR(b->s.arm[0].rate, 1000, 1);
    check_reload(b);
    s = bench_spec("open=fit", "rate=1000");
    bench_run(b, &s);
    assert_int_equal(b->s.verdict, VERDICT_INVALID);
    assert_int_equal(b->s.arm[0].code, ERR_FIT);
    CHECK_NEAR(b->s.arm[1].rate, 1000, 1);
    s = bench_spec("open=fit", "open=error");
    bench_run(b, &s);
    assert_int_equal(b->s.phase, PHASE_FAILED);
    assert_int_equal(b->s.error_code, ERR_FIT);
    check_reload(b);
}

/* Two files may have two tokenizers: they are compared, and it is said. */
static void files_with_other_prompts_are_compared(void **state)
{
    struct bench *b = *state;
    char text[EXPERIMENT_SENTENCE];
    struct experiment_spec s = bench_spec("rate=1000+hash=aaaa", "rate=1500+hash=bbbb");
    bench_run(b, &s);
    assert_int_equal(b->s.verdict, VERDICT_BETTER);
    CHECK(b->s.tokens_differ);
    CHECK_CONTAINS(experiment_sentence(text, sizeof text, &b->s, 1), "tokenizers differ");
    check_reload(b);
    s = bench_spec("rate=1000+hash=aaaa", "rate=1500+hash=aaaa");
    bench_run(b, &s);
    CHECK(!b->s.tokens_differ);
    assert_null(strstr(experiment_sentence(text, sizeof text, &b->s, 1), "tokenizers"));
}

/* Two arms with one file have one prompt; a server's name of a model is no file. */
static void different_work_is_refused(void **state)
{
    (void)state;
    struct err why = { 0 };
    const char hash[EXPERIMENT_ARMS][24] = { "aaaa", "bbbb" };
    struct experiment_spec s = bench_spec("rate=1000", "rate=2000");
    assert_int_equal(work_of_arm(&s, 1), 1);
    CHECK(works_differ(&s, hash));
    s = bench_spec("rate=1000", "rate=1000");
    assert_int_equal(work_of_arm(&s, 1), 0);
    s = bench_spec("rate=1000", "rate=2000");
    CHECK_OK(config_set(&s.config[1], "engine", "openai", &why));
    CHECK_OK(config_set(&s.config[1], "url", "http://127.0.0.1:1", &why));
    assert_int_equal(work_of_arm(&s, 1), 0);
}

static void a_budget_ends_it_without_a_claim(void **state)
{
    struct bench *b = *state;
    struct experiment_spec s = bench_spec("rate=1000+sleep_ms=30", "rate=2000+sleep_ms=30");
    s.budget_s = 0.5;
    bench_run(b, &s);
    assert_int_equal(b->s.phase, PHASE_DONE);
    assert_int_equal(b->s.verdict, VERDICT_INCONCLUSIVE);
    CHECK_LT(b->s.blocks, 6);
}

static void a_spec_that_cannot_be_is_refused(void **state)
{
    struct bench *b = *state;
    struct err why = { 0 };
    struct experiment *x = NULL;
    struct experiment_spec s = bench_spec("rate=1", "rate=1");
    s.metric = &METRICS[METRIC_PREFILL_RATE];
    assert_int_equal(bench_start(&x, b, &s, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "prefill_tok_s");
    CHECK_CONTAINS(why.message, "tg64");
    s.metric = &METRICS[METRIC_CPU_BUSY];
    assert_int_equal(bench_start(&x, b, &s, &why), ERR_USAGE);
    s.metric = NULL;
    s.min_blocks = 3;
    assert_int_equal(bench_start(&x, b, &s, &why), ERR_USAGE);
    s.min_blocks = 0;
    s.resume_id = 4711;
    assert_int_equal(bench_start(&x, b, &s, &why), ERR_USAGE);
    assert_null(x);
}

/* Arms of training do the same work, from nothing; what else is said is refused by name before anything runs.
 */
static void training_is_checked_before_it_runs(void **state)
{
    static const struct {
        const char *workload, *a, *b, *model, *says;
        enum metric_id metric; /* 0: by itself */
    } CASES[] = {
        { "train5", "default", "train_batch=4", "", "16 rows, one of arm B 8", 0 },
        { "train5", "q8_0", "default", "", "arm A: format=q8_0 does not matter for train5", 0 },
        { "train5", "default", "amp=off", "x.gguf", "a model (x.gguf) means nothing", 0 },
        { "tg4", "default", "trim_every=1", "x.gguf", "arm B: trim_every=1 is a setting for training", 0 },
        { "train5", "default", "amp=off", "", "decode_tok_s needs a workload", METRIC_DECODE_RATE },
        { "tg4", "default", "threads=1", "x.gguf", "train_tok_s needs a workload with steps of training",
          METRIC_TRAIN_RATE },
    };
    struct bench *b = *state;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct err why = { 0 };
        struct experiment *x = NULL;
        struct experiment_spec s = { .budget_s = 60, .seed = 1 };
        CHECK_OK(config_parse(&s.config[0], CASES[i].a, &why));
        CHECK_OK(config_parse(&s.config[1], CASES[i].b, &why));
        CHECK_OK(workload_parse(&s.workload, CASES[i].workload, &why));
        snprintf(s.model, sizeof(s.model), "%s", CASES[i].model);
        if (CASES[i].metric) s.metric = &METRICS[CASES[i].metric];
        assert_int_equal(bench_start(&x, b, &s, &why), ERR_USAGE);
        if (!strstr(why.message, CASES[i].says)) fail_msg("'%s' lacks '%s'", why.message, CASES[i].says);
    }
    struct workload w;
    assert_int_equal(workload_parse(&w, "train5", NULL), ERR_OK);
    assert_ptr_equal(experiment_default_metric(&w), &METRICS[METRIC_TRAIN_RATE]);
}

static int cells_of_run(const struct bench *b, int64_t run)
{
    struct db *d = NULL;
    struct cell_row *cells = NULL;
    int n = 0;
    if (db_open(&d, b->db, NULL)) return 0;
    if (db_cell_list(d, run, &cells, &n, NULL)) n = 0;
    free(cells);
    db_close(d);
    return n;
}

/* A process of its own runs the experiment and is killed with -9 once `cells` cells are stored. */
static void run_and_kill(struct bench *b, const struct experiment_spec *spec, int cells)
{
    fflush(NULL);
    const pid_t pid = fork();
    if (!pid) {
        struct experiment *x = NULL;
        if (bench_start(&x, b, spec, NULL)) _exit(1);
        for (;;) pause();
    }
    CHECK_GT(pid, 0);
    for (int i = 0; i < 20000 && cells_of_run(b, 1) < cells; i++) clock_sleep_ns(10000000);
    CHECK(!kill(pid, SIGKILL));
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK(WIFSIGNALED(status));
    CHECK_GE(cells_of_run(b, 1), cells);
}

static void resuming_after_kill_9_keeps_every_whole_block(void **state)
{
    struct bench *b = *state;
    struct experiment_spec s = bench_spec("rate=1000+noise=0.003+sleep_ms=40",
                                          "rate=1100+noise=0.003+sleep_ms=40");
    run_and_kill(b, &s, 2 + 12 + 6); /* warm-up, control, one block and a half */
    b->s.run_id = 1;
    struct db *d = bench_db(b);
    struct experiment_state *before = malloc(sizeof(*before));
    struct err why = { 0 };
    assert_non_null(before);
    CHECK_OK(experiment_load(before, d, 1, &why));
    db_close(d);
    CHECK_GE(before->blocks, 1);
    assert_int_equal(before->control_blocks, 3);

    s.resume_id = 1;
    bench_run(b, &s);
    assert_int_equal(b->s.run_id, 1);
    assert_int_equal(b->s.phase, PHASE_DONE);
    assert_int_equal(b->s.verdict, VERDICT_BETTER);
    assert_int_equal(b->s.control_blocks, 3); /* not measured again */
    for (int i = 0; i < before->blocks; i++)
        CHECK_NEAR(b->s.comparison[1].d[i], before->comparison[1].d[i], 1e-12);
    assert_int_equal(b->s.discarded, 0); /* a kill is no contamination */
    CHECK_GT(count_cells(b, "block", true, "interrupted"), 0);
    assert_int_equal(count_cells(b, "block", false, NULL), 4 * b->s.blocks);
    check_reload(b);
    free(before);

    /* Finished is finished: more blocks after the look would be a second look. */
    struct experiment *x = NULL;
    assert_int_equal(bench_start(&x, b, &s, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "finished");
}

static void stopping_can_be_resumed_on_the_same_machine_only(void **state)
{
    struct bench *b = *state;
    struct experiment_spec s = bench_spec("rate=1000+noise=0.003+sleep_ms=40",
                                          "rate=1100+noise=0.003+sleep_ms=40");
    struct err why = { 0 };
    struct experiment *x = NULL;
    CHECK_OK(bench_start(&x, b, &s, &why));
    int64_t version = 0;
    do {
        experiment_wait(x, &version, 1000);
        experiment_state(x, &b->s);
    } while (b->s.phase < PHASE_BLOCKS);
    s.resume_id = b->s.run_id;
    struct experiment *second = NULL;
    assert_int_equal(bench_start(&second, b, &s, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "is being measured by process");
    experiment_stop(x);
    while (!experiment_finished(x)) experiment_wait(x, &version, 1000);
    experiment_state(x, &b->s);
    assert_int_equal(b->s.phase, PHASE_STOPPED);
    assert_int_equal(b->s.verdict, VERDICT_NONE);
    check_reload(b);

    struct machine other = b->machine;
    snprintf(other.id, sizeof(other.id), "another");
    const struct experiment_deps deps = { .db_path = b->db, .machine = &other, .program = FAKE_PROGRAM };
    assert_int_equal(experiment_start(&second, &s, &deps, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "another");
    bench_run(b, &s); /* although x, which is at its end, is still open */
    experiment_close(x);
    assert_int_equal(b->s.verdict, VERDICT_BETTER);
    check_reload(b);
}

static void a_model_that_changed_since_is_not_mixed_in(void **state)
{
    struct bench *b = *state;
    struct experiment_spec s = bench_spec("rate=1000+sleep_ms=40", "rate=1100+sleep_ms=40");
    struct err why = { 0 };
    struct experiment *x = NULL;
    CHECK_OK(bench_start(&x, b, &s, &why));
    int64_t version = 0;
    do {
        experiment_wait(x, &version, 1000);
        experiment_state(x, &b->s);
    } while (b->s.phase < PHASE_CONTROL);
    experiment_close(x); /* stops it */
    s.resume_id = b->s.run_id;
    setenv("FAKE_SHA256", "beef", 1);
    bench_run(b, &s);
    unsetenv("FAKE_SHA256");
    assert_int_equal(b->s.verdict, VERDICT_INVALID);
    CHECK_CONTAINS(b->s.reason, "beef");
    CHECK_CONTAINS(b->s.reason, "00fa");
}

static struct experiment_spec spec_of_arms(const char *const *options, int n)
{
    struct experiment_spec s = bench_spec(options[0], options[1]);
    for (int i = 2; i < n; i++) s.config[i] = fake_config(options[i]);
    s.arms = n;
    s.control_blocks = 2;
    return s;
}

static void four_arms_are_a_family(void **state)
{
    static const char *const ARMS[] = { "rate=1000+noise=0.004+seed=1", "rate=1100+noise=0.004+seed=2",
                                        "rate=900+noise=0.004+seed=3", "rate=1000+noise=0.004+seed=4" };
    struct bench *b = *state;
    const struct experiment_spec s = spec_of_arms(ARMS, COUNT_OF(ARMS));
    bench_run(b, &s);
    assert_int_equal(b->s.phase, PHASE_DONE);
    assert_int_equal(b->s.comparison[1].verdict, VERDICT_BETTER);
    assert_int_equal(b->s.comparison[2].verdict, VERDICT_WORSE);
    CHECK_NE(b->s.comparison[3].verdict, VERDICT_BETTER);
    CHECK_NE(b->s.comparison[3].verdict, VERDICT_WORSE);
    assert_int_equal(b->s.headline, 1);
    assert_int_equal(b->s.verdict, VERDICT_BETTER);
    CHECK_NEAR(b->s.comparison[2].effect.estimate, log(0.9), 0.01);
    CHECK_LT(b->s.comparison[1].alpha, 0.05);
    CHECK_LE(b->s.comparison[3].alpha, 0.05);
    assert_int_equal(count_cells(b, "block", false, NULL), 8 * b->s.blocks);
    check_reload(b);
    json_t *o = experiment_to_json(&b->s);
    assert_int_equal(json_array_size(json_object_get(o, "comparisons")), 3);
    assert_int_equal(json_array_size(json_object_get(o, "arms")), 4);
    json_decref(o);
}

static void one_of_three_that_fails_is_left_out(void **state)
{
    static const char *const ARMS[] = { "rate=1000+noise=0.002+seed=1", "open=error",
                                        "rate=1100+noise=0.002+seed=3" };
    struct bench *b = *state;
    const struct experiment_spec s = spec_of_arms(ARMS, COUNT_OF(ARMS));
    bench_run(b, &s);
    assert_int_equal(b->s.comparison[1].verdict, VERDICT_INVALID);
    CHECK_CONTAINS(b->s.comparison[1].reason, "arm B");
    assert_int_equal(b->s.comparison[2].verdict, VERDICT_BETTER);
    assert_int_equal(b->s.verdict, VERDICT_BETTER);
    assert_int_equal(b->s.headline, 2);
    check_reload(b);
}

static void a_race_measures_its_winner_again(void **state)
{
    static const char *const ARMS[] = { "rate=1000+noise=0.004+seed=1", "rate=800+noise=0.004+seed=2",
                                        "rate=1200+noise=0.004+seed=3", "rate=1050+noise=0.004+seed=4" };
    struct bench *b = *state;
    struct experiment_spec s = spec_of_arms(ARMS, COUNT_OF(ARMS));
    s.race = true;
    bench_run(b, &s);
    assert_int_equal(b->s.phase, PHASE_DONE);
    assert_int_equal(b->s.headline, 2);
    CHECK(b->s.confirming);
    CHECK_GE(b->s.confirmation.blocks, 6);
    CHECK(b->s.comparison[1].dropped);
    CHECK(b->s.comparison[3].dropped);
    CHECK(!b->s.comparison[2].dropped);
    assert_int_equal(b->s.verdict, VERDICT_BETTER);
    CHECK_NEAR(b->s.confirmation.effect.estimate, log(1.2), 0.01);
    assert_int_equal(count_cells(b, "confirm", false, NULL), 4 * b->s.confirmation.blocks);
    check_reload(b);
}

static void a_race_that_a_wins_confirms_nobody(void **state)
{
    static const char *const ARMS[] = { "rate=1000+noise=0.002+seed=1", "rate=900+noise=0.002+seed=2",
                                        "rate=800+noise=0.002+seed=3" };
    struct bench *b = *state;
    struct experiment_spec s = spec_of_arms(ARMS, COUNT_OF(ARMS));
    s.race = true;
    bench_run(b, &s);
    CHECK(!b->s.confirming);
    assert_int_equal(b->s.verdict, VERDICT_WORSE);
    assert_int_equal(b->s.headline, 1); /* the better of the two */
    check_reload(b);
}

/* Looks cost nothing here, so a run that could not decide goes on where it stopped. */
static void an_undecided_run_goes_on(void **state)
{
    struct bench *b = *state;
    struct experiment_spec s = bench_spec("rate=1000+noise=0.03+seed=1", "rate=1030+noise=0.03+seed=2");
    s.max_blocks = 6;
    bench_run(b, &s);
    assert_int_equal(b->s.verdict, VERDICT_INCONCLUSIVE);
    const double first = b->s.comparison[1].d[0];
    s.resume_id = b->s.run_id;
    s.max_blocks = 64;
    bench_run(b, &s);
    CHECK_GT(b->s.blocks, 6);
    CHECK_NEAR(b->s.comparison[1].d[0], first, 1e-12);
    assert_int_equal(b->s.verdict, VERDICT_BETTER);
    check_reload(b);
}

static void no_control_says_so(void **state)
{
    struct bench *b = *state;
    struct experiment_spec s = bench_spec("rate=1000+noise=0.002", "rate=1100+noise=0.002");
    s.control_blocks = -1;
    bench_run(b, &s);
    assert_int_equal(b->s.verdict, VERDICT_BETTER);
    CHECK_NAN(b->s.noise_floor);
    json_t *o = experiment_to_json(&b->s);
    CHECK(json_is_null(json_object_get(o, "control")));
    CHECK(json_is_null(json_object_get(o, "noise_floor_ratio")));
    json_decref(o);
    check_reload(b);
}

static void the_document_has_what_a_script_wants(void **state)
{
    struct bench *b = *state;
    const struct experiment_spec s = bench_spec("rate=1000+noise=0.01+seed=1", "rate=1200+noise=0.01+seed=2");
    bench_run(b, &s);
    json_t *o = experiment_to_json(&b->s);
    assert_string_equal(json_get_str(o, "schema", ""), "qdyno.ab/1");
    assert_string_equal(json_get_str(o, "verdict", ""), "better");
    assert_string_equal(json_get_str(o, "metric", ""), "decode_tok_s");
    assert_string_equal(json_get_str(o, "workload", ""), "tg64");
    assert_string_equal(json_get_str(o, "state", ""), "done");
    const json_t *effect = json_object_get(o, "effect");
    CHECK_NEAR(json_get_num(effect, "ratio", NAN), 1.2, 0.02);
    CHECK_LT(json_get_num(effect, "lower", NAN), json_get_num(effect, "upper", NAN));
    CHECK_NEAR(json_get_num(effect, "confidence", NAN), 0.95, 0);
    static const char *const KEYS[] = {
        "noise_floor_ratio", "mde_ratio", "blocks", "discarded", "stopping", "seed",
        "machine",           "control",   "events", "run"
    };
    for (size_t i = 0; i < COUNT_OF(KEYS); i++) CHECK_NE(json_object_get(o, KEYS[i]), NULL);
    CHECK(json_get_bool(o, "random_weights", false));
    CHECK(json_is_null(json_object_get(o, "overhead_ratio"))); /* no sampler ran: unknown, not 0 */
    const json_t *a = json_array_get(json_object_get(o, "arms"), 0);
    CHECK(json_is_null(json_object_get(a, "perplexity")));
    CHECK(json_is_number(json_object_get(json_object_get(a, "itl_s"), "p99")));
    char *text = json_line(o);
    CHECK(text);
    CHECK_LACKS(text, ":nan");
    CHECK_LACKS(text, ":NaN");
    CHECK_LACKS(text, " nan");
    free(text);
    json_decref(o);
}

int main(void)
{
#define EXPERIMENT_TEST(f) cmocka_unit_test_setup_teardown(f, bench_set_up, bench_tear_down)
    const struct CMUnitTest tests[] = {
        EXPERIMENT_TEST(resuming_after_kill_9_keeps_every_whole_block), /* first: it forks */
        EXPERIMENT_TEST(ten_percent_faster_is_better),
        EXPERIMENT_TEST(slower_is_worse_and_less_latency_is_better),
        EXPERIMENT_TEST(equal_arms_are_never_better_or_worse),
        EXPERIMENT_TEST(too_much_noise_is_inconclusive_with_a_number),
        EXPERIMENT_TEST(drift_is_not_an_effect),
        EXPERIMENT_TEST(a_disturbed_block_is_discarded_whole_and_made_up_for),
        EXPERIMENT_TEST(a_machine_that_is_always_disturbed_has_a_verdict),
        EXPERIMENT_TEST(an_arm_that_dies_midway_is_a_result),
        EXPERIMENT_TEST(an_arm_that_never_opens_leaves_the_other_measured),
        EXPERIMENT_TEST(files_with_other_prompts_are_compared),
        EXPERIMENT_TEST(different_work_is_refused),
        EXPERIMENT_TEST(a_budget_ends_it_without_a_claim),
        EXPERIMENT_TEST(a_spec_that_cannot_be_is_refused),
        EXPERIMENT_TEST(training_is_checked_before_it_runs),
        EXPERIMENT_TEST(stopping_can_be_resumed_on_the_same_machine_only),
        EXPERIMENT_TEST(a_model_that_changed_since_is_not_mixed_in),
        EXPERIMENT_TEST(four_arms_are_a_family),
        EXPERIMENT_TEST(one_of_three_that_fails_is_left_out),
        EXPERIMENT_TEST(a_race_measures_its_winner_again),
        EXPERIMENT_TEST(a_race_that_a_wins_confirms_nobody),
        EXPERIMENT_TEST(an_undecided_run_goes_on),
        EXPERIMENT_TEST(no_control_says_so),
        EXPERIMENT_TEST(the_document_has_what_a_script_wants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
