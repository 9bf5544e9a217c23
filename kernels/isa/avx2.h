/* kernels/isa/avx2.h - helpers and dot product templates of the AVX2 kernels. AVX2 masks are too slow to be
 * useful, so scalar loops handle the last elements of a row. */
#ifndef QDYNO_KERNELS_ISA_AVX2_H
#define QDYNO_KERNELS_ISA_AVX2_H

#include <immintrin.h>

#include "kernels/half.h"
#include "kernels/isa/inline.h"
#include "kernels/kernel_set.h"

ALWAYS_INLINE void prefetch_ahead(const void *p, int bytes)
{
#pragma GCC unroll 4
    for (int i = 0; i < bytes; i += LINE_BYTES) _mm_prefetch((const char *)p + AHEAD_BYTES + i, _MM_HINT_T0);
}

/* Prefetch the same place in the next 16 rows: reading sixteen rows side by side is more streams than the
 * hardware prefetcher follows. */
ALWAYS_INLINE void prefetch_next_rows(const uint8_t *block, int64_t row_bytes, int bytes)
{
    const char *next = (const char *)block + TILE_ROWS * row_bytes;
#pragma GCC unroll 4
    for (int i = 0; i < bytes; i += LINE_BYTES) _mm_prefetch(next + i, _MM_HINT_T0);
}

/* Transpose 8 x 8 32-bit lanes. */
ALWAYS_INLINE void turn_8x8(__m256i v[8])
{
    __m256i t[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        v[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
        v[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
        v[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
        v[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2x128_si256(v[i], v[i + 4], 0x20);
        t[i + 4] = _mm256_permute2x128_si256(v[i], v[i + 4], 0x31);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) v[i] = t[i];
}

/* Keep the order of additions. Otherwise the compiler reorders the sums of an unrolled loop into a tree,
 * whose terms do not fit the registers. */
ALWAYS_INLINE __m256i in_order(__m256i sum)
{
    __asm__("" : "+x"(sum));
    return sum;
}

/* Zero the groups if rows are missing, and set their kind. */
static inline void q8_groups_begin(struct q8_group *out, int rows, int64_t k, const struct q8_kind *kind)
{
    if (rows < TILE_ROWS) memset(out, 0, (size_t)(k / Q8_BLOCK) * sizeof *out);
    out->kind = *kind;
}

ALWAYS_INLINE float sum_of_lanes(__m256 v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

ALWAYS_INLINE float max_of_lanes(__m256 v)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

ALWAYS_INLINE float scale_at(const void *p)
{
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(load_u16(p))));
}

/* Expand 16 bytes to 32 four-bit codes: first all low halves, then all high halves. */
ALWAYS_INLINE __m256i nibbles(const uint8_t *p)
{
    const __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
    return _mm256_and_si256(_mm256_srlv_epi64(twice, _mm256_setr_epi64x(0, 0, 4, 4)), _mm256_set1_epi8(15));
}

/* e^x with an error of at most 2 units in the last place for -87 <= x <= 88; x is clamped to that range.
 * Formula: see exp_avx512. */
ALWAYS_INLINE __m256 exp_avx2(__m256 x)
{
    x = _mm256_max_ps(_mm256_set1_ps(-87.33f), x); /* in this order NaN stays NaN */
    x = _mm256_min_ps(_mm256_set1_ps(88.72f), x);
    const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693145751953125f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(1.42860677e-6f), r);
    __m256 p = _mm256_set1_ps(1.0f / 5040);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 720));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 120));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 24));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 6));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1));
    /* Multiply by 2^n in two steps: 2^128 is not representable, but p * 2^128 may be. */
    const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    const __m256i bias = _mm256_set1_epi32(127);
    const __m256i low = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    const __m256i high = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23);
    return _mm256_mul_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(low)), _mm256_castsi256_ps(high));
}

/* Load 8 weights, or one, from index i of a row. */
typedef __m256 load8_fn(const uint8_t *row, int64_t i);
typedef float load1_fn(const uint8_t *row, int64_t i);

ALWAYS_INLINE void dot_floats_unrolled(const struct dot *d, load8_fn *load8, load1_fn *load1,
                                       const int weight_bytes, const int n)
{
    enum { STEP = 8, UNROLL = 2, CHAINS = 4 };
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *w = d->w + r * d->row_bytes;
        const int unroll = n == 1 ? CHAINS : UNROLL;
        __m256 sum[DOT_X][CHAINS];
        float tail[DOT_X] = { 0 };
#pragma GCC unroll 4
        for (int i = 0; i < n; i++)
#pragma GCC unroll 4
            for (int u = 0; u < CHAINS; u++) sum[i][u] = _mm256_setzero_ps();
        int64_t k = 0;
        for (; k + STEP * unroll <= d->cols; k += STEP * unroll) {
            if (!d->skip_prefetch) prefetch_ahead(w + k * weight_bytes, STEP * unroll * weight_bytes);
#pragma GCC unroll 4
            for (int u = 0; u < unroll; u++) {
                const __m256 v = load8(w, k + u * STEP);
#pragma GCC unroll 4
                for (int i = 0; i < n; i++)
                    sum[i][u] = _mm256_fmadd_ps(v, _mm256_loadu_ps(d->x + i * d->x_stride + k + u * STEP),
                                                sum[i][u]);
            }
        }
        for (; k + STEP <= d->cols; k += STEP) {
            const __m256 v = load8(w, k);
#pragma GCC unroll 4
            for (int i = 0; i < n; i++)
                sum[i][0] = _mm256_fmadd_ps(v, _mm256_loadu_ps(d->x + i * d->x_stride + k), sum[i][0]);
        }
        for (; k < d->cols; k++)
            for (int i = 0; i < n; i++) tail[i] += load1(w, k) * d->x[i * d->x_stride + k];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++)
            d->y[i * d->y_stride + r] = tail[i] +
                                        sum_of_lanes(_mm256_add_ps(_mm256_add_ps(sum[i][0], sum[i][1]),
                                                                   _mm256_add_ps(sum[i][2], sum[i][3])));
    }
}

ALWAYS_INLINE void dot_floats(const struct dot *d, load8_fn *load8, load1_fn *load1, const int weight_bytes)
{
    switch (d->n) {
    case 1: dot_floats_unrolled(d, load8, load1, weight_bytes, 1); break;
    case 2: dot_floats_unrolled(d, load8, load1, weight_bytes, 2); break;
    case 3: dot_floats_unrolled(d, load8, load1, weight_bytes, 3); break;
    case 4: dot_floats_unrolled(d, load8, load1, weight_bytes, 4); break;
    }
}

/* Load one block of 32 weights as scaled floats. */
typedef void load32_fn(const uint8_t *block, __m256 out[4]);

ALWAYS_INLINE void dot_blocks_unrolled(const struct dot *d, load32_fn *load, const int block_bytes,
                                       const int n)
{
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *w = d->w + r * d->row_bytes;
        __m256 sum[DOT_X][2];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) sum[i][0] = sum[i][1] = _mm256_setzero_ps();
        for (int64_t k = 0; k < d->cols; k += 32, w += block_bytes) {
            __m256 v[4];
            prefetch_ahead(w, block_bytes);
            load(w, v);
#pragma GCC unroll 4
            for (int i = 0; i < n; i++) {
                const float *x = d->x + i * d->x_stride + k;
#pragma GCC unroll 4
                for (int u = 0; u < 4; u++)
                    sum[i][u & 1] = _mm256_fmadd_ps(v[u], _mm256_loadu_ps(x + 8 * u), sum[i][u & 1]);
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < n; i++)
            d->y[i * d->y_stride + r] = sum_of_lanes(_mm256_add_ps(sum[i][0], sum[i][1]));
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
