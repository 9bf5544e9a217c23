/* advisor/run/quiet.c - waiting for a machine that nothing disturbs (run.h). */
#include "advisor/run/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "telemetry/machine/machine.h"

enum { WINDOW_NS = 1000000000, STEP_NS = 250000000, ENOUGH_STEPS = 4 };

const char *run_busiest(char buf[RUN_BUSIEST])
{
    char names[RUN_BUSIEST - 40];
    machine_busiest(names, sizeof names, "", &(struct own_processes){ 1, { getpid() } }, BUSIEST_WINDOW_MS);
    snprintf(buf, RUN_BUSIEST, *names ? ". The processors are used by %s" : "", names);
    return buf;
}

/* What disturbed the machine in the last second (contamination_reason); "" nothing. window: [WINDOW_SAMPLES].
 * False: there are no samples, so nothing is known. */
static bool disturbance_in(struct sampler_thread *sampler, struct sample *window, char *reason, size_t size)
{
    const int64_t now = clock_ns();
    const int n = sampler_window(sampler, now - WINDOW_NS, now, window, WINDOW_SAMPLES);
    contamination_reason(window, n, &(struct contamination_of){ NAN, NAN, false }, reason, size);
    return n > 0;
}

const char *run_disturbance(struct sampler_thread *sampler, char *buf, size_t size)
{
    struct sample *window = malloc(WINDOW_SAMPLES * sizeof(*window));
    buf[0] = 0;
    if (window) (void)disturbance_in(sampler, window, buf, size);
    free(window);
    return buf;
}

bool run_wait_quiet(struct sampler_thread *sampler, double most_s, run_wait_fn *waiting, void *ctx)
{
    struct sample *window = malloc(WINDOW_SAMPLES * sizeof(*window));
    const int64_t begun = clock_ns();
    int quiet = 0; /* steps in a row */
    while (window && quiet < ENOUGH_STEPS) {
        clock_sleep_ns(STEP_NS);
        const double waited = (double)(clock_ns() - begun) * 1e-9;
        char reason[160];
        const bool known = disturbance_in(sampler, window, reason, sizeof(reason));
        quiet = known && !*reason ? quiet + 1 : 0;
        if (*reason && !waiting(ctx, reason, waited)) break;
        if (quiet < ENOUGH_STEPS && waited >= most_s) break;
    }
    free(window);
    return quiet >= ENOUGH_STEPS;
}
