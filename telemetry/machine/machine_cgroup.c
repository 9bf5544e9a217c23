/* telemetry/machine/machine_cgroup.c - what a container may really use: of the limits at all levels of its
 * control groups, the tightest counts. */
#include "telemetry/machine/machine.h"

#include <math.h>
#include <string.h>

#include "telemetry/machine/machine_parts.h"
#include "telemetry/sysfs/sysfs.h"

static void take_min(int64_t *limit, int64_t value)
{
    if (value >= 0 && (*limit < 0 || value < *limit)) *limit = value;
}

static void take_cpus(struct machine *m, double cpus)
{
    if (cpus > 0 && !(m->cgroup_cpus <= cpus)) m->cgroup_cpus = cpus;
}

/* The limit, and what is still free below it: page cache that can be dropped counts as free. */
static void level_memory(void *ctx, const struct cgroup *g)
{
    struct machine *m = ctx;
    char stat[8192];
    const int64_t limit = cgroup_memory_limit(g), used = cgroup_memory_used(g);
    if (limit < 0) return;
    take_min(&m->cgroup_memory_bytes, limit);
    if (used < 0) return;
    sys_read(g->root, stat, sizeof stat, "%s/memory.stat", g->path);
    const double inactive = sys_field(stat, g->version == 2 ? "inactive_file" : "total_inactive_file");
    const int64_t left = limit - used + (isnan(inactive) ? 0 : (int64_t)inactive);
    take_min(&m->memory_available_bytes, MAX(left, 0));
}

static void level_cpu(void *ctx, const struct cgroup *g)
{
    take_cpus(ctx, cgroup_cpu_limit(g));
}

/* A set smaller than the machine is a limit too. */
static void level_cpuset(void *ctx, const struct cgroup *g)
{
    struct machine *m = ctx;
    char list[512];
    sys_read(g->root, list, sizeof list,
             g->version == 2 ? "%s/cpuset.cpus.effective" : "%s/cpuset.effective_cpus", g->path);
    const int n = sys_cpulist_count(list);
    if (n > 0 && n < m->processors) take_cpus(m, n);
}

void machine_cgroup_detect(struct machine *m, const char *root)
{
    cgroup_walk(root, 0, "memory", level_memory, m);
    cgroup_walk(root, 0, "cpu", level_cpu, m);
    cgroup_walk(root, 0, "cpuset", level_cpuset, m);
    if (m->memory_bytes >= 0 && m->cgroup_memory_bytes >= m->memory_bytes) m->cgroup_memory_bytes = -1;
    if (m->cgroup_cpus >= m->processors) m->cgroup_cpus = NAN;
}
