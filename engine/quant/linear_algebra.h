/* engine/quant/linear_algebra.h - products and factorizations of large matrices, for quantizing models, not
 * for running them. Internal to engine/quant/.
 *
 * OpenBLAS computes one tile of fixed size in each call, with one thread; our thread pool distributes the
 * tiles. So results do not depend on the number of threads, and OpenBLAS's own threads never compete with
 * ours. Results do depend on the processor, because OpenBLAS chooses kernels that round differently.
 *
 * The library is loaded on first use: linking it would start its threads and add 3 MB to every process that
 * is measured. The environment variable QDYNO_OPENBLAS names another file than libopenblas.so.0. */
#ifndef QDYNO_ENGINE_QUANT_LINEAR_ALGEBRA_H
#define QDYNO_ENGINE_QUANT_LINEAR_ALGEBRA_H

#include "base/base.h"

struct linear_algebra;

/* *out is owned: linear_algebra_close. `pool` is borrowed and must outlive it; only one thread may drive it,
 * and that thread must make all calls below. Errors: ERR_ABSENT (OpenBLAS is not installed), ERR_NOMEM. */
enum err_code linear_algebra_open(struct linear_algebra **out, struct threadpool *pool, struct err *why);
void linear_algebra_close(struct linear_algebra *la); /* NULL is fine */
struct threadpool *linear_algebra_pool(const struct linear_algebra *la);

/* c [rows][cols] += alpha * a [rows][inner] * b. Row-major, strides in elements; b is [inner][cols], or, with
 * b_by_rows, [cols][inner] like a linear layer's weights. c must not overlap a or b. */
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

/* Gram matrix: h [n][n] += x^T x for x [rows][n], summed in f32. Only the lower triangle is valid; the rest
 * is undefined. */
void linear_gram_add(struct linear_algebra *la, float *h, int64_t n, const float *x, int64_t x_stride,
                     int64_t rows);

/* Cholesky factorization in place: a [n][n] = L L^T, given by its lower triangle, which becomes L; the rest
 * is undefined. ERR_FORMAT: not positive definite (a is destroyed); ERR_NOMEM. */
enum err_code linear_cholesky(struct linear_algebra *la, double *a, int64_t n, struct err *why);

/* Inverse in place of a lower triangular a [n][n]; above the diagonal the result is undefined. ERR_FORMAT: a
 * diagonal element is 0; ERR_NOMEM. */
enum err_code linear_lower_inverse(struct linear_algebra *la, double *a, int64_t n, struct err *why);

#endif
