/* kernels/gemm_f32.h - the f32 matrix-product scheme on top of an ISA's tile and transpose: panels are
 * decoded rows, slivers are transposed activations. */
#ifndef QDYNO_KERNELS_GEMM_F32_H
#define QDYNO_KERNELS_GEMM_F32_H

#include "kernels/kernel_set.h"

enum {
    GEMM_F32_MIN_ROWS = 17,
    GEMM_F32_ROWS = 48,
    GEMM_F32_KC = 512, /* sliver 64 KiB, panel 96 KiB: both stay in the second cache */
    GEMM_F32_MC = 512, /* 1 MiB of packed activations at a time */
};

/* k inputs of `tokens` rows to [k][SLIVER]; the slots of missing tokens are zeroed first. */
static inline void gemm_f32_pack(const struct vector_kernels *v, const float *x, int64_t x_stride, int tokens,
                                 int k, float *sliver)
{
    for (int64_t i = 0; tokens < SLIVER && i < (int64_t)k * SLIVER; i++) sliver[i] = 0;
    v->transpose(x, x_stride, tokens, k, sliver, SLIVER);
}

static inline void gemm_f32_multiply(tile_fn *tile, const float *panel, const float *sliver, int rows,
                                     int tokens, int k, float *c)
{
    tile(&(struct tile){ .m = rows,
                         .n = tokens,
                         .k = k,
                         .a = panel,
                         .lda = k,
                         .b = sliver,
                         .ldb = SLIVER,
                         .c = c,
                         .ldc = SLIVER });
}

#endif
