/* q8_0 with AVX2. vpmaddubsw wants one unsigned side: |w| times q with the sign of w. */
#include "kernels/q8_0/q8_0.h"
#include "kernels/isa/avx2.h"

enum { BLOCK = 32, BLOCK_BYTES = 34, CODES = 2 };

ALWAYS_INLINE void load32(const uint8_t *block, __m256 out[4])
{
    const __m256 d = _mm256_set1_ps(scale_at(block));
    for (int u = 0; u < 4; u++) {
        const __m128i codes = _mm_loadl_epi64((const __m128i *)(block + CODES + 8 * u));
        out[u] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)), d);
    }
}

void q8_0_dot_f32_avx2(const struct dot *d)
{
    dot_blocks(d, load32, BLOCK_BYTES);
}

void q8_0_decode_avx2(const void *blocks, float *x, int64_t n)
{
    const uint8_t *in = blocks;
    for (int64_t i = 0; i < n; i += BLOCK, in += BLOCK_BYTES) {
        __m256 v[4];
        load32(in, v);
        for (int u = 0; u < 4; u++) _mm256_storeu_ps(x + i + 8 * u, v[u]);
    }
}

ALWAYS_INLINE __m256i codes_of(const uint8_t *block)
{
    return _mm256_loadu_si256((const __m256i *)(block + CODES));
}

/* Pairs: 2 * 128 * 127 = 32512 < 2^15, nothing saturates (q is never -128). */
ALWAYS_INLINE __m256i sums_of(__m256i codes, __m256i q)
{
    return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(q, codes)),
                             _mm256_set1_epi16(1));
}

void q8_0_dot_q8_avx2(const struct dot *d)
{
    dot_q8(d, codes_of, sums_of, BLOCK_BYTES, 0);
}

void q8_0_unpack_q8_avx2(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, struct q8_group *out)
{
    unpack_q8_blocks(w, row_bytes, rows, k, out, codes_of, BLOCK_BYTES,
                     (struct q8_kind){ .sub = 32, .bias = 128, .wide = true });
}
