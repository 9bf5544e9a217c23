/* base/threadpool.h - runs short parallel regions on a fixed set of threads.
 *
 * A forward pass has hundreds of small parallel regions per token, so starting and ending one must take
 * about a microsecond: idle threads spin for a while before they sleep in the kernel. The calling thread is
 * member 0 and works, too. One region at a time; only the thread that opened the pool may start it. */
#ifndef QDYNO_BASE_THREADPOOL_H
#define QDYNO_BASE_THREADPOOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/numa.h"

struct threadpool;

enum affinity {
    AFFINITY_NONE,    /* the kernel's scheduler decides */
    AFFINITY_COMPACT, /* member i on the i-th physical core; SMT siblings when there are more members */
    AFFINITY_SPREAD,  /* members as far apart as the topology allows (sockets, NUMA nodes) */
};

struct threadpool_options {
    int threads;            /* at least 1, including the caller */
    enum affinity affinity; /* within the cpuset of the process; used with NUMA_OFF only */
    enum numa_policy numa;  /* each member may use all processors of its node */
    int64_t spin_ns;        /* how long an idle member spins; 0: a default that suits decoding */
};

/* *out: threadpool_close, which also restores the caller's binding. Errors: ERR_NOMEM, ERR_USAGE (threads
 * < 1). It is not an error if the system refuses to bind threads: see threadpool_is_pinned. */
enum err_code threadpool_open(struct threadpool **out, const struct threadpool_options *options,
                              struct err *why);
void threadpool_close(struct threadpool *pool); /* NULL is fine */

int threadpool_size(const struct threadpool *pool);
bool threadpool_is_pinned(const struct threadpool *pool);
int threadpool_node(const struct threadpool *pool, int member); /* the memory node of a member; -1: any */

/* Runs fn(arg, member, size) once on each member; returns when all are done. */
typedef void threadpool_fn(void *arg, int member, int size);
void threadpool_run(struct threadpool *pool, threadpool_fn *fn, void *arg);

/* Runs fn(arg, 0, 1) on the calling thread only, for work that is too small to wake the others. */
void threadpool_run_alone(struct threadpool *pool, threadpool_fn *fn, void *arg);

/* Within a region: waits until all members have called it. Writes before it are visible after it. */
void threadpool_barrier(struct threadpool *pool);

/* Within a region: returns 0, step, 2 * step ... once each, to share out work chunks. Starts at 0. */
int64_t threadpool_next(struct threadpool *pool, int64_t step);

/* The default for `threads`: how many physical cores this process may use within cpuset and cgroup quota; at
 * least 1. */
int threadpool_default_threads(void);

#endif
