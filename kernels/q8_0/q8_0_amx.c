/* q8_0 to bf16 tiles: widen, scale, round. */
#include "kernels/q8_0/q8_0.h"
#include "kernels/isa/amx.h"

ALWAYS_INLINE __m512i row32(const uint8_t *row, int64_t i, int64_t have)
{
    const uint8_t *block = row + i / 32 * 34;
    const __m512 d = broadcast_f16(block);
    const __m128i low = _mm_loadu_si128((const __m128i *)(block + 2));
    const __m128i high = _mm_loadu_si128((const __m128i *)(block + 18));
    (void)have;
    return to_bf16(_mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(low)), d),
                   _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(high)), d));
}

void q8_0_unpack_bf16_amx(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, uint16_t *out)
{
    unpack_tiles(w, row_bytes, rows, k, out, row32, 34);
}
