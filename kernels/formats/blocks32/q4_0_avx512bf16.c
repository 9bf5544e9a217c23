/* q4_0 as bf16 tiles: the sixteen values of a block are computed and rounded once, then looked up by code. */
#include "kernels/isa/bf16_tiles.h"
#include "kernels/formats/blocks32/blocks32.h"
#include "kernels/formats/blocks32/layout.h"

enum { RUN = 8 };

/* Convert n blocks of a row (n is a constant at every call) to one row of n tiles. */
ALWAYS_INLINE void blocks_unpack(const uint8_t *row, uint16_t *out, const int n)
{
    const __m512 means = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    /* Words 0..15 keep their byte, words 16..31 shift the upper code down. vpermw uses five bits of an
     * index; the table is repeated in the register, so the fifth does not matter. */
    const __m512i shift = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(4), 1);
    float scale[RUN];
    load_8_scales(row, Q4_0_BYTES, n, scale);
#pragma GCC unroll 8
    for (int b = 0; b < n; b++, row += Q4_0_BYTES) {
        const __m512i values = twice_bf16(_mm512_mul_ps(means, _mm512_set1_ps(scale[b])));
        const __m256i bytes = _mm256_broadcastsi128_si256(
            _mm_loadu_si128((const __m128i *)(row + Q4_0_CODES)));
        const __m512i codes = _mm512_srlv_epi16(_mm512_cvtepu8_epi16(bytes), shift);
        _mm512_store_si512(out + b * BF16_TILE_WEIGHTS, _mm512_permutexvar_epi16(codes, values));
    }
}

void q4_0_unpack_bf16_amx(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, uint16_t *out)
{
    for (int r = 0; r < rows; r++, w += row_bytes, out += TILE_DEPTH) {
        int64_t b = 0;
        for (; b + RUN <= k / TILE_DEPTH; b += RUN)
            blocks_unpack(w + b * Q4_0_BYTES, out + b * BF16_TILE_WEIGHTS, RUN);
        for (; b < k / TILE_DEPTH; b++) blocks_unpack(w + b * Q4_0_BYTES, out + b * BF16_TILE_WEIGHTS, 1);
    }
}
