/* Which way a product goes: a few rows are dotted straight from the stored bytes (memory bandwidth decides),
 * many rows are worth unpacking weights into panels for (arithmetic decides). */
#include <assert.h>

#include "kernels/backend.h"

const struct gemm_kernel *matmul_scheme(const struct kernel_set *k, enum precision precision, int n)
{
    const struct gemm_kernel *g = precision == PRECISION_MEDIUM && k->gemm_bf16.multiply ? &k->gemm_bf16
                                                                                         : &k->gemm_f32;
    return n < g->min_rows ? NULL : g;
}

void backend_matmul(struct backend *b, const struct matmul *m, int count)
{
    for (int first = 0, next; first < count; first = next) {
        const struct matmul *f = &m[first];
        assert(f->n >= 0 && f->n <= b->plan.rows && f->w->cols <= b->plan.cols); /* backend_reserve first */
        for (next = first + 1; next < count; next++)
            if (m[next].x != f->x || m[next].n != f->n || m[next].x_stride != f->x_stride ||
                m[next].w->cols != f->w->cols)
                break;
        if (!f->n) continue;
        const struct gemm_kernel *g = matmul_scheme(&b->k, b->options.precision, f->n);
        if (g)
            gemm_run(b, g, f, next - first);
        else
            gemv_run(b, f, next - first);
    }
}
