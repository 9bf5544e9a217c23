/* telemetry/machine/machine_cgroup.c - limits of a container: of the limits at all levels of its control
 * groups, the lowest counts. */
#include "telemetry/machine/machine.h"

#include <math.h>
#include <string.h>

#include "telemetry/machine/machine_parts.h"
#include "base/sysfs/sysfs.h"

static void limit_lower(int64_t *limit, int64_t value)
{
    if (value >= 0 && (*limit < 0 || value < *limit)) *limit = value;
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

static void machine_usable_detect(struct machine *m, const char *root)
{
    struct usable_cpus u;
    usable_cpus_read(&u, root);     /* always, so that a recording contains the files */
    if (!*root) u = *usable_cpus(); /* without what this process bound itself to since */
    m->usable_processors = u.processors ? u.processors : -1;
    m->usable_cores = u.cores ? u.cores : -1;
    m->usable_threads = u.processors ? u.threads : -1;
    m->cgroup_cpus = u.quota_cpus;
    if (u.cpuset && u.cpuset < m->processors && !(m->cgroup_cpus <= u.cpuset)) m->cgroup_cpus = u.cpuset;
    if (m->cgroup_cpus >= m->processors) m->cgroup_cpus = NAN; /* limits nothing */
    if (u.online_cores) m->cores = u.online_cores;
}

void machine_cgroup_detect(struct machine *m, const char *root)
{
    cgroup_walk(root, 0, "memory", level_memory, m);
    machine_usable_detect(m, root);
    if (m->memory_bytes >= 0 && m->cgroup_memory_bytes >= m->memory_bytes) m->cgroup_memory_bytes = -1;
}

int machine_usable_cores(const struct machine *m)
{
    return MAX(m->usable_cores > 0 ? m->usable_cores : m->cores, 1);
}

int machine_threads(const struct machine *m)
{
    if (m->usable_threads > 0) return m->usable_threads;
    const int cores = MAX(m->cores, 1);
    return m->cgroup_cpus >= 1 && m->cgroup_cpus < cores ? (int)m->cgroup_cpus : cores;
}
