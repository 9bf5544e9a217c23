/* engine/model/pass.h - the rows of a batch on their way through the model, for the files that run them. */
#ifndef QDYNO_ENGINE_PASS_H
#define QDYNO_ENGINE_PASS_H

#include "engine/model/model_internal.h"

/* Buffers are swapped when only the rows with requested logits continue. */
struct pass {
    struct model *m;
    const struct site *site; /* where the pass currently runs */
    struct buffers b;
    int n;
    int wanted; /* number of rows with requested logits: m->lists.wanted[] */
    int all;    /* rows of the batch, of which this rank has n (cp) and m->lists has these; 0: it has all */
    int layer;  /* that runs now, for a profile; -1: none */
};

/* operators.c: the backend's operations where the pass is. If a profile is made, their time, bytes and
 * operations are added to it. Operations that serve several purposes are told which. */
void operator_gather(const struct pass *p, enum pass_operator op, const struct gather *o);
void operator_mix(const struct pass *p, const struct mix *o);
void operator_matmul(const struct pass *p, enum pass_operator op, const struct matmul *o, int count);
void operator_gated(const struct pass *p, enum pass_operator op, const struct gated *o);
void operator_expert_up(const struct pass *p, const struct expert_up *o);
void operator_expert_down(const struct pass *p, const struct expert_down *o);
void operator_norm(const struct pass *p, const struct norm *o);
void operator_rope(const struct pass *p, const struct rope *o);
void operator_hadamard(const struct pass *p, const struct hadamard *o);
void operator_kv_store(const struct pass *p, const struct kv_store *o);
void operator_attention(const struct pass *p, const struct attention *o);
void operator_activate(const struct pass *p, const struct activate *o);
void operator_convolve(const struct pass *p, const struct convolution *o);
void operator_recur(const struct pass *p, const struct recurrence *o);
/* The same for work of the host: when it begins; 0: no profile is made. calls: 0 where it continues another
 * operation. */
static inline int64_t operator_begin(const struct pass *p)
{
    return p->m->profile ? clock_ns() : 0;
}
void operator_end(const struct pass *p, enum pass_operator op, int64_t begun, int calls);

/* The product of w and n rows of x; the caller sets where it goes. */
struct matmul pass_product(const struct pass *p, const struct bound *w, const struct bound *bias,
                           const float *x, int64_t x_stride);

/* y = norm(x) of the model's kind, rows of the model's width. */
void pass_norm_rows(const struct pass *p, const float *x, float *y, const struct bound *w,
                    const struct bound *bias);

struct row_list {
    const int32_t *ids;
    int n;
};
/* Copy the requested rows out of p->n rows of `width` floats. wanted: pass_own_wanted. */
void pass_gather_wanted(const struct pass *p, struct row_list wanted, const float *from, float *to,
                        int64_t width);

/* attention.c: h -> queries, keys and values in b.qkv; from there into the KV cache and to the heads' outputs
 * in b.attn. */
void pass_project_qkv(const struct pass *p, const struct layer *l, const float *h);
void pass_run_attention(const struct pass *p, const struct layer *l);

/* context.c, for a rank that has a part of the positions: where the KV cache has a position; negative:
 * another rank has it. Attention to all positions -> o->y, on every rank. */
int32_t pass_slot(const struct model *m, int seq, int pos);
void pass_run_shared_attention(const struct pass *p, struct attention o);
/* Long batches are divided among these ranks by rows. From pass_divide_rows on, if p->all is set, p->n and
 * m->lists are this rank's rows, and m->context.all has the others'. pass_gather_rows: rows of the width of
 * b.qkv -> those of all ranks, which are valid until its next call. pass_join_rows: the rank has all rows
 * with requested logits in b.x again. */
void pass_divide_rows(struct pass *p);
/* The rows with requested logits that this rank has, numbered among its p->n rows, ascending. */
struct row_list pass_own_wanted(const struct pass *p);
float *pass_gather_rows(const struct pass *p, const float *x);
void pass_join_rows(struct pass *p);

/* part.c, for a rank that has some layers: x and the second embedding, from the stage before and to the next.
 */
void pass_receive(const struct pass *p);
void pass_send(const struct pass *p);

/* part.c, for a rank that has some rows of all matrices: get what the others computed of n rows. Heads of
 * attention in the first columns of b.attn -> those of all heads; the part of rows x of the model's width
 * that pass_stream_offset begins -> all of x; activations x [n][stride] -> m->exchange.ff [n][width]; scores
 * of experts in b.router -> those of all; the part of the logits in b.logits -> m->logits. */
int64_t pass_stream_offset(const struct pass *p); /* 0: the process has all rows */
void pass_exchange_stream(const struct pass *p, float *x, int64_t stride);
void pass_exchange_attention(const struct pass *p, const struct layer *l);
void pass_exchange_ff(const struct pass *p, const float *x, int64_t stride, int n, int64_t width);
void pass_exchange_scores(const struct pass *p);
void pass_exchange_logits(const struct pass *p, int n);
/* Outputs of a matrix with so many rows, where each rank has computed its part of them in n rows at x -> all.
 */
void pass_exchange_rows(const struct pass *p, float *x, int64_t stride, int64_t rows);
/* Queries (or keys) x of this rank's heads in n rows of b.qkv -> those of all heads in m->exchange.ff. */
struct all_heads {
    float *x;                /* [n][cols] */
    int64_t cols, from, own; /* of all heads; where this rank's begin, and their number */
};
struct all_heads pass_exchange_heads(const struct pass *p, const struct layer *l, const float *x, bool keys);
/* first[n]: the largest logit of each row among those of this rank, ids within its part -> among all. */
void pass_exchange_best(const struct pass *p, struct ranked *first, int n);

/* output.c: note hidden states that are not finite; x -> h, the input of the output matrix, of the requested
 * rows only; h -> logits. */
void pass_check_hidden(const struct pass *p);
void pass_norm_output(struct pass *p);
void pass_run_output(const struct pass *p);

/* x += scale * norm(h), with the model's residual scale; the norm is optional. */
void pass_add_rows(const struct pass *p, const struct bound *post_norm);

/* The RMS norm of p->n rows of `cols` floats, in place, rows `stride` floats apart. */
void pass_norm_in_place(const struct pass *p, float *x, int64_t stride, int64_t cols, const struct bound *w);
/* Rotate the first rope_dims of each of `heads` heads, which are head_dim floats apart. */
void pass_rotate(const struct pass *p, const struct layer *l, float *x, int64_t stride, int heads,
                 int head_dim);

/* Vectors of `heads` heads in n rows, `head` and `row` floats apart. */
struct strided {
    float *x;
    int64_t row, head;
};
/* Copy `cols` floats of each head of each row. */
void pass_copy_heads(const struct pass *p, struct strided from, struct strided to, int heads, int64_t cols);

/* Call the observer: matrices `slots` of layer l (NULL: of the model) are about to be multiplied with x. */
void pass_call_observer(const struct pass *p, const struct layer *l, const enum slot *slots, int count,
                        const float *x, int64_t stride);
/* The same for rows and matrices that `o` names. */
void pass_call_observer_of(const struct pass *p, const struct layer *l, const struct observed *o);
/* Whether the observer has seen enough of this layer. */
static inline bool pass_is_over(const struct pass *p)
{
    return p->m->observer.enough;
}

/* A layer that keeps a state: h -> what its output matrix is multiplied with, in b.attn. */
void pass_run_state(const struct pass *p, const struct layer *l, const float *h);

/* Latent attention: h -> q, k and v in b.qkv; where attention writes (the heads' outputs, or, with a latent
 * cache, kv_lora numbers for each head); and from there -> the heads' outputs in b.attn. */
void pass_project_latent(const struct pass *p, const struct layer *l, const float *h);
float *pass_latent_output(const struct pass *p, int64_t *stride);
void pass_expand_latent(const struct pass *p, const struct layer *l);

/* experts(h) -> b.h, which may be h: chooses experts for each row of `scored` [n][embd] and runs them on h.
 */
void pass_run_experts(const struct pass *p, const struct layer *l, const float *scored, const float *h);

/* x += scale * norm(experts(h)): chooses experts for each row of h, runs them and adds their weighted sum. */
void pass_add_experts(const struct pass *p, const struct layer *l, const float *h);

#endif
