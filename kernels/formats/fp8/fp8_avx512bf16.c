/* Conversion of 8-bit floats to bf16 tiles with integer operations. A normal number is shifted and its
 * exponent bias is changed; the few subnormal numbers are looked up. Every value is exact in bf16. */
#include "kernels/formats/fp8/codes.h"
#include "kernels/formats/fp8/fp8.h"
#include "kernels/isa/bf16_tiles.h"

/* The subnormal numbers as bf16, by code: code * 2^-9 for e4m3 (codes 0 .. 7), code * 2^-16 for e5m2 (0 ..
 * 3). */
#define E4M3_SUBNORMAL 0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60
#define E5M2_SUBNORMAL 0, 0x3780, 0x3800, 0x3840, 0, 0, 0, 0

ALWAYS_INLINE __m512i load32_codes(const uint8_t *row, int64_t i, int64_t have)
{
    const __mmask32 lanes = have >= 32 ? ~0u : (1u << have) - 1;
    return _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(lanes, row + i));
}

/* Convert 32 codes to bf16. shift: from the mantissa of a code to that of a bf16; bias: difference of the
 * exponent biases, in bf16 position; subnormals: number of subnormal codes; subnormal: their values. */
ALWAYS_INLINE __m512i to_tile(__m512i codes, const int shift, const int bias, const int subnormals,
                              __m128i subnormal)
{
    const __m512i magnitude = _mm512_and_si512(codes, _mm512_set1_epi16(0x7f));
    const __mmask32 small = _mm512_cmplt_epu16_mask(magnitude, _mm512_set1_epi16((short)subnormals));
    __m512i v = _mm512_add_epi16(_mm512_slli_epi16(magnitude, shift), _mm512_set1_epi16((short)bias));
    v = _mm512_mask_permutexvar_epi16(v, small, magnitude, _mm512_castsi128_si512(subnormal));
    const __m512i sign = _mm512_slli_epi16(_mm512_sub_epi16(codes, magnitude), 8);
    return _mm512_or_si512(v, sign);
}

ALWAYS_INLINE __m512i e4m3_row32(const uint8_t *row, int64_t i, int64_t have)
{
    return to_tile(load32_codes(row, i, have), 4, (127 - 7) << 7, 8, _mm_setr_epi16(E4M3_SUBNORMAL));
}

ALWAYS_INLINE __m512i e5m2_row32(const uint8_t *row, int64_t i, int64_t have)
{
    const __m512i codes = load32_codes(row, i, have);
    const __m512i v = to_tile(codes, 5, (127 - 15) << 7, 4, _mm_setr_epi16(E5M2_SUBNORMAL));
    /* Infinity and NaN have all exponent bits set in both formats. No encoder here writes them, but other
     * programs' files may contain them. */
    const __m512i all = _mm512_set1_epi16(0x7c);
    const __mmask32 special = _mm512_cmpeq_epi16_mask(_mm512_and_si512(codes, all), all);
    return _mm512_mask_blend_epi16(special, v, _mm512_or_si512(v, _mm512_set1_epi16(0x7f80)));
}

static void e4m3_unpack(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, uint16_t *out)
{
    unpack_tiles(w, row_bytes, rows, k, out, e4m3_row32);
}

static void e5m2_unpack(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, uint16_t *out)
{
    unpack_tiles(w, row_bytes, rows, k, out, e5m2_row32);
}

const struct format_row FP8_AVX512BF16[FP8_COUNT] = {
    { FORMAT_FP8_E4M3, { .unpack_bf16 = e4m3_unpack } },
    { FORMAT_FP8_E5M2, { .unpack_bf16 = e5m2_unpack } },
    { FORMAT_FP8_E4M3_B128, { 0 } }, /* no unpack_bf16: the GEMM kernel decodes and rounds these weights,
                                        because value * scale is not exact in bf16 */
};
