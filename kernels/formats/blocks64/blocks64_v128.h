/* kernels/formats/blocks64/blocks64_v128.h - the blocks of 64 and 128 weights with 128-bit vectors. */
#ifndef QDYNO_KERNELS_FORMATS_BLOCKS64_BLOCKS64_V128_H
#define QDYNO_KERNELS_FORMATS_BLOCKS64_BLOCKS64_V128_H

#include "kernels/formats/blocks64/layout.h"
#include "kernels/isa/gemv/block_dot_v128.h"

ALWAYS_INLINE void q1_0_codes(const uint8_t *block, int part, u8x16 out[2])
{
    out[0] = out[1] = (u8x16){ 0 };
    add_bits(block + Q12_CODES + part * 4, 2, out);
}

/* Expand each byte to the four bytes of a lane: in its copies shifted by 0, 6, 12 and 18 bits, code i is at
 * bit 8 i. */
ALWAYS_INLINE void q2_0_codes(const uint8_t *block, int part, u8x16 out[2])
{
    const uint8_t *in = block + Q12_CODES + part * 8;
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++, in += 4) {
        const u32x4 bytes = { in[0], in[1], in[2], in[3] };
        out[h] = (u8x16)(bytes | bytes << 6 | bytes << 12 | bytes << 18) & 3;
    }
}

static const struct block_kind KIND_Q1_0 = {
    .bytes = Q1_0_BYTES, .parts = Q1_0_BLOCK / PART, .bias = Q12_BIAS, .codes = q1_0_codes
};
static const struct block_kind KIND_Q2_0 = {
    .bytes = Q2_0_BYTES, .parts = Q2_0_BLOCK / PART, .bias = Q12_BIAS, .codes = q2_0_codes
};

BLOCK_KIND_FUNCTIONS(q1_0, KIND_Q1_0)
BLOCK_KIND_FUNCTIONS(q2_0, KIND_Q2_0)

/* ---------------------------------------------------------------- nvfp4 */

/* Twice the values of the 16 codes of group g. */
ALWAYS_INLINE u8x16 nvfp4_group(const uint8_t *block, int g)
{
    const u8x16 values = (u8x16)(s8x16){ NVFP4_VALUES };
    const uint8_t *in = block + NVFP4_CODES + 8 * g;
    uint32_t word[2];
    memcpy(word, in, sizeof word);
    const u8x16 twice = (u8x16)(u32x4){ word[0], word[1], word[0] >> 4, word[1] >> 4 };
    return look_up(values, twice & 15);
}

/* Weights 16 g .. 16 g + 15 of a block. */
ALWAYS_INLINE void nvfp4_floats(const uint8_t *block, int g, f32x4 out[4])
{
    f32_of_s8((s8x16)nvfp4_group(block, g), out);
#pragma GCC unroll 4
    for (int u = 0; u < 4; u++) out[u] = out[u] * nvfp4_half_scale(block[g]);
}

static void nvfp4_decode(const void *blocks, float *x, int64_t n)
{
    const uint8_t *block = blocks;
    for (int64_t i = 0; i < n; i += NVFP4_BLOCK, block += NVFP4_BYTES) {
        for (int g = 0; g < NVFP4_GROUPS; g++) {
            f32x4 v[4];
            nvfp4_floats(block, g, v);
#pragma GCC unroll 4
            for (int u = 0; u < 4; u++, x += 4) store_f32x4(x, v[u]);
        }
    }
}

/* Dot product of row r of the weights with row i of x. */
ALWAYS_INLINE float nvfp4_row_f32(const struct dot *d, int r, int i)
{
    const uint8_t *block = d->w + r * d->row_bytes;
    const float *x = d->x + i * d->x_stride;
    f32x4 sum[2] = { all_f32(0), all_f32(0) };
    for (int64_t k = 0; k < d->cols; k += NVFP4_BLOCK, block += NVFP4_BYTES) {
        for (int g = 0; g < NVFP4_GROUPS; g++, x += NVFP4_GROUP) {
            f32x4 v[4];
            nvfp4_floats(block, g, v);
#pragma GCC unroll 4
            for (int u = 0; u < 4; u++) sum[u & 1] = fma_f32(v[u], load_f32x4(x + 4 * u), sum[u & 1]);
        }
    }
    return sum_of_f32(sum[0] + sum[1]);
}

ALWAYS_INLINE float nvfp4_row_q8(const struct dot *d, int r, int i)
{
    const uint8_t *block = d->w + r * d->row_bytes;
    const int8_t *q = d->q.q + i * d->q.q_stride;
    const float *dx = d->q.d + i * d->q.d_stride;
    f32x4 sum = all_f32(0);
    for (int64_t k = 0; k < d->cols; k += NVFP4_BLOCK, block += NVFP4_BYTES) {
        for (int g = 0; g < NVFP4_GROUPS; g++, q += NVFP4_GROUP) {
            const s32x4 dots = fold(
                multiply_signed(nvfp4_group(block, g), (s8x16)load_u8((const uint8_t *)q)));
            const float scale = nvfp4_half_scale(block[g]) * dx[(k + g * NVFP4_GROUP) / Q8_BLOCK];
            sum = fma_f32(f32_of_s32(dots), all_f32(scale), sum);
        }
    }
    return sum_of_f32(sum);
}

static void nvfp4_dot_f32(const struct dot *d)
{
    for (int i = 0; i < d->n; i++)
        for (int r = 0; r < d->rows; r++) d->y[i * d->y_stride + r] = nvfp4_row_f32(d, r, i);
}

static void nvfp4_dot_q8(const struct dot *d)
{
    for (int i = 0; i < d->n; i++)
        for (int r = 0; r < d->rows; r++) d->y[i * d->y_stride + r] = nvfp4_row_q8(d, r, i);
}

#endif
