/* q8_0 with AVX2. vpmaddubsw needs one unsigned operand: it multiplies |w| by q with the sign of w. */
#include "kernels/formats/blocks32/blocks32.h"
#include "kernels/formats/blocks32/layout.h"
#include "kernels/isa/attention/rows_avx2.h"
#include "kernels/isa/gemv/block_dot_avx2.h"

enum { BLOCK = 32 };

ALWAYS_INLINE void load32(const uint8_t *block, __m256 out[4])
{
    const __m256 d = _mm256_set1_ps(scale_at(block));
    for (int u = 0; u < 4; u++) {
        const __m128i codes = _mm_loadl_epi64((const __m128i *)(block + Q8_0_CODES + 8 * u));
        out[u] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)), d);
    }
}

void q8_0_dot_f32_avx2(const struct dot *d)
{
    dot_blocks(d, load32, Q8_0_BYTES);
}

void q8_0_decode_avx2(const void *blocks, float *x, int64_t n)
{
    const uint8_t *in = blocks;
    for (int64_t i = 0; i < n; i += BLOCK, in += Q8_0_BYTES) {
        __m256 v[4];
        load32(in, v);
        for (int u = 0; u < 4; u++) _mm256_storeu_ps(x + i + 8 * u, v[u]);
    }
}

ALWAYS_INLINE __m256i codes_of(const uint8_t *block, int part)
{
    (void)part;
    return _mm256_loadu_si256((const __m256i *)(block + Q8_0_CODES));
}

static const struct block_kind KIND = {
    .bytes = Q8_0_BYTES, .parts = 1, .codes = codes_of, .products = products_signed, .scale = leading_scale
};

void q8_0_dot_q8_avx2(const struct dot *d)
{
    kind_dot_q8(&KIND, d);
}

void q8_0_unpack_q8_avx2(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, struct q8_group *out)
{
    kind_unpack_q8(&KIND, w, row_bytes, rows, k, out);
}

ALWAYS_INLINE void load_two(const uint8_t *row, int64_t i, __m256 out[2])
{
    const uint8_t *block = row + i / BLOCK * Q8_0_BYTES;
    const __m256 d = _mm256_set1_ps(scale_at(block));
    for (int u = 0; u < 2; u++) {
        const __m128i codes = _mm_loadl_epi64((const __m128i *)(block + Q8_0_CODES + i % BLOCK + 8 * u));
        out[u] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)), d);
    }
}

ROW_FUNCTIONS(, q8_0_row_scores_avx2, q8_0_row_values_avx2, load_two)
