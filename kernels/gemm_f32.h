/* kernels/gemm_f32.h - the f32 GEMM kernel, built from the tile and transpose functions of an ISA. Panels are
 * decoded weight rows; slivers are transposed activations. */
#ifndef QDYNO_KERNELS_GEMM_F32_H
#define QDYNO_KERNELS_GEMM_F32_H

#include "kernels/kernel_set.h"

enum {
    GEMM_F32_MIN_ROWS = 17,
    GEMM_F32_ROWS = 48,
    GEMM_F32_KC = 512,   /* sliver 64 KiB, panel 96 KiB: both fit the second-level cache */
    GEMM_F32_MC = 512,   /* 1 MiB of packed activations per pass */
    GEMM_F32_AHEAD = 32, /* prefetch distance of a tile in inputs (4 KiB of a sliver) */
};

/* Prefetch the line of B that the tile needs GEMM_F32_AHEAD inputs later. The hardware prefetcher does not
 * follow this access pattern: without the prefetch, and with slivers evicted from the second-level cache,
 * bf16 prompts on a Zen 5 took 1.1 times (chunks of 16 panels) to 1.9 times (chunks of one) as long. */
static inline void gemm_f32_prefetch(const struct tile *t, const float *b)
{
    __builtin_prefetch(b + GEMM_F32_AHEAD * t->ldb);
}

/* Transpose k inputs of `tokens` rows to [k][SLIVER]. Missing tokens become 0. */
static inline void gemm_f32_pack(const struct vector_kernels *v, const float *x, int64_t x_stride, int tokens,
                                 int k, float *sliver)
{
    for (int64_t i = 0; tokens < SLIVER && i < (int64_t)k * SLIVER; i++) sliver[i] = 0;
    v->transpose(x, x_stride, tokens, k, sliver, SLIVER);
}

/* Decode rows of k weights to floats, padded to a multiple of DEPTH_STEP. */
static inline void gemm_f32_unpack(const struct unpacking *u)
{
    const int64_t stride = (u->k + DEPTH_STEP - 1) / DEPTH_STEP * DEPTH_STEP;
    for (int r = 0; r < u->rows; r++)
        u->f->decode(u->w + r * u->row_bytes, (float *)u->group + r * stride, u->k);
}

/* Multiply a panel by a sliver. The number of tokens is rounded up to a multiple of `lanes`, with which the
 * tile function is fastest; the sliver is padded with zeros. */
static inline void gemm_f32_multiply(tile_fn *tile, int lanes, const struct gemm_step *p)
{
    tile(&(struct tile){ .m = p->rows,
                         .n = (p->tokens + lanes - 1) / lanes * lanes,
                         .k = p->k,
                         .a = p->panel,
                         .lda = (p->k + DEPTH_STEP - 1) / DEPTH_STEP * DEPTH_STEP,
                         .b = p->sliver,
                         .ldb = SLIVER,
                         .c = p->c,
                         .ldc = SLIVER });
}

/* Initializer of the f32 GEMM kernel of an ISA. */
#define GEMM_F32_TABLE(pack_fn, multiply_fn)                                                                 \
    {                                                                                                        \
        .name = "f32", .min_rows = GEMM_F32_MIN_ROWS, .panel_rows = GEMM_F32_ROWS, .kc = GEMM_F32_KC,        \
        .mc = GEMM_F32_MC, .panel_step = 16 * DEPTH_STEP * sizeof(float),                                    \
        .sliver_step = SLIVER * DEPTH_STEP * sizeof(float), .pack = pack_fn, .unpack = gemm_f32_unpack,      \
        .multiply = multiply_fn                                                                              \
    }

#endif
