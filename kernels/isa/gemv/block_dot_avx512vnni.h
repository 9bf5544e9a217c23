/* kernels/isa/gemv/block_dot_avx512vnni.h - the dot product with 8-bit activations on AVX-512 VNNI, for every
 * format that can expand 32 codes to unsigned bytes. A round processes four times 32 weights: two registers
 * of codes times 128 activations, with four scales converted at once. A format supplies a struct
 * block_kind512 of constants. */
#ifndef QDYNO_KERNELS_ISA_GEMV_BLOCK_DOT_AVX512VNNI_H
#define QDYNO_KERNELS_ISA_GEMV_BLOCK_DOT_AVX512VNNI_H

#include "kernels/isa/avx512.h"

enum { ROUND = 4, ROUND_BYTES = 136 /* of the largest format with less than 128 weights a block */ };

/* weight = scale * (code - bias) (+ min); a block holds 32 or 64 weights (parts 1, 2) or a multiple of 128.
 */
struct block_kind512 {
    int bytes, parts, bias;
    __m256i (*codes)(const uint8_t *block, int part);   /* unsigned bytes in natural order */
    __m128 (*scales)(const uint8_t *block);             /* of ROUND blocks; of the one block in all lanes */
    __m128 (*mins)(const uint8_t *block);               /* NULL: the format has none */
    __m512i (*codes64)(const uint8_t *block, int part); /* two parts of a block at once; NULL: one by one */
};

/* Partial sums of a row: lanes of products, and lanes of the terms of minima and biases. */
struct round_sums {
    __m512 products[2];
    __m128 offset;
};

/* Process parts b .. b + 3 of a row, which start at part `part` of `block`. At the end of a row, `have` <
 * ROUND: missing activations count as 0; the bytes at `block` are readable nevertheless. */
ALWAYS_INLINE void round_add(const struct block_kind512 *f, const struct dot *d, const uint8_t *block,
                             int part, int64_t b, int have, const int n, struct round_sums *sums)
{
    __m512i codes[2];
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        const int j = 2 * h, k = j + 1;
        if (f->codes64) {
            codes[h] = f->codes64(block + j / f->parts * f->bytes, part + j % f->parts);
            continue;
        }
        const __m256i first = f->codes(block + j / f->parts * f->bytes, part + j % f->parts);
        const __m256i second = f->codes(block + k / f->parts * f->bytes, part + k % f->parts);
        codes[h] = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
    }
    const __m128 scales = f->scales(block);
    const __m128 per_sum = f->mins ? f->mins(block) : _mm_mul_ps(scales, _mm_set1_ps(-(float)f->bias));
    const __mmask8 parts = (__mmask8)((1 << have) - 1);
    const __m512i lanes = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const __m512i two = _mm512_set1_epi32(2);
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) {
        const int8_t *q = d->q.q + i * d->q.q_stride + b * 32;
        const int64_t at = i * d->q.d_stride + b;
        const __m128 dx = _mm_maskz_loadu_ps(parts, d->q.d + at),
                     sx = _mm_maskz_loadu_ps(parts, d->q.sum + at);
        __m512i spread = lanes;
        const __m512 scale = _mm512_castps128_ps512(_mm_mul_ps(scales, dx));
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            const __mmask8 quads = (__mmask8)(have >= 2 * h + 2 ? 0xff : have == 2 * h + 1 ? 0x0f : 0);
            const __m512i a = _mm512_maskz_loadu_epi64(quads, q + 64 * h);
            const __m512i dots = _mm512_dpbusd_epi32(_mm512_setzero_si512(), codes[h], a);
            sums[i].products[h] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots),
                                                  _mm512_permutexvar_ps(spread, scale), sums[i].products[h]);
            spread = _mm512_add_epi32(spread, two);
        }
        if (f->mins || f->bias) sums[i].offset = _mm_fmadd_ps(per_sum, sx, sums[i].offset);
    }
}

ALWAYS_INLINE void kind_dot_vnni_unrolled(const struct block_kind512 *f, const struct dot *d, const int n)
{
    const int64_t parts = d->cols / 32;
    for (int r = 0; r < d->rows; r++) {
        const uint8_t *w = d->w + r * d->row_bytes;
        struct round_sums sums[DOT_X];
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) {
            sums[i].products[0] = sums[i].products[1] = _mm512_setzero_ps();
            sums[i].offset = _mm_setzero_ps();
        }
        int64_t b = 0;
        if (f->parts < ROUND) {
            for (; b + ROUND <= parts; b += ROUND, w += ROUND / f->parts * f->bytes) {
                prefetch_ahead(w, ROUND / f->parts * f->bytes);
                round_add(f, d, w, 0, b, ROUND, n, sums);
            }
            if (b < parts) { /* fewer than four parts remain, and nothing after them may be read */
                uint8_t rest[ROUND_BYTES] = { 0 };
                memcpy(rest, w, (size_t)((parts - b) / f->parts * f->bytes));
                round_add(f, d, rest, 0, b, (int)(parts - b), n, sums);
            }
        } else {
            for (; b < parts; b += f->parts, w += f->bytes) {
                prefetch_ahead(w, f->bytes);
#pragma GCC unroll 2
                for (int p = 0; p < f->parts; p += ROUND) round_add(f, d, w, p, b + p, ROUND, n, sums);
            }
        }
#pragma GCC unroll 4
        for (int i = 0; i < n; i++)
            d->y[i * d->y_stride + r] = _mm512_reduce_add_ps(
                _mm512_add_ps(_mm512_add_ps(sums[i].products[0], sums[i].products[1]),
                              _mm512_zextps128_ps512(sums[i].offset)));
    }
}

ALWAYS_INLINE void kind_dot_vnni(const struct block_kind512 *f, const struct dot *d)
{
    switch (d->n) {
    case 1: kind_dot_vnni_unrolled(f, d, 1); break;
    case 2: kind_dot_vnni_unrolled(f, d, 2); break;
    case 3: kind_dot_vnni_unrolled(f, d, 3); break;
    case 4: kind_dot_vnni_unrolled(f, d, 4); break;
    }
}

#endif
