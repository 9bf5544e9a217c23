/* kernels/isa/gemm/gemm_int8.h - integer GEMM for all instruction sets: the memory layout of a weight panel
 * and of a sliver of activations.
 *
 * Lanes are tokens: a vector holds four neighbouring inputs of each of its tokens, and the weights' side is a
 * broadcast of four bytes, so weights are never shuffled. Sums inside 32 inputs are exact integers; scales
 * enter once per 32 (or 16) inputs, in f32. Each lane adds its blocks in order, chunk after chunk, so a
 * result does not depend on the number of tokens. */
#ifndef QDYNO_KERNELS_ISA_GEMM_GEMM_INT8_H
#define QDYNO_KERNELS_ISA_GEMM_GEMM_INT8_H

#include <string.h>

#include "kernels/kernel_set.h"

enum {
    INT8_PANEL_ROWS = 64,
    INT8_KC = 2048, /* models up to this width write results once */
    INT8_MC = 256,  /* 720 KiB of packed activations per pass: they fit the second-level cache */
    INT8_CHUNK =
        512, /* inputs of a sliver that stay in the first-level cache (20 KiB) for all rows of a panel */
    INT8_CHUNK_BLOCKS = INT8_CHUNK / Q8_BLOCK,
};

/* 32 inputs of up to 32 tokens. Several vectors are stored in pairs: all eight steps (each one vector wide)
 * of a pair are next to each other, so that a kernel's addresses are constants. sums: the sum of each token's
 * inputs, in the first and the second half of the block. */
struct q8_sliver {
    int8_t q[SLIVER * Q8_BLOCK];
    float d[SLIVER];
    int32_t sums[2][SLIVER];
};

/* The number of vectors of `lanes` lanes for `tokens` tokens: a power of two, so that fewer kernels are
 * needed. */
static inline int q8_vectors_for(int tokens, int lanes)
{
    const int vectors = (tokens + lanes - 1) / lanes;
    return vectors == 3 ? 4 : vectors;
}

/* Bytes from one step to the next, and the offset of the first step of a vector. */
static inline int q8_step(int vectors, int lanes)
{
    return MIN(vectors, 2) * lanes * 4;
}

static inline int q8_vector_at(int vector, int lanes)
{
    return (vector / 2 * 2 * Q8_BLOCK + vector % 2 * 4) * lanes;
}

/* Quantized rows before they are packed into slivers. */
struct q8_rows {
    int8_t q[SLIVER][INT8_CHUNK];
    float d[SLIVER][INT8_CHUNK_BLOCKS];
};

static inline void q8_rows_quantize(const struct vector_kernels *v, const float *x, int64_t x_stride,
                                    int tokens, int k, struct q8_rows *out)
{
    float sum[INT8_CHUNK_BLOCKS];
    for (int t = 0; t < tokens; t++) v->quantize_q8(x + t * x_stride, k, out->q[t], out->d[t], sum);
}

/* Pack block b of the rows, one token after another. Lanes without a token are zeroed first. */
static inline void q8_block_place(const struct q8_rows *in, int b, int tokens, int vectors, int lanes,
                                  struct q8_sliver *out)
{
    const int step = q8_step(vectors, lanes);
    if (tokens < lanes * vectors) memset(out, 0, sizeof *out);
    for (int t = 0; t < tokens; t++) {
        const int8_t *from = in->q[t] + b * Q8_BLOCK;
        int8_t *to = out->q + q8_vector_at(t / lanes, lanes) + t % lanes * 4;
        for (int i = 0; i < Q8_BLOCK; i += 4, to += step) memcpy(to, from + i, 4);
        out->d[t] = in->d[t][b];
    }
}

/* One call: a panel's rows times `blocks` blocks of a sliver; c is added to with `add`. Groups of 16 rows are
 * `step` blocks apart. */
struct q8_chunk {
    const struct q8_group *w;
    const struct q8_kind *kind;
    const struct q8_sliver *x;
    int blocks, step, rows, tokens;
    float *c;
    bool add;
};
typedef void q8_chunk_fn(const struct q8_chunk *p);

static inline bool q8_kind_same(const struct q8_kind *a, const struct q8_kind *b)
{
    return a->sub == b->sub && a->bias == b->bias && a->has_min == b->has_min && a->wide == b->wide;
}

/* The groups of a panel may be of several kinds: the gate and up matrices of a layer share a panel, and their
 * formats may differ. Each run of groups of one kind is multiplied on its own. */
static inline void q8_multiply(const struct gemm_step *p, q8_chunk_fn *chunk)
{
    const int blocks = p->k / Q8_BLOCK, groups = (p->rows + TILE_ROWS - 1) / TILE_ROWS;
    for (int first = 0, next; first < groups; first = next) {
        const struct q8_group *w = (const struct q8_group *)p->panel + (int64_t)first * blocks;
        for (next = first + 1; next < groups && q8_kind_same(&w->kind, &w[(next - first) * blocks].kind);)
            next++;
        for (int b = 0; b < blocks; b += INT8_CHUNK_BLOCKS)
            chunk(&(struct q8_chunk){ .w = w + b,
                                      .kind = &w->kind,
                                      .x = (const struct q8_sliver *)p->sliver + b,
                                      .blocks = MIN(blocks - b, (int)INT8_CHUNK_BLOCKS),
                                      .step = blocks,
                                      .rows = MIN(p->rows, next * TILE_ROWS) - first * TILE_ROWS,
                                      .tokens = p->tokens,
                                      .c = p->c + (int64_t)first * TILE_ROWS * SLIVER,
                                      .add = b > 0 });
    }
}

typedef void q8_unpack_fn(const struct unpacking *u);

static inline void q8_multiply_few(const struct few_product *p, q8_unpack_fn *unpack, q8_chunk_fn *chunk)
{
    const struct q8_group *w = p->u.group;
    for (int k = 0; k < p->u.k; k += INT8_CHUNK) {
        struct unpacking u = p->u;
        u.k = MIN(p->u.k - k, (int)INT8_CHUNK);
        u.w += format_span_bytes(u.format, k);
        unpack(&u);
        chunk(&(struct q8_chunk){ .w = w,
                                  .kind = &w->kind,
                                  .x = (const struct q8_sliver *)p->sliver + k / Q8_BLOCK,
                                  .blocks = u.k / Q8_BLOCK,
                                  .step = u.k / Q8_BLOCK,
                                  .rows = u.rows,
                                  .tokens = p->tokens,
                                  .c = p->c,
                                  .add = k > 0 });
    }
}

/* Initializer of the integer GEMM kernel of an ISA. */
#define GEMM_INT8_TABLE(at_least, at_least_wide, pack_fn, unpack_fn, multiply_fn, few_fn)                    \
    {                                                                                                        \
        .name = "int8_dot", .min_rows = at_least, .min_rows_wide = at_least_wide,                            \
        .panel_rows = INT8_PANEL_ROWS, .kc = INT8_KC, .mc = INT8_MC, .panel_step = sizeof(struct q8_group),  \
        .sliver_step = sizeof(struct q8_sliver), .pack = pack_fn, .unpack = unpack_fn,                       \
        .multiply = multiply_fn, .multiply_few = few_fn, .few_rows = TILE_ROWS, .few_depth = INT8_CHUNK      \
    }

#endif
