/* telemetry/sensors/sensors.c - opens every source that this machine has, and reads them all into one row. */
#include "telemetry/sensors/sensors.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "telemetry/gpu/gpu.h"
#include "telemetry/metrics/metrics.h"
#include "telemetry/sensors/source.h"
#include "base/sysfs/sysfs.h"

/* cpu_linux stays first, because process_linux uses its totals of the same tick. */
const struct source *const SOURCES[] = {
    &SOURCE_CPU_LINUX,     &SOURCE_MEMORY_LINUX, &SOURCE_PROCESS_LINUX, &SOURCE_PSI_LINUX,
    &SOURCE_BATTERY_LINUX, &SOURCE_RAPL_LINUX,   &SOURCE_CSTATE_LINUX,  &SOURCE_CGROUP_LINUX,
    &SOURCE_DISK_LINUX,    &SOURCE_PERF_LINUX,   &SOURCE_GPU,           &SOURCE_NONE,
};
const size_t SOURCE_COUNT = COUNT_OF(SOURCES);

struct telemetry {
    char root[PATH_MAX];
    bool frozen; /* a recording, whose counters never advance. Its clock must not advance either, or all rates
                    would be 0 instead of unknown */
    struct sensors shared;
    void *state[COUNT_OF(SOURCES)];
    bool open[COUNT_OF(SOURCES)];
    struct absence absence[METRIC_SENSOR_COUNT];
};

void sensor_absent(const struct sensors *s, enum metric_id metric, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s->absence[metric].why, ABSENCE_TEXT, fmt, ap);
    va_end(ap);
    s->absence[metric].denied = false;
}

void sensor_denied(const struct sensors *s, enum metric_id metric, const char *advice)
{
    sensor_absent(s, metric, "%s", advice);
    s->absence[metric].denied = true;
}

static bool source_fills(const struct source *source, enum metric_id metric)
{
    return str_starts(source->name, METRICS[metric].source);
}

/* Gives each metric without an open source the reasons why its sources are not open. */
static void absences_note(struct telemetry *t, char why[][ABSENCE_TEXT])
{
    for (int m = 0; m < METRIC_SENSOR_COUNT; m++) {
        bool here = false;
        for (size_t i = 0; i < SOURCE_COUNT; i++) here |= t->open[i] && source_fills(SOURCES[i], m);
        size_t len = strlen(t->absence[m].why);
        for (size_t i = 0; i < SOURCE_COUNT && !here; i++)
            if (source_fills(SOURCES[i], m))
                len += (size_t)snprintf(t->absence[m].why + MIN(len, ABSENCE_TEXT - 1),
                                        ABSENCE_TEXT - MIN(len, ABSENCE_TEXT - 1), "%s%s", len ? "; " : "",
                                        why[i]);
    }
}

static bool source_of_host(const struct source *s)
{
    return s == &SOURCE_CPU_LINUX || s == &SOURCE_MEMORY_LINUX || s == &SOURCE_RAPL_LINUX;
}

static enum err_code open_sources(struct telemetry **out, const char *root, bool host_only, struct err *why)
{
    *out = NULL;
    if (strlen(root) >= PATH_MAX) return err_set(why, ERR_IO, "path too long: '%s'", root);
    if (!sys_exists(root, "/proc/stat") && !sys_exists(root, "/proc/meminfo"))
        return err_set(why, ERR_IO, "no sensors: neither '%s/proc/stat' nor '%s/proc/meminfo' exists", root,
                       root);
    struct telemetry *t = calloc(1, sizeof *t);
    if (!t) return err_set(why, ERR_NOMEM, "out of memory opening the sensors");
    memcpy(t->root, root, strlen(root) + 1);
    t->frozen = *root && sys_exists(root, "/" RECORDING_ABOUT);
    t->shared = (struct sensors){
        .root = t->root,
        .own_pid = *root ? 0 : (int)getpid(),
        .busy_s = NAN,
        .total_s = NAN,
        .own_cpu_s = NAN,
        .absence = t->absence,
    };
    char absent[COUNT_OF(SOURCES)][ABSENCE_TEXT] = { "" };
    for (size_t i = 0; i < SOURCE_COUNT; i++) {
        struct err not_here; /* the reason why a source is absent, which is not an error */
        if (host_only && !source_of_host(SOURCES[i])) {
            snprintf(absent[i], sizeof absent[i], "not read here");
            continue;
        }
        enum err_code rc = SOURCES[i]->open(&t->state[i], &t->shared, &not_here);
        if (rc == ERR_NOMEM) {
            telemetry_close(t);
            return err_set(why, rc, "%s", not_here.message);
        }
        t->open[i] = rc == ERR_OK;
        if (rc) snprintf(absent[i], sizeof absent[i], "%s", not_here.message);
    }
    absences_note(t, absent);
    *out = t;
    return ERR_OK;
}

enum err_code telemetry_open(struct telemetry **out, const char *root, struct err *why)
{
    return open_sources(out, root, false, why);
}

enum err_code telemetry_open_host(struct telemetry **out, const char *root, struct err *why)
{
    return open_sources(out, root, true, why);
}

void telemetry_close(struct telemetry *t)
{
    if (!t) return;
    for (size_t i = 0; i < SOURCE_COUNT; i++)
        if (t->open[i]) SOURCES[i]->close(t->state[i]);
    free(t->shared.core_busy);
    free(t->shared.core_hertz);
    free(t);
}

void telemetry_freeze(struct telemetry *t)
{
    t->frozen = true;
}

void telemetry_monitor_process(struct telemetry *t, int pid)
{
    t->shared.monitored_pid = pid;
}

void telemetry_select_gpu(struct telemetry *t, const char *bus)
{
    t->shared.one_gpu = bus != NULL;
    snprintf(t->shared.selected_gpu, sizeof t->shared.selected_gpu, "%s", bus ? bus : "");
}

void telemetry_sample_due(struct telemetry *t, const bool *due, double *row)
{
    for (int i = 0; i < METRIC_SENSOR_COUNT; i++) row[i] = NAN;
    if (!t->frozen || !t->shared.now_ns) t->shared.now_ns = clock_ns();
    t->shared.due = due;
    for (size_t i = 0; i < SOURCE_COUNT; i++)
        if (t->open[i]) SOURCES[i]->sample(t->state[i], &t->shared, row);
    t->shared.due = NULL;
}

void telemetry_sample(struct telemetry *t, double *row)
{
    bool due[METRIC_SENSOR_COUNT];
    for (int i = 0; i < METRIC_SENSOR_COUNT; i++) due[i] = true;
    telemetry_sample_due(t, due, row);
}

int telemetry_cores(const struct telemetry *t, double *busy, int max)
{
    int n = MIN(max, t->shared.cores);
    for (int i = 0; i < n; i++) busy[i] = t->shared.core_busy[i];
    return MAX(n, 0);
}

int telemetry_core_hertz(const struct telemetry *t, double *hertz, int max)
{
    int n = MIN(max, t->shared.cores);
    for (int i = 0; i < n; i++) hertz[i] = t->shared.core_hertz[i];
    return MAX(n, 0);
}

int telemetry_gpus(const struct telemetry *t, struct gpu_reading *out, int max)
{
    for (int i = 0; out && i < MIN(max, t->shared.gpus); i++) out[i] = t->shared.gpu[i];
    return t->shared.gpus;
}

int telemetry_energy(const struct telemetry *t, struct energy_reading *out, int max)
{
    int n = MIN(max, t->shared.energies);
    for (int i = 0; i < n; i++) out[i] = t->shared.energy[i];
    return MAX(n, 0);
}

const char *telemetry_absence(const struct telemetry *t, enum metric_id sensor, bool *denied)
{
    const struct absence *a = &t->absence[sensor];
    if (denied) *denied = *a->why && a->denied;
    if (!*a->why && !t->shared.monitored_pid && str_starts(METRICS[sensor].name, "proc_"))
        return "no process is monitored";
    return a->why;
}
