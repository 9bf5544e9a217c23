/* kernels/cpu.h - internals of the CPU backend, shared by its operations. */
#ifndef QDYNO_KERNELS_CPU_H
#define QDYNO_KERNELS_CPU_H

#include <string.h>

#include "kernels/backend.h"
#include "kernels/kernel_set.h"

/* Sizes of scratch memory. */
struct scratch_plan {
    int64_t shared_bytes; /* packed or quantized activations of one group of products */
    int64_t thread_bytes; /* per thread: a packed weight panel and its results, or the tiles of attention */
};

/* The kernels that were measured as the fastest for matrices of one format and shape (autotune.c). */
enum { TUNED_POINTS = 10 };
struct tuned {
    const struct format *format;
    int64_t rows, cols;
    /* At each measured number of rows: whether another kernel than that of the fixed rule is faster, and
     * which (NULL: GEMV). */
    bool chosen[TUNED_POINTS];
    const struct gemm_kernel *kernel[TUNED_POINTS];
};

struct cpu {
    struct backend base;
    struct kernel_set k;
    bool skip_prefetch;       /* kernels_skip_prefetch() */
    struct backend_work work; /* largest operations reserved, formats and inputs of bound weights */
    struct scratch_plan plan;
    struct numa *nodes; /* NULL with NUMA_OFF */
    int64_t huge_wanted_bytes, copied_bytes, repacked_bytes, placed_bytes;
    uint32_t inputs;     /* 1 << enum input_kind of the weights */
    uint8_t *shared;     /* plan.shared_bytes */
    uint8_t *threads;    /* options.threads * plan.thread_bytes */
    struct tuned *tuned; /* [tuned_count], owned; element i has the number i + 1 in struct weight */
    int tuned_count;
};

enum {
    HEAD_DIM_MAX = 1024,
    /* An operation on fewer elements than this runs on the calling thread, because waking the other threads
     * costs more than it saves. One element takes about as long as 4 multiply-adds of a GEMV, 4 comparisons
     * or 16 multiply-adds of a GEMM. */
    PARALLEL_MIN = 16384,
    DOTS_PER_ELEMENT = 4,
    PRODUCTS_PER_ELEMENT = 16,
    COMPARED_PER_ELEMENT = 4,
};

/* Most rows of activations (of experts' rows, rounded up to slivers) that a region of experts has scratch
 * memory for, and the share of it for products without packing, whose rows take four times as many bytes. */
enum { EXPERT_ROWS = 1024, EXPERT_GEMV_SHARE = 4 };

enum precision precision_for(enum precision wanted, const struct format *f); /* AUTO resolved */
/* The GEMM kernels within the error bounds of the options for products of format f, in ascending order of
 * `from`: the rule is to use the last one whose `from` is at most the number of rows, and GEMV below all of
 * them. Returns how many. */
enum { CANDIDATES_MAX = 4, NEVER = INT32_MAX };
struct matmul_candidate {
    const struct gemm_kernel *kernel;
    int from; /* NEVER: only where it was measured as the fastest */
};
int matmul_candidates(const struct kernel_set *k, const struct backend_options *o, const struct format *f,
                      enum input_kind kind, struct matmul_candidate out[static CANDIDATES_MAX]);
/* The GEMM kernel for n rows of activations; NULL: use the GEMV kernels (small n). */
const struct gemm_kernel *matmul_scheme(const struct kernel_set *k, const struct backend_options *o,
                                        const struct format *f, enum input_kind kind, int n);

/* The same for the rows of a product, with what was measured for its weight. */
const struct gemm_kernel *matmul_scheme_of(const struct cpu *b, const struct weight *w, int n);

/* autotune.c: whether kernels are chosen by measurement, and then: the most rows of activations of such a
 * choice, and of GEMV. */
enum { TUNED_ROWS = 64, TUNED_GEMV_ROWS = 8 };
static inline bool cpu_tunes(const struct backend_options *o)
{
    return o->compile == COMPILE_AUTOTUNE && !o->batch_invariant;
}
/* Read the line of `o->shapes` for this kernel set and these settings. ERR_NOMEM. */
enum err_code autotune_read(struct cpu *b, const struct backend_options *o, struct err *why);
/* For struct weight: the number of a matrix's measured kernels; 0: none, or its activations are prescribed.
 */
int autotune_find(const struct cpu *b, const struct backend_options *o, const struct weight *w);
/* Whether another kernel than that of the fixed rule was measured as the fastest for n rows; *out: that one.
 */
bool autotune_choice(const struct cpu *b, const struct weight *w, int n, const struct gemm_kernel **out);
enum err_code cpu_autotune(struct backend *base, struct weight *const *weights, int count,
                           bool (*progress)(void *ctx, int done, int of), void *ctx, struct autotuned *out,
                           struct err *why);

/* Bytes of shared or per-thread scratch that each driver needs. rows: rows of activations; codes: rows of
 * activations as 8-bit codes with one scale per token. */
int64_t gemv_shared_bytes(int64_t rows, int64_t codes, int64_t cols);
int64_t gemm_shared_bytes(const struct gemm_kernel *g, int64_t rows, int64_t cols);
int64_t gemm_thread_bytes(const struct gemm_kernel *g);
int64_t attention_thread_bytes(const struct kernel_set *k, const struct backend_options *o, int head_dim);
int64_t attention_shared_bytes(const struct backend_options *o, const struct backend_work *w, int head_dim);

/* placement.c: memory where options.numa wants it, not zeroed. NULL: memory is short; free(). */
void *cpu_pages(struct cpu *b, size_t bytes);
/* Are weights copied from the mapped file even if they are held in its format? */
bool cpu_copies_weights(const struct backend_options *o);
/* Copy the weights from the file, where they are in `format`, into allocated memory, in the format w->format.
 * ERR_NOMEM; cpu_release frees what there is. */
enum err_code cpu_copy_weight(struct cpu *b, struct weight *w, const struct format *format, struct err *why);
int cpu_nodes(const struct cpu *b); /* memory nodes that threads are bound to */

/* The bytes of a matrix for threads of that node (-1: any). data may point into the matrix. */
static inline const uint8_t *cpu_weight_of(const struct weight *w, int node)
{
    const uint8_t *data = w->data;
    if (!w->copies || node < 0) return data;
    return (const uint8_t *)w->copies[1 + node] + (data - (const uint8_t *)w->copies[0]);
}

/* The operations of struct backend_ops; base is a struct cpu. */
void *cpu_alloc(struct backend *base, size_t bytes);
void cpu_release(struct backend *base, struct weight *w);
void cpu_gather(struct backend *base, const struct gather *g);
void cpu_mix(struct backend *base, const struct mix *p);
void cpu_matmul(struct backend *base, const struct matmul *m, int count);
void cpu_gated(struct backend *base, const struct gated *p);
bool cpu_groups_experts(const struct backend *base, const struct weight *gate, const struct weight *up,
                        const struct weight *down, int experts);
void cpu_expert_up(struct backend *base, const struct expert_up *p);
void cpu_expert_down(struct backend *base, const struct expert_down *p);
void cpu_norm(struct backend *base, const struct norm *p);
void cpu_rope(struct backend *base, const struct rope *p);
void cpu_hadamard(struct backend *base, const struct hadamard *p);
void cpu_kv_store(struct backend *base, const struct kv_store *p);
void cpu_attention(struct backend *base, const struct attention *p);
void cpu_activate(struct backend *base, const struct activate *p);
void cpu_top(struct backend *base, const struct top *p);

/* Convert n weights from format f to the different format in which they are held (backend_held_format). */
void weight_repack(struct cpu *b, const struct format *f, const void *in, void *out, int64_t n);

/* Run `count` products that have the same x, n and x_stride. */
void gemv_run(struct cpu *b, const struct matmul *m, int count);
void gemm_run(struct cpu *b, const struct gemm_kernel *g, const struct matmul *m, int count);

/* A gated pair in one fused GEMM, and whether this pair can be fused. */
bool gemm_can_gate(const struct cpu *b, const struct gemm_kernel *g, const struct gated *p);
void gemm_run_gated(struct cpu *b, const struct gemm_kernel *g, const struct gated *p);

/* The scale of a whole matrix. */
static inline float weight_scale(const struct weight *w)
{
    return w->scale != 0 ? w->scale : 1;
}

/* The scale of a whole row: the f32 after its blocks, or 1 in formats without a row tail. */
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

static inline bool cpu_runs_alone(int64_t elements)
{
    return elements < PARALLEL_MIN;
}

/* Run fn on all threads of the pool, or on the calling thread only when the work is small. */
static inline void cpu_run(struct cpu *b, int64_t elements, threadpool_fn *fn, void *arg)
{
    if (cpu_runs_alone(elements))
        threadpool_run_alone(b->base.pool, fn, arg);
    else
        threadpool_run(b->base.pool, fn, arg);
}

/* A thread's current chunk of dynamically scheduled work: items [next, end). Initialize with { 0 }. */
struct work_chunk {
    int64_t next, end;
};

/* Take the next chunk of `all` items: half of the remaining items divided by the number of threads, at least
 * `least`. The first chunks are long because prefetches beyond the end of a chunk are wasted; the last ones
 * are short so that no thread waits long for a slower one. Returns false when no item is left. */
static inline bool work_chunk_take(struct cpu *b, struct work_chunk *l, int64_t all, int64_t least, int size)
{
    const int64_t share = MAX((all - l->end) / (2 * size), least);
    l->next = threadpool_next(b->base.pool, share);
    l->end = MIN(l->next + share, all);
    return l->next < all;
}

/* The static share of thread `member` of `size`: items [*from, *to) of n. */
static inline void member_share(int64_t n, int member, int size, int64_t *from, int64_t *to)
{
    *from = n * member / size;
    *to = n * (member + 1) / size;
}

#endif
