/* telemetry/sensors/cgroup_linux.c - a container's use of memory and processor time, relative to its limits.
 *
 * Of all levels of control groups, memory is reported for the one with the least free memory below its limit,
 * and processor time for the one with the smallest quota. Without any limit the process's own group is
 * reported and the limit is unknown. The groups are those of the monitored process, or else our own. Memory
 * charged to a group includes page cache, which the kernel drops first. */
#include "telemetry/sensors/source.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/metrics/metrics.h"
#include "base/sysfs/sysfs.h"

struct groups {
    int64_t machine_bytes; /* a limit above it has no effect; -1: unknown */
    char cpu[CGROUP_PATH]; /* group of the last reading: rates of another group start again */
    struct rate cpu_s, periods, throttled, throttled_s;
    struct rate all_s, own_s; /* for METRIC_CGROUP_OTHERS */
};

/* ---------------------------------------------------------------- memory */

/* The group with the least free memory below its limit, among those visited so far. */
struct nearest {
    int64_t machine_bytes, used, limit, room; /* bytes; -1: unknown, no limit */
};

static void nearest_visit(void *ctx, const struct cgroup *g)
{
    struct nearest *n = ctx;
    const int64_t used = cgroup_memory_used(g);
    int64_t limit = cgroup_memory_limit(g);
    if (used < 0) return;
    if (n->machine_bytes >= 0 && limit >= n->machine_bytes) limit = -1;
    if (n->used < 0) n->used = used; /* the process's own group comes first */
    if (limit < 0 || (n->limit >= 0 && limit - used >= n->room)) return;
    *n = (struct nearest){
        .machine_bytes = n->machine_bytes, .used = used, .limit = limit, .room = limit - used
    };
}

static void memory_sample(const struct groups *c, const struct sensors *s, double *row)
{
    struct nearest n = { .machine_bytes = c->machine_bytes, .used = -1, .limit = -1, .room = -1 };
    if (!s->due[METRIC_CGROUP_MEM_USED] && !s->due[METRIC_CGROUP_MEM_LIMIT]) return;
    cgroup_walk(s->root, s->monitored_pid, "memory", nearest_visit, &n);
    if (s->due[METRIC_CGROUP_MEM_USED] && n.used >= 0) row[METRIC_CGROUP_MEM_USED] = (double)n.used;
    if (!s->due[METRIC_CGROUP_MEM_LIMIT]) return;
    if (n.limit >= 0) row[METRIC_CGROUP_MEM_LIMIT] = (double)n.limit;
    sensor_absent(s, METRIC_CGROUP_MEM_LIMIT, "%s", n.limit >= 0 ? "" : "no control group limits the memory");
}

/* ---------------------------------------------------------------- processor time */

/* The group with the smallest CPU quota, among those visited so far; without any quota the first group. */
struct smallest {
    struct cgroup group; /* path "": none yet */
    double limit;        /* processors; NAN: no quota */
};

/* Processor seconds of a group since it was created; NAN: it has no counter. */
static double cgroup_cpu_s(const struct cgroup *g)
{
    char text[1024];
    if (g->version == 2) {
        sys_read(g->root, text, sizeof text, "%s/cpu.stat", g->path);
        return sys_field(text, "usage_usec ") / 1e6;
    }
    const double ns = sys_number(g->root, "%s/cpuacct.usage", g->path); /* in the same hierarchy as cpu */
    if (!isnan(ns)) return ns / 1e9;
    static const char CPU[] = "/sys/fs/cgroup/cpu";
    if (!str_starts(g->path, CPU)) return NAN;
    return sys_number(g->root, "/sys/fs/cgroup/cpuacct%s/cpuacct.usage", g->path + strlen(CPU)) / 1e9;
}

static void smallest_visit(void *ctx, const struct cgroup *g)
{
    struct smallest *x = ctx;
    const double limit = cgroup_cpu_limit(g);
    const bool first = !*x->group.path && !isnan(cgroup_cpu_s(g));
    if (first) x->group = *g;
    if (isnan(limit) || x->limit <= limit) return;
    *x = (struct smallest){ .group = *g, .limit = limit };
}

static const enum metric_id CPU[] = { METRIC_CGROUP_CPU, METRIC_CGROUP_CPU_LIMIT, METRIC_CGROUP_THROTTLED,
                                      METRIC_CGROUP_THROTTLED_TIME, METRIC_CGROUP_OTHERS };

/* How often, and for how long, the quota stopped the group. */
static void throttling_sample(struct groups *c, const struct sensors *s, const struct cgroup *g, double *row)
{
    char text[1024];
    if (!s->due[METRIC_CGROUP_THROTTLED] && !s->due[METRIC_CGROUP_THROTTLED_TIME]) return;
    sys_read(s->root, text, sizeof text, "%s/cpu.stat", g->path);
    if (s->due[METRIC_CGROUP_THROTTLED_TIME]) {
        const double seconds = g->version == 2 ? sys_field(text, "throttled_usec ") / 1e6
                                               : sys_field(text, "throttled_time ") / 1e9;
        row[METRIC_CGROUP_THROTTLED_TIME] = rate_next(&c->throttled_s, seconds, 0, s->now_ns);
    }
    if (!s->due[METRIC_CGROUP_THROTTLED]) return;
    const double periods = rate_next(&c->periods, sys_field(text, "nr_periods "), 0, s->now_ns);
    const double throttled = rate_next(&c->throttled, sys_field(text, "nr_throttled "), 0, s->now_ns);
    /* the kernel counts only periods in which the group wanted to run */
    if (!isnan(periods) && !isnan(throttled))
        row[METRIC_CGROUP_THROTTLED] = periods > 0 ? MIN(throttled / periods, 1) : 0;
}

static void cpu_sample(struct groups *c, const struct sensors *s, double *row)
{
    struct smallest x = { .limit = NAN };
    bool any = false;
    for (size_t i = 0; i < COUNT_OF(CPU); i++) any |= s->due[CPU[i]];
    if (!any) return;
    cgroup_walk(s->root, s->monitored_pid, "cpu", smallest_visit, &x);
    if (strcmp(c->cpu, x.group.path)) {
        c->cpu_s = c->periods = c->throttled = c->throttled_s = c->all_s = c->own_s = (struct rate){ 0 };
        memcpy(c->cpu, x.group.path, sizeof c->cpu);
    }
    if (!*x.group.path) return;
    if (s->due[METRIC_CGROUP_CPU])
        row[METRIC_CGROUP_CPU] = rate_next(&c->cpu_s, cgroup_cpu_s(&x.group), 0, s->now_ns);
    if (s->due[METRIC_CGROUP_CPU_LIMIT]) row[METRIC_CGROUP_CPU_LIMIT] = x.limit;
    for (size_t i = 1; i < COUNT_OF(CPU) && s->due[METRIC_CGROUP_CPU_LIMIT]; i++)
        sensor_absent(s, CPU[i], "%s", isnan(x.limit) ? "no control group limits the processor time" : "");
    if (isnan(x.limit)) return;
    if (s->due[METRIC_CGROUP_OTHERS]) {
        const double all = rate_next(&c->all_s, cgroup_cpu_s(&x.group), 0, s->now_ns);
        const double others = all - rate_next(&c->own_s, s->own_cpu_s, 0, s->now_ns);
        if (!isnan(others)) row[METRIC_CGROUP_OTHERS] = MIN(MAX(others / x.limit, 0), 1);
    }
    throttling_sample(c, s, &x.group, row);
}

/* ---------------------------------------------------------------- the source */

static enum err_code cgroup_open(void **state, const struct sensors *s, struct err *why)
{
    char text[64];
    if (sys_read(s->root, text, sizeof text, "/proc/self/cgroup") <= 0)
        return err_set(why, ERR_ABSENT, "the kernel has no control groups (%s/proc/self/cgroup)", s->root);
    struct groups *c = calloc(1, sizeof *c);
    if (!c) return err_set(why, ERR_NOMEM, "out of memory opening the control groups");
    char meminfo[4096];
    sys_read(s->root, meminfo, sizeof meminfo, "/proc/meminfo");
    const double kb = sys_field(meminfo, "MemTotal:");
    c->machine_bytes = kb > 0 && kb < 0x1p53 ? (int64_t)kb * 1024 : -1; /* NaN: -1 */
    *state = c;
    return ERR_OK;
}

static void cgroup_sample(void *state, struct sensors *s, double *row)
{
    memory_sample(state, s, row);
    cpu_sample(state, s, row);
}

const struct source SOURCE_CGROUP_LINUX = {
    .name = "cgroup_linux", .open = cgroup_open, .sample = cgroup_sample, .close = free
};
