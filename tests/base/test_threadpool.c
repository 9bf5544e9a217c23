/* Proves: every member runs exactly once per region; results are visible to the caller; a barrier blocks
 * until all members arrive and lets none through early; a pool with more members than processors still
 * ends; a member moves away from the caller's processor; a thread that enters a NUMA node runs on its
 * processors and returns to its previous binding. */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/base.h"
#include "tests/check.h"

enum { REGIONS = 20000, MEMBERS = 4 };

struct work {
    struct threadpool *pool;
    int64_t count[MEMBERS];
    atomic_int arrived;
    atomic_int early;
    atomic_llong sum;
};

static void count_members(void *arg, int member, int size)
{
    struct work *w = arg;
    (void)size;
    w->count[member]++;
}

static void regions(void **state)
{
    (void)state;
    for (int threads = 1; threads <= MEMBERS; threads++) {
        struct err why;
        struct work w = { 0 };
        CHECK_OK(threadpool_open(&w.pool, &(struct threadpool_options){ .threads = threads }, &why));
        for (int i = 0; i < REGIONS; i++) threadpool_run(w.pool, count_members, &w);
        for (int m = 0; m < MEMBERS; m++) CHECK_EQ(w.count[m], (m < threads ? REGIONS : 0));
        threadpool_close(w.pool);
    }
}

static void sleepers_wake(void **state)
{
    (void)state;
    struct err why;
    struct work w = { 0 };
    CHECK_OK(threadpool_open(&w.pool, &(struct threadpool_options){ .threads = 3, .spin_ns = 1000 }, &why));
    for (int i = 0; i < 50; i++) {
        threadpool_run(w.pool, count_members, &w);
        clock_sleep_ns(2000000); /* far beyond the spin: everybody sleeps in the kernel */
    }
    CHECK_EQ(w.count[0], 50);
    CHECK_EQ(w.count[1], 50);
    CHECK_EQ(w.count[2], 50);
    threadpool_close(w.pool);
}

struct crowd {
    int at[2]; /* where each member ran */
    cpu_set_t allowed[2];
    int gather; /* >= 0: members go to this processor */
};

static void crowd_member(void *arg, int member, int size)
{
    struct crowd *c = arg;
    (void)size;
    c->at[member] = sched_getcpu();
    sched_getaffinity(0, sizeof c->allowed[member], &c->allowed[member]);
    if (member == 0 || c->gather < 0) return;
    cpu_set_t there;
    CPU_ZERO(&there);
    CPU_SET((size_t)c->gather, &there);
    sched_setaffinity(0, sizeof there, &there); /* moves at once */
    sched_setaffinity(0, sizeof c->allowed[member], &c->allowed[member]);
}

/* A member that fell asleep on the caller's processor does not stay there, and may run where it might before.
 */
static void members_step_aside(void **state)
{
    (void)state;
    enum { ROUNDS = 20 };
    struct err why;
    cpu_set_t before;
    struct threadpool *pool;
    int apart = 0;
    CHECK(!sched_getaffinity(0, sizeof before, &before));
    if (CPU_COUNT(&before) < 2) {
        print_message("SKIPPED: one processor\n");
        return;
    }
    CHECK_OK(threadpool_open(&pool, &(struct threadpool_options){ .threads = 2, .spin_ns = 1000 }, &why));
    for (int i = 0; i < ROUNDS; i++) {
        struct crowd c = { .gather = sched_getcpu() };
        threadpool_run(pool, crowd_member, &c);
        clock_sleep_ns(2000000);
        c.gather = -1;
        threadpool_run(pool, crowd_member, &c);
        apart += c.at[0] != c.at[1];
        CHECK(CPU_EQUAL(&c.allowed[0], &before));
        CHECK(CPU_EQUAL(&c.allowed[1], &before));
        clock_sleep_ns(2000000);
    }
    CHECK_LE(ROUNDS / 2, apart);
    threadpool_close(pool);
}

static void meet(void *arg, int member, int size)
{
    struct work *w = arg;
    (void)member;
    for (int round = 1; round <= 200; round++) {
        atomic_fetch_add(&w->arrived, 1);
        threadpool_barrier(w->pool);
        if (atomic_load(&w->arrived) < round * size) atomic_fetch_add(&w->early, 1);
        threadpool_barrier(w->pool);
    }
}

static void barriers(void **state)
{
    (void)state;
    struct err why;
    struct work w = { 0 };
    CHECK_OK(threadpool_open(&w.pool, &(struct threadpool_options){ .threads = MEMBERS }, &why));
    threadpool_run(w.pool, meet, &w);
    CHECK_EQ(atomic_load(&w.early), 0);
    threadpool_close(w.pool);
}

static void take(void *arg, int member, int size)
{
    struct work *w = arg;
    (void)member, (void)size;
    for (int64_t i; (i = threadpool_next(w->pool, 1)) < 1000;) atomic_fetch_add(&w->sum, i);
}

static void shares(void **state)
{
    (void)state;
    struct err why;
    struct work w = { 0 };
    CHECK_OK(threadpool_open(&w.pool, &(struct threadpool_options){ .threads = 3 }, &why));
    threadpool_run(w.pool, take, &w);
    threadpool_run(w.pool, take, &w); /* the counter starts again */
    CHECK_EQ(atomic_load(&w.sum), 2 * 499500);
    threadpool_close(w.pool);
}

static void alone(void *arg, int member, int size)
{
    struct work *w = arg;
    CHECK_EQ(member, 0);
    CHECK_EQ(size, 1);
    threadpool_barrier(w->pool); /* a region of one member does not wait */
    while (threadpool_next(w->pool, 1) < 10) w->count[0]++;
}

static void the_caller_alone(void **state)
{
    (void)state;
    struct err why;
    struct work w = { 0 };
    CHECK_OK(threadpool_open(&w.pool, &(struct threadpool_options){ .threads = 2 }, &why));
    for (int i = 0; i < 100; i++) {
        threadpool_run_alone(w.pool, alone, &w);
        threadpool_run(w.pool, count_members, &w);
    }
    CHECK_EQ(w.count[0], 100 * 10 + 100);
    CHECK_EQ(w.count[1], 100);
    threadpool_close(w.pool);
}

static void options(void **state)
{
    (void)state;
    struct err why;
    struct threadpool *pool;
    CHECK_EQ(threadpool_open(&pool, &(struct threadpool_options){ .threads = 0 }, &why), ERR_USAGE);
    CHECK(!pool);
    for (int affinity = AFFINITY_COMPACT; affinity <= AFFINITY_SPREAD; affinity++) {
        CHECK_OK(threadpool_open(
            &pool, &(struct threadpool_options){ .threads = 2, .affinity = (enum affinity)affinity }, &why));
        CHECK_EQ(threadpool_size(pool), 2);
        threadpool_close(pool);
    }
    CHECK_LE(1, threadpool_default_threads());
    threadpool_close(NULL);
}

static void memory_nodes(void **state)
{
    (void)state;
    struct numa *n;
    struct err why;
    cpu_set_t before, inside, after;
    CHECK_OK(numa_open(&n, &why));
    CHECK_LE(1, numa_count(n));
    CHECK(!sched_getaffinity(0, sizeof before, &before));
    int entered = 0;
    for (int node = 0; node < numa_count(n); node++) {
        if (numa_cores(n, node) < 1 || !numa_enter(n, node)) continue;
        entered++;
        CHECK(!numa_enter(n, node)); /* one at a time */
        CHECK(!sched_getaffinity(0, sizeof inside, &inside));
        CHECK_LE(numa_cores(n, node), CPU_COUNT(&inside));
        CPU_AND(&after, &inside, &before);
        CHECK(CPU_EQUAL(&after, &inside));
        numa_leave(n);
        CHECK(!sched_getaffinity(0, sizeof after, &after));
        CHECK(CPU_EQUAL(&after, &before));
    }
    if (!entered) print_message("SKIPPED: this system names no memory node or binds no thread\n");
    for (int i = 0; i < 2; i++) {
        const int none = i ? numa_count(n) : -1;
        char page[64];
        CHECK_EQ(numa_cores(n, none), 0);
        CHECK(!numa_enter(n, none));
        CHECK(!numa_place(n, none, page, sizeof page));
    }
    numa_close(n);
    numa_close(NULL);
}

int main(void)
{
    const struct CMUnitTest TESTS[] = {
        cmocka_unit_test(members_step_aside), cmocka_unit_test(memory_nodes), cmocka_unit_test(regions),
        cmocka_unit_test(sleepers_wake),      cmocka_unit_test(barriers),     cmocka_unit_test(shares),
        cmocka_unit_test(the_caller_alone),   cmocka_unit_test(options)
    };
    return cmocka_run_group_tests(TESTS, NULL, NULL);
}
