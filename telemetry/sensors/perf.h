/* telemetry/sensors/perf.h - hardware counters of processors and memory controllers through
 * perf_event_open(2) (internal to telemetry/sensors).
 *
 * Events are looked up below a replaceable root. Counting is possible only on this machine. */
#ifndef QDYNO_TELEMETRY_PERF_H
#define QDYNO_TELEMETRY_PERF_H

#include <stdbool.h>
#include <stdint.h>

struct perf_event {
    uint32_t type; /* PERF_TYPE_* or the number of a unit in /sys/bus/event_source/devices */
    uint64_t config;
    double scale; /* what one count stands for: 64 bytes, 1 cycle */
    /* Hybrid processor: each kind of core has a counter of its own. When this one does not run, the thread is
     * on a core of the other kind; the counters were not multiplexed, so its count is not extrapolated. */
    bool one_of_several;
};

/* Finds an event of the unit `pmu` ("uncore_imc_0"). `event` is the name of a file in its events/ folder, or
 * terms such as "event=0x0a,rdwrmask=0x1", which are encoded as the unit's format/ folder describes. `scale`
 * combines the event's .scale and .unit (MiB, Joules ...). False: the unit has no such event. */
bool perf_event_find(struct perf_event *out, const char *root, const char *pmu, const char *event);

/* Several counters whose sum is one value. {0} is empty. */
struct perf_sum {
    int n;
    struct perf_counter {
        int fd;
        double scale;
        bool one_of_several;                    /* as in struct perf_event */
        uint64_t value, enabled_ns, running_ns; /* of the last reading */
    } * counter;                                /* [n] */
    double total; /* sum so far; extrapolated for the time in which a multiplexed counter did not run */
};

/* Adds a counter. pid >= 0: counts a thread, and all threads and processes that it starts from now on, in
 * user mode on any processor. pid -1: counts everything on processor `cpu`. Returns 0 or an errno. */
int perf_sum_add(struct perf_sum *s, const struct perf_event *e, int pid, int cpu);

/* Reads all counters and returns the total. NAN: no counters, or one of them could not count. */
double perf_sum_read(struct perf_sum *s);
void perf_sum_close(struct perf_sum *s);

/* Explains an errno of perf_sum_add to the user and says what to do. everything: pid was -1. Borrowed. */
const char *perf_advice(int error, bool everything);

#endif
