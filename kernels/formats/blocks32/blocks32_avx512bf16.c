/* Blocks of 32 weights as bf16 tiles: the values that a block can hold are computed and rounded once, then
 * looked up by code. Thirty-two bf16 numbers fit one register, so a fifth bit costs only its insertion into
 * the code. */
#include "kernels/formats/blocks32/blocks32.h"
#include "kernels/formats/blocks32/values_avx512.h"
#include "kernels/isa/bf16_tiles.h"

ALWAYS_INLINE __m512i row_load_bf16(const struct look_up *f, const uint8_t *row, int64_t i)
{
    const uint8_t *block = row + i / 32 * f->bytes;
    __m512 v[2];
    f->values(block, v);
    const __m512i table = to_bf16(v[0], f->high ? v[1] : v[0]);
    const __m256i bytes = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(block + f->codes)));
    /* Words 0..15 keep their byte, words 16..31 shift the upper code down. The look-up uses five bits of an
     * index; the sixteen values are repeated in the register, so the fifth does not matter. */
    const __m512i shift = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(4), 1);
    __m512i codes = _mm512_srlv_epi16(_mm512_cvtepu8_epi16(bytes), shift);
    if (f->high) {
        codes = _mm512_and_si512(codes, _mm512_set1_epi16(15));
        codes = _mm512_mask_add_epi16(codes, load_u32(block + f->high), codes, _mm512_set1_epi16(16));
    }
    return _mm512_permutexvar_epi16(codes, table);
}

#define UNPACK_FUNCTION(name, LOOK_UP)                                                                       \
    ALWAYS_INLINE __m512i name##_row32(const uint8_t *row, int64_t i, int64_t have)                          \
    {                                                                                                        \
        (void)have;                                                                                          \
        return row_load_bf16(&LOOK_UP, row, i);                                                              \
    }                                                                                                        \
    static void name##_unpack(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, uint16_t *out)       \
    {                                                                                                        \
        unpack_tiles(w, row_bytes, rows, k, out, name##_row32);                                              \
    }
UNPACK_FUNCTION(q4_1, Q4_1)
UNPACK_FUNCTION(q5_0, Q5_0)
UNPACK_FUNCTION(q5_1, Q5_1)
UNPACK_FUNCTION(iq4_nl, IQ4_NL)
UNPACK_FUNCTION(mxfp4, MXFP4)

const struct format_row BLOCKS32_AVX512BF16[BLOCKS32_COUNT] = {
    { FORMAT_Q8_0, { .unpack_bf16 = q8_0_unpack_bf16_amx } },
    { FORMAT_Q4_0, { .unpack_bf16 = q4_0_unpack_bf16_amx } },
    { FORMAT_Q4_1, { .unpack_bf16 = q4_1_unpack } },
    { FORMAT_Q5_0, { .unpack_bf16 = q5_0_unpack } },
    { FORMAT_Q5_1, { .unpack_bf16 = q5_1_unpack } },
    { FORMAT_IQ4_NL, { .unpack_bf16 = iq4_nl_unpack } },
    { FORMAT_MXFP4, { .unpack_bf16 = mxfp4_unpack } },
};
