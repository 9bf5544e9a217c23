/* GEMV: products with few rows of activations (decoding). Every weight byte is read once from memory and
 * multiplied with all rows while it is in the first-level cache. Threads take chunks of weight rows
 * dynamically. */
#include <assert.h>
#include <string.h>

#include "kernels/experts.h"
#include "kernels/inputs.h"

enum {
    ROWS_AT_ONCE = 16,     /* weight rows that stay in the first-level cache while all rows of x use them */
    CHUNK_BYTES = 65536,   /* weights in the smallest chunk */
    PRIVATE_BYTES = 49152, /* up to this size, each thread has its own copy of the inputs */
};

struct gemv {
    struct cpu *b;
    const struct matmul *m;
    int count;
    struct inputs in;
    const float *x; /* operands: the product's x, or the inputs rounded as prescribed */
    int64_t x_stride;
    bool quantize, sums16; /* some product uses 8-bit activations in blocks; sums of 16 */
    bool floats;           /* some product uses f32 activations */
    struct act_q8 q;
    uint8_t *codes; /* INPUT_INT8_*: [n] rows, code_stride apart */
    int64_t code_stride;
    int node;          /* memory node of the thread; -1: any */
    const int32_t *to; /* NULL, or: the results of row i, times by[i], are added to row to[i] of y */
    const float *by;
};

static bool matmul_uses_q8(const struct cpu *b, const struct matmul *m)
{
    const struct format_kernels *f = &b->k.format[m->w->format - FORMATS];
    if (inputs_scheme(&b->base.options, m->w).kind != INPUT_FREE) return false;
    return precision_for(b->base.options.precision, m->w->format) == PRECISION_MEDIUM && f->dot_q8;
}

int64_t gemv_shared_bytes(int64_t rows, int64_t codes, int64_t cols)
{
    const int64_t blocks = (cols + Q8_BLOCK - 1) / Q8_BLOCK, padded = round_up(cols, 64);
    const int64_t q8 = padded + 4 * round_up(blocks * (int64_t)sizeof(float), 64);
    return MAX(rows * (q8 + padded * (int64_t)sizeof(float)), codes * padded);
}

/* Divide the shared scratch memory: rounded floats followed by 8-bit blocks, or 8-bit codes (INPUT_INT8_*).
 */
static void gemv_place_inputs(struct gemv *g, int n, int64_t cols)
{
    const int64_t padded = round_up(cols, 64);
    g->in = inputs_of(g->b, g->m);
    g->x = g->m->x, g->x_stride = g->m->x_stride;
    if (input_is_int8(g->in.scheme.kind)) {
        g->codes = g->in.shared, g->code_stride = padded;
    } else if (!inputs_plain(&g->in)) {
        g->x = (float *)g->in.shared, g->x_stride = padded;
        g->in.shared += n * padded * (int64_t)sizeof(float);
    }
}

static struct act_q8 gemv_place_q8(const struct gemv *g, int n, int64_t cols)
{
    struct act_q8 q = { .q_stride = round_up(cols, 64), .d_stride = round_up(cols / Q8_BLOCK, 16) };
    q.q = (int8_t *)g->in.shared;
    q.d = (float *)(g->in.shared + n * q.q_stride);
    q.sum = q.d + n * q.d_stride;
    q.sum16 = q.sum + n * q.d_stride;
    return q;
}

/* Multiply results by the scales of weight rows and tokens. */
static void gemv_scale_rows(const struct matmul *m, const struct inputs *in, const struct dot *d, int i0)
{
    for (int r = 0; r < d->rows; r++) {
        const float scale = format_row_scale(m->w->format, d->w + r * d->row_bytes, d->cols) *
                            weight_scale(m->w);
        for (int i = 0; i < d->n; i++)
            d->y[i * d->y_stride + r] *= in->scale ? in->scale[i0 + i] * scale : scale;
    }
}

/* Add the products of the outlier columns, as floats. */
static void gemv_add_outliers(const struct matmul *m, const struct inputs *in, const struct dot *d, int i0,
                              int64_t r0)
{
    const struct outlier_block block = { .in = in, .w = m->w, .row0 = r0, .rows = d->rows };
    float w[ROWS_AT_ONCE * OUTLIER_CHUNK], x[OUTLIER_CHUNK];
    for (int first = 0; first < in->outlier_count; first += OUTLIER_CHUNK) {
        const int count = outliers_weights(&block, first, w);
        for (int i = 0; i < d->n; i++) {
            outliers_inputs(in, first, count, i0 + i, x);
            for (int r = 0; r < d->rows; r++) {
                float sum = 0;
                for (int k = 0; k < count; k++) sum += w[r * OUTLIER_CHUNK + k] * x[k];
                d->y[i * d->y_stride + r] += sum;
            }
        }
    }
}

/* Add the results of row i to those of other products. */
static void gemv_add_rows(const struct gemv *g, const struct matmul *m, const struct dot *d, int i,
                          int64_t r0)
{
    const float by = g->by[i], *bias = m->bias;
    float *y = m->y + g->to[i] * m->y_stride + r0;
    for (int r = 0; r < d->rows; r++) y[r] += by * (bias ? d->y[r] + bias[r0 + r] : d->y[r]);
}

static void gemv_finish_rows(const struct gemv *g, const struct matmul *m, const struct dot *d, int i0,
                             int64_t r0)
{
    const struct inputs *in = &g->in;
    if (m->w->format->row_tail_bytes || in->scale || m->w->scale != 0) gemv_scale_rows(m, in, d, i0);
    if (in->outlier_count) gemv_add_outliers(m, in, d, i0, r0);
    for (int i = 0; i < d->n; i++) {
        if (g->to) {
            struct dot row = *d;
            row.y += i * d->y_stride;
            gemv_add_rows(g, m, &row, i0 + i, r0);
            continue;
        }
        const int64_t at = (i0 + i) * m->y_stride + r0;
        for (int r = 0; r < d->rows; r++) {
            float v = d->y[i * d->y_stride + r];
            if (m->bias) v += m->bias[r0 + r];
            if (m->residual) v += m->residual[at + r];
            m->y[at + r] = v;
        }
    }
}

/* Call the W8A8 kernel: int8 weights times codes with one scale per token. */
static void gemv_dot_codes(const struct gemv *g, const struct dot *d, int i0)
{
    g->b->k.w8a8_dot(&(struct w8a8_dot){ .w = d->w,
                                         .row_bytes = d->row_bytes,
                                         .rows = d->rows,
                                         .cols = d->cols,
                                         .code = g->codes + i0 * g->code_stride,
                                         .code_stride = g->code_stride,
                                         .n = d->n,
                                         .zero = g->in.zero,
                                         .y = d->y,
                                         .y_stride = d->y_stride });
}

static void gemv_rows_run(const struct gemv *g, const struct matmul *m, int64_t from, int64_t to)
{
    const struct format_kernels *f = &g->b->k.format[m->w->format - FORMATS];
    const bool q8 = matmul_uses_q8(g->b, m);
    const uint8_t *weights = cpu_weight_of(m->w, g->node);
    float y[DOT_X][ROWS_AT_ONCE];
    struct dot d = { .row_bytes = format_row_bytes(m->w->format, m->w->cols),
                     .cols = m->w->cols,
                     .x_stride = g->x_stride,
                     .q = g->q,
                     .y = &y[0][0],
                     .y_stride = ROWS_AT_ONCE,
                     .skip_prefetch = g->b->skip_prefetch };
    for (int64_t r = from; r < to; r += ROWS_AT_ONCE) {
        d.rows = (int)MIN((int64_t)ROWS_AT_ONCE, to - r);
        d.w = weights + r * d.row_bytes;
        for (int i = 0; i < m->n; i += DOT_X) {
            d.n = MIN((int)DOT_X, m->n - i);
            d.x = g->x + i * g->x_stride;
            if (g->q.q) {
                d.q.q = g->q.q + i * g->q.q_stride;
                d.q.d = g->q.d + i * g->q.d_stride;
                d.q.sum = g->q.sum + i * g->q.d_stride;
                d.q.sum16 = g->q.sum16 + 2 * i * g->q.d_stride;
            }
            if (g->codes)
                gemv_dot_codes(g, &d, i);
            else
                (q8 ? f->dot_q8 : f->dot_f32)(&d);
            gemv_finish_rows(g, m, &d, i, r);
        }
    }
}

static void gemv_quantize_share(const struct gemv *g, int member, int size)
{
    const int64_t cols = g->m->w->cols, blocks = cols / Q8_BLOCK;
    int64_t from, to;
    member_share(g->m->n * blocks, member, size, &from, &to);
    while (from < to) { /* a share may extend over several rows */
        const int64_t i = from / blocks, b = from % blocks, n = MIN(to - from, blocks - b);
        int8_t *q = g->q.q + i * g->q.q_stride + b * Q8_BLOCK;
        const int64_t at = i * g->q.d_stride + b;
        g->b->k.vec.quantize_q8(g->x + i * g->x_stride + b * Q8_BLOCK, n * Q8_BLOCK, q, g->q.d + at,
                                g->q.sum + at);
        if (g->sums16) q8_sums16(q, g->q.d + at, n * Q8_BLOCK, g->q.sum16 + 2 * at);
        from += n;
    }
}

/* Compute this thread's share of the inputs as the weight prescribes. All inputs are complete after the final
 * barrier. */
static void gemv_make_inputs(const struct gemv *g, struct inputs *in, int member, int size)
{
    int64_t from, to;
    if (inputs_plain(in)) return;
    member_share(in->n, member, size, &from, &to);
    inputs_measure(in, (int)from, (int)to, member);
    if (!inputs_by_token(in)) threadpool_barrier(g->b->base.pool);
    inputs_combine(in, member, size);
    for (int64_t t = from; t < to; t++) {
        if (g->codes)
            inputs_codes(in, (int)t, 0, in->cols, g->codes + t * g->code_stride);
        else
            inputs_floats(in, (int)t, 0, in->cols, (float *)g->x + t * g->x_stride);
    }
    threadpool_barrier(g->b->base.pool);
}

/* Give this thread its own copy of the inputs in `bytes`, if they are small. Two threads on the hyperthreads
 * of one core read data that one of them has just written up to ten times more slowly (kernels/SPEED.md,
 * "Inputs of small decoding products"). A private copy also avoids the barrier. Returns false if the inputs
 * are too large or the weight prescribes a quantization. */
static bool gemv_inputs_private(struct gemv *g, uint8_t bytes[static PRIVATE_BYTES])
{
    const int n = g->m->n;
    const int64_t cols = g->m->w->cols;
    if (!inputs_plain(&g->in) || gemv_shared_bytes(n, 0, cols) > PRIVATE_BYTES) return false;
    g->in.shared = bytes;
    if (g->quantize) {
        g->q = gemv_place_q8(g, n, cols);
        gemv_quantize_share(g, 0, 1);
        g->in.shared = (uint8_t *)(g->q.sum16 + 2 * n * g->q.d_stride);
    }
    if (!g->floats) return true;
    for (int i = 0; i < n; i++)
        memcpy((float *)g->in.shared + i * cols, g->x + i * g->x_stride, (size_t)cols * sizeof(float));
    g->x = (float *)g->in.shared, g->x_stride = cols;
    return true;
}

static void gemv_inputs_common(struct gemv *g, int member, int size)
{
    gemv_make_inputs(g, &g->in, member, size);
    if (!g->quantize) return;
    gemv_quantize_share(g, member, size);
    threadpool_barrier(g->b->base.pool);
}

static int64_t gemv_chunk_rows(const struct matmul *m, int size)
{
    const int64_t bytes = format_row_bytes(m->w->format, m->w->cols);
    const int64_t fair = (m->w->rows + size * 8 - 1) / (size * 8); /* at least eight chunks per thread */
    return round_up(MAX(MIN(CHUNK_BYTES / MAX(bytes, (int64_t)1), fair), (int64_t)1), ROWS_AT_ONCE);
}

static int64_t gemv_chunk_count(const struct matmul *m, int size)
{
    const int64_t step = gemv_chunk_rows(m, size);
    return (m->w->rows + step - 1) / step;
}

static void gemv_member(void *arg, int member, int size)
{
    struct gemv own = *(const struct gemv *)arg; /* every thread prepares its inputs in its own copy */
    const struct gemv *g = &own;
    _Alignas(64) uint8_t inputs[PRIVATE_BYTES];
    own.node = threadpool_node(own.b->base.pool, member);
    if (size == 1 || !gemv_inputs_private(&own, inputs)) gemv_inputs_common(&own, member, size);
    int64_t first = 0, runs = 0;
    for (int j = 0; j < g->count; j++) runs += gemv_chunk_count(&g->m[j], size);
    struct work_chunk chunk = { 0 };
    bool more = work_chunk_take(g->b, &chunk, runs, 1, size);
    for (int j = 0; j < g->count && more; j++) {
        const struct matmul *m = &g->m[j];
        const int64_t step = gemv_chunk_rows(m, size), last = first + gemv_chunk_count(m, size);
        for (; more && chunk.next < last;
             more = ++chunk.next < chunk.end || work_chunk_take(g->b, &chunk, runs, 1, size)) {
            const int64_t from = (chunk.next - first) * step;
            gemv_rows_run(g, m, from, MIN(from + step, m->w->rows));
        }
        first = last;
    }
}

void gemv_run(struct cpu *b, const struct matmul *m, int count)
{
    struct gemv g = { .b = b, .m = m, .count = count };
    int64_t dots = 0;
    gemv_place_inputs(&g, m->n, m->w->cols);
    for (int j = 0; j < count; j++) {
        const bool q8 = matmul_uses_q8(b, &m[j]);
        g.quantize |= q8;
        g.floats |= !q8;
        g.sums16 |= b->k.format[m[j].w->format - FORMATS].sums16;
        dots += m[j].n * m[j].w->rows * m[j].w->cols;
    }
    if (g.quantize) g.q = gemv_place_q8(&g, m->n, m->w->cols);
    cpu_run(b, dots / DOTS_PER_ELEMENT, gemv_member, &g);
}

/* ---------------------------------------------------------------- experts */

/* The experts of a region. */
struct gemv_experts {
    const struct expert_region *r;
    struct gemv g;
    bool same;  /* all pairs have the same row of x: it is prepared once */
    int inputs; /* rows that are prepared */
};

/* Where the inputs go: 8-bit blocks, then floats. */
static void experts_place(struct gemv_experts *e, uint8_t *bytes)
{
    struct gemv *g = &e->g;
    g->in.shared = bytes;
    if (g->quantize) {
        g->q = gemv_place_q8(g, e->inputs, g->in.cols);
        g->in.shared = (uint8_t *)(g->q.sum16 + 2 * e->inputs * g->q.d_stride);
    }
    g->x = (float *)g->in.shared, g->x_stride = g->in.cols;
}

static void experts_prepare_row(const struct gemv_experts *e, const float *x, int64_t i)
{
    const struct gemv *g = &e->g;
    const int64_t cols = g->in.cols, at = i * g->q.d_stride;
    if (g->quantize) {
        int8_t *q = g->q.q + i * g->q.q_stride;
        g->b->k.vec.quantize_q8(x, cols, q, g->q.d + at, g->q.sum + at);
        if (g->sums16) q8_sums16(q, g->q.d + at, cols, g->q.sum16 + 2 * at);
    }
    if (g->floats) memcpy((float *)g->x + i * g->x_stride, x, (size_t)cols * sizeof *x);
}

/* Prepare rows [from, to). */
static void experts_prepare(const struct gemv_experts *e, int64_t from, int64_t to)
{
    const struct expert_region *r = e->r;
    struct expert_products p;
    for (const struct expert_part *part = r->part; part < r->part + r->count; part++) {
        if (part->at >= to || part->at + part->n <= from) continue;
        expert_products_of(r, part, &p);
        for (int64_t i = MAX(from, part->at); i < MIN(to, part->at + part->n); i++) {
            const int64_t row = p.from ? p.from[i - part->at] : i - part->at;
            experts_prepare_row(e, p.m->x + row * p.m->x_stride, i);
        }
    }
}

/* The products of a part, and the GEMV of its rows. */
static void experts_start(const struct gemv_experts *e, const struct expert_part *part,
                          struct expert_products *p, struct gemv *g)
{
    const struct expert_region *r = e->r;
    const int64_t at = e->same ? 0 : part->at;
    expert_products_of(r, part, p);
    *g = e->g;
    g->m = p->m;
    g->x += at * g->x_stride;
    if (g->q.q) {
        g->q.q += at * g->q.q_stride;
        g->q.d += at * g->q.d_stride;
        g->q.sum += at * g->q.d_stride;
        g->q.sum16 += 2 * at * g->q.d_stride;
    }
    if (r->up) return;
    g->to = r->to->row + part->pair;
    g->by = r->down->weight + part->pair;
}

/* A unit of work: for up, `step` rows of the gate and up matrices of one expert; for down, `step` output
 * columns of all experts, so that a single thread adds what belongs together. */
static void experts_up_unit(const struct gemv_experts *e, const struct expert_part *part, int64_t from,
                            int64_t step)
{
    struct expert_products p;
    struct gemv g;
    experts_start(e, part, &p, &g);
    const int64_t to = MIN(from + step, p.w->rows);
    for (int j = 0; j < p.count; j++) gemv_rows_run(&g, &p.m[j], from, to);
    expert_activate(e->r, &p, from, to);
}

static void experts_down_unit(const struct gemv_experts *e, int64_t from, int64_t step)
{
    const struct expert_region *r = e->r;
    const int64_t to = MIN(from + step, r->down->down->rows);
    if (r->clear) expert_clear(r, from, to);
    for (const struct expert_part *part = r->part; part < r->part + r->count; part++) {
        struct expert_products p;
        struct gemv g;
        experts_start(e, part, &p, &g);
        gemv_rows_run(&g, p.m, from, to);
    }
}

static void experts_member(void *arg, int member, int size)
{
    struct gemv_experts own = *(const struct gemv_experts *)arg;
    const struct expert_region *r = own.r;
    _Alignas(64) uint8_t inputs[PRIVATE_BYTES];
    const bool private = size > 1 && gemv_shared_bytes(own.inputs, 0, own.g.in.cols) <= PRIVATE_BYTES;
    int64_t from = 0, to = own.inputs;
    own.g.node = threadpool_node(r->b->base.pool, member);
    if (!private) member_share(own.inputs, member, size, &from, &to);
    experts_place(&own, private ? inputs : own.g.in.shared);
    experts_prepare(&own, from, to);
    if (!private) threadpool_barrier(r->b->base.pool);
    struct expert_products p;
    expert_products_of(r, r->part, &p);
    const int64_t step = gemv_chunk_rows(p.m, size), steps = gemv_chunk_count(p.m, size);
    const int64_t all = steps * (r->up ? r->count : 1);
    for (struct work_chunk chunk = { 0 }; work_chunk_take(r->b, &chunk, all, 1, size);)
        for (; chunk.next < chunk.end; chunk.next++) {
            if (r->up)
                experts_up_unit(&own, &r->part[chunk.next / steps], chunk.next % steps * step, step);
            else
                experts_down_unit(&own, chunk.next * step, step);
        }
}

void gemv_run_experts(const struct expert_region *r)
{
    struct expert_products p;
    expert_products_of(r, r->part, &p);
    struct gemv_experts e = { .r = r, .g = { .b = r->b, .m = p.m, .in = inputs_of(r->b, p.m) } };
    e.same = r->up && !r->up->by_pair && r->to->rows == 1;
    e.inputs = e.same ? 1 : (int)r->rows;
    e.g.quantize = matmul_uses_q8(r->b, p.m);
    e.g.floats = !e.g.quantize;
    e.g.sums16 = r->b->k.format[p.w->format - FORMATS].sums16;
    const int64_t dots = r->rows * p.w->rows * p.w->cols * p.count;
    cpu_run(r->b, dots / DOTS_PER_ELEMENT, experts_member, &e);
}
