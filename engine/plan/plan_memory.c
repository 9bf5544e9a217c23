/* How much memory this process can still allocate, by the kernel's and the control groups' account.
 * /proc/meminfo does not contain the limit of a container, and a process that exceeds it is killed without an
 * error message. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/plan/plan.h"

enum { SMALL_FILE = 1 << 20, PATH_SIZE = 4096 };

/* The value of a line "Name: 123 kB" or "name 123", times `unit`; -1: no such line. */
static int64_t lines_field(const char *text, const char *name, int64_t unit)
{
    const size_t n = strlen(name);
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (strncmp(line, name, n) || (line[n] != ':' && line[n] != ' ')) continue;
        const char *digits = line + n + strspn(line + n, ": \t");
        char *end;
        const long long v = strtoll(digits, &end, 10);
        return end == digits || v < 0 ? -1 : (int64_t)v * unit;
    }
    return -1;
}

/* The number in the file root/dir/name. root: "", or the folder of a recorded machine in tests. Every failure
 * is -1, because then no limit is known: no file, "max", or a number beyond any machine (cgroup v1 writes one
 * for "no limit"). */
static int64_t file_number(const char *root, const char *dir, const char *name)
{
    char path[PATH_SIZE], *text;
    if (snprintf(path, sizeof path, "%s%s/%s", root, dir, name) >= (int)sizeof path) return -1;
    if (file_read(&text, NULL, path, SMALL_FILE, NULL)) return -1;
    text[strcspn(text, "\n")] = '\0';
    int64_t v = -1;
    if (!str_to_i64(text, &v) || v >= INT64_MAX / 2) v = -1;
    free(text);
    return v;
}

static int64_t stat_field(const char *root, const char *dir, const char *name)
{
    char path[PATH_SIZE], *text;
    if (snprintf(path, sizeof path, "%s%s/memory.stat", root, dir) >= (int)sizeof path) return 0;
    if (file_read(&text, NULL, path, SMALL_FILE, NULL)) return 0;
    const int64_t v = lines_field(text, name, 1);
    free(text);
    return MAX(v, 0);
}

struct cgroup_version {
    const char *prefix, *mount, *limit, *usage;
};

/* The smallest rest that any group from `dir` up to the mount point leaves; -1: no limits. */
static int64_t group_rest(const char *root, const struct cgroup_version *v, const char *group)
{
    char dir[PATH_SIZE];
    int64_t least = -1;
    if (snprintf(dir, sizeof dir, "%s%s", v->mount, strcmp(group, "/") ? group : "") >= (int)sizeof dir)
        return -1;
    while (strlen(dir) >= strlen(v->mount)) {
        const int64_t limit = file_number(root, dir, v->limit), used = file_number(root, dir, v->usage);
        if (limit >= 0 && used >= 0) {
            const int64_t cache = stat_field(root, dir, "inactive_file") +
                                  stat_field(root, dir, "active_file");
            const int64_t left = MAX(limit - MAX(used - cache, 0), 0);
            least = least < 0 ? left : MIN(least, left);
        }
        char *slash = strrchr(dir, '/');
        if (!slash) break;
        *slash = '\0';
    }
    return least;
}

static int64_t cgroup_rest(const char *root)
{
    static const struct cgroup_version VERSIONS[] = {
        { "0::", "/sys/fs/cgroup", "memory.max", "memory.current" },
        { ":memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes" },
    };
    char path[PATH_SIZE], *text;
    int64_t least = -1;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (file_read(&text, NULL, path, SMALL_FILE, NULL)) return -1;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        for (size_t i = 0; i < COUNT_OF(VERSIONS); i++) {
            const char *at = strstr(line, VERSIONS[i].prefix);
            if (!at || (i == 0 && at != line)) continue;
            const char *group = at + strlen(VERSIONS[i].prefix);
            /* In a container the path may not exist: the container's own group is then at the mount point. */
            const int64_t left = group_rest(root, &VERSIONS[i], strstr(group, "..") ? "/" : group);
            if (left >= 0) least = least < 0 ? left : MIN(least, left);
        }
    free(text);
    return least;
}

int64_t memory_available(const char *root)
{
    char path[PATH_SIZE], *text;
    int64_t free_bytes = -1;
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (!file_read(&text, NULL, path, SMALL_FILE, NULL)) {
        free_bytes = lines_field(text, "MemAvailable", 1024);
        free(text);
    }
    const int64_t left = cgroup_rest(root);
    if (left >= 0) return free_bytes < 0 ? left : MIN(free_bytes, left);
    return free_bytes;
}
