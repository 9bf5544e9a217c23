/* Proves: arms in turns alternate in both directions and never work at the same time, a failing arm cancels
 * the others, cancelling ends all of them, and the effect of a block comes from pairs of equal turns. */
#include "tests/advisor/fake.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advisor/run/run.h"

enum { ARMS = 3 };

struct stage {
    char log[64];
    struct arm *arm[ARMS];
    struct measured_cell cell[ARMS];
    struct cell_ask ask[ARMS];
};

static struct arm *open_fake(const char *options)
{
    struct arm *a = NULL;
    struct err why = { 0 };
    const struct config c = fake_config(options);
    const struct arm_spec spec = { .model = "", .config = &c, .ctx = 128, .program = FAKE_PROGRAM };
    CHECK_OK(arm_open(&a, &spec, NULL, NULL, &why));
    return a;
}

/* `n` arms called a, b, c that log their turns; `extra` are options of the last. */
static void stage_open(struct stage *s, int n, const char *extra)
{
    *s = (struct stage){ 0 };
    snprintf(s->log, sizeof(s->log), "/tmp/qdyno-turns-XXXXXX");
    const int fd = mkstemp(s->log);
    assert_true(fd >= 0);
    close(fd);
    for (int i = 0; i < n; i++) {
        char options[256];
        snprintf(options, sizeof(options), "rate=%d+turn_ms=3+log=%s+name=%c%s", 1000 * (i + 1), s->log,
                 'a' + i, i == n - 1 ? extra : "");
        s->arm[i] = open_fake(options);
        s->ask[i] = (struct cell_ask){ .arm = s->arm[i], .workload = "tg32", .repeats = 2 };
    }
}

static void stage_close(struct stage *s)
{
    for (int i = 0; i < ARMS; i++) {
        cell_done(&s->cell[i]);
        arm_close(s->arm[i]);
    }
    unlink(s->log);
}

static char *stage_log(const struct stage *s)
{
    char *text = NULL;
    struct err why = { 0 };
    CHECK_OK(file_read(&text, NULL, s->log, 1 << 20, &why));
    return text;
}

static void take(struct stage *s, int n)
{
    static struct sample window[WINDOW_SAMPLES];
    int samples = 0;
    cells_take_in_turns(s->cell, s->ask, n, (struct turn_length){ .steps = 4, .passes = 1 }, window,
                        &samples);
}

/* tg32 in turns of 4 steps, twice: 16 turns an arm. Each round of 2n turns has every arm twice, and its
 * second half is its first half backwards. */
static void arms_alternate(void **state)
{
    (void)state;
    for (int n = 2; n <= ARMS; n++) {
        struct stage s;
        bool other_start = false;
        stage_open(&s, n, "");
        take(&s, n);
        char *log = stage_log(&s);
        CHECK_EQ(strlen(log), 16 * n);
        for (int at = 0; at < 16 * n; at += 2 * n) {
            for (int i = 0; i < n; i++) CHECK_EQ(log[at + i], log[at + 2 * n - 1 - i]);
            for (int k = 0; k < n; k++) CHECK(memchr(log + at, 'a' + k, (size_t)n));
            other_start = other_start || log[at] != log[0];
        }
        CHECK(other_start);
        for (int k = 0; k < n; k++) {
            CHECK_EQ(s.cell[k].failure.code, ERR_OK);
            CHECK_EQ(s.cell[k].n_turns, 16);
            CHECK_NEAR(s.cell[k].value[METRIC_DECODE_RATE], 1000 * (k + 1), 1e-6);
            CHECK_NAN(s.cell[k].value[METRIC_ENERGY]);
            if (k) CHECK_NEAR(turns_log_speedup(&s.cell[0], &s.cell[k], false), log1p(k), 1e-6);
        }
        CHECK_NAN(turns_log_speedup(&s.cell[0], &s.cell[1], true)); /* there was no prompt */
        free(log);
        stage_close(&s);
    }
}

/* An arm with less work leaves its turns to the other. */
static void the_longer_one_goes_on_alone(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s, 2, "");
    s.ask[1].repeats = 1;
    take(&s, 2);
    char *log = stage_log(&s);
    CHECK_EQ(strlen(log), 24);
    CHECK_STR(log + 16, "aaaaaaaa");
    CHECK_EQ(s.cell[0].failure.code, ERR_OK);
    CHECK_EQ(s.cell[1].n_turns, 8);
    free(log);
    stage_close(&s);
}

static void a_failing_arm_cancels_the_others(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s, 3, "+at=2+do=crash");
    take(&s, 3);
    CHECK_EQ(s.cell[0].failure.code, ERR_CANCELLED);
    CHECK_EQ(s.cell[1].failure.code, ERR_CANCELLED);
    CHECK_EQ(s.cell[2].failure.code, ERR_INTERNAL);
    CHECK_CONTAINS(s.cell[2].failure.message, "ABRT");
    stage_close(&s);
}

static bool stop_after(void *ctx, const json_t *event)
{
    int *left = ctx;
    (void)event;
    return --*left > 0;
}

static void cancelling_ends_all(void **state)
{
    (void)state;
    struct stage s;
    int left = 2;
    stage_open(&s, 2, "");
    for (int i = 0; i < 2; i++) {
        s.ask[i].event = stop_after;
        s.ask[i].ctx = &left;
    }
    take(&s, 2);
    for (int i = 0; i < 2; i++) CHECK_EQ(s.cell[i].failure.code, ERR_CANCELLED);
    stage_close(&s);
}

static void the_median_ignores_single_turns(void **state)
{
    (void)state;
    struct cell_turn a[9], b[9];
    const struct measured_cell x = { .turn = a, .n_turns = 9 }, y = { .turn = b, .n_turns = 9 };
    for (int i = 0; i < 9; i++) {
        a[i] = (struct cell_turn){ .seconds = 0.05F };
        b[i] = (struct cell_turn){ .seconds = i % 4 ? 0.04F : 3 };
    }
    CHECK_NEAR(turns_log_speedup(&x, &y, false), log(1.25), 1e-6);
    const struct measured_cell few = { .turn = b, .n_turns = 2 };
    CHECK_NAN(turns_log_speedup(&x, &few, false));
}

static void turns_have_about_the_wanted_length(void **state)
{
    (void)state;
    const struct workload tg = { .gen = 64 }, pp = { .prompt = 512 }, both = { .prompt = 512, .gen = 64 };
    CHECK_EQ(turn_length_for(&tg, 512, NAN, 0.5, 0.05).steps, 7);   /* 10 turns of 7 steps */
    CHECK_EQ(turn_length_for(&tg, 512, NAN, 64, 0.05).steps, 1);    /* a step takes a second */
    CHECK_EQ(turn_length_for(&tg, 512, NAN, 0.01, 0.05).steps, 64); /* all of it is one turn */
    CHECK_EQ(turn_length_for(&pp, 64, 0.2, NAN, 0.05).passes, 2);   /* 8 passes */
    CHECK_EQ(turn_length_for(&pp, 512, 2, NAN, 0.05).passes, 1);
    CHECK_EQ(turn_length_for(&both, 512, NAN, NAN, 0.05).steps, 1); /* nothing is known */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arms_alternate),
        cmocka_unit_test(the_longer_one_goes_on_alone),
        cmocka_unit_test(a_failing_arm_cancels_the_others),
        cmocka_unit_test(cancelling_ends_all),
        cmocka_unit_test(the_median_ignores_single_turns),
        cmocka_unit_test(turns_have_about_the_wanted_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
