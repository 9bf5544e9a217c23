/* Integer GEMM with AVX-VNNI (vpdpbusd on 256-bit vectors), for processors without AVX-512. Sums start at
 * minus bias times the sum of the activations, so a bias costs nothing per row. */
#include "kernels/isa/gemm/gemm_int8_256.h"

ALWAYS_INLINE __m256i lane_sums(__m256i sums, __m256i q)
{
    return _mm256_dpbusd_avx_epi32(sums, _mm256_set1_epi8(1), q);
}

static void pack_avxvnni(const float *x, int64_t x_stride, int tokens, int k, void *sliver)
{
    pack_256(x, x_stride, tokens, k, sliver, lane_sums);
}

static void find_terms(const struct q8_sliver *x, int blocks, int vectors, const struct q8_kind *kind,
                       struct lane_terms *terms)
{
    const __m256i by = _mm256_set1_epi32(-kind->bias);
    for (int b = 0; b < blocks; b++, x++, terms++) {
        for (int v = 0; v < vectors; v++) {
            __m256i sum[2] = { _mm256_loadu_si256((const __m256i *)(x->sums[0] + LANES * v)),
                               _mm256_loadu_si256((const __m256i *)(x->sums[1] + LANES * v)) };
            if (kind->sub == 32) sum[0] = _mm256_add_epi32(sum[0], sum[1]);
            for (int h = 0; h < 32 / kind->sub; h++) {
                terms->start[h][v] = _mm256_mullo_epi32(sum[h], by);
                terms->sum[h][v] = _mm256_mul_ps(_mm256_loadu_ps(x->d + LANES * v),
                                                 _mm256_cvtepi32_ps(sum[h]));
            }
        }
    }
}

ALWAYS_INLINE void block_dots(const struct q8_group *w, const int8_t *x, const struct lane_terms *terms,
                              int r0, int v0, int h, const struct shape s, __m256 dots[6][4])
{
    const int steps = Q8_BLOCK / 4 / s.halves;
    __m256i sum[6][4];
#pragma GCC unroll 6
    for (int r = 0; r < s.rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < s.vectors; v++) sum[r][v] = terms->start[h][v0 + v];
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
            for (int v = 0; v < s.vectors; v++) sum[r][v] = _mm256_dpbusd_avx_epi32(sum[r][v], code, q[v]);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < s.rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < s.vectors; v++) dots[r][v] = _mm256_cvtepi32_ps(sum[r][v]);
}

/* 8-bit codes (wide) need no kernels of their own here. */
GROUP_KERNEL(many_32, .rows = 4, .vectors = 2, .halves = 1)
GROUP_KERNEL(many_32_min, .rows = 4, .vectors = 2, .halves = 1, .has_min = true)
GROUP_KERNEL(many_16, .rows = 2, .vectors = 2, .halves = 2)
GROUP_KERNEL(many_16_min, .rows = 2, .vectors = 2, .halves = 2, .has_min = true)
GROUP_KERNEL(eight_32, .rows = 4, .vectors = 1, .halves = 1)
GROUP_KERNEL(eight_32_min, .rows = 4, .vectors = 1, .halves = 1, .has_min = true)
GROUP_KERNEL(eight_16, .rows = 4, .vectors = 1, .halves = 2)
GROUP_KERNEL(eight_16_min, .rows = 4, .vectors = 1, .halves = 2, .has_min = true)

/* for one vector of tokens, or several */
static group_fn *kernel_for(int vectors, const struct q8_kind *kind)
{
    static group_fn *const KERNEL[2][2][2] = { { { eight_32, eight_32_min }, { eight_16, eight_16_min } },
                                               { { many_32, many_32_min }, { many_16, many_16_min } } };
    return KERNEL[vectors > 1][kind->sub == 16][kind->has_min];
}

static void chunk_avxvnni(const struct q8_chunk *p)
{
    chunk_256(p, find_terms, kernel_for(q8_vectors_for(p->tokens, LANES), p->kind));
}

static void unpack_avxvnni(const struct unpacking *u)
{
    u->f->unpack_q8(u->w, u->row_bytes, u->rows, u->k, u->group);
}

static void multiply_avxvnni(const struct gemm_step *p)
{
    q8_multiply(p, chunk_avxvnni);
}

static void multiply_few_avxvnni(const struct few_product *p)
{
    q8_multiply_few(p, unpack_avxvnni, chunk_avxvnni);
}

const struct gemm_kernel GEMM_INT8_AVXVNNI = GEMM_INT8_TABLE(7, 7, pack_avxvnni, unpack_avxvnni,
                                                             multiply_avxvnni, multiply_few_avxvnni);
