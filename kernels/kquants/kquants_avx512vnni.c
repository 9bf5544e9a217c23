/* The 256-weight formats with AVX-512 VNNI and 8-bit activations. Per 64 weights: one vpdpbusd of unsigned
 * codes with the activations leaves sums of four in 16 lanes; lanes of a sub-block are neighbours, and a
 * permuted vector of (weights' scale) x (activations' scale) finishes them. */
#include "kernels/kquants/kquants.h"
#include "kernels/kquants/kquants_avx512.h"

/* For chunk c of 64 weights, the sub-block of each lane of sums. */
ALWAYS_INLINE __m512i lane_subs(const int sub, const int c)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return sub == 16 ? _mm512_add_epi32(_mm512_srli_epi32(lane, 2), _mm512_set1_epi32(4 * c))
                     : _mm512_add_epi32(_mm512_srli_epi32(lane, 3), _mm512_set1_epi32(2 * c));
}

/* The eight floats of 32 activations each, one a sub-block: doubled where sub-blocks are 16 wide, else with
 * zeros in the upper half, which nothing reads. */
ALWAYS_INLINE __m512 per_sub(const float *p, const int sub)
{
    const __m512 v = _mm512_zextps256_ps512(_mm256_loadu_ps(p));
    const __m512i doubled = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return sub == 16 ? _mm512_permutexvar_ps(doubled, v) : v;
}

/* One block with one row of activations: sum in *sum; what is taken off at the end of the row in *off. */
ALWAYS_INLINE void block_dot(const __m512i code[K_CHUNKS], const struct k_floats512 *f,
                             const struct k_shape *shape, const struct dot *d, int64_t q_at, int64_t d_at,
                             __m512 *sum, __m512 *off)
{
    const __m512 dx = per_sub(d->q.d + d_at, shape->sub), scale = _mm512_mul_ps(f->scale, dx);
    const __m512 min = _mm512_mul_ps(f->min, dx);
    const bool by_16 = shape->sub == 16;
#pragma GCC unroll 4
    for (int c = 0; c < K_CHUNKS; c++) {
        const __m512i zero = _mm512_setzero_si512(), subs = lane_subs(shape->sub, c);
        const __m512i q = _mm512_loadu_si512(d->q.q + q_at + c * K_CHUNK);
        __m512i dots = _mm512_dpbusd_epi32(zero, code[c], q);
        if (by_16 && shape->bias)
            dots = _mm512_sub_epi32(dots, _mm512_dpbusd_epi32(zero, _mm512_set1_epi8((char)shape->bias), q));
        *sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots), _mm512_permutexvar_ps(subs, scale), *sum);
        if (by_16 && shape->has_min)
            *off = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_dpbusd_epi32(zero, _mm512_set1_epi8(1), q)),
                                   _mm512_permutexvar_ps(subs, min), *off);
    }
    if (by_16) return;
    const __m512 total = per_sub(d->q.sum + d_at, shape->sub);
    *off = _mm512_fmadd_ps(shape->has_min ? f->min : f->scale, total, *off);
}

ALWAYS_INLINE void dot_n(const struct dot *d, const struct k_shape *shape, k_scales_fn *scales,
                         k_codes512_fn *codes, const int n)
{
    const float off_by = shape->has_min ? 1 : (float)shape->bias;
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *block = d->w + r * d->row_bytes;
        __m512 sum[DOT_X], off[DOT_X];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) sum[i] = off[i] = _mm512_setzero_ps();
        for (int64_t k = 0; k < d->cols; k += K_BLOCK, block += shape->block_bytes) {
            __m512i code[K_CHUNKS];
            prefetch_ahead(block, shape->block_bytes);
            const struct k_floats512 f = k_floats(block, shape, scales);
            codes(block, code);
#pragma GCC unroll 4
            for (int i = 0; i < n; i++)
                block_dot(code, &f, shape, d, i * d->q.q_stride + k, i * d->q.d_stride + k / Q8_BLOCK,
                          &sum[i], &off[i]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < n; i++)
            d->y[i * d->y_stride + r] = _mm512_reduce_add_ps(
                _mm512_fnmadd_ps(off[i], _mm512_set1_ps(off_by), sum[i]));
    }
}

ALWAYS_INLINE void dot_q8(const struct dot *d, const struct k_shape *shape, k_scales_fn *scales,
                          k_codes512_fn *codes)
{
    switch (d->n) {
    case 1: dot_n(d, shape, scales, codes, 1); break;
    case 2: dot_n(d, shape, scales, codes, 2); break;
    case 3: dot_n(d, shape, scales, codes, 3); break;
    case 4: dot_n(d, shape, scales, codes, 4); break;
    }
}

static void q2_k_dot_q8(const struct dot *d)
{
    dot_q8(d, &Q2_K_SHAPE, q2_k_scales, q2_k_codes512);
}

static void q3_k_dot_q8(const struct dot *d)
{
    dot_q8(d, &Q3_K_SHAPE, q3_k_scales, q3_k_codes512);
}

static void q4_k_dot_q8(const struct dot *d)
{
    dot_q8(d, &Q4_K_SHAPE, q4_k_scales, q4_k_codes512);
}

static void q5_k_dot_q8(const struct dot *d)
{
    dot_q8(d, &Q5_K_SHAPE, q4_k_scales, q5_k_codes512);
}

static void q6_k_dot_q8(const struct dot *d)
{
    dot_q8(d, &Q6_K_SHAPE, q6_k_scales, q6_k_codes512);
}

static void iq4_xs_dot_q8(const struct dot *d)
{
    dot_q8(d, &IQ4_XS_SHAPE, iq4_xs_scales, iq4_xs_codes512);
}

const struct format_row KQUANTS_AVX512VNNI[KQUANT_COUNT] = {
    { FORMAT_Q2_K, { .dot_q8 = q2_k_dot_q8 } }, { FORMAT_Q3_K, { .dot_q8 = q3_k_dot_q8 } },
    { FORMAT_Q4_K, { .dot_q8 = q4_k_dot_q8 } }, { FORMAT_Q5_K, { .dot_q8 = q5_k_dot_q8 } },
    { FORMAT_Q6_K, { .dot_q8 = q6_k_dot_q8 } }, { FORMAT_IQ4_XS, { .dot_q8 = iq4_xs_dot_q8 } },
};
