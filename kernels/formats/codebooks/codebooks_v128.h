/* kernels/formats/codebooks/codebooks_v128.h - codebooks (nf4, fp4) with 128-bit vectors. A look-up
 * yields one byte per lane, so an f32 value takes four look-ups, one for each of its bytes. With 8-bit
 * activations a value is an integer of two signed bytes, which takes two. Include an implementation of
 * isa/v128.h first. */
#ifndef QDYNO_KERNELS_FORMATS_CODEBOOKS_CODEBOOKS_V128_H
#define QDYNO_KERNELS_FORMATS_CODEBOOKS_CODEBOOKS_V128_H

#include "kernels/formats/codebooks/layout.h"

static const float NF4_VALUE[16] = { NF4_VALUES }, FP4_VALUE[16] = { FP4_VALUES };

struct integer_book {
    s8x16 high, low; /* value = (128 * high + low) / scale */
    int scale;
};
static const struct integer_book NF4_BOOK = { { NF4_HIGH }, { NF4_LOW }, NF4_SCALE },
                                 FP4_BOOK = { { FP4_HIGH }, { FP4_LOW }, FP4_SCALE };

/* The 32 codes in the 16 bytes at p: the lower halves, then the upper ones. */
ALWAYS_INLINE void book_codes(const uint8_t *p, u8x16 out[2])
{
    const u8x16 bytes = load_u8(p);
    out[0] = bits_to(bytes, 15, 0, 0);
    out[1] = bits_to(bytes, 15, 4, 0);
}

/* ---------------------------------------------------------------- floats */

/* of[b]: byte b of each of the sixteen values. */
struct planes {
    u8x16 of[4];
};

ALWAYS_INLINE struct planes planes_of(const float book[16])
{
    uint8_t bytes[16 * sizeof(float)];
    struct planes p;
    memcpy(bytes, book, sizeof bytes);
    for (int b = 0; b < 4; b++)
        for (int i = 0; i < 16; i++) p.of[b][i] = bytes[4 * i + b];
    return p;
}

ALWAYS_INLINE void book_floats(const struct planes *book, const uint8_t *p, float largest, f32x4 out[8])
{
    u8x16 code[2];
    book_codes(p, code);
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        u8x16 v[4];
#pragma GCC unroll 4
        for (int b = 0; b < 4; b++) v[b] = look_up(book->of[b], code[h]);
        f32_of_planes(v, out + 4 * h);
#pragma GCC unroll 4
        for (int u = 4 * h; u < 4 * h + 4; u++) out[u] = out[u] * largest;
    }
}

ALWAYS_INLINE void book_decode(const float values[16], const void *blocks, float *x, int64_t n,
                               const int nested)
{
    const struct planes book = planes_of(values);
    const uint8_t *in = blocks;
    for (int64_t i = 0; i < n; in += block_bytes(nested)) {
        for (int p = 0; p < 2 * block_units(nested); p++, i += 32) {
            f32x4 v[8];
            book_floats(&book, unit_codes(in, p / 2, nested) + p % 2 * 16, unit_largest(in, p / 2, nested),
                        v);
#pragma GCC unroll 8
            for (int u = 0; u < 8; u++) store_f32x4(x + i + 4 * u, v[u]);
        }
    }
}

ALWAYS_INLINE void book_dot_f32_unrolled(const float values[16], const struct dot *d, const int nested,
                                         const int n)
{
    const struct planes book = planes_of(values);
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *w = d->w + r * d->row_bytes;
        f32x4 sum[DOT_X][2];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) sum[i][0] = sum[i][1] = all_f32(0);
        for (int64_t k = 0; k < d->cols; w += block_bytes(nested)) {
            prefetch_ahead(w, block_bytes(nested));
            for (int p = 0; p < 2 * block_units(nested); p++, k += 32) {
                f32x4 v[8];
                book_floats(&book, unit_codes(w, p / 2, nested) + p % 2 * 16, unit_largest(w, p / 2, nested),
                            v);
#pragma GCC unroll 4
                for (int i = 0; i < n; i++) {
                    const float *x = d->x + i * d->x_stride + k;
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

ALWAYS_INLINE void book_dot_q8_unrolled(const struct integer_book *book, const struct dot *d,
                                        const int nested, const int n)
{
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *w = d->w + r * d->row_bytes;
        f32x4 sum[DOT_X];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) sum[i] = all_f32(0);
        for (int64_t k = 0; k < d->cols; w += block_bytes(nested)) {
            prefetch_ahead(w, block_bytes(nested));
            for (int p = 0; p < 2 * block_units(nested); p++, k += Q8_BLOCK) {
                u8x16 code[2];
                book_codes(unit_codes(w, p / 2, nested) + p % 2 * 16, code);
                const float largest = unit_largest(w, p / 2, nested);
                const u8x16 high[2] = { look_up((u8x16)book->high, code[0]),
                                        look_up((u8x16)book->high, code[1]) };
                const u8x16 low[2] = { look_up((u8x16)book->low, code[0]),
                                       look_up((u8x16)book->low, code[1]) };
#pragma GCC unroll 4
                for (int i = 0; i < n; i++) {
                    const int8_t *at = d->q.q + i * d->q.q_stride + k;
                    const s8x16 q[2] = { (s8x16)load_u8(at), (s8x16)load_u8(at + 16) };
                    const s32x4 dots = (fold_signed_2(high, q) << 7) + fold_signed_2(low, q);
                    const float by = largest * d->q.d[i * d->q.d_stride + k / Q8_BLOCK];
                    sum[i] = fma_f32(f32_of_s32(dots), all_f32(by), sum[i]);
                }
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) d->y[i * d->y_stride + r] = sum_of_f32(sum[i]) / (float)book->scale;
    }
}

/* ---------------------------------------------------------------- functions */

ALWAYS_INLINE void book_dot_f32(const float values[16], const struct dot *d, const int nested)
{
    if (d->n == DOT_X) {
        book_dot_f32_unrolled(values, d, nested, DOT_X);
        return;
    }
    if (d->n >= 2) book_dot_f32_unrolled(values, d, nested, 2);
    if (d->n % 2) {
        const struct dot last = last_row(d);
        book_dot_f32_unrolled(values, &last, nested, 1);
    }
}

ALWAYS_INLINE void book_dot_q8(const struct integer_book *book, const struct dot *d, const int nested)
{
    if (d->n == DOT_X) {
        book_dot_q8_unrolled(book, d, nested, DOT_X);
        return;
    }
    if (d->n >= 2) book_dot_q8_unrolled(book, d, nested, 2);
    if (d->n % 2) {
        const struct dot last = last_row(d);
        book_dot_q8_unrolled(book, &last, nested, 1);
    }
}

#define CODEBOOK_FUNCTIONS(name, NAME, book, nested)                                                         \
    static void name##_decode(const void *blocks, float *x, int64_t n)                                       \
    {                                                                                                        \
        book_decode(book##_VALUE, blocks, x, n, nested);                                                     \
    }                                                                                                        \
    static void name##_dot_f32(const struct dot *d)                                                          \
    {                                                                                                        \
        book_dot_f32(book##_VALUE, d, nested);                                                               \
    }                                                                                                        \
    static void name##_dot_q8(const struct dot *d)                                                           \
    {                                                                                                        \
        book_dot_q8(&book##_BOOK, d, nested);                                                                \
    }
CODEBOOK_FORMATS(CODEBOOK_FUNCTIONS)

#endif
