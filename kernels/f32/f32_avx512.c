/* f32 with AVX-512: sixteen weights a load, tails by masks. */
#include "kernels/f32/f32.h"
#include "kernels/isa/avx512.h"

ALWAYS_INLINE __m512 load16(const uint8_t *row, int64_t i, __mmask16 lanes)
{
    return _mm512_maskz_loadu_ps(lanes, (const float *)(const void *)row + i);
}

void f32_dot_f32_avx512(const struct dot *d)
{
    dot_floats(d, load16, 4);
}
