/* The blocks of 64 and 128 weights with AVX-512: decoding, and dot products with f32 activations. */
#include "kernels/formats/blocks64/blocks64.h"
#include "kernels/formats/blocks64/values_avx512.h"

ALWAYS_INLINE void blocks_decode(const void *blocks, float *x, int64_t n, const int weights, const int bytes,
                                 floats16_fn *floats)
{
    const uint8_t *block = blocks;
    for (int64_t i = 0; i < n; i += weights, block += bytes)
#pragma GCC unroll 8
        for (int g = 0; g < weights / 16; g++) _mm512_storeu_ps(x + i + 16 * g, floats(block, g));
}

ALWAYS_INLINE void dot_unrolled(const struct dot *d, const int weights, const int bytes, floats16_fn *floats,
                                const int n)
{
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *block = d->w + r * d->row_bytes;
        __m512 sum[DOT_X][2];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) sum[i][0] = sum[i][1] = _mm512_setzero_ps();
        for (int64_t k = 0; k < d->cols; k += weights, block += bytes) {
            prefetch_ahead(block, bytes);
#pragma GCC unroll 8
            for (int g = 0; g < weights / 16; g++) {
                const __m512 v = floats(block, g);
#pragma GCC unroll 4
                for (int i = 0; i < n; i++)
                    sum[i][g & 1] = _mm512_fmadd_ps(v, _mm512_loadu_ps(d->x + i * d->x_stride + k + 16 * g),
                                                    sum[i][g & 1]);
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < n; i++)
            d->y[i * d->y_stride + r] = _mm512_reduce_add_ps(_mm512_add_ps(sum[i][0], sum[i][1]));
    }
}

#define FUNCTIONS(name, NAME)                                                                                \
    static void name##_decode(const void *blocks, float *x, int64_t n)                                       \
    {                                                                                                        \
        blocks_decode(blocks, x, n, NAME##_BLOCK, NAME##_BYTES, name##_floats);                              \
    }                                                                                                        \
    static void name##_dot_f32(const struct dot *d)                                                          \
    {                                                                                                        \
        switch (d->n) {                                                                                      \
        case 1: dot_unrolled(d, NAME##_BLOCK, NAME##_BYTES, name##_floats, 1); break;                        \
        case 2: dot_unrolled(d, NAME##_BLOCK, NAME##_BYTES, name##_floats, 2); break;                        \
        case 3: dot_unrolled(d, NAME##_BLOCK, NAME##_BYTES, name##_floats, 3); break;                        \
        case 4: dot_unrolled(d, NAME##_BLOCK, NAME##_BYTES, name##_floats, 4); break;                        \
        }                                                                                                    \
    }
FUNCTIONS(q1_0, Q1_0)
FUNCTIONS(q2_0, Q2_0)
FUNCTIONS(nvfp4, NVFP4)

const struct format_row BLOCKS64_AVX512[BLOCKS64_COUNT] = {
    { FORMAT_Q1_0, { .decode = q1_0_decode, .dot_f32 = q1_0_dot_f32 } },
    { FORMAT_Q2_0, { .decode = q2_0_decode, .dot_f32 = q2_0_dot_f32 } },
    { FORMAT_NVFP4, { .decode = nvfp4_decode, .dot_f32 = nvfp4_dot_f32 } },
};
