/* bf16 with AVX-512: sixteen weights a load, tails by masks. */
#include "kernels/bf16/bf16.h"
#include "kernels/isa/avx512.h"

ALWAYS_INLINE __m512 load16(const uint8_t *row, int64_t i, __mmask16 lanes)
{
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, row + 2 * i)), 16));
}

void bf16_dot_f32_avx512(const struct dot *d)
{
    dot_floats(d, load16, 2);
}

void bf16_decode_avx512(const void *blocks, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = first_lanes(n - i);
        _mm512_mask_storeu_ps(x + i, lanes, load16(blocks, i, lanes));
    }
}
