/* kernels/formats/kquants/kquants_avx2.h - blocks of 256 weights with AVX2: decoding, both dot products, and
 * unpacking for integer GEMM. A format supplies a function that expands its codes to unsigned bytes. A
 * register holds 32 codes (a part), which belong to one sub-block or two. */
#ifndef QDYNO_KERNELS_FORMATS_KQUANTS_KQUANTS_AVX2_H
#define QDYNO_KERNELS_FORMATS_KQUANTS_KQUANTS_AVX2_H

#include "kernels/isa/avx2.h"
#include "kernels/formats/kquants/layout.h"

enum { PARTS = 8, PART = 32, CHAINS = 4 };

/* Number of independent sums per row of activations. With one row, the latency of additions limits the speed,
 * so four chains are used. With more rows, there are registers for two only. */
ALWAYS_INLINE int chains_of(const int n)
{
    return n == 1 ? CHAINS : 2;
}

/* Expand the 256 codes to unsigned bytes in natural order. */
typedef void k_codes256_fn(const uint8_t *block, __m256i code[PARTS]);

ALWAYS_INLINE __m256i codes_load(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

ALWAYS_INLINE float half_of(uint16_t h)
{
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h)));
}

ALWAYS_INLINE float scale_of(const struct k_scales *s, const struct k_shape *shape)
{
    return half_of(s->d) * shape->unit;
}

/* An unpacked block: signed codes (the bias is subtracted), and scales in memory, from where broadcasts need
 * no shuffle. */
struct unpacked {
    __m256i code[PARTS];
    float scale[K_SUBS], min[K_SUBS];
};

ALWAYS_INLINE void floats_of(const uint64_t bytes[2], float d, const int n, float *out)
{
    const __m256 by = _mm256_set1_ps(d);
#pragma GCC unroll 2
    for (int j = 0; j < n; j += 8) {
        const __m256i v = _mm256_cvtepi8_epi32(_mm_cvtsi64_si128((long long)bytes[j / 8]));
        _mm256_storeu_ps(out + j, _mm256_mul_ps(by, _mm256_cvtepi32_ps(v)));
    }
}

ALWAYS_INLINE void block_unpack(const uint8_t *block, const struct k_shape *shape, k_scales_fn *scales,
                                k_codes256_fn *codes, struct unpacked *u)
{
    struct k_scales s;
    scales(block, &s);
    codes(block, u->code);
    floats_of(s.scale, scale_of(&s, shape), K_BLOCK / shape->sub, u->scale);
    if (shape->has_min) floats_of(s.min, half_of(s.dmin), K_BLOCK / shape->sub, u->min);
    if (shape->bias)
#pragma GCC unroll 8
        for (int p = 0; p < PARTS; p++)
            u->code[p] = _mm256_sub_epi8(u->code[p], _mm256_set1_epi8((char)shape->bias));
}

/* Weights 8g .. 8g + 7 with the bits of the reference: a product, then a difference. g is a constant. */
ALWAYS_INLINE __m256 weights8(const struct unpacked *u, const struct k_shape *shape, const int g)
{
    __m128i bytes = g & 2 ? _mm256_extracti128_si256(u->code[g / 4], 1)
                          : _mm256_castsi256_si128(u->code[g / 4]);
    if (g & 1) bytes = _mm_srli_si128(bytes, 8);
    const int j = g * 8 / shape->sub;
    const __m256 product = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
                                         _mm256_set1_ps(u->scale[j]));
    return shape->has_min ? _mm256_sub_ps(product, _mm256_set1_ps(u->min[j])) : product;
}

ALWAYS_INLINE void blocks_decode(const void *blocks, float *x, int64_t n, const struct k_shape *shape,
                                 k_scales_fn *scales, k_codes256_fn *codes)
{
    const uint8_t *block = blocks;
    for (int64_t k = 0; k < n; k += K_BLOCK, block += shape->block_bytes) {
        struct unpacked u;
        block_unpack(block, shape, scales, codes, &u);
#pragma GCC unroll 32
        for (int g = 0; g < K_BLOCK / 8; g++) _mm256_storeu_ps(x + k + 8 * g, weights8(&u, shape, g));
    }
}

ALWAYS_INLINE void block_dot_f32(const struct unpacked *u, const struct k_shape *shape, const struct dot *d,
                                 int64_t k, const int n, __m256 sum[DOT_X][CHAINS])
{
#pragma GCC unroll 32
    for (int g = 0; g < K_BLOCK / 8; g++) {
        const __m256 v = weights8(u, shape, g);
#pragma GCC unroll 4
        for (int i = 0; i < n; i++)
            sum[i][g % chains_of(n)] = _mm256_fmadd_ps(v, _mm256_loadu_ps(d->x + i * d->x_stride + k + 8 * g),
                                                       sum[i][g % chains_of(n)]);
    }
}

ALWAYS_INLINE void k_dot_f32_unrolled(const struct dot *d, const struct k_shape *shape, k_scales_fn *scales,
                                      k_codes256_fn *codes, const int n)
{
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *block = d->w + r * d->row_bytes;
        __m256 total[DOT_X];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) total[i] = _mm256_setzero_ps();
        for (int64_t k = 0; k < d->cols; k += K_BLOCK, block += shape->block_bytes) {
            struct unpacked u;
            __m256 sum[DOT_X][CHAINS]; /* of one block only; adding blocks separately keeps rounding errors
                                          small in long rows */
            prefetch_ahead(block, shape->block_bytes);
            block_unpack(block, shape, scales, codes, &u);
#pragma GCC unroll 4
            for (int i = 0; i < n; i++)
#pragma GCC unroll 4
                for (int c = 0; c < chains_of(n); c++) sum[i][c] = _mm256_setzero_ps();
            block_dot_f32(&u, shape, d, k, n, sum);
#pragma GCC unroll 4
            for (int i = 0; i < n; i++) {
                __m256 both = _mm256_add_ps(sum[i][0], sum[i][1]);
                if (chains_of(n) == CHAINS) both = _mm256_add_ps(both, _mm256_add_ps(sum[i][2], sum[i][3]));
                total[i] = _mm256_add_ps(total[i], both);
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) d->y[i * d->y_stride + r] = sum_of_lanes(total[i]);
    }
}

ALWAYS_INLINE void dot_f32(const struct dot *d, const struct k_shape *shape, k_scales_fn *scales,
                           k_codes256_fn *codes)
{
    switch (d->n) {
    case 1: k_dot_f32_unrolled(d, shape, scales, codes, 1); break;
    case 2: k_dot_f32_unrolled(d, shape, scales, codes, 2); break;
    case 3: k_dot_f32_unrolled(d, shape, scales, codes, 3); break;
    case 4: k_dot_f32_unrolled(d, shape, scales, codes, 4); break;
    }
}

/* ---------------------------------------------------------------- 8-bit activations */

/* A block prepared for 8-bit activations. Lane p of the lower half of `scale` is the integer scale of part
 * p's first sub-block, lane p of the upper half that of its second (the same number twice with sub-blocks of
 * 32). `offset` is multiplied by sums of activations and subtracted: the minimum of a sub-block, or its scale
 * times the bias. It has 16 lanes, or 8 with sub-blocks of 32. */
struct k_integers {
    __m256i code[PARTS], scale;
    __m256 offset[2];
    float d;
};

ALWAYS_INLINE __m256 bytes_to_floats(uint64_t bytes)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128((long long)bytes)));
}

/* True if codes use all 8 bits (bias 128). vpmaddubsw would overflow with such codes as unsigned operand, so
 * it multiplies |code| by the activation with the sign of the code. */
ALWAYS_INLINE bool by_sign(const struct k_shape *shape)
{
    return shape->bias == 128;
}

ALWAYS_INLINE void integers_of(const uint8_t *block, const struct k_shape *shape, k_scales_fn *scales,
                               k_codes256_fn *codes, struct k_integers *b)
{
    struct k_scales s;
    scales(block, &s);
    codes(block, b->code);
    b->d = scale_of(&s, shape);
    if (shape->sub == 16) {
        const __m128i apart = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
        const __m128i bytes = _mm_set_epi64x((long long)s.scale[1], (long long)s.scale[0]);
        b->scale = _mm256_cvtepi8_epi16(_mm_shuffle_epi8(bytes, apart));
    } else {
        b->scale = _mm256_broadcastsi128_si256(_mm_cvtepi8_epi16(_mm_cvtsi64_si128((long long)s.scale[0])));
    }
    const __m256 by = _mm256_set1_ps(shape->has_min ? half_of(s.dmin) : b->d * (float)shape->bias);
    const uint64_t *offset = shape->has_min ? s.min : s.scale;
    b->offset[0] = _mm256_mul_ps(by, bytes_to_floats(offset[0]));
    if (shape->sub == 16) b->offset[1] = _mm256_mul_ps(by, bytes_to_floats(offset[1]));
}

/* Multiply 32 codes by 32 activations and by their integer scale; each lane sums four products. vpmaddubsw
 * adds pairs of products in 16 bits: with unsigned codes a pair is at most 2 * 126 * 127, with |code| 2 * 127
 * * 127, both below 2^15. */
ALWAYS_INLINE __m256i part_products(__m256i code, __m256i q, __m256i scale, const bool is_signed)
{
    if (is_signed) {
        code = _mm256_xor_si256(code, _mm256_set1_epi8((char)0x80));
        q = _mm256_sign_epi8(q, code);
        code = _mm256_abs_epi8(code);
    }
    return _mm256_madd_epi16(_mm256_maddubs_epi16(code, q), scale);
}

ALWAYS_INLINE void block_dot_q8(const struct k_integers *b, const struct k_shape *shape, const struct dot *d,
                                int64_t k, const int n, __m256 total[DOT_X])
{
    __m256 sum[DOT_X][2];
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) sum[i][0] = sum[i][1] = _mm256_setzero_ps();
#pragma GCC unroll 8
    for (int p = 0; p < PARTS; p++) {
        const __m256i lane = _mm256_set1_epi16((short)(2 * p | (2 * p + 1) << 8));
        const __m256i scale = _mm256_shuffle_epi8(b->scale, lane);
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) {
            const __m256i q = codes_load((const uint8_t *)d->q.q + i * d->q.q_stride + k + p * PART);
            const __m256 v = _mm256_cvtepi32_ps(part_products(b->code[p], q, scale, by_sign(shape)));
            sum[i][p & 1] = _mm256_fmadd_ps(
                v, _mm256_broadcast_ss(d->q.d + i * d->q.d_stride + k / Q8_BLOCK + p), sum[i][p & 1]);
        }
    }
    const __m256 by = _mm256_set1_ps(b->d);
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) {
        total[i] = _mm256_fmadd_ps(by, _mm256_add_ps(sum[i][0], sum[i][1]), total[i]);
        if (by_sign(shape)) continue;
        const int64_t at = i * d->q.d_stride + k / Q8_BLOCK;
        if (shape->sub == 32) {
            total[i] = _mm256_fnmadd_ps(b->offset[0], _mm256_loadu_ps(d->q.sum + at), total[i]);
        } else {
            total[i] = _mm256_fnmadd_ps(b->offset[0], _mm256_loadu_ps(d->q.sum16 + 2 * at), total[i]);
            total[i] = _mm256_fnmadd_ps(b->offset[1], _mm256_loadu_ps(d->q.sum16 + 2 * at + 8), total[i]);
        }
    }
}

ALWAYS_INLINE void k_dot_q8_unrolled(const struct dot *d, const struct k_shape *shape, k_scales_fn *scales,
                                     k_codes256_fn *codes, const int n)
{
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *block = d->w + r * d->row_bytes;
        __m256 total[DOT_X];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) total[i] = _mm256_setzero_ps();
        for (int64_t k = 0; k < d->cols; k += K_BLOCK, block += shape->block_bytes) {
            struct k_integers b;
            prefetch_ahead(block, shape->block_bytes);
            integers_of(block, shape, scales, codes, &b);
            block_dot_q8(&b, shape, d, k, n, total);
        }
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) d->y[i * d->y_stride + r] = sum_of_lanes(total[i]);
    }
}

ALWAYS_INLINE void k_dot_q8(const struct dot *d, const struct k_shape *shape, k_scales_fn *scales,
                            k_codes256_fn *codes)
{
    switch (d->n) {
    case 1: k_dot_q8_unrolled(d, shape, scales, codes, 1); break;
    case 2: k_dot_q8_unrolled(d, shape, scales, codes, 2); break;
    case 3: k_dot_q8_unrolled(d, shape, scales, codes, 3); break;
    case 4: k_dot_q8_unrolled(d, shape, scales, codes, 4); break;
    }
}

/* Unpack codes for integer GEMM. Codes 0 .. 31 without a bias are treated as -16 .. 15 with a bias of 16, and
 * 16 scales are added to the minimum in return. This keeps 16-bit sums over half a group from overflowing. */
ALWAYS_INLINE void unpack_q8(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, struct q8_group *out,
                             const struct k_shape *shape, k_scales_fn *scales, k_codes256_fn *codes)
{
    const int recentred = shape->has_min && shape->sub == 32 ? 16 : 0, halves = 32 / shape->sub;
    const struct q8_kind kind = {
        .sub = shape->sub, .bias = shape->bias + recentred, .has_min = shape->has_min, .wide = k_wide(shape)
    };
    q8_groups_begin(out, rows, k, &kind);
    for (int r = 0; r < rows; r++) {
        const uint8_t *block = w + r * row_bytes;
        struct q8_group *to = out;
        for (int64_t i = 0; i < k; i += K_BLOCK, block += shape->block_bytes) {
            struct k_scales s;
            struct unpacked u;
            prefetch_next_rows(block, row_bytes, shape->block_bytes);
            scales(block, &s);
            codes(block, u.code);
            floats_of(s.scale, scale_of(&s, shape), K_BLOCK / shape->sub, u.scale);
            if (shape->has_min) floats_of(s.min, half_of(s.dmin), K_BLOCK / shape->sub, u.min);
#pragma GCC unroll 8
            for (int p = 0; p < PARTS; p++, to++) {
                _mm256_storeu_si256((__m256i *)to->code[r], u.code[p]);
                for (int h = 0; h < halves; h++) {
                    const float scale = u.scale[p * halves + h];
                    to->scale[h][r] = scale;
                    if (shape->has_min) to->min[h][r] = (float)recentred * scale - u.min[p * halves + h];
                }
            }
        }
    }
}

/* Define the kernels of a format from its shape, its scales and its codes. */
#define K_FUNCTIONS(name, shape, scales, codes)                                                              \
    static void name##_decode(const void *blocks, float *x, int64_t n)                                       \
    {                                                                                                        \
        blocks_decode(blocks, x, n, &shape, scales, codes);                                                  \
    }                                                                                                        \
    static void name##_dot_f32(const struct dot *d)                                                          \
    {                                                                                                        \
        dot_f32(d, &shape, scales, codes);                                                                   \
    }                                                                                                        \
    static void name##_dot_q8(const struct dot *d)                                                           \
    {                                                                                                        \
        k_dot_q8(d, &shape, scales, codes);                                                                  \
    }                                                                                                        \
    static void name##_unpack_q8(const uint8_t *w, int64_t row_bytes, int rows, int64_t k,                   \
                                 struct q8_group *out)                                                       \
    {                                                                                                        \
        unpack_q8(w, row_bytes, rows, k, out, &shape, scales, codes);                                        \
    }

#endif
