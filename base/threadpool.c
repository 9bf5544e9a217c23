/* base/threadpool.c - a generation counter starts a region, a countdown ends it. Members poll the generation
 * while they spin, and then sleep on it with a futex; the caller does the same with the countdown. */
#include "base/threadpool.h"

#include <errno.h>
#include <hwloc.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/topology.h"
#include "base/usable_cpus.h"

/* Spinning helps only while each member has a processor; with more members it takes time from working
 * members. */
enum { CACHE_LINE = 64, SPIN_DEFAULT_NS = 200000, SPIN_CROWDED_NS = 2000 };

struct member {
    struct threadpool *pool;
    int index;
    pthread_t thread;
};

struct threadpool {
    int size;
    bool pinned, caller_bound;
    int64_t spin_ns;
    hwloc_topology_t topology; /* NULL without affinity and NUMA policy */
    hwloc_cpuset_t *cpus;      /* [size] one processor each, or those of the member's node */
    int *nodes;                /* [size] memory node of each member; NULL: any */
    hwloc_cpuset_t caller_before;
    struct member *members; /* [size - 1] */
    int started;            /* threads that exist */
    atomic_int bind_failed;

    bool roams;     /* members have several processors to choose from, and there are enough for all */
    atomic_int *at; /* [size] processor on which each member last woke up; the caller: last woke others */

    int present;       /* members of the running region: size or 1 */
    threadpool_fn *fn; /* written before generation rises */
    void *arg;
    bool quit;

    _Alignas(CACHE_LINE) atomic_uint generation;
    atomic_int sleepers; /* members in the kernel */
    _Alignas(CACHE_LINE) atomic_uint running;
    atomic_int caller_sleeps;
    _Alignas(CACHE_LINE) atomic_uint barrier_count;
    _Alignas(CACHE_LINE) atomic_uint barrier_phase;
    _Alignas(CACHE_LINE) atomic_llong next;
};

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

static void futex_wait(atomic_uint *word, unsigned seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake_all(atomic_uint *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Spins until the word differs from `seen`, at most spin_ns. False: it did not change. */
static bool spin_until_change(atomic_uint *word, unsigned seen, int64_t spin_ns)
{
    int64_t until = 0;
    for (int i = 0;; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != seen) return true;
        relax();
        if (i & 63) continue; /* reading the clock is slower than reading the word */
        int64_t t = clock_ns();
        if (!until) until = t + spin_ns;
        if (t >= until) return false;
    }
}

/* Sleeps in the kernel until the word differs from `seen`. `sleepers` counts the sleeping threads, so that
 * the waking thread can skip the system call when there are none. */
static void sleep_until_change(atomic_uint *word, unsigned seen, atomic_int *sleepers)
{
    do {
        atomic_fetch_add(sleepers, 1);
        if (atomic_load(word) == seen) futex_wait(word, seen);
        atomic_fetch_sub(sleepers, 1);
    } while (atomic_load_explicit(word, memory_order_acquire) == seen);
}

static bool bind_member(struct threadpool *pool, int index)
{
    return pool->cpus[index] && !hwloc_set_cpubind(pool->topology, pool->cpus[index], HWLOC_CPUBIND_THREAD);
}

/* The kernel may wake a member on the processor of the thread that woke it. Both then alternate in spinning
 * for each other, and regions of microseconds take a millisecond until the kernel rebalances tens of
 * milliseconds later. So a member that wakes on a processor of a lower-numbered member excludes all members'
 * processors from its affinity for a moment; the kernel then moves it to another one. */
static void member_move_away(struct threadpool *pool, int index)
{
    cpu_set_t allowed, elsewhere;
    bool shared = false;
    const int here = sched_getcpu();
    atomic_store(&pool->at[index], here);
    for (int i = 0; i < index; i++) shared |= atomic_load(&pool->at[i]) == here;
    if (!shared || sched_getaffinity(0, sizeof allowed, &allowed)) return;
    elsewhere = allowed;
    for (int i = 0; i < pool->size; i++) {
        const int cpu = atomic_load(&pool->at[i]);
        if (cpu >= 0) CPU_CLR((size_t)cpu, &elsewhere);
    }
    if (!CPU_COUNT(&elsewhere) || sched_setaffinity(0, sizeof elsewhere, &elsewhere)) return;
    atomic_store(&pool->at[index], sched_getcpu());
    sched_setaffinity(0, sizeof allowed, &allowed);
}

static void *member_main(void *p)
{
    struct member *m = p;
    struct threadpool *pool = m->pool;
    unsigned seen = 0;
    if (pool->topology && !bind_member(pool, m->index)) atomic_fetch_add(&pool->bind_failed, 1);
    for (;;) {
        const bool slept = !spin_until_change(&pool->generation, seen, pool->spin_ns);
        if (slept) sleep_until_change(&pool->generation, seen, &pool->sleepers);
        seen = atomic_load_explicit(&pool->generation, memory_order_acquire);
        if (pool->quit) return NULL;
        if (slept && pool->roams) member_move_away(pool, m->index);
        pool->fn(pool->arg, m->index, pool->size);
        if (atomic_fetch_sub_explicit(&pool->running, 1, memory_order_acq_rel) == 1 &&
            atomic_load(&pool->caller_sleeps))
            futex_wake_all(&pool->running);
    }
}

static bool load_topology(struct threadpool *pool)
{
    pool->cpus = calloc((size_t)pool->size, sizeof *pool->cpus);
    return pool->cpus && topology_load(&pool->topology);
}

/* Assigns the processors of a memory node to each member. */
static bool choose_nodes(struct threadpool *pool, enum numa_policy policy)
{
    struct numa *n;
    pool->nodes = calloc((size_t)pool->size, sizeof *pool->nodes);
    if (!pool->nodes || !load_topology(pool) || numa_open(&n, NULL)) return false;
    bool all = true;
    for (int i = 0; i < pool->size; i++) {
        pool->nodes[i] = numa_member_node(n, policy, i, pool->size);
        const hwloc_obj_t node = hwloc_get_obj_by_type(pool->topology, HWLOC_OBJ_NUMANODE,
                                                       (unsigned)pool->nodes[i]);
        all &= node && (pool->cpus[i] = hwloc_bitmap_dup(node->cpuset)) != NULL;
    }
    numa_close(n);
    return all;
}

/* Assigns a processor to each member, in the order of the affinity. */
static bool choose_cpus(struct threadpool *pool, enum affinity affinity)
{
    if (!load_topology(pool)) return false;
    int cores = hwloc_get_nbobjs_by_type(pool->topology, HWLOC_OBJ_CORE);
    if (cores < 1) cores = hwloc_get_nbobjs_by_type(pool->topology, HWLOC_OBJ_PU);
    if (affinity == AFFINITY_SPREAD) {
        hwloc_obj_t root = hwloc_get_root_obj(pool->topology);
        return !hwloc_distrib(pool->topology, &root, 1, pool->cpus, (unsigned)pool->size, INT_MAX, 0);
    }
    for (int i = 0; i < pool->size; i++) {
        hwloc_obj_t core = hwloc_get_obj_by_type(pool->topology, HWLOC_OBJ_CORE, (unsigned)(i % cores));
        if (!core) core = hwloc_get_obj_by_type(pool->topology, HWLOC_OBJ_PU, (unsigned)(i % cores));
        if (!core || !(pool->cpus[i] = hwloc_bitmap_dup(core->cpuset))) return false;
        int sibling = i / cores, cpu = hwloc_bitmap_first(pool->cpus[i]);
        for (int next; sibling > 0 && (next = hwloc_bitmap_next(pool->cpus[i], cpu)) >= 0; sibling--)
            cpu = next;
        hwloc_bitmap_only(pool->cpus[i], (unsigned)cpu);
    }
    return true;
}

static void pin_caller(struct threadpool *pool)
{
    pool->caller_before = hwloc_bitmap_alloc();
    if (!pool->caller_before || hwloc_get_cpubind(pool->topology, pool->caller_before, HWLOC_CPUBIND_THREAD))
        return;
    pool->caller_bound = bind_member(pool, 0);
}

static void region_empty(void *arg, int member, int size)
{
    (void)arg, (void)member, (void)size;
}

enum err_code threadpool_open(struct threadpool **out, const struct threadpool_options *o, struct err *why)
{
    *out = NULL;
    if (o->threads < 1) return err_set(why, ERR_USAGE, "threads must be at least 1, not %d", o->threads);
    struct threadpool *pool = aligned_alloc(CACHE_LINE, sizeof *pool);
    if (!pool) return err_set(why, ERR_NOMEM, "out of memory for the thread pool");
    const struct usable_cpus *usable = usable_cpus(); /* before any member is bound */
    const bool crowded = o->threads > (usable->processors ? usable->processors : usable->threads);
    *pool = (struct threadpool){ .size = o->threads,
                                 .spin_ns = crowded      ? SPIN_CROWDED_NS
                                            : o->spin_ns ? o->spin_ns
                                                         : SPIN_DEFAULT_NS };
    int cause = ENOMEM;
    pool->members = calloc((size_t)o->threads, sizeof *pool->members);
    pool->at = calloc((size_t)o->threads, sizeof *pool->at);
    bool pin = o->numa != NUMA_OFF ? choose_nodes(pool, o->numa)
                                   : o->affinity != AFFINITY_NONE && choose_cpus(pool, o->affinity);
    if (pin) pin_caller(pool);
    pool->roams = (!pin || pool->nodes) && !crowded; /* on the processors of its node */
    for (int i = 0; pool->at && i < pool->size; i++) atomic_init(&pool->at[i], -1);
    for (int i = 1; pool->members && pool->at && i < pool->size; i++, pool->started++) {
        struct member *m = &pool->members[i - 1];
        *m = (struct member){ .pool = pool, .index = i };
        if ((cause = pthread_create(&m->thread, NULL, member_main, m))) break;
    }
    if (!pool->members || !pool->at || pool->started != pool->size - 1) {
        int started = pool->started;
        threadpool_close(pool);
        return err_set(why, ERR_NOMEM, "cannot start %d threads (%d started): %s", o->threads, started + 1,
                       strerror(cause));
    }
    threadpool_run(pool, region_empty, NULL); /* after it all members have tried to bind */
    pool->pinned = pin && pool->caller_bound && !atomic_load(&pool->bind_failed);
    *out = pool;
    return ERR_OK;
}

void threadpool_close(struct threadpool *pool)
{
    if (!pool) return;
    pool->quit = true;
    atomic_fetch_add(&pool->generation, 1);
    futex_wake_all(&pool->generation);
    for (int i = 0; i < pool->started; i++) pthread_join(pool->members[i].thread, NULL);
    if (pool->caller_bound) hwloc_set_cpubind(pool->topology, pool->caller_before, HWLOC_CPUBIND_THREAD);
    if (pool->caller_before) hwloc_bitmap_free(pool->caller_before);
    for (int i = 0; pool->cpus && i < pool->size; i++)
        if (pool->cpus[i]) hwloc_bitmap_free(pool->cpus[i]);
    if (pool->topology) hwloc_topology_destroy(pool->topology);
    free(pool->cpus);
    free(pool->nodes);
    free(pool->members);
    free(pool->at);
    free(pool);
}

int threadpool_size(const struct threadpool *pool)
{
    return pool->size;
}

int threadpool_node(const struct threadpool *pool, int member)
{
    return pool->nodes ? pool->nodes[member] : -1;
}

bool threadpool_is_pinned(const struct threadpool *pool)
{
    return pool->pinned;
}

void threadpool_run(struct threadpool *pool, threadpool_fn *fn, void *arg)
{
    if (pool->size == 1) {
        threadpool_run_alone(pool, fn, arg);
        return;
    }
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    pool->present = pool->size;
    pool->fn = fn;
    pool->arg = arg;
    atomic_store_explicit(&pool->running, (unsigned)pool->size - 1, memory_order_relaxed);
    if (pool->roams && atomic_load(&pool->sleepers)) atomic_store(&pool->at[0], sched_getcpu());
    atomic_fetch_add(&pool->generation, 1); /* releases fn and arg */
    const bool woken = atomic_load(&pool->sleepers);
    if (woken) futex_wake_all(&pool->generation);
    fn(arg, 0, pool->size);
    if (woken && pool->roams) sched_yield(); /* a member that woke on this processor can run and move away */
    for (unsigned left; (left = atomic_load_explicit(&pool->running, memory_order_acquire));)
        if (!spin_until_change(&pool->running, left, pool->spin_ns))
            sleep_until_change(&pool->running, left, &pool->caller_sleeps);
}

void threadpool_run_alone(struct threadpool *pool, threadpool_fn *fn, void *arg)
{
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    pool->present = 1;
    fn(arg, 0, 1);
}

void threadpool_barrier(struct threadpool *pool)
{
    if (pool->present == 1) return;
    unsigned phase = atomic_load_explicit(&pool->barrier_phase, memory_order_acquire);
    if (atomic_fetch_add_explicit(&pool->barrier_count, 1, memory_order_acq_rel) + 1 ==
        (unsigned)pool->size) {
        atomic_store_explicit(&pool->barrier_count, 0, memory_order_relaxed);
        atomic_fetch_add_explicit(&pool->barrier_phase, 1, memory_order_release);
        return;
    }
    for (int i = 0; atomic_load_explicit(&pool->barrier_phase, memory_order_acquire) == phase; i++) {
        relax();
        if ((i & 255) == 255) sched_yield(); /* more threads than processors */
    }
}

int64_t threadpool_next(struct threadpool *pool, int64_t step)
{
    return atomic_fetch_add_explicit(&pool->next, step, memory_order_relaxed);
}

int threadpool_default_threads(void)
{
    return usable_cpus()->threads;
}
