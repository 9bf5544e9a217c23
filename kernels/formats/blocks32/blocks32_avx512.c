/* Blocks of 32 weights with AVX-512, f32 activations: the values a block can hold fit one or two registers,
 * so codes are looked up instead of computed. */
#include "kernels/formats/blocks32/blocks32.h"
#include "kernels/formats/blocks32/values_avx512.h"

ALWAYS_INLINE void block_floats(const struct look_up *f, const uint8_t *block, __m512 out[2])
{
    __m512 v[2];
    f->values(block, v);
    const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(block + f->codes)));
    __m512i code[2] = { bytes, _mm512_srli_epi32(bytes, 4) };
    if (!f->high) { /* a look-up in 16 lanes uses four bits of the index only */
        out[0] = _mm512_permutexvar_ps(code[0], v[0]);
        out[1] = _mm512_permutexvar_ps(code[1], v[0]);
        return;
    }
    const uint32_t high = load_u32(block + f->high);
    for (int h = 0; h < 2; h++) {
        code[h] = _mm512_and_si512(code[h], _mm512_set1_epi32(15));
        code[h] = _mm512_mask_add_epi32(code[h], (__mmask16)(high >> 16 * h), code[h], _mm512_set1_epi32(16));
        out[h] = _mm512_permutex2var_ps(v[0], code[h], v[1]);
    }
}

ALWAYS_INLINE void blocks_decode(const struct look_up *f, const void *blocks, float *x, int64_t n)
{
    const uint8_t *in = blocks;
    for (int64_t i = 0; i < n; i += 32, in += f->bytes) {
        __m512 v[2];
        block_floats(f, in, v);
        _mm512_storeu_ps(x + i, v[0]);
        _mm512_storeu_ps(x + i + 16, v[1]);
    }
}

#define LOOK_UP_FUNCTIONS(name, LOOK_UP)                                                                     \
    ALWAYS_INLINE void name##_floats(const uint8_t *block, __m512 out[2])                                    \
    {                                                                                                        \
        block_floats(&LOOK_UP, block, out);                                                                  \
    }                                                                                                        \
    static void name##_decode(const void *blocks, float *x, int64_t n)                                       \
    {                                                                                                        \
        blocks_decode(&LOOK_UP, blocks, x, n);                                                               \
    }                                                                                                        \
    static void name##_dot_f32(const struct dot *d)                                                          \
    {                                                                                                        \
        dot_blocks(d, name##_floats, LOOK_UP.bytes);                                                         \
    }
LOOK_UP_FUNCTIONS(q4_1, Q4_1)
LOOK_UP_FUNCTIONS(q5_0, Q5_0)
LOOK_UP_FUNCTIONS(q5_1, Q5_1)
LOOK_UP_FUNCTIONS(iq4_nl, IQ4_NL)
LOOK_UP_FUNCTIONS(mxfp4, MXFP4)

const struct format_row BLOCKS32_AVX512[BLOCKS32_COUNT] = {
    { FORMAT_Q8_0,
      { .decode = q8_0_decode_avx512,
        .dot_f32 = q8_0_dot_f32_avx512,
        .row_scores = q8_0_row_scores_avx512,
        .row_values = q8_0_row_values_avx512 } },
    { FORMAT_Q4_0,
      { .decode = q4_0_decode_avx512,
        .dot_f32 = q4_0_dot_f32_avx512,
        .row_scores = q4_0_row_scores_avx512,
        .row_values = q4_0_row_values_avx512 } },
    { FORMAT_Q4_1, { .decode = q4_1_decode, .dot_f32 = q4_1_dot_f32 } },
    { FORMAT_Q5_0, { .decode = q5_0_decode, .dot_f32 = q5_0_dot_f32 } },
    { FORMAT_Q5_1, { .decode = q5_1_decode, .dot_f32 = q5_1_dot_f32 } },
    { FORMAT_IQ4_NL, { .decode = iq4_nl_decode, .dot_f32 = iq4_nl_dot_f32 } },
    { FORMAT_MXFP4, { .decode = mxfp4_decode, .dot_f32 = mxfp4_dot_f32 } },
};
