/* telemetry/probe/stopwatch.c - times work between speed probes. */
#include "telemetry/probe/stopwatch.h"

#include <math.h>
#include <stdlib.h>

#include "base/base.h"

/* A run lasts at least 0.1 ms: long compared with reading the clock, and short compared with the seconds
 * after which the machine's speed changes. */
static const double RUN_S = 1e-4;
enum { RUNS_MAX = 64, ALL_RUNS_NS = 6000000 };

void samples_add(struct samples *all, double v)
{
    int at = all->n;
    if (at == STOPWATCH_SAMPLES || !(v > 0)) return;
    for (; at > 0 && all->v[at - 1] > v; at--) all->v[at] = all->v[at - 1];
    all->v[at] = v;
    all->n++;
}

double samples_median(const struct samples *all)
{
    return all->n ? all->v[(all->n - 1) / 2] : NAN;
}

enum err_code stopwatch_open(struct stopwatch **out, struct backend *backend, struct err *why)
{
    *out = NULL;
    struct stopwatch *w = calloc(1, sizeof *w);
    if (!w) return err_set(why, ERR_NOMEM, "out of memory timing the kernels");
    const enum err_code rc = speed_probe_open(&w->probe, backend, why);
    if (rc) {
        stopwatch_close(w);
        return rc;
    }
    speed_probe_compute_s(w->probe, backend); /* not counted: it fills caches and wakes threads */
    w->first_compute_s = speed_probe_compute_s(w->probe, backend);
    *out = w;
    return ERR_OK;
}

void stopwatch_close(struct stopwatch *w)
{
    if (!w) return;
    speed_probe_close(w->probe);
    free(w);
}

static double work_run_s(stopwatch_work *work, void *arg, int calls)
{
    const int64_t from = clock_ns();
    for (int i = 0; i < calls; i++) work(arg);
    return (double)(clock_ns() - from) * 1e-9;
}

/* Appends v to all[*n], unless the array is full. */
static void stopwatch_keep(double all[STOPWATCH_PROBES], int *n, double v)
{
    if (*n < STOPWATCH_PROBES) all[(*n)++] = v;
}

double stopwatch_time_compute(struct stopwatch *w, struct backend *backend, stopwatch_work *work, void *arg,
                              double sensitivity)
{
    double corrected_s[RUNS_MAX], probe_s[RUNS_MAX];
    int n = 0, calls = 1;
    double once = work_run_s(work, arg, 1); /* the first run fills caches and wakes threads */
    if (once < 10 * RUN_S) once = work_run_s(work, arg, 1);
    if (once < RUN_S) calls = (int)fmin(RUN_S / fmax(once, 1e-8), 1e4) + 1;
    speed_probe_compute_s(w->probe, backend);
    double before = speed_probe_compute_s(w->probe, backend);
    const int64_t end = clock_ns() + ALL_RUNS_NS;
    while (n < RUNS_MAX && (n < STOPWATCH_RUNS || clock_ns() < end)) {
        const double seconds = work_run_s(work, arg, calls) / calls;
        probe_s[n] = speed_probe_compute_s(w->probe, backend);
        /* t / (c_now / c_first)^e: see README.md */
        corrected_s[n] = seconds / pow(0.5 * (before + probe_s[n]) / w->first_compute_s, sensitivity);
        before = probe_s[n++];
    }
    stopwatch_keep(w->compute_s, &w->computes, speed_probe_typical_s(probe_s, n));
    return speed_probe_typical_s(corrected_s, n);
}

static double stopwatch_probe_memory(struct stopwatch *w, struct backend *backend)
{
    int besides = w->memories;
    const double s = speed_probe_read_s(w->probe);
    stopwatch_keep(w->memory_s, &w->memories, s);
    stopwatch_keep(w->beside_s, &besides, speed_probe_compute_s(w->probe, backend));
    return s;
}

void stopwatch_time_memory(struct stopwatch *w, struct backend *backend, struct samples *to,
                           stopwatch_work *work, void *arg, double units)
{
    double before = stopwatch_probe_memory(w, backend);
    for (int i = 0; i < STOPWATCH_RUNS; i++) {
        const double seconds = work_run_s(work, arg, 1) / units;
        const double after = stopwatch_probe_memory(w, backend);
        samples_add(to, seconds / (0.5 * (before + after)));
        before = after;
    }
}

double stopwatch_usual_memory_s(struct stopwatch *w)
{
    return speed_probe_typical_s(w->memory_s, w->memories);
}

double stopwatch_usual_beside_s(struct stopwatch *w)
{
    return speed_probe_typical_s(w->beside_s, w->memories);
}

double stopwatch_best_compute_s(struct stopwatch *w)
{
    return speed_probe_best_s(w->compute_s, w->computes);
}
