/* Sums of gradients as a binary tree. */
#include "engine/train/sums.h"

#include <stdlib.h>
#include <string.h>

#include "engine/train/rows.h"

static int sums_levels(int leaves)
{
    int levels = 0;
    while (1 << levels < leaves) levels++;
    return levels;
}

int64_t sums_bytes(int64_t n, int leaves)
{
    return sums_levels(leaves) * n * (int64_t)sizeof(float);
}

enum err_code sums_open(struct sums *s, int64_t n, int leaves, struct err *why)
{
    *s = (struct sums){ .n = n, .levels = sums_levels(leaves) };
    if (!s->levels) return ERR_OK;
    s->kept = malloc((size_t)sums_bytes(n, leaves));
    return s->kept ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for sums of gradients");
}

void sums_close(struct sums *s)
{
    free(s->kept);
    s->kept = NULL;
}

/* x = a + x. */
static void add(struct threadpool *pool, const float *a, float *x, int64_t n)
{
    rows_mix(pool, &(struct mixing){ .a = a, .b = x, .by_a = 1, .by_b = 1, .out = x }, n);
}

/* The subtree of leaves first to first + count - 1, at this level of the tree. */
static double sums_subtree(const struct sums *s, struct threadpool *pool, const struct sums_leaves *l,
                           const int span[2], int level)
{
    const int first = span[0], count = span[1], half = count / 2;
    if (count == 1) return l->leaf(l->ctx, first);
    float *kept = s->kept + level * s->n;
    const double left = sums_subtree(s, pool, l, (int[]){ first, half }, level + 1);
    memcpy(kept, l->x, (size_t)s->n * sizeof *kept);
    const double right = sums_subtree(s, pool, l, (int[]){ first + half, count - half }, level + 1);
    add(pool, kept, l->x, s->n);
    return left + right;
}

double sums_run(const struct sums *s, struct threadpool *pool, const struct sums_leaves *l, int count)
{
    return sums_subtree(s, pool, l, (int[]){ 0, count }, 0);
}

void sums_join(struct threadpool *pool, float *parts, int count, int64_t n)
{
    const int half = count / 2;
    if (count == 1) return;
    sums_join(pool, parts, half, n);
    sums_join(pool, parts + half * n, count - half, n);
    rows_mix(pool, &(struct mixing){ .a = parts, .b = parts + half * n, .by_a = 1, .by_b = 1, .out = parts },
             n);
}

double sums_join_losses(const double *parts, int count)
{
    const int half = count / 2;
    return count == 1 ? parts[0]
                      : sums_join_losses(parts, half) + sums_join_losses(parts + half, count - half);
}
