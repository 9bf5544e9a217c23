/* Conversion of K formats and iq4_xs to columns of 16 rows (struct q8_columns), for integer GEMM with few
 * rows of activations. The stored bytes of 16 rows are transposed first, then codes and scales of all rows
 * are expanded together. Scales and minima have the bits that unpack_q8 (kquants_avx2.h) computes. */
#include "kernels/formats/kquants/kquants.h"
#include "kernels/formats/kquants/layout.h"
#include "kernels/isa/gemm/columns_avx512.h"

enum { PARTS = K_BLOCK / Q8_BLOCK, RECENTRED = 16 /* codes 0 .. 31 are treated as -16 .. 15 */ };

/* Load 32 bytes of each row as eight vectors. */
ALWAYS_INLINE void columns_load_32(const uint8_t *w, int64_t row_bytes, __m512i out[8])
{
    columns_load(w, row_bytes, out);
    columns_load(w + 16, row_bytes, out + 4);
}

ALWAYS_INLINE __m512 low_f16(__m512i dwords)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(dwords));
}

/* Convert the signed byte `at` of every 32-bit lane to float. */
ALWAYS_INLINE __m512 byte_floats(__m512i v, const int at)
{
    return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(v, 24 - 8 * at), 24));
}

/* Unpack the 6-bit scales and minima of q4_K and q5_K as q4_k_scales does, for all 16 rows at once. Each
 * vector holds four sub-blocks, one per byte of a lane. */
ALWAYS_INLINE void scales_6_bits(const uint8_t *block, int64_t row_bytes, struct q8_columns out[PARTS])
{
    __m512i head[4], scale[2], min[2];
    columns_load(block, row_bytes, head);
    const __m512 d = low_f16(head[0]), dmin = low_f16(_mm512_srli_epi32(head[0], 16));
    const __m512i two = _mm512_set1_epi8(0x30);
    scale[0] = byte_bits(head[1], 0, 0x3f), min[0] = byte_bits(head[2], 0, 0x3f);
    scale[1] = _mm512_or_si512(byte_bits(head[3], 0, 0x0f),
                               _mm512_and_si512(_mm512_srli_epi16(head[1], 2), two));
    min[1] = _mm512_or_si512(byte_bits(head[3], 4, 0x0f),
                             _mm512_and_si512(_mm512_srli_epi16(head[2], 2), two));
#pragma GCC unroll 8
    for (int p = 0; p < PARTS; p++) {
        const __m512 by = _mm512_mul_ps(d, byte_floats(scale[p / 4], p % 4));
        const __m512 less = _mm512_mul_ps(dmin, byte_floats(min[p / 4], p % 4));
        _mm512_store_ps(out[p].scale[0], by);
        _mm512_store_ps(out[p].min[0], _mm512_sub_ps(_mm512_mul_ps(_mm512_set1_ps(RECENTRED), by), less));
    }
}

struct q8_kind q4_k_unpack_columns(const uint8_t *w, int64_t row_bytes, int64_t k, struct q8_columns *out,
                                   struct prefetch *ahead)
{
    for (int64_t i = 0; i < k; i += K_BLOCK, w += Q4_K_SHAPE.block_bytes, out += PARTS) {
        scales_6_bits(w, row_bytes, out);
        for (int p = 0; p < PARTS; p += 2) {
            __m512i bytes[8];
            prefetch_step(ahead), prefetch_step(ahead);
            columns_load_32(w + Q4_K_CODES + 16 * p, row_bytes, bytes);
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++) {
                _mm512_store_si512(out[p].code[j], byte_bits(bytes[j], 0, 15));
                _mm512_store_si512(out[p + 1].code[j], byte_bits(bytes[j], 4, 15));
            }
        }
    }
    return (struct q8_kind){ .sub = 32, .bias = RECENTRED, .has_min = true };
}

struct q8_kind q5_k_unpack_columns(const uint8_t *w, int64_t row_bytes, int64_t k, struct q8_columns *out,
                                   struct prefetch *ahead)
{
    const __m512i fifth = _mm512_set1_epi8(16);
    for (int64_t i = 0; i < k; i += K_BLOCK, w += Q5_K_SHAPE.block_bytes, out += PARTS) {
        __m512i high[8];
        scales_6_bits(w, row_bytes, out);
        columns_load_32(w + Q5_K_HIGH, row_bytes, high);
#pragma GCC unroll 4
        for (int p = 0; p < PARTS; p += 2) {
            __m512i bytes[8];
            prefetch_step(ahead), prefetch_step(ahead);
            columns_load_32(w + Q5_K_CODES + 16 * p, row_bytes, bytes);
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++) {
                const __m512i even = p < 4 ? _mm512_slli_epi16(high[j], 4 - p)
                                           : _mm512_srli_epi16(high[j], p - 4);
                const __m512i odd = p < 4 ? _mm512_slli_epi16(high[j], 3 - p)
                                          : _mm512_srli_epi16(high[j], p - 3);
                _mm512_store_si512(out[p].code[j], _mm512_or_si512(byte_bits(bytes[j], 0, 15),
                                                                   _mm512_and_si512(even, fifth)));
                _mm512_store_si512(out[p + 1].code[j],
                                   _mm512_or_si512(byte_bits(bytes[j], 4, 15), _mm512_and_si512(odd, fifth)));
            }
        }
    }
    return (struct q8_kind){ .sub = 32, .bias = RECENTRED, .has_min = true };
}

/* Expand 128 weights: 64 bytes of low nibbles and 32 bytes of pairs of upper bits. */
ALWAYS_INLINE void q6_k_half(const uint8_t *low, const uint8_t *high, int64_t row_bytes,
                             struct q8_columns out[PARTS / 2], struct prefetch *ahead)
{
    const __m512i upper = _mm512_set1_epi8(0x30);
    for (int g = 0; g < 2; g++) { /* 16 inputs of each part */
        __m512i a[4], b[4], h[4];
        prefetch_step(ahead), prefetch_step(ahead);
        columns_load(low + 16 * g, row_bytes, a);
        columns_load(low + 32 + 16 * g, row_bytes, b);
        columns_load(high + 16 * g, row_bytes, h);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            const __m512i bits[4] = { _mm512_slli_epi16(h[j], 4), _mm512_slli_epi16(h[j], 2), h[j],
                                      _mm512_srli_epi16(h[j], 2) };
            const __m512i four[4] = { byte_bits(a[j], 0, 15), byte_bits(b[j], 0, 15), byte_bits(a[j], 4, 15),
                                      byte_bits(b[j], 4, 15) };
#pragma GCC unroll 4
            for (int p = 0; p < 4; p++)
                _mm512_store_si512(out[p].code[4 * g + j],
                                   _mm512_or_si512(four[p], _mm512_and_si512(bits[p], upper)));
        }
    }
}

struct q8_kind q6_k_unpack_columns(const uint8_t *w, int64_t row_bytes, int64_t k, struct q8_columns *out,
                                   struct prefetch *ahead)
{
    for (int64_t i = 0; i < k; i += K_BLOCK, w += Q6_K_SHAPE.block_bytes, out += PARTS) {
        __m512i scale[4];
        const __m512 d = columns_f16(w + Q6_K_D, row_bytes);
        columns_load(w + Q6_K_SCALES, row_bytes, scale);
        for (int h = 0; h < 2; h++)
            q6_k_half(w + Q6_K_LOW + 64 * h, w + Q6_K_HIGH + 32 * h, row_bytes, out + 4 * h, ahead);
#pragma GCC unroll 16
        for (int s = 0; s < K_SUBS; s++)
            _mm512_store_ps(out[s / 2].scale[s % 2], _mm512_mul_ps(d, byte_floats(scale[s / 4], s % 4)));
    }
    return (struct q8_kind){ .sub = 16, .bias = 32 };
}

/* ---------------------------------------------------------------- q2_K, q3_K, iq4_xs */

/* The integer scales (and minima) of 16 rows' blocks: bytes s of all rows are byte s % 4 of the lanes of
 * out[s / 4]. */
ALWAYS_INLINE void columns_scales(const uint8_t *w, int64_t row_bytes, k_scales_fn *scales, __m512i scale[4],
                                  __m512i min[4])
{
    struct k_scales s;
    uint64_t of[TILE_ROWS][2], least[TILE_ROWS][2];
    for (int r = 0; r < TILE_ROWS; r++) {
        scales(w + r * row_bytes, &s);
        memcpy(of[r], s.scale, sizeof s.scale);
        if (min) memcpy(least[r], s.min, sizeof s.min);
    }
    columns_load((const uint8_t *)of, sizeof *of, scale);
    if (min) columns_load((const uint8_t *)least, sizeof *least, min);
}

/* Both formats with codes of two bits: part p of a half is bits 2 * p of 32 bytes. q3_K adds a third bit. */
ALWAYS_INLINE void two_bits(const uint8_t *codes, const __m512i *high, int64_t row_bytes,
                            struct q8_columns *out, struct prefetch *ahead)
{
    const __m512i third = _mm512_set1_epi8(4);
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        __m512i bytes[8];
        prefetch_step(ahead), prefetch_step(ahead), prefetch_step(ahead), prefetch_step(ahead);
        columns_load_32(codes + 32 * half, row_bytes, bytes);
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++) {
            const int p = 4 * half + q;
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++) {
                __m512i code = byte_bits(bytes[j], 2 * q, 3);
                if (high)
                    code = _mm512_or_si512(
                        code, _mm512_and_si512(p < 2 ? _mm512_slli_epi16(high[j], (unsigned)(2 - p))
                                                     : _mm512_srli_epi16(high[j], (unsigned)(p - 2)),
                                               third));
                _mm512_store_si512(out[p].code[j], code);
            }
        }
    }
}

struct q8_kind q2_k_unpack_columns(const uint8_t *w, int64_t row_bytes, int64_t k, struct q8_columns *out,
                                   struct prefetch *ahead)
{
    for (int64_t i = 0; i < k; i += K_BLOCK, w += Q2_K_SHAPE.block_bytes, out += PARTS) {
        __m512i scale[4], min[4];
        const __m512 d = columns_f16(w + Q2_K_D, row_bytes), dmin = columns_f16(w + Q2_K_DMIN, row_bytes);
        columns_scales(w, row_bytes, q2_k_scales, scale, min);
        two_bits(w + Q2_K_CODES, NULL, row_bytes, out, ahead);
#pragma GCC unroll 16
        for (int s = 0; s < K_SUBS; s++) {
            const __m512 less = _mm512_mul_ps(dmin, byte_floats(min[s / 4], s % 4));
            _mm512_store_ps(out[s / 2].scale[s % 2], _mm512_mul_ps(d, byte_floats(scale[s / 4], s % 4)));
            _mm512_store_ps(out[s / 2].min[s % 2], _mm512_sub_ps(_mm512_setzero_ps(), less));
        }
    }
    return (struct q8_kind){ .sub = 16, .has_min = true };
}

struct q8_kind q3_k_unpack_columns(const uint8_t *w, int64_t row_bytes, int64_t k, struct q8_columns *out,
                                   struct prefetch *ahead)
{
    for (int64_t i = 0; i < k; i += K_BLOCK, w += Q3_K_SHAPE.block_bytes, out += PARTS) {
        __m512i scale[4], high[8];
        const __m512 d = columns_f16(w + Q3_K_D, row_bytes);
        columns_scales(w, row_bytes, q3_k_scales, scale, NULL);
        columns_load_32(w + Q3_K_HIGH, row_bytes, high);
        two_bits(w + Q3_K_CODES, high, row_bytes, out, ahead);
#pragma GCC unroll 16
        for (int s = 0; s < K_SUBS; s++)
            _mm512_store_ps(out[s / 2].scale[s % 2], _mm512_mul_ps(d, byte_floats(scale[s / 4], s % 4)));
    }
    return (struct q8_kind){ .sub = 16, .bias = 4 };
}

struct q8_kind iq4_xs_unpack_columns(const uint8_t *w, int64_t row_bytes, int64_t k, struct q8_columns *out,
                                     struct prefetch *ahead)
{
    static const int8_t VALUES[16] = { IQ4_VALUES };
    const __m512i table = _mm512_xor_si512(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)VALUES)),
                                           _mm512_set1_epi8((char)0x80));
    for (int64_t i = 0; i < k; i += K_BLOCK, w += IQ4_XS_SHAPE.block_bytes, out += PARTS) {
        __m512i scale[4];
        const __m512 d = columns_f16(w + IQ4_XS_D, row_bytes);
        columns_scales(w, row_bytes, iq4_xs_scales, scale, NULL);
        for (int p = 0; p < PARTS; p++) {
            __m512i bytes[4];
            prefetch_step(ahead);
            columns_load(w + IQ4_XS_CODES + 16 * p, row_bytes, bytes);
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) {
                _mm512_store_si512(out[p].code[j], _mm512_shuffle_epi8(table, byte_bits(bytes[j], 0, 15)));
                _mm512_store_si512(out[p].code[4 + j],
                                   _mm512_shuffle_epi8(table, byte_bits(bytes[j], 4, 15)));
            }
        }
#pragma GCC unroll 8
        for (int p = 0; p < PARTS; p++)
            _mm512_store_ps(out[p].scale[0], _mm512_mul_ps(d, byte_floats(scale[p / 4], p % 4)));
    }
    return (struct q8_kind){ .sub = 32, .bias = 128, .wide = true };
}
