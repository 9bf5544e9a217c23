/* tui/dashboard/busy.c - a machine that other programs keep busy: noticing it, naming the programs, and what
 * a person does about it. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "advisor/run/run.h"
#include "telemetry/machine/machine.h"
#include "tui/dashboard/actions.h"
#include "tui/dashboard/loop.h"

/* ---------------------------------------------------------------- noticing it */

void job_find_busiest(struct background *b, const struct job *j)
{
    (void)j;
    char by[BUSY_BY];
    machine_busiest(by, sizeof by, "", &(struct own_processes){ 1, { getpid() } }, BUSIEST_WINDOW_MS);
    background_lock(b);
    memcpy(b->known.busy.by, by, sizeof by);
    b->known.busy.by_ms = clock_unix_ms();
    background_unlock_running(b);
}

/* Looking at all processes costs time, so it is done only on a busy machine, and never while a cell is timed.
 */
static void request_busiest(struct dashboard *d, int64_t now)
{
    static const int64_t SCAN_NS = INT64_C(5000000000);
    const struct job j = { .run = job_find_busiest };
    if (!d->busy.is_busy || snapshot_is_timing(d->s) || (d->s->command.n && !snapshot_is_running(d->s)))
        return;
    if (now < d->scan_ns || !jobs_put(d->queue[QUEUE_PROCESSOR], &j)) return;
    d->scan_ns = now + SCAN_NS;
}

/* An experiment that was paused until the machine is quiet goes on after this many quiet steps. */
static void continue_when_quiet(struct dashboard *d)
{
    enum { ENOUGH = 6 };
    const struct effect e = { .requests = REQUEST_CONTINUE_EXPERIMENT,
                              .message = "the machine is quiet: continuing" };
    if (!d->ui.until_quiet) return;
    const bool running = snapshot_is_running(d->s);
    if (!running || !(d->s->experiment.pausing || d->s->experiment.paused_since_ms)) {
        d->ui.until_quiet = d->ui.until_quiet && running && d->paused_by_hand;
        return;
    }
    if (d->quiet_steps < ENOUGH || !d->s->experiment.paused_since_ms) return;
    d->ui.until_quiet = false;
    effect_apply(d, &e);
}

void dashboard_watch_busy(struct dashboard *d)
{
    const int64_t now = clock_ns();
    if (now >= d->busy_ns) {
        d->busy_ns = now + SNAPSHOT_STEP_MS * INT64_C(1000000);
        busy_state_step(&d->busy, d->s->sensor);
        d->quiet_steps = d->busy.is_busy ? 0 : d->quiet_steps + 1;
    }
    memcpy(d->busy.by, d->s->busy.by, sizeof d->busy.by);
    d->busy.by_ms = d->s->busy.by_ms;
    d->s->busy = d->busy;
    busy_state_show(&d->busy, d->s->sensor);
    request_busiest(d, now);
    continue_when_quiet(d);
}

/* ---------------------------------------------------------------- what a person does about it */

struct effect action_wait_quiet(struct ui *ui, const struct snapshot *s)
{
    if (snapshot_is_running(s)) {
        if (ui->until_quiet) {
            ui->until_quiet = false;
            struct effect e = effect_message("continuing on the busy machine");
            e.requests = REQUEST_CONTINUE_EXPERIMENT;
            return e;
        }
        ui->until_quiet = true;
        struct effect e = effect_message("pausing until the machine is quiet; i continues at once");
        e.requests = REQUEST_PAUSE_EXPERIMENT;
        return e;
    }
    ui->when_busy = ui->when_busy == BUSY_WAIT ? BUSY_ANYHOW : BUSY_WAIT;
    return effect_message(ui->when_busy == BUSY_WAIT
                              ? "the next A/B or search waits until the machine is quiet, at most 10 minutes"
                              : "the next A/B or search starts at once");
}

struct effect action_loaded(struct ui *ui, const struct snapshot *s)
{
    (void)s;
    ui->when_busy = ui->when_busy == BUSY_LOADED ? BUSY_ANYHOW : BUSY_LOADED;
    return effect_message(
        ui->when_busy == BUSY_LOADED
            ? "the next A/B measures although the machine is busy, and counts disturbed measurements, too"
            : "the next A/B prefers measurements that nothing disturbed");
}
