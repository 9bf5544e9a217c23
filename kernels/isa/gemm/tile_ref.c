/* The small f32 matrix product in plain C: runs everywhere, and tests compare the vector versions with it. */
#include "kernels/gemm_f32.h"
#include "kernels/isa/isa_kernels.h"

void tile_ref(const struct tile *t)
{
    enum { WIDTH = 16 };
    for (int i = 0; i < t->m; i++) {
        for (int j0 = 0; j0 < t->n; j0 += WIDTH) {
            const int width = MIN((int)WIDTH, t->n - j0);
            float sum[WIDTH] = { 0 };
            for (int k = 0; k < t->k; k++) {
                const float a = t->a[i * t->lda + k], *b = t->b + k * t->ldb + j0;
                for (int j = 0; j < width; j++) sum[j] += a * b[j];
            }
            float *c = t->c + i * t->ldc + j0;
            for (int j = 0; j < width; j++) c[j] = t->add ? c[j] + sum[j] : sum[j];
        }
    }
}

static void pack_ref(const float *x, int64_t x_stride, int tokens, int k, void *sliver)
{
    gemm_f32_pack(&VECTORS_REF, x, x_stride, tokens, k, sliver);
}

static void multiply_ref(const struct gemm_step *p)
{
    gemm_f32_multiply(tile_ref, 1, p);
}

const struct gemm_kernel GEMM_F32_REF = GEMM_F32_TABLE(pack_ref, multiply_ref);
