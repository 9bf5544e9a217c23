/* kernels/formats/kquants/kquants_v128.h - the k-quant formats (blocks of 256 weights) with 128-bit vectors.
 * A part is 32 weights, that is one sub-block or two. With 8-bit activations the sums of a part are integers
 * that include the scales of the sub-blocks. Four parts (a round) are multiplied by their four activation
 * scales at once. Include an implementation of isa/v128.h first. */
#ifndef QDYNO_KERNELS_FORMATS_KQUANTS_KQUANTS_V128_H
#define QDYNO_KERNELS_FORMATS_KQUANTS_KQUANTS_V128_H

#include "kernels/formats/kquants/layout.h"

enum { K_PARTS = 8, K_PART = 32, K_GROUP = 4 /* parts of a round */ };

struct k_kind {
    const struct k_shape *shape;
    k_scales_fn *scales;
    /* Codes of part p in the order of the weights: bytes < 64, or if k_signed, signed bytes without bias. */
    void (*codes)(const uint8_t *block, int p, u8x16 out[2]);
};

ALWAYS_INLINE bool k_signed(const struct k_kind *f)
{
    return k_wide(f->shape);
}

/* ---------------------------------------------------------------- codes */

ALWAYS_INLINE void two_bits(const uint8_t *in, int p, u8x16 out[2])
{
    out[0] = bits_to(load_u8(in + p / 4 * 32), 3, p % 4 * 2, 0);
    out[1] = bits_to(load_u8(in + p / 4 * 32 + 16), 3, p % 4 * 2, 0);
}

ALWAYS_INLINE void four_bits(const uint8_t *in, int p, u8x16 out[2])
{
    out[0] = bits_to(load_u8(in + p / 2 * 32), 15, p % 2 * 4, 0);
    out[1] = bits_to(load_u8(in + p / 2 * 32 + 16), 15, p % 2 * 4, 0);
}

ALWAYS_INLINE void add_plane(const uint8_t *in, int p, const int shift, u8x16 out[2])
{
    out[0] |= bits_to(load_u8(in), 1, p, shift);
    out[1] |= bits_to(load_u8(in + 16), 1, p, shift);
}

ALWAYS_INLINE void q2_k_codes(const uint8_t *block, int p, u8x16 out[2])
{
    two_bits(block + Q2_K_CODES, p, out);
}

ALWAYS_INLINE void q3_k_codes(const uint8_t *block, int p, u8x16 out[2])
{
    two_bits(block + Q3_K_CODES, p, out);
    add_plane(block + Q3_K_HIGH, p, 2, out);
}

ALWAYS_INLINE void q4_k_codes(const uint8_t *block, int p, u8x16 out[2])
{
    four_bits(block + Q4_K_CODES, p, out);
}

ALWAYS_INLINE void q5_k_codes(const uint8_t *block, int p, u8x16 out[2])
{
    four_bits(block + Q5_K_CODES, p, out);
    add_plane(block + Q5_K_HIGH, p, 4, out);
}

ALWAYS_INLINE void q6_k_codes(const uint8_t *block, int p, u8x16 out[2])
{
    const uint8_t *low = block + Q6_K_LOW + p / 4 * 64 + p % 2 * 32, *high = block + Q6_K_HIGH + p / 4 * 32;
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++)
        out[h] = bits_to(load_u8(low + 16 * h), 15, p % 4 / 2 * 4, 0) |
                 bits_to(load_u8(high + 16 * h), 3, p % 4 * 2, 4);
}

ALWAYS_INLINE void iq4_xs_codes(const uint8_t *block, int p, u8x16 out[2])
{
    const u8x16 values = (u8x16)(s8x16){ IQ4_VALUES }, bytes = load_u8(block + IQ4_XS_CODES + 16 * p);
    out[0] = look_up(values, bits_to(bytes, 15, 0, 0));
    out[1] = look_up(values, bits_to(bytes, 15, 4, 0));
}

static const struct k_kind K_Q2_K = { .shape = &Q2_K_SHAPE, .scales = q2_k_scales, .codes = q2_k_codes },
                           K_Q3_K = { .shape = &Q3_K_SHAPE, .scales = q3_k_scales, .codes = q3_k_codes },
                           K_Q4_K = { .shape = &Q4_K_SHAPE, .scales = q4_k_scales, .codes = q4_k_codes },
                           K_Q5_K = { .shape = &Q5_K_SHAPE, .scales = q4_k_scales, .codes = q5_k_codes },
                           K_Q6_K = { .shape = &Q6_K_SHAPE, .scales = q6_k_scales, .codes = q6_k_codes },
                           K_IQ4_XS = { .shape = &IQ4_XS_SHAPE,
                                        .scales = iq4_xs_scales,
                                        .codes = iq4_xs_codes };

/* ---------------------------------------------------------------- to floats */

/* out [n] = by * signed bytes. */
ALWAYS_INLINE void k_floats_of(const uint64_t bytes[2], float by, const int n, float *out)
{
    const s8x16 v = (s8x16)(uint64_t __attribute__((vector_size(16)))){ bytes[0], bytes[1] };
    f32x4 wide[4];
    f32_of_s8(v, wide);
#pragma GCC unroll 4
    for (int j = 0; j < n; j += 4) store_f32x4(out + j, wide[j / 4] * by);
}

struct k_floats {
    float scale[K_SUBS], min[K_SUBS];
};

ALWAYS_INLINE void k_unpack(const struct k_kind *f, const uint8_t *block, struct k_floats *u)
{
    struct k_scales s;
    f->scales(block, &s);
    k_floats_of(s.scale, half_to_float(s.d) * f->shape->unit, K_BLOCK / f->shape->sub, u->scale);
    if (f->shape->has_min) k_floats_of(s.min, half_to_float(s.dmin), K_BLOCK / f->shape->sub, u->min);
}

/* The 32 weights of part p, same bits as the reference. */
ALWAYS_INLINE void k_weights(const struct k_kind *f, const uint8_t *block, const struct k_floats *u,
                             const int p, f32x4 out[8])
{
    u8x16 code[2];
    f->codes(block, p, code);
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        const int j = (p * K_PART + h * 16) / f->shape->sub;
        if (!k_signed(f)) code[h] -= (uint8_t)f->shape->bias;
        f32_of_s8((s8x16)code[h], out + 4 * h);
#pragma GCC unroll 4
        for (int v = 4 * h; v < 4 * h + 4; v++) {
            out[v] = out[v] * u->scale[j];
            if (f->shape->has_min) out[v] = out[v] - u->min[j];
        }
    }
}

ALWAYS_INLINE void k_decode(const struct k_kind *f, const void *blocks, float *x, int64_t n)
{
    const uint8_t *block = blocks;
    for (int64_t k = 0; k < n; k += K_BLOCK, block += f->shape->block_bytes) {
        struct k_floats u;
        k_unpack(f, block, &u);
#pragma GCC unroll 8
        for (int p = 0; p < K_PARTS; p++) {
            f32x4 v[8];
            k_weights(f, block, &u, p, v);
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++) store_f32x4(x + k + p * K_PART + 4 * j, v[j]);
        }
    }
}

/* Set sum[i] to the dot product of one block and row i of x. Each block is summed separately before it is
 * added to the total of a row, which keeps rounding errors small in long rows. */
typedef void k_block_fn(const struct k_kind *f, const uint8_t *block, const struct dot *d, int64_t k,
                        const int n, f32x4 sum[DOT_X]);

ALWAYS_INLINE void k_block_f32(const struct k_kind *f, const uint8_t *block, const struct dot *d, int64_t k,
                               const int n, f32x4 sum[DOT_X])
{
    struct k_floats u;
    f32x4 part[DOT_X][2];
    k_unpack(f, block, &u);
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) part[i][0] = part[i][1] = all_f32(0);
#pragma GCC unroll 8
    for (int p = 0; p < K_PARTS; p++) {
        f32x4 v[8];
        k_weights(f, block, &u, p, v);
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) {
            const float *x = d->x + i * d->x_stride + k + p * K_PART;
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++) part[i][j & 1] = fma_f32(v[j], load_f32x4(x + 4 * j), part[i][j & 1]);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) sum[i] = part[i][0] + part[i][1];
}

/* ---------------------------------------------------------------- 8-bit activations */

/* Sum of scale * code * q over part p. */
ALWAYS_INLINE s32x4 k_part_products(const struct k_kind *f, const u8x16 code[2], const int8_t *at,
                                    const struct subscales *s, const int p)
{
    const s8x16 q[2] = { (s8x16)load_u8(at), (s8x16)load_u8(at + 16) };
    const s32x4 zero = { 0 };
    const int halves = K_PART / f->shape->sub, last = (p + 1) * halves - 1;
    if (k_signed(f))
        return fold_scaled(fold_scaled(zero, multiply_signed(code[0], q[0]), s, p * halves),
                           multiply_signed(code[1], q[1]), s, last);
    if (f->shape->sub == 32) return fold_scaled(zero, multiply_small_2(code, q), s, p);
    return fold_scaled(fold_scaled(zero, multiply_small(code[0], q[0]), s, p * halves),
                       multiply_small(code[1], q[1]), s, last);
}

/* The part of a block's work that all rows of x share. */
struct k_q8 {
    struct subscales scale;
    float d;
    float off[K_SUBS]; /* minimum, or scale * bias; multiplied by sums of activations and subtracted */
};

ALWAYS_INLINE bool k_has_off(const struct k_kind *f)
{
    return f->shape->has_min || (f->shape->bias && !k_signed(f));
}

ALWAYS_INLINE void k_q8_of(const struct k_kind *f, const uint8_t *block, struct k_q8 *u)
{
    const int subs = K_BLOCK / f->shape->sub;
    struct k_scales s;
    f->scales(block, &s);
    u->scale = subscales_of(s.scale, subs);
    u->d = half_to_float(s.d) * f->shape->unit;
    if (f->shape->has_min)
        k_floats_of(s.min, half_to_float(s.dmin), subs, u->off);
    else if (k_has_off(f))
        k_floats_of(s.scale, u->d * (float)f->shape->bias, subs, u->off);
}

/* Add parts 4g..4g + 3 of a block to sum. */
ALWAYS_INLINE void k_round(const struct k_kind *f, const uint8_t *block, const struct k_q8 *u,
                           const struct dot *d, int64_t k, const int g, const int n, f32x4 sum[DOT_X])
{
    const int subs = K_GROUP * K_PART / f->shape->sub; /* of a round */
    u8x16 code[K_GROUP][2];
#pragma GCC unroll 4
    for (int j = 0; j < K_GROUP; j++) f->codes(block, K_GROUP * g + j, code[j]);
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) {
        const int64_t at = i * d->q.d_stride + k / Q8_BLOCK + K_GROUP * g;
        const int8_t *in = d->q.q + i * d->q.q_stride + k + K_GROUP * K_PART * g;
        s32x4 v[K_GROUP];
#pragma GCC unroll 4
        for (int j = 0; j < K_GROUP; j++)
            v[j] = k_part_products(f, code[j], in + K_PART * j, &u->scale, K_GROUP * g + j);
        sum[i] = fma_f32(f32_of_s32(sums_of_four(v)) * u->d, load_f32x4(d->q.d + at), sum[i]);
        if (!k_has_off(f)) continue;
        const float *q_sums = f->shape->sub == 32 ? d->q.sum + at : d->q.sum16 + 2 * at;
#pragma GCC unroll 2
        for (int j = 0; j < subs; j += 4)
            sum[i] = sum[i] - load_f32x4(u->off + g * subs + j) * load_f32x4(q_sums + j);
    }
}

ALWAYS_INLINE void k_block_q8(const struct k_kind *f, const uint8_t *block, const struct dot *d, int64_t k,
                              const int n, f32x4 sum[DOT_X])
{
    struct k_q8 u;
    k_q8_of(f, block, &u);
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) sum[i] = all_f32(0);
#pragma GCC unroll 2
    for (int g = 0; g < K_PARTS / K_GROUP; g++) k_round(f, block, &u, d, k, g, n, sum);
}

/* ---------------------------------------------------------------- rows */

ALWAYS_INLINE void k_dot_unrolled(const struct k_kind *f, const struct dot *d, k_block_fn *block_dot,
                                  const int n)
{
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *block = d->w + r * d->row_bytes;
        f32x4 total[DOT_X];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) total[i] = all_f32(0);
        for (int64_t k = 0; k < d->cols; k += K_BLOCK, block += f->shape->block_bytes) {
            f32x4 sum[DOT_X];
            prefetch_ahead(block, f->shape->block_bytes);
            block_dot(f, block, d, k, n, sum);
#pragma GCC unroll 4
            for (int i = 0; i < n; i++) total[i] = total[i] + sum[i];
        }
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) d->y[i * d->y_stride + r] = sum_of_f32(total[i]);
    }
}

ALWAYS_INLINE void k_dot(const struct k_kind *f, const struct dot *d, k_block_fn *block_dot)
{
    if (d->n == DOT_X) {
        k_dot_unrolled(f, d, block_dot, DOT_X);
        return;
    }
    if (d->n >= 2) k_dot_unrolled(f, d, block_dot, 2);
    if (d->n % 2) {
        const struct dot last = last_row(d);
        k_dot_unrolled(f, &last, block_dot, 1);
    }
}

#define K_KIND_FUNCTIONS(name, KIND)                                                                         \
    static void name##_decode(const void *blocks, float *x, int64_t n)                                       \
    {                                                                                                        \
        k_decode(&KIND, blocks, x, n);                                                                       \
    }                                                                                                        \
    static void name##_dot_f32(const struct dot *d)                                                          \
    {                                                                                                        \
        k_dot(&KIND, d, k_block_f32);                                                                        \
    }                                                                                                        \
    static void name##_dot_q8(const struct dot *d)                                                           \
    {                                                                                                        \
        k_dot(&KIND, d, k_block_q8);                                                                         \
    }
K_KIND_FUNCTIONS(q2_k, K_Q2_K)
K_KIND_FUNCTIONS(q3_k, K_Q3_K)
K_KIND_FUNCTIONS(q4_k, K_Q4_K)
K_KIND_FUNCTIONS(q5_k, K_Q5_K)
K_KIND_FUNCTIONS(q6_k, K_Q6_K)
K_KIND_FUNCTIONS(iq4_xs, K_IQ4_XS)

#endif
