/* int8 as bf16 tiles: every code is exact in bf16. */
#include "kernels/formats/int8/int8.h"
#include "kernels/isa/bf16_tiles.h"

ALWAYS_INLINE __m512 codes_to_floats(const uint8_t *codes)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)codes)));
}

ALWAYS_INLINE __m512i row_load_bf16(const uint8_t *row, int64_t i, int64_t have)
{
    (void)have;
    return to_bf16(codes_to_floats(row + i), codes_to_floats(row + i + 16));
}

static void int8_unpack(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, uint16_t *out)
{
    unpack_tiles(w, row_bytes, rows, k, out, row_load_bf16);
}

const struct format_row INT8_AVX512BF16[INT8_COUNT] = {
    { FORMAT_INT8, { .unpack_bf16 = int8_unpack } },
};
