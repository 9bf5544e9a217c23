/* telemetry/sensors/cgroup_linux.c - what a container uses of what it may use: memory against the limit that
 * is nearest, processor time against the smallest quota, and how often that quota stopped it.
 *
 * The groups are those of the watched process, else our own. Without a limit the use of the process's own
 * group is told and the limit is unknown. Memory charged to a group includes page cache that the kernel would
 * drop first. */
#include "telemetry/sensors/source.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/metrics/metrics.h"
#include "telemetry/sysfs/sysfs.h"

struct groups {
    int64_t machine_bytes; /* a limit above it is none; -1 unknown */
    char cpu[CGROUP_PATH]; /* group of the last reading: another one starts over */
    struct rate cpu_s, periods, throttled, throttled_s;
    struct rate all_s, own_s; /* of METRIC_CGROUP_OTHERS */
};

/* ---------------------------------------------------------------- memory */

struct nearest {
    int64_t machine_bytes, used, limit, room; /* -1 unknown, none */
};

static void level_memory(void *ctx, const struct cgroup *g)
{
    struct nearest *n = ctx;
    const int64_t used = cgroup_memory_used(g);
    int64_t limit = cgroup_memory_limit(g);
    if (used < 0) return;
    if (n->machine_bytes >= 0 && limit >= n->machine_bytes) limit = -1;
    if (n->used < 0) n->used = used; /* the process's own group comes first */
    if (limit < 0 || (n->limit >= 0 && limit - used >= n->room)) return;
    *n = (struct nearest){ n->machine_bytes, used, limit, limit - used };
}

static void memory_sample(const struct groups *c, const struct sensors *s, double *row)
{
    struct nearest n = { c->machine_bytes, -1, -1, -1 };
    if (!s->due[METRIC_CGROUP_MEM_USED] && !s->due[METRIC_CGROUP_MEM_LIMIT]) return;
    cgroup_walk(s->root, s->monitored_pid, "memory", level_memory, &n);
    if (s->due[METRIC_CGROUP_MEM_USED] && n.used >= 0) row[METRIC_CGROUP_MEM_USED] = (double)n.used;
    if (!s->due[METRIC_CGROUP_MEM_LIMIT]) return;
    if (n.limit >= 0) row[METRIC_CGROUP_MEM_LIMIT] = (double)n.limit;
    sensor_absent(s, METRIC_CGROUP_MEM_LIMIT, "%s", n.limit >= 0 ? "" : "no control group limits the memory");
}

/* ---------------------------------------------------------------- processor time */

struct smallest {
    struct cgroup group; /* path "": none */
    double limit;        /* NAN: none */
};

/* Processor seconds of a group since it was made; NAN when it counts none. */
static double used_seconds(const struct cgroup *g)
{
    char text[1024];
    if (g->version == 2) {
        sys_read(g->root, text, sizeof text, "%s/cpu.stat", g->path);
        return sys_field(text, "usage_usec ") / 1e6;
    }
    const double ns = sys_number(g->root, "%s/cpuacct.usage", g->path); /* mounted with cpu */
    if (!isnan(ns)) return ns / 1e9;
    static const char CPU[] = "/sys/fs/cgroup/cpu";
    if (!str_starts(g->path, CPU)) return NAN;
    return sys_number(g->root, "/sys/fs/cgroup/cpuacct%s/cpuacct.usage", g->path + strlen(CPU)) / 1e9;
}

static void level_cpu(void *ctx, const struct cgroup *g)
{
    struct smallest *x = ctx;
    const double limit = cgroup_cpu_limit(g);
    const bool first = !*x->group.path && !isnan(used_seconds(g));
    if (first) x->group = *g;
    if (isnan(limit) || x->limit <= limit) return;
    *x = (struct smallest){ *g, limit };
}

static const enum metric_id CPU[] = { METRIC_CGROUP_CPU, METRIC_CGROUP_CPU_LIMIT, METRIC_CGROUP_THROTTLED,
                                      METRIC_CGROUP_THROTTLED_TIME, METRIC_CGROUP_OTHERS };

/* How often and how long the quota stopped the group. */
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
    /* a period is counted only while the group had something to do */
    if (!isnan(periods) && !isnan(throttled))
        row[METRIC_CGROUP_THROTTLED] = periods > 0 ? MIN(throttled / periods, 1) : 0;
}

static void cpu_sample(struct groups *c, const struct sensors *s, double *row)
{
    struct smallest x = { .limit = NAN };
    bool any = false;
    for (size_t i = 0; i < COUNT_OF(CPU); i++) any |= s->due[CPU[i]];
    if (!any) return;
    cgroup_walk(s->root, s->monitored_pid, "cpu", level_cpu, &x);
    if (strcmp(c->cpu, x.group.path)) {
        c->cpu_s = c->periods = c->throttled = c->throttled_s = c->all_s = c->own_s = (struct rate){ 0 };
        memcpy(c->cpu, x.group.path, sizeof c->cpu);
    }
    if (!*x.group.path) return;
    if (s->due[METRIC_CGROUP_CPU])
        row[METRIC_CGROUP_CPU] = rate_next(&c->cpu_s, used_seconds(&x.group), 0, s->now_ns);
    if (s->due[METRIC_CGROUP_CPU_LIMIT]) row[METRIC_CGROUP_CPU_LIMIT] = x.limit;
    for (size_t i = 1; i < COUNT_OF(CPU) && s->due[METRIC_CGROUP_CPU_LIMIT]; i++)
        sensor_absent(s, CPU[i], "%s", isnan(x.limit) ? "no control group limits the processor time" : "");
    if (isnan(x.limit)) return;
    if (s->due[METRIC_CGROUP_OTHERS]) {
        const double all = rate_next(&c->all_s, used_seconds(&x.group), 0, s->now_ns);
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
    c->machine_bytes = kb > 0 ? (int64_t)(1024 * kb) : -1;
    *state = c;
    return ERR_OK;
}

static void cgroup_sample(void *state, struct sensors *s, double *row)
{
    memory_sample(state, s, row);
    cpu_sample(state, s, row);
}

const struct source SOURCE_CGROUP_LINUX = { "cgroup_linux", cgroup_open, cgroup_sample, free };
