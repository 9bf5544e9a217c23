/* base/numa.h - NUMA nodes: places memory on nodes, and runs threads on the processors of a node. */
#ifndef QDYNO_BASE_NUMA_H
#define QDYNO_BASE_NUMA_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct numa; /* the nodes that this process may use; one node when the system reports none */

/* *out: numa_close. Errors: ERR_NOMEM; ERR_IO when the topology cannot be read. */
enum err_code numa_open(struct numa **out, struct err *why);
void numa_close(struct numa *n); /* NULL is fine; a thread that entered a node leaves it */

int numa_count(const struct numa *n);           /* at least 1 */
int numa_cores(const struct numa *n, int node); /* physical cores of the node; 0: it has only memory */

/* Where threads run and memory lies. On one node they are the same. */
enum numa_policy {
    NUMA_OFF,        /* wherever the system puts them */
    NUMA_SPREAD,     /* threads on all nodes, as many as the node has of the cores; memory where it is first
                        written */
    NUMA_LOCAL,      /* threads and memory on one node, numa_home */
    NUMA_INTERLEAVE, /* threads as SPREAD; the pages of memory on all nodes in turn */
    NUMA_REPLICATE,  /* as SPREAD, but weights are copied to every node that has threads */
};
int numa_home(const struct numa *n); /* the node with the most cores, of equals the first */
/* The node of a thread, 0 <= member < members; -1 with NUMA_OFF. Members of a node are neighbours. */
int numa_member_node(const struct numa *n, enum numa_policy policy, int member, int members);
/* How many threads compute by default under that policy, where `cores` do without one. Opens the nodes
 * itself. */
int numa_default_threads(enum numa_policy policy, int cores);

/* Asks the system to put the pages of p on all nodes in turn. As numa_place in all else. */
bool numa_interleave(const struct numa *n, void *p, size_t bytes);

/* Asks the system to allocate the pages of p, none of which may be in use yet, on this node, or elsewhere if
 * it is full (under a strict policy the kernel would kill the process). False: the system refuses. */
bool numa_place(const struct numa *n, int node, void *p, size_t bytes);

/* Binds the calling thread, and threads it starts from now on, to the node's processors. numa_leave restores
 * the previous binding. One node at a time. False: the system refuses; nothing changed. */
bool numa_enter(struct numa *n, int node);
void numa_leave(struct numa *n);

#endif
