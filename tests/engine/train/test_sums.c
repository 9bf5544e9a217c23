/* Proves: gradients are summed as the tree that sums.h describes (by a case where the order changes the
 * result), and parts that several processes computed give the same bits as one process, for every number of
 * processes that is allowed. What cannot be divided is refused with the reason. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/config/config.h"
#include "engine/train/sums.h"
#include "tests/check.h"

enum { N = 1000, LEAVES_MAX = 24 };

/* Leaves first, first + 1, ... of a table. */
struct leaves {
    float (*vector)[N];
    int first;
    float *x;
};

static double leaf(void *ctx, int number)
{
    const struct leaves *l = ctx;
    memcpy(l->x, l->vector[l->first + number], N * sizeof(float));
    return (double)l->vector[l->first + number][0] / 3;
}

static double run(struct threadpool *pool, struct leaves *l, int count)
{
    struct err why = { 0 };
    struct sums s;
    CHECK_OK(sums_open(&s, N, count, &why));
    const double loss = sums_run(&s, pool, &(struct sums_leaves){ leaf, l, l->x }, count);
    sums_close(&s);
    return loss;
}

static void order_by_hand(void **state)
{
    (void)state;
    /* 2^24 + 1 rounds to 2^24, so ((a + b) + c) + d = 2^24, while (a + b) + (c + d) = 2^24 + 2. */
    static float four[4][N], x[N], one_by_one;
    struct threadpool *pool;
    struct err why = { 0 };
    const float values[4] = { 16777216, 0, 1, 1 };
    for (int i = 0; i < 4; i++)
        for (int c = 0; c < N; c++) four[i][c] = values[i];
    for (int i = 0; i < 4; i++) one_by_one += values[i];
    CHECK_OK(threadpool_open(&pool, &(struct threadpool_options){ .threads = 2 }, &why));
    run(pool, &(struct leaves){ four, 0, x }, 4);
    CHECK_NEAR((double)one_by_one, 16777216, 0);
    for (int c = 0; c < N; c++) CHECK_NEAR((double)x[c], 16777218, 0);
    /* Three leaves: the first, plus the sum of the others. */
    for (int c = 0; c < N; c++) four[1][c] = 1;
    run(pool, &(struct leaves){ four, 0, x }, 3);
    CHECK_NEAR((double)x[0], 16777218, 0);
    threadpool_close(pool);
}

static void parts_give_the_same_bits(void **state)
{
    (void)state;
    static float vector[LEAVES_MAX][N], whole[N], parts[LEAVES_MAX][N];
    double losses[LEAVES_MAX];
    struct threadpool *pool;
    struct err why = { 0 };
    uint64_t random = 5;
    int compared = 0;
    for (int i = 0; i < LEAVES_MAX; i++)
        for (int c = 0; c < N; c++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            vector[i][c] = (float)ldexp((double)(random >> 40) - 8388608, (int)(random >> 33 & 15) - 20);
        }
    CHECK_OK(threadpool_open(&pool, &(struct threadpool_options){ .threads = 1 }, &why));
    for (int leaves = 1; leaves <= LEAVES_MAX; leaves++)
        for (int ranks = 2; ranks <= leaves; ranks++) {
            const struct parallel mode = { .tp = 1, .cp = 1, .pp = 1, .dp = ranks };
            if (parallel_check_training(&mode, leaves, &why)) continue;
            const double loss = run(pool, &(struct leaves){ vector, 0, whole }, leaves);
            for (int r = 0; r < ranks; r++)
                losses[r] = run(pool, &(struct leaves){ vector, r * leaves / ranks, parts[r] },
                                leaves / ranks);
            sums_join(pool, parts[0], ranks, N);
            assert_memory_equal(parts[0], whole, sizeof whole);
            CHECK_NEAR(sums_join_losses(losses, ranks), loss, 0);
            compared++;
        }
    CHECK_EQ(compared, 12 + 6 + 3 + 1); /* 2, 4, 8 and 16 processes */
    threadpool_close(pool);
}

static void refuses(void **state)
{
    (void)state;
    struct err why = { 0 };
    CHECK_OK(parallel_check_training(&(struct parallel){ .tp = 1, .cp = 1, .pp = 1, .dp = 1 }, 3, &why));
    CHECK_OK(parallel_check_training(&(struct parallel){ .tp = 1, .cp = 1, .pp = 1, .dp = 4 }, 12, &why));
    CHECK_EQ(parallel_check_training(&(struct parallel){ .tp = 2, .cp = 1, .pp = 1, .dp = 2 }, 2, &why),
             ERR_USAGE);
    CHECK_CONTAINS(why.message, "tp2.dp2");
    CHECK_EQ(parallel_check_training(&(struct parallel){ .tp = 1, .cp = 1, .pp = 1, .dp = 3 }, 3, &why),
             ERR_USAGE);
    CHECK_CONTAINS(why.message, "power of 2");
    CHECK_EQ(parallel_check_training(&(struct parallel){ .tp = 1, .cp = 1, .pp = 1, .dp = 2 }, 3, &why),
             ERR_USAGE);
    CHECK_CONTAINS(why.message, "3 batches");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_by_hand),
        cmocka_unit_test(parts_give_the_same_bits),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
