/* Which way a product goes: a few rows are dotted straight from the stored bytes (memory bandwidth decides),
 * many rows are worth unpacking weights into panels for (arithmetic decides). */
#include <assert.h>

#include "kernels/backend.h"

enum precision precision_for(enum precision wanted, const struct format *f)
{
    if (wanted != PRECISION_AUTO) return wanted;
    const bool exact = f == &FORMATS[FORMAT_F32] || f == &FORMATS[FORMAT_F16]; /* bf16 would round them */
    return exact ? PRECISION_HIGHEST : PRECISION_MEDIUM;
}

static const struct gemm_kernel *scheme_of_many(const struct kernel_set *k, enum precision wanted,
                                                const struct format *f)
{
    const bool rounded = precision_for(wanted, f) == PRECISION_MEDIUM;
    return rounded && k->gemm_bf16.multiply ? &k->gemm_bf16 : &k->gemm_f32;
}

const struct gemm_kernel *matmul_scheme(const struct kernel_set *k, enum precision wanted,
                                        const struct format *f, int n)
{
    const struct gemm_kernel *g = scheme_of_many(k, wanted, f);
    return n < g->min_rows ? NULL : g;
}

const char *matmul_ceiling(const struct format *f, enum precision precision, uint32_t isa)
{
    const struct kernel_set k = kernels_select(isa);
    return scheme_of_many(&k, precision, f) == &k.gemm_bf16 ? "bf16_tile" : "f32_fma";
}

void backend_matmul(struct backend *b, const struct matmul *m, int count)
{
    for (int first = 0, next; first < count; first = next) {
        const struct matmul *f = &m[first];
        assert(f->n >= 0 && f->n <= b->plan.rows && f->w->cols <= b->plan.cols); /* backend_reserve first */
        const struct gemm_kernel *g = matmul_scheme(&b->k, b->options.precision, f->w->format, f->n);
        for (next = first + 1; next < count; next++)
            if (matmul_scheme(&b->k, b->options.precision, m[next].w->format, f->n) != g ||
                m[next].x != f->x || m[next].n != f->n || m[next].x_stride != f->x_stride ||
                m[next].w->cols != f->w->cols)
                break;
        if (!f->n) continue;
        if (g)
            gemm_run(b, g, f, next - first);
        else
            gemv_run(b, f, next - first);
    }
}

void backend_gated(struct backend *b, const struct gated *p)
{
    const struct matmul both[] = { p->gate, p->up };
    const struct gemm_kernel *g = matmul_scheme(&b->k, b->options.precision, p->up.w->format, p->up.n);
    const bool same = g == matmul_scheme(&b->k, b->options.precision, p->gate.w->format, p->gate.n);
    assert(p->gate.x == p->up.x && p->gate.n == p->up.n && !p->gate.residual && !p->up.residual);
    if (g && same && p->up.n && gemm_can_gate(g, p)) {
        gemm_run_gated(b, g, p);
        return;
    }
    assert(p->gate.y_stride == p->up.y_stride);
    backend_matmul(b, both, 2);
    backend_activate(b, &(struct activate){ .act = p->act,
                                            .gate = p->gate.y,
                                            .up = p->up.y,
                                            .stride = p->up.y_stride,
                                            .n = p->up.n,
                                            .cols = p->up.w->rows,
                                            .y = p->y,
                                            .y_stride = p->y_stride });
}
