/* engine/train/rows.h - the operations of training between matrix products, forward and backward. Internal.
 *
 * Each operation splits rows over the threads (columns, if it sums over rows) and adds in a fixed order. So
 * results depend neither on the number of threads nor on the vector width. Matrices are row-major f32 and
 * contiguous unless a stride is given. Each backward function follows the function it is the derivative of.
 */
#ifndef QDYNO_ENGINE_TRAIN_ROWS_H
#define QDYNO_ENGINE_TRAIN_ROWS_H

#include "base/base.h"

struct matrix {
    float *data;
    int64_t rows, cols;
};

/* RMS norm: y [rows][cols] = x / rms(x) * w. */
struct norm_rows {
    const float *x, *w;
    float eps;
    int64_t rows, cols;
    float *y;
};
void rows_norm(struct threadpool *pool, const struct norm_rows *p);
/* dx += gradient with respect to x; dw [cols] += gradient with respect to w. inverse [rows]: scratch. */
struct norm_back {
    const float *x, *w, *dy;
    float eps;
    int64_t rows, cols;
    float *dx, *dw, *inverse;
};
void rows_norm_back(struct threadpool *pool, const struct norm_back *p);

/* s = silu(gate) * up, element by element. */
void rows_swiglu(struct threadpool *pool, const float *gate, const float *up, float *s, int64_t n);
/* Replace gate and up by their gradients, given ds. */
void rows_swiglu_back(struct threadpool *pool, float *gate, float *up, const float *ds, int64_t n);

/* Rotary positions: rotate the pairs (2i, 2i+1) of every head by the angle of the row's position (row % ctx).
 * cosines and sines are [ctx][head_dim / 2]. sign -1 rotates back, which is the backward operation. */
struct rope_rows {
    float *x;
    int64_t rows, ctx;
    int heads, head_dim;
    const float *cosines, *sines;
    float sign; /* 1 or -1 */
};
void rows_rope(struct threadpool *pool, const struct rope_rows *p);

/* Causal softmax: row i of s [n][n] becomes softmax(scale * s[i][0..i]), and 0 after it. */
void rows_softmax(struct threadpool *pool, float *s, int64_t n, float scale);
/* Replace dp by the gradient of s: p * (dp - sum p dp) * scale. */
void rows_softmax_back(struct threadpool *pool, const float *p, float *dp, int64_t n, float scale);

/* loss[i] = -log softmax(logits[i])[target[i]]; 0 where the target is negative. */
struct cross_entropy {
    float *logits;
    const int32_t *targets;
    int64_t rows, cols;
    double *loss; /* [rows] */
    float scale;  /* of the gradient, which replaces the logits; 0: leave them unchanged */
};
void rows_cross_entropy(struct threadpool *pool, const struct cross_entropy *p);

/* KL divergence: loss[i] = sum over c of p ln(p / q), p = softmax(teacher[i]), q = softmax(logits[i]). */
struct distillation {
    float *logits;
    const float *teacher; /* [rows][cols] logits */
    int64_t rows, cols;
    double *loss; /* [rows] */
    float scale;  /* of the gradient, which replaces the logits; 0: leave them unchanged */
};
void rows_distill(struct threadpool *pool, const struct distillation *p);

/* y[i] = table[ids[i]]. */
void rows_gather(struct threadpool *pool, const struct matrix *table, const int32_t *ids, float *y,
                 int64_t n);
/* table[ids[i]] += dy[i]. */
void rows_gather_back(struct threadpool *pool, const struct matrix *table, const int32_t *ids,
                      const float *dy, int64_t n);

/* out = by_a * a + by_b * b; out may be a or b. */
struct mixing {
    const float *a, *b;
    float by_a, by_b;
    float *out;
};
void rows_mix(struct threadpool *pool, const struct mixing *p, int64_t n);

/* Transpose: out [cols][rows] = x [rows][cols], whose rows are x_stride apart. */
struct turning {
    const float *x;
    int64_t x_stride, rows, cols;
    float *out;
};
void rows_turn(struct threadpool *pool, const struct turning *p);

/* AdamW: m and v are the running means of gradient * by and of its square; then
 * x = keep * x - rate * m / (sqrt(grown * v) + epsilon). */
struct adam_rows {
    const float *gradient;
    float *x, *m, *v;
    float by, beta1, beta2, rate, grown, keep, epsilon;
};
void rows_adam(struct threadpool *pool, const struct adam_rows *p, int64_t n);

/* Run fn over [0, n), in equal shares on all threads. */
typedef void rows_fn(const void *arg, int64_t from, int64_t to);
void rows_run(struct threadpool *pool, int64_t n, rows_fn *fn, const void *arg);

/* Sum of a[i] * b[i], in the same order on any instruction set. */
float rows_dot(const float *a, const float *b, int64_t n);

#endif
