/* telemetry/sensors/perf.h - counters of the processor and of its memory controllers through perf_event_open(2)
 * (inside telemetry/).
 *
 * What to count is found below a root that can be replaced; counting itself is about this machine only. */
#ifndef QDYNO_TELEMETRY_PERF_H
#define QDYNO_TELEMETRY_PERF_H

#include <stdbool.h>
#include <stdint.h>

struct perf_event {
    uint32_t type; /* PERF_TYPE_* or the number of a unit in /sys/bus/event_source/devices */
    uint64_t config;
    double scale;        /* a count is that many of what is asked for: 64 bytes, 1 cycle */
    bool one_of_several; /* cores of another kind have a counter of their own for it: while a thread is there
                            this one rests, which is no taking turns */
};

/* An event of the unit `pmu` ("uncore_imc_0"): the name of a file of its events/ folder, or terms such as
 * "event=0x0a,rdwrmask=0x1". Terms are put together as the unit's format/ says; the event's .scale and .unit
 * (MiB, Joules ...) make up `scale`. False: it has no such event. */
bool perf_event_find(struct perf_event *out, const char *root, const char *pmu, const char *event);

/* Some counters that are read as one number. {0} is empty. */
struct perf_sum {
    int n;
    struct perf_counter {
        int fd;
        double scale;
        bool one_of_several;
        uint64_t value, enabled_ns, running_ns; /* of the last reading */
    } * counter;                                /* [n] */
    double total; /* counted so far, scaled up where counters had to take turns */
};

/* Opens one more counter. A `pid` (a thread; with all threads and processes it starts from now on) is counted
 * in user mode on any processor; pid -1 counts everything on processor `cpu`. Returns 0 or an errno. */
int perf_sum_add(struct perf_sum *s, const struct perf_event *e, int pid, int cpu);

/* Reads all counters; the total, or NAN when there are none or one of them could not count. */
double perf_sum_read(struct perf_sum *s);
void perf_sum_close(struct perf_sum *s);

/* What to do about an errno of perf_sum_add, for people. `everything`: pid was -1. Borrowed. */
const char *perf_advice(int error, bool everything);

#endif
