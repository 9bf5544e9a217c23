/* kernels/formats/formats_v128.h - every format that has kernels with 128-bit vectors, as one table of the
 * ISA whose implementation of v128.h was included before. A format is added by its header and its row. */
#ifndef QDYNO_KERNELS_FORMATS_FORMATS_V128_H
#define QDYNO_KERNELS_FORMATS_FORMATS_V128_H

#include "kernels/formats/blocks32/blocks32_v128.h"
#include "kernels/formats/blocks64/blocks64_v128.h"
#include "kernels/formats/codebooks/codebooks_v128.h"
#include "kernels/formats/fp8/fp8_v128.h"
#include "kernels/formats/groups/groups_v128.h"
#include "kernels/formats/int8/int8_v128.h"
#include "kernels/formats/floats/floats_v128.h"
#include "kernels/isa/isa_kernels.h"
#include "kernels/formats/kquants/kquants_v128.h"
#include "kernels/formats/iquants/iquants_v128.h"
#include "kernels/formats/ternary/ternary_v128.h"

/* As GROUP_FORMATS and CODEBOOK_FORMATS spell their members. */
#define LISTED_ROW(name, NAME, one, two)                                                                     \
    { FORMAT_##NAME, { .decode = name##_decode, .dot_f32 = name##_dot_f32, .dot_q8 = name##_dot_q8 } },

#define IQUANT_ROW(name, NAME, sub) LISTED_ROW(name, NAME, sub, )

const struct format_row V128_TABLE(FORMATS)[FORMATS_V128_COUNT] = {
    { FORMAT_F32, { .decode = f32_decode, .dot_f32 = f32_dot_f32 } },
    { FORMAT_F16, { .decode = f16_decode, .dot_f32 = f16_dot_f32 } },
    { FORMAT_BF16, { .decode = bf16_decode, .dot_f32 = bf16_dot_f32 } },
    { FORMAT_Q8_0, { .decode = q8_0_decode, .dot_f32 = q8_0_dot_f32, .dot_q8 = q8_0_dot_q8 } },
    { FORMAT_Q4_0, { .decode = q4_0_decode, .dot_f32 = q4_0_dot_f32, .dot_q8 = q4_0_dot_q8 } },
    { FORMAT_Q4_1, { .decode = q4_1_decode, .dot_f32 = q4_1_dot_f32, .dot_q8 = q4_1_dot_q8 } },
    { FORMAT_Q5_0, { .decode = q5_0_decode, .dot_f32 = q5_0_dot_f32, .dot_q8 = q5_0_dot_q8 } },
    { FORMAT_Q5_1, { .decode = q5_1_decode, .dot_f32 = q5_1_dot_f32, .dot_q8 = q5_1_dot_q8 } },
    { FORMAT_Q2_K, { .decode = q2_k_decode, .dot_f32 = q2_k_dot_f32, .dot_q8 = q2_k_dot_q8 } },
    { FORMAT_Q3_K, { .decode = q3_k_decode, .dot_f32 = q3_k_dot_f32, .dot_q8 = q3_k_dot_q8 } },
    { FORMAT_Q4_K, { .decode = q4_k_decode, .dot_f32 = q4_k_dot_f32, .dot_q8 = q4_k_dot_q8 } },
    { FORMAT_Q5_K, { .decode = q5_k_decode, .dot_f32 = q5_k_dot_f32, .dot_q8 = q5_k_dot_q8 } },
    { FORMAT_Q6_K, { .decode = q6_k_decode, .dot_f32 = q6_k_dot_f32, .dot_q8 = q6_k_dot_q8 } },
    { FORMAT_IQ4_NL, { .decode = iq4_nl_decode, .dot_f32 = iq4_nl_dot_f32, .dot_q8 = iq4_nl_dot_q8 } },
    { FORMAT_IQ4_XS, { .decode = iq4_xs_decode, .dot_f32 = iq4_xs_dot_f32, .dot_q8 = iq4_xs_dot_q8 } },
    { FORMAT_TQ1_0, { .decode = tq1_0_decode, .dot_f32 = tq1_0_dot_f32, .dot_q8 = tq1_0_dot_q8 } },
    { FORMAT_TQ2_0, { .decode = tq2_0_decode, .dot_f32 = tq2_0_dot_f32, .dot_q8 = tq2_0_dot_q8 } },
    { FORMAT_MXFP4, { .decode = mxfp4_decode, .dot_f32 = mxfp4_dot_f32, .dot_q8 = mxfp4_dot_q8 } },
    { FORMAT_FP8_E4M3, { .decode = fp8_e4m3_decode, .dot_f32 = fp8_e4m3_dot_f32 } },
    { FORMAT_FP8_E5M2, { .decode = fp8_e5m2_decode, .dot_f32 = fp8_e5m2_dot_f32 } },
    { FORMAT_INT8, { .decode = int8_decode, .dot_f32 = int8_dot_f32, .dot_q8 = int8_dot_q8 } },
    { FORMAT_NVFP4, { .decode = nvfp4_decode, .dot_f32 = nvfp4_dot_f32, .dot_q8 = nvfp4_dot_q8 } },
    { FORMAT_Q1_0, { .decode = q1_0_decode, .dot_f32 = q1_0_dot_f32, .dot_q8 = q1_0_dot_q8 } },
    { FORMAT_Q2_0, { .decode = q2_0_decode, .dot_f32 = q2_0_dot_f32, .dot_q8 = q2_0_dot_q8 } },
    IQUANT_FORMATS(IQUANT_ROW) GROUP_FORMATS(LISTED_ROW) CODEBOOK_FORMATS(LISTED_ROW)
};

#endif
