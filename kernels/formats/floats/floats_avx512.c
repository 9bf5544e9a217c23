/* f32, f16 and bf16 with AVX-512: one load yields sixteen weights; masked loads handle the end of a row. */
#include "kernels/formats/floats/floats.h"
#include "kernels/isa/attention/rows_avx512.h"

/* ---------------------------------------------------------------- f32 */

ALWAYS_INLINE __m512 f32_load16(const uint8_t *row, int64_t i, __mmask16 lanes)
{
    return _mm512_maskz_loadu_ps(lanes, (const float *)(const void *)row + i);
}

static void f32_dot_f32(const struct dot *d)
{
    dot_floats(d, f32_load16, 4);
}

/* ---------------------------------------------------------------- f16 */

ALWAYS_INLINE __m512 f16_load16(const uint8_t *row, int64_t i, __mmask16 lanes)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, row + 2 * i));
}

static void f16_dot_f32(const struct dot *d)
{
    dot_floats(d, f16_load16, 2);
}

static void f16_decode(const void *blocks, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = first_lanes(n - i);
        _mm512_mask_storeu_ps(x + i, lanes, f16_load16(blocks, i, lanes));
    }
}

/* ---------------------------------------------------------------- bf16 */

ALWAYS_INLINE __m512 bf16_load16(const uint8_t *row, int64_t i, __mmask16 lanes)
{
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, row + 2 * i)), 16));
}

static void bf16_dot_f32(const struct dot *d)
{
    dot_floats(d, bf16_load16, 2);
}

static void bf16_decode(const void *blocks, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = first_lanes(n - i);
        _mm512_mask_storeu_ps(x + i, lanes, bf16_load16(blocks, i, lanes));
    }
}

ROW_FUNCTIONS_16(f32, f32_load16)
ROW_FUNCTIONS_16(f16, f16_load16)
ROW_FUNCTIONS_16(bf16, bf16_load16)

const struct format_row FLOATS_AVX512[FLOATS_COUNT] = {
    { FORMAT_F32, { .dot_f32 = f32_dot_f32, .row_scores = f32_row_scores, .row_values = f32_row_values } },
    { FORMAT_F16,
      { .decode = f16_decode,
        .dot_f32 = f16_dot_f32,
        .row_scores = f16_row_scores,
        .row_values = f16_row_values } },
    { FORMAT_BF16,
      { .decode = bf16_decode,
        .dot_f32 = bf16_dot_f32,
        .row_scores = bf16_row_scores,
        .row_values = bf16_row_values } },
};
