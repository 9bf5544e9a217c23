/* engine/train/product.h - matrix products of training, computed by the engine's kernels. Internal.
 *
 * A kernel multiplies rows of x with rows of a weight: y[n][rows] = x[n][cols] * w[rows][cols]^T. Every
 * product of training has this form after transposing an operand where needed. Mixed precision sets the
 * format of the weight operand (f32, bf16 or f16), whether it holds parameters, activations or gradients. The
 * other operand is rounded to match: by the kernel for bf16, explicitly for f16. Sums are f32. */
#ifndef QDYNO_ENGINE_TRAIN_PRODUCT_H
#define QDYNO_ENGINE_TRAIN_PRODUCT_H

#include "kernels/kernels.h"
#include "engine/config/config.h"

struct products {
    struct backend *backend;
    struct threadpool *pool; /* owned by the backend */
    enum amp amp;
    const struct format *format; /* of weight operands */
    float *turned;               /* scratch: the largest matrix that is transposed */
    float *rounded;              /* scratch: the largest x, for AMP_FP16 only */
};
const struct format *product_format(enum amp amp);

/* A matrix as the weight operand of a product. */
struct operand {
    struct weight w;
    void *store; /* memory for rows * cols of `format`; NULL: f32 used in place */
};
int64_t operand_bytes(enum amp amp, int64_t rows, int64_t cols);

/* Make x [rows][cols], with rows x_stride apart, an operand; contiguous f32 is used in place. */
void operand_set(const struct products *p, struct operand *o, const float *x, int64_t x_stride, int64_t rows,
                 int64_t cols);
/* Make the transpose of x [cols][rows] an operand [rows][cols]. Uses p->turned. */
void operand_set_turned(const struct products *p, struct operand *o, const float *x, int64_t x_stride,
                        int64_t rows, int64_t cols);

/* y [n][w rows] = x [n][w cols] * w^T; with `add`, y += that. */
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

/* dw [rows][cols] += dy^T * x, where dy is [n][rows] and x is the transposed operand [cols][n]. */
void product_weight_gradient(const struct products *p, const float *dy, int64_t dy_stride, int64_t rows,
                             const struct operand *x, float *dw);

/* Transpose: out [cols][rows] = x [rows][cols]. */
void product_turn(const struct products *p, const float *x, int64_t x_stride, int64_t rows, int64_t cols,
                  float *out);

#endif
