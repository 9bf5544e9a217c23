/* Conversion of ternary weights to bf16 tiles: -d, 0 and d are rounded once, then looked up by code. */
#include "kernels/isa/bf16_tiles.h"
#include "kernels/formats/ternary/codes.h"
#include "kernels/formats/ternary/ternary.h"

/* Codes are 0, 1 or 2; the other entries of the table are not used. */
ALWAYS_INLINE __m512i look_up(__m256i codes, const uint8_t *scale)
{
    const __m512 means = _mm512_setr_ps(-1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512 values = _mm512_mul_ps(means, broadcast_f16(scale));
    return _mm512_permutexvar_epi16(_mm512_cvtepu8_epi16(codes), to_bf16(values, values));
}

ALWAYS_INLINE __m512i tq1_0_row32(const uint8_t *row, int64_t i, int64_t have)
{
    const uint8_t *block = row + i / TQ_BLOCK * TQ1_0_BYTES;
    (void)have;
    return look_up(tq1_0_codes(block, (int)(i / 32 % TQ_PARTS)), block + TQ1_0_D);
}

ALWAYS_INLINE __m512i tq2_0_row32(const uint8_t *row, int64_t i, int64_t have)
{
    const uint8_t *block = row + i / TQ_BLOCK * TQ2_0_BYTES;
    (void)have;
    return look_up(tq2_0_codes(block, (int)(i / 32 % TQ_PARTS)), block + TQ2_0_D);
}

static void tq1_0_unpack(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, uint16_t *out)
{
    unpack_tiles(w, row_bytes, rows, k, out, tq1_0_row32);
}

static void tq2_0_unpack(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, uint16_t *out)
{
    unpack_tiles(w, row_bytes, rows, k, out, tq2_0_row32);
}

const struct format_row TERNARY_AVX512BF16[TERNARY_COUNT] = {
    { FORMAT_TQ1_0, { .unpack_bf16 = tq1_0_unpack } },
    { FORMAT_TQ2_0, { .unpack_bf16 = tq2_0_unpack } },
};
