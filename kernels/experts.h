/* kernels/experts.h - products of many experts in one parallel region, for the drivers of few rows (gemv.c)
 * and of many (gemm_experts.c). A region contains the experts that use the same kernel. */
#ifndef QDYNO_KERNELS_EXPERTS_H
#define QDYNO_KERNELS_EXPERTS_H

#include "kernels/cpu.h"

/* The rows of one expert in a region. */
struct expert_part {
    int expert, n;
    int64_t pair; /* its first pair */
    int64_t at;   /* rows of the parts before it; with a GEMM kernel, each part's are rounded up to slivers */
    int64_t units; /* of work in its gate and up products, set by gemm_run_experts */
};

struct expert_region {
    struct cpu *b;
    const struct gemm_kernel *k; /* NULL: GEMV */
    const struct expert_rows *to;
    const struct expert_up *up; /* one of these two */
    const struct expert_down *down;
    struct expert_part *part;
    int count;
    int64_t rows; /* of all parts, as counted in `at` */
    bool clear;   /* down: set y to 0 first */
};

/* The products of a part: m[0] is the gate or down matrix, m[1] the up matrix. Returns how many there are. */
struct expert_products {
    struct weight w[2];
    struct matmul m[2];
    int count;
    const int32_t *from; /* NULL, or the row of x of each of its rows */
};
void expert_products_of(const struct expert_region *r, const struct expert_part *p,
                        struct expert_products *out);

/* With m the products of a part, columns [from, to) of whose results are complete: m[0].y = act(m[0].y) *
 * m[1].y. */
void expert_activate(const struct expert_region *r, const struct expert_products *p, int64_t from,
                     int64_t to);
/* Down: set columns [from, to) of y to 0. */
void expert_clear(const struct expert_region *r, int64_t from, int64_t to);

void gemv_run_experts(const struct expert_region *r);
void gemm_run_experts(const struct expert_region *r);

#endif
