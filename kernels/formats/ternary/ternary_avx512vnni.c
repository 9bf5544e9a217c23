/* Ternary weights with AVX-512 VNNI: 256 weights under one scale, two rounds of the shared dot. */
#include "kernels/isa/gemv/block_dot_avx512vnni.h"
#include "kernels/formats/ternary/codes.h"
#include "kernels/formats/ternary/ternary.h"

ALWAYS_INLINE __m128 tq1_0_scales(const uint8_t *block)
{
    return _mm512_castps512_ps128(broadcast_f16(block + TQ1_0_D));
}

ALWAYS_INLINE __m128 tq2_0_scales(const uint8_t *block)
{
    return _mm512_castps512_ps128(broadcast_f16(block + TQ2_0_D));
}

static const struct block_kind512 TQ1_0 = { .bytes = TQ1_0_BYTES,
                                            .parts = TQ_PARTS,
                                            .bias = TQ_BIAS,
                                            .codes = tq1_0_codes,
                                            .scales = tq1_0_scales },
                                  TQ2_0 = { .bytes = TQ2_0_BYTES,
                                            .parts = TQ_PARTS,
                                            .bias = TQ_BIAS,
                                            .codes = tq2_0_codes,
                                            .scales = tq2_0_scales };

static void tq1_0_dot_q8(const struct dot *d)
{
    kind_dot_vnni(&TQ1_0, d);
}

static void tq2_0_dot_q8(const struct dot *d)
{
    kind_dot_vnni(&TQ2_0, d);
}

const struct format_row TERNARY_AVX512VNNI[TERNARY_COUNT] = {
    { FORMAT_TQ1_0, { .dot_q8 = tq1_0_dot_q8 } },
    { FORMAT_TQ2_0, { .dot_q8 = tq2_0_dot_q8 } },
};
