/* Conversion of k-quants to bf16 tiles. */
#include "kernels/formats/kquants/kquants.h"
#include "kernels/formats/kquants/kquants_avx512bf16.h"

ALWAYS_INLINE void q3_k_row(const uint8_t *block, uint16_t *out)
{
    row_computed(block, out, &Q3_K_SHAPE, q3_k_scales, q3_k_codes512);
}

ALWAYS_INLINE void q6_k_row(const uint8_t *block, uint16_t *out)
{
    row_computed(block, out, &Q6_K_SHAPE, q6_k_scales, q6_k_codes512);
}

/* In the other formats a sub-block (q2_K: a block) can hold at most 64 different values. They are computed,
 * rounded to bf16 and looked up by code. vpermw uses the low five bits of a 16-bit index only, so higher bits
 * need no mask. */

ALWAYS_INLINE __m512 from_0(void)
{
    return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

/* scale * code - min, with the bits of the reference: a product, then a difference. */
ALWAYS_INLINE __m512 values_of(__m512 codes, const struct k_unpacked *u, int j)
{
    return _mm512_sub_ps(_mm512_mul_ps(codes, _mm512_set1_ps(u->scale[j])), _mm512_set1_ps(u->min[j]));
}

ALWAYS_INLINE void q4_k_row(const uint8_t *block, uint16_t *out)
{
    struct k_unpacked u;
    k_scales_in_memory(block, &Q4_K_SHAPE, q4_k_scales, &u);
#pragma GCC unroll 4
    for (int c = 0; c < K_CHUNKS; c++) {
        const __m512i words = _mm512_cvtepu8_epi16(
            _mm256_loadu_si256((const __m256i *)(block + Q4_K_CODES + 32 * c)));
        tile_put(out, 2 * c, _mm512_permutexvar_epi16(words, twice_bf16(values_of(from_0(), &u, 2 * c))));
        tile_put(out, 2 * c + 1,
                 _mm512_permutexvar_epi16(_mm512_srli_epi16(words, 4),
                                          twice_bf16(values_of(from_0(), &u, 2 * c + 1))));
    }
}

ALWAYS_INLINE void q5_k_row(const uint8_t *block, uint16_t *out)
{
    const __m512 low = from_0(), high = _mm512_add_ps(low, _mm512_set1_ps(16));
    struct k_unpacked u;
    k_scales_in_memory(block, &Q5_K_SHAPE, q4_k_scales, &u);
    q5_k_codes512(block, u.code);
#pragma GCC unroll 8
    for (int j = 0; j < K_BLOCK / TILE_DEPTH; j++) {
        const __m512i table = to_bf16(values_of(low, &u, j), values_of(high, &u, j));
        const __m256i codes = j & 1 ? _mm512_extracti64x4_epi64(u.code[j / 2], 1)
                                    : _mm512_castsi512_si256(u.code[j / 2]);
        tile_put(out, j, _mm512_permutexvar_epi16(_mm512_cvtepu8_epi16(codes), table));
    }
}

ALWAYS_INLINE void iq4_xs_row(const uint8_t *block, uint16_t *out)
{
    const __m512 values = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_setr_epi8(IQ4_VALUES)));
    const __m512i shift = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(4), 1);
    struct k_unpacked u;
    k_scales_in_memory(block, &IQ4_XS_SHAPE, iq4_xs_scales, &u);
#pragma GCC unroll 8
    for (int j = 0; j < K_BLOCK / TILE_DEPTH; j++) {
        const __m256i bytes = _mm256_broadcastsi128_si256(
            _mm_loadu_si128((const __m128i *)(block + IQ4_XS_CODES + 16 * j)));
        const __m512i table = twice_bf16(_mm512_mul_ps(values, _mm512_set1_ps(u.scale[j])));
        tile_put(out, j,
                 _mm512_permutexvar_epi16(_mm512_srlv_epi16(_mm512_cvtepu8_epi16(bytes), shift), table));
    }
}

/* q2_K has sixteen sub-blocks with four values each. Value c of sub-block j is word 16c + j of a table in two
 * registers. */
ALWAYS_INLINE void q2_k_row(const uint8_t *block, uint16_t *out)
{
    const struct k_floats512 f = k_floats(block, &Q2_K_SHAPE, q2_k_scales);
    __m512 v[4];
    __m512i code[K_CHUNKS];
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) v[c] = _mm512_sub_ps(_mm512_mul_ps(_mm512_set1_ps((float)c), f.scale), f.min);
    const __m512i low = to_bf16(v[0], v[1]), high = to_bf16(v[2], v[3]);
    q2_k_codes512(block, code);
#pragma GCC unroll 8
    for (int t = 0; t < K_BLOCK / TILE_DEPTH; t++) {
        const __m256i codes = t & 1 ? _mm512_extracti64x4_epi64(code[t / 2], 1)
                                    : _mm512_castsi512_si256(code[t / 2]);
        const __m512i sub = _mm512_inserti64x4(_mm512_set1_epi16((short)(2 * t)),
                                               _mm256_set1_epi16((short)(2 * t + 1)), 1);
        const __m512i index = _mm512_or_si512(_mm512_slli_epi16(_mm512_cvtepu8_epi16(codes), 4), sub);
        tile_put(out, t, _mm512_permutex2var_epi16(low, index, high));
    }
}

K_UNPACK(q2_k, Q2_K_SHAPE)
K_UNPACK(q3_k, Q3_K_SHAPE)
K_UNPACK(q4_k, Q4_K_SHAPE)
K_UNPACK(q5_k, Q5_K_SHAPE)
K_UNPACK(q6_k, Q6_K_SHAPE)
K_UNPACK(iq4_xs, IQ4_XS_SHAPE)

const struct format_row KQUANTS_AVX512BF16[KQUANT_COUNT] = {
    { FORMAT_Q2_K, { .unpack_bf16 = q2_k_unpack } }, { FORMAT_Q3_K, { .unpack_bf16 = q3_k_unpack } },
    { FORMAT_Q4_K, { .unpack_bf16 = q4_k_unpack } }, { FORMAT_Q5_K, { .unpack_bf16 = q5_k_unpack } },
    { FORMAT_Q6_K, { .unpack_bf16 = q6_k_unpack } }, { FORMAT_IQ4_XS, { .unpack_bf16 = iq4_xs_unpack } },
};
