/* Latent attention (MLA, DeepSeek V2): keys and values of all heads are linear in a few numbers of the token.
 * Files with a matrix for each head cache those numbers: the queries are multiplied by the keys' matrices
 * instead, and the outputs by the values' matrices. Other files cache expanded keys and values. Source:
 * DeepSeek-V2, arXiv 2405.04434. */
#include "engine/arch/arch.h"
#include "engine/model/pass.h"
#include "engine/plan/plan.h"
#include "kernels/kernels.h"

/* The parts of a row of b.latent; they have the stride widths.latent. */
struct parts {
    float *q_a, *q, *kv, *rest; /* rest: expanded keys and values, or attention outputs */
    int64_t stride;
};

static struct parts parts_of(const struct pass *p)
{
    const struct model *m = p->m;
    const struct arch *a = m->hyper.arch;
    float *q = p->b.latent + m->shape.q_lora, *kv = q + arch_dim(DIM_LATENT_Q, a, &m->shape);
    return (struct parts){ p->b.latent, q, kv, kv + arch_dim(DIM_KV_A, a, &m->shape), m->widths.latent };
}

/* Copy `cols` floats of each head; loops over rows or over heads, whichever needs fewer calls. */
void pass_copy_heads(const struct pass *p, struct strided from, struct strided to, int heads, int64_t cols)
{
    const struct model *m = p->m;
    const bool by_row = p->n < heads;
    for (int i = 0; i < (by_row ? p->n : heads); i++)
        operator_mix(p, &(struct mix){ .x = from.x + i * (by_row ? from.row : from.head),
                                       .x_stride = by_row ? from.head : from.row,
                                       .rows = by_row ? heads : p->n,
                                       .ids = m->lists.every,
                                       .weights = m->ones,
                                       .n = by_row ? heads : p->n,
                                       .k = 1,
                                       .cols = cols,
                                       .y = to.x + i * (by_row ? to.row : to.head),
                                       .y_stride = by_row ? to.head : to.row });
}

/* One product for each head with its own matrix. */
static void multiply_heads(const struct pass *p, const struct layer *l, enum slot slot, struct strided from,
                           struct strided to)
{
    const struct bound *w = layer_slot(l, slot);
    for (int64_t h = 0; h < w->count; h++) {
        pass_call_observer_of(p, l,
                              &(struct observed){ &slot, 1, (int)h, from.x + h * from.head, from.row, p->n });
        p->m->head_products[h] = (struct matmul){ .w = &w->experts[h],
                                                  .x = from.x + h * from.head,
                                                  .x_stride = from.row,
                                                  .n = p->n,
                                                  .y = to.x + h * to.head,
                                                  .y_stride = to.row };
    }
    operator_matmul(p, OPERATOR_LATENT, p->m->head_products, (int)w->count);
}

/* h -> queries and reduced keys and values, with positions. */
static void project(const struct pass *p, const struct layer *l, const float *h, const struct parts *t)
{
    const struct model_shape *s = &p->m->shape;
    const struct bound *q_a = layer_slot(l, SLOT_LATENT_Q_A);
    const bool reduced = q_a->w.data;
    struct matmul mm[2] = { pass_product(p, reduced ? q_a : layer_slot(l, SLOT_LATENT_Q), NULL, h, s->embd),
                            pass_product(p, layer_slot(l, SLOT_LATENT_KV_A), NULL, h, s->embd) };
    mm[0].y = reduced ? t->q_a : t->q;
    mm[1].y = t->kv;
    mm[0].y_stride = mm[1].y_stride = t->stride;
    pass_call_observer(p, l,
                       (const enum slot[]){ reduced ? SLOT_LATENT_Q_A : SLOT_LATENT_Q, SLOT_LATENT_KV_A }, 2,
                       h, s->embd);
    operator_matmul(p, OPERATOR_QKV, mm, 2);
    if (reduced) {
        pass_norm_in_place(p, t->q_a, t->stride, s->q_lora, layer_slot(l, SLOT_LATENT_Q_A_NORM));
        pass_call_observer(p, l, (const enum slot[]){ SLOT_LATENT_Q_B }, 1, t->q_a, t->stride);
        mm[0] = pass_product(p, layer_slot(l, SLOT_LATENT_Q_B), NULL, t->q_a, t->stride);
        mm[0].y = t->q;
        mm[0].y_stride = t->stride;
        operator_matmul(p, OPERATOR_QKV, mm, 1);
    }
    pass_norm_in_place(p, t->kv, t->stride, s->kv_lora, layer_slot(l, SLOT_LATENT_KV_A_NORM));
    pass_rotate(p, l, t->q + s->nope_dims, t->stride, s->heads, s->nope_dims + s->rope_dims);
    pass_rotate(p, l, t->kv + s->kv_lora, t->stride, 1, s->rope_dims);
}

/* What the cache holds for a token: expanded keys and values of every head. */
static void expand(const struct pass *p, const struct layer *l, const struct parts *t, float *k, float *v)
{
    const struct model_shape *s = &p->m->shape;
    const int64_t to = p->m->widths.qkv, both = s->nope_dims + s->latent_v_dims;
    pass_call_observer(p, l, (const enum slot[]){ SLOT_LATENT_KV_B }, 1, t->kv, t->stride);
    struct matmul mm = pass_product(p, layer_slot(l, SLOT_LATENT_KV_B), NULL, t->kv, t->stride);
    mm.y = t->rest;
    mm.y_stride = t->stride;
    operator_matmul(p, OPERATOR_QKV, &mm, 1);
    const struct strided key = { k, to, s->head_dim_k }, value = { v, to, s->head_dim_v };
    const struct strided rotated = { k + s->nope_dims, to, s->head_dim_k };
    pass_copy_heads(p, (struct strided){ t->rest, t->stride, both }, key, s->heads, s->nope_dims);
    pass_copy_heads(p, (struct strided){ t->kv + s->kv_lora, t->stride, 0 }, rotated, s->heads, s->rope_dims);
    pass_copy_heads(p, (struct strided){ t->rest + s->nope_dims, t->stride, both }, value, s->heads,
                    s->latent_v_dims);
}

void pass_project_latent(const struct pass *p, const struct layer *l, const float *h)
{
    const struct model *m = p->m;
    const struct model_shape *s = &m->shape;
    const struct arch *a = m->hyper.arch;
    const struct parts t = parts_of(p);
    const int64_t to = m->widths.qkv, dims = s->nope_dims + s->rope_dims;
    float *q = p->b.qkv, *k = q + arch_dim(DIM_Q, a, s), *v = k + arch_dim(DIM_K, a, s);
    project(p, l, h, &t);
    if (!s->latent_cached) {
        pass_copy_heads(p, (struct strided){ t.q, t.stride, dims }, (struct strided){ q, to, dims }, s->heads,
                        dims);
        expand(p, l, &t, k, v);
        return;
    }
    multiply_heads(p, l, SLOT_LATENT_K_B, (struct strided){ t.q, t.stride, dims },
                   (struct strided){ q, to, s->head_dim_k });
    pass_copy_heads(p, (struct strided){ t.q + s->nope_dims, t.stride, dims },
                    (struct strided){ q + s->kv_lora, to, s->head_dim_k }, s->heads, s->rope_dims);
    pass_copy_heads(p, (struct strided){ t.kv, t.stride, 0 }, (struct strided){ k, to, 0 }, 1, s->head_dim_k);
}

float *pass_latent_output(const struct pass *p, int64_t *stride)
{
    if (!p->m->shape.latent_cached) return p->b.attn;
    *stride = p->m->widths.latent;
    return parts_of(p).rest;
}

void pass_expand_latent(const struct pass *p, const struct layer *l)
{
    const struct model_shape *s = &p->m->shape;
    const struct parts t = parts_of(p);
    if (s->latent_cached)
        multiply_heads(p, l, SLOT_LATENT_V_B, (struct strided){ t.rest, t.stride, s->kv_lora },
                       (struct strided){ p->b.attn, p->m->widths.attn, s->latent_v_dims });
}
