/* Reference code extraction of the k-quants, bit by bit as the layout says. kquants_ref.h does the rest. */
#include "kernels/formats/kquants/kquants.h"
#include "kernels/formats/kquants/kquants_ref.h"

static void two_bit_codes(const uint8_t *in, uint8_t code[K_BLOCK])
{
    for (int i = 0; i < K_BLOCK; i++) code[i] = in[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

static void four_bit_codes(const uint8_t *in, uint8_t code[K_BLOCK])
{
    for (int i = 0; i < K_BLOCK; i++) code[i] = in[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15;
}

/* Add one bit to every code: bit b of byte l belongs to code 32b + l. */
static void plane_add(const uint8_t *plane, int shift, uint8_t code[K_BLOCK])
{
    for (int i = 0; i < K_BLOCK; i++) code[i] |= (uint8_t)((plane[i % 32] >> (i / 32) & 1) << shift);
}

static void q2_k_codes(const uint8_t *block, uint8_t code[K_BLOCK])
{
    two_bit_codes(block + Q2_K_CODES, code);
}

static void q3_k_codes(const uint8_t *block, uint8_t code[K_BLOCK])
{
    two_bit_codes(block + Q3_K_CODES, code);
    plane_add(block + Q3_K_HIGH, 2, code);
}

static void q4_k_codes(const uint8_t *block, uint8_t code[K_BLOCK])
{
    four_bit_codes(block + Q4_K_CODES, code);
}

static void q5_k_codes(const uint8_t *block, uint8_t code[K_BLOCK])
{
    four_bit_codes(block + Q5_K_CODES, code);
    plane_add(block + Q5_K_HIGH, 4, code);
}

static void q6_k_codes(const uint8_t *block, uint8_t code[K_BLOCK])
{
    two_bit_codes(block + Q6_K_HIGH, code);
    for (int i = 0; i < K_BLOCK; i++) {
        const int low = block[Q6_K_LOW + i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 15;
        code[i] = (uint8_t)(code[i] << 4 | low);
    }
}

static void iq4_xs_codes(const uint8_t *block, uint8_t code[K_BLOCK])
{
    static const int8_t VALUES[16] = { IQ4_VALUES };
    for (int i = 0; i < K_BLOCK; i++) {
        const int c = block[IQ4_XS_CODES + i / 32 * 16 + i % 16] >> (i % 32 / 16 * 4) & 15;
        code[i] = (uint8_t)(VALUES[c] + 128);
    }
}

/* In the order of KQUANTS_REF. */
static const struct k_format FORMATS_HERE[KQUANT_COUNT] = {
    { .id = FORMAT_Q2_K, .shape = &Q2_K_SHAPE, .scales = q2_k_scales, .codes = q2_k_codes },
    { .id = FORMAT_Q3_K, .shape = &Q3_K_SHAPE, .scales = q3_k_scales, .codes = q3_k_codes },
    { .id = FORMAT_Q4_K, .shape = &Q4_K_SHAPE, .scales = q4_k_scales, .codes = q4_k_codes },
    { .id = FORMAT_Q5_K, .shape = &Q5_K_SHAPE, .scales = q4_k_scales, .codes = q5_k_codes },
    { .id = FORMAT_Q6_K, .shape = &Q6_K_SHAPE, .scales = q6_k_scales, .codes = q6_k_codes },
    { .id = FORMAT_IQ4_XS, .shape = &IQ4_XS_SHAPE, .scales = iq4_xs_scales, .codes = iq4_xs_codes },
};

K_REFERENCE(q2_k, FORMATS_HERE[0])
K_REFERENCE(q3_k, FORMATS_HERE[1])
K_REFERENCE(q4_k, FORMATS_HERE[2])
K_REFERENCE(q5_k, FORMATS_HERE[3])
K_REFERENCE(q6_k, FORMATS_HERE[4])
K_REFERENCE(iq4_xs, FORMATS_HERE[5])

const struct format_row KQUANTS_REF[KQUANT_COUNT] = {
    K_REFERENCE_ROW(q2_k, Q2_K, 16), K_REFERENCE_ROW(q3_k, Q3_K, 16), K_REFERENCE_ROW(q4_k, Q4_K, 32),
    K_REFERENCE_ROW(q5_k, Q5_K, 32), K_REFERENCE_ROW(q6_k, Q6_K, 16), K_REFERENCE_ROW(iq4_xs, IQ4_XS, 32),
};
