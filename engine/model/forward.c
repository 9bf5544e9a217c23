/* The forward pass over one batch of rows, for all architectures. Which tensors a layer has (biases, fused
 * matrices, a second norm) follows from its bound slots; how they are combined follows from the
 * architecture's row. The backend computes everything. Attention, experts, recurrent layers and the logits
 * have files of their own (pass.h). */
#include "engine/model/pass.h"

#include <math.h>
#include <string.h>

#include "engine/arch/arch.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "kernels/kernels.h"

static const struct bound NOTHING; /* stands for an absent tensor */

void pass_norm_rows(const struct pass *p, const float *x, float *y, const struct bound *w,
                    const struct bound *bias)
{
    const struct model *m = p->m;
    const int64_t embd = m->shape.embd;
    operator_norm(p, &(struct norm){ .kind = m->hyper.arch->norm,
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

void pass_rotate(const struct pass *p, const struct layer *l, float *x, int64_t stride, int heads,
                 int head_dim)
{
    const struct model *m = p->m;
    operator_rope(p, &(struct rope){ .x = x,
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
    operator_norm(p, &(struct norm){ .kind = NORM_RMS,
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
    return (struct matmul){ .w = &w->w,
                            .x = x,
                            .x_stride = x_stride,
                            .n = p->n,
                            .bias = bias && bias->v ? bias->v + w->from : NULL };
}

void pass_call_observer(const struct pass *p, const struct layer *l, const enum slot *slots, int count,
                        const float *x, int64_t stride)
{
    pass_call_observer_of(p, l, &(struct observed){ slots, count, -1, x, stride, p->n });
}

void pass_call_observer_of(const struct pass *p, const struct layer *l, const struct observed *o)
{
    const struct observer *w = &p->m->observer;
    if (w->see) w->see(w->ctx, l ? (int)(l - p->m->layers) : -1, o);
}

void pass_add_rows(const struct pass *p, const struct bound *post_norm)
{
    const struct model *m = p->m;
    const int64_t embd = m->shape.embd;
    if (post_norm->v) pass_norm_rows(p, p->b.h, p->b.h, post_norm, &NOTHING);
    const struct weight rows = { .format = &FORMATS[FORMAT_F32], .rows = p->n, .cols = embd, .data = p->b.h };
    operator_gather(p, OPERATOR_COPY,
                    &(struct gather){ .table = &rows,
                                      .ids = m->lists.every,
                                      .n = p->n,
                                      .y = p->b.x,
                                      .y_stride = embd,
                                      .add = true,
                                      .scale = m->hyper.residual_scale });
}

/* x += scale * norm(mm); norm and scale are optional. h is free at this point and takes the product. */
static void pass_add_to_stream(const struct pass *p, enum pass_operator op, struct matmul mm,
                               const struct bound *post_norm)
{
    const struct model *m = p->m;
    const int64_t embd = m->shape.embd;
    const bool plain = !post_norm->v && m->hyper.residual_scale == 1;
    float *to = plain ? p->b.x : p->b.h;
    mm.y = to + pass_stream_offset(p);
    mm.residual = plain ? mm.y : NULL;
    mm.y_stride = embd;
    if (mm.w->rows) operator_matmul(p, op, &mm, 1);
    if (model_is_part(m)) pass_exchange_stream(p, to, embd);
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
    if (!pass_is_over(p)) pass_run_attention(p, l);
}

/* x += the mixer's output matrix times attn. */
static void pass_add_mixed(const struct pass *p, const struct layer *l)
{
    const enum slot slot = !l->state_memory                        ? SLOT_ATTN_OUT
                           : layer_slot(l, SLOT_SHORT_OUT)->w.data ? SLOT_SHORT_OUT
                                                                   : SLOT_STATE_OUT;
    const struct bound *w = layer_slot(l, slot), *bias = layer_slot(l, SLOT_ATTN_OUT_B);
    pass_call_observer(p, l, (const enum slot[]){ slot }, 1, p->b.attn, p->m->widths.attn);
    if (pass_is_over(p)) return;
    if (model_is_part(p->m) && !l->state_memory) pass_exchange_attention(p, l);
    pass_add_to_stream(p, slot == SLOT_ATTN_OUT ? OPERATOR_ATTENTION_OUT : OPERATOR_STATE_OUT,
                       pass_product(p, w, bias, p->b.attn, p->m->widths.attn),
                       layer_slot(l, SLOT_POST_ATTN_NORM));
}

/* h -> ff: act(gate(h)) * up(h), or act(up(h)) without a gate. Returns the product with the down matrix that
 * is left to do, unless the pass is over. */
static struct matmul pass_run_gated(const struct pass *p, const struct layer *l, const float *h)
{
    const struct model *m = p->m;
    const int64_t ff = l->parts->ff;
    const bool gate = layer_slot(l, SLOT_GATE)->w.data, gated = gate || m->hyper.arch->gate_in_up;
    const int64_t stride = gated ? 2 * ff : ff;
    struct gated g = { .up = pass_product(p, layer_slot(l, SLOT_UP), layer_slot(l, SLOT_UP_B), h,
                                          m->shape.embd),
                       .act = m->hyper.act,
                       .y = p->b.ff,
                       .y_stride = stride };
    pass_call_observer(p, l, (const enum slot[]){ SLOT_UP, SLOT_GATE }, gate ? 2 : 1, h, m->shape.embd);
    if (pass_is_over(p)) return g.up;
    g.up.y = p->b.ff + (gate ? ff : 0);
    g.up.y_stride = stride;
    if (!ff) { /* a rank without a part of this feed-forward */
    } else if (gate) {
        g.gate = pass_product(p, layer_slot(l, SLOT_GATE), layer_slot(l, SLOT_GATE_B), h, m->shape.embd);
        g.gate.y = p->b.ff;
        g.gate.y_stride = stride;
        operator_gated(p, OPERATOR_GATE_UP, &g);
    } else { /* no gate, or gate and up in one matrix */
        operator_matmul(p, OPERATOR_GATE_UP, &g.up, 1);
        operator_activate(p, &(struct activate){ .act = g.act,
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
    if (!model_is_part(m)) return pass_product(p, w, bias, p->b.ff, stride);
    const int64_t whole = m->exchange.whole->parts[p->layer].ff;
    pass_exchange_ff(p, p->b.ff, stride, p->n, whole);
    return pass_product(p, w, bias, m->exchange.ff, whole);
}

/* A feed-forward and experts beside it, each with a norm of its outputs:
 * x += norm(norm(feed_forward(h)) + norm(experts(norm(x)))). */
static void pass_add_both(const struct pass *p, const struct layer *l, const float *h)
{
    const struct model *m = p->m;
    const int64_t embd = m->shape.embd, stride = m->widths.attn;
    struct matmul down = pass_run_gated(p, l, h);
    if (pass_is_over(p)) return;
    down.y = p->b.attn + pass_stream_offset(p); /* free since the outputs of attention were added */
    down.y_stride = stride;
    if (down.w->rows) operator_matmul(p, OPERATOR_DOWN, &down, 1);
    if (model_is_part(m)) pass_exchange_stream(p, p->b.attn, stride);
    pass_norm_in_place(p, p->b.attn, stride, embd, layer_slot(l, SLOT_POST_FFN_NORM_1));
    pass_norm_rows(p, p->b.x, p->b.qkv, layer_slot(l, SLOT_ROUTER_SCALE), &NOTHING);
    pass_norm_rows(p, p->b.x, p->b.h, layer_slot(l, SLOT_EXPERTS_NORM), &NOTHING);
    pass_run_experts(p, l, p->b.qkv, p->b.h);
    pass_norm_in_place(p, p->b.h, embd, embd, layer_slot(l, SLOT_POST_EXPERTS_NORM));
    operator_mix(p, &(struct mix){ .x = p->b.attn,
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
    else {
        const struct matmul down = pass_run_gated(p, l, h);
        if (!pass_is_over(p)) pass_add_to_stream(p, OPERATOR_DOWN, down, layer_slot(l, SLOT_POST_FFN_NORM));
    }
}

/* Copy the requested rows out of p->n rows of `width`, as a look-up in a table of f32 rows. */
void pass_gather_wanted(const struct pass *p, struct row_list wanted, const float *from, float *to,
                        int64_t width)
{
    const struct weight table = { .format = &FORMATS[FORMAT_F32], .rows = p->n, .cols = width, .data = from };
    operator_gather(
        p, OPERATOR_COPY,
        &(struct gather){
            .table = &table, .ids = wanted.ids, .n = wanted.n, .y = to, .y_stride = width, .scale = 1 });
}

/* In the last layer, rows without requested logits are not needed after their K and V are stored: the rest of
 * the layer runs on the requested rows only. */
static void pass_drop_unwanted(struct pass *p)
{
    const struct row_list wanted = pass_own_wanted(p);
    pass_gather_wanted(p, wanted, p->b.x, p->b.h, p->m->shape.embd);
    pass_gather_wanted(p, wanted, p->b.attn, p->b.qkv, p->m->widths.attn);
    struct buffers b = p->b;
    p->b.x = b.h;
    p->b.h = b.x;
    p->b.attn = b.qkv;
    p->b.qkv = b.attn;
    if (p->m->widths.inputs) {
        pass_gather_wanted(p, wanted, b.inputs, b.latent, p->m->widths.inputs);
        p->b.inputs = b.latent;
        p->b.latent = b.inputs;
    }
    p->n = wanted.n;
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
    if (pass_is_over(p)) return;
    pass_run_attention(p, l);
    if (last && p->wanted == 0) return;
    pass_add_mixed(p, l);
    if (pass_is_over(p)) return;
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
    operator_mix(p, &(struct mix){ .x = x,
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
    operator_matmul(p, OPERATOR_INPUTS, &mm, 1);
    operator_activate(p, &(struct activate){ .act = m->hyper.act,
                                             .gate = p->b.latent,
                                             .up = p->b.inputs + (l - m->layers) * width,
                                             .stride = stride,
                                             .n = p->n,
                                             .cols = width,
                                             .y = p->b.latent,
                                             .y_stride = stride });
    pass_call_observer(p, l, (const enum slot[]){ SLOT_INPUT_OUT }, 1, p->b.latent, stride);
    pass_add_to_stream(p, OPERATOR_INPUTS,
                       pass_product(p, layer_slot(l, SLOT_INPUT_OUT), NULL, p->b.latent, stride),
                       layer_slot(l, SLOT_INPUT_NORM));
}

static void pass_run_layer(struct pass *p, const struct layer *l, bool last)
{
    p->layer = (int)(l - p->m->layers);
    if (p->m->hyper.parallel) {
        pass_run_parallel_layer(p, l, last);
        return;
    }
    const struct layer_parts *parts = l->parts;
    if (parts->mixer != MIXER_NONE) {
        pass_mix(p, l, pass_norm_input(p, layer_slot(l, SLOT_ATTN_NORM), layer_slot(l, SLOT_ATTN_NORM_B)));
        if (pass_is_over(p)) return;
        if (last && p->wanted < MAX(p->all, p->n)) pass_drop_unwanted(p);
        if (p->n == 0) return;
        pass_add_mixed(p, l);
        if (pass_is_over(p)) return;
    }
    if (parts->feed_forward)
        pass_add_feed_forward(p, l, pass_norm_input(p, layer_ffn_norm(p, l), layer_slot(l, SLOT_FFN_NORM_B)));
    if (pass_is_over(p)) return;
    if (p->m->shape.layer_inputs) pass_add_input(p, l);
    if (l->output_scale != 1) pass_scale_rows(p, p->b.x, p->m->shape.embd, l->output_scale);
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
    operator_matmul(p, OPERATOR_INPUTS, &mm, 1);
    for (int l = 0; l < m->shape.layers; l++)
        operator_norm(p, &(struct norm){ .kind = NORM_RMS,
                                         .x = p->b.inputs + l * width,
                                         .x_stride = stride,
                                         .n = p->n,
                                         .cols = width,
                                         .w = m->global[SLOT_LAYER_INPUTS_NORM].v,
                                         .eps = m->hyper.eps * (float)m->shape.embd,
                                         .y = p->b.inputs + l * width,
                                         .y_stride = stride });
    operator_gather(p, OPERATOR_EMBEDDING,
                    &(struct gather){ .table = &m->global[SLOT_LAYER_INPUTS].w,
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
    operator_gather(p, OPERATOR_EMBEDDING, &g);
    if (m->shape.layer_inputs) pass_embed_inputs(p);
    if (!m->global[SLOT_POSITION_EMBD].w.data) return;
    g.table = &m->global[SLOT_POSITION_EMBD].w;
    g.ids = m->lists.pos;
    g.add = true;
    g.scale = 1;
    operator_gather(p, OPERATOR_EMBEDDING, &g);
}

static struct pass pass_at(struct model *m, int layer, int n)
{
    const struct site *s = model_site(m, layer);
    return (struct pass){ .m = m, .site = s, .b = s->buffers, .n = n, .layer = -1 };
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

/* Run the p->n rows in m->lists. */
static void pass_run(struct pass *p)
{
    struct model *m = p->m;
    if (m->profile) m->profile->passes++;
    pass_divide_rows(p);
    if (m->session.part.stage)
        pass_receive(p);
    else
        pass_embed(p);
    for (int l = 0; l < m->shape.layers; l++) {
        if (!part_has_layer(&m->session.part, l)) continue;
        pass_move(p, l);
        if (l == m->shape.layers - 1 && (p->all || p->wanted < p->n)) pass_check_hidden(p);
        pass_run_layer(p, &m->layers[l], l == m->shape.layers - 1);
        p->layer = -1;
        if (m->rank) rank_alive(m->rank);
    }
    if (!part_is_last(&m->session.part)) pass_send(p);
    if (p->all) pass_join_rows(p);
    if (!p->wanted || !part_is_last(&m->session.part)) return;
    pass_move(p, -1);
    pass_norm_output(p);
    pass_run_output(p);
}

/* Row i of the batch; p->n exceeds i. */
static void pass_list_row(struct pass *p, int i, const struct batch_row *row)
{
    struct model *m = p->m;
    m->lists.ids[i] = row->token;
    m->lists.pos[i] = row->pos;
    m->lists.seq[i] = row->seq;
    m->lists.slots[i] = pass_slot(m, row->seq, row->pos);
    if (row->logits) m->lists.wanted[p->wanted++] = i;
}

void forward_pass(struct model *m, const struct batch_row *rows, int n)
{
    struct pass p = pass_at(m, -1, n);
    for (int i = 0; i < n; i++) pass_list_row(&p, i, &rows[i]);
    pass_run(&p);
}

void forward_again(struct model *m, const struct batch_row *rows, int n)
{
    for (int from = 0, to; from < n; from = to) {
        const int seq = rows[from].seq, past = rows[from].pos;
        int32_t *ids = m->history + (int64_t)seq * m->session.ctx;
        for (to = from; to < n && rows[to].seq == seq; to++) ids[rows[to].pos] = rows[to].token;
        struct pass p = pass_at(m, -1, past + to - from);
        for (int i = 0; i < past; i++)
            pass_list_row(&p, i, &(struct batch_row){ .token = ids[i], .pos = i, .seq = seq });
        for (int i = from; i < to; i++) pass_list_row(&p, past + i - from, &rows[i]);
        if (p.wanted) pass_run(&p);
    }
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
