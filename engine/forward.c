/* The forward pass over one batch of rows, written once for all architectures: what a layer has (biases,
 * fused matrices, a second norm) is seen from which slots are bound, how it is wired from the architecture's
 * row. Knows no instruction set and touches no number itself but the logits it hands out. */
#include <math.h>
#include <string.h>

#include "engine/model_internal.h"

/* The rows in flight; buffers change hands when only rows with wanted logits go on. */
struct pass {
    struct model *m;
    struct buffers b;
    int n;
    int wanted; /* rows whose logits were asked for, m->lists.wanted[] */
};

static void norm_rows(const struct pass *p, const float *x, float *y, const struct bound *w,
                      const struct bound *bias)
{
    const struct model *m = p->m;
    const int64_t embd = m->shape.embd;
    backend_norm(m->backend, &(struct norm){ .kind = m->hyper.arch->norm,
                                             .x = x,
                                             .x_stride = embd,
                                             .n = p->n,
                                             .cols = embd,
                                             .w = w->v,
                                             .bias = bias->v,
                                             .eps = m->hyper.eps,
                                             .y = y,
                                             .y_stride = embd });
}

/* RMS norm of each head by itself; y is x. Heads of one row lie side by side, rows are `stride` apart: take
 * the direction that needs fewer calls. */
static void norm_heads(const struct pass *p, float *x, int heads, const struct bound *w)
{
    const struct model *m = p->m;
    const int64_t stride = m->widths.qkv, dim = m->shape.head_dim_k;
    const bool by_row = p->n < heads;
    const int calls = by_row ? p->n : heads;
    for (int i = 0; i < calls; i++) {
        float *at = x + i * (by_row ? stride : dim);
        const int64_t step = by_row ? dim : stride;
        backend_norm(m->backend, &(struct norm){ .kind = NORM_RMS,
                                                 .x = at,
                                                 .x_stride = step,
                                                 .n = by_row ? heads : p->n,
                                                 .cols = dim,
                                                 .w = w->v,
                                                 .eps = m->hyper.eps,
                                                 .y = at,
                                                 .y_stride = step });
    }
}

static void rope_rows(const struct pass *p, float *x, int heads)
{
    const struct model *m = p->m;
    backend_rope(m->backend, &(struct rope){ .x = x,
                                             .x_stride = m->widths.qkv,
                                             .n = p->n,
                                             .heads = heads,
                                             .head_dim = m->shape.head_dim_k,
                                             .rot_dims = m->shape.rope_dims,
                                             .half_split = m->hyper.arch->rope == ROPE_HALVES,
                                             .freq = m->rope_freq,
                                             .magnitude = m->rope_magnitude,
                                             .pos = m->lists.pos });
}

static struct matmul product(const struct pass *p, const struct bound *w, const struct bound *bias,
                             const float *x, int64_t x_stride)
{
    return (struct matmul){ .w = &w->w, .x = x, .x_stride = x_stride, .n = p->n, .bias = bias->v };
}

/* h -> qkv: q, k and v side by side, from one fused matrix or from three. */
static void project_qkv(const struct pass *p, const struct layer *l, const float *h)
{
    const struct model *m = p->m;
    const struct arch *a = m->hyper.arch;
    const enum slot FUSED[] = { SLOT_QKV }, APART[] = { SLOT_Q, SLOT_K, SLOT_V };
    const bool fused = layer_slot(l, SLOT_QKV)->w.data;
    const enum slot *slots = fused ? FUSED : APART;
    const int count = fused ? 1 : 3;
    struct matmul mm[3];
    int64_t at = 0;
    for (int i = 0; i < count; i++) {
        mm[i] = product(p, layer_slot(l, slots[i]), layer_slot(l, (enum slot)(slots[i] + 1)), h,
                        m->shape.embd);
        mm[i].y = p->b.qkv + at;
        mm[i].y_stride = m->widths.qkv;
        at += arch_dim(ARCH_SLOTS[slots[i]].rows, a, &m->shape);
    }
    backend_matmul(m->backend, mm, count);
}

/* qkv -> cache and attn. */
static void attend(const struct pass *p, const struct layer *l)
{
    const struct model *m = p->m;
    const struct model_shape *s = &m->shape;
    const struct arch *a = m->hyper.arch;
    float *q = p->b.qkv, *k = q + arch_dim(DIM_Q, a, s), *v = k + arch_dim(DIM_K, a, s);
    if (a->qk_norm == QK_NORM_HEAD) {
        norm_heads(p, q, s->heads, layer_slot(l, SLOT_Q_NORM));
        norm_heads(p, k, s->kv_heads, layer_slot(l, SLOT_K_NORM));
    }
    if (a->rope != ROPE_NONE) {
        rope_rows(p, q, s->heads);
        rope_rows(p, k, s->kv_heads);
    }
    backend_kv_store(m->backend, &(struct kv_store){ .kv = &l->kv,
                                                     .k = k,
                                                     .v = v,
                                                     .k_stride = m->widths.qkv,
                                                     .v_stride = m->widths.qkv,
                                                     .n = p->n,
                                                     .slots = m->lists.slots });
    if (p->wanted == 0 && l == &m->layers[s->layers - 1]) return; /* only its keys and values were of use */
    backend_attention(m->backend, &(struct attention){ .kv = &l->kv,
                                                       .q = q,
                                                       .q_stride = m->widths.qkv,
                                                       .n = p->n,
                                                       .heads = s->heads,
                                                       .pos = m->lists.pos,
                                                       .seq = m->lists.seq,
                                                       .tables = (const int32_t *const *)m->cache.tables,
                                                       .scale = m->hyper.attn_scale,
                                                       .softcap = m->hyper.attn_softcap,
                                                       .window = l->window,
                                                       .y = p->b.attn,
                                                       .y_stride = m->widths.attn });
}

/* x += attn * W. */
static void add_attention(const struct pass *p, const struct layer *l)
{
    const struct model *m = p->m;
    struct matmul mm = product(p, layer_slot(l, SLOT_ATTN_OUT), layer_slot(l, SLOT_ATTN_OUT_B), p->b.attn,
                               m->widths.attn);
    mm.residual = mm.y = p->b.x;
    mm.y_stride = m->shape.embd;
    backend_matmul(m->backend, &mm, 1);
}

/* x += down(act(gate(h)) * up(h)), or down(act(up(h))) where there is no gate. */
static void add_feed_forward(const struct pass *p, const struct layer *l, const float *h)
{
    const struct model *m = p->m;
    const int64_t ff = m->shape.ff, stride = m->widths.ff;
    const bool gate = layer_slot(l, SLOT_GATE)->w.data, gated = stride > ff;
    struct matmul mm[2];
    int count = 0;
    if (gate) {
        mm[count] = product(p, layer_slot(l, SLOT_GATE), layer_slot(l, SLOT_GATE_B), h, m->shape.embd);
        mm[count].y = p->b.ff;
        mm[count++].y_stride = stride;
    }
    mm[count] = product(p, layer_slot(l, SLOT_UP), layer_slot(l, SLOT_UP_B), h, m->shape.embd);
    mm[count].y = p->b.ff + (gate ? ff : 0);
    mm[count++].y_stride = stride;
    backend_matmul(m->backend, mm, count);
    backend_activate(m->backend, &(struct activate){ .act = m->hyper.arch->act,
                                                     .gate = p->b.ff,
                                                     .up = gated ? p->b.ff + ff : NULL,
                                                     .stride = stride,
                                                     .n = p->n,
                                                     .cols = ff,
                                                     .y = p->b.ff,
                                                     .y_stride = stride });
    mm[0] = product(p, layer_slot(l, SLOT_DOWN), layer_slot(l, SLOT_DOWN_B), p->b.ff, stride);
    mm[0].residual = mm[0].y = p->b.x;
    mm[0].y_stride = m->shape.embd;
    backend_matmul(m->backend, mm, 1);
}

/* Copy the wanted ones of p->n rows of `width`; an activation buffer is a table of f32 rows like any other.
 */
static void gather_wanted(const struct pass *p, const float *from, float *to, int64_t width)
{
    const struct weight table = { .format = &FORMATS[FORMAT_F32], .rows = p->n, .cols = width, .data = from };
    backend_gather(p->m->backend, &(struct gather){ .table = &table,
                                                    .ids = p->m->lists.wanted,
                                                    .n = p->wanted,
                                                    .y = to,
                                                    .y_stride = width,
                                                    .scale = 1 });
}

/* In the last layer, rows nobody wants logits of have done their duty once their K and V are stored: the rest
 * of the layer runs on the wanted rows only. */
static void drop_unwanted(struct pass *p)
{
    gather_wanted(p, p->b.x, p->b.h, p->m->shape.embd);
    gather_wanted(p, p->b.attn, p->b.qkv, p->m->widths.attn);
    struct buffers b = p->b;
    p->b.x = b.h;
    p->b.h = b.x;
    p->b.attn = b.qkv;
    p->b.qkv = b.attn;
    p->n = p->wanted;
}

static void run_layer(struct pass *p, const struct layer *l, bool last)
{
    const struct model *m = p->m;
    norm_rows(p, p->b.x, p->b.h, layer_slot(l, SLOT_ATTN_NORM), layer_slot(l, SLOT_ATTN_NORM_B));
    if (!m->hyper.parallel) {
        project_qkv(p, l, p->b.h);
        attend(p, l);
        if (last && p->wanted < p->n) drop_unwanted(p);
        if (p->n == 0) return;
        add_attention(p, l);
        norm_rows(p, p->b.x, p->b.h, layer_slot(l, SLOT_FFN_NORM), layer_slot(l, SLOT_FFN_NORM_B));
        add_feed_forward(p, l, p->b.h);
        return;
    }
    /* Both halves read the layer's input: what the second one needs is normed before x changes. */
    const struct bound *second = layer_slot(l, SLOT_ATTN_NORM_2);
    if (second->v) { /* a norm of its own for attention; the first one is the feed-forward's */
        norm_rows(p, p->b.x, p->b.attn, second, layer_slot(l, SLOT_ATTN_NORM_2_B));
        project_qkv(p, l, p->b.attn);
    } else {
        project_qkv(p, l, p->b.h);
    }
    if (layer_slot(l, SLOT_FFN_NORM)->v)
        norm_rows(p, p->b.x, p->b.h, layer_slot(l, SLOT_FFN_NORM), layer_slot(l, SLOT_FFN_NORM_B));
    attend(p, l);
    if (last && p->wanted == 0) return;
    add_attention(p, l);
    add_feed_forward(p, l, p->b.h);
}

static void finish_logits(const struct model *m, float *logits, int64_t n)
{
    const float scale = m->hyper.logit_scale, cap = m->hyper.logit_softcap;
    if (scale != 1)
        for (int64_t i = 0; i < n; i++) logits[i] *= scale;
    if (cap > 0)
        for (int64_t i = 0; i < n; i++) logits[i] = cap * tanhf(logits[i] / cap);
}

/* x -> logits of the wanted rows, a few rows at a time, appended to the host's copy. */
static void run_head(struct pass *p)
{
    struct model *m = p->m;
    if (p->wanted < p->n) { /* the last layer did not drop them */
        gather_wanted(p, p->b.x, p->b.h, m->shape.embd);
        struct buffers b = p->b;
        p->b.x = b.h;
        p->b.h = b.x;
        p->n = p->wanted;
    }
    norm_rows(p, p->b.x, p->b.h, &m->global[SLOT_OUTPUT_NORM], &m->global[SLOT_OUTPUT_NORM_B]);
    const struct bound *w = m->shape.tied_output ? &m->global[SLOT_TOKEN_EMBD] : &m->global[SLOT_OUTPUT];
    const int64_t vocab = m->shape.vocab;
    for (int i = 0; i < p->wanted; i += (int)m->widths.logit_rows) {
        const int n = (int)MIN(p->wanted - i, m->widths.logit_rows);
        struct matmul mm = product(p, w, &m->global[SLOT_OUTPUT_B], p->b.h + i * m->shape.embd,
                                   m->shape.embd);
        mm.n = n;
        mm.y = p->b.logits;
        mm.y_stride = vocab;
        backend_matmul(m->backend, &mm, 1);
        float *host = m->logits + m->logits_count * vocab;
        backend_read(m->backend, host, p->b.logits, (size_t)(n * vocab) * sizeof(float));
        finish_logits(m, host, n * vocab);
        m->logits_count += n;
    }
}

static void embed(const struct pass *p)
{
    const struct model *m = p->m;
    struct gather g = { .table = &m->global[SLOT_TOKEN_EMBD].w,
                        .ids = m->lists.ids,
                        .n = p->n,
                        .y = p->b.x,
                        .y_stride = m->shape.embd,
                        .scale = m->hyper.embedding_scale };
    backend_gather(m->backend, &g);
    if (!m->global[SLOT_POSITION_EMBD].w.data) return;
    g.table = &m->global[SLOT_POSITION_EMBD].w;
    g.ids = m->lists.pos;
    g.add = true;
    g.scale = 1;
    backend_gather(m->backend, &g);
}

void forward_pass(struct model *m, const struct batch_row *rows, int n)
{
    struct pass p = { .m = m, .b = m->buffers, .n = n };
    for (int i = 0; i < n; i++) {
        m->lists.ids[i] = rows[i].token;
        m->lists.pos[i] = rows[i].pos;
        m->lists.seq[i] = rows[i].seq;
        m->lists.slots[i] = kv_slot(&m->cache, rows[i].seq, rows[i].pos);
        if (rows[i].logits) m->lists.wanted[p.wanted++] = i;
    }
    embed(&p);
    for (int l = 0; l < m->shape.layers; l++) run_layer(&p, &m->layers[l], l == m->shape.layers - 1);
    if (p.wanted) run_head(&p);
}
