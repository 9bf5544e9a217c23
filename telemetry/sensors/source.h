/* telemetry/sensors/source.h - the interface that every sensor source implements (internal to
 * telemetry/sensors).
 *
 * A source reads one kernel interface or driver and fills some of METRICS. It is a row of SOURCES in
 * sensors.c. README.md explains how to add one. */
#ifndef QDYNO_TELEMETRY_SOURCE_H
#define QDYNO_TELEMETRY_SOURCE_H

#include "telemetry/gpu/gpu.h"
#include "telemetry/metrics/metrics.h"
#include "telemetry/sensors/sensors.h"

enum { ENERGY_MAX = 64, ABSENCE_TEXT = 256 };

/* What all sources share. sensors.c writes the fields, except where a comment names the source that does. */
struct sensors {
    const char *root;  /* "" or a recorded machine */
    int monitored_pid; /* root of the process tree that METRIC_PROC_* describe; 0: none */
    bool one_gpu;      /* METRIC_GPU_* describe the device selected_gpu instead of all devices */
    char selected_gpu[24];
    int own_pid;    /* METRIC_OTHERS_BUSY excludes this process and its descendants; 0: unknown (recording) */
    int64_t now_ns; /* time of this tick */
    const bool *due; /* [METRIC_SENSOR_COUNT]: the metrics to read at this tick */

    /* Written by cpu_linux, which comes first in SOURCES, when a metric that depends on them is due. */
    double busy_s, total_s; /* seconds of all processors together since boot; NAN: unknown */
    double *core_busy;      /* [cores] busy share of the last sample; NAN: not known yet */
    double *core_hertz;     /* [cores] clock of the last sample; NAN: unknown */
    int cores, cores_cap;

    /* Written by process_linux when METRIC_CGROUP_OTHERS is due: processor seconds of our own process tree;
     * NAN: unknown, or the monitored process is not a descendant of ours. */
    double own_cpu_s;

    /* Written by gpus.c: one reading per device. */
    struct gpu_reading *gpu; /* [gpus], borrowed */
    int gpus;

    /* Written by rapl_linux: energy since opening; NAN before a counter's second reading. */
    struct energy_reading energy[ENERGY_MAX];
    int energies;

    struct absence *absence; /* [METRIC_SENSOR_COUNT], written by sensor_absent and sensor_denied */
};
struct absence {
    bool denied; /* the hardware exists, but this user may not read it */
    char why[ABSENCE_TEXT];
};

/* Records why an open source cannot provide one of its metrics. An empty text withdraws the reason. A source
 * that fails to open need not call this: the error message of `open` becomes the reason for all its metrics.
 */
void sensor_absent(const struct sensors *s, enum metric_id metric, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Records that the hardware exists but this user may not read it. advice: why, and how to get permission. */
void sensor_denied(const struct sensors *s, enum metric_id metric, const char *advice);

struct source {
    const char *name;
    /* Looks for the hardware. ERR_ABSENT (a usual case): this machine does not have it. *state belongs to the
     * source. */
    enum err_code (*open)(void **state, const struct sensors *s, struct err *why);
    /* Writes the metrics that are due and known into row, which holds NAN before. Each rate keeps its own
     * last reading (struct rate), so that it spans the period of its metric. */
    void (*sample)(void *state, struct sensors *s, double *row);
    void (*close)(void *state);
};
extern const struct source *const SOURCES[];
extern const size_t SOURCE_COUNT;

extern const struct source SOURCE_CPU_LINUX, SOURCE_MEMORY_LINUX, SOURCE_PROCESS_LINUX, SOURCE_PSI_LINUX,
    SOURCE_BATTERY_LINUX, SOURCE_RAPL_LINUX, SOURCE_CSTATE_LINUX, SOURCE_CGROUP_LINUX, SOURCE_DISK_LINUX,
    SOURCE_PERF_LINUX, SOURCE_GPU, SOURCE_NONE;

/* As telemetry_sample, but reads only the metrics with due[metric] set, due[METRIC_SENSOR_COUNT]. */
void telemetry_sample_due(struct telemetry *t, const bool *due, double *row);

#endif
