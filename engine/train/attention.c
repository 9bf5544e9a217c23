/* Causal attention over rows of ctx tokens, one sequence and head at a time. The backward pass computes the
 * probabilities P again instead of storing them (ctx numbers for each token, head and layer).
 *
 *   S = Q K^T, P = softmax(scale S), A = P V
 *   dV = P^T dA, dP = dA V^T, dS = scale P (dP - rowsum(P dP)), dQ = dS K, dK = dS^T Q */
#include <math.h>

#include "engine/train/network_internal.h"

/* Position of one query head of one sequence, and of the KV head that its group shares. */
struct head {
    int64_t row, at, kv_at; /* first row; first column in q and attn; first column in k and v */
    bool first;             /* first query head of its group */
};

static struct head head_position(const struct network *n, int sequence, int head)
{
    const int group = n->o.shape.heads / n->o.shape.kv_heads;
    return (struct head){ .row = (int64_t)sequence * n->o.shape.ctx,
                          .at = (int64_t)head * n->head_dim,
                          .kv_at = (int64_t)(head / group) * n->head_dim,
                          .first = head % group == 0 };
}

/* y (+)= x w^T for the ctx rows of one sequence. */
static void attention_multiply(const struct network *n, const float *x, int64_t x_stride,
                               const struct operand *w, float *y, int64_t y_stride, bool add)
{
    product_run(&n->products, &(struct product){ .x = x,
                                                 .x_stride = x_stride,
                                                 .n = n->o.shape.ctx,
                                                 .w = w,
                                                 .y = y,
                                                 .y_stride = y_stride,
                                                 .add = add });
}

static float attention_scale(const struct network *n)
{
    return 1 / sqrtf((float)n->head_dim);
}

/* n->scores = P, from q and n->keys (K). */
static void attention_probabilities(struct network *n, const float *q)
{
    attention_multiply(n, q, n->o.shape.embd, &n->keys, n->scores, n->o.shape.ctx, false);
    rows_softmax(n->products.pool, n->scores, n->o.shape.ctx, attention_scale(n));
}

void attention_forward(struct network *n, const struct layer_kept *a)
{
    const int64_t ctx = n->o.shape.ctx, embd = n->o.shape.embd, dim = n->head_dim;
    for (int s = 0; s < n->o.batch; s++)
        for (int h = 0; h < n->o.shape.heads; h++) {
            const struct head at = head_position(n, s, h);
            const int64_t q_at = at.row * embd + at.at, kv_at = at.row * n->kv + at.kv_at;
            if (at.first) {
                operand_set(&n->products, &n->keys, a->k + kv_at, n->kv, ctx, dim);
                operand_set_turned(&n->products, &n->values, a->v + kv_at, n->kv, dim, ctx);
            }
            attention_probabilities(n, a->q + q_at);
            attention_multiply(n, n->scores, ctx, &n->values, a->attn + q_at, embd, false);
        }
}

/* dst [ctx][dim] (+)= m^T x, for m [ctx][ctx] and x [ctx][dim] with stride embd. */
static void attention_multiply_transposed(struct network *n, const float *m, const float *x, float *dst,
                                          bool add)
{
    const int64_t ctx = n->o.shape.ctx;
    product_turn(&n->products, m, ctx, ctx, ctx, n->turned_scores);
    operand_set_turned(&n->products, &n->values, x, n->o.shape.embd, n->head_dim, ctx);
    attention_multiply(n, n->turned_scores, ctx, &n->values, dst, n->kv, add);
}

void attention_backward(struct network *n, const struct layer_kept *a)
{
    const int64_t ctx = n->o.shape.ctx, embd = n->o.shape.embd, dim = n->head_dim;
    for (int s = 0; s < n->o.batch; s++)
        for (int h = 0; h < n->o.shape.heads; h++) {
            const struct head at = head_position(n, s, h);
            const int64_t q_at = at.row * embd + at.at, kv_at = at.row * n->kv + at.kv_at;
            operand_set(&n->products, &n->keys, a->k + kv_at, n->kv, ctx, dim);
            attention_probabilities(n, a->q + q_at);
            attention_multiply_transposed(n, n->scores, n->dattn + q_at, n->dv + kv_at, !at.first);
            operand_set(&n->products, &n->keys, a->v + kv_at, n->kv, ctx, dim);
            attention_multiply(n, n->dattn + q_at, embd, &n->keys, n->dscores, ctx, false);
            rows_softmax_back(n->products.pool, n->scores, n->dscores, ctx, attention_scale(n));
            operand_set_turned(&n->products, &n->values, a->k + kv_at, n->kv, dim, ctx);
            attention_multiply(n, n->dscores, ctx, &n->values, n->dq + q_at, embd, false);
            attention_multiply_transposed(n, n->dscores, a->q + q_at, n->dk + kv_at, !at.first);
        }
}
