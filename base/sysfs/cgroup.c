/* base/sysfs/cgroup.c - finds and reads control groups. */
#include "base/sysfs/sysfs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* In version 1 "no limit" is the largest page-aligned number. */
static const int64_t V1_NO_LIMIT = INT64_C(1) << 60;

static bool list_has(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; p; p = strchr(p, ',')) {
        if (*p == ',') p++;
        if (!strncmp(p, word, n) && (p[n] == '\0' || p[n] == ',')) return true;
    }
    return false;
}

/* Visits every level from `path` ("/user.slice/...") up to the top of the tree mounted at `mount`. */
static void cgroup_walk_up(struct cgroup *g, const char *mount, const char *path,
                           void (*level)(void *ctx, const struct cgroup *g), void *ctx)
{
    const size_t top = (size_t)snprintf(g->path, sizeof g->path, "%s", mount);
    snprintf(g->path + top, sizeof g->path - top, "%s", strcmp(path, "/") ? path : "");
    for (;;) {
        level(ctx, g);
        if (strlen(g->path) <= top) return;
        *strrchr(g->path, '/') = '\0';
    }
}

void cgroup_walk(const char *root, int pid, const char *controller,
                 void (*level)(void *ctx, const struct cgroup *g), void *ctx)
{
    char text[4096], mount[160];
    struct cgroup g = { .root = root };
    if (pid)
        sys_read(root, text, sizeof text, "/proc/%d/cgroup", pid);
    else
        sys_read(root, text, sizeof text, "/proc/self/cgroup");
    /* lines "0::/path" (version 2) and "4:memory:/path" */
    for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path || path[1] != '/') continue;
        controllers++;
        *path++ = '\0';
        g.version = *controllers ? 1 : 2;
        if (g.version == 2) {
            bool hybrid = sys_exists(root, "/sys/fs/cgroup/unified");
            snprintf(mount, sizeof mount, "/sys/fs/cgroup%s", hybrid ? "/unified" : "");
        } else {
            if (!list_has(controllers, controller)) continue;
            /* mounted under the controller's name or under the whole list ("cpu,cpuacct") */
            bool whole = sys_exists(root, "/sys/fs/cgroup/%s", controllers);
            snprintf(mount, sizeof mount, "/sys/fs/cgroup/%s", whole ? controllers : controller);
        }
        cgroup_walk_up(&g, mount, path, level, ctx);
    }
}

int64_t cgroup_memory_limit(const struct cgroup *g)
{
    if (g->version == 2) return sys_integer(g->root, "%s/memory.max", g->path); /* the text "max" gives -1 */
    int64_t limit = sys_integer(g->root, "%s/memory.limit_in_bytes", g->path);
    return limit < V1_NO_LIMIT ? limit : -1;
}

int64_t cgroup_memory_used(const struct cgroup *g)
{
    return sys_integer(g->root, g->version == 2 ? "%s/memory.current" : "%s/memory.usage_in_bytes", g->path);
}

double cgroup_cpu_limit(const struct cgroup *g)
{
    double quota = NAN, period = NAN;
    char text[64];
    if (g->version == 2) {
        sys_read(g->root, text, sizeof text, "%s/cpu.max", g->path);
        if (sscanf(text, "%lf %lf", &quota, &period) != 2) return NAN;
    } else {
        quota = sys_number(g->root, "%s/cpu.cfs_quota_us", g->path); /* -1: no quota */
        period = sys_number(g->root, "%s/cpu.cfs_period_us", g->path);
    }
    return quota > 0 && period > 0 ? quota / period : NAN;
}
