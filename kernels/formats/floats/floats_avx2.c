/* f32, f16 and bf16 with AVX2: one load yields eight weights; a scalar loop handles the last up to seven. */
#include <string.h>

#include "kernels/formats/floats/floats.h"
#include "kernels/isa/attention/rows_avx2.h"

/* ---------------------------------------------------------------- f32 */

ALWAYS_INLINE __m256 f32_load8(const uint8_t *row, int64_t i)
{
    return _mm256_loadu_ps((const float *)(const void *)row + i);
}

ALWAYS_INLINE float f32_load1(const uint8_t *row, int64_t i)
{
    float v;
    memcpy(&v, row + 4 * i, sizeof v);
    return v;
}

static void f32_dot_f32(const struct dot *d)
{
    dot_floats(d, f32_load8, f32_load1, 4);
}

/* ---------------------------------------------------------------- f16 */

ALWAYS_INLINE __m256 f16_load8(const uint8_t *row, int64_t i)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(row + 2 * i)));
}

ALWAYS_INLINE float f16_load1(const uint8_t *row, int64_t i)
{
    return half_to_float(load_u16(row + 2 * i));
}

static void f16_dot_f32(const struct dot *d)
{
    dot_floats(d, f16_load8, f16_load1, 2);
}

static void f16_decode(const void *blocks, float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(x + i, f16_load8(blocks, i));
    for (; i < n; i++) x[i] = f16_load1(blocks, i);
}

/* ---------------------------------------------------------------- bf16 */

ALWAYS_INLINE __m256 bf16_load8(const uint8_t *row, int64_t i)
{
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(row + 2 * i))), 16));
}

ALWAYS_INLINE float bf16_load1(const uint8_t *row, int64_t i)
{
    return bhalf_to_float(load_u16(row + 2 * i));
}

static void bf16_dot_f32(const struct dot *d)
{
    dot_floats(d, bf16_load8, bf16_load1, 2);
}

static void bf16_decode(const void *blocks, float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(x + i, bf16_load8(blocks, i));
    for (; i < n; i++) x[i] = bf16_load1(blocks, i);
}

ROW_FUNCTIONS_8(f32, f32_load8)
ROW_FUNCTIONS_8(f16, f16_load8)
ROW_FUNCTIONS_8(bf16, bf16_load8)

const struct format_row FLOATS_AVX2[FLOATS_COUNT] = {
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
