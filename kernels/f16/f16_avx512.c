/* f16 with AVX-512: sixteen weights a load, tails by masks. */
#include "kernels/f16/f16.h"
#include "kernels/isa/avx512.h"

ALWAYS_INLINE __m512 load16(const uint8_t *row, int64_t i, __mmask16 lanes)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, row + 2 * i));
}

void f16_dot_f32_avx512(const struct dot *d)
{
    dot_floats(d, load16, 2);
}

void f16_decode_avx512(const void *blocks, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = first_lanes(n - i);
        _mm512_mask_storeu_ps(x + i, lanes, load16(blocks, i, lanes));
    }
}
