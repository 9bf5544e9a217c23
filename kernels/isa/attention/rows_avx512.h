/* kernels/isa/attention/rows_avx512.h - attention of a few queries with AVX-512, straight from stored K or V
 * rows (struct cached_rows). A format instantiates it with its own conversion to f32 (ROW_FUNCTIONS).
 *
 * Scores: up to 16 sums, of tokens times queries, share each converted part of a key; the lanes of all 16 are
 * added up together. Every sum has the same order of additions whatever shares its registers, so a score has
 * the same bits with any number of queries and tokens. Values: a token's weights are broadcast and multiplied
 * with its converted value; the sums stay in registers over all tokens. */
#ifndef QDYNO_KERNELS_ISA_ATTENTION_ROWS_AVX512_H
#define QDYNO_KERNELS_ISA_ATTENTION_ROWS_AVX512_H

#include "kernels/isa/avx512.h"

/* Convert the 16 numbers from index i of a row, or in formats with blocks of 32 the 32 numbers, to `parts`
 * vectors (1 or 2, a constant of the format). */
typedef void load_parts_fn(const uint8_t *row, int64_t i, __m512 *out);

/* Prefetch what corresponds to rows t .. t + rows - 1 in the run of rows that follows. */
ALWAYS_INLINE void prefetch_rows(const struct cached_rows *p, int t, int rows)
{
    if (!p->next) return;
    const char *at = (const char *)p->next + t * p->row_bytes;
    for (int64_t i = 0; i < rows * p->row_bytes; i += LINE_BYTES) _mm_prefetch(at + i, _MM_HINT_T0);
}

/* One of the four rounds of sums_of_lanes: lanes that differ in one bit of their number are added, those of a
 * in the lanes without that bit, those of b in the others. Both get the same two terms, so the sum of a
 * register does not depend on its place. */
ALWAYS_INLINE __m512 add_pairs(__m512 a, __m512 b, __mmask16 second, __m512 crossed)
{
    return _mm512_add_ps(_mm512_mask_blend_ps(second, a, b), crossed);
}

/* Lane i of the result is the sum of all lanes of v[i]. */
ALWAYS_INLINE __m512 sums_of_lanes(const __m512 v[16])
{
    __m512 t[8], u[4], w[2];
    /* Registers whose numbers differ by 8 meet first, so that the last round leaves the order. */
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        t[i] = add_pairs(v[i], v[i + 8], 0xff00, _mm512_shuffle_f32x4(v[i], v[i + 8], 0x4e));
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m512 low = t[i], high = t[i + 4];
        const __m512 crossed = _mm512_permutex2var_ps(
            low, _mm512_setr_epi32(4, 5, 6, 7, 16, 17, 18, 19, 12, 13, 14, 15, 24, 25, 26, 27), high);
        u[i] = add_pairs(low, high, 0xf0f0, crossed);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        w[i] = add_pairs(u[i], u[i + 2], 0xcccc, _mm512_shuffle_ps(u[i], u[i + 2], 0x4e));
    const __m512 odd = _mm512_mask_blend_ps(0xaaaa, w[1], w[0]); /* what the last round adds, swapped */
    return add_pairs(w[0], w[1], 0xaaaa, _mm512_permute_ps(odd, 0xb1));
}

/* Store `tokens` lanes, from number `at` on, of v; both are constants at every call. */
ALWAYS_INLINE void store_lanes(float *to, __m512 v, const int at, const int tokens)
{
    if (tokens == 4 && at == 0) /* four lanes are cheaper without a mask */
        _mm_storeu_ps(to, _mm512_castps512_ps128(v));
    else if (tokens == 4 && at == 4) /* clang wants a literal number of the part */
        _mm_storeu_ps(to, _mm512_extractf32x4_ps(v, 1));
    else if (tokens == 4 && at == 8)
        _mm_storeu_ps(to, _mm512_extractf32x4_ps(v, 2));
    else if (tokens == 4 && at == 12)
        _mm_storeu_ps(to, _mm512_extractf32x4_ps(v, 3));
    else
        _mm512_mask_storeu_ps(to - at, (__mmask16)(((1u << tokens) - 1) << at), v);
}

/* Scores of queries q .. q + queries - 1 with tokens t .. t + tokens - 1; both counts are constants at every
 * call, and their product is at most 16. */
ALWAYS_INLINE void scores_part(const struct cached_rows *p, int t, int q, const int tokens, const int queries,
                               load_parts_fn *load, const int parts)
{
    enum { LANES = 16 };
    const uint8_t *row[16];
    const float *x[4];
    __m512 sum[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) sum[i] = _mm512_setzero_ps();
#pragma GCC unroll 16
    for (int i = 0; i < tokens; i++) row[i] = p->rows + (t + i) * p->row_bytes;
#pragma GCC unroll 4
    for (int j = 0; j < queries; j++) x[j] = p->q + (int64_t)(q + j) * p->dim;
    for (int64_t k = 0, dim = p->dim; k < dim; k += LANES * parts) {
#pragma GCC unroll 16
        for (int i = 0; i < tokens; i++) {
            __m512 key[2];
            load(row[i], k, key);
#pragma GCC unroll 2
            for (int c = 0; c < parts; c++)
#pragma GCC unroll 4
                for (int j = 0; j < queries; j++)
                    sum[j * tokens + i] = _mm512_fmadd_ps(key[c], _mm512_loadu_ps(x[j] + k + LANES * c),
                                                          sum[j * tokens + i]);
        }
    }
    const __m512 all = sums_of_lanes(sum);
#pragma GCC unroll 4
    for (int j = 0; j < queries; j++) store_lanes(p->s + (q + j) * p->s_stride + t, all, j * tokens, tokens);
}

/* Scores of queries q .. q + queries - 1 with all tokens, `tokens` at a time. */
ALWAYS_INLINE void scores_of(const struct cached_rows *p, int q, const int queries, const int tokens,
                             load_parts_fn *load, const int parts)
{
    int t = 0;
    for (; t + tokens <= p->n; t += tokens) {
        if (!q) prefetch_rows(p, t, tokens);
        scores_part(p, t, q, tokens, queries, load, parts);
    }
    for (; t < p->n; t++) scores_part(p, t, q, 1, queries, load, parts);
}

ALWAYS_INLINE void row_scores(const struct cached_rows *p, load_parts_fn *load, const int parts)
{
    int q = 0;
    for (; q + 4 <= p->queries; q += 4) scores_of(p, q, 4, 4, load, parts);
    if (p->queries - q == 3) scores_of(p, q, 3, 4, load, parts);
    if (p->queries - q == 2) scores_of(p, q, 2, 8, load, parts);
    if (p->queries - q == 1) scores_of(p, q, 1, 16, load, parts);
}

/* Add `vectors` vectors of the values, from index k on, to the results of queries q .. q + queries - 1; both
 * counts are constants at every call. */
ALWAYS_INLINE void values_part(const struct cached_rows *p, int k, int q, const int vectors,
                               const int queries, load_parts_fn *load, const int parts)
{
    enum { LANES = 16 };
    __m512 sum[4][8];
    float *o[4];
    const float *s[4];
#pragma GCC unroll 4
    for (int j = 0; j < queries; j++) {
        o[j] = p->o + (int64_t)(q + j) * p->dim + k;
        s[j] = p->s + (q + j) * p->s_stride;
#pragma GCC unroll 8
        for (int c = 0; c < vectors; c++) sum[j][c] = _mm512_loadu_ps(o[j] + LANES * c);
    }
    const uint8_t *row = p->rows;
    const int64_t row_bytes = p->row_bytes;
    const bool first = !k && !q && p->next;
    for (int64_t t = 0, n = p->n; t < n; t++, row += row_bytes) {
        __m512 value[8];
        if (first) prefetch_rows(p, (int)t, 1);
#pragma GCC unroll 8
        for (int c = 0; c < vectors; c += parts) load(row, k + LANES * c, value + c);
#pragma GCC unroll 4
        for (int j = 0; j < queries; j++) {
            const __m512 by = _mm512_set1_ps(s[j][t]);
#pragma GCC unroll 8
            for (int c = 0; c < vectors; c++) sum[j][c] = _mm512_fmadd_ps(by, value[c], sum[j][c]);
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < queries; j++)
#pragma GCC unroll 8
        for (int c = 0; c < vectors; c++) _mm512_storeu_ps(o[j] + LANES * c, sum[j][c]);
}

/* All dims of queries q .. q + queries - 1. `wide` (a constant): vectors at a time. */
ALWAYS_INLINE void values_of(const struct cached_rows *p, int q, const int queries, const int wide,
                             load_parts_fn *load, const int parts)
{
    enum { LANES = 16 };
    int k = 0;
    for (; k + LANES * wide <= p->dim; k += LANES * wide) values_part(p, k, q, wide, queries, load, parts);
    for (; k < p->dim; k += LANES * parts) values_part(p, k, q, parts, queries, load, parts);
}

ALWAYS_INLINE void row_values(const struct cached_rows *p, load_parts_fn *load, const int parts)
{
    int q = 0;
    for (; q + 4 <= p->queries; q += 4) values_of(p, q, 4, 4, load, parts);
    if (p->queries - q == 3) values_of(p, q, 3, 4, load, parts);
    if (p->queries - q == 2) values_of(p, q, 2, 4, load, parts);
    if (p->queries - q == 1) values_of(p, q, 1, 8, load, parts);
}

/* The two kernels of a format. `linkage`: static, or nothing. */
#define ROW_FUNCTIONS(linkage, scores, values, load, parts)                                                  \
    linkage void scores(const struct cached_rows *p)                                                         \
    {                                                                                                        \
        row_scores(p, load, parts);                                                                          \
    }                                                                                                        \
    linkage void values(const struct cached_rows *p)                                                         \
    {                                                                                                        \
        row_values(p, load, parts);                                                                          \
    }

/* The same, static, of a format `name` that loads 16 numbers at a time. */
#define ROW_FUNCTIONS_16(name, load16)                                                                       \
    ALWAYS_INLINE void name##_parts(const uint8_t *row, int64_t i, __m512 *out)                              \
    {                                                                                                        \
        *out = load16(row, i, 0xffff);                                                                       \
    }                                                                                                        \
    ROW_FUNCTIONS(static, name##_row_scores, name##_row_values, name##_parts, 1)

#endif
