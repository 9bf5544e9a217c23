/* telemetry/sensors.h - the one interface every source of measurements stands behind (inside telemetry/).
 *
 * A source is a row of SOURCES: cpu_linux, rapl_linux, ... See telemetry/README.md for how to add one. */
#ifndef QDYNO_TELEMETRY_SENSORS_H
#define QDYNO_TELEMETRY_SENSORS_H

#include "telemetry/sysfs.h"
#include "telemetry/telemetry.h"

enum { ENERGY_MAX = 64, ABSENCE_TEXT = 256 };

/* What all sources share. Filled by the owner (sensors.c) but for the fields said to be a source's own. */
struct sensors {
    const char *root; /* "" or a recorded machine */
    int watched_pid;  /* 0: none */
    bool one_gpu;     /* METRIC_GPU_* are of the device at watched_gpu, not of all */
    char watched_gpu[24];
    int own_pid;     /* the process whose tree is "us" for METRIC_OTHERS_BUSY; 0: unknown (recorded) */
    int64_t now_ns;  /* of this tick */
    const bool *due; /* [METRIC_SENSOR_COUNT]: which metrics are wanted at this tick */

    /* written by cpu_linux, which comes first in SOURCES, at every tick that wants a metric made of them */
    double busy_s, total_s; /* processor seconds of all processors since boot; NAN: unknown */
    double *core_busy;      /* [cores] ratio of the last sample, NAN until known */
    double *core_hertz;     /* [cores] clock of the last sample, NAN unknown */
    int cores, cores_cap;

    /* written by process_linux at every tick that wants METRIC_CGROUP_OTHERS: processor seconds of our own
     * tree; NAN: unknown, or a process that is not ours is watched */
    double own_cpu_s;

    /* written by the source of GPUs: one row per device, see telemetry/gpu.h */
    struct gpu_reading *gpu; /* [gpus] */
    int gpus;

    /* written by rapl_linux: what its counters counted since they were opened, NAN before a second reading */
    struct energy_reading energy[ENERGY_MAX];
    int energies;

    struct absence *absence; /* [METRIC_SENSOR_COUNT], through sensor_absent and sensor_denied only */
};
struct absence {
    bool denied; /* the hardware is there, the permission is not */
    char why[ABSENCE_TEXT];
};

/* A source that is here but lacks one of its metrics says why, at open or when it turns out; "%s" of "": it
 * answers after all. A source that is not here need not: the message of its open serves. */
void sensor_absent(const struct sensors *s, enum metric_id metric, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* It is there, but we may not read it: why not, and what to do. */
void sensor_denied(const struct sensors *s, enum metric_id metric, const char *advice);

struct source {
    const char *name;
    /* Look for the hardware. ERR_ABSENT: not on this machine, the usual case. *state is the source's own. */
    enum err_code (*open)(void **state, const struct sensors *s, struct err *why);
    /* Write the metrics that are due and known into row (NAN before). Rates keep their own last reading, so a
     * metric's rate spans its own period. */
    void (*sample)(void *state, struct sensors *s, double *row);
    void (*close)(void *state);
};
extern const struct source *const SOURCES[];
extern const size_t SOURCE_COUNT;

extern const struct source SOURCE_CPU_LINUX, SOURCE_MEMORY_LINUX, SOURCE_PROCESS_LINUX, SOURCE_PSI_LINUX,
    SOURCE_BATTERY_LINUX, SOURCE_RAPL_LINUX, SOURCE_CSTATE_LINUX, SOURCE_CGROUP_LINUX, SOURCE_DISK_LINUX,
    SOURCE_PERF_LINUX, SOURCE_GPU, SOURCE_NONE;

/* telemetry_sample for some metrics only: due[METRIC_SENSOR_COUNT]. */
void telemetry_sample_due(struct telemetry *t, const bool *due, double *row);

/* Battery and mains. has_battery false: a desktop or server; *on_battery false when unknown. */
void battery_state(const char *root, bool *has_battery, bool *on_battery);

#endif
