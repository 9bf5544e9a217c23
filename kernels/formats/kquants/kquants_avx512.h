/* kernels/formats/kquants/kquants_avx512.h - codes and scales of a block in AVX-512 registers, shared by
 * the AVX-512, VNNI and BF16 files of the family. */
#ifndef QDYNO_KERNELS_FORMATS_KQUANTS_KQUANTS_AVX512_H
#define QDYNO_KERNELS_FORMATS_KQUANTS_KQUANTS_AVX512_H

#include "kernels/isa/avx512.h"
#include "kernels/formats/kquants/layout.h"

enum { K_CHUNKS = 4, K_CHUNK = 64 };

/* Expand the 256 codes to unsigned bytes in natural order, 64 per register (a chunk). */
typedef void k_codes512_fn(const uint8_t *block, __m512i code[K_CHUNKS]);

ALWAYS_INLINE __m512i twice_32_bytes(const uint8_t *p)
{
    return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)p));
}

/* Shift the low half right by `low` bits and the high half by `high`, in 16-bit lanes. Bits of a byte's
 * neighbour move into it, so the caller masks them. */
ALWAYS_INLINE __m512i shift_halves(__m512i v, int low, int high)
{
    const __m512i by = _mm512_inserti64x4(_mm512_set1_epi16((short)low), _mm256_set1_epi16((short)high), 1);
    return _mm512_srlv_epi16(v, by);
}

/* Add `value` to the codes whose extra bit is set. The bits of chunk c are bit 2c of each byte in the low
 * half of `plane`, and bit 2c + 1 in the high half. */
ALWAYS_INLINE __m512i add_plane(__m512i code, __m512i plane, int c, int value)
{
    const __m512i bits = _mm512_inserti64x4(_mm512_set1_epi8((char)(1 << 2 * c)),
                                            _mm256_set1_epi8((char)(2 << 2 * c)), 1);
    const __mmask64 set = _mm512_test_epi8_mask(plane, bits);
    return _mm512_mask_add_epi8(code, set, code, _mm512_set1_epi8((char)value));
}

ALWAYS_INLINE void codes512_2_bits(const uint8_t *in, __m512i code[K_CHUNKS])
{
    const __m512i mask = _mm512_set1_epi8(3);
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        const __m512i v = twice_32_bytes(in + 32 * h);
        code[2 * h] = _mm512_and_si512(shift_halves(v, 0, 2), mask);
        code[2 * h + 1] = _mm512_and_si512(shift_halves(v, 4, 6), mask);
    }
}

ALWAYS_INLINE void codes512_4_bits(const uint8_t *in, __m512i code[K_CHUNKS])
{
#pragma GCC unroll 4
    for (int c = 0; c < K_CHUNKS; c++)
        code[c] = _mm512_and_si512(shift_halves(twice_32_bytes(in + 32 * c), 0, 4), _mm512_set1_epi8(15));
}

ALWAYS_INLINE void q2_k_codes512(const uint8_t *block, __m512i code[K_CHUNKS])
{
    codes512_2_bits(block + Q2_K_CODES, code);
}

ALWAYS_INLINE void q3_k_codes512(const uint8_t *block, __m512i code[K_CHUNKS])
{
    const __m512i plane = twice_32_bytes(block + Q3_K_HIGH);
    codes512_2_bits(block + Q3_K_CODES, code);
#pragma GCC unroll 4
    for (int c = 0; c < K_CHUNKS; c++) code[c] = add_plane(code[c], plane, c, 4);
}

ALWAYS_INLINE void q4_k_codes512(const uint8_t *block, __m512i code[K_CHUNKS])
{
    codes512_4_bits(block + Q4_K_CODES, code);
}

ALWAYS_INLINE void q5_k_codes512(const uint8_t *block, __m512i code[K_CHUNKS])
{
    const __m512i plane = twice_32_bytes(block + Q5_K_HIGH);
    codes512_4_bits(block + Q5_K_CODES, code);
#pragma GCC unroll 4
    for (int c = 0; c < K_CHUNKS; c++) code[c] = add_plane(code[c], plane, c, 16);
}

ALWAYS_INLINE void q6_k_codes512(const uint8_t *block, __m512i code[K_CHUNKS])
{
    enum { LOW_AND_OR = 0xec }; /* (a & c) | b */
    const __m512i four = _mm512_set1_epi8(15), two = _mm512_set1_epi8(0x30);
    const __m512i left = _mm512_inserti64x4(_mm512_set1_epi16(4), _mm256_set1_epi16(2), 1);
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        const __m512i low = _mm512_loadu_si512(block + Q6_K_LOW + 64 * h);
        const __m512i high = twice_32_bytes(block + Q6_K_HIGH + 32 * h);
        code[2 * h] = _mm512_ternarylogic_epi64(_mm512_sllv_epi16(high, left), _mm512_and_si512(low, four),
                                                two, LOW_AND_OR);
        code[2 * h + 1] = _mm512_ternarylogic_epi64(
            shift_halves(high, 0, 2), _mm512_and_si512(_mm512_srli_epi16(low, 4), four), two, LOW_AND_OR);
    }
}

ALWAYS_INLINE void iq4_xs_codes512(const uint8_t *block, __m512i code[K_CHUNKS])
{
    const __m512i values = _mm512_xor_si512(_mm512_broadcast_i32x4(_mm_setr_epi8(IQ4_VALUES)),
                                            _mm512_set1_epi8((char)0x80));
    const __m512i spread = _mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3);
    const __m512i shift = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
#pragma GCC unroll 4
    for (int c = 0; c < K_CHUNKS; c++) {
        const __m256i bytes = _mm256_loadu_si256((const __m256i *)(block + IQ4_XS_CODES + 32 * c));
        const __m512i v = _mm512_permutexvar_epi64(spread, _mm512_castsi256_si512(bytes));
        /* The 64-bit shift moves four bits of the next byte into the upper half of each byte; the mask clears
         * them. */
        const __m512i index = _mm512_and_si512(_mm512_srlv_epi64(v, shift), _mm512_set1_epi8(15));
        code[c] = _mm512_shuffle_epi8(values, index);
    }
}

/* Scale and minimum of sub-block j in lane j, for 8 or 16 sub-blocks. */
struct k_floats512 {
    __m512 scale, min;
};

ALWAYS_INLINE __m512 f16_lanes(uint16_t h)
{
    return _mm512_cvtph_ps(_mm256_set1_epi16((short)h));
}

ALWAYS_INLINE __m512 lanes_of_bytes(const uint64_t bytes[2])
{
    const __m128i v = _mm_set_epi64x((long long)bytes[1], (long long)bytes[0]);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(v));
}

ALWAYS_INLINE struct k_floats512 k_floats(const uint8_t *block, const struct k_shape *shape,
                                          k_scales_fn *scales)
{
    struct k_scales s;
    scales(block, &s);
    struct k_floats512 f = { .min = _mm512_setzero_ps() };
    f.scale = _mm512_mul_ps(_mm512_mul_ps(f16_lanes(s.d), _mm512_set1_ps(shape->unit)),
                            lanes_of_bytes(s.scale));
    if (shape->has_min) f.min = _mm512_mul_ps(f16_lanes(s.dmin), lanes_of_bytes(s.min));
    return f;
}

/* A block with codes as signed bytes, and scales in memory, from where broadcasts need no shuffle. */
struct k_unpacked {
    __m512i code[K_CHUNKS]; /* signed */
    float scale[K_SUBS], min[K_SUBS];
};

ALWAYS_INLINE void k_scales_in_memory(const uint8_t *block, const struct k_shape *shape, k_scales_fn *scales,
                                      struct k_unpacked *u)
{
    const struct k_floats512 f = k_floats(block, shape, scales);
    _mm512_storeu_ps(u->scale, f.scale);
    if (shape->has_min) _mm512_storeu_ps(u->min, f.min);
}

ALWAYS_INLINE void k_unpack(const uint8_t *block, const struct k_shape *shape, k_scales_fn *scales,
                            k_codes512_fn *codes, struct k_unpacked *u)
{
    k_scales_in_memory(block, shape, scales, u);
    codes(block, u->code);
    if (shape->bias)
#pragma GCC unroll 4
        for (int c = 0; c < K_CHUNKS; c++)
            u->code[c] = _mm512_sub_epi8(u->code[c], _mm512_set1_epi8((char)shape->bias));
}

/* Weights 16g .. 16g + 15 with the bits of the reference: a product, then a difference. g is a constant. */
ALWAYS_INLINE __m512 k_weights16(const struct k_unpacked *u, const struct k_shape *shape, const int g)
{
    const __m512i chunk = u->code[g / 4];
    const __m128i bytes = g % 4 == 0   ? _mm512_castsi512_si128(chunk)
                          : g % 4 == 1 ? _mm512_extracti32x4_epi32(chunk, 1)
                          : g % 4 == 2 ? _mm512_extracti32x4_epi32(chunk, 2)
                                       : _mm512_extracti32x4_epi32(chunk, 3);
    const int j = g * 16 / shape->sub;
    const __m512 product = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)),
                                         _mm512_set1_ps(u->scale[j]));
    return shape->has_min ? _mm512_sub_ps(product, _mm512_set1_ps(u->min[j])) : product;
}

#endif
