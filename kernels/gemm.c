/* Products with many rows of activations (prompts, batches): the weights are unpacked once into a panel of
 * the scheme's own operand and multiplied with all rows while the panel is in cache.
 *
 * The activations are packed first (all members, one barrier): k blocks of kc inputs, in each of them slivers
 * of 32 tokens, every sliver contiguous - rows 4 KiB apart would fall into the same cache set. Then members
 * take lots of panels, as many as their cores get done: for every mc rows of x and kc inputs (whose packed
 * form stays in the second cache) they unpack panel after panel and multiply. Sums over several k blocks meet
 * in y.
 *
 * Two variations: a single sliver needs no panels where the scheme can do without (multiply_few), and a gated
 * pair of products shares its panels, so that only act(gate) * up is ever written. */
#include <assert.h>
#include <string.h>

#include "kernels/inputs.h"

enum {
    ROW_GROUP = 16,
    FEW_LOT = 4,         /* panels: weights asked for ahead of a lot's end were asked for in vain */
    FAR_BYTES = 1 << 20, /* results beyond this are not in the second cache any more when they are wanted */
};

struct gemm {
    struct cpu *b;
    const struct gemm_kernel *k;
    const struct matmul *m;
    int count;
    const struct matmul *gate; /* NULL, or the partner of m[0] (count 1) */
    struct inputs in;
    enum activation act;
    bool few;             /* by multiply_few */
    int64_t cols, padded; /* padded: tokens up to a whole sliver */
    int kc;               /* inputs of a packed block */
    int panel_groups;     /* at most in one panel */
};

/* One panel's way through a member. */
struct panel {
    const struct gemm *g;
    const struct inputs *in;
    const struct matmul *m;
    int64_t row0;
    int rows;
    int64_t k0;
    int k;
    uint8_t *weights;
    float *products, *turned; /* [panel_rows][SLIVER] and [SLIVER][panel_rows] */
    int32_t *sums;            /* [panel_rows] of codes */
    float *scales, *adds;     /* [panel_rows] what results are multiplied by, and biases */
    float *outliers;          /* [panel_rows][OUTLIER_CHUNK] the panel's first columns with outliers */
};

static int64_t steps_of(const struct gemm_kernel *g, int64_t k)
{
    const int64_t step = g->depth ? g->depth : DEPTH_STEP;
    return (k + step - 1) / step;
}

int64_t gemm_shared_bytes(const struct gemm_kernel *g, int64_t rows, int64_t cols)
{
    return round_up(rows, SLIVER) / SLIVER * steps_of(g, cols) * g->sliver_step;
}

static int64_t panel_bytes(const struct gemm_kernel *g)
{
    const int64_t few = 2 * (g->few_rows / ROW_GROUP) * steps_of(g, g->few_depth);
    return MAX(g->panel_rows / ROW_GROUP * steps_of(g, g->kc), few) * g->panel_step;
}

/* Inputs on their way into a sliver, where a panel is not yet. */
static int64_t stage_bytes(const struct gemm_kernel *g)
{
    const int64_t size = g->pack_codes ? sizeof(uint8_t) : sizeof(float);
    return SLIVER * MAX(g->kc, g->few_depth) * size;
}

int64_t gemm_thread_bytes(const struct gemm_kernel *g)
{
    const int64_t outliers = g->pack_codes ? OUTLIER_CHUNK : 0;
    return MAX(panel_bytes(g), stage_bytes(g)) +
           g->panel_rows * (2 * SLIVER + 3 + outliers) * (int64_t)sizeof(float);
}

static void place_scratch(struct panel *p, const struct gemm_kernel *g, uint8_t *scratch)
{
    const int64_t rows = g->panel_rows;
    p->weights = scratch;
    p->products = (float *)(scratch + MAX(panel_bytes(g), stage_bytes(g)));
    p->turned = p->products + rows * SLIVER;
    p->scales = p->turned + rows * SLIVER;
    p->adds = p->scales + rows;
    p->outliers = p->adds + rows;
    p->sums = (int32_t *)(p->outliers + (g->pack_codes ? rows * OUTLIER_CHUNK : 0));
}

/* Behind the k blocks before k0, and in k0's block behind the slivers before `token`'s. */
static uint8_t *sliver_at(const struct gemm *g, int64_t k0, int k, int64_t token)
{
    const int64_t before = g->padded / SLIVER * steps_of(g->k, k0) + token / SLIVER * steps_of(g->k, k);
    return g->in.shared + before * g->k->sliver_step;
}

/* One sliver of one block of inputs, as the weights' method wants them. stage: stage_bytes. */
static void pack_sliver(const struct gemm *g, const struct inputs *in, void *stage, int64_t token, int64_t k0,
                        int k)
{
    const int tokens = (int)MIN((int64_t)SLIVER, in->n - token);
    void *out = sliver_at(g, k0, k, token);
    uint8_t *codes = stage;
    float *floats = stage;
    if (g->k->pack_codes) {
        for (int t = 0; t < tokens; t++) inputs_codes(in, (int)token + t, k0, k, codes + (int64_t)t * k);
        g->k->pack_codes(codes, k, tokens, k, out);
    } else if (inputs_plain(in)) {
        g->k->pack(in->x + token * in->x_stride + k0, in->x_stride, tokens, k, out);
    } else {
        for (int t = 0; t < tokens; t++) inputs_floats(in, (int)token + t, k0, k, floats + (int64_t)t * k);
        g->k->pack(floats, k, tokens, k, out);
    }
}

static void pack_share(const struct gemm *g, const struct inputs *in, void *stage, int member, int size)
{
    const int64_t slivers = g->padded / SLIVER, blocks = (g->cols + g->kc - 1) / g->kc;
    int64_t from, to;
    share_of(slivers * blocks, member, size, &from, &to);
    for (int64_t t = from; t < to; t++) {
        const int64_t k0 = t / slivers * g->kc, token = t % slivers * SLIVER;
        const int k = (int)MIN((int64_t)g->kc, g->cols - k0);
        pack_sliver(g, in, stage, token, k0, k);
    }
}

static const uint8_t *weights_at(const struct weight *w, int64_t row, int64_t k0)
{
    return (const uint8_t *)w->data + row * format_row_bytes(w->format, w->cols) +
           format_span_bytes(w->format, k0);
}

static struct unpacking unpacking_of(const struct gemm *g, const struct weight *w, int64_t row, int64_t k0)
{
    return (struct unpacking){ .format = w->format,
                               .f = &g->b->k.format[w->format - FORMATS],
                               .w = weights_at(w, row, k0),
                               .row_bytes = format_row_bytes(w->format, w->cols) };
}

/* Rows row0.. of a matrix into the panel's groups from `group` on. */
static void unpack(const struct panel *p, const struct weight *w, int64_t group)
{
    struct unpacking u = unpacking_of(p->g, w, p->row0, p->k0);
    u.k = p->k;
    u.group = p->weights + group * steps_of(p->g->k, p->k) * p->g->k->panel_step;
    for (int r = 0; r < p->rows; r += ROW_GROUP) {
        u.rows = MIN((int)ROW_GROUP, p->rows - r);
        u.sums = p->sums + group * ROW_GROUP + r;
        p->g->k->unpack(&u);
        u.w += ROW_GROUP * u.row_bytes;
        u.group = (uint8_t *)u.group + steps_of(p->g->k, p->k) * p->g->k->panel_step;
    }
}

/* What columns left to floats add to a panel's products with a sliver. */
static void add_outliers(const struct panel *p, const struct weight *w, int64_t token, float *c)
{
    const struct inputs *in = p->in;
    const struct outlier_block block = { .in = in, .w = w, .row0 = p->row0, .rows = p->rows };
    const int tokens = (int)MIN((int64_t)SLIVER, in->n - token);
    float x[SLIVER][OUTLIER_CHUNK], turned[OUTLIER_CHUNK][SLIVER] = { 0 };
    for (int first = 0; first < in->outlier_count; first += OUTLIER_CHUNK) {
        const int count = outliers_weights(&block, first, p->outliers);
        for (int t = 0; t < tokens; t++) outliers_inputs(in, first, count, (int)token + t, x[t]);
        for (int t = 0; t < tokens; t++)
            for (int i = 0; i < count; i++) turned[i][t] = x[t][i];
        p->g->b->k.tile(&(struct tile){ .m = p->rows,
                                        .n = SLIVER,
                                        .k = count,
                                        .a = p->outliers,
                                        .lda = OUTLIER_CHUNK,
                                        .b = turned[0],
                                        .ldb = SLIVER,
                                        .c = c,
                                        .ldc = SLIVER,
                                        .add = true });
    }
}

/* What a matrix's rows are adjusted by, from the panel's `group` on: found once a panel. Biases come with the
 * first block of inputs. */
static void find_adjustment(const struct panel *p, const struct matmul *m, int64_t group)
{
    const struct weight *w = m->w;
    for (int r = 0; r < p->rows; r++) {
        const int64_t row = p->row0 + r, at = group * ROW_GROUP + r;
        p->scales[at] = format_row_scale(w->format, weights_at(w, row, 0), w->cols);
        p->adds[at] = m->bias && !p->k0 ? m->bias[row] : 0;
    }
}

/* Codes to numbers, where a row keeps its scale behind its blocks and a token its own; outliers and biases.
 */
static void adjust(const struct panel *p, const struct matmul *m, int64_t group, int64_t token)
{
    static const float ONES[SLIVER] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    const struct inputs *in = p->in;
    const struct adjustment a = { .c = p->products + group * ROW_GROUP * SLIVER,
                                  .rows = p->rows,
                                  .by = in->scale ? in->scale + token : ONES,
                                  .scale = p->scales + group * ROW_GROUP,
                                  .add = p->adds + group * ROW_GROUP };
    if ((m->bias && !p->k0) || in->scale || m->w->format->row_tail_bytes) p->g->b->k.rounding.adjust(&a);
    if (in->outlier_count && !p->k0) add_outliers(p, m->w, token, a.c);
}

static void deliver_by_turning(const struct panel *p, const struct delivery *d)
{
    const int stride = p->g->k->panel_rows;
    p->g->b->k.vec.transpose(d->c, SLIVER, d->rows, d->tokens, p->turned, stride);
    for (int t = 0; t < d->tokens; t++) {
        float *restrict y = d->y + t * d->stride;
        const float *restrict v = p->turned + (int64_t)t * stride;
        if (!d->residual) {
            memcpy(y, v, (size_t)d->rows * sizeof *y);
            continue;
        }
        const float *residual = d->residual + t * d->stride;
        for (int r = 0; r < d->rows; r++) y[r] = residual[r] + v[r];
    }
}

static struct delivery delivery_of(const struct panel *p, const struct matmul *m, int64_t token, int tokens)
{
    const int64_t at = token * m->y_stride + p->row0;
    struct delivery d = { .c = p->products, .rows = p->rows, .tokens = tokens, .y = m->y + at };
    d.stride = m->y_stride;
    d.residual = p->k0 ? d.y : m->residual ? m->residual + at : NULL;
    d.far = m->n * m->w->rows * (int64_t)sizeof(float) > FAR_BYTES && p->k0 + p->k == p->g->cols;
    return d;
}

static void deliver(const struct panel *p, const struct delivery *d)
{
    if (p->g->b->k.vec.deliver)
        p->g->b->k.vec.deliver(d);
    else
        deliver_by_turning(p, d);
}

/* Rows of what is added lie a page or more apart, each a miss of cache and TLB: ask for them before the
 * product, which takes longer than they do. */
static void prefetch_residual(const struct delivery *d)
{
    enum { LINE = 64 / sizeof(float) };
    for (int t = 0; t < d->tokens && d->residual; t++)
        for (int r = 0; r < d->rows; r += LINE) __builtin_prefetch(d->residual + t * d->stride + r);
}

static void multiply(const struct panel *p, int64_t from, int64_t to)
{
    const struct gemm *g = p->g;
    const int rows = g->gate ? (int)round_up(p->rows, ROW_GROUP) : p->rows; /* the gate's begin a group */
    for (int64_t token = from; token < to; token += SLIVER) {
        const int tokens = (int)MIN((int64_t)SLIVER, g->m->n - token);
        const struct delivery d = delivery_of(p, p->m, token, tokens);
        prefetch_residual(&d);
        g->k->multiply(&(struct gemm_step){ .panel = p->weights,
                                            .sliver = sliver_at(g, p->k0, p->k, token),
                                            .rows = g->gate ? 2 * rows : rows,
                                            .tokens = tokens,
                                            .k = p->k,
                                            .c = p->products,
                                            .zero = p->in->zero,
                                            .sums = p->sums });
        adjust(p, p->m, 0, token);
        if (g->gate) {
            float *gate = p->products + (int64_t)rows * SLIVER;
            adjust(p, g->gate, rows / ROW_GROUP, token);
            g->b->k.vec.activate[g->act](gate, p->products, (int64_t)p->rows * SLIVER, p->products);
        }
        deliver(p, &d);
    }
}

static int64_t groups_of(const struct matmul *m)
{
    return (m->w->rows + ROW_GROUP - 1) / ROW_GROUP;
}

/* As many for each member, where they are equally fast. */
static int64_t panels_of(const struct gemm *g, const struct matmul *m, int size)
{
    const int64_t groups = groups_of(m), least = (groups + g->panel_groups - 1) / g->panel_groups;
    return MIN(round_up(least, size), groups);
}

/* Panel `index` of all that all products have. */
static void place_panel(const struct gemm *g, struct panel *p, int64_t index, int size)
{
    int64_t from, to;
    for (p->m = g->m; index >= panels_of(g, p->m, size); p->m++) index -= panels_of(g, p->m, size);
    share_of(groups_of(p->m), (int)index, (int)panels_of(g, p->m, size), &from, &to);
    p->row0 = from * ROW_GROUP;
    p->rows = (int)(MIN(to * ROW_GROUP, p->m->w->rows) - p->row0);
}

/* A placed panel, for tokens [from, to) and its inputs. */
static void panel_run_many(const struct gemm *g, struct panel *p, int64_t from, int64_t to)
{
    const int64_t groups = (p->rows + ROW_GROUP - 1) / ROW_GROUP;
    unpack(p, p->m->w, 0);
    find_adjustment(p, p->m, 0);
    if (g->gate) unpack(p, g->gate->w, groups), find_adjustment(p, g->gate, groups);
    multiply(p, from, to);
}

/* A placed panel for the few tokens there are, with all inputs. */
static void panel_run_few(const struct gemm *g, struct panel *p)
{
    const struct delivery d = delivery_of(p, p->m, 0, g->m->n);
    struct few_product few = { .u = unpacking_of(g, p->m->w, p->row0, 0),
                               .sliver = g->in.shared,
                               .tokens = g->m->n,
                               .c = p->products,
                               .zero = p->in->zero };
    few.u.rows = p->rows;
    few.u.k = p->k;
    few.u.group = p->weights;
    g->k->multiply_few(&few);
    find_adjustment(p, p->m, 0);
    adjust(p, p->m, 0, 0);
    deliver(p, &d);
}

/* Panels [first, last) of all, for the tokens from `from` on that stay in the second cache. */
static void panels_run(const struct gemm *g, struct panel *p, int64_t first, int64_t last, int64_t from,
                       int size)
{
    const int64_t to = MIN(from + g->k->mc, g->padded), depth = g->few ? g->cols : g->kc;
    for (p->k0 = 0; p->k0 < g->cols; p->k0 += depth) {
        p->k = (int)MIN(depth, g->cols - p->k0);
        for (int64_t i = first; i < last; i++) {
            place_panel(g, p, i, size);
            if (g->few)
                panel_run_few(g, p);
            else
                panel_run_many(g, p, from, to);
        }
    }
}

/* All panels once for every mc tokens. A lot begins with tokens that another member had, once for every block
 * of inputs: where there is one block, they are there from the lot before. */
static void lots_run(const struct gemm *g, struct panel *p, int size)
{
    const int64_t sweeps = g->few ? 1 : (g->padded + g->k->mc - 1) / g->k->mc;
    int64_t panels = 0, least = g->few ? FEW_LOT : 1;
    for (int j = 0; j < g->count; j++) panels += panels_of(g, &g->m[j], size);
    if (!g->few && g->cols > g->kc && g->k->long_lots) least = panels;
    least = MAX(MIN(least, panels / size), (int64_t)1);
    for (struct lot lot = { 0 }; lot_take(g->b, &lot, sweeps * panels, least, size);)
        while (lot.next < lot.end) {
            const int64_t sweep = lot.next / panels, first = lot.next % panels;
            const int64_t last = MIN(panels, first + lot.end - lot.next);
            panels_run(g, p, first, last, sweep * g->k->mc, size);
            lot.next += last - first;
        }
}

static void gemm_member(void *arg, int member, int size)
{
    const struct gemm *g = arg;
    const struct gemm_kernel *gk = g->k;
    struct inputs in = g->in; /* members settle their inputs by themselves */
    struct panel p = { .g = g, .in = &in };
    place_scratch(&p, gk, cpu_thread_scratch(g->b, member));
    if (in.scale) {
        int64_t from, to;
        share_of(in.n, member, size, &from, &to);
        inputs_measure(&in, (int)from, (int)to, member);
        threadpool_barrier(g->b->base.pool);
        inputs_settle(&in, member, size);
    }
    pack_share(g, &in, p.weights, member, size);
    threadpool_barrier(g->b->base.pool);
    if (gk->begin) gk->begin();
    lots_run(g, &p, size);
    if (gk->end) gk->end();
}

static void run(struct gemm *g)
{
    int64_t products = 0;
    for (int j = 0; j < g->count; j++) products += g->m[j].n * g->m[j].w->rows * g->m[j].w->cols;
    g->cols = g->m->w->cols;
    g->in = inputs_of(g->b, g->m);
    g->padded = round_up(g->m->n, SLIVER);
    g->few = !g->gate && g->k->multiply_few && g->m->n <= SLIVER;
    g->kc = g->few ? g->k->few_depth : g->k->kc;
    g->panel_groups = (g->few ? g->k->few_rows : g->k->panel_rows) / (g->gate ? 2 : 1) / ROW_GROUP;
    cpu_run(g->b, products / PRODUCTS_AN_ELEMENT, gemm_member, g);
}

void gemm_run(struct cpu *b, const struct gemm_kernel *k, const struct matmul *m, int count)
{
    run(&(struct gemm){ .b = b, .k = k, .m = m, .count = count });
}

bool gemm_can_gate(const struct gemm_kernel *k, const struct gated *p)
{
    const struct weight *gate = p->gate.w, *up = p->up.w;
    return up->cols <= k->kc && up->cols == gate->cols && up->rows == gate->rows &&
           k->panel_rows >= 2 * ROW_GROUP && !(k->multiply_few && p->up.n <= SLIVER);
}

void gemm_run_gated(struct cpu *b, const struct gemm_kernel *k, const struct gated *p)
{
    struct matmul up = p->up;
    up.y = p->y;
    up.y_stride = p->y_stride;
    run(&(struct gemm){ .b = b, .k = k, .m = &up, .count = 1, .gate = &p->gate, .act = p->act });
}
