/* kernels/cpu.h - the inside of the CPU backend, shared by its operations. */
#ifndef QDYNO_KERNELS_CPU_H
#define QDYNO_KERNELS_CPU_H

#include <string.h>

#include "kernels/backend.h"
#include "kernels/kernel_set.h"

/* Every thread's own memory: a weight panel and its products, or attention's tiles. */
struct scratch_plan {
    int64_t shared_bytes; /* packed or quantized activations of one group of products */
    int64_t thread_bytes; /* per member */
};

struct cpu {
    struct backend base;
    struct kernel_set k;
    bool hands_off;           /* kernels_hands_off() */
    struct backend_work work; /* what was reserved, and what is bound */
    struct scratch_plan plan;
    int64_t huge_wanted_bytes, copied_bytes, repacked_bytes;
    uint32_t inputs;  /* 1 << enum input_kind of the weights */
    uint8_t *shared;  /* plan.shared_bytes */
    uint8_t *threads; /* options.threads * plan.thread_bytes */
};

enum {
    HEAD_DIM_MAX = 1024,
    /* Work (in elements passed over) below which starting the threads costs more than it saves; a weight of a
     * dot and a number that is only compared are about a quarter of an element, a multiply-add of a panel
     * product a sixteenth. */
    PARALLEL_MIN = 16384,
    DOTS_AN_ELEMENT = 4,
    PRODUCTS_AN_ELEMENT = 16,
    COMPARED_AN_ELEMENT = 4,
};

enum precision precision_for(enum precision wanted, const struct format *f); /* AUTO resolved */
/* Which scheme multiplies: NULL for dots from the stored bytes (small n). */
const struct gemm_kernel *matmul_scheme(const struct kernel_set *k, const struct backend_options *o,
                                        const struct format *f, enum input_kind kind, int n);

/* rows: of floats; codes: rows of 8-bit codes under one scale. */
int64_t gemv_shared_bytes(int64_t rows, int64_t codes, int64_t cols);
int64_t gemm_shared_bytes(const struct gemm_kernel *g, int64_t rows, int64_t cols);
int64_t gemm_thread_bytes(const struct gemm_kernel *g);
int64_t attention_thread_bytes(const struct kernel_set *k, int head_dim);
int64_t attention_shared_bytes(int threads, int head_dim);

/* The operations of struct backend_ops; base is a struct cpu. */
void cpu_gather(struct backend *base, const struct gather *g);
void cpu_matmul(struct backend *base, const struct matmul *m, int count);
void cpu_gated(struct backend *base, const struct gated *p);
void cpu_norm(struct backend *base, const struct norm *p);
void cpu_rope(struct backend *base, const struct rope *p);
void cpu_kv_store(struct backend *base, const struct kv_store *p);
void cpu_attention(struct backend *base, const struct attention *p);
void cpu_activate(struct backend *base, const struct activate *p);
void cpu_top(struct backend *base, const struct top *p);

/* n weights of f into the format in which they are held (another one). */
void weight_repack(struct cpu *b, const struct format *f, const void *in, void *out, int64_t n);

/* `count` products of the same x, n and x_stride. */
void gemv_run(struct cpu *b, const struct matmul *m, int count);
void gemm_run(struct cpu *b, const struct gemm_kernel *g, const struct matmul *m, int count);

/* Both products of the pair in one go; gemm_can_gate says whether this pair can. */
bool gemm_can_gate(const struct gemm_kernel *g, const struct gated *p);
void gemm_run_gated(struct cpu *b, const struct gemm_kernel *g, const struct gated *p);

/* What the drivers multiply a row's codes by: 1, or the f32 behind its blocks. */
static inline float format_row_scale(const struct format *f, const void *row, int64_t cols)
{
    float scale = 1;
    if (f->row_tail_bytes) memcpy(&scale, (const uint8_t *)row + format_span_bytes(f, cols), sizeof scale);
    return scale;
}

static inline void *cpu_thread_scratch(const struct cpu *b, int member)
{
    return b->threads + member * b->plan.thread_bytes;
}

static inline int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static inline bool cpu_alone(int64_t elements)
{
    return elements < PARALLEL_MIN;
}

/* Run on the pool when the work is worth it, else on the caller alone. */
static inline void cpu_run(struct cpu *b, int64_t elements, threadpool_fn *fn, void *arg)
{
    if (cpu_alone(elements))
        threadpool_run_alone(b->base.pool, fn, arg);
    else
        threadpool_run(b->base.pool, fn, arg);
}

/* What a member holds of work that is handed out: [next, end). Starts at { 0 }. */
struct lot {
    int64_t next, end;
};

/* Another lot, of `all` things: a fair share of half of what is left, or `least`. Long at first, as what is
 * asked for ahead of a lot's end was asked for in vain; in the end nobody waits long for a slower member.
 * False: nothing is left. */
static inline bool lot_take(struct cpu *b, struct lot *l, int64_t all, int64_t least, int size)
{
    const int64_t share = MAX((all - l->end) / (2 * size), least);
    l->next = threadpool_next(b->base.pool, share);
    l->end = MIN(l->next + share, all);
    return l->next < all;
}

/* [*from, *to): this member's part of n things. */
static inline void share_of(int64_t n, int member, int size, int64_t *from, int64_t *to)
{
    *from = n * member / size;
    *to = n * (member + 1) / size;
}

#endif
