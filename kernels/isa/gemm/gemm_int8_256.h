/* kernels/isa/gemm/gemm_int8_256.h - integer GEMM with 256-bit vectors, for AVX2 and AVX-VNNI: packing, and
 * everything except the integer sums of one block (block_dots), which each of them supplies. */
#ifndef QDYNO_KERNELS_ISA_GEMM_GEMM_INT8_256_H
#define QDYNO_KERNELS_ISA_GEMM_GEMM_INT8_256_H

#include "kernels/isa/avx2.h"
#include "kernels/isa/gemm/gemm_int8.h"
#include "kernels/isa/isa_kernels.h"

enum { LANES = 8, VECTOR = 32 };

/* Terms that depend on the lane but not on the row: the start of integer sums (-bias * sum of activations, in
 * the layout of the including file), and the factor of minima. */
struct lane_terms {
    __m256i start[2][SLIVER / LANES];
    __m256 sum[2][SLIVER / LANES];
};

/* Constants of one kernel: rows and vectors computed at once; halves: number of scales in a block of 32. */
struct shape {
    int rows, vectors, halves;
    bool has_min, wide;
};

/* Transpose 8 tokens x 32 bytes to 8 vectors with four bytes of each token. */
static inline void turn_8_tokens(const int8_t (*rows)[INT8_CHUNK], int8_t *out, int step)
{
    __m256i v[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) v[i] = _mm256_loadu_si256((const __m256i *)rows[i]);
    turn_8x8(v);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) _mm256_storeu_si256((__m256i *)(out + i * step), v[i]);
}

static inline void block_place_256(const struct q8_rows *in, int b, int tokens, int vectors,
                                   struct q8_sliver *out)
{
    if (tokens != LANES * vectors) {
        q8_block_place(in, b, tokens, vectors, LANES, out);
        return;
    }
    for (int v = 0; v < vectors; v++)
        turn_8_tokens((const int8_t(*)[INT8_CHUNK])(in->q[LANES * v] + b * Q8_BLOCK),
                      out->q + q8_vector_at(v, LANES), q8_step(vectors, LANES));
    for (int t = 0; t < tokens; t++) out->d[t] = in->d[t][b];
}

/* Add the four inputs of each lane to `sums`, in the lane width of the ISA's products. */
typedef __m256i lane_sums_fn(__m256i sums, __m256i q);

ALWAYS_INLINE void pack_256(const float *x, int64_t x_stride, int tokens, int k, struct q8_sliver *out,
                            lane_sums_fn *lane_sums)
{
    enum { STEPS = Q8_BLOCK / 4 };
    const int vectors = q8_vectors_for(tokens, LANES);
    struct q8_rows rows;
    for (int i = 0; i < k; i += INT8_CHUNK) {
        const int some = MIN(k - i, (int)INT8_CHUNK);
        q8_rows_quantize(&VECTORS_AVX2, x + i, x_stride, tokens, some, &rows);
        for (int b = 0; b < some / Q8_BLOCK; b++, out++) {
            block_place_256(&rows, b, tokens, vectors, out);
            for (int v = 0; v < vectors; v++) {
                __m256i sum[2] = { _mm256_setzero_si256(), _mm256_setzero_si256() };
                for (int s = 0; s < STEPS; s++) {
                    const int8_t *q = out->q + q8_vector_at(v, LANES) + s * q8_step(vectors, LANES);
                    sum[2 * s / STEPS] = lane_sums(sum[2 * s / STEPS],
                                                   _mm256_loadu_si256((const __m256i *)q));
                }
                for (int h = 0; h < 2; h++)
                    _mm256_storeu_si256((__m256i *)(out->sums[h] + LANES * v), sum[h]);
            }
        }
    }
}

ALWAYS_INLINE __m256i weights_load(const uint8_t *code)
{
    int four;
    memcpy(&four, code, sizeof four);
    return _mm256_set1_epi32(four);
}

/* Integer sums of rows r0 .. and vectors v0 .. over the inputs of half h (of s.halves), converted to floats.
 */
typedef void block_dots_fn(const struct q8_group *w, const int8_t *q, const struct lane_terms *terms, int r0,
                           int v0, int h, const struct shape s, __m256 dots[6][4]);

/* sums[row][lane] += the products of one block. These sums are in memory, because integer sums need the
 * registers. */
ALWAYS_INLINE void block_add(const struct q8_group *w, const struct q8_sliver *x,
                             const struct lane_terms *terms, int r0, int v0, const struct shape s,
                             block_dots_fn *block_dots, float (*sums)[SLIVER])
{
    __m256 scaled[6][4];
#pragma GCC unroll 2
    for (int h = 0; h < s.halves; h++) {
        __m256 dots[6][4];
        block_dots(w, x->q + v0 * LANES * Q8_BLOCK, terms, r0, v0, h, s, dots);
#pragma GCC unroll 6
        for (int r = 0; r < s.rows; r++) {
            const __m256 scale = _mm256_broadcast_ss(&w->scale[h][r0 + r]);
#pragma GCC unroll 4
            for (int v = 0; v < s.vectors; v++)
                scaled[r][v] = h ? _mm256_fmadd_ps(dots[r][v], scale, scaled[r][v])
                                 : _mm256_mul_ps(dots[r][v], scale);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < s.rows; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < s.vectors; v++) {
            float *at = sums[r0 + r] + LANES * (v0 + v);
            __m256 sum = _mm256_fmadd_ps(scaled[r][v], _mm256_loadu_ps(x->d + LANES * (v0 + v)),
                                         _mm256_loadu_ps(at));
            if (s.has_min) {
                sum = _mm256_fmadd_ps(_mm256_broadcast_ss(&w->min[0][r0 + r]), terms->sum[0][v0 + v], sum);
                if (s.halves == 2)
                    sum = _mm256_fmadd_ps(_mm256_broadcast_ss(&w->min[1][r0 + r]), terms->sum[1][v0 + v],
                                          sum);
            }
            _mm256_storeu_ps(at, sum);
        }
    }
}

/* Multiply 16 rows (missing ones are zeros in the panel) by all `vectors` vectors of the sliver. */
ALWAYS_INLINE void group_multiply(const struct q8_chunk *p, const struct q8_group *w,
                                  const struct lane_terms *terms, int vectors, float *c, const struct shape s,
                                  block_dots_fn *block_dots)
{
    float sums[TILE_ROWS][SLIVER];
    memset(sums, 0, sizeof sums);
    for (int v = 0; v < vectors; v += s.vectors) {
        for (int r = 0; r < TILE_ROWS; r += s.rows) {
            const struct q8_sliver *x = p->x;
            for (int b = 0; b < p->blocks; b++) block_add(w + b, x + b, terms + b, r, v, s, block_dots, sums);
        }
    }
    for (int r = 0; r < TILE_ROWS; r++, c += SLIVER)
        for (int v = 0; v < vectors * LANES; v += LANES) {
            const __m256 sum = _mm256_loadu_ps(sums[r] + v);
            _mm256_storeu_ps(c + v, p->add ? _mm256_add_ps(sum, _mm256_loadu_ps(c + v)) : sum);
        }
}

typedef void group_fn(const struct q8_chunk *p, const struct q8_group *w, const struct lane_terms *terms,
                      int vectors, float *c);

#define GROUP_KERNEL(name, ...)                                                                              \
    static void name(const struct q8_chunk *p, const struct q8_group *w, const struct lane_terms *t,         \
                     int vectors, float *c)                                                                  \
    {                                                                                                        \
        group_multiply(p, w, t, vectors, c, (struct shape){ __VA_ARGS__ }, block_dots);                      \
    }

typedef void find_terms_fn(const struct q8_sliver *x, int blocks, int vectors, const struct q8_kind *kind,
                           struct lane_terms *terms);

static inline void chunk_256(const struct q8_chunk *p, find_terms_fn *find_terms, group_fn *run)
{
    const int vectors = q8_vectors_for(p->tokens, LANES);
    const struct q8_group *w = p->w;
    struct lane_terms terms[INT8_CHUNK_BLOCKS];
    find_terms(p->x, p->blocks, vectors, p->kind, terms);
    for (int r = 0; r < p->rows; r += TILE_ROWS, w += p->step)
        run(p, w, terms, vectors, p->c + (int64_t)r * SLIVER);
}

#endif
