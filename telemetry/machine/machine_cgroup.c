/* telemetry/machine/machine_cgroup.c - limits of a container: of the limits at all levels of its control
 * groups, the lowest counts. */
#include "telemetry/machine/machine.h"

#include <math.h>
#include <string.h>

#include "telemetry/machine/machine_parts.h"
#include "telemetry/sysfs/sysfs.h"

static void limit_lower(int64_t *limit, int64_t value)
{
    if (value >= 0 && (*limit < 0 || value < *limit)) *limit = value;
}

static void cpus_lower(struct machine *m, double cpus)
{
    if (cpus > 0 && !(m->cgroup_cpus <= cpus)) m->cgroup_cpus = cpus;
}

/* Applies the limit, and what is still free below it. Page cache that can be dropped counts as free. */
static void level_memory(void *ctx, const struct cgroup *g)
{
    struct machine *m = ctx;
    char stat[8192];
    const int64_t limit = cgroup_memory_limit(g), used = cgroup_memory_used(g);
    if (limit < 0) return;
    limit_lower(&m->cgroup_memory_bytes, limit);
    if (used < 0) return;
    sys_read(g->root, stat, sizeof stat, "%s/memory.stat", g->path);
    const double inactive = sys_field(stat, g->version == 2 ? "inactive_file" : "total_inactive_file");
    const int64_t left = limit - used + (isnan(inactive) ? 0 : (int64_t)inactive);
    limit_lower(&m->memory_available_bytes, MAX(left, 0));
}

static void level_cpu(void *ctx, const struct cgroup *g)
{
    cpus_lower(ctx, cgroup_cpu_limit(g));
}

/* A cpuset smaller than the machine is also a limit. */
static void level_cpuset(void *ctx, const struct cgroup *g)
{
    struct machine *m = ctx;
    char list[512];
    sys_read(g->root, list, sizeof list,
             g->version == 2 ? "%s/cpuset.cpus.effective" : "%s/cpuset.effective_cpus", g->path);
    const int n = sys_cpulist_count(list);
    if (n > 0 && n < m->processors) cpus_lower(m, n);
}

void machine_cgroup_detect(struct machine *m, const char *root)
{
    cgroup_walk(root, 0, "memory", level_memory, m);
    cgroup_walk(root, 0, "cpu", level_cpu, m);
    cgroup_walk(root, 0, "cpuset", level_cpuset, m);
    if (m->memory_bytes >= 0 && m->cgroup_memory_bytes >= m->memory_bytes) m->cgroup_memory_bytes = -1;
    if (m->cgroup_cpus >= m->processors) m->cgroup_cpus = NAN;
}
