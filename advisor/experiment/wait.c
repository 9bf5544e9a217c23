/* advisor/experiment/wait.c - what the machine does before the first block: waiting until it is quiet, and
 * whether the first block runs in turns. */
#include "advisor/experiment/parts.h"

#include <stdio.h>

static bool still_waiting(void *ctx, const char *reason, double waited_s)
{
    struct experiment *x = ctx;
    struct experiment_state *s = state_edit(x);
    snprintf(s->cell_phase, sizeof(s->cell_phase), "%s", EXPERIMENT_WAITS);
    state_done(x);
    char by[RUN_BUSIEST];
    if (waited_s < 1)
        experiment_log_event(x, "wait", "waiting for a quiet machine: %s%s", reason, run_busiest(by));
    return !atomic_load(&x->stop);
}

enum flow experiment_wait_until_quiet(struct experiment *x)
{
    const double most = x->state.spec.wait_quiet_s;
    if (!(most > 0) || !x->sampler) return FLOW_CONTINUE;
    const int64_t begun = clock_ns();
    const bool quiet = run_wait_quiet(x->sampler, most, still_waiting, x);
    const int64_t waited = clock_ns() - begun;
    x->clock.paused_ns += waited;
    experiment_log_event(
        x, "wait",
        quiet ? "nothing disturbed the machine in the last second: measuring, after a wait of %.0f s"
              : "other programs still disturb the machine after a wait of %.0f s: measuring anyway",
        (double)waited * 1e-9);
    return atomic_load(&x->stop) ? FLOW_STOPPED : FLOW_CONTINUE;
}

void experiment_look_for_load(struct experiment *x)
{
    char reason[160];
    if (!x->sampler || !*run_disturbance(x->sampler, reason, sizeof(reason))) return;
    x->clock.last_disturbed = true;
    if (block_runs_in_turns(x, CELL_CONTROL))
        experiment_log_event(x, "turns", "the machine is busy (%s): the first block runs in turns", reason);
}
