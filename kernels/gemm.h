/* kernels/gemm.h - internals of the GEMM drivers (gemm.c), which gemm_experts.c uses, too. */
#ifndef QDYNO_KERNELS_GEMM_H
#define QDYNO_KERNELS_GEMM_H

#include "kernels/inputs.h"

enum { ROW_GROUP = 16 };

struct gemm {
    struct cpu *b;
    const struct gemm_kernel *k;
    const struct matmul *m;
    int count;
    const struct matmul *gate; /* NULL, or the gate product fused with m[0] (count is 1) */
    struct inputs in;
    enum activation act;
    const int32_t *from; /* NULL, or the row of x of each token */
    const int32_t *to;   /* NULL, or: the results of token t, times by[t], are added to row to[t] of y */
    const float *by;
    bool read_soon;       /* results are read again soon: they must not bypass the caches */
    bool few;             /* use multiply_few */
    int64_t cols, padded; /* padded: tokens rounded up to whole slivers */
    int kc;               /* inputs of a k block */
    int panel_groups;     /* most groups of 16 weight rows in one panel */
};

/* The panel that a thread works on, and its scratch memory. */
struct panel {
    const struct gemm *g;
    const struct inputs *in;
    const struct matmul *m;
    int64_t row0;
    int rows;
    int64_t k0;
    int k;
    int node; /* memory node of the thread; -1: any */
    uint8_t *weights;
    float *products, *transposed; /* [panel_rows][SLIVER] and [SLIVER][panel_rows] */
    int32_t *sums;                /* [panel_rows] of codes */
    float *scales, *adds;         /* [panel_rows] scales of weight rows, and biases */
    float *outliers;              /* [panel_rows][OUTLIER_CHUNK] weights of outlier columns */
};

/* The panel of a thread, with its scratch memory. */
struct panel gemm_panel_of(const struct gemm *g, int member);

/* Fill in the fields of g that follow from its kernel and products. */
void gemm_prepare(struct gemm *g);

/* Pack the inputs of one sliver. stage: the thread's panel memory. */
void gemm_pack_sliver(const struct gemm *g, const struct inputs *in, void *stage, int64_t token, int64_t k0,
                      int k);

/* Multiply the rows of p->m that p names: with the only sliver, all k blocks; or the k block of p with tokens
 * [from, to). */
void panel_run_few(const struct gemm *g, struct panel *p);
void panel_run_many(const struct gemm *g, struct panel *p, int64_t from, int64_t to);

#endif
