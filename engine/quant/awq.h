/* engine/quant/awq.h - AWQ on matrices in memory: inputs that carry much are given finer steps, by scaling
 * their weights up and whatever makes them down; then outliers are clipped where outputs gain by it.
 *
 * Source: Lin et al., "AWQ: Activation-aware Weight Quantization for LLM Compression and Acceleration", 2023;
 * details and defaults as in AutoAWQ. */
#ifndef QDYNO_ENGINE_QUANT_AWQ_H
#define QDYNO_ENGINE_QUANT_AWQ_H

#include "base/base.h"

struct awq_options {
    int bits;
    int64_t group_size;     /* divides every number of inputs; -1: all of a row */
    bool zero_point;        /* steps from the smallest to the largest weight, else symmetric around 0 */
    bool duo_scaling;       /* scales look at the weights, too */
    int n_grid;             /* ratios that are tried */
    double max_shrink;      /* clipping takes away less than this share of the largest weight */
    int64_t n_sample_token; /* clipping looks at about so many tokens */
};

/* One group's steps: weight = scale * (code - zero), codes 0 .. 2^bits - 1. Without zero_point, zero is in
 * the middle. */
struct awq_grid {
    float scale, zero;
};
struct awq_grid awq_grid_of(const struct awq_options *o, const float *w, int64_t n);
float awq_code(const struct awq_options *o, const struct awq_grid *g, float w);

/* to [n] = what the group of n weights becomes; may be w itself. */
void awq_quantize_group(const struct awq_options *o, const float *w, float *to, int64_t n);

/* sum[cols] += over all rows of w [rows][cols]: how large each weight is in its group, 0 .. 1. Rows are
 * summed in their order, on the pool's threads. */
void awq_weight_shares(const struct awq_options *o, const float *w, int64_t rows, int64_t cols, double *sum,
                       struct threadpool *pool);

/* The scales of one ratio, 0 <= ratio < 1, from mean |input| and mean weight share. */
void awq_scales(const struct awq_options *o, const float *inputs, const float *shares, int64_t cols,
                double ratio, float *scales);

/* What outputs lose with these scales: mean squared difference, anything that compares. */
typedef enum err_code awq_loss_fn(void *ctx, const float *scales, double *loss, struct err *why);

/* The best of n_grid ratios into scales [cols]; *ratio (may be NULL) tells which. Errors: the loss's own;
 * ERR_FORMAT when no ratio's loss is finite. */
enum err_code awq_search(const struct awq_options *o, const float *inputs, const float *shares, int64_t cols,
                         awq_loss_fn *loss, void *ctx, float *scales, double *ratio, struct err *why);

/* Clip w [rows][cols], group by group, to where the group's share of the outputs changes least. gram
 * [groups][g][g]: for each group of g = group_size inputs, the lower triangle of sum x^T x over the tokens
 * looked at. limits (may be NULL) [rows][groups] tells where. ERR_NOMEM. */
enum err_code awq_clip(const struct awq_options *o, float *w, int64_t rows, int64_t cols, const float *gram,
                       float *limits, struct threadpool *pool, struct err *why);

#endif
