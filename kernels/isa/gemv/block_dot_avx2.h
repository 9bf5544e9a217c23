/* kernels/isa/gemv/block_dot_avx2.h - decode and both dot products with AVX2, for every format that can
 * expand 32 codes to bytes. A format supplies a struct block_kind of constants, for which everything is
 * inlined. */
#ifndef QDYNO_KERNELS_ISA_GEMV_BLOCK_DOT_AVX2_H
#define QDYNO_KERNELS_ISA_GEMV_BLOCK_DOT_AVX2_H

#include "kernels/isa/avx2.h"

/* weight = scale * (code - bias) (+ min), 32 * parts weights in a block. */
struct block_kind {
    int bytes, parts, bias;
    __m256i (*codes)(const uint8_t *block, int part); /* bytes in natural order */
    __m256i (*products)(__m256i codes, __m256i q);    /* sums of four neighbours in each of 8 lanes */
    float (*scale)(const uint8_t *block);
    float (*min)(const uint8_t *block); /* NULL: the format has none */
};

/* Unsigned codes up to 31: pairs reach 2 * 31 * 127 = 7874, far from saturating. */
ALWAYS_INLINE __m256i products_unsigned(__m256i codes, __m256i q)
{
    return _mm256_madd_epi16(_mm256_maddubs_epi16(codes, q), _mm256_set1_epi16(1));
}

/* Signed codes: pairs reach 2 * 128 * 127 = 32512 (activations are never -128). */
ALWAYS_INLINE __m256i products_signed(__m256i codes, __m256i q)
{
    return products_unsigned(_mm256_abs_epi8(codes), _mm256_sign_epi8(q, codes));
}

/* Codes that use all 8 bits: products of code - 128. The minimum, which such a format must have, compensates
 * by 128 scales. */
ALWAYS_INLINE __m256i products_lowered(__m256i codes, __m256i q)
{
    return products_signed(_mm256_xor_si256(codes, _mm256_set1_epi8((char)0x80)), q);
}

ALWAYS_INLINE void part_floats(const struct block_kind *f, const uint8_t *block, int part, __m256 out[4])
{
    const __m256i codes = _mm256_sub_epi8(f->codes(block, part), _mm256_set1_epi8((char)f->bias));
    const __m128i low = _mm256_castsi256_si128(codes), high = _mm256_extracti128_si256(codes, 1);
    const __m128i eighths[4] = { low, _mm_srli_si128(low, 8), high, _mm_srli_si128(high, 8) };
    const __m256 d = _mm256_set1_ps(f->scale(block));
#pragma GCC unroll 4
    for (int u = 0; u < 4; u++) {
        const __m256i code = f->products == products_lowered ? _mm256_cvtepu8_epi32(eighths[u])
                                                             : _mm256_cvtepi8_epi32(eighths[u]);
        out[u] = _mm256_mul_ps(_mm256_cvtepi32_ps(code), d);
        if (f->min) out[u] = _mm256_add_ps(out[u], _mm256_set1_ps(f->min(block)));
    }
}

ALWAYS_INLINE void kind_decode(const struct block_kind *f, const void *blocks, float *x, int64_t n)
{
    const uint8_t *in = blocks;
    for (int64_t i = 0; i < n; i += 32 * f->parts, in += f->bytes) {
        for (int p = 0; p < f->parts; p++) {
            __m256 v[4];
            part_floats(f, in, p, v);
            for (int u = 0; u < 4; u++) _mm256_storeu_ps(x + i + 32 * p + 8 * u, v[u]);
        }
    }
}

ALWAYS_INLINE void kind_dot_f32_unrolled(const struct block_kind *f, const struct dot *d, const int n)
{
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *w = d->w + r * d->row_bytes;
        __m256 sum[DOT_X][2];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) sum[i][0] = sum[i][1] = _mm256_setzero_ps();
        for (int64_t k = 0; k < d->cols; k += 32 * f->parts, w += f->bytes) {
            prefetch_ahead(w, f->bytes);
            for (int p = 0; p < f->parts; p++) {
                __m256 v[4];
                part_floats(f, w, p, v);
#pragma GCC unroll 4
                for (int i = 0; i < n; i++) {
                    const float *x = d->x + i * d->x_stride + k + 32 * p;
#pragma GCC unroll 4
                    for (int u = 0; u < 4; u++)
                        sum[i][u & 1] = _mm256_fmadd_ps(v[u], _mm256_loadu_ps(x + 8 * u), sum[i][u & 1]);
                }
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < n; i++)
            d->y[i * d->y_stride + r] = sum_of_lanes(_mm256_add_ps(sum[i][0], sum[i][1]));
    }
}

/* The f16 scale at the start of a block, which most formats have. It is a function of its own so that the
 * kernel can recognize it and convert several scales together. */
ALWAYS_INLINE float leading_scale(const uint8_t *block)
{
    return scale_at(block);
}

/* The f16 minimum after the scale. */
ALWAYS_INLINE float second_min(const uint8_t *block)
{
    return scale_at(block + 2);
}

enum { ROUND = 4 /* blocks */ };

/* Load four f16, `step` bytes apart, with integer loads: the vector ports are the bottleneck. */
ALWAYS_INLINE __m128 load_4_halves(const uint8_t *p, int step)
{
    const uint64_t four = (uint64_t)load_u16(p) | (uint64_t)load_u16(p + step) << 16 |
                          (uint64_t)load_u16(p + 2 * step) << 32 | (uint64_t)load_u16(p + 3 * step) << 48;
    return _mm_cvtph_ps(_mm_cvtsi64_si128((long long)four));
}

ALWAYS_INLINE __m128 four_of(float (*of)(const uint8_t *block), const uint8_t *w, int step)
{
    if (of == leading_scale) return load_4_halves(w, step);
    if (of == second_min) return load_4_halves(w + 2, step);
    return _mm_setr_ps(of(w), of(w + step), of(w + 2 * step), of(w + 3 * step));
}

struct kind_sums {
    __m256 products[2];
    __m128 offset;
};

ALWAYS_INLINE __m256 part_dots(const struct block_kind *f, __m256i codes, const int8_t *q)
{
    return _mm256_cvtepi32_ps(f->products(codes, _mm256_loadu_si256((const __m256i *)q)));
}

/* Four blocks of 32. Their scales, times those of the activations, are stored and broadcast from memory,
 * which needs no shuffle. */
ALWAYS_INLINE void round_add(const struct block_kind *f, const struct dot *d, const uint8_t *w, int64_t b,
                             const int n, struct kind_sums *sums)
{
    float by[DOT_X][ROUND];
    const __m128 scales = four_of(f->scale, w, f->bytes);
    const __m128 per_sum = f->min ? four_of(f->min, w, f->bytes)
                                  : _mm_mul_ps(scales, _mm_set1_ps(-(float)f->bias));
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) {
        const int64_t at = i * d->q.d_stride + b;
        _mm_storeu_ps(by[i], _mm_mul_ps(scales, _mm_loadu_ps(d->q.d + at)));
        if (f->min || f->bias)
            sums[i].offset = _mm_fmadd_ps(per_sum, _mm_loadu_ps(d->q.sum + at), sums[i].offset);
    }
#pragma GCC unroll 4
    for (int u = 0; u < ROUND; u++) {
        const __m256i codes = f->codes(w + u * f->bytes, 0);
#pragma GCC unroll 4
        for (int i = 0; i < n; i++)
            sums[i].products[u & 1] = _mm256_fmadd_ps(
                part_dots(f, codes, d->q.q + i * d->q.q_stride + (b + u) * 32),
                _mm256_broadcast_ss(&by[i][u]), sums[i].products[u & 1]);
    }
}

/* One block with any number of parts under one scale. */
ALWAYS_INLINE void block_add(const struct block_kind *f, const struct dot *d, const uint8_t *w, int64_t b,
                             const int n, struct kind_sums *sums)
{
    const float scale = f->scale(w), lowered = f->products == products_lowered ? 128 * scale : 0;
    const float per_sum = f->min ? f->min(w) + lowered : -(float)f->bias * scale;
    __m256 block[DOT_X];
    float offset[DOT_X] = { 0 };
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) block[i] = _mm256_setzero_ps();
#pragma GCC unroll 8
    for (int p = 0; p < f->parts; p++) {
        const __m256i codes = f->codes(w, p);
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) {
            const int64_t at = i * d->q.d_stride + b + p;
            block[i] = _mm256_fmadd_ps(part_dots(f, codes, d->q.q + i * d->q.q_stride + (b + p) * 32),
                                       _mm256_broadcast_ss(d->q.d + at), block[i]);
            if (f->min || f->bias) offset[i] += d->q.sum[at];
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) {
        sums[i].products[0] = _mm256_fmadd_ps(block[i], _mm256_set1_ps(scale), sums[i].products[0]);
        if (f->min || f->bias) sums[i].offset = _mm_add_ss(sums[i].offset, _mm_set_ss(per_sum * offset[i]));
    }
}

/* y = sum over parts of scale * (d_x * products) + (min - bias * scale) * sum_x. */
ALWAYS_INLINE void kind_dot_q8_unrolled(const struct block_kind *f, const struct dot *d, const int n)
{
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *w = d->w + r * d->row_bytes;
        struct kind_sums sums[DOT_X];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) {
            sums[i].products[0] = sums[i].products[1] = _mm256_setzero_ps();
            sums[i].offset = _mm_setzero_ps();
        }
        int64_t b = 0;
        for (; f->parts == 1 && b + ROUND <= d->cols / 32; b += ROUND, w += ROUND * f->bytes) {
            prefetch_ahead(w, ROUND * f->bytes);
            round_add(f, d, w, b, n, sums);
        }
        for (; b < d->cols / 32; b += f->parts, w += f->bytes) {
            prefetch_ahead(w, f->bytes);
            block_add(f, d, w, b, n, sums);
        }
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) {
            const __m256 off = _mm256_insertf128_ps(_mm256_setzero_ps(), sums[i].offset, 0);
            d->y[i * d->y_stride + r] = sum_of_lanes(
                _mm256_add_ps(_mm256_add_ps(sums[i].products[0], sums[i].products[1]), off));
        }
    }
}

ALWAYS_INLINE void kind_dot_f32(const struct block_kind *f, const struct dot *d)
{
    switch (d->n) {
    case 1: kind_dot_f32_unrolled(f, d, 1); break;
    case 2: kind_dot_f32_unrolled(f, d, 2); break;
    case 3: kind_dot_f32_unrolled(f, d, 3); break;
    case 4: kind_dot_f32_unrolled(f, d, 4); break;
    }
}

ALWAYS_INLINE void kind_dot_q8(const struct block_kind *f, const struct dot *d)
{
    switch (d->n) {
    case 1: kind_dot_q8_unrolled(f, d, 1); break;
    case 2: kind_dot_q8_unrolled(f, d, 2); break;
    case 3: kind_dot_q8_unrolled(f, d, 3); break;
    case 4: kind_dot_q8_unrolled(f, d, 4); break;
    }
}

/* Unpack codes for integer GEMM. Signed codes get 128 added. Codes up to 31 without a bias are treated as
 * -16..15 (the minimum grows by 16 scales), so that sums of half a block fit 16 bits. */
ALWAYS_INLINE void kind_unpack_q8(const struct block_kind *f, const uint8_t *w, int64_t row_bytes, int rows,
                                  int64_t k, struct q8_group *out)
{
    const bool is_signed = f->products == products_signed;
    const int recentred = f->min && !f->bias ? 16 : 0;
    const struct q8_kind kind = {
        .sub = 32, .bias = is_signed ? 128 : f->bias + recentred, .has_min = f->min != NULL, .wide = is_signed
    };
    q8_groups_begin(out, rows, k, &kind);
    for (int r = 0; r < rows; r++) {
        const uint8_t *block = w + r * row_bytes;
        struct q8_group *to = out;
        for (int64_t i = 0; i < k; i += 32 * f->parts, block += f->bytes) {
            const float scale = f->scale(block), min = f->min ? f->min(block) + (float)recentred * scale : 0;
            prefetch_next_rows(block, row_bytes, f->bytes);
            for (int p = 0; p < f->parts; p++, to++) {
                __m256i codes = f->codes(block, p);
                if (is_signed) codes = _mm256_xor_si256(codes, _mm256_set1_epi8((char)0x80));
                _mm256_storeu_si256((__m256i *)to->code[r], codes);
                to->scale[0][r] = scale;
                if (f->min) to->min[0][r] = min;
            }
        }
    }
}

/* Define decode and both dot products of a format from its static const struct block_kind. */
#define BLOCK_KIND_FUNCTIONS(name, KIND)                                                                     \
    static void name##_decode(const void *blocks, float *x, int64_t n)                                       \
    {                                                                                                        \
        kind_decode(&KIND, blocks, x, n);                                                                    \
    }                                                                                                        \
    static void name##_dot_f32(const struct dot *d)                                                          \
    {                                                                                                        \
        kind_dot_f32(&KIND, d);                                                                              \
    }                                                                                                        \
    static void name##_dot_q8(const struct dot *d)                                                           \
    {                                                                                                        \
        kind_dot_q8(&KIND, d);                                                                               \
    }

/* Define its unpacking for integer GEMM. */
#define BLOCK_KIND_UNPACK_Q8(name, KIND)                                                                     \
    static void name##_unpack_q8(const uint8_t *w, int64_t row_bytes, int rows, int64_t k,                   \
                                 struct q8_group *out)                                                       \
    {                                                                                                        \
        kind_unpack_q8(&KIND, w, row_bytes, rows, k, out);                                                   \
    }

#endif
