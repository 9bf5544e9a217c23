/* q4_0 to bf16 tiles: the sixteen values of a block are computed and rounded once, then looked up by code. */
#include "kernels/q4_0/q4_0.h"
#include "kernels/isa/amx.h"

ALWAYS_INLINE __m512i row32(const uint8_t *row, int64_t i, int64_t have)
{
    const uint8_t *block = row + i / 32 * 18;
    const __m512 means = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i values = (__m256i)_mm512_cvtneps_pbh(_mm512_mul_ps(means, broadcast_f16(block)));
    const __m256i bytes = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(block + 2)));
    /* Words 0..15 keep their byte, words 16..31 move the upper code down. vpermw looks at five bits of an
     * index: with the table twice in the register, the fifth does not matter. */
    const __m512i shift = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(4), 1);
    const __m512i codes = _mm512_srlv_epi16(_mm512_cvtepu8_epi16(bytes), shift);
    (void)have;
    return _mm512_permutexvar_epi16(codes, _mm512_broadcast_i64x4(values));
}

void q4_0_unpack_bf16_amx(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, uint16_t *out)
{
    unpack_tiles(w, row_bytes, rows, k, out, row32, 18);
}
