/* engine/train/product.h - matrix products of training, through the engine's own kernels.
 *
 * A kernel multiplies rows of numbers with rows of a weight: y[n][rows] = x[n][cols] * w[rows][cols]^T. All
 * of training can be said so: what meets the inner dimension is turned round first. Mixed precision is the
 * format of the weight side: f32, bf16 or f16, whatever is a weight here (parameters, activations,
 * gradients); the other side is rounded to match (bf16 by kernels that multiply in bf16, f16 always), sums
 * are f32. */
#ifndef QDYNO_ENGINE_TRAIN_PRODUCT_H
#define QDYNO_ENGINE_TRAIN_PRODUCT_H

#include "kernels/kernels.h"
#include "engine/config/config.h"

struct products {
    struct backend *backend;
    struct threadpool *pool; /* the backend's */
    enum amp amp;
    const struct format *format; /* of weight sides */
    float *turned;               /* scratch: the largest matrix that is turned round */
    float *rounded;              /* scratch: the largest x, AMP_FP16 only */
};
const struct format *product_format(enum amp amp);

struct operand {
    struct weight w;
    void *store; /* rows * cols of `format`; NULL: f32 that is used in place */
};
int64_t operand_bytes(enum amp amp, int64_t rows, int64_t cols);

/* x [rows][cols], rows x_stride apart, as a weight; in place where that can be (f32 without gaps). */
void operand_set(const struct products *p, struct operand *o, const float *x, int64_t x_stride, int64_t rows,
                 int64_t cols);
/* x [cols][rows] turned round: the weight is [rows][cols]. Uses p->turned. */
void operand_set_turned(const struct products *p, struct operand *o, const float *x, int64_t x_stride,
                        int64_t rows, int64_t cols);

/* y[n][w rows] = x[n][w cols] * w^T, added to y where `add`. */
struct product {
    const float *x;
    int64_t x_stride;
    int64_t n;
    const struct operand *w;
    float *y;
    int64_t y_stride;
    bool add;
};
void product_run(const struct products *p, const struct product *m);

/* dw[rows][cols] += dy^T * x, where dy is [n][rows] and x is turned round already ([cols][n]). */
void product_weight_gradient(const struct products *p, const float *dy, int64_t dy_stride, int64_t rows,
                             const struct operand *x, float *dw);

/* out[cols][rows] = x[rows][cols]. */
void product_turn(const struct products *p, const float *x, int64_t x_stride, int64_t rows, int64_t cols,
                  float *out);

#endif
