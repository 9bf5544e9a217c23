/* telemetry/probe/stopwatch.c - see stopwatch.h. */
#include "telemetry/probe/stopwatch.h"

#include <math.h>
#include <stdlib.h>

#include "base/base.h"

/* A run is long beside reading the clock, and short beside the seconds after which the machine is another. */
static const double RUN_S = 1e-4;
enum { RUNS_MOST = 64, ALL_RUNS_NS = 6000000 };

void samples_add(struct samples *all, double v)
{
    int at = all->n;
    if (at == STOPWATCH_SAMPLES || !(v > 0)) return;
    for (; at > 0 && all->v[at - 1] > v; at--) all->v[at] = all->v[at - 1];
    all->v[at] = v;
    all->n++;
}

double samples_middle(const struct samples *all)
{
    return all->n ? all->v[(all->n - 1) / 2] : NAN; /* disturbed ones are longer: of two the lesser */
}

enum err_code stopwatch_open(struct stopwatch **out, struct backend *backend, struct err *why)
{
    *out = NULL;
    struct stopwatch *w = calloc(1, sizeof *w);
    if (!w) return err_set(why, ERR_NOMEM, "no memory to time kernels with");
    const enum err_code rc = pace_open(&w->pace, backend, why);
    if (rc) {
        stopwatch_close(w);
        return rc;
    }
    pace_compute_s(w->pace, backend); /* caches and threads wake up */
    w->first_s = pace_compute_s(w->pace, backend);
    *out = w;
    return ERR_OK;
}

void stopwatch_close(struct stopwatch *w)
{
    if (!w) return;
    pace_close(w->pace);
    free(w);
}

static double seconds_of(stopwatch_work *work, void *arg, int calls)
{
    const int64_t from = clock_ns();
    for (int i = 0; i < calls; i++) work(arg);
    return (double)(clock_ns() - from) * 1e-9;
}

static void keep(double *all, int *n, double v)
{
    if (*n < STOPWATCH_LOOKS) all[(*n)++] = v;
}

double stopwatch_computing(struct stopwatch *w, struct backend *backend, stopwatch_work *work, void *arg,
                           double feels)
{
    double once_s[RUNS_MOST], look[RUNS_MOST];
    int n = 0, calls = 1;
    double once = seconds_of(work, arg, 1); /* pages, caches and threads wake up */
    if (once < 10 * RUN_S) once = seconds_of(work, arg, 1);
    if (once < RUN_S) calls = (int)fmin(RUN_S / fmax(once, 1e-8), 1e4) + 1;
    pace_compute_s(w->pace, backend);
    double before = pace_compute_s(w->pace, backend);
    const int64_t end = clock_ns() + ALL_RUNS_NS;
    while (n < RUNS_MOST && (n < STOPWATCH_RUNS || clock_ns() < end)) {
        const double seconds = seconds_of(work, arg, calls) / calls;
        look[n] = pace_compute_s(w->pace, backend);
        once_s[n] = seconds / pow(0.5 * (before + look[n]) / w->first_s, feels);
        before = look[n++];
    }
    keep(w->compute_s, &w->computes, pace_usual_s(look, n));
    return pace_usual_s(once_s, n);
}

static double look_at_memory(struct stopwatch *w, struct backend *backend)
{
    const double s = pace_read_s(w->pace);
    keep(w->read_s, &w->reads, s);
    keep(w->beside_s, &w->besides, pace_compute_s(w->pace, backend));
    return s;
}

void stopwatch_reading(struct stopwatch *w, struct backend *backend, struct samples *to, stopwatch_work *work,
                       void *arg, double units)
{
    double before = look_at_memory(w, backend);
    for (int i = 0; i < STOPWATCH_RUNS; i++) {
        const double seconds = seconds_of(work, arg, 1) / units, after = look_at_memory(w, backend);
        samples_add(to, seconds / (0.5 * (before + after)));
        before = after;
    }
}

double stopwatch_usual_read_s(struct stopwatch *w)
{
    return pace_usual_s(w->read_s, w->reads);
}

double stopwatch_usual_beside_s(struct stopwatch *w)
{
    return pace_usual_s(w->beside_s, w->besides);
}

double stopwatch_best_compute_s(struct stopwatch *w)
{
    return pace_best_s(w->compute_s, w->computes);
}
