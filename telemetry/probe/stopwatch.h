/* telemetry/probe/stopwatch.h - times work on a machine whose speed varies (internal to telemetry/probe).
 *
 * Memory and cores are shared with other programs, so the speed of the machine changes from second to second,
 * by half and more. The stopwatch therefore runs a speed probe (kernels/speed_probe.c: a GEMV in q8_0) before
 * and after each run of the work and reports times relative to it. README.md, "Correction to a reference
 * state", has the formulas. */
#ifndef QDYNO_TELEMETRY_STOPWATCH_H
#define QDYNO_TELEMETRY_STOPWATCH_H

#include "kernels/kernels.h"

enum { STOPWATCH_SAMPLES = 12, STOPWATCH_RUNS = 3, STOPWATCH_PROBES = 4096 };

struct samples {
    int n;
    double v[STOPWATCH_SAMPLES]; /* ascending */
};
/* Ignores values that are not positive, and values beyond STOPWATCH_SAMPLES. */
void samples_add(struct samples *all, double v);
/* The median; of an even number the lower of the two middle values, because disturbances only add time. NAN:
 * no samples. */
double samples_median(const struct samples *all);

/* All probe results are seconds per weight. */
struct stopwatch {
    struct speed_probe *probe; /* owned */
    double first_compute_s;    /* compute probe when the stopwatch was opened */
    int computes;
    double compute_s[STOPWATCH_PROBES]; /* compute probes around computing work: one usual value per timing */
    int memories;
    double memory_s[STOPWATCH_PROBES]; /* memory probes */
    double beside_s[STOPWATCH_PROBES]; /* the compute probe right after each memory probe */
};
/* *out: stopwatch_close. `backend` is borrowed. Errors: those of speed_probe_open. */
enum err_code stopwatch_open(struct stopwatch **out, struct backend *backend, struct err *why);
void stopwatch_close(struct stopwatch *w); /* NULL is fine */

typedef void stopwatch_work(void *arg);

/* Times work whose data stays in caches. Returns the seconds of one run, corrected to cores as fast as at the
 * first probe. `backend` runs the work and the probes; sensitivity: the work's load sensitivity
 * (kernel_load_sensitivity). Repeats the work for 6 ms, at least STOPWATCH_RUNS times. */
double stopwatch_time_compute(struct stopwatch *w, struct backend *backend, stopwatch_work *work, void *arg,
                              double sensitivity);
/* Times work that waits for memory, STOPWATCH_RUNS times. Adds to *to the time per unit of work divided by
 * the memory probe's time per weight. `units`: how many units one run processes. */
void stopwatch_time_memory(struct stopwatch *w, struct backend *backend, struct samples *to,
                           stopwatch_work *work, void *arg, double units);

/* Summaries of the speed probes, in seconds per weight; NAN when there were none. Call them after the last
 * timing, because they sort the probes. usual_memory: of the memory probes. usual_beside: of the compute
 * probes that ran right after a memory probe. best_compute: of the compute probes beside work in caches.
 * Usual: mean of the middle half. Best: 10th percentile, because disturbances only add time. */
double stopwatch_usual_memory_s(struct stopwatch *w);
double stopwatch_usual_beside_s(struct stopwatch *w);
double stopwatch_best_compute_s(struct stopwatch *w);

#endif
