/* engine/quant/linear_algebra.h - large matrix products and factorizations for those who prepare models, not
 * for those who run them.
 *
 * OpenBLAS does the arithmetic, one thread a call on tiles of a fixed size; the tiles are dealt to our own
 * threads. So a result never depends on how many threads there are, and nobody else's threads compete with
 * ours. It does depend on the processor, for which OpenBLAS chooses its kernels: by roundings.
 *
 * The library is loaded when it is first asked for, because linking it would start its threads and cost 3 MB
 * in every process we measure. QDYNO_OPENBLAS names another file than libopenblas.so.0. */
#ifndef QDYNO_ENGINE_QUANT_LINEAR_ALGEBRA_H
#define QDYNO_ENGINE_QUANT_LINEAR_ALGEBRA_H

#include "base/base.h"

struct linear_algebra;

/* *out owned: linear_algebra_close. `pool` is borrowed, outlives it, and must be driven by one thread, which
 * is the one that calls the functions below. Errors: ERR_ABSENT (no OpenBLAS), ERR_NOMEM. */
enum err_code linear_algebra_open(struct linear_algebra **out, struct threadpool *pool, struct err *why);
void linear_algebra_close(struct linear_algebra *la); /* NULL is fine */
struct threadpool *linear_algebra_pool(const struct linear_algebra *la);

/* c [rows][cols] += alpha * a [rows][inner] * b, all row-major with a stride in elements; b is [inner][cols],
 * or [cols][inner] where b_by_rows (a linear layer's weights). c overlaps neither a nor b. */
struct linear_product {
    int64_t rows, cols, inner;
    float alpha;
    const float *a, *b;
    int64_t a_stride, b_stride;
    bool b_by_rows;
    float *c;
    int64_t c_stride;
};
void linear_multiply_add(struct linear_algebra *la, const struct linear_product *p);

/* h [n][n] += x^T x for x [rows][n], sums in f32: the lower triangle (above it, anything). */
void linear_gram_add(struct linear_algebra *la, float *h, int64_t n, const float *x, int64_t x_stride,
                     int64_t rows);

/* a [n][n] = L L^T, of which the lower triangle is read, becomes L there; above it, anything.
 * ERR_FORMAT: not positive definite (a is lost); ERR_NOMEM. */
enum err_code linear_cholesky(struct linear_algebra *la, double *a, int64_t n, struct err *why);

/* a [n][n], lower triangular, becomes its inverse; above the diagonal, anything. ERR_FORMAT: a zero on the
 * diagonal. */
enum err_code linear_lower_inverse(struct linear_algebra *la, double *a, int64_t n, struct err *why);

#endif
