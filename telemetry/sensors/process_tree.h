/* telemetry/sensors/process_tree.h - a process, its children and their threads, from /proc (inside telemetry/). */
#ifndef QDYNO_TELEMETRY_PROCESS_TREE_H
#define QDYNO_TELEMETRY_PROCESS_TREE_H

#include <stdint.h>

enum { TREE_MAX = 256 };
struct tree {
    int root_pid; /* 0: none */
    int count;
    int pid[TREE_MAX];
    int64_t walked_ns; /* 0: never */
};

/* The tree below root_pid, which is pid[0]; count 0 for pid 0. Walked at most twice a second: between walks
 * the tree stays as it was. */
void tree_walk(struct tree *t, const char *root, int root_pid, int64_t now_ns);

/* Thread ids of a process, at most `max`; -1 when the process is gone. */
int tree_threads(const char *root, int pid, int *tid, int max);

#endif
