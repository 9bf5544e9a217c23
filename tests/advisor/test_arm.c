/* Proves: an arm that works answers; one that crashes, is killed, talks nonsense, answers with an error,
 * hangs, is stopped or is cancelled becomes an error with a cause, in bounded time, and leaves no process
 * behind. */
#include "tests/advisor/fake.h"

#include <errno.h>
#include <math.h>
#include <signal.h>

#include "advisor/run/run.h"
#include "engine/parallel/parallel.h"

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
    CHECK_OK(open_fake(&a, "rate=2000+sleep_ms=2000", &why));
    assert_string_equal(json_get_str(arm_description(a), "name", ""), "Fake 1");
    CHECK_GT(arm_pid(a), 0);
    CHECK(!kill(arm_pid(a), 0));
    struct seen seen = { 0 };
    json_t *answer = NULL;
    CHECK_OK(arm_cell(a, "tg64", 7, &answer, count_event, &seen, &why));
    CHECK_NEAR(json_get_num(answer, "gen_tokens", 0) / json_get_num(answer, "decode_s", 0), 2000, 1e-6);
    CHECK_EQ(seen.events, 1);
    CHECK_GE(seen.ticks, 2); /* 2 s of silence, asked every 100 ms unless the machine is busy */
    json_decref(answer);
    const int pid = arm_pid(a);
    arm_close(a);
    CHECK_EQ(kill(pid, 0), -1);
    CHECK_EQ(errno, ESRCH);
}

static const struct other_machines NO_OTHERS;

/* A sample each second. */
static void sixty_watts(struct sample *s, int n)
{
    for (int i = 0; i < n; i++) {
        s[i].t_ns = (i + 1) * INT64_C(1000000000);
        for (int m = 0; m < METRIC_SENSOR_COUNT; m++) s[i].value[m] = NAN;
        s[i].value[METRIC_CPU_POWER] = 60;
    }
}

/* The list "ranks" of a cell: rank 0 here, rank 1 on another machine with `energy_j` in `seconds`. */
static void add_cell(struct other_machines *m, double energy_j, double seconds)
{
    const struct rank_usage rank[] = {
        { .first_of_machine = true, .machine = { .clock_s = seconds, .energy_j = 1e6 } },
        { .first_of_machine = true, .machine = { .clock_s = seconds, .energy_j = energy_j } },
    };
    json_t *list = json_array();
    for (size_t i = 0; i < COUNT_OF(rank); i++) json_array_append_new(list, rank_usage_to_json(&rank[i]));
    other_machines_add(m, list);
    json_decref(list);
}

/* 60 W here and 40 W there over 10 s are 1000 J. The other machine's counters cover 12 s, so its share is
 * less exact; without its meter, or without one here, the energy of both is unknown. */
static void energy_of_other_machines_counts(void **state)
{
    (void)state;
    struct sample s[10];
    struct config c = fake_config("rate=2000");
    struct arm *a = NULL;
    struct err why = { 0 };
    double value[METRIC_COUNT], alone[METRIC_COUNT];
    const struct arm_spec spec = { .model = "", .config = &c, .ctx = 128, .program = FAKE_PROGRAM };
    sixty_watts(s, 10);
    CHECK_OK(arm_open(&a, &spec, NULL, NULL, &why));
    struct other_machines others = { 0 };
    other_machines_add(&others, NULL); /* an answer without ranks */
    CHECK_NEAR(others.seconds, 0, 0);
    add_cell(&others, 280, 7);
    add_cell(&others, 200, 5);
    arm_energy(a, s, 10, 0, 10, &NO_OTHERS, alone);
    arm_energy(a, s, 10, 0, 10, &others, value);
    CHECK_NEAR(alone[METRIC_ENERGY], 600, 1e-9);
    CHECK_NEAR(value[METRIC_ENERGY], 1000, 1e-9);
    const double more = 2 * 40 * 2 / sqrt(3); /* J: twice the standard uncertainty of 2 s at 40 W */
    CHECK_GT(value[METRIC_ENERGY_HALF], hypot(alone[METRIC_ENERGY_HALF], more));
    CHECK_LE(value[METRIC_ENERGY_HALF], hypot(alone[METRIC_ENERGY_HALF], 1.01 * more));
    arm_energy(a, s, 0, 0, 10, &others, value);
    CHECK_NAN(value[METRIC_ENERGY]);
    for (int sensors = 0; sensors < 2; sensors++) {
        others = (struct other_machines){ 0 };
        add_cell(&others, NAN, sensors ? 5 : NAN);
        arm_energy(a, s, 10, 0, 10, &others, value);
        CHECK_NAN(value[METRIC_ENERGY]);
        CHECK_NAN(value[METRIC_ENERGY_HALF]);
    }
    arm_close(a);
}

/* Three repetitions on this machine and two others of 30 W; and an answer that could not ask them. */
static void repetitions_add_up(void **state)
{
    (void)state;
    static struct sample window[WINDOW_SAMPLES];
    struct config c = fake_config("rate=2000+ranks=3");
    struct arm *a = NULL;
    struct err why = { 0 };
    struct measured_cell cell;
    struct other_machines others = { 0 };
    int n;
    const struct arm_spec spec = { .model = "", .config = &c, .ctx = 128, .program = FAKE_PROGRAM };
    CHECK_OK(arm_open(&a, &spec, NULL, NULL, &why));
    CHECK_OK(cell_take(&cell, &(struct cell_ask){ .arm = a, .workload = "tg8", .repeats = 3, .seed = 1 },
                       window, &n, &why));
    CHECK_NEAR(cell.others.joules, 3 * 2 * 60, 1e-9);
    CHECK_NEAR(cell.others.seconds, 3 * 2, 1e-9);
    CHECK_NAN(cell.value[METRIC_ENERGY]); /* no sensors here */
    cell_done(&cell);
    arm_close(a);
    json_t *empty = json_array();
    other_machines_add(&others, empty);
    CHECK_NAN(others.joules);
    json_decref(empty);
}

/* 60 W over 10 s are 600 J; at 600 g for 3.6 MJ that is 0.1 g. Without the setting, or a sensor: unknown. */
static void energy_becomes_co2_where_the_grid_is_known(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value;
        double co2_g;
    } CASES[] = { { "grid_gco2_per_kwh", "600", 0.1 },
                  { "grid_gco2_per_kwh", "0", 0 },
                  { "threads", "1", NAN } };
    struct sample s[10];
    sixty_watts(s, 10);
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct config c = fake_config("rate=2000");
        struct arm *a = NULL;
        struct err why = { 0 };
        double value[METRIC_COUNT];
        CHECK_OK(config_set(&c, CASES[i].key, CASES[i].value, &why));
        const struct arm_spec spec = { .model = "", .config = &c, .ctx = 128, .program = FAKE_PROGRAM };
        CHECK_OK(arm_open(&a, &spec, NULL, NULL, &why));
        arm_energy(a, s, 10, 0, 10, &NO_OTHERS, value);
        CHECK_NEAR(value[METRIC_ENERGY], 600, 1e-9);
        CHECK_GT(value[METRIC_ENERGY_HALF], 0);
        CHECK_LE(value[METRIC_ENERGY_HALF], 6);
        if (isnan(CASES[i].co2_g))
            CHECK_NAN(value[METRIC_CO2]);
        else
            CHECK_NEAR(value[METRIC_CO2], CASES[i].co2_g, 1e-12);
        arm_energy(a, s, 0, 0, 10, &NO_OTHERS, value);
        CHECK_NAN(value[METRIC_ENERGY]);
        CHECK_NAN(value[METRIC_ENERGY_HALF]);
        CHECK_NAN(value[METRIC_CO2]);
        arm_close(a);
    }
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
            CHECK_NE(arm_cell(a, "tg4", 1, &answer, NULL, NULL, &why), ERR_OK);
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
    assert_int_equal(arm_open(&a, &spec, NULL, NULL, &why), ERR_IO);
    CHECK_CONTAINS(why.message, "/nowhere/qdyno");
}

/* The cell would last longer than ctest waits for the test. */
static void cancelling_ends_a_cell(void **state)
{
    (void)state;
    struct arm *a = NULL;
    struct err why = { 0 };
    json_t *answer = NULL;
    CHECK_OK(open_fake(&a, "sleep_ms=600000", &why));
    struct seen seen = { .until = 3 };
    assert_int_equal(arm_cell(a, "tg4", 1, &answer, count_event, &seen, &why), ERR_CANCELLED);
    const int pid = arm_pid(a);
    arm_close(a);
    CHECK_EQ(kill(pid, 0), -1);
    CHECK_EQ(errno, ESRCH);
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
    assert_int_equal(arm_cell(a, "tg4", 1, &answer, count_event, &seen, &why), ERR_CANCELLED);
    CHECK_EQ(kill(pid, 0), -1);
    CHECK_EQ(errno, ESRCH);
    arm_close(a);
}

/* A thread of ThreadSanitizer uses CPU time even while the worker hangs. */
#ifdef __SANITIZE_THREAD__
#define OF_HANGING "the worker hung"
#else
#define OF_HANGING "used no CPU time"
#endif

/* No callback cancels these: the watchdog alone must end them. */
static void a_silent_worker_is_killed_in_time(void **state)
{
    (void)state;
    static const struct {
        const char *options, *word;
        int stop; /* send SIGSTOP before the second cell */
    } cases[] = { { "at=2+do=hang", OF_HANGING, 0 },
                  { "at=2+do=spin", "without sending anything", 0 },
                  { "rate=1000", "stopped by a signal", 1 } };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct arm *a = NULL;
        struct err why = { 0 };
        json_t *answer = NULL;
        const struct config c = fake_config(cases[i].options);
        const struct arm_spec spec = {
            .model = "", .config = &c, .ctx = 128, .program = FAKE_PROGRAM, .silence_s = cases[i].stop ? 0 : 2
        };
        CHECK_OK(arm_open(&a, &spec, NULL, NULL, &why));
        CHECK_OK(arm_cell(a, "tg4", 1, &answer, NULL, NULL, &why));
        json_decref(answer);
        const int pid = arm_pid(a);
        if (cases[i].stop) CHECK(!kill(pid, SIGSTOP));
        assert_int_equal(arm_cell(a, "tg4", 1, &answer, NULL, NULL, &why), ERR_INTERNAL);
        CHECK_CONTAINS(why.message, cases[i].word);
        CHECK_EQ(kill(pid, 0), -1);
        CHECK_EQ(errno, ESRCH);
        arm_close(a);
    }
}

/* The request is larger than the socket's buffer, so that sending it waits for the worker. */
static void a_stopped_worker_does_not_block_sending(void **state)
{
    (void)state;
    struct arm *a = NULL;
    struct err why = { 0 };
    json_t *answer = NULL;
    const size_t n = 8 << 20;
    char *prompt = malloc(n + 1);
    assert_non_null(prompt);
    memset(prompt, 'x', n);
    prompt[n] = 0;
    CHECK_OK(open_fake(&a, "write=a", &why));
    CHECK(!kill(arm_pid(a), SIGSTOP));
    const struct generate_spec spec = { .prompt = prompt, .n = 1 };
    assert_int_equal(arm_generate(a, &spec, &answer, NULL, NULL, &why), ERR_INTERNAL);
    CHECK_CONTAINS(why.message, "stopped by a signal");
    arm_close(a);
    free(prompt);
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
        cmocka_unit_test(energy_of_other_machines_counts),
        cmocka_unit_test(repetitions_add_up),
        cmocka_unit_test(energy_becomes_co2_where_the_grid_is_known),
        cmocka_unit_test(every_way_of_dying_is_named),
        cmocka_unit_test(failing_to_open_is_the_workers_own_error),
        cmocka_unit_test(cancelling_ends_a_cell),
        cmocka_unit_test(a_hanging_worker_is_killed),
        cmocka_unit_test(a_silent_worker_is_killed_in_time),
        cmocka_unit_test(a_stopped_worker_does_not_block_sending),
        cmocka_unit_test(closing_nothing_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
