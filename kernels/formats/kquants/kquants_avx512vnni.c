/* The k-quants with AVX-512 VNNI and 8-bit activations. */
#include "kernels/formats/kquants/kquants.h"
#include "kernels/formats/kquants/kquants_avx512vnni.h"

static void q2_k_dot_q8(const struct dot *d)
{
    dot_q8(d, &Q2_K_SHAPE, q2_k_scales, q2_k_codes512);
}

static void q3_k_dot_q8(const struct dot *d)
{
    dot_q8(d, &Q3_K_SHAPE, q3_k_scales, q3_k_codes512);
}

static void q4_k_dot_q8(const struct dot *d)
{
    dot_q8(d, &Q4_K_SHAPE, q4_k_scales, q4_k_codes512);
}

static void q5_k_dot_q8(const struct dot *d)
{
    dot_q8(d, &Q5_K_SHAPE, q4_k_scales, q5_k_codes512);
}

static void q6_k_dot_q8(const struct dot *d)
{
    dot_q8(d, &Q6_K_SHAPE, q6_k_scales, q6_k_codes512);
}

static void iq4_xs_dot_q8(const struct dot *d)
{
    dot_q8(d, &IQ4_XS_SHAPE, iq4_xs_scales, iq4_xs_codes512);
}

const struct format_row KQUANTS_AVX512VNNI[KQUANT_COUNT] = {
    { FORMAT_Q2_K, { .dot_q8 = q2_k_dot_q8, .unpack_columns = q2_k_unpack_columns } },
    { FORMAT_Q3_K, { .dot_q8 = q3_k_dot_q8, .unpack_columns = q3_k_unpack_columns } },
    { FORMAT_Q4_K, { .dot_q8 = q4_k_dot_q8, .unpack_columns = q4_k_unpack_columns } },
    { FORMAT_Q5_K, { .dot_q8 = q5_k_dot_q8, .unpack_columns = q5_k_unpack_columns } },
    { FORMAT_Q6_K, { .dot_q8 = q6_k_dot_q8, .unpack_columns = q6_k_unpack_columns } },
    { FORMAT_IQ4_XS, { .dot_q8 = iq4_xs_dot_q8, .unpack_columns = iq4_xs_unpack_columns } },
};
