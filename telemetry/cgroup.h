/* telemetry/cgroup.h - the control groups a process is in, versions 1 and 2 (inside telemetry/).
 *
 * /proc/meminfo and nproc show the host. The limit that kills or throttles us is in the control group, at any
 * level above us, in version 2 (one tree) or version 1 (one tree per controller). Inside a container the path
 * in /proc/PID/cgroup may not exist below /sys/fs/cgroup (the container's own group is mounted as the top),
 * so every level from that path to the top is tried. */
#ifndef QDYNO_TELEMETRY_CGROUP_H
#define QDYNO_TELEMETRY_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

enum { CGROUP_PATH = 640 };
struct cgroup {
    const char *root;
    int version;            /* 1 or 2 */
    char path[CGROUP_PATH]; /* "/sys/fs/cgroup/memory/docker/1f3…", below the root */
};

/* Calls level(ctx, group) for each level of the tree that may hold `controller` ("memory" "cpu" "cpuset"
 * "cpuacct"), from the process's own group to the top. In version 2 all controllers are in one tree: a level
 * that lacks this one has none of its files. pid 0: this process (or the one whose groups were recorded). */
void cgroup_walk(const char *root, int pid, const char *controller,
                 void (*level)(void *ctx, const struct cgroup *g), void *ctx);

/* A limit in bytes as both versions write it; -1: none. */
int64_t cgroup_memory_limit(const struct cgroup *g);
int64_t cgroup_memory_used(const struct cgroup *g); /* -1 unknown */
/* Processors its quota allows; NAN: no quota. */
double cgroup_cpu_limit(const struct cgroup *g);

#endif
