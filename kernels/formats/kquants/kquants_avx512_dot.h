/* kernels/formats/kquants/kquants_avx512_dot.h - blocks of 256 weights with AVX-512: decoding, and dot
 * products with f32 activations. */
#ifndef QDYNO_KERNELS_FORMATS_KQUANTS_KQUANTS_AVX512_DOT_H
#define QDYNO_KERNELS_FORMATS_KQUANTS_KQUANTS_AVX512_DOT_H

#include "kernels/formats/kquants/kquants_avx512.h"

ALWAYS_INLINE void blocks_decode(const void *blocks, float *x, int64_t n, const struct k_shape *shape,
                                 k_scales_fn *scales, k_codes512_fn *codes)
{
    const uint8_t *block = blocks;
    for (int64_t k = 0; k < n; k += K_BLOCK, block += shape->block_bytes) {
        struct k_unpacked u;
        k_unpack(block, shape, scales, codes, &u);
#pragma GCC unroll 16
        for (int g = 0; g < K_BLOCK / 16; g++) _mm512_storeu_ps(x + k + 16 * g, k_weights16(&u, shape, g));
    }
}

ALWAYS_INLINE void dot_unrolled(const struct dot *d, const struct k_shape *shape, k_scales_fn *scales,
                                k_codes512_fn *codes, const int n)
{
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *block = d->w + r * d->row_bytes;
        __m512 total[DOT_X];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) total[i] = _mm512_setzero_ps();
        for (int64_t k = 0; k < d->cols; k += K_BLOCK, block += shape->block_bytes) {
            struct k_unpacked u;
            __m512 sum[DOT_X][2]; /* of one block only; adding blocks separately keeps rounding errors small
                                     in long rows */
            prefetch_ahead(block, shape->block_bytes);
            k_unpack(block, shape, scales, codes, &u);
#pragma GCC unroll 4
            for (int i = 0; i < n; i++) sum[i][0] = sum[i][1] = _mm512_setzero_ps();
#pragma GCC unroll 16
            for (int g = 0; g < K_BLOCK / 16; g++) {
                const __m512 v = k_weights16(&u, shape, g);
#pragma GCC unroll 4
                for (int i = 0; i < n; i++)
                    sum[i][g & 1] = _mm512_fmadd_ps(v, _mm512_loadu_ps(d->x + i * d->x_stride + k + 16 * g),
                                                    sum[i][g & 1]);
            }
#pragma GCC unroll 4
            for (int i = 0; i < n; i++)
                total[i] = _mm512_add_ps(total[i], _mm512_add_ps(sum[i][0], sum[i][1]));
        }
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) d->y[i * d->y_stride + r] = _mm512_reduce_add_ps(total[i]);
    }
}

ALWAYS_INLINE void rows_dot(const struct dot *d, const struct k_shape *shape, k_scales_fn *scales,
                            k_codes512_fn *codes)
{
    switch (d->n) {
    case 1: dot_unrolled(d, shape, scales, codes, 1); break;
    case 2: dot_unrolled(d, shape, scales, codes, 2); break;
    case 3: dot_unrolled(d, shape, scales, codes, 3); break;
    case 4: dot_unrolled(d, shape, scales, codes, 4); break;
    }
}

#define K_FUNCTIONS(name, shape, scales, codes)                                                              \
    static void name##_decode(const void *blocks, float *x, int64_t n)                                       \
    {                                                                                                        \
        blocks_decode(blocks, x, n, &shape, scales, codes);                                                  \
    }                                                                                                        \
    static void name##_dot_f32(const struct dot *d)                                                          \
    {                                                                                                        \
        rows_dot(d, &shape, scales, codes);                                                                  \
    }

#endif
