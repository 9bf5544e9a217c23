/* q8_0 with AVX-512, f32 activations: widen, scale, multiply-add. */
#include "kernels/formats/blocks32/blocks32.h"
#include "kernels/formats/blocks32/layout.h"
#include "kernels/isa/avx512.h"
#include "kernels/isa/attention/rows_avx512.h"

enum { BLOCK = 32 };

ALWAYS_INLINE void load32(const uint8_t *block, __m512 out[2])
{
    const __m512 d = broadcast_f16(block);
    const __m128i low = _mm_loadu_si128((const __m128i *)(block + Q8_0_CODES));
    const __m128i high = _mm_loadu_si128((const __m128i *)(block + Q8_0_CODES + 16));
    out[0] = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(low)), d);
    out[1] = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(high)), d);
}

void q8_0_dot_f32_avx512(const struct dot *d)
{
    dot_blocks(d, load32, Q8_0_BYTES);
}

void q8_0_decode_avx512(const void *blocks, float *x, int64_t n)
{
    const uint8_t *in = blocks;
    for (int64_t i = 0; i < n; i += BLOCK, in += Q8_0_BYTES) {
        __m512 v[2];
        load32(in, v);
        _mm512_storeu_ps(x + i, v[0]);
        _mm512_storeu_ps(x + i + 16, v[1]);
    }
}

ALWAYS_INLINE void load_parts(const uint8_t *row, int64_t i, __m512 *out)
{
    load32(row + i / BLOCK * Q8_0_BYTES, out);
}

ROW_FUNCTIONS(, q8_0_row_scores_avx512, q8_0_row_values_avx512, load_parts, 2)
