/* kernels/isa/gemv/tables_avx512.h - AVX-512 decode, f32 dot products and bf16 rows for formats with codes of
 * up to four bits. The sixteen values that codes mean in a unit (weights under one scale) are computed once,
 * with the reference's operations, and each code is an index into them. */
#ifndef QDYNO_KERNELS_ISA_GEMV_TABLES_AVX512_H
#define QDYNO_KERNELS_ISA_GEMV_TABLES_AVX512_H

#include "kernels/isa/avx512.h"

struct table_kind {
    int bytes, weights;                               /* of a block */
    int unit;                                         /* weights under one table, a multiple of 32 */
    __m512 (*values)(const uint8_t *block, int unit); /* code i means lane i; 3-bit and 2-bit codes repeat */
    __m512i (*codes16)(const uint8_t *block, int i);  /* of weights 16 i..: the low four bits of 32 count */
    __m512i (*codes32)(const uint8_t *block, int i);  /* of weights 32 i..: the low five bits of 16 count */
};

ALWAYS_INLINE void table_decode(const struct table_kind *f, const void *blocks, float *x, int64_t n)
{
    const uint8_t *in = blocks;
    for (int64_t i = 0; i < n; i += f->weights, in += f->bytes) {
#pragma GCC unroll 4
        for (int u = 0; u < f->weights / f->unit; u++) {
            const __m512 values = f->values(in, u);
#pragma GCC unroll 8
            for (int j = u * f->unit / 16; j < (u + 1) * f->unit / 16; j++)
                _mm512_storeu_ps(x + i + 16 * j, _mm512_permutexvar_ps(f->codes16(in, j), values));
        }
    }
}

ALWAYS_INLINE void table_dot_unrolled(const struct table_kind *f, const struct dot *d, const int n)
{
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *w = d->w + r * d->row_bytes;
        __m512 sum[DOT_X][2];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) sum[i][0] = sum[i][1] = _mm512_setzero_ps();
        for (int64_t k = 0; k < d->cols; k += f->weights, w += f->bytes) {
            prefetch_ahead(w, f->bytes);
#pragma GCC unroll 4
            for (int u = 0; u < f->weights / f->unit; u++) {
                const __m512 values = f->values(w, u);
#pragma GCC unroll 8
                for (int j = u * f->unit / 16; j < (u + 1) * f->unit / 16; j++) {
                    const __m512 v = _mm512_permutexvar_ps(f->codes16(w, j), values);
#pragma GCC unroll 4
                    for (int i = 0; i < n; i++)
                        sum[i][j & 1] = _mm512_fmadd_ps(
                            v, _mm512_loadu_ps(d->x + i * d->x_stride + k + 16 * j), sum[i][j & 1]);
                }
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < n; i++)
            d->y[i * d->y_stride + r] = _mm512_reduce_add_ps(_mm512_add_ps(sum[i][0], sum[i][1]));
    }
}

ALWAYS_INLINE void table_dot(const struct table_kind *f, const struct dot *d)
{
    switch (d->n) {
    case 1: table_dot_unrolled(f, d, 1); break;
    case 2: table_dot_unrolled(f, d, 2); break;
    case 3: table_dot_unrolled(f, d, 3); break;
    case 4: table_dot_unrolled(f, d, 4); break;
    }
}

#endif
