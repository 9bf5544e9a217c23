/* Blocks of 32 weights with AVX2: how each format's codes become 32 bytes. */
#include "kernels/formats/blocks32/blocks32.h"
#include "kernels/isa/gemv/block_dot_avx2.h"
#include "kernels/formats/blocks32/layout.h"

/* Byte j becomes 16 where bit j of the 32-bit word at p is set: each byte gets its byte of the word and tests
 * its bit. */
ALWAYS_INLINE __m256i fifth_bits(const uint8_t *p)
{
    const __m256i spread = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32((int)load_u32(p)), spread);
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit), _mm256_set1_epi8(16));
}

ALWAYS_INLINE __m256i look_up(__m128i table, const uint8_t *p)
{
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), nibbles(p));
}

ALWAYS_INLINE __m256i q4_1_codes(const uint8_t *block, int part)
{
    (void)part;
    return nibbles(block + Q4_1_CODES);
}

ALWAYS_INLINE __m256i q5_0_codes(const uint8_t *block, int part)
{
    (void)part;
    return _mm256_or_si256(nibbles(block + Q5_0_CODES), fifth_bits(block + Q5_0_HIGH));
}

ALWAYS_INLINE __m256i q5_1_codes(const uint8_t *block, int part)
{
    (void)part;
    return _mm256_or_si256(nibbles(block + Q5_1_CODES), fifth_bits(block + Q5_1_HIGH));
}

ALWAYS_INLINE __m256i iq4_nl_codes(const uint8_t *block, int part)
{
    (void)part;
    return look_up(_mm_setr_epi8(IQ4_NL_VALUES), block + IQ4_NL_CODES);
}

ALWAYS_INLINE __m256i mxfp4_codes(const uint8_t *block, int part)
{
    (void)part;
    return look_up(_mm_setr_epi8(MXFP4_BIASED), block + MXFP4_CODES);
}

static const struct block_kind Q4_1 = { .bytes = Q4_1_BYTES,
                                        .parts = 1,
                                        .codes = q4_1_codes,
                                        .products = products_unsigned,
                                        .scale = leading_scale,
                                        .min = second_min },
                               Q5_0 = { .bytes = Q5_0_BYTES,
                                        .parts = 1,
                                        .bias = Q5_0_BIAS,
                                        .codes = q5_0_codes,
                                        .products = products_unsigned,
                                        .scale = leading_scale },
                               Q5_1 = { .bytes = Q5_1_BYTES,
                                        .parts = 1,
                                        .codes = q5_1_codes,
                                        .products = products_unsigned,
                                        .scale = leading_scale,
                                        .min = second_min },
                               IQ4_NL = { .bytes = IQ4_NL_BYTES,
                                          .parts = 1,
                                          .codes = iq4_nl_codes,
                                          .products = products_signed,
                                          .scale = leading_scale },
                               MXFP4 = { .bytes = MXFP4_BYTES,
                                         .parts = 1,
                                         .bias = MXFP4_BIAS,
                                         .codes = mxfp4_codes,
                                         .products = products_unsigned,
                                         .scale = mxfp4_scale };

BLOCK_KIND_FUNCTIONS(q4_1, Q4_1)
BLOCK_KIND_UNPACK_Q8(q4_1, Q4_1)
BLOCK_KIND_FUNCTIONS(q5_0, Q5_0)
BLOCK_KIND_UNPACK_Q8(q5_0, Q5_0)
BLOCK_KIND_FUNCTIONS(q5_1, Q5_1)
BLOCK_KIND_UNPACK_Q8(q5_1, Q5_1)
BLOCK_KIND_FUNCTIONS(iq4_nl, IQ4_NL)
BLOCK_KIND_UNPACK_Q8(iq4_nl, IQ4_NL)
BLOCK_KIND_FUNCTIONS(mxfp4, MXFP4)
BLOCK_KIND_UNPACK_Q8(mxfp4, MXFP4)

const struct format_row BLOCKS32_AVX2[BLOCKS32_COUNT] = {
    { FORMAT_Q8_0,
      { .decode = q8_0_decode_avx2,
        .dot_f32 = q8_0_dot_f32_avx2,
        .row_scores = q8_0_row_scores_avx2,
        .row_values = q8_0_row_values_avx2,
        .dot_q8 = q8_0_dot_q8_avx2,
        .unpack_q8 = q8_0_unpack_q8_avx2,
        .wide_q8 = true } },
    { FORMAT_Q4_0,
      { .decode = q4_0_decode_avx2,
        .dot_f32 = q4_0_dot_f32_avx2,
        .row_scores = q4_0_row_scores_avx2,
        .row_values = q4_0_row_values_avx2,
        .dot_q8 = q4_0_dot_q8_avx2,
        .unpack_q8 = q4_0_unpack_q8_avx2 } },
    { FORMAT_Q4_1,
      { .decode = q4_1_decode,
        .dot_f32 = q4_1_dot_f32,
        .dot_q8 = q4_1_dot_q8,
        .unpack_q8 = q4_1_unpack_q8 } },
    { FORMAT_Q5_0,
      { .decode = q5_0_decode,
        .dot_f32 = q5_0_dot_f32,
        .dot_q8 = q5_0_dot_q8,
        .unpack_q8 = q5_0_unpack_q8 } },
    { FORMAT_Q5_1,
      { .decode = q5_1_decode,
        .dot_f32 = q5_1_dot_f32,
        .dot_q8 = q5_1_dot_q8,
        .unpack_q8 = q5_1_unpack_q8 } },
    { FORMAT_IQ4_NL,
      { .decode = iq4_nl_decode,
        .dot_f32 = iq4_nl_dot_f32,
        .dot_q8 = iq4_nl_dot_q8,
        .unpack_q8 = iq4_nl_unpack_q8,
        .wide_q8 = true } },
    { FORMAT_MXFP4,
      { .decode = mxfp4_decode,
        .dot_f32 = mxfp4_dot_f32,
        .dot_q8 = mxfp4_dot_q8,
        .unpack_q8 = mxfp4_unpack_q8 } },
};
