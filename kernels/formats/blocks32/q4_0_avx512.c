/* q4_0 with AVX-512, f32 activations: the sixteen values a block can hold fit one
 * register, so a code is looked up instead of computed. */
#include "kernels/formats/blocks32/blocks32.h"
#include "kernels/formats/blocks32/layout.h"
#include "kernels/isa/avx512.h"
#include "kernels/isa/attention/rows_avx512.h"

enum { BLOCK = 32 };

ALWAYS_INLINE void load32(const uint8_t *block, __m512 out[2])
{
    const __m512 means = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    const __m512 table = _mm512_mul_ps(means, broadcast_f16(block));
    const __m512i codes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(block + Q4_0_CODES)));
    out[0] = _mm512_permutexvar_ps(codes, table); /* uses the low four bits only */
    out[1] = _mm512_permutexvar_ps(_mm512_srli_epi32(codes, 4), table);
}

void q4_0_dot_f32_avx512(const struct dot *d)
{
    dot_blocks(d, load32, Q4_0_BYTES);
}

void q4_0_decode_avx512(const void *blocks, float *x, int64_t n)
{
    const uint8_t *in = blocks;
    for (int64_t i = 0; i < n; i += BLOCK, in += Q4_0_BYTES) {
        __m512 v[2];
        load32(in, v);
        _mm512_storeu_ps(x + i, v[0]);
        _mm512_storeu_ps(x + i + 16, v[1]);
    }
}

ALWAYS_INLINE void load_parts(const uint8_t *row, int64_t i, __m512 *out)
{
    load32(row + i / BLOCK * Q4_0_BYTES, out);
}

ROW_FUNCTIONS(, q4_0_row_scores_avx512, q4_0_row_values_avx512, load_parts, 2)
