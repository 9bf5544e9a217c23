/* 8-bit floats with a scale per row, reference. The error is relative to each weight, so a few large weights
 * in a row do not harm the small ones. */
#include "kernels/isa/gemv/dot_ref.h"
#include "kernels/formats/fp8/encode.h"
#include "kernels/formats/fp8/fp8.h"

void fp8_e4m3_encode_ref(const float *x, void *row, int64_t n)
{
    fp8_encode_row(&E4M3, E4M3_MAX, x, row, n);
}

void fp8_e5m2_encode_ref(const float *x, void *row, int64_t n)
{
    fp8_encode_row(&E5M2, E5M2_MAX, x, row, n);
}

static void e4m3_codes(const void *codes, float *x, int64_t n)
{
    const uint8_t *in = codes;
    for (int64_t i = 0; i < n; i++) x[i] = e4m3_to_float(in[i]);
}

static void e5m2_codes(const void *codes, float *x, int64_t n)
{
    const uint8_t *in = codes;
    for (int64_t i = 0; i < n; i++) x[i] = e5m2_to_float(in[i]);
}

static void decode_row(format_decode_fn *codes, const uint8_t *row, float *x, int64_t n)
{
    float scale;
    memcpy(&scale, row + n, sizeof scale);
    codes(row, x, n);
    for (int64_t i = 0; i < n; i++) x[i] *= scale;
}

void fp8_e4m3_decode_ref(const void *row, float *x, int64_t n)
{
    decode_row(e4m3_codes, row, x, n);
}

void fp8_e5m2_decode_ref(const void *row, float *x, int64_t n)
{
    decode_row(e5m2_codes, row, x, n);
}

/* A block is laid out like a short row. */
void fp8_e4m3_b128_encode_ref(const float *x, void *blocks, int64_t n)
{
    uint8_t *out = blocks;
    for (int64_t i = 0; i < n; i += FP8_BLOCK, out += FP8_BLOCK_BYTES)
        fp8_encode_row(&E4M3, E4M3_MAX, x + i, out, FP8_BLOCK);
}

void fp8_e4m3_b128_decode_ref(const void *blocks, float *x, int64_t n)
{
    const uint8_t *in = blocks;
    for (int64_t i = 0; i < n; i += FP8_BLOCK, in += FP8_BLOCK_BYTES)
        decode_row(e4m3_codes, in, x + i, FP8_BLOCK);
}

static void b128_dot_f32(const struct dot *d)
{
    dot_f32_by_decoding(d, FORMAT_FP8_E4M3_B128, fp8_e4m3_b128_decode_ref);
}

static void e4m3_dot_f32(const struct dot *d)
{
    dot_f32_by_decoding(d, FORMAT_FP8_E4M3, e4m3_codes);
}

static void e5m2_dot_f32(const struct dot *d)
{
    dot_f32_by_decoding(d, FORMAT_FP8_E5M2, e5m2_codes);
}

const struct format_row FP8_REF[FP8_COUNT] = {
    { FORMAT_FP8_E4M3, { .decode = e4m3_codes, .dot_f32 = e4m3_dot_f32 } },
    { FORMAT_FP8_E5M2, { .decode = e5m2_codes, .dot_f32 = e5m2_dot_f32 } },
    { FORMAT_FP8_E4M3_B128, { .decode = fp8_e4m3_b128_decode_ref, .dot_f32 = b128_dot_f32 } },
};
