/* kernels/isa/attention/rows_avx2.h - attention of a few queries with AVX2, straight from stored K or V rows
 * (struct cached_rows). See rows_avx512.h: the same with half the lanes and half the registers. */
#ifndef QDYNO_KERNELS_ISA_ATTENTION_ROWS_AVX2_H
#define QDYNO_KERNELS_ISA_ATTENTION_ROWS_AVX2_H

#include "kernels/isa/avx2.h"

/* Convert the 16 numbers from index i of a row, a multiple of 16. */
typedef void load_two_fn(const uint8_t *row, int64_t i, __m256 out[2]);

/* Prefetch what corresponds to rows t .. t + rows - 1 in the run of rows that follows. */
ALWAYS_INLINE void prefetch_rows(const struct cached_rows *p, int t, int rows)
{
    if (!p->next) return;
    const char *at = (const char *)p->next + t * p->row_bytes;
    for (int64_t i = 0; i < rows * p->row_bytes; i += LINE_BYTES) _mm_prefetch(at + i, _MM_HINT_T0);
}

/* One of the rounds of sums_of_lanes, as in rows_avx512.h. `second`, a constant: the lanes of b. */
#define ADD_PAIRS(a, b, second, crossed) _mm256_add_ps(_mm256_blend_ps(a, b, second), crossed)

/* Lane i of the result is the sum of all lanes of v[i], added in the same order for every i. */
ALWAYS_INLINE __m256 sums_of_lanes(const __m256 v[8])
{
    __m256 t[4], u[2];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        t[i] = ADD_PAIRS(v[i], v[i + 4], 0xf0, _mm256_permute2f128_ps(v[i], v[i + 4], 0x21));
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        u[i] = ADD_PAIRS(t[i], t[i + 2], 0xcc, _mm256_shuffle_ps(t[i], t[i + 2], 0x4e));
    const __m256 odd = _mm256_blend_ps(u[1], u[0], 0xaa); /* what the last round adds, swapped */
    return ADD_PAIRS(u[0], u[1], 0xaa, _mm256_permute_ps(odd, 0xb1));
}

/* Scores of queries q .. q + queries - 1 with tokens t .. t + tokens - 1; both counts are constants at every
 * call, and their product is at most 8. */
ALWAYS_INLINE void scores_part(const struct cached_rows *p, int t, int q, const int tokens, const int queries,
                               load_two_fn *load)
{
    enum { LANES = 8 };
    const uint8_t *row[8];
    const float *x[4];
    float out[8];
    __m256 sum[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) sum[i] = _mm256_setzero_ps();
#pragma GCC unroll 8
    for (int i = 0; i < tokens; i++) row[i] = p->rows + (t + i) * p->row_bytes;
#pragma GCC unroll 4
    for (int j = 0; j < queries; j++) x[j] = p->q + (int64_t)(q + j) * p->dim;
    for (int64_t k = 0, dim = p->dim; k < dim; k += 2 * LANES) {
#pragma GCC unroll 8
        for (int i = 0; i < tokens; i++) {
            __m256 key[2];
            load(row[i], k, key);
#pragma GCC unroll 2
            for (int c = 0; c < 2; c++)
#pragma GCC unroll 4
                for (int j = 0; j < queries; j++)
                    sum[j * tokens + i] = _mm256_fmadd_ps(key[c], _mm256_loadu_ps(x[j] + k + LANES * c),
                                                          sum[j * tokens + i]);
        }
    }
    _mm256_storeu_ps(out, sums_of_lanes(sum));
#pragma GCC unroll 4
    for (int j = 0; j < queries; j++)
#pragma GCC unroll 8
        for (int i = 0; i < tokens; i++) p->s[(q + j) * p->s_stride + t + i] = out[j * tokens + i];
}

/* Scores of queries q .. q + queries - 1 with all tokens, `tokens` at a time. */
ALWAYS_INLINE void scores_of(const struct cached_rows *p, int q, const int queries, const int tokens,
                             load_two_fn *load)
{
    int t = 0;
    for (; t + tokens <= p->n; t += tokens) {
        if (!q) prefetch_rows(p, t, tokens);
        scores_part(p, t, q, tokens, queries, load);
    }
    for (; t < p->n; t++) scores_part(p, t, q, 1, queries, load);
}

ALWAYS_INLINE void row_scores(const struct cached_rows *p, load_two_fn *load)
{
    int q = 0;
    for (; q + 4 <= p->queries; q += 4) scores_of(p, q, 4, 2, load);
    if (p->queries - q == 3) scores_of(p, q, 3, 2, load);
    if (p->queries - q == 2) scores_of(p, q, 2, 4, load);
    if (p->queries - q == 1) scores_of(p, q, 1, 8, load);
}

/* Add `vectors` (2 or 4) vectors of the values, from index k on, to the results of queries q .. q + queries -
 * 1; both counts are constants at every call. */
ALWAYS_INLINE void values_part(const struct cached_rows *p, int k, int q, const int vectors,
                               const int queries, load_two_fn *load)
{
    enum { LANES = 8 };
    __m256 sum[4][4];
    float *o[4];
    const float *s[4];
#pragma GCC unroll 4
    for (int j = 0; j < queries; j++) {
        o[j] = p->o + (int64_t)(q + j) * p->dim + k;
        s[j] = p->s + (q + j) * p->s_stride;
#pragma GCC unroll 4
        for (int c = 0; c < vectors; c++) sum[j][c] = _mm256_loadu_ps(o[j] + LANES * c);
    }
    const uint8_t *row = p->rows;
    const int64_t row_bytes = p->row_bytes;
    const bool first = !k && !q && p->next;
    for (int64_t t = 0, n = p->n; t < n; t++, row += row_bytes) {
        __m256 value[4];
        if (first) prefetch_rows(p, (int)t, 1);
#pragma GCC unroll 2
        for (int c = 0; c < vectors; c += 2) load(row, k + LANES * c, value + c);
#pragma GCC unroll 4
        for (int j = 0; j < queries; j++) {
            const __m256 by = _mm256_set1_ps(s[j][t]);
#pragma GCC unroll 4
            for (int c = 0; c < vectors; c++) sum[j][c] = _mm256_fmadd_ps(by, value[c], sum[j][c]);
        }
    }
#pragma GCC unroll 4
    for (int j = 0; j < queries; j++)
#pragma GCC unroll 4
        for (int c = 0; c < vectors; c++) _mm256_storeu_ps(o[j] + LANES * c, sum[j][c]);
}

/* All dims of queries q .. q + queries - 1. `wide` (a constant): vectors at a time. */
ALWAYS_INLINE void values_of(const struct cached_rows *p, int q, const int queries, const int wide,
                             load_two_fn *load)
{
    enum { LANES = 8 };
    int k = 0;
    for (; k + LANES * wide <= p->dim; k += LANES * wide) values_part(p, k, q, wide, queries, load);
    for (; k < p->dim; k += 2 * LANES) values_part(p, k, q, 2, queries, load);
}

ALWAYS_INLINE void row_values(const struct cached_rows *p, load_two_fn *load)
{
    int q = 0;
    for (; q + 4 <= p->queries; q += 4) values_of(p, q, 4, 2, load);
    if (p->queries - q == 3) values_of(p, q, 3, 2, load);
    if (p->queries - q == 2) values_of(p, q, 2, 4, load);
    if (p->queries - q == 1) values_of(p, q, 1, 4, load);
}

/* The two kernels of a format. `linkage`: static, or nothing. */
#define ROW_FUNCTIONS(linkage, scores, values, load)                                                         \
    linkage void scores(const struct cached_rows *p)                                                         \
    {                                                                                                        \
        row_scores(p, load);                                                                                 \
    }                                                                                                        \
    linkage void values(const struct cached_rows *p)                                                         \
    {                                                                                                        \
        row_values(p, load);                                                                                 \
    }

/* The same, static, of a format `name` that loads 8 numbers at a time. */
#define ROW_FUNCTIONS_8(name, load8)                                                                         \
    ALWAYS_INLINE void name##_two(const uint8_t *row, int64_t i, __m256 out[2])                              \
    {                                                                                                        \
        out[0] = load8(row, i);                                                                              \
        out[1] = load8(row, i + 8);                                                                          \
    }                                                                                                        \
    ROW_FUNCTIONS(static, name##_row_scores, name##_row_values, name##_two)

#endif
