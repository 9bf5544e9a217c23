/* kernels/isa/gemm/tile_v128.h - the f32 GEMM tile with 128-bit vectors: V128_TILE_ROWS rows by
 * V128_TILE_VECTORS vectors of results stay in registers. Include an implementation of isa/v128.h first. */
#ifndef QDYNO_KERNELS_ISA_GEMM_TILE_V128_H
#define QDYNO_KERNELS_ISA_GEMM_TILE_V128_H

#include "kernels/gemm_f32.h"
#include "kernels/isa/isa_kernels.h"

enum { TILE_LANES = 4, TILE_MORE_ROWS = 2 /* remaining rows are processed in pairs */ };

/* Compute the results of `rows` rows from i on and `vectors` vectors from column j on. Both counts are
 * constants at every call, so that the loops are unrolled. */
ALWAYS_INLINE void tile_part(const struct tile *t, int i, int j, const int rows, const int vectors)
{
    const float *a = t->a + i * t->lda, *b = t->b + j;
    f32x4 sum[V128_TILE_ROWS][V128_TILE_VECTORS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) sum[r][v] = all_f32(0);
    for (int k = 0; k < t->k; k++, b += t->ldb) {
        f32x4 x[V128_TILE_VECTORS];
        gemm_f32_prefetch(t, b);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) x[v] = load_f32x4(b + TILE_LANES * v);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            const f32x4 w = all_f32(a[r * t->lda + k]);
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) sum[r][v] = fma_f32(w, x[v], sum[r][v]);
        }
    }
    float *c = t->c + i * t->ldc + j;
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            float *at = c + r * t->ldc + TILE_LANES * v;
            if (t->add) sum[r][v] = sum[r][v] + load_f32x4(at);
            store_f32x4(at, sum[r][v]);
        }
    }
}

#define TILE_PART(name, rows, vectors)                                                                       \
    static void name(const struct tile *t, int i, int j)                                                     \
    {                                                                                                        \
        tile_part(t, i, j, rows, vectors);                                                                   \
    }
TILE_PART(tile_most, V128_TILE_ROWS, V128_TILE_VECTORS)
TILE_PART(tile_pair, TILE_MORE_ROWS, V128_TILE_VECTORS)
TILE_PART(tile_row, 1, V128_TILE_VECTORS)
TILE_PART(tile_most_narrow, V128_TILE_ROWS, 1)
TILE_PART(tile_pair_narrow, TILE_MORE_ROWS, 1)
TILE_PART(tile_row_narrow, 1, 1)

typedef void tile_part_fn(const struct tile *t, int i, int j);

/* Compute all rows for the columns from j on: V128_TILE_ROWS at once, then pairs, then single rows. */
static void tile_columns(const struct tile *t, int j, tile_part_fn *most, tile_part_fn *pair,
                         tile_part_fn *row)
{
    int i = 0;
    for (; i + V128_TILE_ROWS <= t->m; i += V128_TILE_ROWS) most(t, i, j);
    for (; i + TILE_MORE_ROWS <= t->m; i += TILE_MORE_ROWS) pair(t, i, j);
    for (; i < t->m; i++) row(t, i, j);
}

/* The last columns of row i, which do not fill a vector. */
static void tile_rest(const struct tile *t, int i, int j)
{
    for (; j < t->n; j++) {
        float sum = 0, *c = t->c + i * t->ldc + j;
        for (int k = 0; k < t->k; k++) sum += t->a[i * t->lda + k] * t->b[k * t->ldb + j];
        *c = t->add ? *c + sum : sum;
    }
}

void V128(tile)(const struct tile *t)
{
    enum { WIDTH = TILE_LANES * V128_TILE_VECTORS };
    int j = 0;
    for (; j + WIDTH <= t->n; j += WIDTH) tile_columns(t, j, tile_most, tile_pair, tile_row);
    for (; j + TILE_LANES <= t->n; j += TILE_LANES)
        tile_columns(t, j, tile_most_narrow, tile_pair_narrow, tile_row_narrow);
    for (int i = 0; i < t->m && j < t->n; i++) tile_rest(t, i, j);
}

static void f32_pack(const float *x, int64_t x_stride, int tokens, int k, void *sliver)
{
    gemm_f32_pack(&V128_TABLE(VECTORS), x, x_stride, tokens, k, sliver);
}

static void f32_multiply(const struct gemm_step *p)
{
    gemm_f32_multiply(V128(tile), TILE_LANES, p);
}

const struct gemm_kernel V128_TABLE(GEMM_F32) = GEMM_F32_TABLE(f32_pack, f32_multiply);

#endif
