/* W8A8 with AVX2. Bytes are widened to 16 bits, where multiply-add in pairs is exact for all codes;
 * vpmaddubsw would saturate. */
#include "kernels/isa/isa_kernels.h"
#include "kernels/isa/gemm/w8a8_256.h"

enum { STEP = 16, ROWS = 2 };

/* Rows r.. of the weights (`rows` of them) by n rows of codes, both constants. */
ALWAYS_INLINE void dot_rows(const struct w8a8_dot *d, int r, const int rows, const int n)
{
    const uint8_t *w = d->w + r * d->row_bytes;
    const __m256i zero = _mm256_set1_epi16((int16_t)d->zero);
    __m256i sum[ROWS][DOT_X];
#pragma GCC unroll 2
    for (int j = 0; j < rows; j++)
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) sum[j][i] = _mm256_setzero_si256();
    for (int64_t k = 0; k < d->cols; k += STEP) {
        __m256i v[ROWS];
#pragma GCC unroll 2
        for (int j = 0; j < rows; j++) {
            const uint8_t *at = w + j * d->row_bytes + k;
            if (k % LINE_BYTES == 0) prefetch_ahead(at, LINE_BYTES);
            v[j] = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)at));
        }
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) {
            const __m128i code = _mm_loadu_si128((const __m128i *)(d->code + i * d->code_stride + k));
            const __m256i x = _mm256_sub_epi16(_mm256_cvtepu8_epi16(code), zero);
#pragma GCC unroll 2
            for (int j = 0; j < rows; j++)
                sum[j][i] = _mm256_add_epi32(sum[j][i], _mm256_madd_epi16(v[j], x));
        }
    }
#pragma GCC unroll 2
    for (int j = 0; j < rows; j++)
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) d->y[i * d->y_stride + r + j] = (float)sum_of_s32(sum[j][i]);
}

ALWAYS_INLINE void dot_unrolled(const struct w8a8_dot *d, const int n)
{
    int r = 0;
    for (; r + ROWS <= d->rows; r += ROWS) dot_rows(d, r, ROWS, n);
    if (r < d->rows) dot_rows(d, r, 1, n);
}

void w8a8_dot_avx2(const struct w8a8_dot *d)
{
    switch (d->n) {
    case 1: dot_unrolled(d, 1); break;
    case 2: dot_unrolled(d, 2); break;
    case 3: dot_unrolled(d, 3); break;
    case 4: dot_unrolled(d, 4); break;
    }
}

/* ---------------------------------------------------------------- many rows */

enum {
    PER = 2,
    MIN_ROWS = 15 /* the kernel always computes 16 tokens; with fewer, dot products are as fast */
};

ALWAYS_INLINE __m256i activations_load(const uint8_t *code)
{
    return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)code));
}

ALWAYS_INLINE __m256i weights_load(const uint8_t *code)
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)code));
}

ALWAYS_INLINE __m256i add_products(__m256i sum, __m256i x, __m256i w)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(x, w));
}

static const struct w8a8_256 HOW = { PER, activations_load, weights_load, add_products };
GEMM_W8A8_256(GEMM_W8A8_AVX2, HOW, PER, MIN_ROWS);
