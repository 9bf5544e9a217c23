/* f16 with AVX2: eight weights a load. */
#include "kernels/f16/f16.h"
#include "kernels/isa/avx2.h"

ALWAYS_INLINE __m256 load8(const uint8_t *row, int64_t i)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(row + 2 * i)));
}

ALWAYS_INLINE float load1(const uint8_t *row, int64_t i)
{
    return half_to_float(load_u16(row + 2 * i));
}

void f16_dot_f32_avx2(const struct dot *d)
{
    dot_floats(d, load8, load1, 2);
}

void f16_decode_avx2(const void *blocks, float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(x + i, load8(blocks, i));
    for (; i < n; i++) x[i] = load1(blocks, i);
}
