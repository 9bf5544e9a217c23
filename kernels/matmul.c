/* Choose the kernels of a matrix product. With few rows of activations, memory bandwidth is the limit: the
 * GEMV kernels read the stored bytes directly. With many rows, arithmetic is the limit and packing the
 * weights into panels (GEMM) pays. */
#include <assert.h>

#include "kernels/inputs.h"

enum precision precision_for(enum precision wanted, const struct format *f)
{
    if (wanted != PRECISION_AUTO) return wanted;
    if (f == &FORMATS[FORMAT_F32]) return PRECISION_HIGHEST;
    return f == &FORMATS[FORMAT_F16] ? PRECISION_HIGH : PRECISION_MEDIUM; /* bf16 would round f16 */
}

enum {
    /* From this many rows on, bf16 tiles are faster than integer dots. Formats without integer dots use the
     * tiles' own min_rows. */
    TILES_FROM = 9,
};

/* The precision of a product whose inputs were already rounded to fp8 or tf32: they must not be rounded
 * again, so the product is HIGHEST. Exception: fp8 inputs with weights that have one scale per row. All
 * operands are exact in bf16 then, so bf16 tiles round nothing. */
static enum precision precision_with_inputs(const struct backend_options *o, const struct format *f,
                                            enum input_kind kind)
{
    const enum precision p = precision_for(o->precision, f);
    if (kind == INPUT_FREE) return p;
    const bool fp8 = kind == INPUT_FP8_TOKEN || kind == INPUT_FP8_STATIC;
    return fp8 && f->row_tail_bytes && p == PRECISION_MEDIUM ? p : PRECISION_HIGHEST;
}

int matmul_candidates(const struct kernel_set *k, const struct backend_options *o, const struct format *f,
                      enum input_kind kind, struct matmul_candidate out[static CANDIDATES_MAX])
{
    int n = 0;
    if (input_is_int8(kind)) {
        if (k->gemm_w8a8.multiply)
            out[n++] = (struct matmul_candidate){ &k->gemm_w8a8, k->gemm_w8a8.min_rows };
        return n;
    }
    const enum precision precision = precision_with_inputs(o, f, kind);
    const bool rounded = precision == PRECISION_MEDIUM;
    const struct format_kernels *fk = &k->format[f - FORMATS];
    const int int8_min = fk->wide_q8 ? k->gemm_int8.min_rows_wide : k->gemm_int8.min_rows;
    const int int8_from = int8_min && fk->int8_from ? MIN(int8_min, fk->int8_from) : int8_min;
    const bool integers = rounded && kind == INPUT_FREE && fk->unpack_q8 && int8_from;
    const bool int8_only = integers && o->activations == ACTIVATIONS_INT8;
    const bool high = precision == PRECISION_HIGH && k->gemm_high.multiply;
    const bool bf16 = rounded && k->gemm_bf16.multiply && !int8_only;
    const bool bf16_by_rule = bf16 && !(integers && !k->bf16_beats_int8);
    const bool f32_by_rule = !high && !bf16 && !integers;
    if (!int8_only)
        out[n++] = (struct matmul_candidate){ &k->gemm_f32, f32_by_rule ? k->gemm_f32.min_rows : (int)NEVER };
    if (high) out[n++] = (struct matmul_candidate){ &k->gemm_high, k->gemm_high.min_rows };
    if (integers) out[n++] = (struct matmul_candidate){ &k->gemm_int8, int8_from };
    if (bf16)
        out[n++] = (struct matmul_candidate){ &k->gemm_bf16, !bf16_by_rule ? (int)NEVER
                                                             : integers    ? (int)TILES_FROM
                                                                           : k->gemm_bf16.min_rows };
    return n;
}

const struct gemm_kernel *matmul_scheme(const struct kernel_set *k, const struct backend_options *o,
                                        const struct format *f, enum input_kind kind, int n)
{
    const struct gemm_kernel *columns = k->format[f - FORMATS].unpack_columns && n <= SLIVER
                                            ? &k->gemm_columns
                                            : NULL;
    struct matmul_candidate all[CANDIDATES_MAX];
    if (o->batch_invariant) n = INT32_MAX; /* one order of sums at every number of rows */
    for (int i = matmul_candidates(k, o, f, kind, all) - 1; i >= 0; i--) {
        if (all[i].from == NEVER) continue;
        if (columns && all[i].kernel == &k->gemm_int8 && columns->min_rows && n >= columns->min_rows)
            return columns;
        if (n >= all[i].from) return all[i].kernel;
    }
    return NULL;
}

const char *matmul_ceiling(const struct format *f, const struct backend_options *o)
{
    const struct kernel_set k = kernels_select(o->isa);
    const enum input_kind kind = inputs_kind(o, f, f->block_weights);
    const struct gemm_kernel *g = matmul_scheme(&k, o, f, kind, INT32_MAX);
    if (input_is_int8(kind)) return g && g->begin ? "int8_tile" : "int8_dot";
    if (g == &k.gemm_high) return "bf16_tile";
    return g == &k.gemm_bf16 || g == &k.gemm_int8 ? g->name : "f32_fma";
}

const struct gemm_kernel *matmul_scheme_of(const struct cpu *b, const struct weight *w, int n)
{
    const struct gemm_kernel *measured;
    if (w->tuned && autotune_choice(b, w, n, &measured)) return measured;
    const enum input_kind kind = inputs_scheme(&b->base.options, w).kind;
    return matmul_scheme(&b->k, &b->base.options, w->format, kind, n);
}

/* Whether two products can run in one group: same x, same GEMM kernel, same activation quantization. */
static bool matmuls_can_share(const struct cpu *b, const struct matmul *m, const struct matmul *other)
{
    return m->x == other->x && m->n == other->n && m->x_stride == other->x_stride &&
           m->w->cols == other->w->cols &&
           matmul_scheme_of(b, m->w, m->n) == matmul_scheme_of(b, other->w, m->n) &&
           inputs_shared(&b->base.options, m->w, other->w);
}

void cpu_matmul(struct backend *base, const struct matmul *m, int count)
{
    struct cpu *b = (struct cpu *)base;
    for (int first = 0, next; first < count; first = next) {
        const struct matmul *f = &m[first];
        assert(f->n >= 0 && f->n <= b->work.rows && f->w->cols <= b->work.cols); /* backend_reserve first */
        assert(b->work.formats & format_bit(f->w->format)); /* backend_weight_bind first */
        const struct gemm_kernel *g = matmul_scheme_of(b, f->w, f->n);
        for (next = first + 1; next < count && matmuls_can_share(b, f, &m[next]);) next++;
        if (!f->n) continue;
        if (g)
            gemm_run(b, g, f, next - first);
        else
            gemv_run(b, f, next - first);
    }
}

void cpu_gated(struct backend *base, const struct gated *p)
{
    struct cpu *b = (struct cpu *)base;
    const struct gemm_kernel *g = matmul_scheme_of(b, p->up.w, p->up.n);
    if (g && p->up.n && matmuls_can_share(b, &p->up, &p->gate) && gemm_can_gate(b, g, p)) {
        gemm_run_gated(b, g, p);
        return;
    }
    gated_separately(base, p);
}
