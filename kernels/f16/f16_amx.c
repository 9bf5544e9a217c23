/* f16 to bf16 tiles: three bits of precision go, the range fits. */
#include "kernels/f16/f16.h"
#include "kernels/isa/amx.h"

ALWAYS_INLINE __m512i row32(const uint8_t *row, int64_t i, int64_t have)
{
    const uint8_t *at = row + 2 * i;
    return to_bf16(_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(have), at)),
                   _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(have - 16), at + 32)));
}

void f16_unpack_bf16_amx(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, uint16_t *out)
{
    unpack_tiles(w, row_bytes, rows, k, out, row32);
}
