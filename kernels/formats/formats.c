/* The registry of number formats: how many bytes a block has and who turns it into numbers. Rows without
 * functions are formats a GGUF file may hold and `info` can name, but that no kernel here runs. */
#include <assert.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "kernels/kernels.h"
#include "kernels/formats/blocks32/blocks32.h"
#include "kernels/formats/codebooks/codebooks.h"
#include "kernels/formats/floats/floats.h"
#include "kernels/formats/fp8/fp8.h"
#include "kernels/formats/groups/groups.h"
#include "kernels/formats/int8/int8.h"
#include "kernels/formats/kquants/kquants.h"
#include "kernels/formats/ternary/ternary.h"
#include "kernels/half.h"

/* max_nmse: measured on 2^16 samples of N(0,1), with 10 % of margin for the seed (f16 4.3e-8, bf16 2.8e-6,
 * q8_0 2.9e-5, q4_0 7.4e-3); tests/kernels/test_formats.c prints and checks the measured value. */
const struct format FORMATS[FORMAT_COUNT] = {
    [FORMAT_F32] = { "f32", 0, 1, 4, 0, 0, f32_encode_ref, f32_decode_ref,
                     "kernels/formats/floats/README.md" },
    [FORMAT_F16] = { "f16", 1, 1, 2, 0, 5e-8, f16_encode_ref, f16_decode_ref,
                     "kernels/formats/floats/README.md" },
    [FORMAT_BF16] = { "bf16", 30, 1, 2, 0, 3.2e-6, bf16_encode_ref, bf16_decode_ref,
                      "kernels/formats/floats/README.md" },
    [FORMAT_Q8_0] = { "q8_0", 8, 32, 34, 0, 3.3e-5, q8_0_encode_ref, q8_0_decode_ref,
                      "kernels/formats/blocks32/README.md" },
    [FORMAT_Q4_0] = { "q4_0", 2, 32, 18, 0, 8.2e-3, q4_0_encode_ref, q4_0_decode_ref,
                      "kernels/formats/blocks32/README.md", .weighted = true },
    [FORMAT_Q4_1] = { "q4_1", 3, 32, 20, 0, 6.8e-3, q4_1_encode_ref, q4_1_decode_ref,
                      "kernels/formats/blocks32/README.md", .weighted = true },
    [FORMAT_Q5_0] = { "q5_0", 6, 32, 22, 0, 2.1e-3, q5_0_encode_ref, q5_0_decode_ref,
                      "kernels/formats/blocks32/README.md", .weighted = true },
    [FORMAT_Q5_1] = { "q5_1", 7, 32, 24, 0, 1.6e-3, q5_1_encode_ref, q5_1_decode_ref,
                      "kernels/formats/blocks32/README.md", .weighted = true },
    [FORMAT_Q2_K] = { "q2_K", 10, 256, 84, 0, 9.7e-2, q2_k_encode_ref, q2_k_decode_ref,
                      "kernels/formats/kquants/README.md", .weighted = true },
    [FORMAT_Q3_K] = { "q3_K", 11, 256, 110, 0, 2.6e-2, q3_k_encode_ref, q3_k_decode_ref,
                      "kernels/formats/kquants/README.md", .weighted = true },
    [FORMAT_Q4_K] = { "q4_K", 12, 256, 144, 0, 5.7e-3, q4_k_encode_ref, q4_k_decode_ref,
                      "kernels/formats/kquants/README.md", .weighted = true },
    [FORMAT_Q5_K] = { "q5_K", 13, 256, 176, 0, 1.5e-3, q5_k_encode_ref, q5_k_decode_ref,
                      "kernels/formats/kquants/README.md", .weighted = true },
    [FORMAT_Q6_K] = { "q6_K", 14, 256, 210, 0, 3.5e-4, q6_k_encode_ref, q6_k_decode_ref,
                      "kernels/formats/kquants/README.md", .weighted = true },
    [FORMAT_IQ4_NL] = { "iq4_nl", 20, 32, 18, 0, 6.5e-3, iq4_nl_encode_ref, iq4_nl_decode_ref,
                        "kernels/formats/blocks32/README.md", .weighted = true },
    [FORMAT_IQ4_XS] = { "iq4_xs", 23, 256, 136, 0, 6.5e-3, iq4_xs_encode_ref, iq4_xs_decode_ref,
                        "kernels/formats/kquants/README.md", .weighted = true },
    [FORMAT_TQ1_0] = { "tq1_0", 34, 256, 54, 0, 0.73, tq1_0_encode_ref, tq1_0_decode_ref,
                       "kernels/formats/ternary/README.md" },
    [FORMAT_TQ2_0] = { "tq2_0", 35, 256, 66, 0, 0.73, tq2_0_encode_ref, tq2_0_decode_ref,
                       "kernels/formats/ternary/README.md" },
    [FORMAT_MXFP4] = { "mxfp4", 39, 32, 17, 0, 1.5e-2, mxfp4_encode_ref, mxfp4_decode_ref,
                       "kernels/formats/blocks32/README.md" },
    [FORMAT_FP8_E4M3] = { "fp8_e4m3", 1000, 1, 1, 4, 7.7e-4, fp8_e4m3_encode_ref, fp8_e4m3_decode_ref,
                          "kernels/formats/fp8/README.md" },
    [FORMAT_FP8_E5M2] = { "fp8_e5m2", 1001, 1, 1, 4, 3.1e-3, fp8_e5m2_encode_ref, fp8_e5m2_decode_ref,
                          "kernels/formats/fp8/README.md" },
    [FORMAT_FP8_E4M3_B128] = { "fp8_e4m3_b128", 1003, 128, 132, 0, 7.7e-4, fp8_e4m3_b128_encode_ref,
                               fp8_e4m3_b128_decode_ref, "kernels/formats/fp8/README.md" },
    [FORMAT_INT8] = { "int8", 1002, 32, 32, 4, 8.7e-5, int8_encode_ref, int8_decode_ref,
                      "kernels/formats/int8/README.md" },
    [FORMAT_U4_G32] = { "u4_g32", 1010, 32, 20, 0, 7.3e-3, u4_g32_encode_ref, u4_g32_decode_ref,
                        "kernels/formats/groups/README.md" },
    [FORMAT_U4_G64] = { "u4_g64", 1011, 64, 36, 0, 9.3e-3, u4_g64_encode_ref, u4_g64_decode_ref,
                        "kernels/formats/groups/README.md" },
    [FORMAT_U4_G128] = { "u4_g128", 1012, 128, 68, 0, 1.14e-2, u4_g128_encode_ref, u4_g128_decode_ref,
                         "kernels/formats/groups/README.md" },
    [FORMAT_U3_G64] = { "u3_g64", 1013, 64, 28, 0, 4.2e-2, u3_g64_encode_ref, u3_g64_decode_ref,
                        "kernels/formats/groups/README.md" },
    [FORMAT_U3_G128] = { "u3_g128", 1014, 128, 52, 0, 5.1e-2, u3_g128_encode_ref, u3_g128_decode_ref,
                         "kernels/formats/groups/README.md" },
    [FORMAT_U2_G64] = { "u2_g64", 1015, 64, 20, 0, 0.24, u2_g64_encode_ref, u2_g64_decode_ref,
                        "kernels/formats/groups/README.md" },
    [FORMAT_U2_G128] = { "u2_g128", 1016, 128, 36, 0, 0.28, u2_g128_encode_ref, u2_g128_decode_ref,
                         "kernels/formats/groups/README.md" },
    [FORMAT_U8_G64] = { "u8_g64", 1017, 64, 68, 0, 3.2e-5, u8_g64_encode_ref, u8_g64_decode_ref,
                        "kernels/formats/groups/README.md" },
    [FORMAT_U8_G128] = { "u8_g128", 1018, 128, 132, 0, 3.9e-5, u8_g128_encode_ref, u8_g128_decode_ref,
                         "kernels/formats/groups/README.md" },
    [FORMAT_NF4] = { "nf4", 1020, 64, 36, 0, 9.3e-3, nf4_encode_ref, nf4_decode_ref,
                     "kernels/formats/codebooks/README.md" },
    [FORMAT_FP4] = { "fp4", 1021, 64, 36, 0, 1.7e-2, fp4_encode_ref, fp4_decode_ref,
                     "kernels/formats/codebooks/README.md" },
    [FORMAT_NF4_DQ] = { "nf4_dq", 1022, 256, 140, 0, 9.3e-3, nf4_dq_encode_ref, nf4_dq_decode_ref,
                        "kernels/formats/codebooks/README.md", true },
    [FORMAT_FP4_DQ] = { "fp4_dq", 1023, 256, 140, 0, 1.7e-2, fp4_dq_encode_ref, fp4_dq_decode_ref,
                        "kernels/formats/codebooks/README.md", true },
};

const struct format *format_find(const char *name)
{
    for (size_t i = 0; name && i < FORMAT_COUNT; i++)
        if (!strcasecmp(FORMATS[i].name, name)) return &FORMATS[i];
    return NULL;
}

const struct format *format_by_ggml_type(uint32_t type)
{
    for (size_t i = 0; i < FORMAT_COUNT; i++)
        if (FORMATS[i].ggml_type == type) return &FORMATS[i];
    return NULL;
}

int64_t format_span_bytes(const struct format *f, int64_t n)
{
    return n / f->block_weights * f->block_bytes;
}

int64_t format_row_bytes(const struct format *f, int64_t n)
{
    return format_span_bytes(f, n) + f->row_tail_bytes;
}

void format_decode_rows(const struct format *f, const void *in, float *x, int64_t rows, int64_t cols)
{
    const int64_t at_once = f->row_tail_bytes ? 1 : rows, row_bytes = format_row_bytes(f, cols);
    for (int64_t r = 0; r < rows; r += at_once)
        f->decode((const uint8_t *)in + r * row_bytes, x + r * cols, at_once * cols);
}

void format_row_pack(const struct format *f, const uint8_t *codes, float scale, void *row, int64_t n)
{
    assert(f->row_tail_bytes == sizeof scale);
    memcpy(row, codes, (size_t)format_span_bytes(f, n));
    memcpy((uint8_t *)row + format_span_bytes(f, n), &scale, sizeof scale);
}

double format_bits_per_weight(const struct format *f)
{
    return 8.0 * f->block_bytes / f->block_weights;
}

float f16_to_f32(uint16_t h)
{
    return half_to_float(h);
}

uint16_t f16_from_f32(float x)
{
    return half_from_float(x);
}

float bf16_to_f32(uint16_t h)
{
    return bhalf_to_float(h);
}

uint16_t bf16_from_f32(float x)
{
    return bhalf_from_float(x);
}
