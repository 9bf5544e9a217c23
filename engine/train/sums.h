/* engine/train/sums.h - sums of vectors in the order of a fixed binary tree. Internal.
 *
 * Float sums depend on their order. Gradients of the forward passes of a step are added up as a tree over the
 * number of the pass: the sum of n passes is the sum of the first n / 2 plus the sum of the others. So a
 * process can compute a subtree, and N processes that have n / N passes each (N a power of 2 that divides n)
 * get the same bits as one process that has all. */
#ifndef QDYNO_ENGINE_TRAIN_SUMS_H
#define QDYNO_ENGINE_TRAIN_SUMS_H

#include "base/base.h"

struct sums {
    int64_t n;   /* numbers of a vector */
    int levels;  /* of the tree */
    float *kept; /* [levels][n]: sums of left subtrees whose right one is being computed */
};
/* Memory for sums of `leaves` vectors of n numbers. ERR_NOMEM. Close in any case. */
enum err_code sums_open(struct sums *s, int64_t n, int leaves, struct err *why);
void sums_close(struct sums *s);
int64_t sums_bytes(int64_t n, int leaves); /* what sums_open allocates */

/* A leaf writes its vector to x and returns its loss. */
struct sums_leaves {
    double (*leaf)(void *ctx, int number);
    void *ctx;
    float *x; /* [n] */
};
/* x = sum of the vectors of leaves 0 to count - 1; returns the sum of their losses in the same order. */
double sums_run(const struct sums *s, struct threadpool *pool, const struct sums_leaves *l, int count);

/* The upper part of the tree: parts[0] = sum of parts[count][n]. Overwrites the others. */
void sums_join(struct threadpool *pool, float *parts, int count, int64_t n);
double sums_join_losses(const double *parts, int count);

#endif
