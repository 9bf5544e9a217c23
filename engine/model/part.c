/* The model of a rank that has some rows of all matrices, and its exchanges with the ranks that have the
 * others (engine/plan/split.h). After loading, m->shape has the sizes of the part: its heads, its
 * feed-forward. So the layers' code works as for a smaller model, and only exchanges know of the others. */
#include "engine/model/pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/arch/arch.h"
#include "engine/parallel/parallel.h"
#include "engine/plan/plan.h"
#include "kernels/kernels.h"

/* ---------------------------------------------------------------- loading */

/* Where the ranges of a matrix go: one that consists of several becomes several. */
static void slots_of(enum slot slot, int ranges, enum slot out[ROW_RANGES])
{
    static const enum slot OF_QKV[] = { SLOT_Q, SLOT_K, SLOT_V }, OF_UP[] = { SLOT_GATE, SLOT_UP },
                           OF_EXPERTS[] = { SLOT_GATE_EXPERTS, SLOT_UP_EXPERTS };
    out[0] = slot;
    if (ranges == 3) memcpy(out, OF_QKV, sizeof OF_QKV);
    if (ranges == 2) memcpy(out, slot == SLOT_GATE_UP_EXPERTS ? OF_EXPERTS : OF_UP, sizeof OF_UP);
}

/* Rows of matrix number `matrix` of a tensor. */
static enum err_code bind_matrix_range(struct weight *out, const struct site *site,
                                       const struct gguf_tensor *t, int64_t matrix, struct row_range range,
                                       const struct input_scheme *input, struct err *why)
{
    const char *data = (const char *)gguf_tensor_data(t);
    data += (matrix * t->shape[1] + range.from) * format_row_bytes(t->format, t->shape[0]);
    *out = (struct weight){ .format = t->format, .cols = t->shape[0], .data = data };
    return !range.rows ? ERR_OK
                       : backend_weight_bind(site->backend, out, t->format, range.rows, t->shape[0], input,
                                             data, why);
}

static enum err_code bind_range(struct bound *out, struct model *m, const struct site *site, int layer,
                                enum slot slot, int expert, const struct gguf_tensor *t,
                                struct row_range range, struct err *why)
{
    const bool several = ARCH_SLOTS[slot].matrices != DIM_NONE && expert < 0;
    const struct row_range of = split_matrices(&m->session.part, &m->shape, layer, slot, t->shape[2]);
    enum err_code rc = act_read(&out->input, m->gguf, t, why);
    out->from = range.from;
    if (rc) return rc;
    if (out->input && (ARCH_SLOTS[slot].matrices != DIM_NONE || out->input->outlier_weights))
        return err_set(
            why, ERR_USAGE,
            "weights with outlier columns, and experts with prescribed quantization of activations, "
            "cannot be divided: expected parallel=off");
    if (!several) {
        rc = bind_matrix_range(&out->w, site, t, 0, range, out->input, why);
        return rc ? rc : model_bind_scales(out, m, site, t, why);
    }
    out->experts = calloc((size_t)of.rows, sizeof *out->experts);
    if (!out->experts) return err_set(why, ERR_NOMEM, "out of memory for %lld matrices", (long long)of.rows);
    for (; out->count < of.rows && !rc; out->count += !rc)
        rc = bind_matrix_range(&out->experts[out->count], site, t, of.from + out->count, range, NULL, why);
    if (!rc) out->w = out->experts[0];
    return rc ? rc : model_bind_scales(out, m, site, t, why);
}

static enum err_code place_range(struct model *m, int layer, enum slot slot, int expert,
                                 const struct gguf_tensor *t, struct row_range range, struct err *why)
{
    struct bound *b = model_place(m, layer, slot), now = { .from = 0 };
    const struct site *site = model_slot_site(m, layer, slot);
    const enum err_code rc = bind_range(&now, m, site, layer, slot, expert, t, range, why);
    if (rc) {
        bound_release(site, &now);
        return rc;
    }
    if (expert >= 0) {
        b->from = range.from;
        return model_place_expert(b, m, site, expert, &now, why);
    }
    bound_release(site, b);
    *b = now;
    return ERR_OK;
}

enum err_code model_bind_rows(struct model *m, int layer, enum slot slot, int expert,
                              const struct gguf_tensor *t, struct err *why)
{
    struct row_range range[ROW_RANGES];
    enum slot to[ROW_RANGES];
    const int n = split_rows(range, &m->session.part, m->hyper.arch, &m->shape, layer, slot, t->shape[1]);
    enum err_code rc = ERR_OK;
    slots_of(slot, n, to);
    for (int i = 0; i < n && !rc; i++) rc = place_range(m, layer, to[i], expert, t, range[i], why);
    if (rc) err_prefix(why, "tensor '%s'", t->name);
    return rc;
}

/* Biases [experts][rows of a whole matrix] become [experts][rows of the part], in place. */
static void use_expert_biases(const struct bound *matrix, const struct bound *bias, int64_t whole,
                              int experts)
{
    float *v = (float *)bias->v;
    const int64_t own = matrix->w.rows;
    for (int e = 0; v && e < experts; e++)
        memmove(v + e * own, v + e * whole + matrix->from, (size_t)own * sizeof *v);
}

/* Vectors are whole on every rank. Those with a value for each row of a matrix are used from bound.from on;
 * biases of a matrix that became several belong to all of them; others begin at the part's first head. */
static void use_vectors(struct model *m, int layer, struct head_part h)
{
    struct bound *const slots = m->layers[layer].slots; /* from SLOT_GLOBAL_COUNT on */
    const int64_t dim = m->shape.parts[layer].head_dim_k;
#define VECTOR(slot) slots[(slot)-SLOT_GLOBAL_COUNT].v
    if (VECTOR(SLOT_QKV_B)) VECTOR(SLOT_Q_B) = VECTOR(SLOT_K_B) = VECTOR(SLOT_V_B) = VECTOR(SLOT_QKV_B);
    if (m->hyper.arch->gate_in_up) VECTOR(SLOT_GATE_B) = VECTOR(SLOT_UP_B);
    if (VECTOR(SLOT_SINKS)) VECTOR(SLOT_SINKS) += h.head;
    if (VECTOR(SLOT_Q_NORM_EACH)) VECTOR(SLOT_Q_NORM_EACH) += h.head * dim;
    if (VECTOR(SLOT_K_NORM_EACH)) VECTOR(SLOT_K_NORM_EACH) += h.kv_head * dim;
#undef VECTOR
    const struct layer *l = &m->layers[layer];
    const struct model_shape *s = m->exchange.whole;
    use_expert_biases(layer_slot(l, SLOT_GATE_EXPERTS), layer_slot(l, SLOT_GATE_EXPERTS_B), s->expert_ff,
                      s->experts);
    use_expert_biases(layer_slot(l, SLOT_UP_EXPERTS), layer_slot(l, SLOT_UP_EXPERTS_B), s->expert_ff,
                      s->experts);
    use_expert_biases(layer_slot(l, SLOT_DOWN_EXPERTS), layer_slot(l, SLOT_DOWN_EXPERTS_B), s->embd,
                      s->experts);
}

/* The rows of the token embedding that compute this rank's logits. The table itself is whole, for look-ups.
 */
static void use_tied_output(struct model *m)
{
    const struct part *p = &m->session.part;
    const struct bound *table = &m->global[SLOT_TOKEN_EMBD];
    struct bound *out = &m->exchange.output;
    const int64_t from = split_cut(m->shape.vocab, SPLIT_ROWS, p->tp, p->tp_rank),
                  to = split_cut(m->shape.vocab, SPLIT_ROWS, p->tp, p->tp_rank + 1);
    *out = (struct bound){ .w = table->w, .from = from };
    out->w.owned = NULL;
    out->w.data = (const char *)table->w.data + from * format_row_bytes(table->w.format, table->w.cols);
    out->w.rows = to - from;
}

enum err_code model_part_begin(struct model *m, struct err *why)
{
    const struct part *p = &m->session.part;
    struct exchange *x = &m->exchange;
    const struct exchange_sizes sizes = exchange_sizes(p, &m->shape, m->hyper.arch, m->session.batch,
                                                       m->session.exchange);
    if (sizes.stage && !(x->stage = malloc((size_t)sizes.stage)))
        return err_set(why, ERR_NOMEM, "out of memory for exchanges between ranks");
    if (p->tp <= 1) return ERR_OK;
    x->bytes = sizes.piece;
    x->send = malloc((size_t)sizes.piece);
    x->receive = malloc((size_t)sizes.piece);
    x->ff = malloc((size_t)sizes.ff);
    x->whole = malloc(sizeof *x->whole);
    if (!x->send || !x->receive || !x->ff || !x->whole)
        return err_set(why, ERR_NOMEM, "out of memory for exchanges between ranks");
    const struct rank_place *place = rank_place(m->rank);
    x->group = rank_module(m->rank)->split(place->rank / p->tp, place->rank);
    if (x->group < 0) return err_set(why, ERR_INTERNAL, "MPI allows no more groups of ranks");
    *x->whole = m->shape;
    if (m->shape.tied_output) use_tied_output(m);
    const struct head_part first = split_first_heads(p, &m->shape);
    for (int l = 0; l < m->shape.layers; l++) {
        struct layer_parts *parts = &m->shape.parts[l];
        const struct head_part h = split_heads(p->tp, p->tp_rank, x->whole->heads, parts->kv_heads);
        use_vectors(m, l, h);
        parts->kv_heads = h.kv_heads;
        parts->ff = split_ff_width(p, parts->ff);
    }
    m->shape.expert_ff = split_ff_width(p, m->shape.expert_ff);
    m->shape.shared_ff = split_ff_width(p, m->shape.shared_ff);
    m->shape.heads = first.heads;
    m->shape.kv_heads = first.kv_heads;
    return ERR_OK;
}

void model_part_free(struct model *m)
{
    free(m->exchange.send);
    free(m->exchange.receive);
    free(m->exchange.stage);
    free(m->exchange.ff);
    free(m->exchange.whole);
}

/* ---------------------------------------------------------------- exchanges */

/* Rows of which each rank has the columns between two cuts: mine -> all columns in `to`. The two may overlap
 * if their strides are equal. */
struct columns {
    const float *mine;
    int64_t mine_stride;
    float *to;
    int64_t to_stride;
    const struct format *format; /* in which they travel; own columns are rounded as well, so that all ranks
                                    have the same numbers */
    int64_t cut[RANKS_MAX + 1];
};

/* Bytes of a row of rank r's columns. */
static int64_t columns_bytes(const struct columns *c, int r)
{
    return wire_row_bytes(c->format, c->cut[r + 1] - c->cut[r]);
}

/* At most as many rows as the buffers hold. */
static void exchange_piece(struct model *m, const struct columns *c, int row, int n)
{
    const struct part *p = &m->session.part;
    struct exchange *x = &m->exchange;
    const int64_t own = c->cut[p->tp_rank + 1] - c->cut[p->tp_rank], own_bytes = columns_bytes(c, p->tp_rank);
    const bool in_place = n == 1 && c->format == &FORMATS[FORMAT_F32];
    const void *send = in_place ? (const void *)(c->mine + row * c->mine_stride) : x->send;
    int bytes[RANKS_MAX], at[RANKS_MAX], sum = 0;
    for (int i = 0; i < n && !in_place; i++)
        wire_pack(c->format, c->mine + (row + i) * c->mine_stride, own, x->send + i * own_bytes);
    for (int r = 0; r < p->tp; r++) {
        at[r] = sum;
        sum += bytes[r] = (int)(n * columns_bytes(c, r));
    }
    rank_all_gather(m->rank, x->group, send, bytes[p->tp_rank], x->receive, bytes, at);
    for (int r = 0; r < p->tp; r++)
        for (int i = 0; i < n; i++)
            wire_unpack(c->format, x->receive + at[r] + i * columns_bytes(c, r), c->cut[r + 1] - c->cut[r],
                        c->to + (row + i) * c->to_stride + c->cut[r]);
}

static void exchange_columns(struct model *m, const struct columns *c, int n)
{
    int64_t row_bytes = 0;
    for (int r = 0; r < m->session.part.tp; r++) row_bytes += columns_bytes(c, r);
    const int64_t step = MAX(m->exchange.bytes / MAX(row_bytes, 1), 1);
    for (int64_t row = 0; row < n; row += step) exchange_piece(m, c, (int)row, (int)MIN(step, n - row));
}

int64_t pass_stream_offset(const struct pass *p)
{
    const struct part *part = &p->m->session.part;
    return model_is_part(p->m) ? split_cut(p->m->shape.embd, SPLIT_ROWS, part->tp, part->tp_rank) : 0;
}

/* Outputs of a matrix with so many rows, of which each rank has computed its part in place. */
static void exchange_rows(const struct pass *p, float *x, int64_t stride, int64_t rows,
                          const struct format *as)
{
    const struct part *part = &p->m->session.part;
    struct columns c = { NULL, stride, x, stride, as, { 0 } };
    for (int i = 0; i <= part->tp; i++) c.cut[i] = split_cut(rows, SPLIT_ROWS, part->tp, i);
    c.mine = x + c.cut[part->tp_rank];
    exchange_columns(p->m, &c, p->n);
}

void pass_exchange_rows(const struct pass *p, float *x, int64_t stride, int64_t rows)
{
    exchange_rows(p, x, stride, rows, p->m->session.exchange);
}

void pass_exchange_stream(const struct pass *p, float *x, int64_t stride)
{
    pass_exchange_rows(p, x, stride, p->m->shape.embd);
}

void pass_exchange_scores(const struct pass *p)
{
    const int64_t experts = p->m->shape.experts;
    exchange_rows(p, p->b.router, experts, experts,
                  &FORMATS[FORMAT_F32]); /* a rounded score could choose another expert */
}

void pass_exchange_attention(const struct pass *p, const struct layer *l)
{
    const int64_t stride = p->m->widths.attn;
    const int tp = p->m->session.part.tp;
    struct columns c = { p->b.attn, stride, p->b.attn, stride, p->m->session.exchange, { 0 } };
    for (int i = 0; i <= tp; i++)
        c.cut[i] = split_attention_cut(tp, i, p->m->exchange.whole, (int)(l - p->m->layers));
    exchange_columns(p->m, &c, p->n);
}

void pass_exchange_ff(const struct pass *p, const float *x, int64_t stride, int n, int64_t width)
{
    const int tp = p->m->session.part.tp;
    struct columns c = { x, stride, p->m->exchange.ff, width, p->m->session.exchange, { 0 } };
    for (int i = 0; i <= tp; i++) c.cut[i] = split_ff_cut(tp, i, width);
    exchange_columns(p->m, &c, n);
}

struct all_heads pass_exchange_heads(const struct pass *p, const struct layer *l, const float *x, bool keys)
{
    const struct exchange *e = &p->m->exchange;
    const int tp = p->m->session.part.tp, rank = p->m->session.part.tp_rank;
    const struct layer_parts *whole = &e->whole->parts[l - p->m->layers];
    const int64_t dim = whole->head_dim_k, cols = dim * (keys ? whole->kv_heads : e->whole->heads);
    struct columns c = { x, p->m->widths.qkv, e->ff, cols, p->m->session.exchange, { 0 } };
    for (int i = 0; i < tp; i++) {
        const struct head_part h = split_heads(tp, i, e->whole->heads, whole->kv_heads);
        c.cut[i] = dim * (keys ? h.kv_head : h.head);
    }
    c.cut[tp] = cols;
    exchange_columns(p->m, &c, p->n);
    return (struct all_heads){ e->ff, cols, c.cut[rank], c.cut[rank + 1] - c.cut[rank] };
}

void pass_exchange_logits(const struct pass *p, int n)
{
    struct model *m = p->m;
    const int64_t vocab = m->shape.vocab;
    const struct part *part = &m->session.part;
    struct columns c = { p->b.logits,          0,    m->logits + m->logits_count * vocab, vocab,
                         &FORMATS[FORMAT_F32], { 0 } };
    for (int i = 0; i <= part->tp; i++) c.cut[i] = split_cut(vocab, SPLIT_ROWS, part->tp, i);
    c.mine_stride = c.cut[part->tp_rank + 1] - c.cut[part->tp_rank];
    exchange_columns(m, &c, n);
}

/* Bytes of x, or of the second embedding. */
static size_t row_bytes(const struct pass *p, int64_t width)
{
    return (size_t)p->n * (size_t)width * sizeof(float);
}

/* The hidden states of all rows, in the format of exchanges. The second embedding always travels as f32. */
static void send_hidden(const struct pass *p, int to)
{
    const struct model *m = p->m;
    const int64_t embd = m->shape.embd, bytes = wire_row_bytes(m->session.exchange, embd);
    if (!m->exchange.stage) {
        rank_send(m->rank, to, p->b.x, row_bytes(p, embd));
        return;
    }
    for (int row = 0; row < p->n; row += WIRE_ROWS) {
        const int n = MIN((int)WIRE_ROWS, p->n - row);
        for (int i = 0; i < n; i++)
            wire_pack(m->session.exchange, p->b.x + (row + i) * embd, embd, m->exchange.stage + i * bytes);
        rank_send(m->rank, to, m->exchange.stage, (size_t)(n * bytes));
    }
}

static void receive_hidden(const struct pass *p, int from)
{
    const struct model *m = p->m;
    const int64_t embd = m->shape.embd, bytes = wire_row_bytes(m->session.exchange, embd);
    if (!m->exchange.stage) {
        rank_receive(m->rank, from, p->b.x, row_bytes(p, embd));
        return;
    }
    for (int row = 0; row < p->n; row += WIRE_ROWS) {
        const int n = MIN((int)WIRE_ROWS, p->n - row);
        rank_receive(m->rank, from, m->exchange.stage, (size_t)(n * bytes));
        for (int i = 0; i < n; i++)
            wire_unpack(m->session.exchange, m->exchange.stage + i * bytes, embd, p->b.x + (row + i) * embd);
    }
}

void pass_receive(const struct pass *p)
{
    const struct part *part = &p->m->session.part;
    const int from = part_rank(part, part->replica, part->stage - 1, part->tp_rank);
    receive_hidden(p, from);
    if (p->m->widths.inputs) rank_receive(p->m->rank, from, p->b.inputs, row_bytes(p, p->m->widths.inputs));
}

void pass_send(const struct pass *p)
{
    const struct part *part = &p->m->session.part;
    const int to = part_rank(part, part->replica, part->stage + 1, part->tp_rank);
    send_hidden(p, to);
    if (p->m->widths.inputs) rank_send(p->m->rank, to, p->b.inputs, row_bytes(p, p->m->widths.inputs));
}

/* Is the candidate of a later rank better? Values that are no numbers come first, then the largest; of equals
 * the first. */
static bool is_better(struct ranked a, struct ranked than)
{
    if (isnan(than.value)) return false;
    return isnan(a.value) || a.value > than.value;
}

void pass_exchange_best(const struct pass *p, struct ranked *first, int n)
{
    struct model *m = p->m;
    const struct part *part = &m->session.part;
    struct ranked all[RANKS_MAX * LOGIT_ROWS_MAX];
    int bytes[RANKS_MAX], at[RANKS_MAX];
    const int64_t from = split_cut(m->shape.vocab, SPLIT_ROWS, part->tp, part->tp_rank);
    for (int i = 0; i < n; i++) first[i].id += (int32_t)from;
    for (int r = 0; r < part->tp; r++) {
        bytes[r] = n * (int)sizeof *first;
        at[r] = r * bytes[r];
    }
    rank_all_gather(m->rank, m->exchange.group, first, bytes[0], all, bytes, at);
    for (int i = 0; i < n; i++) {
        first[i] = all[i];
        for (int r = 1; r < part->tp; r++)
            if (is_better(all[r * n + i], first[i])) first[i] = all[r * n + i];
    }
}

void model_part_agree(struct model *m)
{
    struct not_finite all[RANKS_MAX];
    int bytes[RANKS_MAX], at[RANKS_MAX];
    if (!m->rank) return;
    const int ranks = rank_place(m->rank)->size;
    if (m->not_finite.found) /* of all sequences, not of this replica's */
        m->not_finite.seq = m->not_finite.seq * m->session.part.dp + m->session.part.replica;
    if (m->session.part.tp < ranks) rank_join(m->rank); /* they may be far apart */
    for (int r = 0; r < ranks; r++) {
        bytes[r] = (int)sizeof *all;
        at[r] = r * bytes[r];
    }
    rank_all_gather(m->rank, 0, &m->not_finite, (int)sizeof *all, all, bytes, at);
    m->not_finite.found = false; /* all take the one of the lowest rank */
    for (int r = 0; r < ranks && !m->not_finite.found; r++) m->not_finite = all[r];
}
