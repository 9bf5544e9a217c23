/* Products with stored weights on a device, and gathering rows of tables: choose the kernel of products.cl,
 * its shape and the number of work groups. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/inputs.h"
#include "kernels/opencl/products.h"

enum { OPTIONS_MAX = 320 };
enum { HAS_BIAS = 1, HAS_RESIDUAL = 2, ALIGNED_X = 4 }; /* as in products.cl */

/* A kernel of the program of a format. */
struct variant {
    char options[OPTIONS_MAX];
    struct opencl_kernel kernel;
};

/* how: options besides the format's. */
static void variant_of(struct variant *v, const struct format *f, const char *how, const char *name)
{
    char format[OPTIONS_MAX / 2];
    snprintf(v->options, sizeof v->options, "%s %s", opencl_format_options(f, format, sizeof format), how);
    v->kernel = (struct opencl_kernel){ .sources = 1u << SOURCE_FORMATS | 1u << SOURCE_PRODUCTS,
                                        .options = v->options,
                                        .name = name };
}

enum { INTEGERS = 1u << SOURCE_DOT | 1u << SOURCE_INTEGERS };

/* The arguments of a matrix. */
enum { WEIGHT_ARGS = 2 + PLANE_COUNT };
static void weight_args(struct opencl *o, const struct weight *w, struct opencl_arg *out)
{
    const struct planes p = opencl_planes(w->format, w->rows, w->cols);
    const struct opencl_place at = opencl_place(o, w->data);
    out[0] = ARG_MEM(at.mem);
    for (int i = 0; i < PLANE_COUNT; i++) out[1 + i] = ARG_ULONG(at.offset + (cl_ulong)p.at[i]);
    out[1 + PLANE_COUNT] = ARG_INT(p.units);
}

/* ---------------------------------------------------------------- products */

static size_t groups_of(int64_t n, int64_t each)
{
    return (size_t)((n + each - 1) / each);
}

static enum product_kind kind_of(const struct opencl *o, const struct matmul *m)
{
    const int integers = opencl_in_integers(o, m->w) ? PRODUCT_ONE_INT8 - PRODUCT_ONE : 0, n = m->n;
    const enum product_kind kind = n == 1                    ? PRODUCT_ONE
                                   : n <= PRODUCT_FEW_MAX    ? PRODUCT_FEW
                                   : n <= PRODUCT_NARROW_MAX ? PRODUCT_NARROW
                                                             : PRODUCT_WIDE;
    return (enum product_kind)(kind + integers);
}

static bool rows_are_aligned(const void *x, int64_t stride)
{
    return (uintptr_t)x % 16 == 0 && stride % 4 == 0;
}

enum { PRODUCT_ARGS = WEIGHT_ARGS + 14 };
static void product_args(struct opencl *o, const struct matmul *m, struct opencl_arg out[PRODUCT_ARGS])
{
    const int flags = (m->bias ? HAS_BIAS : 0) | (m->residual ? HAS_RESIDUAL : 0) |
                      (rows_are_aligned(m->x, m->x_stride) ? ALIGNED_X : 0);
    const struct opencl_arg args[] = { ARG_INT(m->w->rows),   ARG_INT(m->w->cols),       ARG_INT(m->n),
                                       ARG_INT(flags),        ARG_PLACE(o, m->x),        ARG_INT(m->x_stride),
                                       ARG_PLACE(o, m->bias), ARG_PLACE(o, m->residual), ARG_PLACE(o, m->y),
                                       ARG_INT(m->y_stride) };
    _Static_assert(COUNT_OF(args) == PRODUCT_ARGS - WEIGHT_ARGS, "as many as there is room for");
    weight_args(o, m->w, out);
    memcpy(out + WEIGHT_ARGS, args, sizeof args);
}

double opencl_product(struct opencl *o, const struct matmul *m, const struct opencl_shape *s, bool timed)
{
    struct opencl_arg args[PRODUCT_ARGS];
    struct variant v;
    char shape[OPTIONS_MAX / 2];
    size_t local[3] = { s->lanes, s->ways, 1 }, groups[2] = { 1, 1 };
    if (s->tm) {
        local[0] = (size_t)(s->tm / s->rm * (s->tn / s->rn)), local[1] = 1;
        groups[0] = groups_of(m->w->rows, s->tm), groups[1] = groups_of(m->n, s->tn);
    } else {
        groups[0] = groups_of(m->w->rows, s->rows * s->ways);
    }
    const size_t global[3] = { groups[0] * local[0], groups[1] * local[1], 1 };
    variant_of(&v, m->w->format, opencl_shape_options(s, m->n, shape, sizeof shape), s->tm ? "gemm" : "gemv");
    if (s->int8) v.kernel.sources |= INTEGERS;
    product_args(o, m, args);
    if (timed) return opencl_time(o, &v.kernel, global, local, args, PRODUCT_ARGS);
    opencl_run(o, &v.kernel, global, local, args, PRODUCT_ARGS);
    return (double)NAN;
}

/* Whether two products need the same prepared inputs, which are computed once then. */
static bool same_inputs(const struct opencl *o, const struct matmul *a, const struct matmul *b)
{
    const bool integers = opencl_in_integers(o, a->w);
    return a->x == b->x && a->x_stride == b->x_stride && a->n == b->n && a->w->cols == b->w->cols &&
           inputs_shared(&o->base.options, a->w, b->w) && integers == opencl_in_integers(o, b->w) &&
           (!integers || opencl_code_bits(a->w->format) == opencl_code_bits(b->w->format));
}

void opencl_matmul(struct backend *b, const struct matmul *m, int count)
{
    struct opencl *o = opencl_of(b);
    struct matmul made = { 0 };
    for (int i = 0, last = -1; i < count && opencl_ok(o); i++) {
        if (!m[i].n) continue;
        if (last < 0 || !same_inputs(o, &m[last], &m[i])) made = opencl_prepared(o, &m[i]);
        struct matmul p = m[i];
        p.x = made.x, p.x_stride = made.x_stride;
        const struct opencl_shape s = opencl_shape_of(o, kind_of(o, &p), p.w->format);
        opencl_product(o, &p, &s, false);
        last = i;
    }
}

/* ---------------------------------------------------------------- rows of a table */

void opencl_gather(struct backend *b, const struct gather *g)
{
    enum { ITEMS = 64 };
    struct opencl *o = opencl_of(b);
    const struct weight *w = g->table;
    const void *order = opencl_order(w), *divide = opencl_divide(w);
    const int flags = (order ? ORDERED : 0) | (divide ? DIVIDED : 0) | (g->add ? ADDED : 0);
    if (!g->n || !opencl_ok(o)) return;
    for (int i = 0; i < g->n; i++) assert(g->ids[i] >= 0 && g->ids[i] < w->rows);
    const cl_mem ids = opencl_mirror(o, g->ids, (size_t)g->n * sizeof *g->ids);
    const struct opencl_arg y[] = { ARG_MEM(ids), ARG_PLACE(o, g->y), ARG_INT(g->y_stride),
                                    ARG_FLOAT(g->scale), ARG_INT(flags) };
    const size_t local[3] = { ITEMS, 1, 1 };
    if (!w->owned) { /* activations that are looked up in */
        const struct opencl_kernel k = { 1u << SOURCE_PRODUCTS, "", "gather_plain" };
        struct opencl_arg args[3 + COUNT_OF(y)] = { ARG_PLACE(o, w->data), ARG_INT(w->cols) };
        assert(w->format == &FORMATS[FORMAT_F32]);
        memcpy(args + 3, y, sizeof y);
        opencl_run(o, &k, (size_t[3]){ (size_t)round_up(w->cols, ITEMS), (size_t)g->n, 1 }, local, args,
                   COUNT_OF(args));
        return;
    }
    const struct opencl_arg inputs[] = { ARG_PLACE(o, order), ARG_PLACE(o, divide) };
    struct opencl_arg args[WEIGHT_ARGS + 1 + COUNT_OF(y) + COUNT_OF(inputs)];
    const struct opencl_shape s = opencl_shape_of(o, PRODUCT_ONE, w->format);
    char shape[OPTIONS_MAX / 2];
    struct variant v;
    weight_args(o, w, args);
    args[WEIGHT_ARGS] = ARG_INT(w->cols);
    memcpy(args + WEIGHT_ARGS + 1, y, sizeof y);
    memcpy(args + WEIGHT_ARGS + 1 + COUNT_OF(y), inputs, sizeof inputs);
    variant_of(&v, w->format, opencl_shape_options(&s, 1, shape, sizeof shape), "gather");
    opencl_run(o, &v.kernel, (size_t[3]){ (size_t)round_up((w->cols + 7) / 8, ITEMS), (size_t)g->n, 1 },
               local, args, COUNT_OF(args));
}
