/* f32, f16 and bf16, the reference: conversions by integer rules (kernels/half.h), dots by decoding. */
#include <string.h>

#include "kernels/formats/floats/floats.h"
#include "kernels/half.h"
#include "kernels/isa/gemv/dot_ref.h"

/* ---------------------------------------------------------------- f32 */

void f32_encode_ref(const float *x, void *blocks, int64_t n)
{
    memcpy(blocks, x, (size_t)n * sizeof *x);
}

void f32_decode_ref(const void *blocks, float *x, int64_t n)
{
    memcpy(x, blocks, (size_t)n * sizeof *x);
}

static void f32_dot_f32(const struct dot *d)
{
    dot_f32_by_decoding(d, FORMAT_F32, f32_decode_ref);
}

/* ---------------------------------------------------------------- f16 */

void f16_encode_ref(const float *x, void *blocks, int64_t n)
{
    uint8_t *out = blocks;
    for (int64_t i = 0; i < n; i++) store_u16(out + 2 * i, half_from_float(x[i]));
}

void f16_decode_ref(const void *blocks, float *x, int64_t n)
{
    const uint8_t *in = blocks;
    for (int64_t i = 0; i < n; i++) x[i] = half_to_float(load_u16(in + 2 * i));
}

static void f16_dot_f32(const struct dot *d)
{
    dot_f32_by_decoding(d, FORMAT_F16, f16_decode_ref);
}

/* ---------------------------------------------------------------- bf16 */

void bf16_encode_ref(const float *x, void *blocks, int64_t n)
{
    uint8_t *out = blocks;
    for (int64_t i = 0; i < n; i++) store_u16(out + 2 * i, bhalf_from_float(x[i]));
}

void bf16_decode_ref(const void *blocks, float *x, int64_t n)
{
    const uint8_t *in = blocks;
    for (int64_t i = 0; i < n; i++) x[i] = bhalf_to_float(load_u16(in + 2 * i));
}

static void bf16_dot_f32(const struct dot *d)
{
    dot_f32_by_decoding(d, FORMAT_BF16, bf16_decode_ref);
}

const struct format_row FLOATS_REF[FLOATS_COUNT] = {
    { FORMAT_F32, { .decode = f32_decode_ref, .dot_f32 = f32_dot_f32 } },
    { FORMAT_F16, { .decode = f16_decode_ref, .dot_f32 = f16_dot_f32 } },
    { FORMAT_BF16, { .decode = bf16_decode_ref, .dot_f32 = bf16_dot_f32 } },
};
