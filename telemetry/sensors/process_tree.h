/* telemetry/sensors/process_tree.h - finds the descendants of a process and their threads in
 * /proc (internal to telemetry/sensors). */
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

/* Updates the tree below root_pid, which becomes pid[0]; for pid 0 the count is 0. Searches /proc at most
 * twice a second; calls in between leave the tree unchanged. */
void tree_walk(struct tree *t, const char *root, int root_pid, int64_t now_ns);

/* Writes the thread ids of a process to tid[], at most `max`, and returns their number. -1: it has ended. */
int tree_threads(const char *root, int pid, int *tid, int max);

#endif
