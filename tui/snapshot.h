/* tui/snapshot.h - everything the dashboard shows, as one immutable value. Views are pure functions of it. */
#ifndef QDYNO_TUI_SNAPSHOT_H
#define QDYNO_TUI_SNAPSHOT_H

#include "advisor/advisor.h"

enum { SNAPSHOT_HISTORY = 256, SNAPSHOT_CORES = 256, SNAPSHOT_LOG = 64, SNAPSHOT_ADVICE = 8 };

struct series { /* newest last; NAN = no value then */
    int n;
    float v[SNAPSHOT_HISTORY];
};

struct snapshot {
    int64_t unix_ms;
    struct machine machine;
    struct machine_ceilings ceilings;
    bool ceilings_known;
    double sensor[METRIC_SENSOR_COUNT];
    int cores;
    double core_busy[SNAPSHOT_CORES];
    struct series cpu, memory, gpu, decode, prefill;
    char model_path[512];
    struct model_shape model; /* arch "" when none or unreadable */
    char model_error[256];
    bool experiment_known;
    struct experiment_state experiment;
    int advice_count;
    struct advice advice[SNAPSHOT_ADVICE];
    char advice_state[96]; /* "probing the machine 40 %", "" when ready */
    int log_count;
    struct {
        int64_t unix_ms;
        enum log_level level;
        char text[160];
    } log[SNAPSHOT_LOG];
    double own_cost_ratio; /* UI + sampler, share of one core */
    int spool_count;
    char push_url[256];
};

#endif
