/* Attention of a layer: queries, keys and values, their norms, rotations and gates */
#include "engine/model/pass.h"

#include <math.h>

#include "engine/arch/arch.h"
#include "engine/plan/plan.h"
#include "kernels/kernels.h"

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
        operator_norm(p, &(struct norm){ .kind = NORM_RMS,
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

/* The RMS norm over the queries (or keys) of all heads, of which this process has some. */
static void pass_norm_divided(const struct pass *p, const struct layer *l, float *x, bool keys,
                              const struct bound *w)
{
    const struct model *m = p->m;
    const struct all_heads all = pass_exchange_heads(p, l, x, keys);
    operator_norm(p, &(struct norm){ .kind = NORM_RMS,
                                     .x = all.x,
                                     .x_stride = all.cols,
                                     .n = p->n,
                                     .cols = all.cols,
                                     .w = w->v,
                                     .eps = m->hyper.eps,
                                     .y = all.x,
                                     .y_stride = all.cols });
    pass_copy_heads(p, (struct strided){ all.x + all.from, all.cols, 0 },
                    (struct strided){ x, m->widths.qkv, 0 }, 1, all.own);
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
    operator_activate(p, &(struct activate){ .act = ACT_SIGMOID,
                                             .gate = t.gates,
                                             .up = t.out,
                                             .stride = t.stride,
                                             .n = p->n,
                                             .cols = arch_dim(DIM_ATTN, m->hyper.arch, &m->shape),
                                             .y = p->b.attn,
                                             .y_stride = m->widths.attn });
}

/* h -> qkv: q, k and v side by side, by one fused matrix or by three. */
void pass_project_qkv(const struct pass *p, const struct layer *l, const float *h)
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
    if (pass_is_over(p)) return;
    operator_matmul(p, OPERATOR_QKV, mm, count);
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
        operator_norm(p, &(struct norm){ .kind = m->hyper.arch->norm,
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
    if (of_q->v && model_is_part(p->m) && p->m->hyper.arch->qk_norm == QK_NORM_ROW) {
        pass_norm_divided(p, l, q, false, of_q);
        pass_norm_divided(p, l, k, true, of_k);
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
    operator_mix(p, &(struct mix){ .x = q,
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

/* Rotate each head of n rows for the cache, or rotate it back, where the cache is rotated. Dot products of
 * two rotated vectors are those of the vectors, and a sum of rotated values is the rotated sum. Values that
 * are a part of the keys are rotated as these. like: the size of the heads whose rotation it is. */
static void pass_rotate_for_cache(const struct pass *p, bool rotated, float *x, int64_t stride, int64_t cols,
                                  int like)
{
    if (!rotated) return;
    operator_hadamard(
        p, &(struct hadamard){
               .x = x, .x_stride = stride, .n = p->n, .cols = cols, .block = hadamard_block(like) });
}

/* Store k and v in the KV cache and compute attention: qkv -> attn. */
void pass_run_attention(const struct pass *p, const struct layer *l)
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
    if (own) {
        const int heads = l->kv.kv_heads;
        pass_rotate_for_cache(p, m->session.k_rotated, k, m->widths.qkv, heads * l->kv.k_dim, l->kv.k_dim);
        pass_rotate_for_cache(p, m->session.v_rotated && !l->kv.v_in_k, v, m->widths.qkv, heads * l->kv.v_dim,
                              l->kv.v_dim);
    }
    pass_rotate_for_cache(p, m->session.k_rotated, q, m->widths.qkv, (int64_t)s->heads * l->kv.k_dim,
                          l->kv.k_dim);
    const struct batch_lists *rows = p->all ? &m->context.all : &m->lists;
    const int n = p->all ? p->all : p->n;
    if (p->all) {
        q = pass_gather_rows(p, p->b.qkv);
        k = q + (k - p->b.qkv);
        v = q + (v - p->b.qkv);
    }
    if (own)
        operator_kv_store(p, &(struct kv_store){ .kv = &l->kv,
                                                 .k = k,
                                                 .v = v,
                                                 .k_stride = m->widths.qkv,
                                                 .v_stride = m->widths.qkv,
                                                 .n = n,
                                                 .slots = rows->slots });
    if (p->wanted == 0 && l == &m->layers[s->layers - 1]) return; /* only its keys and values are needed */
    int64_t stride = m->widths.attn;
    float *y = a->latent ? pass_latent_output(p, &stride) : p->b.attn;
    if (a->query_gate) {
        y = gate_parts_of(p).out;
        stride = m->widths.latent;
    }
    const struct attention o = { .kv = &l->kv,
                                 .q = q,
                                 .q_stride = m->widths.qkv,
                                 .n = n,
                                 .heads = s->heads,
                                 .pos = rows->pos,
                                 .seq = rows->seq,
                                 .tables = (const int32_t *const *)m->cache.tables,
                                 .scale = m->hyper.attn_scale,
                                 .softcap = m->hyper.attn_softcap,
                                 .window = l->window,
                                 .chunk = l->rotates ? a->chunk : 0,
                                 .sinks = layer_slot(l, SLOT_SINKS)->v,
                                 .weight_format = layer_query_matrix(l)->w.format,
                                 .y = y,
                                 .y_stride = stride };
    if (m->context.out)
        pass_run_shared_attention(p, o);
    else
        operator_attention(p, &o);
    pass_rotate_for_cache(p, m->session.v_rotated, y, stride, (int64_t)s->heads * l->kv.v_dim,
                          l->kv.v_in_k ? l->kv.k_dim : l->kv.v_dim);
    if (a->latent) pass_expand_latent(p, l);
    if (a->query_gate) pass_apply_gates(p);
}
