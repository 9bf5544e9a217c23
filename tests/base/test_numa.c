/* Proves, on made-up machines: which node each thread of a policy runs on, that threads are divided as cores
 * are, and that regions of such pools run. hwloc reads the machine from HWLOC_SYNTHETIC and then binds
 * nothing. */
#include <stdlib.h>

#include "base/base.h"
#include "tests/check.h"

enum { MOST = 16 };

/* A machine, and the nodes of its first threads with NUMA_SPREAD. */
struct machine_case {
    const char *machine;
    int nodes, cores; /* cores of each node */
    int threads;
    int at[MOST];
};

static const struct machine_case CASES[] = {
    { "NUMANode:2 Core:4 PU:1", 2, 4, 8, { 0, 0, 0, 0, 1, 1, 1, 1 } },
    { "NUMANode:2 Core:4 PU:2", 2, 4, 3, { 0, 0, 1 } },
    { "NUMANode:2 Core:4 PU:1", 2, 4, 1, { 0 } },
    { "Package:2 NUMANode:2 Core:2 PU:1", 4, 2, 4, { 0, 1, 2, 3 } },
    { "NUMANode:4 Core:2 PU:1", 4, 2, 6, { 0, 0, 1, 2, 2, 3 } },
    { "NUMANode:2 Core:2 PU:1", 2, 2, 8, { 0, 0, 0, 0, 1, 1, 1, 1 } }, /* more threads than cores */
    { "NUMANode:1 Core:2 PU:1", 1, 2, 2, { 0, 0 } },
};

static void test_members(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        const struct machine_case *c = &CASES[i];
        struct numa *n;
        struct err why;
        assert_int_equal(setenv("HWLOC_SYNTHETIC", c->machine, 1), 0);
        CHECK_OK(numa_open(&n, &why));
        assert_int_equal(numa_count(n), c->nodes);
        assert_int_equal(numa_home(n), 0); /* all nodes have as many cores */
        for (int k = 0; k < c->nodes; k++) assert_int_equal(numa_cores(n, k), c->cores);
        for (int m = 0; m < c->threads; m++) {
            assert_int_equal(numa_member_node(n, NUMA_SPREAD, m, c->threads), c->at[m]);
            assert_int_equal(numa_member_node(n, NUMA_INTERLEAVE, m, c->threads), c->at[m]);
            assert_int_equal(numa_member_node(n, NUMA_REPLICATE, m, c->threads), c->at[m]);
            assert_int_equal(numa_member_node(n, NUMA_LOCAL, m, c->threads), 0);
            assert_int_equal(numa_member_node(n, NUMA_OFF, m, c->threads), -1);
        }
        numa_close(n);
        const int all = c->nodes * c->cores;
        assert_int_equal(threadpool_default_threads() <= all, 1); /* fewer with a quota */
        assert_int_equal(numa_default_threads(NUMA_LOCAL, all), c->cores);
        assert_int_equal(numa_default_threads(NUMA_LOCAL, 1), 1);
        assert_int_equal(numa_default_threads(NUMA_SPREAD, all), all);
        assert_int_equal(numa_default_threads(NUMA_OFF, all), all);
    }
}

static void count(void *arg, int member, int size)
{
    int *seen = arg;
    seen[member] += size;
}

static void test_pools(void **state)
{
    (void)state;
    static const enum numa_policy POLICIES[] = { NUMA_OFF, NUMA_SPREAD, NUMA_LOCAL, NUMA_INTERLEAVE,
                                                 NUMA_REPLICATE };
    static const int AT[][3] = { { -1, -1, -1 }, { 0, 0, 1 }, { 0, 0, 0 }, { 0, 0, 1 }, { 0, 0, 1 } };
    assert_int_equal(setenv("HWLOC_SYNTHETIC", "NUMANode:2 Core:2 PU:1", 1), 0);
    for (size_t i = 0; i < COUNT_OF(POLICIES); i++) {
        struct threadpool *pool;
        struct err why;
        int seen[3] = { 0 };
        CHECK_OK(
            threadpool_open(&pool, &(struct threadpool_options){ .threads = 3, .numa = POLICIES[i] }, &why));
        for (int m = 0; m < 3; m++) assert_int_equal(threadpool_node(pool, m), AT[i][m]);
        for (int k = 0; k < 100; k++) threadpool_run(pool, count, seen);
        for (int m = 0; m < 3; m++) assert_int_equal(seen[m], 300);
        CHECK_EQ(threadpool_is_pinned(pool), POLICIES[i] != NUMA_OFF);
        threadpool_close(pool);
    }
}

/* The real machine, which may have one node and may refuse: memory stays usable. */
static void test_here(void **state)
{
    (void)state;
    enum { BYTES = 1 << 16 };
    struct numa *n;
    struct err why;
    unsetenv("HWLOC_SYNTHETIC");
    CHECK_OK(numa_open(&n, &why));
    char *p = aligned_alloc(4096, BYTES);
    if (!numa_interleave(n, p, BYTES)) print_message("SKIPPED: this system places no memory\n");
    for (int i = 0; i < BYTES; i++) p[i] = (char)i;
    for (int i = 0; i < BYTES; i++) assert_int_equal(p[i], (char)i);
    free(p);
    CHECK_LE(1, numa_cores(n, numa_home(n)));
    assert_int_equal(numa_member_node(n, NUMA_SPREAD, 0, 1), 0);
    numa_close(n);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_members), cmocka_unit_test(test_pools),
                                        cmocka_unit_test(test_here) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
