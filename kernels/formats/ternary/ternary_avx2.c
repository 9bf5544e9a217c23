/* Ternary weights with AVX2: 256 weights under one scale, expanded 32 at a time. */
#include "kernels/isa/gemv/block_dot_avx2.h"
#include "kernels/formats/ternary/codes.h"
#include "kernels/formats/ternary/ternary.h"

ALWAYS_INLINE float tq1_0_scale(const uint8_t *block)
{
    return scale_at(block + TQ1_0_D);
}

ALWAYS_INLINE float tq2_0_scale(const uint8_t *block)
{
    return scale_at(block + TQ2_0_D);
}

static const struct block_kind TQ1_0 = { .bytes = TQ1_0_BYTES,
                                         .parts = TQ_PARTS,
                                         .bias = TQ_BIAS,
                                         .codes = tq1_0_codes,
                                         .products = products_unsigned,
                                         .scale = tq1_0_scale },
                               TQ2_0 = { .bytes = TQ2_0_BYTES,
                                         .parts = TQ_PARTS,
                                         .bias = TQ_BIAS,
                                         .codes = tq2_0_codes,
                                         .products = products_unsigned,
                                         .scale = tq2_0_scale };

BLOCK_KIND_FUNCTIONS(tq1_0, TQ1_0)
BLOCK_KIND_UNPACK_Q8(tq1_0, TQ1_0)
BLOCK_KIND_FUNCTIONS(tq2_0, TQ2_0)
BLOCK_KIND_UNPACK_Q8(tq2_0, TQ2_0)

const struct format_row TERNARY_AVX2[TERNARY_COUNT] = {
    { FORMAT_TQ1_0,
      { .decode = tq1_0_decode,
        .dot_f32 = tq1_0_dot_f32,
        .dot_q8 = tq1_0_dot_q8,
        .unpack_q8 = tq1_0_unpack_q8 } },
    { FORMAT_TQ2_0,
      { .decode = tq2_0_decode,
        .dot_f32 = tq2_0_dot_f32,
        .dot_q8 = tq2_0_dot_q8,
        .unpack_q8 = tq2_0_unpack_q8 } },
};
