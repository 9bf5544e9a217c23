/* Integer GEMM with AVX2. vpmaddubsw produces 16-bit sums of two products, and sums stay in 16 bits for a
 * whole block (or half of one that has its own scale). They start at minus bias times the sum of the
 * activations, so the final value is the sum of (code - bias) * q, at most 16 * 16 * 127 or 8 * 32 * 127 =
 * 32512 per lane. Intermediate values may wrap around. Codes of 8 bits are processed as two halves of 4 bits.
 */
#include <assert.h>

#include "kernels/isa/gemm/gemm_int8_256.h"

enum { HALF = 16 }; /* weight of the upper half of a byte */

ALWAYS_INLINE __m256i lane_sums(__m256i sums, __m256i q)
{
    return _mm256_add_epi16(sums, _mm256_maddubs_epi16(_mm256_set1_epi8(1), q));
}

static void pack_avx2(const float *x, int64_t x_stride, int tokens, int k, void *sliver)
{
    pack_256(x, x_stride, tokens, k, sliver, lane_sums);
}

static void find_terms(const struct q8_sliver *x, int blocks, int vectors, const struct q8_kind *kind,
                       struct lane_terms *terms)
{
    const __m256i by = _mm256_set1_epi16((short)(kind->wide ? -kind->bias / HALF : -kind->bias));
    for (int b = 0; b < blocks; b++, x++, terms++) {
        for (int v = 0; v < vectors; v++) {
            __m256i sum[2] = { _mm256_loadu_si256((const __m256i *)(x->sums[0] + LANES * v)),
                               _mm256_loadu_si256((const __m256i *)(x->sums[1] + LANES * v)) };
            if (kind->sub == 32) sum[0] = _mm256_add_epi16(sum[0], sum[1]);
            for (int h = 0; h < 32 / kind->sub; h++) {
                const __m256i both = _mm256_madd_epi16(sum[h], _mm256_set1_epi16(1));
                terms->start[h][v] = _mm256_mullo_epi16(sum[h], by);
                terms->sum[h][v] = _mm256_mul_ps(_mm256_loadu_ps(x->d + LANES * v), _mm256_cvtepi32_ps(both));
            }
        }
    }
}

/* sums + products of four. */
ALWAYS_INLINE __m256i sums_add(__m256i sums, __m256i code, __m256i q)
{
    return in_order(_mm256_add_epi16(sums, _mm256_maddubs_epi16(code, q)));
}

ALWAYS_INLINE void block_dots(const struct q8_group *w, const int8_t *x, const struct lane_terms *terms,
                              int r0, int v0, int h, const struct shape s, __m256 dots[6][4])
{
    const int steps = Q8_BLOCK / 4 / s.halves;
    __m256i sum[6][4], upper[6][4];
#pragma GCC unroll 6
    for (int r = 0; r < s.rows; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < s.vectors; v++) {
            sum[r][v] = s.wide ? _mm256_setzero_si256() : terms->start[h][v0 + v];
            if (s.wide) upper[r][v] = terms->start[h][v0 + v];
        }
    }
#pragma GCC unroll 8
    for (int i = h * steps; i < (h + 1) * steps; i++) {
        __m256i q[4];
#pragma GCC unroll 4
        for (int v = 0; v < s.vectors; v++)
            q[v] = _mm256_loadu_si256((const __m256i *)(x + (i * s.vectors + v) * VECTOR));
#pragma GCC unroll 6
        for (int r = 0; r < s.rows; r++) {
            const __m256i code = weights_load(&w->code[r0 + r][4 * i]);
#pragma GCC unroll 4
            for (int v = 0; v < s.vectors; v++) sum[r][v] = sums_add(sum[r][v], code, q[v]);
            if (!s.wide) continue;
            const __m256i high = weights_load(&w->high[r0 + r][4 * i]);
#pragma GCC unroll 4
            for (int v = 0; v < s.vectors; v++) upper[r][v] = sums_add(upper[r][v], high, q[v]);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < s.rows; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < s.vectors; v++) {
            __m256i both = _mm256_madd_epi16(sum[r][v], _mm256_set1_epi16(1));
            if (s.wide)
                both = _mm256_add_epi32(both, _mm256_madd_epi16(upper[r][v], _mm256_set1_epi16(HALF)));
            dots[r][v] = _mm256_cvtepi32_ps(both);
        }
    }
}

/* Sixteen registers hold eight sums, or four sums and their upper halves (wide). */
GROUP_KERNEL(many_32, .rows = 4, .vectors = 2, .halves = 1)
GROUP_KERNEL(many_32_min, .rows = 4, .vectors = 2, .halves = 1, .has_min = true)
GROUP_KERNEL(many_16, .rows = 2, .vectors = 2, .halves = 2)
GROUP_KERNEL(many_16_min, .rows = 2, .vectors = 2, .halves = 2, .has_min = true)
GROUP_KERNEL(many_wide, .rows = 2, .vectors = 2, .halves = 1, .wide = true)
GROUP_KERNEL(many_wide_16, .rows = 2, .vectors = 2, .halves = 2, .wide = true)
GROUP_KERNEL(eight_32, .rows = 4, .vectors = 1, .halves = 1)
GROUP_KERNEL(eight_32_min, .rows = 4, .vectors = 1, .halves = 1, .has_min = true)
GROUP_KERNEL(eight_16, .rows = 4, .vectors = 1, .halves = 2)
GROUP_KERNEL(eight_16_min, .rows = 4, .vectors = 1, .halves = 2, .has_min = true)
GROUP_KERNEL(eight_wide, .rows = 4, .vectors = 1, .halves = 1, .wide = true)
GROUP_KERNEL(eight_wide_16, .rows = 4, .vectors = 1, .halves = 2, .wide = true)

/* for one vector of tokens, or several */
static group_fn *kernel_for(int vectors, const struct q8_kind *kind)
{
    static group_fn *const WIDE[2][2] = { { eight_wide, eight_wide_16 }, { many_wide, many_wide_16 } };
    static group_fn *const KERNEL[2][2][2] = { { { eight_32, eight_32_min }, { eight_16, eight_16_min } },
                                               { { many_32, many_32_min }, { many_16, many_16_min } } };
    assert(!kind->wide || (!kind->has_min && kind->bias % HALF == 0));
    return kind->wide ? WIDE[vectors > 1][kind->sub == 16]
                      : KERNEL[vectors > 1][kind->sub == 16][kind->has_min];
}

static void chunk_avx2(const struct q8_chunk *p)
{
    chunk_256(p, find_terms, kernel_for(q8_vectors_for(p->tokens, LANES), p->kind));
}

static void unpack_avx2(const struct unpacking *u)
{
    struct q8_group *g = u->group;
    u->f->unpack_q8(u->w, u->row_bytes, u->rows, u->k, u->group);
    if (!g->kind.wide) return;
    const __m256i mask = _mm256_set1_epi8(HALF - 1);
    for (int64_t b = 0; b < u->k / Q8_BLOCK; b++) {
        for (int r = 0; r < TILE_ROWS; r++) {
            const __m256i code = _mm256_loadu_si256((const __m256i *)g[b].code[r]);
            _mm256_storeu_si256((__m256i *)g[b].code[r], _mm256_and_si256(code, mask));
            _mm256_storeu_si256((__m256i *)g[b].high[r], _mm256_and_si256(_mm256_srli_epi16(code, 4), mask));
        }
    }
}

static void multiply_avx2(const struct gemm_step *p)
{
    q8_multiply(p, chunk_avx2);
}

static void multiply_few_avx2(const struct few_product *p)
{
    q8_multiply_few(p, unpack_avx2, chunk_avx2);
}

const struct gemm_kernel GEMM_INT8_AVX2 = GEMM_INT8_TABLE(7, 20, pack_avx2, unpack_avx2, multiply_avx2,
                                                          multiply_few_avx2);
