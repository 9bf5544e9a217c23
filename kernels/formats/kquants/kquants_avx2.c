/* The k-quants with AVX2: their codes as bytes. kquants_avx2.h does the rest. */
#include "kernels/formats/kquants/kquants.h"
#include "kernels/formats/kquants/kquants_avx2.h"

/* Move the bits `mask` << from of every byte to `mask` << to and clear the others. */
ALWAYS_INLINE __m256i bits_to(__m256i v, const int mask, const int from, const int to)
{
    const __m256i moved = from > to ? _mm256_srli_epi16(v, from - to) : _mm256_slli_epi16(v, to - from);
    return _mm256_and_si256(moved, _mm256_set1_epi8((char)(mask << to)));
}

ALWAYS_INLINE void codes_2_bits(const uint8_t *in, __m256i code[PARTS])
{
#pragma GCC unroll 8
    for (int p = 0; p < PARTS; p++) code[p] = bits_to(codes_load(in + p / 4 * 32), 3, p % 4 * 2, 0);
}

ALWAYS_INLINE void codes_4_bits(const uint8_t *in, __m256i code[PARTS])
{
#pragma GCC unroll 8
    for (int p = 0; p < PARTS; p++) code[p] = bits_to(codes_load(in + p / 2 * 32), 15, p % 2 * 4, 0);
}

ALWAYS_INLINE void add_plane(const uint8_t *in, const int shift, __m256i code[PARTS])
{
    const __m256i plane = codes_load(in);
#pragma GCC unroll 8
    for (int p = 0; p < PARTS; p++) code[p] = _mm256_or_si256(code[p], bits_to(plane, 1, p, shift));
}

ALWAYS_INLINE void q2_k_codes(const uint8_t *block, __m256i code[PARTS])
{
    codes_2_bits(block + Q2_K_CODES, code);
}

ALWAYS_INLINE void q3_k_codes(const uint8_t *block, __m256i code[PARTS])
{
    codes_2_bits(block + Q3_K_CODES, code);
    add_plane(block + Q3_K_HIGH, 2, code);
}

ALWAYS_INLINE void q4_k_codes(const uint8_t *block, __m256i code[PARTS])
{
    codes_4_bits(block + Q4_K_CODES, code);
}

ALWAYS_INLINE void q5_k_codes(const uint8_t *block, __m256i code[PARTS])
{
    codes_4_bits(block + Q5_K_CODES, code);
    add_plane(block + Q5_K_HIGH, 4, code);
}

ALWAYS_INLINE void q6_k_codes(const uint8_t *block, __m256i code[PARTS])
{
#pragma GCC unroll 8
    for (int p = 0; p < PARTS; p++) {
        const __m256i low = codes_load(block + Q6_K_LOW + p / 4 * 64 + p % 2 * 32);
        const __m256i high = codes_load(block + Q6_K_HIGH + p / 4 * 32);
        code[p] = _mm256_or_si256(bits_to(low, 15, p % 4 / 2 * 4, 0), bits_to(high, 3, p % 4 * 2, 4));
    }
}

ALWAYS_INLINE void iq4_xs_codes(const uint8_t *block, __m256i code[PARTS])
{
    const __m256i values = _mm256_xor_si256(_mm256_broadcastsi128_si256(_mm_setr_epi8(IQ4_VALUES)),
                                            _mm256_set1_epi8((char)0x80));
#pragma GCC unroll 8
    for (int p = 0; p < PARTS; p++) {
        code[p] = _mm256_shuffle_epi8(values, nibbles(block + IQ4_XS_CODES + 16 * p));
    }
}

K_FUNCTIONS(q2_k, Q2_K_SHAPE, q2_k_scales, q2_k_codes)
K_FUNCTIONS(q3_k, Q3_K_SHAPE, q3_k_scales, q3_k_codes)
K_FUNCTIONS(q4_k, Q4_K_SHAPE, q4_k_scales, q4_k_codes)
K_FUNCTIONS(q5_k, Q5_K_SHAPE, q4_k_scales, q5_k_codes)
K_FUNCTIONS(q6_k, Q6_K_SHAPE, q6_k_scales, q6_k_codes)
K_FUNCTIONS(iq4_xs, IQ4_XS_SHAPE, iq4_xs_scales, iq4_xs_codes)

const struct format_row KQUANTS_AVX2[KQUANT_COUNT] = {
    { FORMAT_Q2_K,
      { .decode = q2_k_decode,
        .dot_f32 = q2_k_dot_f32,
        .dot_q8 = q2_k_dot_q8,
        .unpack_q8 = q2_k_unpack_q8 } },
    { FORMAT_Q3_K,
      { .decode = q3_k_decode,
        .dot_f32 = q3_k_dot_f32,
        .dot_q8 = q3_k_dot_q8,
        .unpack_q8 = q3_k_unpack_q8 } },
    { FORMAT_Q4_K,
      { .decode = q4_k_decode,
        .dot_f32 = q4_k_dot_f32,
        .dot_q8 = q4_k_dot_q8,
        .unpack_q8 = q4_k_unpack_q8 } },
    { FORMAT_Q5_K,
      { .decode = q5_k_decode,
        .dot_f32 = q5_k_dot_f32,
        .dot_q8 = q5_k_dot_q8,
        .unpack_q8 = q5_k_unpack_q8 } },
    { FORMAT_Q6_K,
      { .decode = q6_k_decode,
        .dot_f32 = q6_k_dot_f32,
        .dot_q8 = q6_k_dot_q8,
        .unpack_q8 = q6_k_unpack_q8 } },
    { FORMAT_IQ4_XS,
      { .decode = iq4_xs_decode,
        .dot_f32 = iq4_xs_dot_f32,
        .dot_q8 = iq4_xs_dot_q8,
        .unpack_q8 = iq4_xs_unpack_q8,
        .wide_q8 = true } },
};
