/* bf16 to bf16 tiles: they are what the tiles eat. */
#include "kernels/bf16/bf16.h"
#include "kernels/isa/amx.h"

ALWAYS_INLINE __m512i row32(const uint8_t *row, int64_t i, int64_t have)
{
    const __mmask32 lanes = have >= 32 ? ~0u : (1u << have) - 1;
    return _mm512_maskz_loadu_epi16(lanes, row + 2 * i);
}

void bf16_unpack_bf16_amx(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, uint16_t *out)
{
    unpack_tiles(w, row_bytes, rows, k, out, row32);
}
