/* The k-quants with AVX-512: decoding, and dot products with f32 activations. */
#include "kernels/formats/kquants/kquants.h"
#include "kernels/formats/kquants/kquants_avx512_dot.h"

K_FUNCTIONS(q2_k, Q2_K_SHAPE, q2_k_scales, q2_k_codes512)
K_FUNCTIONS(q3_k, Q3_K_SHAPE, q3_k_scales, q3_k_codes512)
K_FUNCTIONS(q4_k, Q4_K_SHAPE, q4_k_scales, q4_k_codes512)
K_FUNCTIONS(q5_k, Q5_K_SHAPE, q4_k_scales, q5_k_codes512)
K_FUNCTIONS(q6_k, Q6_K_SHAPE, q6_k_scales, q6_k_codes512)
K_FUNCTIONS(iq4_xs, IQ4_XS_SHAPE, iq4_xs_scales, iq4_xs_codes512)

const struct format_row KQUANTS_AVX512[KQUANT_COUNT] = {
    { FORMAT_Q2_K, { .decode = q2_k_decode, .dot_f32 = q2_k_dot_f32 } },
    { FORMAT_Q3_K, { .decode = q3_k_decode, .dot_f32 = q3_k_dot_f32 } },
    { FORMAT_Q4_K, { .decode = q4_k_decode, .dot_f32 = q4_k_dot_f32 } },
    { FORMAT_Q5_K, { .decode = q5_k_decode, .dot_f32 = q5_k_dot_f32 } },
    { FORMAT_Q6_K, { .decode = q6_k_decode, .dot_f32 = q6_k_dot_f32 } },
    { FORMAT_IQ4_XS, { .decode = iq4_xs_decode, .dot_f32 = iq4_xs_dot_f32 } },
};
