/* The small matrix product with AVX2: 6 x 16 results in registers, per input two loads of B and six
 * broadcasts of A for twelve multiply-adds. */
#include "kernels/gemm_f32.h"
#include "kernels/isa/avx2.h"
#include "kernels/isa/isa_kernels.h"

enum { ROWS = 6, WIDTH = 16 };

/* rows and vectors are constants at every call. */
ALWAYS_INLINE void tile_part(const struct tile *t, int i, int j, const int rows, const int vectors)
{
    const float *a = t->a + i * t->lda, *b = t->b + j;
    __m256 sum[ROWS][2];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) sum[r][v] = _mm256_setzero_ps();
    for (int k = 0; k < t->k; k++, b += t->ldb) {
        __m256 x[2];
        gemm_f32_prefetch(t, b);
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) x[v] = _mm256_loadu_ps(b + 8 * v);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            const __m256 w = _mm256_broadcast_ss(a + r * t->lda + k);
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) sum[r][v] = _mm256_fmadd_ps(w, x[v], sum[r][v]);
        }
    }
    float *c = t->c + i * t->ldc + j;
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            float *at = c + r * t->ldc + 8 * v;
            if (t->add) sum[r][v] = _mm256_add_ps(sum[r][v], _mm256_loadu_ps(at));
            _mm256_storeu_ps(at, sum[r][v]);
        }
    }
}

static void part_6x2(const struct tile *t, int i, int j)
{
    tile_part(t, i, j, 6, 2);
}

static void part_4x2(const struct tile *t, int i, int j)
{
    tile_part(t, i, j, 4, 2);
}

static void part_1x2(const struct tile *t, int i, int j)
{
    tile_part(t, i, j, 1, 2);
}

static void part_6x1(const struct tile *t, int i, int j)
{
    tile_part(t, i, j, 6, 1);
}

static void part_1x1(const struct tile *t, int i, int j)
{
    tile_part(t, i, j, 1, 1);
}

/* The last columns, fewer than a vector. */
static void part_rest(const struct tile *t, int i, int j)
{
    for (; j < t->n; j++) {
        float sum = 0, *c = t->c + i * t->ldc + j;
        for (int k = 0; k < t->k; k++) sum += t->a[i * t->lda + k] * t->b[k * t->ldb + j];
        *c = t->add ? *c + sum : sum;
    }
}

void tile_avx2(const struct tile *t)
{
    int j = 0, i;
    for (; j + WIDTH <= t->n; j += WIDTH) {
        for (i = 0; i + 6 <= t->m; i += 6) part_6x2(t, i, j);
        for (; i + 4 <= t->m; i += 4) part_4x2(t, i, j);
        for (; i < t->m; i++) part_1x2(t, i, j);
    }
    if (j + 8 <= t->n) {
        for (i = 0; i + 6 <= t->m; i += 6) part_6x1(t, i, j);
        for (; i < t->m; i++) part_1x1(t, i, j);
        j += 8;
    }
    for (i = 0; i < t->m && j < t->n; i++) part_rest(t, i, j);
}

static void pack_avx2(const float *x, int64_t x_stride, int tokens, int k, void *sliver)
{
    gemm_f32_pack(&VECTORS_AVX2, x, x_stride, tokens, k, sliver);
}

static void multiply_avx2(const struct gemm_step *p)
{
    gemm_f32_multiply(tile_avx2, 8, p);
}

const struct gemm_kernel GEMM_F32_AVX2 = GEMM_F32_TABLE(pack_avx2, multiply_avx2);
