/* Products with many rows of activations (prompts, batches): the weights are unpacked once into a panel of
 * the ISA's own operand and multiplied with all rows while the panel is in cache.
 *
 * The activations are packed first (all members, one barrier): k blocks of kc inputs, in each of them slivers
 * of 32 tokens, every sliver contiguous - rows 4 KiB apart would fall into the same cache set. Then each
 * member walks its share of the weight rows: for every mc rows of x and kc inputs (whose packed form stays in
 * the second cache) it unpacks panel after panel and multiplies. Sums over several k blocks meet in y. */
#include <assert.h>
#include <string.h>

#include "kernels/backend.h"
#include "kernels/half.h"

enum { ROW_GROUP = 16, COLS_AT_ONCE = 512 };

struct gemm {
    struct backend *b;
    const struct gemm_kernel *k;
    const struct matmul *m;
    int count;
    int64_t cols, padded; /* padded: tokens up to a whole sliver */
};

/* One panel's way through a member. */
struct panel {
    const struct gemm *g;
    const struct matmul *m;
    int64_t row0;
    int rows;
    int64_t k0;
    int k;
    uint8_t *weights;
    float *products, *turned; /* [panel_rows][SLIVER] and [SLIVER][panel_rows] */
    float *decoded;           /* one row of kc, for formats without their own unpacking */
};

static int64_t depth_of(const struct gemm_kernel *g, int64_t k)
{
    return g->operand_bytes == 4 ? k : round_up(k, TILE_DEPTH);
}

int64_t gemm_shared_bytes(const struct gemm_kernel *g, int64_t rows, int64_t cols)
{
    return round_up(rows, SLIVER) * depth_of(g, cols) * g->operand_bytes;
}

int64_t gemm_thread_bytes(const struct gemm_kernel *g)
{
    const int64_t panel = (int64_t)g->panel_rows * g->kc * g->operand_bytes;
    return panel + (2 * (int64_t)g->panel_rows * SLIVER + g->kc) * (int64_t)sizeof(float);
}

static uint8_t *sliver_at(const struct gemm *g, int64_t k0, int k, int64_t token)
{
    return g->b->shared + (g->padded * k0 + token * depth_of(g->k, k)) * g->k->operand_bytes;
}

static void pack_share(const struct gemm *g, int member, int size)
{
    const struct gemm_kernel *gk = g->k;
    const int64_t slivers = g->padded / SLIVER, blocks = (g->cols + gk->kc - 1) / gk->kc;
    int64_t from, to;
    share_of(slivers * blocks, member, size, &from, &to);
    for (int64_t t = from; t < to; t++) {
        const int64_t k0 = t / slivers * gk->kc, token = t % slivers * SLIVER;
        const int k = (int)MIN((int64_t)gk->kc, g->cols - k0);
        gk->pack(g->m->x + token * g->m->x_stride + k0, g->m->x_stride,
                 (int)MIN((int64_t)SLIVER, g->m->n - token), k, sliver_at(g, k0, k, token));
    }
}

/* Any format by way of f32: slower than a format's own function, but a format needs only `decode`. */
static void unpack_bf16_by_decoding(const struct panel *p, const struct format_kernels *f, const uint8_t *w,
                                    int64_t row_bytes, int rows, uint16_t *out)
{
    const int64_t tiles = (p->k + TILE_DEPTH - 1) / TILE_DEPTH;
    memset(out, 0, (size_t)tiles * TILE_ROWS * TILE_DEPTH * sizeof *out);
    for (int r = 0; r < rows; r++) {
        f->decode(w + r * row_bytes, p->decoded, p->k);
        for (int64_t i = 0; i < p->k; i++)
            out[(i / TILE_DEPTH * TILE_ROWS + r) * TILE_DEPTH + i % TILE_DEPTH] = bhalf_from_float(
                p->decoded[i]);
    }
}

static void unpack(const struct panel *p)
{
    const struct weight *w = p->m->w;
    const struct format_kernels *f = &p->g->b->k.format[w->format - FORMATS];
    const int64_t row_bytes = format_row_bytes(w->format, w->cols);
    const uint8_t *first = (const uint8_t *)w->data + p->row0 * row_bytes +
                           format_span_bytes(w->format, p->k0);
    if (p->g->k->operand_bytes == 4) {
        for (int r = 0; r < p->rows; r++)
            f->decode(first + r * row_bytes, (float *)p->weights + (int64_t)r * p->k, p->k);
        return;
    }
    const int64_t group_bytes = ROW_GROUP * depth_of(p->g->k, p->k) * 2;
    for (int r = 0; r < round_up(p->rows, 2 * ROW_GROUP); r += ROW_GROUP) { /* tiles go in pairs */
        const int rows = MAX(0, MIN((int)ROW_GROUP, p->rows - r));
        uint16_t *out = (uint16_t *)(p->weights + r / ROW_GROUP * group_bytes);
        if (!rows)
            memset(out, 0, (size_t)group_bytes);
        else if (f->unpack_bf16)
            f->unpack_bf16(first + r * row_bytes, row_bytes, rows, p->k, out);
        else
            unpack_bf16_by_decoding(p, f, first + r * row_bytes, row_bytes, rows, out);
    }
}

/* Codes to weights, where a row keeps its scale behind its blocks. */
static void scale_products(const struct panel *p)
{
    const struct weight *w = p->m->w;
    const int64_t row_bytes = format_row_bytes(w->format, w->cols);
    const uint8_t *first = (const uint8_t *)w->data + p->row0 * row_bytes;
    for (int r = 0; r < p->rows; r++) {
        const float scale = format_row_scale(w->format, first + r * row_bytes, w->cols);
        for (int t = 0; t < SLIVER; t++) p->products[r * SLIVER + t] *= scale;
    }
}

static void finish(const struct panel *p, int64_t token, int tokens)
{
    const struct matmul *m = p->m;
    const int stride = p->g->k->panel_rows;
    if (m->w->format->row_tail_bytes) scale_products(p);
    p->g->b->k.vec.transpose(p->products, SLIVER, p->rows, tokens, p->turned, stride);
    for (int t = 0; t < tokens; t++) {
        float *restrict y = m->y + (token + t) * m->y_stride + p->row0;
        float *restrict v = p->turned + (int64_t)t * stride;
        if (p->k0) { /* bias and residual came with the first k block */
            for (int r = 0; r < p->rows; r++) y[r] += v[r];
            continue;
        }
        const float *bias = m->bias ? m->bias + p->row0 : NULL;
        const float *residual = m->residual ? m->residual + (token + t) * m->y_stride + p->row0 : NULL;
        if (bias)
            for (int r = 0; r < p->rows; r++) v[r] += bias[r];
        if (residual)
            for (int r = 0; r < p->rows; r++) v[r] += residual[r];
        memcpy(y, v, (size_t)p->rows * sizeof *y);
    }
}

/* Rows of y lie a page or more apart, each a miss of cache and TLB: ask for them before the product, which
 * takes longer than they do. */
static void prefetch_results(const struct panel *p, int64_t token, int tokens)
{
    enum { LINE = 64 / sizeof(float) };
    for (int t = 0; t < tokens; t++) {
        const float *y = p->m->y + (token + t) * p->m->y_stride + p->row0;
        for (int r = 0; r < p->rows; r += LINE) __builtin_prefetch(y + r, 1);
    }
}

static void multiply(const struct panel *p, int64_t from, int64_t to)
{
    const struct gemm *g = p->g;
    for (int64_t token = from; token < to; token += SLIVER) {
        const int tokens = (int)MIN((int64_t)SLIVER, g->m->n - token);
        prefetch_results(p, token, tokens);
        g->k->multiply(p->weights, sliver_at(g, p->k0, p->k, token), p->rows, tokens, p->k, p->products);
        finish(p, token, tokens);
    }
}

/* This member's rows of every product, for tokens [from, to) and inputs [k0, k0 + k). */
static void block_run(const struct gemm *g, struct panel *p, int member, int size, int64_t from, int64_t to)
{
    for (int j = 0; j < g->count; j++) {
        int64_t first, last;
        share_of(round_up(g->m[j].w->rows, ROW_GROUP) / ROW_GROUP, member, size, &first, &last);
        last = MIN(last * ROW_GROUP, g->m[j].w->rows);
        p->m = &g->m[j];
        for (p->row0 = first * ROW_GROUP; p->row0 < last; p->row0 += g->k->panel_rows) {
            p->rows = (int)MIN((int64_t)g->k->panel_rows, last - p->row0);
            unpack(p);
            multiply(p, from, to);
        }
    }
}

static void gemm_member(void *arg, int member, int size)
{
    const struct gemm *g = arg;
    const struct gemm_kernel *gk = g->k;
    pack_share(g, member, size);
    threadpool_barrier(g->b->pool);
    uint8_t *scratch = backend_thread_scratch(g->b, member);
    struct panel p = { .g = g, .weights = scratch };
    p.products = (float *)(scratch + (int64_t)gk->panel_rows * gk->kc * gk->operand_bytes);
    p.turned = p.products + (int64_t)gk->panel_rows * SLIVER;
    p.decoded = p.turned + (int64_t)gk->panel_rows * SLIVER;
    if (gk->begin) gk->begin();
    for (int64_t from = 0; from < g->padded; from += gk->mc) {
        const int64_t to = MIN(from + gk->mc, g->padded);
        for (p.k0 = 0; p.k0 < g->cols; p.k0 += gk->kc) {
            p.k = (int)MIN((int64_t)gk->kc, g->cols - p.k0);
            block_run(g, &p, member, size, from, to);
        }
    }
    if (gk->end) gk->end();
}

void gemm_run(struct backend *b, const struct gemm_kernel *k, const struct matmul *m, int count)
{
    struct gemm g = { .b = b, .k = k, .m = m, .count = count, .cols = m->w->cols };
    g.padded = round_up(m->n, SLIVER);
    int64_t products = 0;
    for (int j = 0; j < count; j++) products += m[j].n * m[j].w->rows * m[j].w->cols;
    backend_run(b, products / PRODUCTS_AN_ELEMENT, gemm_member, &g);
}
