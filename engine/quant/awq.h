/* engine/quant/awq.h - AWQ for matrices in memory. Internal to engine/quant/.
 *
 * AWQ gives inputs with large activations finer quantization steps: it multiplies their weights by a scale >
 * 1 before rounding and folds the inverse into whatever produces the input (scale_folding.h). A grid search
 * finds the scales that change the outputs least. Then it clips outlier weights where that reduces the output
 * error. Source: Lin et al., "AWQ: Activation-aware Weight Quantization for LLM Compression and
 * Acceleration", 2023; details and defaults as in AutoAWQ. */
#ifndef QDYNO_ENGINE_QUANT_AWQ_H
#define QDYNO_ENGINE_QUANT_AWQ_H

#include "base/base.h"

struct awq_options {
    int bits;
    int64_t group_size;     /* inputs that share a scale; must divide the number of inputs; -1: whole row */
    bool zero_point;        /* asymmetric: range from the smallest to the largest weight; else around 0 */
    bool duo_scaling;       /* scales depend on weights as well as on activations */
    int n_grid;             /* exponents (ratios) tried */
    double max_shrink;      /* clipping reduces the largest weight by less than this share */
    int64_t n_sample_token; /* clipping uses about this many tokens */
};

/* Quantization grid of one group: weight = scale * (code - zero), codes 0 .. 2^bits - 1. Without zero_point,
 * zero is the middle code. */
struct awq_grid {
    float scale, zero;
};
struct awq_grid awq_grid_of(const struct awq_options *o, const float *w, int64_t n);
float awq_code(const struct awq_options *o, const struct awq_grid *g, float w);

/* to [n] = the group of n weights after quantizing and dequantizing; may be w itself. */
void awq_quantize_group(const struct awq_options *o, const float *w, float *to, int64_t n);

/* Add to sum [cols], for each row of w [rows][cols], each weight's magnitude relative to the largest of its
 * group, 0 .. 1. Rows are summed in their order, columns on the pool's threads. */
void awq_weight_shares(const struct awq_options *o, const float *w, int64_t rows, int64_t cols, double *sum,
                       struct threadpool *pool);

/* Scales [cols] for one exponent 0 <= ratio < 1: inputs^ratio / shares^(1 - ratio), where inputs is the mean
 * |activation| and shares the mean relative weight magnitude (awq_weight_shares). */
void awq_scales(const struct awq_options *o, const float *inputs, const float *shares, int64_t cols,
                double ratio, float *scales);

/* Output error with these scales; any measure that can be compared. */
typedef enum err_code awq_loss_fn(void *ctx, const float *scales, double *loss, struct err *why);

/* Try n_grid ratios and return the scales [cols] with the smallest loss; *ratio (may be NULL) is their ratio.
 * Errors: those of `loss`; ERR_FORMAT when no ratio has a finite loss. */
enum err_code awq_search(const struct awq_options *o, const float *inputs, const float *shares, int64_t cols,
                         awq_loss_fn *loss, void *ctx, float *scales, double *ratio, struct err *why);

/* Clip each group of w [rows][cols] at the limit that changes the group's contribution to the outputs least.
 * gram [groups][g][g]: for each group of g = group_size inputs, the lower triangle of sum x^T x over sample
 * tokens. limits [rows][groups] (may be NULL) receives the limits. ERR_NOMEM. */
enum err_code awq_clip(const struct awq_options *o, float *w, int64_t rows, int64_t cols, const float *gram,
                       float *limits, struct threadpool *pool, struct err *why);

#endif
