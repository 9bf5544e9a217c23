/* telemetry/probe/stopwatch.h - what work takes, told in what a look at the machine took beside it.
 *
 * Memory and cores are shared with whoever else is there, and how fast they are changes from one second to
 * the next, by half and more. So work is timed between looks at the pace (kernels/pace.c) and told as if
 * these had all been the same, the middle of several; which one it was to be is known in the end. */
#ifndef QDYNO_TELEMETRY_STOPWATCH_H
#define QDYNO_TELEMETRY_STOPWATCH_H

#include "kernels/kernels.h"

enum { STOPWATCH_SAMPLES = 12, STOPWATCH_RUNS = 3, STOPWATCH_LOOKS = 4096 };

struct samples {
    int n;
    double v[STOPWATCH_SAMPLES]; /* rising */
};
void samples_add(struct samples *all, double v); /* what is not above 0 is left out, as is what is too many */
double samples_middle(const struct samples *all); /* NAN for none */

struct stopwatch {
    struct pacer *pace; /* owned */
    int reads, computes, besides;
    double first_s; /* a look at the cores, when it began */
    double read_s[STOPWATCH_LOOKS], compute_s[STOPWATCH_LOOKS];
    double beside_s[STOPWATCH_LOOKS]; /* looks at the cores beside those at memory */
};
/* *out owned: stopwatch_close. `backend` borrowed. Errors: as pace_open. */
enum err_code stopwatch_open(struct stopwatch **out, struct backend *backend, struct err *why);
void stopwatch_close(struct stopwatch *w); /* NULL is fine */

typedef void stopwatch_work(void *arg);
/* What finds its bytes in caches, run by `backend` (of as many threads): seconds, were the cores as they were
 * at the first look. `feels`: how much of their slowness it feels (kernel_load_sensitivity). Takes some six
 * milliseconds, or three runs. */
double stopwatch_computing(struct stopwatch *w, struct backend *backend, stopwatch_work *work, void *arg,
                           double feels);
/* What waits for memory: how many looks at it one of its `units` takes, STOPWATCH_RUNS times. */
void stopwatch_reading(struct stopwatch *w, struct backend *backend, struct samples *to, stopwatch_work *work,
                       void *arg, double units);

/* Seconds of a look: a weight as it usually was at the memory, at its best at the cores: whatever
 * disturbs them makes it longer. NAN when nobody looked. They sort: after the last timing. */
double stopwatch_usual_read_s(struct stopwatch *w);
double stopwatch_usual_beside_s(struct stopwatch *w); /* the cores, when memory was looked at */
double stopwatch_best_compute_s(struct stopwatch *w);

#endif
