/* telemetry/machine_cgroup.c - what a container may really use.
 *
 * /proc/meminfo and nproc show the host. The limit that kills or throttles us is in the control group, at any
 * level above us, in version 2 (one tree) or version 1 (one tree per controller). Inside a container the path
 * in /proc/self/cgroup may not exist below /sys/fs/cgroup (the container's own group is mounted as the top),
 * so every level from that path to the top is tried and the tightest limit counts. */
#include "telemetry/machine.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "telemetry/sysfs.h"

/* Version 1 writes "no limit" as the largest page-aligned number. */
static const int64_t V1_NO_LIMIT = INT64_C(1) << 60;

struct group {
    const char *root;
    char base[128]; /* "/sys/fs/cgroup" or "/sys/fs/cgroup/memory" */
    char path[512]; /* "/user.slice/..."; "/" at the top */
};

/* One level up; false at the top. */
static bool group_up(struct group *g)
{
    char *slash = strrchr(g->path, '/');
    if (!slash || !strcmp(g->path, "/")) return false;
    if (slash == g->path)
        g->path[1] = '\0';
    else
        *slash = '\0';
    return true;
}

static void take_min(int64_t *limit, int64_t value)
{
    if (value >= 0 && (*limit < 0 || value < *limit)) *limit = value;
}

/* What is still free below a limit: page cache that can be dropped counts as free. */
static void memory_headroom(struct machine *m, const struct group *g, int64_t limit, const char *usage_file,
                            const char *inactive_key)
{
    char stat[8192];
    int64_t usage = sys_integer(g->root, "%s%s/%s", g->base, g->path, usage_file);
    if (usage < 0) return;
    sys_read(g->root, stat, sizeof stat, "%s%s/memory.stat", g->base, g->path);
    double inactive = sys_field(stat, inactive_key);
    int64_t left = limit - usage + (isnan(inactive) ? 0 : (int64_t)inactive);
    take_min(&m->memory_available_bytes, MAX(left, 0));
}

static void take_cpus(struct machine *m, double cpus)
{
    if (cpus > 0 && !(m->cgroup_cpus <= cpus)) m->cgroup_cpus = cpus;
}

/* A set smaller than the machine is a limit too. */
static void take_cpuset(struct machine *m, const struct group *g, const char *file)
{
    char list[512];
    if (sys_read(g->root, list, sizeof list, "%s%s/%s", g->base, g->path, file) <= 0) return;
    int n = sys_cpulist_count(list);
    if (n > 0 && n < m->processors) take_cpus(m, n);
}

static void level_v2(struct machine *m, const struct group *g)
{
    char text[64];
    double quota, period;
    int64_t limit = sys_integer(g->root, "%s%s/memory.max", g->base, g->path); /* "max" is no number */
    if (limit >= 0) {
        take_min(&m->cgroup_memory_bytes, limit);
        memory_headroom(m, g, limit, "memory.current", "inactive_file");
    }
    sys_read(g->root, text, sizeof text, "%s%s/cpu.max", g->base, g->path);
    if (sscanf(text, "%lf %lf", &quota, &period) == 2 && period > 0) take_cpus(m, quota / period);
    take_cpuset(m, g, "cpuset.cpus.effective");
}

static void level_v1_memory(struct machine *m, const struct group *g)
{
    int64_t limit = sys_integer(g->root, "%s%s/memory.limit_in_bytes", g->base, g->path);
    if (limit < 0 || limit >= V1_NO_LIMIT) return;
    take_min(&m->cgroup_memory_bytes, limit);
    memory_headroom(m, g, limit, "memory.usage_in_bytes", "total_inactive_file");
}

static void level_v1_cpu(struct machine *m, const struct group *g)
{
    double quota = sys_number(g->root, "%s%s/cpu.cfs_quota_us", g->base, g->path);
    double period = sys_number(g->root, "%s%s/cpu.cfs_period_us", g->base, g->path);
    if (quota > 0 && period > 0) take_cpus(m, quota / period); /* quota -1: none */
}

static void level_v1_cpuset(struct machine *m, const struct group *g)
{
    take_cpuset(m, g, "cpuset.effective_cpus");
}

static bool list_has(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; p; p = strchr(p, ',')) {
        if (*p == ',') p++;
        if (!strncmp(p, word, n) && (p[n] == '\0' || p[n] == ',')) return true;
    }
    return false;
}

static void walk(struct machine *m, struct group g, void (*level)(struct machine *, const struct group *))
{
    do level(m, &g);
    while (group_up(&g));
}

/* One line of /proc/self/cgroup: "0::/path" or "4:memory:/path". */
static void line_apply(struct machine *m, const char *root, char *line)
{
    static const struct {
        const char *controller;
        void (*level)(struct machine *, const struct group *);
    } V1[] = { { "memory", level_v1_memory }, { "cpu", level_v1_cpu }, { "cpuset", level_v1_cpuset } };
    char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path || path[1] != '/') return;
    controllers++;
    *path++ = '\0';
    struct group g = { .root = root };
    snprintf(g.path, sizeof g.path, "%s", path);
    if (!*controllers) {
        bool hybrid = sys_exists(root, "/sys/fs/cgroup/unified");
        snprintf(g.base, sizeof g.base, "/sys/fs/cgroup%s", hybrid ? "/unified" : "");
        walk(m, g, level_v2);
        return;
    }
    for (size_t i = 0; i < COUNT_OF(V1); i++) {
        if (!list_has(controllers, V1[i].controller)) continue;
        /* mounted under its own name or under the whole list's ("cpu,cpuacct") */
        const char *folder = sys_exists(root, "/sys/fs/cgroup/%s", controllers) ? controllers
                                                                                : V1[i].controller;
        snprintf(g.base, sizeof g.base, "/sys/fs/cgroup/%s", folder);
        walk(m, g, V1[i].level);
    }
}

void machine_cgroup_detect(struct machine *m, const char *root)
{
    char text[4096];
    if (sys_read(root, text, sizeof text, "/proc/self/cgroup") <= 0) return;
    for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        line_apply(m, root, line);
    if (m->memory_bytes >= 0 && m->cgroup_memory_bytes >= m->memory_bytes) m->cgroup_memory_bytes = -1;
    if (m->cgroup_cpus >= m->processors) m->cgroup_cpus = NAN;
}
