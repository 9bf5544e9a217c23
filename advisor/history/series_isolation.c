/* advisor/history/series_isolation.c - isolation forest (Liu, Ting, Zhou 2008): detects a run whose metrics
 * are unusual in combination, although each one alone may be ordinary. Random cuts isolate an unusual vector
 * after few cuts.
 *
 * Trees are not stored. The depth of a vector is found by splitting the sample on the way down, which is all
 * that a score needs. */
#include "advisor/stats/stats.h"
#include "advisor/history/history.h"

#include <math.h>
#include <stdlib.h>

enum { TREES = 200, SAMPLE = 256 };

double isolation_depth(double n)
{
    static const double EULER = 0.57721566490153286;
    if (n < 2) return 0;
    if (n == 2) return 1;
    return 2 * (log(n - 1) + EULER) - 2 * (n - 1) / n;
}

/* One tree over `sample` (indices into x); a node is a range of it. */
struct forest {
    const double *x;
    int n, dims, limit; /* maximum depth */
    int *sample;
    double *depth; /* [n] sum of depths over the trees */
    uint64_t random;
};

static double random_unit(struct forest *f)
{
    return (double)(stats_random(&f->random) >> 11) * 0x1p-53;
}

static double value_at(const struct forest *f, int i, int dim)
{
    return f->x[(size_t)i * (size_t)f->dims + (size_t)dim];
}

/* Choose a dimension in which the node's vectors differ, uniformly, and a value between their extremes. False
 * when all vectors are equal. */
static bool cut_choose(struct forest *f, const int *node, int n, int *dim, double *place)
{
    *dim = 0;
    double least = 0, most = 0;
    int differing = 0;
    for (int d = 0; d < f->dims; d++) {
        double low = INFINITY, high = -INFINITY;
        for (int i = 0; i < n; i++) {
            low = fmin(low, value_at(f, node[i], d));
            high = fmax(high, value_at(f, node[i], d));
        }
        /* reservoir sampling: take the k-th with probability 1 / k */
        if (!(high > low) || random_unit(f) * ++differing >= 1) continue;
        *dim = d;
        least = low;
        most = high;
    }
    *place = least + random_unit(f) * (most - least);
    return differing > 0;
}

/* Move the vectors below the cut to the front; returns their number. */
static int sample_partition(const struct forest *f, int *node, int n, int dim, double place)
{
    int below = 0;
    for (int i = 0; i < n; i++) {
        if (!(value_at(f, node[i], dim) < place)) continue;
        const int moved = node[i];
        node[i] = node[below];
        node[below++] = moved;
    }
    return below;
}

/* Split one node, and pass every vector down, whether it is in the sample or not. */
static void tree_descend(struct forest *f, int *node, int n, int *visitors, int visiting, int depth)
{
    int dim;
    double place;
    if (!visiting) return;
    if (n <= 1 || depth >= f->limit || !cut_choose(f, node, n, &dim, &place)) {
        for (int i = 0; i < visiting; i++) f->depth[visitors[i]] += depth + isolation_depth(n);
        return;
    }
    const int below = sample_partition(f, node, n, dim, place);
    const int visiting_below = sample_partition(f, visitors, visiting, dim, place);
    tree_descend(f, node, below, visitors, visiting_below, depth + 1);
    tree_descend(f, node + below, n - below, visitors + visiting_below, visiting - visiting_below, depth + 1);
}

/* Copy x with unknown values replaced by the column's median; 0 in a column without values. `column`: scratch
 * of [n]. */
static void fill_unknown(double *to, const double *x, int n, int dims, double *column)
{
    for (int d = 0; d < dims; d++) {
        int known = 0;
        for (int i = 0; i < n; i++)
            if (!isnan(x[i * dims + d])) column[known++] = x[i * dims + d];
        stats_sort(column, known);
        const double middle = known ? stats_quantile_sorted(column, known, 0.5) : 0;
        for (int i = 0; i < n; i++) to[i * dims + d] = isnan(x[i * dims + d]) ? middle : x[i * dims + d];
    }
}

static void tree_grow(struct forest *f, int *visitors, int size)
{
    for (int t = 0; t < TREES; t++) {
        for (int i = 0; i < f->n; i++) f->sample[i] = visitors[i] = i;
        for (int i = 0; i < size; i++) { /* the first `size` of a shuffle: sampling without replacement */
            const int k = i + (int)(random_unit(f) * (f->n - i));
            const int moved = f->sample[i];
            f->sample[i] = f->sample[k];
            f->sample[k] = moved;
        }
        tree_descend(f, f->sample, size, visitors, f->n, 0);
    }
}

enum err_code series_isolation(double *score, const double *x, int n, int dims, uint64_t seed,
                               struct err *why)
{
    for (int i = 0; i < n; i++) score[i] = 0.5;
    if (n < 3 || dims < 1) return ERR_OK;
    const int size = MIN(n, SAMPLE);
    double *filled = malloc((size_t)n * (size_t)dims * sizeof *filled);
    double *column = malloc((size_t)n * sizeof *column);
    int *sample = malloc(2 * (size_t)n * sizeof *sample);
    enum err_code rc = ERR_OK;
    if (filled && column && sample) {
        fill_unknown(filled, x, n, dims, column);
        struct forest f = { .x = filled,
                            .n = n,
                            .dims = dims,
                            .sample = sample,
                            .depth = column,
                            .random = seed,
                            .limit = (int)ceil(log2(size)) };
        for (int i = 0; i < n; i++) f.depth[i] = 0;
        tree_grow(&f, sample + n, size);
        for (int i = 0; i < n; i++) score[i] = exp2(-f.depth[i] / TREES / isolation_depth(size));
    } else {
        rc = err_set(why, ERR_NOMEM, "out of memory for the outliers of %d vectors", n);
    }
    free(filled);
    free(column);
    free(sample);
    return rc;
}
