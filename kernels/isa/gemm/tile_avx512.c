/* The small matrix product with AVX-512: 12 x 32 results in registers, per input two loads of B and twelve
 * broadcasts of A for 24 multiply-adds. */
#include "kernels/gemm_f32.h"
#include "kernels/isa/avx512.h"
#include "kernels/isa/isa_kernels.h"

enum { ROWS = 12, WIDTH = 32 };

/* rows and vectors are constants at every call. */
ALWAYS_INLINE void tile_part(const struct tile *t, int i, int j, const int rows, const int vectors)
{
    const float *a = t->a + i * t->lda, *b = t->b + j;
    const __mmask16 lanes[2] = { first_lanes(t->n - j), first_lanes(t->n - j - 16) };
    __m512 sum[ROWS][2];
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) sum[r][v] = _mm512_setzero_ps();
    for (int k = 0; k < t->k; k++, b += t->ldb) {
        __m512 x[2];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            gemm_f32_prefetch(t, b + 16 * v);
            x[v] = _mm512_maskz_loadu_ps(lanes[v], b + 16 * v);
        }
#pragma GCC unroll 12
        for (int r = 0; r < rows; r++) {
            const __m512 w = _mm512_set1_ps(a[r * t->lda + k]);
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) sum[r][v] = _mm512_fmadd_ps(w, x[v], sum[r][v]);
        }
    }
    float *c = t->c + i * t->ldc + j;
#pragma GCC unroll 12
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            float *at = c + r * t->ldc + 16 * v;
            if (t->add) sum[r][v] = _mm512_add_ps(sum[r][v], _mm512_maskz_loadu_ps(lanes[v], at));
            _mm512_mask_storeu_ps(at, lanes[v], sum[r][v]);
        }
    }
}

static void part_12x2(const struct tile *t, int i, int j)
{
    tile_part(t, i, j, 12, 2);
}

static void part_8x2(const struct tile *t, int i, int j)
{
    tile_part(t, i, j, 8, 2);
}

static void part_4x2(const struct tile *t, int i, int j)
{
    tile_part(t, i, j, 4, 2);
}

static void part_1x2(const struct tile *t, int i, int j)
{
    tile_part(t, i, j, 1, 2);
}

static void part_12x1(const struct tile *t, int i, int j)
{
    tile_part(t, i, j, 12, 1);
}

static void part_4x1(const struct tile *t, int i, int j)
{
    tile_part(t, i, j, 4, 1);
}

static void part_1x1(const struct tile *t, int i, int j)
{
    tile_part(t, i, j, 1, 1);
}

void tile_avx512(const struct tile *t)
{
    for (int j = 0; j < t->n; j += WIDTH) {
        const bool two = t->n - j > 16;
        int i = 0;
        for (; i + 12 <= t->m; i += 12) (two ? part_12x2 : part_12x1)(t, i, j);
        if (two && i + 8 <= t->m) part_8x2(t, i, j), i += 8;
        for (; i + 4 <= t->m; i += 4) (two ? part_4x2 : part_4x1)(t, i, j);
        for (; i < t->m; i++) (two ? part_1x2 : part_1x1)(t, i, j);
    }
}

static void pack_avx512(const float *x, int64_t x_stride, int tokens, int k, void *sliver)
{
    gemm_f32_pack(&VECTORS_AVX512, x, x_stride, tokens, k, sliver);
}

static void multiply_avx512(const struct gemm_step *p)
{
    gemm_f32_multiply(tile_avx512, 1, p);
}

const struct gemm_kernel GEMM_F32_AVX512 = GEMM_F32_TABLE(pack_avx512, multiply_avx512);
