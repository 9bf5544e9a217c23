/* The registry of number formats: names, sizes, reference encoders and decoders. */
#include <assert.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "kernels/kernels.h"
#include "kernels/formats/blocks32/blocks32.h"
#include "kernels/formats/blocks64/blocks64.h"
#include "kernels/formats/codebooks/codebooks.h"
#include "kernels/formats/floats/floats.h"
#include "kernels/formats/fp8/fp8.h"
#include "kernels/formats/groups/groups.h"
#include "kernels/formats/int8/int8.h"
#include "kernels/formats/iquants/iquants.h"
#include "kernels/formats/kquants/kquants.h"
#include "kernels/formats/ternary/ternary.h"
#include "kernels/half.h"

/* max_nmse is the measured error plus a margin of 10 % for the random seed: the normalized mean squared error
 * of decode(encode(x)) on 2^16 samples of N(0,1) in rows of 4096 (f16 4.3e-8, bf16 2.8e-6, q8_0 2.9e-5, q4_0
 * 7.4e-3). tests/kernels/test_formats.c prints and checks the measured values. */
#define CODEC(name)    .encode = name##_encode_ref, .decode = name##_decode_ref
#define README(family) "kernels/formats/" family "/README.md"

const struct format FORMATS[FORMAT_COUNT] = {
    [FORMAT_F32] = { .name = "f32",
                     .ggml_type = 0,
                     .block_weights = 1,
                     .block_bytes = 4,
                     .max_nmse = 0,
                     CODEC(f32),
                     .readme = README("floats") },
    [FORMAT_F16] = { .name = "f16",
                     .ggml_type = 1,
                     .block_weights = 1,
                     .block_bytes = 2,
                     .max_nmse = 5e-8,
                     CODEC(f16),
                     .readme = README("floats") },
    [FORMAT_BF16] = { .name = "bf16",
                      .ggml_type = 30,
                      .block_weights = 1,
                      .block_bytes = 2,
                      .max_nmse = 3.2e-6,
                      CODEC(bf16),
                      .readme = README("floats") },
    [FORMAT_Q8_0] = { .name = "q8_0",
                      .ggml_type = 8,
                      .block_weights = 32,
                      .block_bytes = 34,
                      .max_nmse = 3.3e-5,
                      CODEC(q8_0),
                      .readme = README("blocks32") },
    [FORMAT_Q4_0] = { .name = "q4_0",
                      .ggml_type = 2,
                      .block_weights = 32,
                      .block_bytes = 18,
                      .max_nmse = 8.2e-3,
                      CODEC(q4_0),
                      .readme = README("blocks32"),
                      .weighted = true },
    [FORMAT_Q4_1] = { .name = "q4_1",
                      .ggml_type = 3,
                      .block_weights = 32,
                      .block_bytes = 20,
                      .max_nmse = 6.8e-3,
                      CODEC(q4_1),
                      .readme = README("blocks32"),
                      .weighted = true },
    [FORMAT_Q5_0] = { .name = "q5_0",
                      .ggml_type = 6,
                      .block_weights = 32,
                      .block_bytes = 22,
                      .max_nmse = 2.1e-3,
                      CODEC(q5_0),
                      .readme = README("blocks32"),
                      .weighted = true },
    [FORMAT_Q5_1] = { .name = "q5_1",
                      .ggml_type = 7,
                      .block_weights = 32,
                      .block_bytes = 24,
                      .max_nmse = 1.6e-3,
                      CODEC(q5_1),
                      .readme = README("blocks32"),
                      .weighted = true },
    [FORMAT_Q2_K] = { .name = "q2_K",
                      .ggml_type = 10,
                      .block_weights = 256,
                      .block_bytes = 84,
                      .max_nmse = 9.7e-2,
                      CODEC(q2_k),
                      .readme = README("kquants"),
                      .weighted = true,
                      .searched = true },
    [FORMAT_Q3_K] = { .name = "q3_K",
                      .ggml_type = 11,
                      .block_weights = 256,
                      .block_bytes = 110,
                      .max_nmse = 2.6e-2,
                      CODEC(q3_k),
                      .readme = README("kquants"),
                      .weighted = true },
    [FORMAT_Q4_K] = { .name = "q4_K",
                      .ggml_type = 12,
                      .block_weights = 256,
                      .block_bytes = 144,
                      .max_nmse = 5.7e-3,
                      CODEC(q4_k),
                      .readme = README("kquants"),
                      .weighted = true,
                      .searched = true },
    [FORMAT_Q5_K] = { .name = "q5_K",
                      .ggml_type = 13,
                      .block_weights = 256,
                      .block_bytes = 176,
                      .max_nmse = 1.5e-3,
                      CODEC(q5_k),
                      .readme = README("kquants"),
                      .weighted = true,
                      .searched = true },
    [FORMAT_Q6_K] = { .name = "q6_K",
                      .ggml_type = 14,
                      .block_weights = 256,
                      .block_bytes = 210,
                      .max_nmse = 3.5e-4,
                      CODEC(q6_k),
                      .readme = README("kquants"),
                      .weighted = true,
                      .searched = true },
    [FORMAT_IQ4_NL] = { .name = "iq4_nl",
                        .ggml_type = 20,
                        .block_weights = 32,
                        .block_bytes = 18,
                        .max_nmse = 6.5e-3,
                        CODEC(iq4_nl),
                        .readme = README("blocks32"),
                        .weighted = true,
                        .searched = true },
    [FORMAT_IQ4_XS] = { .name = "iq4_xs",
                        .ggml_type = 23,
                        .block_weights = 256,
                        .block_bytes = 136,
                        .max_nmse = 6.5e-3,
                        CODEC(iq4_xs),
                        .readme = README("kquants"),
                        .weighted = true,
                        .searched = true },
    [FORMAT_TQ1_0] = { .name = "tq1_0",
                       .ggml_type = 34,
                       .block_weights = 256,
                       .block_bytes = 54,
                       .max_nmse = 0.73,
                       CODEC(tq1_0),
                       .readme = README("ternary") },
    [FORMAT_TQ2_0] = { .name = "tq2_0",
                       .ggml_type = 35,
                       .block_weights = 256,
                       .block_bytes = 66,
                       .max_nmse = 0.73,
                       CODEC(tq2_0),
                       .readme = README("ternary") },
    [FORMAT_MXFP4] = { .name = "mxfp4",
                       .ggml_type = 39,
                       .block_weights = 32,
                       .block_bytes = 17,
                       .max_nmse = 1.5e-2,
                       CODEC(mxfp4),
                       .readme = README("blocks32") },
    [FORMAT_NVFP4] = { .name = "nvfp4",
                       .ggml_type = 40,
                       .block_weights = 64,
                       .block_bytes = 36,
                       .max_nmse = 9.9e-3,
                       CODEC(nvfp4),
                       .readme = README("blocks64"),
                       .searched = true },
    [FORMAT_IQ1_S] = { .name = "iq1_s",
                       .ggml_type = 19,
                       .block_weights = 256,
                       .block_bytes = 50,
                       .max_nmse = 0.27,
                       CODEC(iq1_s),
                       .readme = README("iquants"),
                       .weighted = true,
                       .needs_importance = true,
                       .searched = true },
    [FORMAT_IQ1_M] = { .name = "iq1_m",
                       .ggml_type = 29,
                       .block_weights = 256,
                       .block_bytes = 56,
                       .max_nmse = 0.38,
                       CODEC(iq1_m),
                       .readme = README("iquants"),
                       .weighted = true,
                       .searched = true },
    [FORMAT_IQ2_XXS] = { .name = "iq2_xxs",
                         .ggml_type = 16,
                         .block_weights = 256,
                         .block_bytes = 66,
                         .max_nmse = 0.13,
                         CODEC(iq2_xxs),
                         .readme = README("iquants"),
                         .weighted = true,
                         .needs_importance = true,
                         .searched = true },
    [FORMAT_IQ2_XS] = { .name = "iq2_xs",
                        .ggml_type = 17,
                        .block_weights = 256,
                        .block_bytes = 74,
                        .max_nmse = 9.9e-2,
                        CODEC(iq2_xs),
                        .readme = README("iquants"),
                        .weighted = true,
                        .needs_importance = true,
                        .searched = true },
    [FORMAT_IQ2_S] = { .name = "iq2_s",
                       .ggml_type = 22,
                       .block_weights = 256,
                       .block_bytes = 82,
                       .max_nmse = 7.8e-2,
                       CODEC(iq2_s),
                       .readme = README("iquants"),
                       .weighted = true,
                       .searched = true },
    [FORMAT_IQ3_XXS] = { .name = "iq3_xxs",
                         .ggml_type = 18,
                         .block_weights = 256,
                         .block_bytes = 98,
                         .max_nmse = 5.1e-2,
                         CODEC(iq3_xxs),
                         .readme = README("iquants"),
                         .weighted = true,
                         .searched = true },
    [FORMAT_IQ3_S] = { .name = "iq3_s",
                       .ggml_type = 21,
                       .block_weights = 256,
                       .block_bytes = 110,
                       .max_nmse = 3.1e-2,
                       CODEC(iq3_s),
                       .readme = README("iquants"),
                       .weighted = true,
                       .searched = true },
    [FORMAT_Q1_0] = { .name = "q1_0",
                      .ggml_type = 41,
                      .block_weights = 128,
                      .block_bytes = 18,
                      .max_nmse = 0.40,
                      CODEC(q1_0),
                      .readme = README("blocks64") },
    [FORMAT_Q2_0] = { .name = "q2_0",
                      .ggml_type = 42,
                      .block_weights = 64,
                      .block_bytes = 18,
                      .max_nmse = 0.57,
                      CODEC(q2_0),
                      .readme = README("blocks64") },
    [FORMAT_FP8_E4M3] = { .name = "fp8_e4m3",
                          .ggml_type = 1000,
                          .block_weights = 1,
                          .block_bytes = 1,
                          .row_tail_bytes = 4,
                          .max_nmse = 7.7e-4,
                          CODEC(fp8_e4m3),
                          .readme = README("fp8") },
    [FORMAT_FP8_E5M2] = { .name = "fp8_e5m2",
                          .ggml_type = 1001,
                          .block_weights = 1,
                          .block_bytes = 1,
                          .row_tail_bytes = 4,
                          .max_nmse = 3.1e-3,
                          CODEC(fp8_e5m2),
                          .readme = README("fp8") },
    [FORMAT_FP8_E4M3_B128] = { .name = "fp8_e4m3_b128",
                               .ggml_type = 1003,
                               .block_weights = 128,
                               .block_bytes = 132,
                               .max_nmse = 7.7e-4,
                               CODEC(fp8_e4m3_b128),
                               .readme = README("fp8") },
    [FORMAT_INT8] = { .name = "int8",
                      .ggml_type = 1002,
                      .block_weights = 32,
                      .block_bytes = 32,
                      .row_tail_bytes = 4,
                      .max_nmse = 8.7e-5,
                      CODEC(int8),
                      .readme = README("int8") },
    [FORMAT_U4_G32] = { .name = "u4_g32",
                        .ggml_type = 1010,
                        .block_weights = 32,
                        .block_bytes = 20,
                        .max_nmse = 7.3e-3,
                        CODEC(u4_g32),
                        .readme = README("groups") },
    [FORMAT_U4_G64] = { .name = "u4_g64",
                        .ggml_type = 1011,
                        .block_weights = 64,
                        .block_bytes = 36,
                        .max_nmse = 9.3e-3,
                        CODEC(u4_g64),
                        .readme = README("groups") },
    [FORMAT_U4_G128] = { .name = "u4_g128",
                         .ggml_type = 1012,
                         .block_weights = 128,
                         .block_bytes = 68,
                         .max_nmse = 1.14e-2,
                         CODEC(u4_g128),
                         .readme = README("groups") },
    [FORMAT_U3_G64] = { .name = "u3_g64",
                        .ggml_type = 1013,
                        .block_weights = 64,
                        .block_bytes = 28,
                        .max_nmse = 4.2e-2,
                        CODEC(u3_g64),
                        .readme = README("groups") },
    [FORMAT_U3_G128] = { .name = "u3_g128",
                         .ggml_type = 1014,
                         .block_weights = 128,
                         .block_bytes = 52,
                         .max_nmse = 5.1e-2,
                         CODEC(u3_g128),
                         .readme = README("groups") },
    [FORMAT_U2_G64] = { .name = "u2_g64",
                        .ggml_type = 1015,
                        .block_weights = 64,
                        .block_bytes = 20,
                        .max_nmse = 0.24,
                        CODEC(u2_g64),
                        .readme = README("groups") },
    [FORMAT_U2_G128] = { .name = "u2_g128",
                         .ggml_type = 1016,
                         .block_weights = 128,
                         .block_bytes = 36,
                         .max_nmse = 0.28,
                         CODEC(u2_g128),
                         .readme = README("groups") },
    [FORMAT_U8_G64] = { .name = "u8_g64",
                        .ggml_type = 1017,
                        .block_weights = 64,
                        .block_bytes = 68,
                        .max_nmse = 3.2e-5,
                        CODEC(u8_g64),
                        .readme = README("groups") },
    [FORMAT_U8_G128] = { .name = "u8_g128",
                         .ggml_type = 1018,
                         .block_weights = 128,
                         .block_bytes = 132,
                         .max_nmse = 3.9e-5,
                         CODEC(u8_g128),
                         .readme = README("groups") },
    [FORMAT_NF4] = { .name = "nf4",
                     .ggml_type = 1020,
                     .block_weights = 64,
                     .block_bytes = 36,
                     .max_nmse = 9.3e-3,
                     CODEC(nf4),
                     .readme = README("codebooks") },
    [FORMAT_FP4] = { .name = "fp4",
                     .ggml_type = 1021,
                     .block_weights = 64,
                     .block_bytes = 36,
                     .max_nmse = 1.7e-2,
                     CODEC(fp4),
                     .readme = README("codebooks") },
    [FORMAT_NF4_DQ] = { .name = "nf4_dq",
                        .ggml_type = 1022,
                        .block_weights = 256,
                        .block_bytes = 140,
                        .max_nmse = 9.3e-3,
                        CODEC(nf4_dq),
                        .readme = README("codebooks"),
                        .row_encode = true },
    [FORMAT_FP4_DQ] = { .name = "fp4_dq",
                        .ggml_type = 1023,
                        .block_weights = 256,
                        .block_bytes = 140,
                        .max_nmse = 1.7e-2,
                        CODEC(fp4_dq),
                        .readme = README("codebooks"),
                        .row_encode = true },
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
    /* rows with a tail are not contiguous blocks: decode one row at a time */
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
