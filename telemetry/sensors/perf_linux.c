/* telemetry/sensors/perf_linux.c - cycles, instructions and last-level cache misses of the monitored
 * process tree and of the whole machine, and the traffic of the memory bus.
 *
 * Counting of a process tree starts when monitoring starts, with all its threads and those they start later.
 * Only user mode is counted for it, so that values are the same for root and for other users. The memory
 * controllers count memory traffic themselves (Intel: uncore_imc, AMD since Zen 4: amd_umc).
 *
 * The generic perf event "cache misses" means the last level on Intel only. Elsewhere the LL events of the
 * cache table are used; AMD cores do not have them, so the metric is unknown there. */
#include "telemetry/sensors/perf.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "telemetry/metrics/metrics.h"
#include "telemetry/sensors/process_tree.h"
#include "telemetry/sensors/source.h"
#include "base/sysfs/sysfs.h"

enum { EVENTS = 3, UNITS = 2 /* kinds of cores in a hybrid processor */, BUSES = 2, THREADS_MAX = 1024 };

enum {
    LAST_LEVEL_READ_MISS = PERF_COUNT_HW_CACHE_LL | PERF_COUNT_HW_CACHE_OP_READ << 8 |
                           PERF_COUNT_HW_CACHE_RESULT_MISS << 16
};

static const struct {
    enum metric_id process, everything;
} EVENT[EVENTS] = {
    { .process = METRIC_PROC_CYCLES, .everything = METRIC_CPU_CYCLES },
    { .process = METRIC_PROC_INSTRUCTIONS, .everything = METRIC_CPU_INSTRUCTIONS },
    { .process = METRIC_PROC_LLC_MISSES, .everything = METRIC_CPU_LLC_MISSES },
};

/* The units and events that count memory traffic; the first row that this machine has is used. The events of
 * a direction are added up. */
static const struct {
    const char *pmu; /* prefix of the units' names */
    const char *event[BUSES][2];
    double bytes; /* per count; 0: use the event's own scale */
} CONTROLLERS[] = {
    { .pmu = "uncore_imc_", .event = { { "cas_count_read" }, { "cas_count_write" } } },
    { .pmu = "uncore_imc_",
      .event = { { "cas_count_read_sch0", "cas_count_read_sch1" },
                 { "cas_count_write_sch0", "cas_count_write_sch1" } } },
    { .pmu = "uncore_imc", .event = { { "data_reads" }, { "data_writes" } } },
    { .pmu = "uncore_imc_free_running", .event = { { "data_read" }, { "data_write" } } },
    { .pmu = "amd_umc_",
      .event = { { "event=0x0a,rdwrmask=0x1" }, { "event=0x0a,rdwrmask=0x2" } },
      .bytes = 64 },
};
static const enum metric_id BUS[BUSES] = { METRIC_MEM_READ, METRIC_MEM_WRITE };

struct perf {
    struct perf_event event[EVENTS][UNITS];
    int units;
    struct perf_sum process[EVENTS], everything[EVENTS], bus[BUSES];
    struct rate process_rate[EVENTS], everything_rate[EVENTS], bus_rate[BUSES];
    int monitored_pid; /* of the counters in process[], 0: none */
};

/* ---------------------------------------------------------------- events */

/* On a hybrid processor each kind of core is a unit, whose number belongs in the upper half of a generic
 * event. */
static void units_find(struct perf *p, const char *root)
{
    static const char *const HYBRID[UNITS] = { "cpu_core", "cpu_atom" };
    uint64_t unit[UNITS] = { 0 };
    char vendor[32], *text = malloc(64 << 10);
    p->units = 0;
    for (int u = 0; u < UNITS; u++) {
        const int64_t type = sys_integer(root, "/sys/bus/event_source/devices/%s/type", HYBRID[u]);
        if (type > 0) unit[p->units++] = (uint64_t)type << 32;
    }
    p->units = MAX(p->units, 1);
    if (text) sys_read(root, text, 64 << 10, "/proc/cpuinfo");
    const bool intel = text && sys_text_field(text, "vendor_id", vendor, sizeof vendor) &&
                       !strcmp(vendor, "GenuineIntel");
    free(text);
    const struct {
        uint32_t type;
        uint64_t config;
    } generic[EVENTS] = {
        { PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES },
        { PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS },
        { intel ? PERF_TYPE_HARDWARE : PERF_TYPE_HW_CACHE,
          intel ? PERF_COUNT_HW_CACHE_MISSES : LAST_LEVEL_READ_MISS },
    };
    for (int e = 0; e < EVENTS; e++)
        for (int u = 0; u < p->units; u++)
            p->event[e][u] = (struct perf_event){ .type = generic[e].type,
                                                  .config = generic[e].config | unit[u],
                                                  .scale = 1,
                                                  .one_of_several = p->units > 1 };
}

/* True when opening this many counters leaves two thirds of the process's file limit for other uses. */
static bool files_suffice(int counters)
{
    struct rlimit files;
    return !getrlimit(RLIMIT_NOFILE, &files) && (rlim_t)counters <= files.rlim_cur / 3;
}

/* Reads a processor list file; returns how many of cpu[] were written, at most `max`. */
static int cpus_read(const char *root, const char *path, int *cpu, int max)
{
    char list[4096];
    sys_read(root, list, sizeof list, "%s", path);
    return MIN(MAX(sys_cpulist(list, cpu, max), 0), max);
}

/* ---------------------------------------------------------------- opening */

/* Records why a metric is absent, or with error 0 that it is present. */
static void perf_report(const struct sensors *s, enum metric_id metric, int error, bool everything)
{
    if (error == EACCES || error == EPERM)
        sensor_denied(s, metric, perf_advice(error, everything));
    else
        sensor_absent(s, metric, "%s", error ? perf_advice(error, everything) : "");
}

/* Whether the cores have counters at all. Without permission perf_event_open fails before it checks that. */
static bool cores_count(const char *root)
{
    static const char *const UNIT[] = { "cpu", "armv", "apple_", "riscv" }; /* prefixes of unit names */
    struct sys_list list;
    bool any = false;
    for (size_t i = 0; i < COUNT_OF(UNIT) && !any; i++) {
        sys_list(&list, root, UNIT[i], "/sys/bus/event_source/devices");
        any = list.count > 0;
    }
    return any;
}

static void everything_open(struct perf *p, const struct sensors *s)
{
    int cpu[SYS_CPUS], n = cpus_read(s->root, "/sys/devices/system/cpu/online", cpu, SYS_CPUS);
    for (int e = 0; e < EVENTS; e++) {
        int error = n && files_suffice(n * EVENTS) ? 0 : EMFILE, refused = 0;
        for (int i = 0; i < n && !error; i++) {
            bool any = false; /* a processor belongs to exactly one unit */
            for (int u = 0; u < p->units; u++) {
                const int rc = perf_sum_add(&p->everything[e], &p->event[e][u], -1, cpu[i]);
                any |= !rc;
                if (rc) refused = rc;
            }
            if (!any) error = refused;
        }
        if (!error) continue;
        if ((error == EACCES || error == EPERM) && !cores_count(s->root)) error = ENOENT;
        perf_sum_close(&p->everything[e]);
        perf_report(s, EVENT[e].everything, error, true);
    }
}

/* Opens all events of one controller in one direction. Returns 0, an errno, or -1: it has no such event. */
static int controller_open(struct perf_sum *sum, const char *root, const char *pmu, size_t row, int bus)
{
    char path[160];
    int cpu[64], error = -1;
    snprintf(path, sizeof path, "/sys/bus/event_source/devices/%s/cpumask", pmu);
    const int n = cpus_read(root, path, cpu, COUNT_OF(cpu));
    for (int k = 0; k < 2 && CONTROLLERS[row].event[bus][k]; k++) {
        struct perf_event e;
        if (!perf_event_find(&e, root, pmu, CONTROLLERS[row].event[bus][k])) return -1;
        if (CONTROLLERS[row].bytes > 0) e.scale = CONTROLLERS[row].bytes;
        for (int i = 0; i < n; i++)
            if ((error = perf_sum_add(sum, &e, -1, cpu[i]))) return error;
    }
    return error;
}

static void buses_open(struct perf *p, const struct sensors *s)
{
    int error[BUSES] = { -1, -1 };
    for (size_t r = 0; r < COUNT_OF(CONTROLLERS) && error[0] < 0; r++) {
        struct sys_list list;
        sys_list(&list, s->root, CONTROLLERS[r].pmu, "/sys/bus/event_source/devices");
        for (int bus = 0; bus < BUSES; bus++)
            for (int i = 0; i < list.count && error[bus] <= 0; i++) {
                const int rc = controller_open(&p->bus[bus], s->root, list.name[i], r, bus);
                if (rc >= 0) error[bus] = rc; /* a unit without this event is not a memory controller */
            }
    }
    for (int bus = 0; bus < BUSES; bus++) {
        if (!error[bus]) continue;
        perf_sum_close(&p->bus[bus]);
        if (error[bus] > 0)
            perf_report(s, BUS[bus], error[bus], true);
        else
            sensor_absent(s, BUS[bus], "no memory controller provides counters (uncore_imc, amd_umc)");
    }
}

static enum err_code perf_open(void **state, const struct sensors *s, struct err *why)
{
    if (*s->root) return err_set(why, ERR_ABSENT, "hardware counters cannot be recorded");
    struct perf *p = calloc(1, sizeof *p);
    if (!p) return err_set(why, ERR_NOMEM, "out of memory opening the processor's counters");
    units_find(p, s->root);
    everything_open(p, s);
    buses_open(p, s);
    *state = p;
    return ERR_OK;
}

/* ---------------------------------------------------------------- the monitored process tree */

static void process_close(struct perf *p)
{
    for (int e = 0; e < EVENTS; e++) {
        perf_sum_close(&p->process[e]);
        p->process_rate[e] = (struct rate){ 0 };
    }
}

/* Lists all threads before it opens counters. A thread that starts in between was either listed, or is
 * started by a thread that is already counted and is counted through it; never both. */
static void process_open(struct perf *p, const struct sensors *s)
{
    struct tree tree = { 0 };
    int tid[THREADS_MAX], n = 0;
    process_close(p);
    p->monitored_pid = s->monitored_pid;
    tree_walk(&tree, s->root, s->monitored_pid, s->now_ns);
    for (int i = 0; i < tree.count; i++)
        n += MAX(tree_threads(s->root, tree.pid[i], tid + n, THREADS_MAX - n), 0);
    for (int e = 0; e < EVENTS && n; e++) {
        int error = files_suffice(n * EVENTS * p->units) ? 0 : EMFILE;
        for (int i = 0; i < n && !error; i++)
            for (int u = 0; u < p->units && !error; u++) {
                error = perf_sum_add(&p->process[e], &p->event[e][u], tid[i], -1);
                if (error == ESRCH) error = 0; /* the thread has ended since */
            }
        if (error) perf_sum_close(&p->process[e]);
        perf_report(s, EVENT[e].process, error, false);
    }
}

static void perf_sample(void *state, struct sensors *s, double *row)
{
    struct perf *p = state;
    if (p->monitored_pid != s->monitored_pid) process_open(p, s);
    const bool lives = s->monitored_pid && sys_exists(s->root, "/proc/%d", s->monitored_pid);
    for (int e = 0; e < EVENTS; e++) {
        if (s->due[EVENT[e].process] && lives && p->process[e].n)
            row[EVENT[e].process] = rate_next(&p->process_rate[e], perf_sum_read(&p->process[e]), 0,
                                              s->now_ns);
        if (s->due[EVENT[e].everything] && p->everything[e].n)
            row[EVENT[e].everything] = rate_next(&p->everything_rate[e], perf_sum_read(&p->everything[e]), 0,
                                                 s->now_ns);
    }
    for (int b = 0; b < BUSES; b++)
        if (s->due[BUS[b]] && p->bus[b].n)
            row[BUS[b]] = rate_next(&p->bus_rate[b], perf_sum_read(&p->bus[b]), 0, s->now_ns);
}

static void perf_close(void *state)
{
    struct perf *p = state;
    if (!p) return;
    process_close(p);
    for (int e = 0; e < EVENTS; e++) perf_sum_close(&p->everything[e]);
    for (int b = 0; b < BUSES; b++) perf_sum_close(&p->bus[b]);
    free(p);
}

const struct source SOURCE_PERF_LINUX = {
    .name = "perf_linux", .open = perf_open, .sample = perf_sample, .close = perf_close
};
