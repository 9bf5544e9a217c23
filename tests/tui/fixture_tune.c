/* tests/tui/fixture_tune.c - a search at several stages, made by hand. */
#include "tests/tui/fixture.h"

#include <math.h>
#include <string.h>

#define PUT(field, text) snprintf((field), sizeof(field), "%s", (text))

static void rows_fill(struct tune_watch *t)
{
    static const struct {
        const char *config;
        double rate, half; /* half width of the interval, as a share */
        double megabytes, kld;
        int timings;
        bool is_current;
        const char *excluded;
    } ROWS[] = {
        { "q4_K,threads=2,act=int8", 52.1, 0.02, 480, 0.0058, 3, false, "" },
        { "q5_K,threads=2", 47.9, 0.05, 560, 0.0011, 2, false, "" },
        { "q8_0,threads=2", 39.4, 0.04, 750, 3.1e-5, 2, false, "" },
        { "q8_0,threads=2,kv=q8_0", 38.8, 0.12, 730, NAN, 1, false, "" },
        { "f16,threads=1", 25.5, 0.15, 1180, 0, 1, false, "" },
        { "default", 24.1, 0.03, 1180, 0, 2, true, "" },
        { "q3_K,threads=2", 61.0, 0.09, 400, 0.031, 1, false, "quality limit" },
        { "q4_0,threads=2,hugepages=always", NAN, NAN, 450, NAN, 0, false, "failed" },
    };
    for (size_t i = 0; i < COUNT_OF(ROWS); i++) {
        struct tune_row *r = &t->row[t->rows++];
        *r = (struct tune_row){ .rate = ROWS[i].rate,
                                .lower = ROWS[i].rate * (1 - ROWS[i].half),
                                .upper = ROWS[i].rate * (1 + ROWS[i].half),
                                .bytes = (int64_t)(ROWS[i].megabytes * (1 << 20)),
                                .kld = ROWS[i].kld,
                                .timings = ROWS[i].timings,
                                .is_current = ROWS[i].is_current };
        PUT(r->config, ROWS[i].config);
        PUT(r->excluded, ROWS[i].excluded);
    }
}

struct snapshot *fixture_tune(void)
{
    struct snapshot *s = fixture_idle();
    struct tune_watch *t = &s->tune;
    tune_watch_begin(t, s->unix_ms - 120000);
    t->run_id = 14;
    t->phase = TUNE_PHASE_RACE;
    PUT(t->model, s->model_path);
    PUT(t->what, "speed");
    PUT(t->config, "q5_K,threads=2");
    PUT(t->why, "may gain 4.1 % over the best: the largest gain per second of measuring");
    t->share = 0.42;
    t->left_s = 348;
    t->possible = 97;
    t->timed = 7;
    t->judged = 4;
    rows_fill(t);
    s->command = fixture_words("tune -m /models/stories15M-f16.gguf --goal balanced --budget 10m");
    s->command_started_ms = t->begun_ms;
    s->task_known = true;
    s->task = (struct task_progress){ .done = t->share, .rate = NAN, .left_s = t->left_s };
    return s;
}

struct snapshot *fixture_tune_confirm(void)
{
    struct snapshot *s = fixture_tune();
    struct tune_watch *t = &s->tune;
    t->phase = TUNE_PHASE_CONFIRM;
    t->what[0] = '\0';
    PUT(t->config, "q4_K,threads=2,act=int8");
    PUT(t->why, "a new A/B against the current configuration decides: about 3 more blocks");
    t->share = s->task.done = 0.81;
    t->left_s = s->task.left_s = 114;
    PUT(t->challenger, "q4_K,threads=2,act=int8");
    t->effect = (struct interval){ 2.16, 1.98, 2.34 };
    t->blocks = 6;
    t->confirm_run = 15;
    return s;
}

struct snapshot *fixture_tune_won(void)
{
    struct snapshot *s = fixture_tune_confirm();
    struct tune_watch *t = &s->tune;
    t->phase = TUNE_PHASE_SAVE;
    t->running = s->task_known = false;
    s->command.n = 0;
    t->share = 0.93;
    t->ended = t->wins = true;
    PUT(t->text,
        "q4_K,threads=2,act=int8 is 116 % faster (95 %: +104 to +128 %), 59 % less memory, quality loss "
        "0.0058 nats, compared with default.");
    PUT(t->candidate, "q4_K,threads=2,act=int8");
    PUT(s->applied, t->candidate);
    return s;
}

static void stopped_put(struct snapshot *s, const char *state)
{
    s->stopped_tune = (struct stopped_run){ .id = 14, .started_ms = s->unix_ms - 120000 };
    PUT(s->stopped_tune.state, state);
    PUT(s->stopped_tune.model, "stories15M-f16.gguf");
}

struct snapshot *fixture_tune_stopped(void)
{
    struct snapshot *s = fixture_tune();
    struct tune_watch *t = &s->tune;
    t->running = s->task_known = false;
    s->command.n = 0;
    t->ended = t->stopped = true;
    PUT(t->text,
        "Keep default: stopped; the best so far is q4_K,threads=2,act=int8, not confirmed; the measurements "
        "are stored.");
    PUT(t->candidate, "q4_K,threads=2,act=int8");
    stopped_put(s, "stopped");
    return s;
}

struct snapshot *fixture_tune_killed(void)
{
    struct snapshot *s = fixture_idle();
    stopped_put(s, "interrupted");
    return s;
}
