/* The forward pass over one batch of rows, for all architectures. Which tensors a layer has (biases, fused
 * matrices, a second norm) follows from its bound slots; how they are combined follows from the
 * architecture's row. The backend computes everything; this file only touches logits that the host finishes
 * (scale, softcap). */
#include "engine/model/pass.h"

#include <math.h>
#include <string.h>

#include "engine/arch/arch.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "kernels/kernels.h"

static const struct bound NOTHING; /* stands for an absent tensor */

static void pass_norm_rows(const struct pass *p, const float *x, float *y, const struct bound *w,
                           const struct bound *bias)
{
    const struct model *m = p->m;
    const int64_t embd = m->shape.embd;
    backend_norm(p->site->backend, &(struct norm){ .kind = m->hyper.arch->norm,
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

/* RMS norm of q or k, in place, over the whole row of heads or over each head. Heads of a row are adjacent,
 * rows are `stride` floats apart; norms of single heads loop over rows or over heads, whichever needs fewer
 * calls. */
static void pass_norm_heads(const struct pass *p, float *x, int heads, int64_t head_dim,
                            const struct bound *w)
{
    const struct model *m = p->m;
    const bool whole = m->hyper.arch->qk_norm == QK_NORM_ROW, by_row = !whole && p->n < heads;
    const int64_t stride = m->widths.qkv, dim = head_dim * (whole ? heads : 1);
    const int calls = whole ? 1 : by_row ? p->n : heads;
    for (int i = 0; i < calls; i++) {
        float *at = x + i * (by_row ? stride : dim);
        const int64_t step = by_row ? dim : stride;
        backend_norm(p->site->backend, &(struct norm){ .kind = NORM_RMS,
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

void pass_rotate(const struct pass *p, const struct layer *l, float *x, int64_t stride, int heads,
                 int head_dim)
{
    const struct model *m = p->m;
    backend_rope(p->site->backend, &(struct rope){ .x = x,
                                                   .x_stride = stride,
                                                   .n = p->n,
                                                   .heads = heads,
                                                   .head_dim = head_dim,
                                                   .rot_dims = l->parts->rope_dims,
                                                   .half_split = m->hyper.arch->rope == ROPE_HALVES,
                                                   .freq = m->rope_freq + l->rope * (m->shape.rope_dims / 2),
                                                   .magnitude = m->rope_magnitude[l->rope],
                                                   .pos = m->lists.pos });
}

void pass_norm_in_place(const struct pass *p, float *x, int64_t stride, int64_t cols, const struct bound *w)
{
    backend_norm(p->site->backend, &(struct norm){ .kind = NORM_RMS,
                                                   .x = x,
                                                   .x_stride = stride,
                                                   .n = p->n,
                                                   .cols = cols,
                                                   .w = w->v,
                                                   .eps = p->m->hyper.eps,
                                                   .y = x,
                                                   .y_stride = stride });
}

struct matmul pass_product(const struct pass *p, const struct bound *w, const struct bound *bias,
                           const float *x, int64_t x_stride)
{
    return (
        struct matmul){ .w = &w->w, .x = x, .x_stride = x_stride, .n = p->n, .bias = bias ? bias->v : NULL };
}

void pass_call_observer(const struct pass *p, const struct layer *l, const enum slot *slots, int count,
                        const float *x, int64_t stride)
{
    const struct observer *w = &p->m->observer;
    if (w->see) w->see(w->ctx, l ? (int)(l - p->m->layers) : -1, slots, count, x, stride, p->n);
}

/* A size of this layer. */
static int64_t layer_dim(const struct pass *p, const struct layer *l, enum dim d)
{
    const struct model *m = p->m;
    return arch_layer_dim(d, m->hyper.arch, &m->shape, (int)(l - m->layers));
}

/* Where attention with gates keeps queries beside their gates, then the gates alone, then its outputs. */
struct gate_parts {
    float *both, *gates, *out;
    int64_t stride;
};
static struct gate_parts gate_parts_of(const struct pass *p)
{
    const struct model *m = p->m;
    float *gates = p->b.latent + arch_dim(DIM_Q_ROWS, m->hyper.arch, &m->shape);
    return (struct gate_parts){ p->b.latent, gates, gates + arch_dim(DIM_ATTN, m->hyper.arch, &m->shape),
                                m->widths.latent };
}

/* Queries and gates alternate by head: take them apart. */
static void pass_split_gates(const struct pass *p)
{
    const struct model_shape *s = &p->m->shape;
    const struct gate_parts t = gate_parts_of(p);
    const int64_t dim = s->head_dim_k;
    pass_copy_heads(p, (struct strided){ t.both, t.stride, 2 * dim },
                    (struct strided){ p->b.qkv, p->m->widths.qkv, dim }, s->heads, dim);
    pass_copy_heads(p, (struct strided){ t.both + dim, t.stride, 2 * dim },
                    (struct strided){ t.gates, t.stride, dim }, s->heads, dim);
}

/* Outputs of attention, times the sigmoid of their gates -> attn. */
static void pass_apply_gates(const struct pass *p)
{
    const struct model *m = p->m;
    const struct gate_parts t = gate_parts_of(p);
    backend_activate(p->site->backend,
                     &(struct activate){ .act = ACT_SIGMOID,
                                         .gate = t.gates,
                                         .up = t.out,
                                         .stride = t.stride,
                                         .n = p->n,
                                         .cols = arch_dim(DIM_ATTN, m->hyper.arch, &m->shape),
                                         .y = p->b.attn,
                                         .y_stride = m->widths.attn });
}

/* h -> qkv: q, k and v side by side, by one fused matrix or by three. */
static void pass_project_qkv(const struct pass *p, const struct layer *l, const float *h)
{
    const struct model *m = p->m;
    const struct arch *a = m->hyper.arch;
    if (a->latent) {
        pass_project_latent(p, l, h);
        return;
    }
    const enum slot FUSED[] = { SLOT_QKV }, APART[] = { SLOT_Q, SLOT_K, SLOT_V };
    const bool fused = layer_slot(l, SLOT_QKV)->w.data;
    const enum slot *slots = fused ? FUSED : APART;
    const int count = fused ? 1
                            : 1 + (layer_slot(l, SLOT_K)->w.data != NULL) +
                                  (layer_slot(l, SLOT_V)->w.data != NULL);
    struct matmul mm[3];
    int64_t at = 0;
    for (int i = 0; i < count; i++) {
        mm[i] = pass_product(p, layer_slot(l, slots[i]), layer_slot(l, (enum slot)(slots[i] + 1)), h,
                             m->shape.embd);
        mm[i].y = p->b.qkv + at;
        mm[i].y_stride = m->widths.qkv;
        at += layer_dim(p, l, slots[i] == SLOT_Q ? DIM_Q : ARCH_SLOTS[slots[i]].rows);
    }
    if (a->query_gate) {
        mm[0].y = gate_parts_of(p).both;
        mm[0].y_stride = m->widths.latent;
    }
    pass_call_observer(p, l, slots, count, h, m->shape.embd);
    backend_matmul(p->site->backend, mm, count);
    if (a->query_gate) pass_split_gates(p);
}

/* Values without a matrix of their own are the keys before norm and rotation. */
static void pass_copy_keys(const struct pass *p, const struct layer *l)
{
    const struct model *m = p->m;
    float *k = p->b.qkv + layer_dim(p, l, DIM_Q);
    const int64_t cols = layer_dim(p, l, DIM_K);
    pass_copy_heads(p, (struct strided){ k, m->widths.qkv, 0 },
                    (struct strided){ k + cols, m->widths.qkv, 0 }, 1, cols);
}

/* The matrix that computed the queries. */
static const struct bound *layer_query_matrix(const struct layer *l)
{
    const struct bound *fused = layer_slot(l, SLOT_QKV);
    const struct bound *latent = layer_slot(l, SLOT_LATENT_KV_A);
    return fused->w.data ? fused : latent->w.data ? latent : layer_slot(l, SLOT_Q);
}

/* Norm each head with weights of its own; nothing where the file has none. */
static void pass_norm_each(const struct pass *p, float *x, int heads, int64_t dim, const struct bound *w)
{
    const struct model *m = p->m;
    for (int h = 0; h < heads && w->v; h++)
        backend_norm(p->site->backend, &(struct norm){ .kind = m->hyper.arch->norm,
                                                       .x = x + h * dim,
                                                       .x_stride = m->widths.qkv,
                                                       .n = p->n,
                                                       .cols = dim,
                                                       .w = w->v + h * dim,
                                                       .eps = m->hyper.eps,
                                                       .y = x + h * dim,
                                                       .y_stride = m->widths.qkv });
}

static void pass_norm_queries_and_keys(const struct pass *p, const struct layer *l, float *q, float *k)
{
    const struct bound *of_q = layer_slot(l, SLOT_Q_NORM), *of_k = layer_slot(l, SLOT_K_NORM);
    if (p->m->hyper.arch->qk_norm == QK_NORM_EACH) {
        pass_norm_each(p, q, p->m->shape.heads, l->parts->head_dim_k, layer_slot(l, SLOT_Q_NORM_EACH));
        pass_norm_each(p, k, l->parts->kv_heads, l->parts->head_dim_k, layer_slot(l, SLOT_K_NORM_EACH));
        return;
    }
    if (of_q->v) pass_norm_heads(p, q, p->m->shape.heads, l->parts->head_dim_k, of_q);
    if (of_k->v) pass_norm_heads(p, k, l->parts->kv_heads, l->parts->head_dim_k, of_k);
}

/* Multiply queries by a factor that grows with their position (attention.temperature_scale). */
static void pass_scale_queries(const struct pass *p, const struct layer *l, float *q)
{
    const struct model *m = p->m;
    bool any = false;
    for (int i = 0; i < p->n; i++) {
        const double part = floor((double)m->lists.pos[i] / (double)m->hyper.query_scale_tokens);
        m->row_scale[i] = (float)(1 + m->hyper.query_scale_step * log(1 + part));
        any |= part > 0;
    }
    if (!any) return;
    backend_mix(p->site->backend, &(struct mix){ .x = q,
                                                 .x_stride = m->widths.qkv,
                                                 .rows = p->n,
                                                 .ids = m->lists.every,
                                                 .weights = m->row_scale,
                                                 .n = p->n,
                                                 .k = 1,
                                                 .cols = layer_dim(p, l, DIM_Q),
                                                 .y = q,
                                                 .y_stride = m->widths.qkv });
}

/* Norms and rotations of q and k, and the scale of q. */
static void pass_prepare_queries_and_keys(const struct pass *p, const struct layer *l, float *q, float *k)
{
    const struct model *m = p->m;
    const struct model_shape *s = &m->shape;
    const struct arch *a = m->hyper.arch;
    const int dim = l->parts->head_dim_k;
    const bool own = layer_slot(l, SLOT_K)->w.data || layer_slot(l, SLOT_QKV)->w.data;
    if (!a->qk_norm_after_rope) pass_norm_queries_and_keys(p, l, q, k);
    if (l->rotates) {
        pass_rotate(p, l, q, m->widths.qkv, s->heads, dim);
        if (own) pass_rotate(p, l, k, m->widths.qkv, l->parts->kv_heads, dim);
    }
    if (a->qk_norm_after_rope) pass_norm_queries_and_keys(p, l, q, k);
    if (a->qk_norm_plain_except && p->site->unit_weights && l->rotates) {
        const struct bound unit = { .v = p->site->unit_weights };
        pass_norm_heads(p, q, s->heads, dim, &unit);
        pass_norm_heads(p, k, l->parts->kv_heads, dim, &unit);
    }
    /* an architecture's own scale is for layers without positions */
    if (m->hyper.query_scale_step != 0 && !(a->query_scale_step != 0 && l->rotates))
        pass_scale_queries(p, l, q);
}

static void pass_norm_values(const struct pass *p, const struct layer *l, float *v)
{
    const struct bound unit = { .v = p->site->unit_weights };
    const int heads = l->parts->kv_heads;
    const int64_t dim = l->parts->head_dim_v;
    for (int i = 0; i < heads; i++) pass_norm_in_place(p, v + i * dim, p->m->widths.qkv, dim, &unit);
}

/* Store k and v in the KV cache and compute attention: qkv -> attn. */
static void pass_run_attention(const struct pass *p, const struct layer *l)
{
    const struct model *m = p->m;
    const struct model_shape *s = &m->shape;
    const struct arch *a = m->hyper.arch;
    float *q = p->b.qkv, *k = q + layer_dim(p, l, DIM_Q), *v = k + layer_dim(p, l, DIM_K);
    const bool own = l->parts->kv_layer == l - m->layers;
    if (own && a->value_norm) {
        if (!layer_slot(l, SLOT_V)->w.data) pass_copy_keys(p, l);
        pass_norm_values(p, l, v);
    }
    if (!a->latent) pass_prepare_queries_and_keys(p, l, q, k);
    if (own)
        backend_kv_store(p->site->backend, &(struct kv_store){ .kv = &l->kv,
                                                               .k = k,
                                                               .v = v,
                                                               .k_stride = m->widths.qkv,
                                                               .v_stride = m->widths.qkv,
                                                               .n = p->n,
                                                               .slots = m->lists.slots });
    if (p->wanted == 0 && l == &m->layers[s->layers - 1]) return; /* only its keys and values are needed */
    int64_t stride = m->widths.attn;
    float *y = a->latent ? pass_latent_output(p, &stride) : p->b.attn;
    if (a->query_gate) {
        y = gate_parts_of(p).out;
        stride = m->widths.latent;
    }
    backend_attention(p->site->backend,
                      &(struct attention){ .kv = &l->kv,
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
                                           .chunk = l->rotates ? a->chunk : 0,
                                           .sinks = layer_slot(l, SLOT_SINKS)->v,
                                           .weight_format = layer_query_matrix(l)->w.format,
                                           .y = y,
                                           .y_stride = stride });
    if (a->latent) pass_expand_latent(p, l);
    if (a->query_gate) pass_apply_gates(p);
}

void pass_add_rows(const struct pass *p, const struct bound *post_norm)
{
    const struct model *m = p->m;
    const int64_t embd = m->shape.embd;
    if (post_norm->v) pass_norm_rows(p, p->b.h, p->b.h, post_norm, &NOTHING);
    const struct weight rows = { .format = &FORMATS[FORMAT_F32], .rows = p->n, .cols = embd, .data = p->b.h };
    backend_gather(p->site->backend, &(struct gather){ .table = &rows,
                                                       .ids = m->lists.every,
                                                       .n = p->n,
                                                       .y = p->b.x,
                                                       .y_stride = embd,
                                                       .add = true,
                                                       .scale = m->hyper.residual_scale });
}

/* x += scale * norm(mm); norm and scale are optional. h is free at this point and takes the product. */
static void pass_add_to_stream(const struct pass *p, struct matmul mm, const struct bound *post_norm)
{
    const struct model *m = p->m;
    const int64_t embd = m->shape.embd;
    const bool plain = !post_norm->v && m->hyper.residual_scale == 1;
    mm.y = plain ? p->b.x : p->b.h;
    mm.residual = plain ? p->b.x : NULL;
    mm.y_stride = embd;
    backend_matmul(p->site->backend, &mm, 1);
    if (plain) return;
    pass_add_rows(p, post_norm);
}

/* h -> attn: attention, or what the layer has instead. */
static void pass_mix(const struct pass *p, const struct layer *l, const float *h)
{
    if (l->state_memory) {
        pass_run_state(p, l, h);
        return;
    }
    pass_project_qkv(p, l, h);
    pass_run_attention(p, l);
}

/* x += the mixer's output matrix times attn. */
static void pass_add_mixed(const struct pass *p, const struct layer *l)
{
    const enum slot slot = !l->state_memory                        ? SLOT_ATTN_OUT
                           : layer_slot(l, SLOT_SHORT_OUT)->w.data ? SLOT_SHORT_OUT
                                                                   : SLOT_STATE_OUT;
    const struct bound *w = layer_slot(l, slot), *bias = layer_slot(l, SLOT_ATTN_OUT_B);
    pass_call_observer(p, l, (const enum slot[]){ slot }, 1, p->b.attn, p->m->widths.attn);
    pass_add_to_stream(p, pass_product(p, w, bias, p->b.attn, p->m->widths.attn),
                       layer_slot(l, SLOT_POST_ATTN_NORM));
}

/* h -> ff: act(gate(h)) * up(h), or act(up(h)) without a gate. Returns the product with the down matrix that
 * is left to do. */
static struct matmul pass_run_gated(const struct pass *p, const struct layer *l, const float *h)
{
    const struct model *m = p->m;
    const int64_t ff = l->parts->ff;
    const bool gate = layer_slot(l, SLOT_GATE)->w.data, gated = gate || m->hyper.arch->gate_in_up;
    const int64_t stride = gated ? 2 * ff : ff;
    struct gated g = { .up = pass_product(p, layer_slot(l, SLOT_UP), layer_slot(l, SLOT_UP_B), h,
                                          m->shape.embd),
                       .act = m->hyper.arch->act,
                       .y = p->b.ff,
                       .y_stride = stride };
    pass_call_observer(p, l, (const enum slot[]){ SLOT_UP, SLOT_GATE }, gate ? 2 : 1, h, m->shape.embd);
    g.up.y = p->b.ff + (gate ? ff : 0);
    g.up.y_stride = stride;
    if (gate) {
        g.gate = pass_product(p, layer_slot(l, SLOT_GATE), layer_slot(l, SLOT_GATE_B), h, m->shape.embd);
        g.gate.y = p->b.ff;
        g.gate.y_stride = stride;
        backend_gated(p->site->backend, &g);
    } else { /* no gate, or gate and up in one matrix */
        backend_matmul(p->site->backend, &g.up, 1);
        backend_activate(p->site->backend, &(struct activate){ .act = g.act,
                                                               .gate = p->b.ff,
                                                               .up = gated ? p->b.ff + ff : NULL,
                                                               .stride = stride,
                                                               .n = p->n,
                                                               .cols = ff,
                                                               .y = p->b.ff,
                                                               .y_stride = stride });
    }
    const struct bound *w = layer_slot(l, SLOT_DOWN), *bias = layer_slot(l, SLOT_DOWN_B);
    pass_call_observer(p, l, (const enum slot[]){ SLOT_DOWN }, 1, p->b.ff, stride);
    return pass_product(p, w, bias, p->b.ff, stride);
}

/* A feed-forward and experts beside it, each with a norm of its outputs:
 * x += norm(norm(feed_forward(h)) + norm(experts(norm(x)))). */
static void pass_add_both(const struct pass *p, const struct layer *l, const float *h)
{
    const struct model *m = p->m;
    const int64_t embd = m->shape.embd, stride = m->widths.attn;
    struct matmul down = pass_run_gated(p, l, h);
    down.y = p->b.attn; /* free since the outputs of attention were added */
    down.y_stride = stride;
    backend_matmul(p->site->backend, &down, 1);
    pass_norm_in_place(p, p->b.attn, stride, embd, layer_slot(l, SLOT_POST_FFN_NORM_1));
    pass_norm_rows(p, p->b.x, p->b.qkv, layer_slot(l, SLOT_ROUTER_SCALE), &NOTHING);
    pass_norm_rows(p, p->b.x, p->b.h, layer_slot(l, SLOT_EXPERTS_NORM), &NOTHING);
    pass_run_experts(p, l, p->b.qkv, p->b.h);
    pass_norm_in_place(p, p->b.h, embd, embd, layer_slot(l, SLOT_POST_EXPERTS_NORM));
    backend_mix(p->site->backend, &(struct mix){ .x = p->b.attn,
                                                 .x_stride = stride,
                                                 .rows = p->n,
                                                 .ids = m->lists.every,
                                                 .weights = m->ones,
                                                 .n = p->n,
                                                 .k = 1,
                                                 .cols = embd,
                                                 .y = p->b.h,
                                                 .y_stride = embd,
                                                 .add = true });
    pass_add_rows(p, layer_slot(l, SLOT_POST_FFN_NORM));
}

/* x += feed_forward(h), which is a gated product, experts, or both. */
static void pass_add_feed_forward(const struct pass *p, const struct layer *l, const float *h)
{
    if (l->parts->experts && p->m->hyper.arch->experts_beside)
        pass_add_both(p, l, h);
    else if (l->parts->experts)
        pass_add_experts(p, l, h);
    else
        pass_add_to_stream(p, pass_run_gated(p, l, h), layer_slot(l, SLOT_POST_FFN_NORM));
}

/* Copy the requested rows out of p->n rows of `width`, as a look-up in a table of f32 rows. */
static void pass_gather_wanted(const struct pass *p, const float *from, float *to, int64_t width)
{
    const struct weight table = { .format = &FORMATS[FORMAT_F32], .rows = p->n, .cols = width, .data = from };
    backend_gather(p->site->backend, &(struct gather){ .table = &table,
                                                       .ids = p->m->lists.wanted,
                                                       .n = p->wanted,
                                                       .y = to,
                                                       .y_stride = width,
                                                       .scale = 1 });
}

/* In the last layer, rows without requested logits are not needed after their K and V are stored: the rest of
 * the layer runs on the requested rows only. */
static void pass_drop_unwanted(struct pass *p)
{
    pass_gather_wanted(p, p->b.x, p->b.h, p->m->shape.embd);
    pass_gather_wanted(p, p->b.attn, p->b.qkv, p->m->widths.attn);
    struct buffers b = p->b;
    p->b.x = b.h;
    p->b.h = b.x;
    p->b.attn = b.qkv;
    p->b.qkv = b.attn;
    if (p->m->widths.inputs) {
        pass_gather_wanted(p, b.inputs, b.latent, p->m->widths.inputs);
        p->b.inputs = b.latent;
        p->b.latent = b.inputs;
    }
    p->n = p->wanted;
}

/* Attention and feed-forward both read the layer's input, so the second one's input is normed before x
 * changes. */
static void pass_run_parallel_layer(struct pass *p, const struct layer *l, bool last)
{
    const struct bound *second = layer_slot(l, SLOT_ATTN_NORM_2);
    pass_norm_rows(p, p->b.x, p->b.h, layer_slot(l, SLOT_ATTN_NORM), layer_slot(l, SLOT_ATTN_NORM_B));
    if (second->v) { /* attention has a norm of its own; the first one belongs to the feed-forward */
        pass_norm_rows(p, p->b.x, p->b.attn, second, layer_slot(l, SLOT_ATTN_NORM_2_B));
        pass_project_qkv(p, l, p->b.attn);
    } else {
        pass_project_qkv(p, l, p->b.h);
    }
    if (layer_slot(l, SLOT_FFN_NORM)->v)
        pass_norm_rows(p, p->b.x, p->b.h, layer_slot(l, SLOT_FFN_NORM), layer_slot(l, SLOT_FFN_NORM_B));
    pass_run_attention(p, l);
    if (last && p->wanted == 0) return;
    pass_add_mixed(p, l);
    pass_add_feed_forward(p, l, p->b.h);
}

static const struct bound *layer_ffn_norm(const struct pass *p, const struct layer *l)
{
    const struct bound *usual = layer_slot(l, SLOT_FFN_NORM);
    if (p->m->hyper.arch->one_part) return layer_slot(l, SLOT_ATTN_NORM); /* the layer has only one */
    return usual->v ? usual : layer_slot(l, SLOT_FFN_NORM_2);
}

/* The input of half a layer: normed, or x itself if the norm comes after the half. */
static const float *pass_norm_input(const struct pass *p, const struct bound *w, const struct bound *bias)
{
    if (!w->v) return p->b.x;
    pass_norm_rows(p, p->b.x, p->b.h, w, bias);
    return p->b.h;
}

/* x = scale * x */
static void pass_scale_rows(const struct pass *p, float *x, int64_t cols, float scale)
{
    const struct model *m = p->m;
    for (int i = 0; i < p->n; i++) m->row_scale[i] = scale;
    backend_mix(p->site->backend, &(struct mix){ .x = x,
                                                 .x_stride = cols,
                                                 .rows = p->n,
                                                 .ids = m->lists.every,
                                                 .weights = m->row_scale,
                                                 .n = p->n,
                                                 .k = 1,
                                                 .cols = cols,
                                                 .y = x,
                                                 .y_stride = cols });
}

/* x += norm(out(act(gate(x)) * the layer's part of the second embedding)) */
static void pass_add_input(const struct pass *p, const struct layer *l)
{
    const struct model *m = p->m;
    const int64_t width = m->shape.layer_inputs, stride = m->widths.inputs;
    struct matmul mm = pass_product(p, layer_slot(l, SLOT_INPUT_GATE), NULL, p->b.x, m->shape.embd);
    mm.y = p->b.latent;
    mm.y_stride = stride;
    pass_call_observer(p, l, (const enum slot[]){ SLOT_INPUT_GATE }, 1, p->b.x, m->shape.embd);
    backend_matmul(p->site->backend, &mm, 1);
    backend_activate(p->site->backend, &(struct activate){ .act = m->hyper.arch->act,
                                                           .gate = p->b.latent,
                                                           .up = p->b.inputs + (l - m->layers) * width,
                                                           .stride = stride,
                                                           .n = p->n,
                                                           .cols = width,
                                                           .y = p->b.latent,
                                                           .y_stride = stride });
    pass_call_observer(p, l, (const enum slot[]){ SLOT_INPUT_OUT }, 1, p->b.latent, stride);
    pass_add_to_stream(p, pass_product(p, layer_slot(l, SLOT_INPUT_OUT), NULL, p->b.latent, stride),
                       layer_slot(l, SLOT_INPUT_NORM));
}

static void pass_run_layer(struct pass *p, const struct layer *l, bool last)
{
    if (p->m->hyper.parallel) {
        pass_run_parallel_layer(p, l, last);
        return;
    }
    const struct layer_parts *parts = l->parts;
    if (parts->mixer != MIXER_NONE) {
        pass_mix(p, l, pass_norm_input(p, layer_slot(l, SLOT_ATTN_NORM), layer_slot(l, SLOT_ATTN_NORM_B)));
        if (last && p->wanted < p->n) pass_drop_unwanted(p);
        if (p->n == 0) return;
        pass_add_mixed(p, l);
    }
    if (parts->feed_forward)
        pass_add_feed_forward(p, l, pass_norm_input(p, layer_ffn_norm(p, l), layer_slot(l, SLOT_FFN_NORM_B)));
    if (p->m->shape.layer_inputs) pass_add_input(p, l);
    if (l->output_scale != 1) pass_scale_rows(p, p->b.x, p->m->shape.embd, l->output_scale);
}

static void logits_finish(const struct model *m, float *logits, int64_t n)
{
    const float scale = m->hyper.logit_scale, cap = m->hyper.logit_softcap;
    if (scale != 1)
        for (int64_t i = 0; i < n; i++) logits[i] *= scale;
    if (cap > 0)
        for (int64_t i = 0; i < n; i++) logits[i] = cap * tanhf(logits[i] / cap);
}

/* x -> h: the input of the output matrix, of the requested rows only. */
static void pass_norm_output(struct pass *p)
{
    const struct model *m = p->m;
    if (p->wanted < p->n) { /* the last layer did not drop the others */
        pass_gather_wanted(p, p->b.x, p->b.h, m->shape.embd);
        struct buffers b = p->b;
        p->b.x = b.h;
        p->b.h = b.x;
        p->n = p->wanted;
    }
    const struct bound *usual = &m->global[SLOT_OUTPUT_NORM];
    pass_norm_rows(p, p->b.x, p->b.h, usual->v ? usual : &m->global[SLOT_OUTPUT_NORM_2],
                   &m->global[SLOT_OUTPUT_NORM_B]);
    pass_call_observer(p, NULL, (const enum slot[]){ m->shape.tied_output ? SLOT_TOKEN_EMBD : SLOT_OUTPUT },
                       1, p->b.h, m->shape.embd);
}

/* ---------------------------------------------------------------- values that are not finite */

/* Record the first row of this forward pass with an infinity or NaN. `row`: its index in the batch. */
static void pass_note_not_finite(const struct pass *p, int row)
{
    struct not_finite *f = &p->m->not_finite;
    if (f->found) return;
    *f = (struct not_finite){ true, p->m->lists.seq[row], p->m->lists.pos[row] };
}

/* Record row `row` if x contains an infinity or NaN. kernels_largest_magnitude compares bits, so NaN is the
 * largest. */
static void pass_check_row(const struct pass *p, const float *x, int64_t n, int row)
{
    if (!isfinite(kernels_largest_magnitude(x, n))) pass_note_not_finite(p, row);
}

/* Check the hidden states of all rows before the last layer drops rows without requested logits. Their keys
 * and values stay in the KV cache, and an 8-bit cache would hide an infinity. On a device with the output
 * matrix, the search for the largest value detects it. */
static void pass_check_hidden(const struct pass *p)
{
    enum { PIECE = 2048 };
    struct model *m = p->m;
    const int64_t embd = m->shape.embd;
    if (p->site == &m->sites[SITE_HOST]) {
        for (int i = 0; i < p->n; i++) pass_check_row(p, p->b.x + i * embd, embd, i);
        return;
    }
    for (int i = 0; i < p->n && p->b.best; i += (int)m->widths.logit_rows) {
        struct ranked first[LOGIT_ROWS_MAX] = { 0 };
        const int n = (int)MIN(p->n - i, m->widths.logit_rows);
        backend_top(p->site->backend, &(struct top){ .x = p->b.x + i * embd,
                                                     .x_stride = embd,
                                                     .n = n,
                                                     .k = 1,
                                                     .cols = embd,
                                                     .scratch = p->b.top_scratch,
                                                     .out = p->b.best });
        backend_read(p->site->backend, first, p->b.best, (size_t)n * sizeof *first);
        for (int j = 0; j < n; j++)
            if (isnan(first[j].value)) pass_note_not_finite(p, i + j);
    }
    const int64_t all = p->b.best ? 0 : p->n * embd;
    for (int64_t at = 0; at < all;) { /* a device without the output matrix: copy to the host */
        float piece[PIECE];
        const int64_t n = MIN((int64_t)PIECE, embd - at % embd);
        backend_read(p->site->backend, piece, p->b.x + at, (size_t)n * sizeof *piece);
        pass_check_row(p, piece, n, (int)(at / embd));
        at += n;
    }
}

/* Take over n rows of logits: append them to the host's copy, or, for model_forward_best, find only the
 * largest of each row, on the device unless the host must finish them. i0: index of the first of them among
 * the requested rows. Their values are checked before the host changes them. */
static void pass_take_logits(const struct pass *p, int i0, int n)
{
    struct model *m = p->m;
    struct ranked first[LOGIT_ROWS_MAX] = { 0 };
    const int64_t vocab = m->shape.vocab;
    const int32_t *row = m->lists.wanted + i0;
    struct top top = { .x_stride = vocab, .n = n, .k = 1, .cols = vocab };
    if (m->best && model_logits_are_raw(m)) {
        top.x = p->b.logits;
        top.scratch = p->b.top_scratch;
        top.out = p->b.best;
        backend_top(p->site->backend, &top);
        backend_read(p->site->backend, first, p->b.best, (size_t)n * sizeof *first);
    } else {
        float *host = m->logits + m->logits_count * vocab;
        backend_read(p->site->backend, host, p->b.logits, (size_t)(n * vocab) * sizeof(float));
        for (int i = 0; i < n; i++) pass_check_row(p, host + i * vocab, vocab, row[i]);
        logits_finish(m, host, n * vocab);
        top.x = host;
        top.out = first;
        if (m->best) top_rows(&top);
    }
    for (int i = 0; i < n && m->best; i++) {
        if (isnan(first[i].value)) pass_note_not_finite(p, row[i]);
        m->best[m->logits_count + i] = first[i].id;
    }
    m->logits_count += n;
}

/* h -> logits, at most logit_rows rows at a time. */
static void pass_run_output(const struct pass *p)
{
    struct model *m = p->m;
    const struct bound *w = m->shape.tied_output ? &m->global[SLOT_TOKEN_EMBD] : &m->global[SLOT_OUTPUT];
    const int64_t vocab = m->shape.vocab;
    for (int i = 0; i < p->wanted; i += (int)m->widths.logit_rows) {
        const int n = (int)MIN(p->wanted - i, m->widths.logit_rows);
        struct matmul mm = pass_product(p, w, &m->global[SLOT_OUTPUT_B], p->b.h + i * m->shape.embd,
                                        m->shape.embd);
        mm.n = n;
        mm.y = p->b.logits;
        mm.y_stride = vocab;
        backend_matmul(p->site->backend, &mm, 1);
        pass_take_logits(p, i, n);
    }
}

/* The second embedding: for each layer, (sqrt(width) * a looked-up part + norm(part of proj(x) / sqrt(embd)))
 * / sqrt(2). Dividing by sqrt(embd) before the norm is the same as a larger eps. */
static void pass_embed_inputs(const struct pass *p)
{
    const struct model *m = p->m;
    const int64_t width = m->shape.layer_inputs, stride = m->widths.inputs;
    struct matmul mm = pass_product(p, &m->global[SLOT_LAYER_INPUTS_PROJ], NULL, p->b.x, m->shape.embd);
    mm.y = p->b.inputs;
    mm.y_stride = stride;
    backend_matmul(p->site->backend, &mm, 1);
    for (int l = 0; l < m->shape.layers; l++)
        backend_norm(p->site->backend, &(struct norm){ .kind = NORM_RMS,
                                                       .x = p->b.inputs + l * width,
                                                       .x_stride = stride,
                                                       .n = p->n,
                                                       .cols = width,
                                                       .w = m->global[SLOT_LAYER_INPUTS_NORM].v,
                                                       .eps = m->hyper.eps * (float)m->shape.embd,
                                                       .y = p->b.inputs + l * width,
                                                       .y_stride = stride });
    backend_gather(p->site->backend, &(struct gather){ .table = &m->global[SLOT_LAYER_INPUTS].w,
                                                       .ids = m->lists.ids,
                                                       .n = p->n,
                                                       .y = p->b.inputs,
                                                       .y_stride = stride,
                                                       .add = true,
                                                       .scale = sqrtf((float)width) });
    pass_scale_rows(p, p->b.inputs, stride, sqrtf(0.5f));
}

static void pass_embed(const struct pass *p)
{
    const struct model *m = p->m;
    struct gather g = { .table = &m->global[SLOT_TOKEN_EMBD].w,
                        .ids = m->lists.ids,
                        .n = p->n,
                        .y = p->b.x,
                        .y_stride = m->shape.embd,
                        .scale = m->hyper.embedding_scale };
    backend_gather(p->site->backend, &g);
    if (m->shape.layer_inputs) pass_embed_inputs(p);
    if (!m->global[SLOT_POSITION_EMBD].w.data) return;
    g.table = &m->global[SLOT_POSITION_EMBD].w;
    g.ids = m->lists.pos;
    g.add = true;
    g.scale = 1;
    backend_gather(p->site->backend, &g);
}

static struct pass pass_at(struct model *m, int layer, int n)
{
    const struct site *s = model_site(m, layer);
    return (struct pass){ .m = m, .site = s, .b = s->buffers, .n = n };
}

/* Continue where `layer` runs. Only x and the second embedding are copied; one of the two sites is the host,
 * whose memory needs no transfer. */
static void pass_move(struct pass *p, int layer)
{
    const struct site *from = p->site, *to = model_site(p->m, layer);
    if (from == to) return;
    const size_t bytes = (size_t)p->n * (size_t)p->m->shape.embd * sizeof(float);
    const size_t inputs = (size_t)p->n * (size_t)p->m->widths.inputs * sizeof(float);
    if (to == &p->m->sites[SITE_DEVICE]) {
        backend_write(to->backend, to->buffers.x, p->b.x, bytes);
        if (inputs) backend_write(to->backend, to->buffers.inputs, p->b.inputs, inputs);
    } else {
        backend_read(from->backend, to->buffers.x, p->b.x, bytes);
        if (inputs) backend_read(from->backend, to->buffers.inputs, p->b.inputs, inputs);
    }
    p->site = to;
    p->b = to->buffers;
}

void forward_pass(struct model *m, const struct batch_row *rows, int n)
{
    struct pass p = pass_at(m, -1, n);
    for (int i = 0; i < n; i++) {
        m->lists.ids[i] = rows[i].token;
        m->lists.pos[i] = rows[i].pos;
        m->lists.seq[i] = rows[i].seq;
        m->lists.slots[i] = kv_slot(&m->cache, rows[i].seq, rows[i].pos);
        if (rows[i].logits) m->lists.wanted[p.wanted++] = i;
    }
    pass_embed(&p);
    for (int l = 0; l < m->shape.layers; l++) {
        pass_move(&p, l);
        if (l == m->shape.layers - 1 && p.wanted < p.n) pass_check_hidden(&p);
        pass_run_layer(&p, &m->layers[l], l == m->shape.layers - 1);
    }
    if (!p.wanted) return;
    pass_move(&p, -1);
    pass_norm_output(&p);
    pass_run_output(&p);
}

void forward_part(struct model *m, enum forward_part part, int layer, int n)
{
    struct pass p = pass_at(m, layer, n);
    p.wanted = n;
    const struct layer *l = &m->layers[layer];
    switch (part) {
    case FORWARD_EMBED: pass_embed(&p); break;
    case FORWARD_LAYER: pass_run_layer(&p, l, false); break;
    case FORWARD_ATTENTION:
        pass_mix(&p, l, p.b.h);
        pass_add_mixed(&p, l);
        break;
    case FORWARD_FEED_FORWARD: pass_add_feed_forward(&p, l, p.b.h); break;
    case FORWARD_OUTPUT_NORM: pass_norm_output(&p); break;
    case FORWARD_OUTPUT: pass_run_output(&p); break;
    }
}
