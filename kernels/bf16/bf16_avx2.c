/* bf16 with AVX2: eight weights a load. */
#include "kernels/bf16/bf16.h"
#include "kernels/isa/avx2.h"

ALWAYS_INLINE __m256 load8(const uint8_t *row, int64_t i)
{
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(row + 2 * i))), 16));
}

ALWAYS_INLINE float load1(const uint8_t *row, int64_t i)
{
    return bhalf_to_float(load_u16(row + 2 * i));
}

void bf16_dot_f32_avx2(const struct dot *d)
{
    dot_floats(d, load8, load1, 2);
}

void bf16_decode_avx2(const void *blocks, float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(x + i, load8(blocks, i));
    for (; i < n; i++) x[i] = load1(blocks, i);
}
