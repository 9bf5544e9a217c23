/* q4_0 with AVX2. Codes stay 0..15, the unsigned operand of vpmaddubsw; their offset of 8 is
 * subtracted with the sum of the activations. */
#include "kernels/formats/blocks32/blocks32.h"
#include "kernels/formats/blocks32/layout.h"
#include "kernels/isa/attention/rows_avx2.h"
#include "kernels/isa/gemv/block_dot_avx2.h"

enum { BLOCK = 32 };

ALWAYS_INLINE void load32(const uint8_t *block, __m256 out[4])
{
    const __m256 d = _mm256_set1_ps(scale_at(block));
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(block + Q4_0_CODES)), mask = _mm_set1_epi8(15);
    const __m128i eight = _mm_set1_epi8(8);
    const __m128i low = _mm_sub_epi8(_mm_and_si128(bytes, mask), eight);
    const __m128i high = _mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(bytes, 4), mask), eight);
    const __m128i parts[4] = { low, _mm_srli_si128(low, 8), high, _mm_srli_si128(high, 8) };
    for (int u = 0; u < 4; u++) out[u] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(parts[u])), d);
}

void q4_0_dot_f32_avx2(const struct dot *d)
{
    dot_blocks(d, load32, Q4_0_BYTES);
}

void q4_0_decode_avx2(const void *blocks, float *x, int64_t n)
{
    const uint8_t *in = blocks;
    for (int64_t i = 0; i < n; i += BLOCK, in += Q4_0_BYTES) {
        __m256 v[4];
        load32(in, v);
        for (int u = 0; u < 4; u++) _mm256_storeu_ps(x + i + 8 * u, v[u]);
    }
}

ALWAYS_INLINE __m256i codes_of(const uint8_t *block, int part)
{
    (void)part;
    return nibbles(block + Q4_0_CODES);
}

static const struct block_kind KIND = { .bytes = Q4_0_BYTES,
                                        .parts = 1,
                                        .bias = 8,
                                        .codes = codes_of,
                                        .products = products_unsigned,
                                        .scale = leading_scale };

void q4_0_dot_q8_avx2(const struct dot *d)
{
    kind_dot_q8(&KIND, d);
}

void q4_0_unpack_q8_avx2(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, struct q8_group *out)
{
    kind_unpack_q8(&KIND, w, row_bytes, rows, k, out);
}

/* The low halves of a block's bytes are its first 16 numbers, the high halves the others. */
ALWAYS_INLINE void load_two(const uint8_t *row, int64_t i, __m256 out[2])
{
    const uint8_t *block = row + i / BLOCK * Q4_0_BYTES;
    const __m256 d = _mm256_set1_ps(scale_at(block));
    const __m128i bytes = _mm_srl_epi16(_mm_loadu_si128((const __m128i *)(block + Q4_0_CODES)),
                                        _mm_cvtsi32_si128((int)(i % BLOCK) / 4));
    const __m128i codes = _mm_sub_epi8(_mm_and_si128(bytes, _mm_set1_epi8(15)), _mm_set1_epi8(8));
    out[0] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)), d);
    out[1] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(codes, 8))), d);
}

ROW_FUNCTIONS(, q4_0_row_scores_avx2, q4_0_row_values_avx2, load_two)
