/* Reference decode and dot products of blocks of 32 weights: how codes are extracted and what they mean
 * (README.md). */
#include "kernels/formats/blocks32/blocks32.h"
#include "kernels/isa/gemv/block_dot_ref.h"
#include "kernels/formats/blocks32/layout.h"
#include "kernels/isa/gemv/dot_ref.h"

static const struct block_shape Q4_1 = { Q4_1_BYTES, 1, true }, Q5_0 = { Q5_0_BYTES, 1, false },
                                Q5_1 = { Q5_1_BYTES, 1, true }, IQ4_NL = { IQ4_NL_BYTES, 1, false },
                                MXFP4 = { MXFP4_BYTES, 1, false };
static const int8_t IQ4_NL_VALUE[16] = { IQ4_NL_VALUES }, MXFP4_VALUE[16] = { MXFP4_VALUES };

static int nibble(const uint8_t *codes, int j)
{
    return j < PART / 2 ? codes[j] & 15 : codes[j - PART / 2] >> 4;
}

static int fifth_bit(uint32_t high, int j)
{
    return (int)(high >> j & 1) << 4;
}

static void q4_1_part(const uint8_t *block, int part, struct part *out)
{
    (void)part;
    out->d = half_to_float(load_u16(block)), out->m = half_to_float(load_u16(block + Q4_1_MIN));
    for (int j = 0; j < PART; j++) out->code[j] = (int8_t)nibble(block + Q4_1_CODES, j);
}

static void q5_0_part(const uint8_t *block, int part, struct part *out)
{
    const uint32_t high = load_u32(block + Q5_0_HIGH);
    (void)part;
    out->d = half_to_float(load_u16(block)), out->m = 0;
    for (int j = 0; j < PART; j++)
        out->code[j] = (int8_t)((nibble(block + Q5_0_CODES, j) | fifth_bit(high, j)) - Q5_0_BIAS);
}

static void q5_1_part(const uint8_t *block, int part, struct part *out)
{
    const uint32_t high = load_u32(block + Q5_1_HIGH);
    (void)part;
    out->d = half_to_float(load_u16(block)), out->m = half_to_float(load_u16(block + Q5_1_MIN));
    for (int j = 0; j < PART; j++)
        out->code[j] = (int8_t)(nibble(block + Q5_1_CODES, j) | fifth_bit(high, j));
}

static void iq4_nl_part(const uint8_t *block, int part, struct part *out)
{
    (void)part;
    out->d = half_to_float(load_u16(block)), out->m = 0;
    for (int j = 0; j < PART; j++) out->code[j] = IQ4_NL_VALUE[nibble(block + IQ4_NL_CODES, j)];
}

static void mxfp4_part(const uint8_t *block, int part, struct part *out)
{
    (void)part;
    out->d = mxfp4_scale(block), out->m = 0;
    for (int j = 0; j < PART; j++) out->code[j] = MXFP4_VALUE[nibble(block + MXFP4_CODES, j)];
}

#define REF_FUNCTIONS(name, NAME)                                                                            \
    void name##_decode_ref(const void *blocks, float *x, int64_t n)                                          \
    {                                                                                                        \
        decode_parts(&NAME, name##_part, blocks, x, n);                                                      \
    }                                                                                                        \
    static void name##_dot_f32(const struct dot *d)                                                          \
    {                                                                                                        \
        dot_f32_by_decoding(d, FORMAT_##NAME, name##_decode_ref);                                            \
    }                                                                                                        \
    static void name##_dot_q8(const struct dot *d)                                                           \
    {                                                                                                        \
        dot_q8_parts(&NAME, name##_part, d);                                                                 \
    }
REF_FUNCTIONS(q4_1, Q4_1)
REF_FUNCTIONS(q5_0, Q5_0)
REF_FUNCTIONS(q5_1, Q5_1)
REF_FUNCTIONS(iq4_nl, IQ4_NL)
REF_FUNCTIONS(mxfp4, MXFP4)

#define ROW(name, NAME)                                                                                      \
    {                                                                                                        \
        FORMAT_##NAME,                                                                                       \
        {                                                                                                    \
            .decode = name##_decode_ref, .dot_f32 = name##_dot_f32, .dot_q8 = name##_dot_q8,                 \
            .encode = name##_encode_rows_ref                                                                 \
        }                                                                                                    \
    }
const struct format_row BLOCKS32_REF[BLOCKS32_COUNT] = {
    { FORMAT_Q8_0, { .decode = q8_0_decode_ref, .dot_f32 = q8_0_dot_f32_ref, .dot_q8 = q8_0_dot_q8_ref } },
    { FORMAT_Q4_0,
      { .decode = q4_0_decode_ref,
        .dot_f32 = q4_0_dot_f32_ref,
        .dot_q8 = q4_0_dot_q8_ref,
        .encode = q4_0_encode_rows_ref } },
    ROW(q4_1, Q4_1),
    ROW(q5_0, Q5_0),
    ROW(q5_1, Q5_1),
    ROW(iq4_nl, IQ4_NL),
    { FORMAT_MXFP4, { .decode = mxfp4_decode_ref, .dot_f32 = mxfp4_dot_f32, .dot_q8 = mxfp4_dot_q8 } },
};
