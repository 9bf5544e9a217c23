/* kernels/isa/avx512.h - helpers of the AVX-512 kernels: masks for the last elements of a row, a 16 x 16
 * transpose, exp, and dot product templates. Include it only in files compiled with AVX-512 flags. */
#ifndef QDYNO_KERNELS_ISA_AVX512_H
#define QDYNO_KERNELS_ISA_AVX512_H

#include <immintrin.h>

#include "kernels/half.h"
#include "kernels/isa/inline.h"
#include "kernels/kernel_set.h"

/* The mask of the first n of 16 lanes; n may be negative or above 16. */
ALWAYS_INLINE __mmask16 first_lanes(int64_t n)
{
    return n >= 16 ? 0xffff : n <= 0 ? 0 : (__mmask16)((1u << n) - 1);
}

ALWAYS_INLINE void prefetch_ahead(const void *p, int bytes)
{
#pragma GCC unroll 4
    for (int i = 0; i < bytes; i += LINE_BYTES) _mm_prefetch((const char *)p + AHEAD_BYTES + i, _MM_HINT_T0);
}

/* Load an f16 from any address and broadcast it as f32. */
ALWAYS_INLINE __m512 broadcast_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_set1_epi16((short)load_u16(p)));
}

/* Load the f16 scales of four neighbouring blocks, `step` bytes apart. It uses integer loads, because the
 * vector ports are the bottleneck of the dot kernels. */
ALWAYS_INLINE __m128 load_4_scales(const uint8_t *p, int step)
{
    const uint64_t four = (uint64_t)load_u16(p) | (uint64_t)load_u16(p + step) << 16 |
                          (uint64_t)load_u16(p + 2 * step) << 32 | (uint64_t)load_u16(p + 3 * step) << 48;
    return _mm_cvtph_ps(_mm_cvtsi64_si128((long long)four));
}

/* Transpose 16 x 16 32-bit lanes in four rounds of two-register shuffles: 64 instructions. */
ALWAYS_INLINE void transpose_16x16(__m512i r[16])
{
    __m512i t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

/* e^x with an error of at most 2 units in the last place. Formula: x = n ln 2 + r with |r| <= 0.347, e^r by
 * its Taylor series up to r^7 (the next term, r^8/8!, is at most 5e-9), times 2^n. */
ALWAYS_INLINE __m512 exp_avx512(__m512 x)
{
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 8);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693145751953125f), x); /* ln 2, upper bits */
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(1.42860677e-6f), r);            /* and the rest */
    __m512 p = _mm512_set1_ps(1.0f / 5040);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 720));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1));
    return _mm512_scalef_ps(p, n); /* overflow to infinity and underflow to 0 by themselves */
}

/* Load 16 weights from index i of a row; masked lanes become 0. */
typedef __m512 load16_fn(const uint8_t *row, int64_t i, __mmask16 lanes);

/* Multiply n rows of x (a constant at every call) with one weight row after another. */
ALWAYS_INLINE void dot_floats_unrolled(const struct dot *d, load16_fn *load, const int weight_bytes,
                                       const int n)
{
    enum { STEP = 16, UNROLL = 4 };
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *w = d->w + r * d->row_bytes;
        __m512 sum[DOT_X][UNROLL];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++)
#pragma GCC unroll 4
            for (int u = 0; u < UNROLL; u++) sum[i][u] = _mm512_setzero_ps();
        int64_t k = 0;
        for (; k + STEP * UNROLL <= d->cols; k += STEP * UNROLL) {
            if (!d->skip_prefetch) prefetch_ahead(w + k * weight_bytes, STEP * UNROLL * weight_bytes);
#pragma GCC unroll 4
            for (int u = 0; u < UNROLL; u++) {
                const __m512 v = load(w, k + u * STEP, 0xffff);
#pragma GCC unroll 4
                for (int i = 0; i < n; i++)
                    sum[i][u] = _mm512_fmadd_ps(v, _mm512_loadu_ps(d->x + i * d->x_stride + k + u * STEP),
                                                sum[i][u]);
            }
        }
        for (; k < d->cols; k += STEP) {
            const __mmask16 lanes = first_lanes(d->cols - k);
            const __m512 v = load(w, k, lanes);
#pragma GCC unroll 4
            for (int i = 0; i < n; i++)
                sum[i][0] = _mm512_fmadd_ps(v, _mm512_maskz_loadu_ps(lanes, d->x + i * d->x_stride + k),
                                            sum[i][0]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < n; i++)
            d->y[i * d->y_stride + r] = _mm512_reduce_add_ps(
                _mm512_add_ps(_mm512_add_ps(sum[i][0], sum[i][1]), _mm512_add_ps(sum[i][2], sum[i][3])));
    }
}

ALWAYS_INLINE void dot_floats(const struct dot *d, load16_fn *load, const int weight_bytes)
{
    switch (d->n) {
    case 1: dot_floats_unrolled(d, load, weight_bytes, 1); break;
    case 2: dot_floats_unrolled(d, load, weight_bytes, 2); break;
    case 3: dot_floats_unrolled(d, load, weight_bytes, 3); break;
    case 4: dot_floats_unrolled(d, load, weight_bytes, 4); break;
    }
}

/* Load one block of 32 weights as scaled floats. */
typedef void load32_fn(const uint8_t *block, __m512 out[2]);

ALWAYS_INLINE void dot_blocks_unrolled(const struct dot *d, load32_fn *load, const int block_bytes,
                                       const int n)
{
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *w = d->w + r * d->row_bytes;
        __m512 sum[DOT_X][2];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) sum[i][0] = sum[i][1] = _mm512_setzero_ps();
        for (int64_t k = 0; k < d->cols; k += 32, w += block_bytes) {
            __m512 v[2];
            prefetch_ahead(w, block_bytes);
            load(w, v);
#pragma GCC unroll 4
            for (int i = 0; i < n; i++) {
                const float *x = d->x + i * d->x_stride + k;
                sum[i][0] = _mm512_fmadd_ps(v[0], _mm512_loadu_ps(x), sum[i][0]);
                sum[i][1] = _mm512_fmadd_ps(v[1], _mm512_loadu_ps(x + 16), sum[i][1]);
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < n; i++)
            d->y[i * d->y_stride + r] = _mm512_reduce_add_ps(_mm512_add_ps(sum[i][0], sum[i][1]));
    }
}

ALWAYS_INLINE void dot_blocks(const struct dot *d, load32_fn *load, const int block_bytes)
{
    switch (d->n) {
    case 1: dot_blocks_unrolled(d, load, block_bytes, 1); break;
    case 2: dot_blocks_unrolled(d, load, block_bytes, 2); break;
    case 3: dot_blocks_unrolled(d, load, block_bytes, 3); break;
    case 4: dot_blocks_unrolled(d, load, block_bytes, 4); break;
    }
}

#endif
