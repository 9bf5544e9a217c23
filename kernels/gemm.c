/* GEMM: products with many rows of activations (prompts, batches). Weights are unpacked once into a packed
 * panel and multiplied with all rows while the panel is in cache.
 *
 * 1. All threads pack the activations, followed by one barrier. The inputs are divided into k blocks of kc
 *    inputs, each k block into slivers of 32 tokens. A sliver is contiguous, because rows 4 KiB apart would
 *    compete for the same cache set.
 * 2. Each thread takes chunks of panels until none is left. For every mc rows of x and kc inputs (whose
 * slivers stay in the second-level cache) it unpacks panel after panel and multiplies. With several k blocks,
 * partial sums are accumulated in y.
 *
 * There are two variants. With a single sliver (up to 32 tokens), a kernel with multiply_few needs no panels.
 * A gated pair of products is packed into common panels, so that only act(gate) * up is written. */
#include <assert.h>
#include <string.h>

#include "kernels/gemm.h"

enum {
    FEW_CHUNK = 4,             /* least panels of a chunk: prefetches beyond the end of a chunk are wasted */
    STREAMING_BYTES = 1 << 20, /* larger results leave the second-level cache before they are read again */
};

static int64_t gemm_depth_steps(const struct gemm_kernel *g, int64_t k)
{
    const int64_t step = g->depth ? g->depth : DEPTH_STEP;
    return (k + step - 1) / step;
}

int64_t gemm_shared_bytes(const struct gemm_kernel *g, int64_t rows, int64_t cols)
{
    return round_up(rows, SLIVER) / SLIVER * gemm_depth_steps(g, cols) * g->sliver_step;
}

static int64_t gemm_panel_bytes(const struct gemm_kernel *g)
{
    const int64_t few = 2 * (g->few_rows / ROW_GROUP) * gemm_depth_steps(g, g->few_depth);
    return MAX(g->panel_rows / ROW_GROUP * gemm_depth_steps(g, g->kc), few) * g->panel_step;
}

/* Bytes for the quantized inputs of one sliver before packing; they use the memory of the later panel. */
static int64_t gemm_stage_bytes(const struct gemm_kernel *g)
{
    const int64_t size = g->pack_codes ? sizeof(uint8_t) : sizeof(float);
    return SLIVER * MAX(g->kc, g->few_depth) * size;
}

int64_t gemm_thread_bytes(const struct gemm_kernel *g)
{
    const int64_t outliers = g->pack_codes ? OUTLIER_CHUNK : 0;
    return MAX(gemm_panel_bytes(g), gemm_stage_bytes(g)) +
           g->panel_rows * (2 * SLIVER + 3 + outliers) * (int64_t)sizeof(float);
}

struct panel gemm_panel_of(const struct gemm *g, int member)
{
    const int64_t rows = g->k->panel_rows;
    uint8_t *scratch = cpu_thread_scratch(g->b, member);
    struct panel p = { .g = g, .in = &g->in, .weights = scratch };
    p.node = threadpool_node(g->b->base.pool, member);
    p.products = (float *)(scratch + MAX(gemm_panel_bytes(g->k), gemm_stage_bytes(g->k)));
    p.transposed = p.products + rows * SLIVER;
    p.scales = p.transposed + rows * SLIVER;
    p.adds = p.scales + rows;
    p.outliers = p.adds + rows;
    p.sums = (int32_t *)(p.outliers + (g->k->pack_codes ? rows * OUTLIER_CHUNK : 0));
    return p;
}

/* The sliver of the tokens from `token` on in the k block that begins at k0 and has k inputs. */
static uint8_t *gemm_sliver_at(const struct gemm *g, int64_t k0, int k, int64_t token)
{
    const int64_t before = g->padded / SLIVER * gemm_depth_steps(g->k, k0) +
                           token / SLIVER * gemm_depth_steps(g->k, k);
    return g->in.shared + before * g->k->sliver_step;
}

/* Quantize the inputs of one sliver as the weight prescribes, and pack them. stage: gemm_stage_bytes bytes;
 * rows of x that are not neighbours are copied there first. */
void gemm_pack_sliver(const struct gemm *g, const struct inputs *in, void *stage, int64_t token, int64_t k0,
                      int k)
{
    const int tokens = (int)MIN((int64_t)SLIVER, in->n - token);
    void *out = gemm_sliver_at(g, k0, k, token);
    uint8_t *codes = stage;
    float *floats = stage;
    if (g->k->pack_codes) {
        for (int t = 0; t < tokens; t++) inputs_codes(in, (int)token + t, k0, k, codes + (int64_t)t * k);
        g->k->pack_codes(codes, k, tokens, k, out);
    } else if (g->from) {
        assert(inputs_plain(in));
        for (int t = 0; t < tokens; t++)
            memcpy(floats + (int64_t)t * k, in->x + g->from[token + t] * in->x_stride + k0,
                   (size_t)k * sizeof *floats);
        g->k->pack(floats, k, tokens, k, out);
    } else if (inputs_plain(in)) {
        g->k->pack(in->x + token * in->x_stride + k0, in->x_stride, tokens, k, out);
    } else {
        for (int t = 0; t < tokens; t++) inputs_floats(in, (int)token + t, k0, k, floats + (int64_t)t * k);
        g->k->pack(floats, k, tokens, k, out);
    }
}

static void gemm_pack_share(const struct gemm *g, const struct inputs *in, void *stage, int member, int size)
{
    const int64_t slivers = g->padded / SLIVER, blocks = (g->cols + g->kc - 1) / g->kc;
    int64_t from, to;
    member_share(slivers * blocks, member, size, &from, &to);
    for (int64_t t = from; t < to; t++) {
        const int64_t k0 = t / slivers * g->kc, token = t % slivers * SLIVER;
        const int k = (int)MIN((int64_t)g->kc, g->cols - k0);
        gemm_pack_sliver(g, in, stage, token, k0, k);
    }
}

static const uint8_t *weight_bytes_at(const struct panel *p, const struct weight *w, int64_t row, int64_t k0)
{
    return cpu_weight_of(w, p->node) + row * format_row_bytes(w->format, w->cols) +
           format_span_bytes(w->format, k0);
}

/* The panel's rows of matrix w, its k block. */
static struct unpacking panel_unpacking(const struct panel *p, const struct weight *w)
{
    return (struct unpacking){ .format = w->format,
                               .f = &p->g->b->k.format[w->format - FORMATS],
                               .w = weight_bytes_at(p, w, p->row0, p->k0),
                               .row_bytes = format_row_bytes(w->format, w->cols) };
}

/* Unpack the panel's rows of matrix w into its groups from `group` on. */
static void panel_unpack(const struct panel *p, const struct weight *w, int64_t group)
{
    struct unpacking u = panel_unpacking(p, w);
    u.k = p->k;
    u.group = p->weights + group * gemm_depth_steps(p->g->k, p->k) * p->g->k->panel_step;
    for (int r = 0; r < p->rows; r += ROW_GROUP) {
        u.rows = MIN((int)ROW_GROUP, p->rows - r);
        u.sums = p->sums + group * ROW_GROUP + r;
        p->g->k->unpack(&u);
        u.w += ROW_GROUP * u.row_bytes;
        u.group = (uint8_t *)u.group + gemm_depth_steps(p->g->k, p->k) * p->g->k->panel_step;
    }
}

/* Add the products of the outlier columns, as floats, to a panel's results with a sliver. */
static void panel_add_outliers(const struct panel *p, const struct weight *w, int64_t token, float *c)
{
    const struct inputs *in = p->in;
    const struct outlier_block block = { .in = in, .w = w, .row0 = p->row0, .rows = p->rows };
    const int tokens = (int)MIN((int64_t)SLIVER, in->n - token);
    float x[SLIVER][OUTLIER_CHUNK], transposed[OUTLIER_CHUNK][SLIVER] = { 0 };
    for (int first = 0; first < in->outlier_count; first += OUTLIER_CHUNK) {
        const int count = outliers_weights(&block, first, p->outliers);
        for (int t = 0; t < tokens; t++) outliers_inputs(in, first, count, (int)token + t, x[t]);
        for (int t = 0; t < tokens; t++)
            for (int i = 0; i < count; i++) transposed[i][t] = x[t][i];
        p->g->b->k.tile(&(struct tile){ .m = p->rows,
                                        .n = SLIVER,
                                        .k = count,
                                        .a = p->outliers,
                                        .lda = OUTLIER_CHUNK,
                                        .b = transposed[0],
                                        .ldb = SLIVER,
                                        .c = c,
                                        .ldc = SLIVER,
                                        .add = true });
    }
}

/* Whether results of this matrix are scaled or get a bias. */
static bool panel_needs_adjustment(const struct panel *p, const struct matmul *m)
{
    return (m->bias && !p->k0) || p->in->scale || m->w->format->row_tail_bytes || m->w->scale != 0;
}

/* Collect the row scales and biases of a matrix for the panel's groups from `group` on, once per panel.
 * Biases are added with the first k block only. */
static void panel_find_adjustment(const struct panel *p, const struct matmul *m, int64_t group)
{
    const struct weight *w = m->w;
    if (!panel_needs_adjustment(p, m)) return;
    for (int r = 0; r < p->rows; r++) {
        const int64_t row = p->row0 + r, at = group * ROW_GROUP + r;
        p->scales[at] = format_row_scale(w->format, weight_bytes_at(p, w, row, 0), w->cols) * weight_scale(w);
        p->adds[at] = m->bias && !p->k0 ? m->bias[row] : 0;
    }
}

/* Apply scales of rows and tokens, biases and outlier columns to the results of a panel and a sliver. */
static void panel_adjust(const struct panel *p, const struct matmul *m, int64_t group, int64_t token)
{
    static const float ONES[SLIVER] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    const struct inputs *in = p->in;
    const struct adjustment a = { .c = p->products + group * ROW_GROUP * SLIVER,
                                  .rows = p->rows,
                                  .by = in->scale ? in->scale + token : ONES,
                                  .scale = p->scales + group * ROW_GROUP,
                                  .add = p->adds + group * ROW_GROUP };
    if (panel_needs_adjustment(p, m)) p->g->b->k.rounding.adjust(&a);
    if (in->outlier_count && !p->k0) panel_add_outliers(p, m->w, token, a.c);
}

static void panel_store_transposed(const struct panel *p, const struct result_store *d)
{
    const int stride = p->g->k->panel_rows;
    p->g->b->k.vec.transpose(d->c, SLIVER, d->rows, d->tokens, p->transposed, stride);
    for (int t = 0; t < d->tokens; t++) {
        float *restrict y = d->y + t * d->stride;
        const float *restrict v = p->transposed + (int64_t)t * stride;
        if (d->to) {
            float *sum = d->y + d->to[t] * d->stride;
            for (int r = 0; r < d->rows; r++) sum[r] += d->by[t] * v[r];
            continue;
        }
        if (!d->residual) {
            memcpy(y, v, (size_t)d->rows * sizeof *y);
            continue;
        }
        const float *residual = d->residual + t * d->stride;
        for (int r = 0; r < d->rows; r++) y[r] = residual[r] + v[r];
    }
}

static struct result_store panel_result_store(const struct panel *p, const struct matmul *m, int64_t token,
                                              int tokens)
{
    const int64_t at = token * m->y_stride + p->row0;
    struct result_store d = { .c = p->products, .rows = p->rows, .tokens = tokens, .y = m->y + at };
    d.stride = m->y_stride;
    d.residual = p->k0 ? d.y : m->residual ? m->residual + at : NULL;
    d.streaming = m->n * m->w->rows * (int64_t)sizeof(float) > STREAMING_BYTES &&
                  p->k0 + p->k == p->g->cols && !p->g->read_soon;
    if (!p->g->to) return d;
    d.to = p->g->to + token;
    d.by = p->g->by + token;
    d.y = m->y + p->row0;
    d.residual = NULL; /* results are added to the rows of y that `to` names */
    d.streaming = false;
    return d;
}

static void panel_store_results(const struct panel *p, const struct result_store *d)
{
    if (p->g->b->k.vec.store_results)
        p->g->b->k.vec.store_results(d);
    else
        panel_store_transposed(p, d);
}

/* Prefetch what results are added to. Its rows are a page or more apart, so each access misses cache and TLB;
 * the product that follows hides the latency. */
static void panel_prefetch_residual(const struct result_store *d)
{
    enum { LINE = 64 / sizeof(float) };
    for (int t = 0; t < d->tokens && (d->residual || d->to); t++)
        for (int r = 0; r < d->rows; r += LINE)
            __builtin_prefetch((d->to ? d->y + d->to[t] * d->stride : d->residual + t * d->stride) + r);
}

static void panel_multiply(const struct panel *p, int64_t from, int64_t to)
{
    const struct gemm *g = p->g;
    const int rows = g->gate ? (int)round_up(p->rows, ROW_GROUP)
                             : p->rows; /* the gate's rows start a new group */
    for (int64_t token = from; token < to; token += SLIVER) {
        const int tokens = (int)MIN((int64_t)SLIVER, g->m->n - token);
        const struct result_store d = panel_result_store(p, p->m, token, tokens);
        panel_prefetch_residual(&d);
        g->k->multiply(&(struct gemm_step){ .panel = p->weights,
                                            .sliver = gemm_sliver_at(g, p->k0, p->k, token),
                                            .rows = g->gate ? 2 * rows : rows,
                                            .tokens = tokens,
                                            .k = p->k,
                                            .c = p->products,
                                            .zero = p->in->zero,
                                            .sums = p->sums });
        panel_adjust(p, p->m, 0, token);
        if (g->gate) {
            float *gate = p->products + (int64_t)rows * SLIVER;
            panel_adjust(p, g->gate, rows / ROW_GROUP, token);
            g->b->k.vec.activate[g->act](gate, p->products, (int64_t)p->rows * SLIVER, p->products);
        }
        panel_store_results(p, &d);
    }
}

static int64_t matmul_row_groups(const struct matmul *m)
{
    return (m->w->rows + ROW_GROUP - 1) / ROW_GROUP;
}

/* The number of panels of a matrix, rounded up so that all threads get equally many. */
static int64_t gemm_panel_count(const struct gemm *g, const struct matmul *m, int size)
{
    const int64_t groups = matmul_row_groups(m), least = (groups + g->panel_groups - 1) / g->panel_groups;
    return MIN(round_up(least, size), groups);
}

/* Set the matrix and rows of panel `index`, counted over all products of the group. */
static void panel_place(const struct gemm *g, struct panel *p, int64_t index, int size)
{
    int64_t from, to;
    for (p->m = g->m; index >= gemm_panel_count(g, p->m, size); p->m++)
        index -= gemm_panel_count(g, p->m, size);
    member_share(matmul_row_groups(p->m), (int)index, (int)gemm_panel_count(g, p->m, size), &from, &to);
    p->row0 = from * ROW_GROUP;
    p->rows = (int)(MIN(to * ROW_GROUP, p->m->w->rows) - p->row0);
}

/* Unpack a panel and multiply it with the tokens [from, to). */
void panel_run_many(const struct gemm *g, struct panel *p, int64_t from, int64_t to)
{
    const int64_t groups = (p->rows + ROW_GROUP - 1) / ROW_GROUP;
    panel_unpack(p, p->m->w, 0);
    panel_find_adjustment(p, p->m, 0);
    if (g->gate) panel_unpack(p, g->gate->w, groups), panel_find_adjustment(p, g->gate, groups);
    panel_multiply(p, from, to);
}

/* Multiply a panel's rows with the only sliver, without packing a panel. Results are added up k block by k
 * block as those of packed panels are, so that they do not depend on the number of tokens. */
void panel_run_few(const struct gemm *g, struct panel *p)
{
    const struct weight *w = p->m->w;
    const uint8_t *next = weight_bytes_at(p, w, p->row0 + p->rows, 0);
    for (p->k0 = 0; p->k0 < g->cols; p->k0 += g->k->kc) {
        p->k = (int)MIN((int64_t)g->k->kc, g->cols - p->k0);
        const struct result_store d = panel_result_store(p, p->m, 0, g->m->n);
        struct few_product few = { .u = panel_unpacking(p, w),
                                   .sliver = gemm_sliver_at(g, p->k0, 0, 0),
                                   .tokens = g->m->n,
                                   .next = next,
                                   .next_bytes = p->rows * format_span_bytes(w->format, p->k),
                                   .c = p->products,
                                   .zero = p->in->zero };
        few.u.rows = p->rows;
        few.u.k = p->k;
        few.u.group = p->weights;
        g->k->multiply_few(&few);
        panel_find_adjustment(p, p->m, 0);
        panel_adjust(p, p->m, 0, 0);
        panel_store_results(p, &d);
        next += few.next_bytes;
    }
}

/* Run panels [first, last) for the mc tokens from `from` on, whose slivers stay in the second-level cache. */
static void gemm_panels_run(const struct gemm *g, struct panel *p, int64_t first, int64_t last, int64_t from,
                            int size)
{
    const int64_t to = MIN(from + g->k->mc, g->padded);
    for (int64_t i = first; g->few && i < last; i++) {
        panel_place(g, p, i, size);
        panel_run_few(g, p);
    }
    for (p->k0 = 0; !g->few && p->k0 < g->cols; p->k0 += g->kc) {
        p->k = (int)MIN((int64_t)g->kc, g->cols - p->k0);
        for (int64_t i = first; i < last; i++) {
            panel_place(g, p, i, size);
            panel_run_many(g, p, from, to);
        }
    }
}

/* Take chunks of panels until none is left; all panels run once for every mc tokens (a sweep). With several k
 * blocks, each chunk reads all slivers again, so kernels with long_chunks take whole shares then. */
static void gemm_chunks_run(const struct gemm *g, struct panel *p, int size)
{
    const int64_t sweeps = g->few ? 1 : (g->padded + g->k->mc - 1) / g->k->mc;
    int64_t panels = 0, least = g->few ? FEW_CHUNK : 1;
    for (int j = 0; j < g->count; j++) panels += gemm_panel_count(g, &g->m[j], size);
    if (!g->few && g->cols > g->kc && g->k->long_chunks) least = panels;
    least = MAX(MIN(least, panels / size), (int64_t)1);
    for (struct work_chunk chunk = { 0 }; work_chunk_take(g->b, &chunk, sweeps * panels, least, size);)
        while (chunk.next < chunk.end) {
            const int64_t sweep = chunk.next / panels, first = chunk.next % panels;
            const int64_t last = MIN(panels, first + chunk.end - chunk.next);
            gemm_panels_run(g, p, first, last, sweep * g->k->mc, size);
            chunk.next += last - first;
        }
}

static void gemm_member(void *arg, int member, int size)
{
    const struct gemm *g = arg;
    const struct gemm_kernel *gk = g->k;
    struct inputs in = g->in; /* every thread combines the measured scales in its own copy */
    struct panel p = gemm_panel_of(g, member);
    p.in = &in;
    if (in.scale) {
        int64_t from, to;
        member_share(in.n, member, size, &from, &to);
        inputs_measure(&in, (int)from, (int)to, member);
        threadpool_barrier(g->b->base.pool);
        inputs_combine(&in, member, size);
    }
    gemm_pack_share(g, &in, p.weights, member, size);
    threadpool_barrier(g->b->base.pool);
    if (gk->begin) gk->begin();
    gemm_chunks_run(g, &p, size);
    if (gk->end) gk->end();
}

void gemm_prepare(struct gemm *g)
{
    g->cols = g->m->w->cols;
    g->in = inputs_of(g->b, g->m);
    g->padded = round_up(g->m->n, SLIVER);
    g->few = !g->gate && g->k->multiply_few && g->m->n <= SLIVER;
    g->kc = g->few ? g->k->few_depth : g->k->kc;
    g->panel_groups = (g->few ? g->k->few_rows : g->k->panel_rows) / (g->gate ? 2 : 1) / ROW_GROUP;
}

static void gemm_start(struct gemm *g)
{
    int64_t products = 0;
    for (int j = 0; j < g->count; j++) products += g->m[j].n * g->m[j].w->rows * g->m[j].w->cols;
    gemm_prepare(g);
    cpu_run(g->b, products / PRODUCTS_PER_ELEMENT, gemm_member, g);
}

void gemm_run(struct cpu *b, const struct gemm_kernel *k, const struct matmul *m, int count)
{
    gemm_start(&(struct gemm){ .b = b, .k = k, .m = m, .count = count });
}

bool gemm_can_gate(const struct cpu *b, const struct gemm_kernel *k, const struct gated *p)
{
    const struct weight *gate = p->gate.w, *up = p->up.w;
    /* In an incomplete group, the vectors of the fused activation hold other elements than those of
     * backend_activate, which computes the last ones of a row without vectors. */
    if (b->base.options.batch_invariant && up->rows % ROW_GROUP) return false;
    return up->cols <= k->kc && up->cols == gate->cols && up->rows == gate->rows &&
           k->panel_rows >= 2 * ROW_GROUP && !(k->multiply_few && p->up.n <= SLIVER);
}

void gemm_run_gated(struct cpu *b, const struct gemm_kernel *k, const struct gated *p)
{
    struct matmul up = p->up;
    up.y = p->y;
    up.y_stride = p->y_stride;
    gemm_start(&(struct gemm){ .b = b, .k = k, .m = &up, .count = 1, .gate = &p->gate, .act = p->act });
}
