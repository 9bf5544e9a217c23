/* Blocks of 32 weights with AVX-512 VNNI: how each format's codes become 32 unsigned bytes. Tables are stored
 * unsigned with a bias, which is removed with the sums of the activations. */
#include "kernels/formats/blocks32/blocks32.h"
#include "kernels/isa/gemv/block_dot_avx512vnni.h"
#include "kernels/formats/blocks32/layout.h"

/* Expand 16 bytes to 32 codes: both halves get the same bytes, and the upper half is shifted right by 4 bits.
 */
ALWAYS_INLINE __m256i nibbles(const uint8_t *p)
{
    const __m256i bytes = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
    const __m256i shift = _mm256_inserti128_si256(_mm256_setzero_si256(), _mm_set1_epi16(4), 1);
    return _mm256_and_si256(_mm256_srlv_epi16(bytes, shift), _mm256_set1_epi8(15));
}

/* Insert the fifth bits: the word in the file serves as a mask of bytes as it is. */
ALWAYS_INLINE __m256i with_fifths(__m256i codes, const uint8_t *high)
{
    return _mm256_mask_add_epi8(codes, load_u32(high), codes, _mm256_set1_epi8(16));
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
    return with_fifths(nibbles(block + Q5_0_CODES), block + Q5_0_HIGH);
}

ALWAYS_INLINE __m256i q5_1_codes(const uint8_t *block, int part)
{
    (void)part;
    return with_fifths(nibbles(block + Q5_1_CODES), block + Q5_1_HIGH);
}

ALWAYS_INLINE __m256i iq4_nl_codes(const uint8_t *block, int part)
{
    (void)part;
    return look_up(_mm_setr_epi8(IQ4_NL_BIASED), block + IQ4_NL_CODES);
}

ALWAYS_INLINE __m256i mxfp4_codes(const uint8_t *block, int part)
{
    (void)part;
    return look_up(_mm_setr_epi8(MXFP4_BIASED), block + MXFP4_CODES);
}

ALWAYS_INLINE __m128 q4_1_scales(const uint8_t *block)
{
    return load_4_scales(block, Q4_1_BYTES);
}

ALWAYS_INLINE __m128 q4_1_mins(const uint8_t *block)
{
    return load_4_scales(block + Q4_1_MIN, Q4_1_BYTES);
}

ALWAYS_INLINE __m128 q5_0_scales(const uint8_t *block)
{
    return load_4_scales(block, Q5_0_BYTES);
}

ALWAYS_INLINE __m128 q5_1_scales(const uint8_t *block)
{
    return load_4_scales(block, Q5_1_BYTES);
}

ALWAYS_INLINE __m128 q5_1_mins(const uint8_t *block)
{
    return load_4_scales(block + Q5_1_MIN, Q5_1_BYTES);
}

ALWAYS_INLINE __m128 iq4_nl_scales(const uint8_t *block)
{
    return load_4_scales(block, IQ4_NL_BYTES);
}

/* As mxfp4_scale, four at once. */
ALWAYS_INLINE __m128 mxfp4_scales(const uint8_t *block)
{
    const uint32_t four = (uint32_t)block[0] | (uint32_t)block[MXFP4_BYTES] << 8 |
                          (uint32_t)block[2 * MXFP4_BYTES] << 16 | (uint32_t)block[3 * MXFP4_BYTES] << 24;
    const __m128i e = _mm_cvtepu8_epi32(_mm_cvtsi32_si128((int)four));
    const __m128i normal = _mm_slli_epi32(_mm_sub_epi32(e, _mm_set1_epi32(1)), 23);
    const __m128i tiny = _mm_sllv_epi32(_mm_set1_epi32(0x00200000), e);
    return _mm_castsi128_ps(_mm_mask_mov_epi32(normal, _mm_cmplt_epu32_mask(e, _mm_set1_epi32(2)), tiny));
}

static const struct block_kind512
    Q4_1 = { .bytes = Q4_1_BYTES, .parts = 1, .codes = q4_1_codes, .scales = q4_1_scales, .mins = q4_1_mins },
    Q5_0 = { .bytes = Q5_0_BYTES, .parts = 1, .bias = Q5_0_BIAS, .codes = q5_0_codes, .scales = q5_0_scales },
    Q5_1 = { .bytes = Q5_1_BYTES, .parts = 1, .codes = q5_1_codes, .scales = q5_1_scales, .mins = q5_1_mins },
    IQ4_NL = { .bytes = IQ4_NL_BYTES,
               .parts = 1,
               .bias = IQ4_NL_BIAS,
               .codes = iq4_nl_codes,
               .scales = iq4_nl_scales },
    MXFP4 = { MXFP4_BYTES, 1, MXFP4_BIAS, mxfp4_codes, mxfp4_scales, NULL, NULL };

static void q4_1_dot_q8(const struct dot *d)
{
    kind_dot_vnni(&Q4_1, d);
}

static void q5_0_dot_q8(const struct dot *d)
{
    kind_dot_vnni(&Q5_0, d);
}

static void q5_1_dot_q8(const struct dot *d)
{
    kind_dot_vnni(&Q5_1, d);
}

static void iq4_nl_dot_q8(const struct dot *d)
{
    kind_dot_vnni(&IQ4_NL, d);
}

static void mxfp4_dot_q8(const struct dot *d)
{
    kind_dot_vnni(&MXFP4, d);
}

const struct format_row BLOCKS32_AVX512VNNI[BLOCKS32_COUNT] = {
    { FORMAT_Q8_0, { .dot_q8 = q8_0_dot_q8_avx512vnni, .unpack_columns = q8_0_unpack_columns } },
    { FORMAT_Q4_0, { .dot_q8 = q4_0_dot_q8_avx512vnni, .unpack_columns = q4_0_unpack_columns } },
    { FORMAT_Q4_1, { .dot_q8 = q4_1_dot_q8, .unpack_columns = q4_1_unpack_columns } },
    { FORMAT_Q5_0, { .dot_q8 = q5_0_dot_q8, .unpack_columns = q5_0_unpack_columns } },
    { FORMAT_Q5_1, { .dot_q8 = q5_1_dot_q8, .unpack_columns = q5_1_unpack_columns } },
    { FORMAT_IQ4_NL, { .dot_q8 = iq4_nl_dot_q8, .unpack_columns = iq4_nl_unpack_columns } },
    { FORMAT_MXFP4, { .dot_q8 = mxfp4_dot_q8, .unpack_columns = mxfp4_unpack_columns } },
};
