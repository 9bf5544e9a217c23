/* Proves: with a simulated clock, the number of processes of a server changes only when requests have waited,
 * or could have been served by fewer processes, for as long as the rule says without interruption; never
 * within the cool-down, while a process starts, or beyond the limits. Rules and limits are read, and wrong
 * ones refused with the part that is wrong. Figures of several processes are added, whichever member; they
 * survive the end of a process, whose open requests count as failed; a reader never gets a mixture of two
 * publications while another process writes. */
#include "tests/check.h"

#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "advisor/serve/share.h"

static const struct scale_rule RULE = {
    .least = 1, .most = 3, .waiting = 2, .up_s = 5, .down_s = 60, .cooldown_s = 10
};

/* ---------------------------------------------------------------- decisions */

struct simulation {
    struct scale_state state;
    struct scale_observation seen;
    double now_s;
};

/* Observes the same for so long, in steps of 0.1 s. Returns the time of the first change, which is made; NAN:
 * there was none. */
static double simulate(struct simulation *x, const struct scale_rule *r, double seconds,
                       enum scale_change *change)
{
    const double until_s = x->now_s + seconds;
    *change = SCALE_NONE;
    for (; x->now_s < until_s; x->now_s += 0.1) {
        *change = scale_step(r, &x->state, &x->seen, (int64_t)(x->now_s * 1e9));
        if (!*change) continue;
        x->seen.processes += *change == SCALE_UP ? 1 : -1;
        return x->now_s;
    }
    return NAN;
}

static void it_scales_up_and_down(void **state)
{
    (void)state;
    enum scale_change c;
    struct simulation x = { .seen = { .processes = 1, .sequences = 4 }, .now_s = 1000 };
    simulate(&x, &RULE, 600, &c);
    CHECK_EQ(c, SCALE_NONE); /* nothing happens, at the least number */
    x.seen.waiting = 1;
    simulate(&x, &RULE, 600, &c);
    CHECK_EQ(c, SCALE_NONE); /* one request waits: too few */
    x.seen.waiting = 2;
    x.seen.running = 4;
    double begun_s = x.now_s, at_s = simulate(&x, &RULE, 600, &c);
    CHECK_EQ(c, SCALE_UP);
    CHECK_NEAR(at_s - begun_s, 5, 0.2);
    /* requests still wait: the cool-down is longer than their time */
    double next_s = simulate(&x, &RULE, 600, &c);
    CHECK_EQ(c, SCALE_UP);
    CHECK_NEAR(next_s - at_s, 10, 0.2);
    simulate(&x, &RULE, 600, &c);
    CHECK_EQ(c, SCALE_NONE); /* at the most */
    /* two processes can do the work, not one */
    x.seen.waiting = 0;
    x.seen.running = 8;
    begun_s = x.now_s;
    at_s = simulate(&x, &RULE, 600, &c);
    CHECK_EQ(c, SCALE_DOWN);
    CHECK_NEAR(at_s - begun_s, 60, 0.2);
    simulate(&x, &RULE, 600, &c);
    CHECK_EQ(c, SCALE_NONE);
    x.seen.running = 4;
    simulate(&x, &RULE, 600, &c);
    CHECK_EQ(c, SCALE_DOWN);
    CHECK_EQ(x.seen.processes, 1);
    simulate(&x, &RULE, 600, &c);
    CHECK_EQ(c, SCALE_NONE);
}

static void interruptions_start_anew(void **state)
{
    (void)state;
    enum scale_change c;
    struct simulation x = { .seen = { .processes = 1, .sequences = 4 } };
    for (int i = 0; i < 20; i++) { /* 4 of 5 seconds, again and again */
        x.seen.waiting = 9;
        simulate(&x, &RULE, 4, &c);
        CHECK_EQ(c, SCALE_NONE);
        x.seen.waiting = 0;
        simulate(&x, &RULE, 1, &c);
        CHECK_EQ(c, SCALE_NONE);
    }
    x = (struct simulation){ .seen = { .processes = 2, .sequences = 4 } };
    for (int i = 0; i < 20; i++) {
        x.seen.running = 0;
        simulate(&x, &RULE, 59, &c);
        CHECK_EQ(c, SCALE_NONE);
        x.seen.running = 5;
        simulate(&x, &RULE, 1, &c);
        CHECK_EQ(c, SCALE_NONE);
    }
}

static void it_waits_for_a_process_that_starts(void **state)
{
    (void)state;
    enum scale_change c;
    struct simulation x = { .seen = { .processes = 2, .starting = 1, .waiting = 9, .sequences = 4 } };
    simulate(&x, &RULE, 600, &c);
    CHECK_EQ(c, SCALE_NONE);
    x.seen.starting = 0;
    simulate(&x, &RULE, 1, &c);
    CHECK_EQ(c, SCALE_UP);
}

/* Random loads: whatever happens, limits and cool-down hold. */
static void limits_and_cooldown_hold(void **state)
{
    (void)state;
    srand(3);
    const struct scale_rule r = {
        .least = 2, .most = 5, .waiting = 3, .up_s = 1, .down_s = 2, .cooldown_s = 4
    };
    struct scale_state s = { .changed = false };
    struct scale_observation o = { .processes = 2, .sequences = 2 };
    int64_t last = -1;
    int changes = 0;
    for (int64_t t = 0; t < 4000; t++) { /* tenths of a second */
        if (t % 50 == 0) o.waiting = rand() % 3 ? 0 : rand() % 9;
        if (t % 70 == 0) o.running = rand() % 12;
        const enum scale_change c = scale_step(&r, &s, &o, t * 100000000);
        if (!c) continue;
        CHECK(last < 0 || t - last >= 40);
        last = t;
        changes++;
        o.processes += c == SCALE_UP ? 1 : -1;
        CHECK_LE(2, o.processes);
        CHECK_LE(o.processes, 5);
    }
    CHECK_LE(4, changes);
}

static void restarts_back_off(void **state)
{
    (void)state;
    CHECK_EQ(scale_restart_delay_s(1), 0.5);
    CHECK_EQ(scale_restart_delay_s(2), 1);
    CHECK_EQ(scale_restart_delay_s(4), 4);
    CHECK_EQ(scale_restart_delay_s(8), 60);
    CHECK_EQ(scale_restart_delay_s(1000000), 60);
}

/* ---------------------------------------------------------------- reading */

static void rules_are_read(void **state)
{
    (void)state;
    struct err why;
    struct scale_rule r = RULE;
    CHECK_OK(scale_rule_parse(&r, "waiting=7,up=250ms,down=2m,cooldown=0s", &why));
    CHECK_EQ(r.waiting, 7);
    CHECK_NEAR(r.up_s, 0.25, 1e-12);
    CHECK_EQ(r.down_s, 120);
    CHECK_EQ(r.cooldown_s, 0);
    CHECK_OK(scale_rule_parse(&r, "up=9s", &why)); /* the others stay */
    CHECK_EQ(r.waiting, 7);
    CHECK_EQ(r.up_s, 9);
    static const struct {
        const char *text, *says;
    } WRONG[] = {
        { "", "waiting, up, down, cooldown" }, { "waiting", "KEY=VALUE" },       { "speed=2", "speed" },
        { "waiting=0", "from 1 on" },          { "waiting=two", "waiting=two" }, { "up=soon", "up=soon" },
        { "up=1s,,down=1s", "KEY=VALUE" },     { "up=-1s", "duration" },
    };
    for (size_t i = 0; i < COUNT_OF(WRONG); i++) {
        CHECK_EQ(scale_rule_parse(&r, WRONG[i].text, &why), ERR_USAGE);
        CHECK_CONTAINS(why.message, WRONG[i].says);
    }
}

static void limits_are_read(void **state)
{
    (void)state;
    struct err why;
    struct scale_rule r = RULE;
    CHECK_OK(scale_limits_parse(&r, "2..5", &why));
    CHECK_EQ(r.least, 2);
    CHECK_EQ(r.most, 5);
    CHECK_OK(scale_limits_parse(&r, "3", &why));
    CHECK_EQ(r.least, 3);
    CHECK_EQ(r.most, 3);
    static const char *const WRONG[] = { "",      "0",     "4..2", "0..2",  "1..", "..2",
                                         "1...2", "1..65", "two",  "1..2x", "-1" };
    for (size_t i = 0; i < COUNT_OF(WRONG); i++) {
        CHECK_EQ(scale_limits_parse(&r, WRONG[i], &why), ERR_USAGE);
        CHECK_CONTAINS(why.message, "1..4");
    }
}

/* ---------------------------------------------------------------- figures */

/* Every word of 8 bytes is added: no member is forgotten. */
static void all_figures_are_added(void **state)
{
    (void)state;
    enum { WORDS = sizeof(struct serve_figures) / 8 };
    for (int i = 0; i < WORDS; i++) {
        struct serve_figures sum = { .accepted = 0 }, more = { .accepted = 0 };
        const double x = 3;
        memcpy((char *)&more + i * 8, &x, sizeof x); /* as a count it is large, and the same if added to 0 */
        figures_add(&sum, &more);
        if (memcmp(&sum, &more, sizeof sum)) fail_msg("word %d of struct serve_figures is not added", i);
    }
    struct serve_figures sum = {
        .accepted = 2, .busy_s = 0.5, .queue.count = 1, .first.most_s = 4, .waiting = 1
    };
    const struct serve_figures more = {
        .accepted = 3, .busy_s = 0.25, .queue.count = 5, .first.most_s = 2, .waiting = 6
    };
    figures_add(&sum, &more);
    CHECK_EQ(sum.accepted, 5);
    CHECK_EQ(sum.busy_s, 0.75);
    CHECK_EQ(sum.queue.count, 6);
    CHECK_EQ(sum.first.most_s, 4);
    CHECK_EQ(sum.waiting, 7);
}

static void figures_outlive_their_process(void **state)
{
    (void)state;
    struct share *sh;
    struct err why;
    struct share_state now;
    CHECK_OK(share_open(&sh, 2, &why));
    for (int i = 0; i < 2; i++) {
        const struct serve_figures f = {
            .accepted = 10, .outcome[SERVE_COMPLETED] = 7, .waiting = 1, .running = 2, .blocks = 5
        };
        share_begin(sh, i);
        CHECK_EQ(share_phase(sh, i), SHARE_STARTING);
        share_ready(sh, i, 4, 1000 + i);
        share_publish(sh, i, &f);
    }
    share_read(sh, &now);
    CHECK_EQ(now.ready, 2);
    CHECK_EQ(now.sequences, 4);
    CHECK_EQ(now.process_bytes, 1001);
    CHECK_EQ(now.sum.accepted, 20);
    CHECK_EQ(now.sum.open, 6);
    CHECK(share_other_has_room(sh, 0, 4));
    CHECK(!share_other_has_room(sh, 0, 3)); /* it has as many */
    share_retire(sh, 1);
    CHECK_EQ(share_phase(sh, 1), SHARE_RETIRING);
    CHECK(!share_other_has_room(sh, 0, 4));
    share_end(sh, 1);
    share_read(sh, &now);
    CHECK_EQ(now.ready + now.starting + now.retiring, 1);
    CHECK_EQ(now.sum.accepted, 20);
    CHECK_EQ(now.sum.outcome[SERVE_COMPLETED], 14);
    CHECK_EQ(now.sum.outcome[SERVE_FAILED], 3); /* they were open */
    CHECK_EQ(now.sum.open, 3);
    CHECK_EQ(now.sum.blocks, 5);
    share_begin(sh, 1); /* another process gets the slot */
    CHECK_EQ(share_phase(sh, 1), SHARE_STARTING);
    share_end(sh, 1);
    CHECK(!share_is_stopping(sh));
    share_stop(sh);
    CHECK(share_is_stopping(sh));
    share_close(sh);
}

/* All members of a publication have the same value. */
static void publish_equal(struct share *sh, int64_t value)
{
    struct serve_figures f = { .accepted = value, .blocks_free = value };
    for (int i = 0; i < SERVE_OUTCOMES; i++) f.outcome[i] = value;
    for (int i = 0; i < LIVE_BINS; i++) f.gap.bin[i] = value;
    share_publish(sh, 0, &f);
}

static void publications_are_never_mixed(void **state)
{
    (void)state;
    enum { PUBLICATIONS = 30000 };
    struct share *sh;
    struct err why;
    CHECK_OK(share_open(&sh, 1, &why));
    const pid_t child = fork();
    CHECK_LE(0, child);
    if (!child) {
        for (int64_t n = 1; n <= PUBLICATIONS; n++) publish_equal(sh, n);
        _exit(0);
    }
    int64_t before = 0;
    while (before < PUBLICATIONS) {
        struct serve_figures f;
        share_slot_read(sh, 0, &f);
        CHECK_LE(before, f.accepted); /* never an older one */
        before = f.accepted;
        CHECK_EQ(f.blocks_free, before);
        for (int i = 0; i < SERVE_OUTCOMES; i++) CHECK_EQ(f.outcome[i], before);
        for (int i = 0; i < LIVE_BINS; i++) CHECK_EQ(f.gap.bin[i], before);
    }
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    share_close(sh);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_scales_up_and_down),
        cmocka_unit_test(interruptions_start_anew),
        cmocka_unit_test(it_waits_for_a_process_that_starts),
        cmocka_unit_test(limits_and_cooldown_hold),
        cmocka_unit_test(restarts_back_off),
        cmocka_unit_test(rules_are_read),
        cmocka_unit_test(limits_are_read),
        cmocka_unit_test(all_figures_are_added),
        cmocka_unit_test(figures_outlive_their_process),
        cmocka_unit_test(publications_are_never_mixed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
