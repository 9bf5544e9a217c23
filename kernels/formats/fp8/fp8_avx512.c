/* 8-bit floats with AVX-512: converts sixteen at a time through f16; masks handle the end of a row. */
#include "kernels/formats/fp8/codes.h"
#include "kernels/formats/fp8/fp8.h"
#include "kernels/isa/attention/rows_avx512.h"

/* Sixteen e4m3 numbers times 2^-8: the codes are moved into f16. Sign extension to 16 bits puts the sign into
 * bit 8, too; after the shift by 7 it is in bit 15, and the mask clears its copy in bit 14. */
ALWAYS_INLINE __m512 e4m3_halves(const uint8_t *row, int64_t i, __mmask16 lanes)
{
    const __m256i wide = _mm256_cvtepi8_epi16(_mm_maskz_loadu_epi8(lanes, row + i));
    return _mm512_cvtph_ps(_mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16((short)0xbf80)));
}

ALWAYS_INLINE __m512 e4m3_load16(const uint8_t *row, int64_t i, __mmask16 lanes)
{
    return _mm512_mul_ps(e4m3_halves(row, i, lanes), _mm512_set1_ps(E4M3_FROM_HALF));
}

ALWAYS_INLINE __m512 e5m2_load16(const uint8_t *row, int64_t i, __mmask16 lanes)
{
    const __m256i wide = _mm256_cvtepu8_epi16(_mm_maskz_loadu_epi8(lanes, row + i));
    return _mm512_cvtph_ps(_mm256_slli_epi16(wide, 8));
}

ALWAYS_INLINE void row_decode(const uint8_t *in, float *x, int64_t n, load16_fn *load)
{
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = first_lanes(n - i);
        _mm512_mask_storeu_ps(x + i, lanes, load(in, i, lanes));
    }
}

static void e4m3_codes(const void *codes, float *x, int64_t n)
{
    row_decode(codes, x, n, e4m3_load16);
}

static void e5m2_codes(const void *codes, float *x, int64_t n)
{
    row_decode(codes, x, n, e5m2_load16);
}

/* Sixteen weights of fp8_e4m3_b128 from index i on. i is a multiple of 16 and so is the length of a block, so
 * all 16 weights share one scale. */
ALWAYS_INLINE __m512 b128_load16(const uint8_t *row, int64_t i, __mmask16 lanes)
{
    const uint8_t *block = row + i / FP8_BLOCK * FP8_BLOCK_BYTES;
    float scale;
    memcpy(&scale, block + FP8_BLOCK, sizeof scale);
    return _mm512_mul_ps(e4m3_load16(block, i % FP8_BLOCK, lanes), _mm512_set1_ps(scale));
}

static void b128_decode(const void *blocks, float *x, int64_t n)
{
    row_decode(blocks, x, n, b128_load16);
}

static void b128_dot_f32(const struct dot *d)
{
    dot_floats(d, b128_load16, 1);
}

/* The power of two that the conversion omits is applied once per row. */
static void e4m3_dot_f32(const struct dot *d)
{
    dot_floats(d, e4m3_halves, 1);
    for (int i = 0; i < d->n; i++)
        for (int r = 0; r < d->rows; r++) d->y[i * d->y_stride + r] *= E4M3_FROM_HALF;
}

static void e5m2_dot_f32(const struct dot *d)
{
    dot_floats(d, e5m2_load16, 1);
}

ROW_FUNCTIONS_16(e4m3, e4m3_load16)
ROW_FUNCTIONS_16(e5m2, e5m2_load16)

const struct format_row FP8_AVX512[FP8_COUNT] = {
    { FORMAT_FP8_E4M3,
      { .decode = e4m3_codes,
        .dot_f32 = e4m3_dot_f32,
        .row_scores = e4m3_row_scores,
        .row_values = e4m3_row_values } },
    { FORMAT_FP8_E5M2,
      { .decode = e5m2_codes,
        .dot_f32 = e5m2_dot_f32,
        .row_scores = e5m2_row_scores,
        .row_values = e5m2_row_values } },
    { FORMAT_FP8_E4M3_B128, { .decode = b128_decode, .dot_f32 = b128_dot_f32 } },
};
