/* base/threadpool.h - the same few threads, started thousands of times a second.
 *
 * A forward pass is hundreds of small parallel regions per token, so a region must start and end in about a
 * microsecond: workers spin for a while before they sleep in the kernel. The calling thread is member 0 and
 * works too. One region at a time; only the thread that opened the pool may start one. */
#ifndef QDYNO_BASE_THREADPOOL_H
#define QDYNO_BASE_THREADPOOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct threadpool;

enum affinity {
    AFFINITY_NONE,    /* the kernel's scheduler decides */
    AFFINITY_COMPACT, /* member i on the i-th physical core, neighbours first (one thread a core, then SMT) */
    AFFINITY_SPREAD,  /* members as far apart as the topology allows (sockets, NUMA nodes) */
};

struct threadpool_options {
    int threads;            /* >= 1, the caller included */
    enum affinity affinity; /* through hwloc, within the cpuset the process was given */
    int64_t spin_ns;        /* how long an idle member spins; 0: a default that suits decoding */
};

/* *out owned: threadpool_close. Errors: ERR_NOMEM, ERR_USAGE (threads < 1). A binding the system refuses is
 * no error: threadpool_is_pinned tells. The caller's own binding is restored by threadpool_close. */
enum err_code threadpool_open(struct threadpool **out, const struct threadpool_options *options,
                              struct err *why);
void threadpool_close(struct threadpool *pool); /* NULL is fine */

int threadpool_size(const struct threadpool *pool);
bool threadpool_is_pinned(const struct threadpool *pool);

/* Run fn(arg, member, size) once on each member and return when all are done. */
typedef void threadpool_fn(void *arg, int member, int size);
void threadpool_run(struct threadpool *pool, threadpool_fn *fn, void *arg);

/* The same on the calling thread only, as fn(arg, 0, 1): for work too small to wake the others for. */
void threadpool_run_alone(struct threadpool *pool, threadpool_fn *fn, void *arg);

/* Inside a region: nobody passes before all have come. All writes before it are seen after it. */
void threadpool_barrier(struct threadpool *pool);

/* Inside a region: hand out 0,1,2,... once each (work that is uneven). Each region starts at 0. */
int64_t threadpool_next(struct threadpool *pool, int64_t step);

/* How many processors this process may use (cpuset and cgroup quota respected, at least 1): the default for
 * `threads`. Physical cores, not SMT siblings. */
int threadpool_default_threads(void);

#endif
