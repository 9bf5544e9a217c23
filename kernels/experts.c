/* The experts of a layer. Each expert's product is too small for a parallel region of its own: starting one,
 * waiting for its slowest thread and packing few rows would take longer than the product. So the experts are
 * divided by the kernel that their number of rows needs, and those with the same kernel run in one region. */
#include <assert.h>
#include <string.h>

#include "kernels/experts.h"
#include "kernels/inputs.h"

static const struct weight *first_matrix(const struct expert_region *r)
{
    return r->up ? r->up->gate : r->down->down;
}

void expert_products_of(const struct expert_region *r, const struct expert_part *p,
                        struct expert_products *out)
{
    const struct expert_up *up = r->up;
    const int e = p->expert;
    *out = (struct expert_products){ .count = 1, .w = { first_matrix(r)[e] } };
    struct weight *w = out->w;
    if (up && up->joined) {
        w[0].rows /= 2;
        w[1] = w[0];
        w[1].data = (const uint8_t *)w[0].data + w[0].rows * format_row_bytes(w[0].format, w[0].cols);
    } else if (up && up->up) {
        w[1] = up->up[e];
    }
    if (up) {
        const float *biases[] = { up->gate_bias, up->up_bias };
        out->count = up->joined || up->up ? 2 : 1;
        out->from = up->by_pair ? NULL : r->to->row + p->pair;
        for (int j = 0; j < out->count; j++)
            out->m[j] = (struct matmul){ .w = &w[j],
                                         .x = up->x + (up->by_pair ? p->pair * up->x_stride : 0),
                                         .x_stride = up->x_stride,
                                         .n = p->n,
                                         .bias = biases[j] ? biases[j] + e * w[j].rows : NULL,
                                         .y = up->y + p->pair * up->y_stride + j * w[j].rows,
                                         .y_stride = up->y_stride };
        return;
    }
    const struct expert_down *down = r->down;
    out->m[0] = (struct matmul){ .w = w,
                                 .x = down->x + p->pair * down->x_stride,
                                 .x_stride = down->x_stride,
                                 .n = p->n,
                                 .bias = down->bias ? down->bias + e * w->rows : NULL,
                                 .y = down->y,
                                 .y_stride = down->y_stride };
}

void expert_activate(const struct expert_region *r, const struct expert_products *p, int64_t from, int64_t to)
{
    const struct matmul *m = p->m;
    for (int t = 0; t < m->n; t++) {
        float *gate = m[0].y + t * m->y_stride + from;
        const float *up = p->count > 1 ? m[1].y + t * m->y_stride + from : NULL;
        r->b->k.vec.activate[r->up->act](gate, up, to - from, gate);
    }
}

void expert_clear(const struct expert_region *r, int64_t from, int64_t to)
{
    const struct expert_down *p = r->down;
    for (int i = 0; i < r->to->rows; i++)
        memset(p->y + i * p->y_stride + from, 0, (size_t)(to - from) * sizeof(float));
}

bool cpu_groups_experts(const struct backend *base, const struct weight *gate, const struct weight *up,
                        const struct weight *down, int experts)
{
    for (int e = 0; e < experts; e++) {
        const struct weight *all[] = { &gate[e], up ? &up[e] : &gate[e], &down[e] };
        if (all[0]->format != gate->format || all[1]->format != gate->format ||
            down[e].format != down->format)
            return false;
        for (size_t i = 0; i < COUNT_OF(all); i++) {
            const struct input_scheme s = inputs_scheme(&base->options, all[i]);
            if (s.kind != INPUT_FREE || s.order || s.divide || all[i]->tuned != all[i == 2 ? 2 : 0]->tuned)
                return false;
        }
    }
    return true;
}

/* Scratch bytes for the inputs of a part. */
static int64_t part_bytes(const struct expert_region *r, int n)
{
    const int64_t cols = first_matrix(r)->cols;
    return r->k ? gemm_shared_bytes(r->k, n, cols) : gemv_shared_bytes(n, 0, cols);
}

/* Run the experts that use the region's kernel, in as few regions as the scratch memory allows. */
static void run_kernel(struct expert_region *r, const struct gemm_kernel *const *kernel)
{
    struct expert_part parts[EXPERTS_AT_ONCE];
    int64_t bytes = 0;
    r->part = parts;
    r->count = 0;
    r->rows = 0;
    for (int e = 0; e < r->to->experts; e++) {
        const int32_t pair = r->to->first[e];
        const int n = r->to->first[e + 1] - pair;
        if (!n || kernel[e] != r->k) continue;
        const int64_t more = part_bytes(r, n);
        if (r->count && bytes + more > r->b->plan.shared_bytes) {
            (r->k ? gemm_run_experts : gemv_run_experts)(r);
            r->count = 0;
            r->rows = bytes = 0;
            r->clear = false;
        }
        parts[r->count++] = (struct expert_part){ .expert = e, .n = n, .pair = pair, .at = r->rows };
        r->rows += r->k ? round_up(n, SLIVER) : n;
        bytes += more;
    }
    if (r->count) (r->k ? gemm_run_experts : gemv_run_experts)(r);
    if (r->count) r->clear = false;
}

static void run_experts(struct expert_region *r)
{
    const struct gemm_kernel *kernel[EXPERTS_AT_ONCE], *done[CANDIDATES_MAX + 2];
    const struct expert_rows *to = r->to;
    int kinds = 0;
    /* Kernels with the same bits add outputs to a row in another order if the rows of an expert choose them.
     */
    const bool one = r->down && r->b->base.options.batch_invariant;
    for (int e = 0; e < to->experts; e++)
        kernel[e] = matmul_scheme_of(r->b, &first_matrix(r)[e],
                                     one ? INT32_MAX : to->first[e + 1] - to->first[e]);
    for (int e = 0; e < to->experts; e++) {
        bool again = to->first[e + 1] == to->first[e];
        for (int i = 0; i < kinds; i++) again |= done[i] == kernel[e];
        if (again) continue;
        assert(kinds < (int)COUNT_OF(done));
        done[kinds++] = r->k = kernel[e];
        run_kernel(r, kernel);
    }
}

void cpu_expert_up(struct backend *base, const struct expert_up *p)
{
    run_experts(&(struct expert_region){ .b = (struct cpu *)base, .to = p->to, .up = p });
}

void cpu_expert_down(struct backend *base, const struct expert_down *p)
{
    run_experts(&(struct expert_region){ .b = (struct cpu *)base, .to = p->to, .down = p, .clear = !p->add });
}
