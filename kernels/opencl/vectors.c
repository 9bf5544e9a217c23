/* Norms, rope, Hadamard transforms and activation functions on a device: one kernel each, for all shapes. */
#include <assert.h>
#include <math.h>

#include "kernels/opencl/opencl.h"

enum { NORM_ITEMS = 256, ITEMS = 128, ROPE_HEADS = 4, HADAMARD_ITEMS = 64 }; /* as in vectors.cl */

static size_t groups_of(int64_t n, int64_t items)
{
    return (size_t)((n + items - 1) / items * items);
}

void opencl_norm(struct backend *b, const struct norm *p)
{
    static const struct opencl_kernel K = { 1 << SOURCE_VECTORS, "", "norm" };
    struct opencl *o = opencl_of(b);
    size_t items = 32; /* rows of one head (its own norm) are short */
    assert(p->cols >= 1 && p->cols <= INT32_MAX / 4);
    if (p->n < 1) return;
    while (items < NORM_ITEMS && (int64_t)items * 4 < p->cols) items *= 2;
    const struct opencl_arg args[] = {
        ARG_PLACE(o, p->x),    ARG_LONG(p->x_stride),          ARG_PLACE(o, p->w), ARG_PLACE(o, p->bias),
        ARG_INT(p->bias != 0), ARG_INT(p->kind == NORM_LAYER), ARG_INT(p->cols),   ARG_FLOAT(p->eps),
        ARG_PLACE(o, p->y),    ARG_LONG(p->y_stride),
    };
    opencl_run(o, &K, (size_t[]){ (size_t)p->n * items, 1, 1 }, (size_t[]){ items, 1, 1 }, args,
               COUNT_OF(args));
}

void opencl_rope(struct backend *b, const struct rope *p)
{
    static const struct opencl_kernel K = { 1 << SOURCE_VECTORS, "", "rope" };
    struct opencl *o = opencl_of(b);
    assert(p->rot_dims % 2 == 0 && p->rot_dims <= p->head_dim);
    const int pairs = p->rot_dims / 2, parts = (p->heads + ROPE_HEADS - 1) / ROPE_HEADS;
    const int64_t count = (int64_t)p->n * parts * pairs;
    if (count < 1) return;
    assert(count <= INT32_MAX - ITEMS);
    const struct opencl_arg args[] = {
        ARG_PLACE(o, p->x),
        ARG_LONG(p->x_stride),
        ARG_INT(p->n),
        ARG_INT(p->heads),
        ARG_INT(p->head_dim),
        ARG_INT(pairs),
        ARG_INT(p->half_split),
        ARG_FLOAT(p->magnitude),
        ARG_MEM(opencl_mirror(o, p->freq, (size_t)pairs * sizeof *p->freq)),
        ARG_MEM(opencl_mirror(o, p->pos, (size_t)p->n * sizeof *p->pos)),
    };
    opencl_run(o, &K, (size_t[]){ groups_of(count, ITEMS), 1, 1 }, (size_t[]){ ITEMS, 1, 1 }, args,
               COUNT_OF(args));
}

void opencl_hadamard(struct backend *b, const struct hadamard *p)
{
    static const struct opencl_kernel K = { 1 << SOURCE_VECTORS, "", "hadamard" };
    struct opencl *o = opencl_of(b);
    const int64_t blocks = p->cols / p->block, items = MAX(p->block / 2, 1);
    if (p->n < 1 || blocks < 1) return;
    assert(blocks <= INT32_MAX);
    const size_t group = (size_t)MIN(items, HADAMARD_ITEMS);
    const struct opencl_arg args[] = {
        ARG_PLACE(o, p->x),
        ARG_LONG(p->x_stride),
        ARG_INT(p->block),
        ARG_FLOAT(1 / sqrtf((float)p->block)),
    };
    opencl_run(o, &K, (size_t[]){ (size_t)blocks * group, (size_t)p->n, 1 }, (size_t[]){ group, 1, 1 }, args,
               COUNT_OF(args));
}

void opencl_activate(struct backend *b, const struct activate *p)
{
    static const struct opencl_kernel K = { 1 << SOURCE_VECTORS, "", "activate" };
    struct opencl *o = opencl_of(b);
    assert(p->cols <= INT32_MAX - ITEMS);
    if (p->n < 1 || p->cols < 1) return;
    const struct opencl_arg args[] = {
        ARG_INT(p->act),     ARG_PLACE(o, p->gate), ARG_PLACE(o, p->up), ARG_INT(p->up != 0),
        ARG_LONG(p->stride), ARG_INT(p->cols),      ARG_PLACE(o, p->y),  ARG_LONG(p->y_stride),
    };
    opencl_run(o, &K, (size_t[]){ groups_of(p->cols, ITEMS), (size_t)p->n, 1 }, (size_t[]){ ITEMS, 1, 1 },
               args, COUNT_OF(args));
}

void opencl_mix(struct backend *b, const struct mix *p)
{
    static const struct opencl_kernel K = { 1 << SOURCE_VECTORS, "", "mix_rows" };
    struct opencl *o = opencl_of(b);
    const size_t count = (size_t)p->n * (size_t)p->k;
    assert(p->cols <= INT32_MAX - ITEMS);
    if (p->n < 1 || p->cols < 1) return;
    for (size_t i = 0; i < count; i++) assert(p->ids[i] >= 0 && p->ids[i] < p->rows);
    const struct opencl_arg args[] = {
        ARG_PLACE(o, p->x),
        ARG_LONG(p->x_stride),
        ARG_MEM(opencl_mirror(o, p->ids, count * sizeof *p->ids)),
        ARG_MEM(opencl_mirror(o, p->weights, count * sizeof *p->weights)),
        ARG_INT(p->k),
        ARG_INT(p->cols),
        ARG_PLACE(o, p->y),
        ARG_LONG(p->y_stride),
        ARG_INT(p->add),
    };
    opencl_run(o, &K, (size_t[]){ groups_of(p->cols, ITEMS), (size_t)p->n, 1 }, (size_t[]){ ITEMS, 1, 1 },
               args, COUNT_OF(args));
}
