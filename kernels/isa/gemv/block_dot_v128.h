/* kernels/isa/gemv/block_dot_v128.h - decode and both dot products with 128-bit vectors, for every format
 * that can expand 32 codes to bytes. A format supplies a struct block_kind of constants, for which everything
 * is inlined.
 *
 * A part is 32 weights. Four parts (a round) are processed together: their sums of products become the four
 * lanes of one register, which is then multiplied by the four scales of their activations. Include an
 * implementation of isa/v128.h first. */
#ifndef QDYNO_KERNELS_ISA_GEMV_BLOCK_DOT_V128_H
#define QDYNO_KERNELS_ISA_GEMV_BLOCK_DOT_V128_H

enum { PART = 32, GROUP = 4 /* parts of a round */ };

/* weight = scale * (code - bias) + min, where min is optional. A block has 32 * parts weights; parts is 1, 2
 * or a multiple of 4. */
struct block_kind {
    int bytes, parts, bias;
    bool is_signed;                                              /* codes -128..127 instead of 0..63 */
    void (*codes)(const uint8_t *block, int part, u8x16 out[2]); /* in the order of the weights */
    float (*scale)(const uint8_t *block);                        /* NULL: an f16 */
    int scale_at;                                                /* its offset */
    enum { NO_MIN, MIN, ZERO } min; /* ZERO: the block has an f16 zero point; min = -(zero * scale) */
    int min_at;                     /* offset of the f16 minimum or zero point */
    bool whole_bytes;               /* codes are 0..255, with a zero point; code - 128 is multiplied */
};

ALWAYS_INLINE float kind_scale(const struct block_kind *f, const uint8_t *block)
{
    return f->scale ? f->scale(block) : load_one_f16(block + f->scale_at);
}

ALWAYS_INLINE float kind_min(const struct block_kind *f, const uint8_t *block)
{
    if (f->min == NO_MIN) return 0;
    const float m = load_one_f16(block + f->min_at);
    return f->min == MIN ? m : -(m * kind_scale(f, block));
}

/* For each of the four parts of a round, the f16 number of its block. w: that number in the first block. A
 * round covers four blocks, two, or (part of) one. */
ALWAYS_INLINE f32x4 kind_f16(const struct block_kind *f, const uint8_t *w)
{
    if (f->parts > 2) return all_f32(load_one_f16(w));
    if (f->parts == 1) return gather_f16(w, f->bytes);
    const float first = load_one_f16(w), second = load_one_f16(w + f->bytes);
    return (f32x4){ first, first, second, second };
}

ALWAYS_INLINE f32x4 kind_scales(const struct block_kind *f, const uint8_t *w)
{
    if (!f->scale) return kind_f16(f, w + f->scale_at);
    return (f32x4){ f->scale(w), f->scale(w + f->bytes), f->scale(w + 2 * f->bytes),
                    f->scale(w + 3 * f->bytes) }; /* such formats have one part per block */
}

/* Add `value` to code j if bit j of the 32-bit word at p is set, for j < 32. The bits are spread by a look-up
 * that copies byte j / 8 of the word to lane j, and a mask that selects bit j % 8. */
ALWAYS_INLINE void add_bits(const uint8_t *p, const uint8_t value, u8x16 out[2])
{
    const u8x16 bit = { 1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128 };
    const u8x16 spread = { 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1 };
    uint32_t word;
    memcpy(&word, p, sizeof word);
    const u8x16 all = (u8x16)(u32x4){ word, word, word, word };
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        const u8x16 bytes = look_up(all, spread + (uint8_t)(2 * h));
        out[h] |= (u8x16)((bytes & bit) == bit) & value;
    }
}

/* ---------------------------------------------------------------- to floats */

ALWAYS_INLINE void kind_floats(const struct block_kind *f, const uint8_t *block, int part, f32x4 out[8])
{
    u8x16 code[2];
    f->codes(block, part, code);
    const float d = kind_scale(f, block), m = kind_min(f, block);
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        f32_of_s8((s8x16)(f->whole_bytes ? code[h] ^ 0x80 : code[h] - (uint8_t)f->bias), out + 4 * h);
#pragma GCC unroll 4
        for (int u = 4 * h; u < 4 * h + 4; u++) {
            if (f->whole_bytes) out[u] = out[u] + 128.0f;
            out[u] = out[u] * d;
            if (f->min) out[u] = out[u] + m;
        }
    }
}

ALWAYS_INLINE void kind_decode(const struct block_kind *f, const void *blocks, float *x, int64_t n)
{
    const uint8_t *in = blocks;
    for (int64_t i = 0; i < n; i += PART * f->parts, in += f->bytes) {
        for (int p = 0; p < f->parts; p++) {
            f32x4 v[8];
            kind_floats(f, in, p, v);
#pragma GCC unroll 8
            for (int u = 0; u < 8; u++) store_f32x4(x + i + PART * p + 4 * u, v[u]);
        }
    }
}

ALWAYS_INLINE void kind_dot_f32_unrolled(const struct block_kind *f, const struct dot *d, const int n)
{
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *w = d->w + r * d->row_bytes;
        f32x4 sum[DOT_X][2];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) sum[i][0] = sum[i][1] = all_f32(0);
        for (int64_t k = 0; k < d->cols; k += PART * f->parts, w += f->bytes) {
            prefetch_ahead(w, f->bytes);
            for (int p = 0; p < f->parts; p++) {
                f32x4 v[8];
                kind_floats(f, w, p, v);
#pragma GCC unroll 4
                for (int i = 0; i < n; i++) {
                    const float *x = d->x + i * d->x_stride + k + PART * p;
#pragma GCC unroll 8
                    for (int u = 0; u < 8; u++)
                        sum[i][u & 1] = fma_f32(v[u], load_f32x4(x + 4 * u), sum[i][u & 1]);
                }
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) d->y[i * d->y_stride + r] = sum_of_f32(sum[i][0] + sum[i][1]);
    }
}

/* ---------------------------------------------------------------- 8-bit activations */

/* Sum of code * q over a part, in four lanes. whole_bytes: of (code - 128) * q. */
ALWAYS_INLINE s32x4 part_products(const struct block_kind *f, const u8x16 code[2], const int8_t *at)
{
    const s8x16 q[2] = { (s8x16)load_u8(at), (s8x16)load_u8(at + 16) };
    if (f->whole_bytes) {
        const u8x16 lowered[2] = { code[0] ^ 0x80, code[1] ^ 0x80 };
        return fold_signed_2(lowered, q);
    }
    return f->is_signed ? fold_signed_2(code, q) : fold(multiply_small_2(code, q));
}

/* Sums of one row of weights for each row of x: products, corrections by sums of activations, and the parts
 * that do not fill a round. */
struct q8_sums {
    f32x4 sum[DOT_X], off[DOT_X];
    float tail[DOT_X];
};

/* The factor of the sum of activations, min - bias * scale, for each part of a round. whole_bytes has the
 * bias -128, because code - 128 is multiplied. */
ALWAYS_INLINE f32x4 kind_per_sum(const struct block_kind *f, const uint8_t *w, f32x4 scale)
{
    if (f->min == MIN) return kind_f16(f, w + f->min_at);
    if (f->min == ZERO) return (all_f32(f->whole_bytes ? 128 : 0) - kind_f16(f, w + f->min_at)) * scale;
    return scale * all_f32((float)-f->bias);
}

/* Add the parts b..b + 3 of a row to its sums. The first of them is part `first` of its block. */
ALWAYS_INLINE void kind_round(const struct block_kind *f, const struct dot *d, const uint8_t *w, int64_t b,
                              const int first, struct q8_sums *s, const int n)
{
    u8x16 code[GROUP][2];
    const f32x4 scale = kind_scales(f, w), per_sum = kind_per_sum(f, w, scale);
#pragma GCC unroll 4
    for (int j = 0; j < GROUP; j++)
        f->codes(w + (first + j) / f->parts * f->bytes, (first + j) % f->parts, code[j]);
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) {
        const int8_t *q = d->q.q + i * d->q.q_stride + b * PART;
        s32x4 v[GROUP];
#pragma GCC unroll 4
        for (int j = 0; j < GROUP; j++) v[j] = part_products(f, code[j], q + j * PART);
        const f32x4 by = scale * load_f32x4(d->q.d + i * d->q.d_stride + b);
        s->sum[i] = fma_f32(f32_of_s32(sums_of_four(v)), by, s->sum[i]);
        if (f->min || f->bias)
            s->off[i] = fma_f32(per_sum, load_f32x4(d->q.sum + i * d->q.d_stride + b), s->off[i]);
    }
}

/* Add part p of a block at the end of a row, where fewer parts than a round are left. */
ALWAYS_INLINE void kind_last(const struct block_kind *f, const struct dot *d, const uint8_t *w, int64_t b,
                             int p, struct q8_sums *s, const int n)
{
    u8x16 code[2];
    f->codes(w, p, code);
    const float scale = kind_scale(f, w), lowered = f->whole_bytes ? 128 * scale : 0;
    const float per_sum = f->min ? kind_min(f, w) + lowered : (float)-f->bias * scale;
    for (int i = 0; i < n; i++) {
        const int64_t at = i * d->q.d_stride + b;
        const s32x4 v = part_products(f, code, d->q.q + i * d->q.q_stride + b * PART);
        s->tail[i] += sum_of_f32(f32_of_s32(v)) * (scale * d->q.d[at]) + per_sum * d->q.sum[at];
    }
}

/* y = sum over parts of scale * d * sum(code * q) + (min - bias * scale) * sum(x). d and sum(x) are those of
 * the activations (struct act_q8). */
ALWAYS_INLINE void kind_dot_q8_unrolled(const struct block_kind *f, const struct dot *d, const int n)
{
    const int blocks = f->parts < GROUP ? GROUP / f->parts : 1, step = f->parts * blocks;
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *w = d->w + r * d->row_bytes;
        const int64_t parts = d->cols / PART;
        struct q8_sums s;
        int64_t b = 0;
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) s.sum[i] = s.off[i] = all_f32(0), s.tail[i] = 0;
        for (; b + step <= parts; b += step, w += blocks * f->bytes) {
            prefetch_ahead(w, blocks * f->bytes);
#pragma GCC unroll 2
            for (int p = 0; p < step; p += GROUP) kind_round(f, d, w, b + p, p, &s, n);
        }
        if (f->parts < GROUP) /* the last blocks, which do not fill a round */
            for (; b < parts; b += f->parts, w += f->bytes)
                for (int p = 0; p < f->parts; p++) kind_last(f, d, w, b + p, p, &s, n);
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) d->y[i * d->y_stride + r] = s.tail[i] + sum_of_f32(s.sum[i] + s.off[i]);
    }
}

/* ---------------------------------------------------------------- functions of a format */

ALWAYS_INLINE void kind_dot_f32(const struct block_kind *f, const struct dot *d)
{
    if (d->n == DOT_X) {
        kind_dot_f32_unrolled(f, d, DOT_X);
        return;
    }
    if (d->n >= 2) kind_dot_f32_unrolled(f, d, 2);
    if (d->n % 2) {
        const struct dot last = last_row(d);
        kind_dot_f32_unrolled(f, &last, 1);
    }
}

ALWAYS_INLINE void kind_dot_q8(const struct block_kind *f, const struct dot *d)
{
    if (d->n == DOT_X) {
        kind_dot_q8_unrolled(f, d, DOT_X);
        return;
    }
    if (d->n >= 2) kind_dot_q8_unrolled(f, d, 2);
    if (d->n % 2) {
        const struct dot last = last_row(d);
        kind_dot_q8_unrolled(f, &last, 1);
    }
}

/* Define decode and both dot products of a format from its static const struct block_kind. */
#define BLOCK_KIND_FUNCTIONS(name, KIND)                                                                     \
    static void name##_decode(const void *blocks, float *x, int64_t n)                                       \
    {                                                                                                        \
        kind_decode(&KIND, blocks, x, n);                                                                    \
    }                                                                                                        \
    static void name##_dot_f32(const struct dot *d)                                                          \
    {                                                                                                        \
        kind_dot_f32(&KIND, d);                                                                              \
    }                                                                                                        \
    static void name##_dot_q8(const struct dot *d)                                                           \
    {                                                                                                        \
        kind_dot_q8(&KIND, d);                                                                               \
    }

#endif
