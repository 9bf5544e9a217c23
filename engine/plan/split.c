/* Divides a model among processes. */
#include "engine/plan/split.h"

#include <math.h>
#include <string.h>

#include "engine/plan/plan.h"

struct part part_of(const struct parallel *mode, int rank, int layers)
{
    const int tp = mode->tp, cp = mode->cp, pp = mode->pp;
    struct part p = { .tp = tp,
                      .tp_rank = rank % tp,
                      .cp = cp,
                      .cp_rank = rank / tp % cp,
                      .pp = pp,
                      .stage = rank / tp / cp % pp,
                      .dp = mode->dp,
                      .replica = rank / tp / cp / pp };
    if (pp == 1) return p;
    if (mode->stage_layers[0]) {
        for (int i = 0; i < p.stage; i++) p.first += mode->stage_layers[i];
        p.end = p.first + mode->stage_layers[p.stage];
        return p;
    }
    p.first = (int)((int64_t)layers * p.stage / pp);
    p.end = (int)((int64_t)layers * (p.stage + 1) / pp);
    return p;
}

void split_stages(struct parallel *mode, int layers, const double *speed)
{
    double sum = 0, before = 0;
    int given = 0;
    if (mode->pp > STAGES_MOST || mode->pp > layers) return;
    for (int i = 0; i < mode->pp; i++) sum += speed[i];
    for (int i = 0; i < mode->pp; i++) {
        const int later = mode->pp - 1 - i;
        before += speed[i];
        const int end = later ? (int)lround(layers * before / sum) : layers;
        mode->stage_layers[i] = MIN(MAX(end - given, 1), layers - given - later);
        given += mode->stage_layers[i];
    }
}

bool part_has_tensor(const struct part *p, const struct model_shape *s, int layer, enum slot slot)
{
    if (layer >= 0 || p->pp <= 1) return part_has_layer(p, layer);
    switch (slot) {
    case SLOT_TOKEN_EMBD: return p->stage == 0 || (s->tied_output && part_is_last(p));
    case SLOT_POSITION_EMBD:
    case SLOT_LAYER_INPUTS:
    case SLOT_LAYER_INPUTS_PROJ: return p->stage == 0;
    case SLOT_OUTPUT: return part_is_last(p);
    default: return true;
    }
}

int part_states(const struct part *p, const struct model_shape *s)
{
    int n = 0;
    for (int l = 0; l < s->layers; l++) n += part_has_layer(p, l) && shape_layer_has_state(s, l);
    return n;
}

int64_t split_cut(int64_t n, int unit, int parts, int i)
{
    return i == parts ? n : n / unit * i / parts * unit;
}

struct head_part split_heads(int tp, int rank, int heads, int kv_heads)
{
    const int group = heads / MAX(kv_heads, 1);
    if (tp <= 1 || !kv_heads) return (struct head_part){ 0, heads, 0, kv_heads };
    if (kv_heads >= tp) {
        const int from = kv_heads * rank / tp, to = kv_heads * (rank + 1) / tp;
        return (struct head_part){ from * group, (to - from) * group, from, to - from };
    }
    const int share = tp / kv_heads, kv = rank / share,
              one = group / share; /* several have the same KV head */
    return (struct head_part){ kv * group + rank % share * one, one, kv, 1 };
}

struct head_part split_first_heads(const struct part *p, const struct model_shape *s)
{
    int layer = 0;
    while (layer < s->layers - 1 && s->parts[layer].mixer != MIXER_ATTENTION) layer++;
    return split_heads(p->tp, p->tp_rank, s->heads, s->parts[layer].kv_heads);
}

/* ---------------------------------------------------------------- what can be divided */

static bool shares_keys(const struct model_shape *s)
{
    for (int l = 0; l < s->layers; l++)
        if (s->parts[l].mixer == MIXER_ATTENTION && s->parts[l].kv_layer != l) return true;
    return false;
}

static bool has_attention(const struct model_shape *s)
{
    for (int l = 0; l < s->layers; l++)
        if (s->parts[l].mixer == MIXER_ATTENTION) return true;
    return false;
}

/* Does each rank have the same heads in this layer as in the first with attention? */
static bool same_heads(int tp, const struct model_shape *s, int layer)
{
    for (int r = 0; r < tp; r++) {
        const struct part p = { .tp = tp, .tp_rank = r };
        const struct head_part a = split_heads(tp, r, s->heads, s->parts[layer].kv_heads),
                               b = split_first_heads(&p, s);
        if (a.head != b.head || a.heads != b.heads) return false;
    }
    return true;
}

static enum err_code check_tp(const struct parallel *mode, const char *text, const struct arch *a,
                              const struct model_shape *s, struct err *why)
{
    const int tp = mode->tp;
    for (int l = 0; l < s->layers; l++) {
        const int kv = s->parts[l].kv_heads;
        if (s->parts[l].mixer != MIXER_ATTENTION) continue;
        if (!same_heads(tp, s, l))
            return err_set(
                why, ERR_USAGE,
                "parallel=%s: layers of this model have different numbers of heads of keys and values, "
                "which divide its heads differently: expected another number, ppN, dpN or off",
                text);
        if (kv < tp && a->qk_norm == QK_NORM_ROW)
            return err_set(why, ERR_USAGE,
                           "parallel=%s: this model has a norm over all of its %d heads of keys: expected at "
                           "most tp%d",
                           text, kv, kv);
        if (kv < tp && (tp % kv || s->heads / kv % (tp / kv)))
            return err_set(
                why, ERR_USAGE,
                "parallel=%s: %d heads with %d heads of keys and values cannot be divided by %d: expected at "
                "most tp%d, or a number that divides the heads evenly",
                text, s->heads, kv, tp, kv);
    }
    return ERR_OK;
}

enum err_code split_check(const struct parallel *mode, const struct arch *a, const struct model_shape *s,
                          struct err *why)
{
    char text[64];
    parallel_text(mode, text, sizeof text);
    if (mode->cp > 1 && !has_attention(s))
        return err_set(why, ERR_USAGE,
                       "parallel=%s: cp divides the positions that attention reads, and no layer of this %s "
                       "model has attention: expected tpN, ppN, dpN or off",
                       text, s->arch);
    if (mode->pp > s->layers)
        return err_set(why, ERR_USAGE, "parallel=%s: this model has %d layers: expected at most pp%d", text,
                       s->layers, s->layers);
    int sum = 0;
    for (int i = 0; i < mode->pp && mode->stage_layers[0]; i++) sum += mode->stage_layers[i];
    if (mode->stage_layers[0] && sum != s->layers)
        return err_set(
            why, ERR_USAGE,
            "parallel=%s: the stages have %d layers together, and this model has %d: expected stages "
            "whose layers add up to that, or pp%d",
            text, sum, s->layers, mode->pp);
    if (mode->pp > 1 && shares_keys(s))
        return err_set(
            why, ERR_USAGE,
            "parallel=%s: this %s model has layers that share keys and values, which pp cannot divide: "
            "expected dpN or off",
            text, s->arch);
    return mode->tp > 1 ? check_tp(mode, text, a, s, why) : ERR_OK;
}

/* ---------------------------------------------------------------- rows */

int64_t split_attention_cut(int tp, int i, const struct model_shape *s, int layer)
{
    const struct layer_parts *l = &s->parts[layer];
    const int64_t dim = s->kv_lora ? s->latent_v_dims : l->head_dim_v;
    return dim * (i == tp ? s->heads : split_heads(tp, i, s->heads, l->kv_heads).head);
}

int64_t split_ff_cut(int tp, int i, int64_t width)
{
    return split_cut(width, SPLIT_ACTIVATIONS, tp, i);
}

int32_t split_ff_width(const struct part *p, int64_t width)
{
    return (int32_t)(split_ff_cut(p->tp, p->tp_rank + 1, width) - split_ff_cut(p->tp, p->tp_rank, width));
}

static struct row_range range_of(int64_t n, int unit, const struct part *p)
{
    const int64_t from = split_cut(n, unit, p->tp, p->tp_rank);
    return (struct row_range){ from, split_cut(n, unit, p->tp, p->tp_rank + 1) - from };
}

/* Outputs that are neither heads nor activations. All processes must choose the same experts, so each score
 * comes from one of them, as every other output. */
static const slot_set PLAIN_OUTPUTS = SLOT_BIT(SLOT_OUTPUT) | SLOT_BIT(SLOT_ATTN_OUT) | SLOT_BIT(SLOT_DOWN) |
                                      SLOT_BIT(SLOT_ROUTER) | SLOT_BIT(SLOT_DOWN_EXPERTS) |
                                      SLOT_BIT(SLOT_DOWN_SHARED) | SLOT_BIT(SLOT_INPUT_OUT) |
                                      SLOT_BIT(SLOT_STATE_QKV) | SLOT_BIT(SLOT_STATE_GATE) |
                                      SLOT_BIT(SLOT_STATE_IN) | SLOT_BIT(SLOT_STATE_OUT) |
                                      SLOT_BIT(SLOT_SHORT_IN) | SLOT_BIT(SLOT_SHORT_OUT);

bool split_is_plain(enum slot slot)
{
    return SLOT_BIT(slot) & PLAIN_OUTPUTS;
}

/* Gates, and activations of the same width below them in the matrix. */
static int gates_and_up(struct row_range out[ROW_RANGES], const struct part *p, int64_t width)
{
    out[0] = range_of(width, SPLIT_ACTIVATIONS, p);
    out[1] = (struct row_range){ width + out[0].from, out[0].rows };
    return 2;
}

static struct row_range heads_of(struct head_part h, int64_t dim)
{
    return (struct row_range){ h.head * dim, h.heads * dim };
}

int split_rows(struct row_range out[ROW_RANGES], const struct part *p, const struct arch *a,
               const struct model_shape *s, int layer, enum slot slot, int64_t rows)
{
    out[0] = (struct row_range){ 0, rows };
    if (p->tp <= 1) return 1;
    if (split_is_plain(slot)) {
        out[0] = range_of(rows, SPLIT_ROWS, p);
        return 1;
    }
    if (layer < 0) return 1;
    const struct layer_parts *l = &s->parts[layer];
    const struct head_part h = split_heads(p->tp, p->tp_rank, s->heads, l->kv_heads);
    const int64_t k = l->head_dim_k, v = l->head_dim_v;
    const struct row_range q_rows = heads_of(h, k), k_rows = { h.kv_head * k, h.kv_heads * k },
                           v_rows = { h.kv_head * v, h.kv_heads * v };
    const int64_t q_all = s->heads * k, k_all = l->kv_heads * k;
    switch (slot) {
    case SLOT_Q: out[0] = a->query_gate ? heads_of(h, 2 * k) : q_rows; return 1;
    case SLOT_K: out[0] = k_rows; return 1;
    case SLOT_V: out[0] = v_rows; return 1;
    case SLOT_QKV:
        out[0] = q_rows;
        out[1] = (struct row_range){ q_all + k_rows.from, k_rows.rows };
        out[2] = (struct row_range){ q_all + k_all + v_rows.from, v_rows.rows };
        return 3;
    case SLOT_LATENT_Q:
    case SLOT_LATENT_Q_B: out[0] = heads_of(h, s->nope_dims + s->rope_dims); return 1;
    case SLOT_LATENT_KV_B: out[0] = heads_of(h, s->nope_dims + s->latent_v_dims); return 1;
    case SLOT_UP:
        if (a->gate_in_up) return gates_and_up(out, p, l->ff);
        out[0] = range_of(rows, SPLIT_ACTIVATIONS, p);
        return 1;
    case SLOT_GATE:
    case SLOT_GATE_EXPERTS:
    case SLOT_UP_EXPERTS:
    case SLOT_GATE_SHARED:
    case SLOT_UP_SHARED: out[0] = range_of(rows, SPLIT_ACTIVATIONS, p); return 1;
    case SLOT_GATE_UP_EXPERTS: return gates_and_up(out, p, s->expert_ff);
    default: return 1;
    }
}

struct row_range split_matrices(const struct part *p, const struct model_shape *s, int layer, enum slot slot,
                                int64_t matrices)
{
    if (p->tp <= 1 || layer < 0 || ARCH_SLOTS[slot].matrices != DIM_HEADS)
        return (struct row_range){ 0, matrices };
    return heads_of(split_heads(p->tp, p->tp_rank, s->heads, s->parts[layer].kv_heads), 1);
}

int64_t split_row_count(const struct part *p, const struct arch *a, const struct model_shape *s, int layer,
                        enum slot slot, int64_t rows)
{
    struct row_range r[ROW_RANGES];
    int64_t sum = 0;
    const int n = split_rows(r, p, a, s, layer, slot, rows);
    for (int i = 0; i < n; i++) sum += r[i].rows;
    return sum;
}

/* ---------------------------------------------------------------- exchanges */

enum { PIECE_FLOATS = 1 << 18, WIRE_BLOCK_MAX = 32 };

int64_t wire_row_bytes(const struct format *f, int64_t cols)
{
    const int64_t block = f->block_weights;
    return format_row_bytes(f, (cols + block - 1) / block * block);
}

static bool all_finite(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

/* Encoders of blocks may lose a NaN: a scale of NaN makes the whole block NaN. */
static void spoil_blocks(const struct format *f, const float *x, int64_t cols, char *out)
{
    const uint16_t nan = f16_from_f32(NAN); /* a block of q8_0 begins with its scale */
    for (int64_t at = 0; at < cols; at += f->block_weights, out += f->block_bytes)
        if (!all_finite(x + at, MIN((int64_t)f->block_weights, cols - at))) memcpy(out, &nan, sizeof nan);
}

void wire_pack(const struct format *f, const float *x, int64_t cols, void *out)
{
    const int64_t block = f->block_weights, whole = cols / block * block;
    if (f == &FORMATS[FORMAT_F32]) {
        memcpy(out, x, (size_t)cols * sizeof *x);
        return;
    }
    if (whole) format_encode_rows(f, x, out, 1, whole);
    if (whole < cols) {
        float last[WIRE_BLOCK_MAX] = { 0 };
        memcpy(last, x + whole, (size_t)(cols - whole) * sizeof *x);
        format_encode_rows(f, last, (char *)out + format_row_bytes(f, whole), 1, block);
    }
    if (block > 1 && !all_finite(x, cols)) spoil_blocks(f, x, cols, out);
}

void wire_unpack(const struct format *f, const void *in, int64_t cols, float *x)
{
    const int64_t block = f->block_weights, whole = cols / block * block;
    if (f == &FORMATS[FORMAT_F32]) {
        memcpy(x, in, (size_t)cols * sizeof *x);
        return;
    }
    if (whole) format_decode_rows(f, in, x, 1, whole);
    if (whole < cols) {
        float last[WIRE_BLOCK_MAX];
        format_decode_rows(f, (const char *)in + format_row_bytes(f, whole), last, 1, block);
        memcpy(x + whole, last, (size_t)(cols - whole) * sizeof *x);
    }
}

struct exchange_sizes exchange_sizes(const struct part *p, const struct model_shape *s, const struct arch *a,
                                     int batch, const struct format *f)
{
    struct exchange_sizes z = { 0 };
    const bool plain = f == &FORMATS[FORMAT_F32];
    if (p->tp > 1) {
        struct widths w;
        widths_of(&w, s, a, batch);
        const int64_t experts = MAX((int64_t)s->experts_used * s->expert_ff, s->shared_ff),
                      heads = a->qk_norm == QK_NORM_ROW ? arch_dim(DIM_Q, a, s) : 0,
                      ff = MAX(MAX(s->ff, experts), heads);
        /* w.qkv and w.latent also have room for the inputs of states */
        const int64_t mixer = MAX(w.attn, MAX(w.qkv, w.latent)),
                      others = MAX(MAX(s->embd, s->experts), s->vocab), widest = MAX(MAX(mixer, ff), others);
        const int64_t floats = MAX(widest, MIN((int64_t)PIECE_FLOATS, widest * batch)); /* at least one row */
        /* each part of a row may end with a block that is not full */
        z.piece = floats * (int64_t)sizeof(float) + (plain ? 0 : p->tp * (int64_t)f->block_bytes);
        z.ff = ff * batch * (int64_t)sizeof(float);
    }
    if (p->pp > 1 && !plain) z.stage = MIN(WIRE_ROWS, batch) * wire_row_bytes(f, s->embd);
    return z;
}

int64_t exchange_bytes(const struct exchange_sizes *z)
{
    const int64_t floats[] = { z->piece, z->piece, z->ff, z->stage };
    int64_t sum = 0;
    for (size_t i = 0; i < COUNT_OF(floats); i++) sum += vector_bytes((floats[i] + 3) / 4);
    return sum;
}

/* ---------------------------------------------------------------- positions */

enum { SHARE_FLOATS = 1 << 20 }; /* of results of attention that are exchanged at a time: 4 MB */

struct share_sizes share_sizes(const struct model_session *e, const struct model_shape *s,
                               const struct arch *a)
{
    const struct part *p = &e->part;
    int64_t v_dim = 0;
    if (p->cp <= 1) return (struct share_sizes){ 0 };
    for (int l = 0; l < s->layers; l++)
        if (s->parts[l].mixer == MIXER_ATTENTION) v_dim = MAX(v_dim, (int64_t)s->parts[l].head_dim_v);
    const int64_t blocks = (e->ctx - 1) / SHARE_TOKENS / p->cp + 1,
                  row = split_first_heads(p, s).heads * blocks * attention_share_floats((int)v_dim),
                  floats = MAX(row, MIN(row * e->batch, (int64_t)SHARE_FLOATS));
    struct widths w;
    widths_of(&w, s, a, e->batch);
    return (struct share_sizes){ .out = floats,
                                 .send = floats, /* what travels is never longer than what attention writes */
                                 .receive = p->cp * floats,
                                 .rows = s->state.taps ? 0 : w.qkv * e->batch };
}

int64_t share_bytes(const struct share_sizes *z)
{
    return vector_bytes(z->out) + vector_bytes(z->send) + vector_bytes(z->receive) + vector_bytes(z->rows);
}
