/* f32, f16 and bf16 weights as bf16 tile rows. f32 and f16 are rounded to nearest even; the range of f16
 * fits. */
#include "kernels/formats/floats/floats.h"
#include "kernels/isa/bf16_tiles.h"

/* ---------------------------------------------------------------- f32 */

ALWAYS_INLINE __m512i f32_row32(const uint8_t *row, int64_t i, int64_t have)
{
    const uint8_t *at = row + 4 * i;
    return to_bf16(_mm512_maskz_loadu_ps(first_lanes(have), at),
                   _mm512_maskz_loadu_ps(first_lanes(have - 16), at + 64));
}

static void f32_unpack_bf16(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, uint16_t *out)
{
    unpack_tiles(w, row_bytes, rows, k, out, f32_row32);
}

/* ---------------------------------------------------------------- f16 */

ALWAYS_INLINE __m512i f16_row32(const uint8_t *row, int64_t i, int64_t have)
{
    const uint8_t *at = row + 2 * i;
    return to_bf16(_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(have), at)),
                   _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(have - 16), at + 32)));
}

static void f16_unpack_bf16(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, uint16_t *out)
{
    unpack_tiles(w, row_bytes, rows, k, out, f16_row32);
}

/* ---------------------------------------------------------------- bf16 */

ALWAYS_INLINE __m512i bf16_row32(const uint8_t *row, int64_t i, int64_t have)
{
    const __mmask32 lanes = have >= 32 ? ~0u : (1u << have) - 1;
    return _mm512_maskz_loadu_epi16(lanes, row + 2 * i);
}

static void bf16_unpack_bf16(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, uint16_t *out)
{
    unpack_tiles(w, row_bytes, rows, k, out, bf16_row32);
}

const struct format_row FLOATS_AVX512BF16[FLOATS_COUNT] = {
    { FORMAT_F32, { .unpack_bf16 = f32_unpack_bf16 } },
    { FORMAT_F16, { .unpack_bf16 = f16_unpack_bf16 } },
    { FORMAT_BF16, { .unpack_bf16 = bf16_unpack_bf16 } },
};
