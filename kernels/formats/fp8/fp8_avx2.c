/* 8-bit floats with AVX2: converts eight at a time through f16, whose conversion handles subnormals. */
#include "kernels/formats/fp8/codes.h"
#include "kernels/formats/fp8/fp8.h"
#include "kernels/isa/attention/rows_avx2.h"

/* Eight e4m3 numbers times 2^-8: the codes are moved into f16. Sign extension to 16 bits puts the sign into
 * bit 8, too; after the shift by 7 it is in bit 15, and the mask clears its copy in bit 14. */
ALWAYS_INLINE __m256 e4m3_halves(const uint8_t *row, int64_t i)
{
    const __m128i wide = _mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)(row + i)));
    return _mm256_cvtph_ps(_mm_and_si128(_mm_slli_epi16(wide, 7), _mm_set1_epi16((short)0xbf80)));
}

ALWAYS_INLINE __m256 e4m3_load8(const uint8_t *row, int64_t i)
{
    return _mm256_mul_ps(e4m3_halves(row, i), _mm256_set1_ps(E4M3_FROM_HALF));
}

ALWAYS_INLINE float e4m3_load1(const uint8_t *row, int64_t i)
{
    return e4m3_to_float(row[i]);
}

ALWAYS_INLINE float e4m3_half1(const uint8_t *row, int64_t i)
{
    return e4m3_to_float(row[i]) * (1 / E4M3_FROM_HALF);
}

ALWAYS_INLINE __m256 e5m2_load8(const uint8_t *row, int64_t i)
{
    const __m128i codes = _mm_loadl_epi64((const __m128i *)(row + i));
    return _mm256_cvtph_ps(_mm_unpacklo_epi8(_mm_setzero_si128(), codes));
}

ALWAYS_INLINE float e5m2_load1(const uint8_t *row, int64_t i)
{
    return e5m2_to_float(row[i]);
}

ALWAYS_INLINE void row_decode(const uint8_t *in, float *x, int64_t n, load8_fn *load8, load1_fn *load1)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(x + i, load8(in, i));
    for (; i < n; i++) x[i] = load1(in, i);
}

static void e4m3_codes(const void *codes, float *x, int64_t n)
{
    row_decode(codes, x, n, e4m3_load8, e4m3_load1);
}

static void e5m2_codes(const void *codes, float *x, int64_t n)
{
    row_decode(codes, x, n, e5m2_load8, e5m2_load1);
}

ALWAYS_INLINE float b128_scale(const uint8_t *block)
{
    float scale;
    memcpy(&scale, block + FP8_BLOCK, sizeof scale);
    return scale;
}

/* Eight weights of fp8_e4m3_b128 from index i on, a multiple of 8. Each block of 128 has its own scale. */
ALWAYS_INLINE __m256 b128_load8(const uint8_t *row, int64_t i)
{
    const uint8_t *block = row + i / FP8_BLOCK * FP8_BLOCK_BYTES;
    return _mm256_mul_ps(e4m3_load8(block, i % FP8_BLOCK), _mm256_set1_ps(b128_scale(block)));
}

ALWAYS_INLINE float b128_load1(const uint8_t *row, int64_t i)
{
    const uint8_t *block = row + i / FP8_BLOCK * FP8_BLOCK_BYTES;
    return e4m3_to_float(block[i % FP8_BLOCK]) * b128_scale(block);
}

static void b128_decode(const void *blocks, float *x, int64_t n)
{
    row_decode(blocks, x, n, b128_load8, b128_load1);
}

static void b128_dot_f32(const struct dot *d)
{
    dot_floats(d, b128_load8, b128_load1, 1);
}

/* The power of two that the conversion omits is applied once per row. */
static void e4m3_dot_f32(const struct dot *d)
{
    dot_floats(d, e4m3_halves, e4m3_half1, 1);
    for (int i = 0; i < d->n; i++)
        for (int r = 0; r < d->rows; r++) d->y[i * d->y_stride + r] *= E4M3_FROM_HALF;
}

static void e5m2_dot_f32(const struct dot *d)
{
    dot_floats(d, e5m2_load8, e5m2_load1, 1);
}

ROW_FUNCTIONS_8(e4m3, e4m3_load8)
ROW_FUNCTIONS_8(e5m2, e5m2_load8)

const struct format_row FP8_AVX2[FP8_COUNT] = {
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
