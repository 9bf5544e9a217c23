/* f32 with AVX2: eight weights a load. */
#include <string.h>

#include "kernels/f32/f32.h"
#include "kernels/isa/avx2.h"

ALWAYS_INLINE __m256 load8(const uint8_t *row, int64_t i)
{
    return _mm256_loadu_ps((const float *)(const void *)row + i);
}

ALWAYS_INLINE float load1(const uint8_t *row, int64_t i)
{
    float v;
    memcpy(&v, row + 4 * i, sizeof v);
    return v;
}

void f32_dot_f32_avx2(const struct dot *d)
{
    dot_floats(d, load8, load1, 4);
}
