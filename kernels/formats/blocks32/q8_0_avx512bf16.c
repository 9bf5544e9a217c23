/* q8_0 as bf16 tiles: widen, scale, round. */
#include "kernels/isa/bf16_tiles.h"
#include "kernels/formats/blocks32/blocks32.h"
#include "kernels/formats/blocks32/layout.h"

enum { RUN = 8 };

/* Convert n blocks of a row (n is a constant at every call) to one row of n tiles. */
ALWAYS_INLINE void blocks_unpack(const uint8_t *row, uint16_t *out, const int n)
{
    float scale[RUN];
    load_8_scales(row, Q8_0_BYTES, n, scale);
#pragma GCC unroll 8
    for (int b = 0; b < n; b++, row += Q8_0_BYTES) {
        const __m512 d = _mm512_set1_ps(scale[b]);
        const __m512i low = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(row + Q8_0_CODES)));
        const __m512i high = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(row + Q8_0_CODES + 16)));
        _mm512_store_si512(out + b * BF16_TILE_WEIGHTS, to_bf16(_mm512_mul_ps(_mm512_cvtepi32_ps(low), d),
                                                                _mm512_mul_ps(_mm512_cvtepi32_ps(high), d)));
    }
}

void q8_0_unpack_bf16_amx(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, uint16_t *out)
{
    for (int r = 0; r < rows; r++, w += row_bytes, out += TILE_DEPTH) {
        int64_t b = 0;
        for (; b + RUN <= k / TILE_DEPTH; b += RUN)
            blocks_unpack(w + b * Q8_0_BYTES, out + b * BF16_TILE_WEIGHTS, RUN);
        for (; b < k / TILE_DEPTH; b++) blocks_unpack(w + b * Q8_0_BYTES, out + b * BF16_TILE_WEIGHTS, 1);
    }
}
