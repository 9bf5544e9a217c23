/* Layers that keep a state of constant size instead of keys and values: gated delta net, Mamba-2 and short
 * convolutions. Their matrices run on the layer's site; convolution and recurrence run on the host
 * (kernels/recurrent.h), where the states are. */
#include <stdlib.h>
#include <string.h>

#include "engine/arch/arch.h"
#include "engine/model/pass.h"
#include "engine/plan/plan.h"
#include "kernels/kernels.h"

/* ---------------------------------------------------------------- memory */

/* Copy a vector from the backend to *at and move on. NULL: the file has none. */
static float *take_vector(struct model *m, int layer, enum slot slot, int64_t n, float **at)
{
    const struct bound *b = layer_slot(&m->layers[layer], slot);
    if (!b->v) return NULL;
    float *to = *at;
    backend_read(model_site(m, layer)->backend, to, b->v, (size_t)n * sizeof *to);
    *at += n;
    return to;
}

/* to [cols][rows] = from [rows][cols] */
static void matrix_transpose(const float *from, int64_t rows, int64_t cols, float *to)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) to[c * rows + r] = from[r * cols + c];
}

static enum err_code read_vectors(struct model *m, int layer, struct err *why)
{
    const struct state_shape *t = &m->shape.state;
    struct state_weights *w = &m->layers[layer].state;
    const int64_t filters = t->channels * t->taps;
    w->memory = malloc((size_t)(2 * filters + t->channels + 4 * t->heads + t->value_dim) * sizeof(float));
    if (!w->memory) return err_set(why, ERR_NOMEM, "out of memory for layer %d", layer);
    float *at = w->memory;
    const enum slot conv = m->hyper.arch->state == MIXER_CONVOLUTION ? SLOT_SHORT_CONV : SLOT_STATE_CONV;
    const float *by_channel = take_vector(m, layer, conv, filters, &at);
    w->convolution = at;
    matrix_transpose(by_channel, t->channels, t->taps, at);
    at += filters;
    w->bias = take_vector(m, layer, SLOT_STATE_CONV_B, t->channels, &at);
    w->step_bias = take_vector(m, layer, SLOT_STATE_STEP_B, t->heads, &at);
    w->a = take_vector(m, layer, SLOT_STATE_A, t->heads, &at);
    if (!w->a) w->a = take_vector(m, layer, SLOT_STATE_A_COLUMN, t->heads, &at);
    w->d = take_vector(m, layer, SLOT_STATE_D, t->heads, &at);
    w->norm = take_vector(m, layer, SLOT_STATE_NORM, t->value_dim, &at);
    return ERR_OK;
}

enum err_code model_states_alloc(struct model *m, struct err *why)
{
    const int64_t all = session_state_bytes(&m->session, &m->shape),
                  one = vector_bytes(shape_state_floats(&m->shape) * m->session.sequences);
    if (!all) return ERR_OK;
    m->state_memory = calloc(1, (size_t)(m->apart ? one : all));
    if (m->session.gpu_layers) {
        m->host_rows = malloc((size_t)vector_bytes(m->widths.qkv * m->session.batch));
        m->host_out = malloc((size_t)vector_bytes(m->widths.attn * m->session.batch));
    }
    if (!m->state_memory || (m->session.gpu_layers && (!m->host_rows || !m->host_out)))
        return err_set(why, ERR_NOMEM, "out of memory for the states of %d sequences", m->session.sequences);
    char *next = (char *)m->state_memory;
    enum err_code rc = ERR_OK;
    for (int l = 0; l < m->shape.layers && !rc; l++) {
        if (!shape_layer_has_state(&m->shape, l) || !part_has_layer(&m->session.part, l)) continue;
        m->layers[l].state_memory = (float *)(void *)next;
        if (!m->apart) next += one;
        rc = read_vectors(m, l, why);
    }
    return rc;
}

void model_states_free(struct model *m)
{
    for (int l = 0; m->layers && l < m->shape.layers; l++) free(m->layers[l].state.memory);
    free(m->state_memory);
    free(m->host_rows);
    free(m->host_out);
}

/* ---------------------------------------------------------------- copies */

int64_t model_state_bytes(const struct model *m)
{
    return shape_state_floats(&m->shape) * (int64_t)sizeof(float) *
           shape_count_states(&m->shape, m->shape.layers);
}

/* Copy the state of a sequence from (save) or to the layers. */
static void copy_states(const struct model *m, int seq, char *copy, bool save)
{
    const int64_t floats = shape_state_floats(&m->shape);
    const size_t bytes = (size_t)floats * sizeof(float);
    for (int l = 0; l < m->shape.layers; l++) {
        if (!m->layers[l].state_memory) continue;
        float *state = m->layers[l].state_memory + seq * floats;
        memcpy(save ? copy : (void *)state, save ? (const void *)state : copy, bytes);
        copy += bytes;
    }
}

void model_state_save(const struct model *m, int seq, void *out)
{
    copy_states(m, seq, out, true);
}

bool model_state_restore(struct model *m, int seq, const void *from, int length)
{
    if (length < 0 || length > m->cache.lengths[seq]) return false;
    copy_states(m, seq, (char *)from, false);
    kv_cache_truncate(&m->cache, seq, length);
    return true;
}

/* ---------------------------------------------------------------- the pass */

/* A row of b.qkv: inputs of the convolution (q, k, v; of Mamba-2 v, k, q), gates, and a number for each head
 * or two. The matrix of Mamba-2 computes the gates first. */
struct state_parts {
    int64_t inputs, gates, heads;
};

static struct state_parts state_parts_of(const struct model *m)
{
    const struct model_shape *s = &m->shape;
    const int64_t inner = (int64_t)s->state.heads * s->state.value_dim, channels = s->state.channels;
    const bool scan = m->hyper.arch->state == MIXER_SCAN;
    return (struct state_parts){ scan ? inner : 0, scan ? 0 : channels, channels + inner };
}

/* h -> one product for each matrix, side by side in b.qkv. Where matrices are divided, everything is
 * exchanged here, because convolution and recurrence are little work beside them. */
static void state_project(const struct pass *p, const struct layer *l, const float *h)
{
    const enum slot SLOTS[] = { SLOT_STATE_QKV,   SLOT_STATE_GATE,       SLOT_STATE_IN, SLOT_STATE_BETA,
                                SLOT_STATE_ALPHA, SLOT_STATE_BETA_ALPHA, SLOT_SHORT_IN };
    const struct model *m = p->m;
    struct matmul mm[COUNT_OF(SLOTS)];
    enum slot used[COUNT_OF(SLOTS)];
    struct {
        float *y;
        int64_t stride, rows;
    } divided[COUNT_OF(SLOTS)];
    int count = 0, parts = 0;
    int64_t at = 0;
    for (size_t i = 0; i < COUNT_OF(SLOTS); i++) {
        const struct bound *w = layer_slot(l, SLOTS[i]);
        const bool fused = m->shape.state.fused && SLOTS[i] == SLOT_STATE_IN;
        if (!w->w.data) continue;
        float *y = fused ? p->b.latent : p->b.qkv + at;
        const int64_t rows = arch_dim(ARCH_SLOTS[SLOTS[i]].rows, m->hyper.arch, &m->shape),
                      stride = fused ? m->widths.latent : m->widths.qkv;
        at += rows;
        if (model_is_part(m) && split_is_plain(SLOTS[i])) {
            divided[parts].y = y;
            divided[parts].stride = stride;
            divided[parts++].rows = rows;
        }
        if (!w->w.rows) continue;
        used[count] = SLOTS[i];
        mm[count] = pass_product(p, w, NULL, h, m->shape.embd);
        mm[count].y = y + w->from;
        mm[count++].y_stride = stride;
    }
    pass_call_observer(p, l, used, count, h, m->shape.embd);
    if (count) operator_matmul(p, OPERATOR_STATE_IN, mm, count);
    for (int i = 0; i < parts; i++) pass_exchange_rows(p, divided[i].y, divided[i].stride, divided[i].rows);
}

/* One matrix computed, for each group, its q, k, v of all its heads, and their gates: sort these. */
static void sort_fused(const struct pass *p)
{
    const struct state_shape *t = &p->m->shape.state;
    const int64_t key = t->key_dim, value = (int64_t)t->heads / t->groups * t->value_dim,
                  group = 2 * key + 2 * value;
    const struct {
        int64_t from, to, cols;
    } PARTS[] = { { .from = 0, .to = 0, .cols = key },
                  { .from = key, .to = t->groups * key, .cols = key },
                  { .from = 2 * key, .to = 2 * t->groups * key, .cols = value },
                  { .from = 2 * key + value, .to = t->channels, .cols = value } };
    for (size_t i = 0; i < COUNT_OF(PARTS); i++)
        pass_copy_heads(p, (struct strided){ p->b.latent + PARTS[i].from, p->m->widths.latent, group },
                        (struct strided){ p->b.qkv + PARTS[i].to, p->m->widths.qkv, PARTS[i].cols },
                        t->groups, PARTS[i].cols);
}

static struct recurrent_rows rows_of(const struct pass *p, const struct layer *l, int64_t offset)
{
    return (struct recurrent_rows){ .n = p->n,
                                    .seq = p->m->lists.seq,
                                    .pos = p->m->lists.pos,
                                    .state = l->state_memory + offset,
                                    .state_stride = shape_state_floats(&p->m->shape) };
}

/* y = conv(b * v) * c, where x has b, c and v. */
static void run_short_convolution(const struct pass *p, const struct layer *l, const float *x, float *y)
{
    const struct model *m = p->m;
    const int64_t embd = m->shape.embd;
    operator_convolve(p, &(struct convolution){ .rows = rows_of(p, l, 0),
                                                .taps = m->shape.state.taps,
                                                .channels = embd,
                                                .w = l->state.convolution,
                                                .x = x + 2 * embd,
                                                .before = x,
                                                .after = x + embd,
                                                .x_stride = m->widths.qkv,
                                                .y = y,
                                                .y_stride = m->widths.attn });
}

/* Numbers of the heads: those of a delta net are beta and alpha, each of all heads or alternating by group.
 */
static struct head_scalars head_scalars_of(const struct pass *p, const struct layer *l, const float *x,
                                           int nth)
{
    const struct state_shape *t = &p->m->shape.state;
    const bool by_group = layer_slot(l, SLOT_STATE_BETA_ALPHA)->w.data;
    const int run = by_group ? t->heads / t->groups : t->heads;
    return (struct head_scalars){ x + (int64_t)nth * run, run, 2 * run };
}

/* x [n][widths.qkv] -> y [n][widths.attn]; x is changed. */
static void run_recurrence(const struct pass *p, const struct layer *l, float *x, float *y)
{
    const struct model *m = p->m;
    const struct state_shape *t = &m->shape.state;
    const struct state_parts at = state_parts_of(m);
    const bool delta = m->hyper.arch->state == MIXER_DELTA;
    const int64_t keys = (int64_t)t->groups * t->key_dim, inner = (int64_t)t->heads * t->value_dim;
    float *in = x + at.inputs;
    operator_convolve(p, &(struct convolution){ .rows = rows_of(p, l, 0),
                                                .taps = t->taps,
                                                .channels = t->channels,
                                                .w = l->state.convolution,
                                                .bias = l->state.bias,
                                                .silu = true,
                                                .x = in,
                                                .x_stride = m->widths.qkv,
                                                .y = in,
                                                .y_stride = m->widths.qkv });
    struct recurrence r = { .rows = rows_of(p, l, (t->taps - 1) * t->channels),
                            .kind = delta ? RECURRENCE_DELTA : RECURRENCE_SCAN,
                            .heads = t->heads,
                            .groups = t->groups,
                            .key_dim = t->key_dim,
                            .value_dim = t->value_dim,
                            .interleaved = m->hyper.arch->state_interleaved,
                            .q = delta ? in : in + inner + keys,
                            .k = in + (delta ? keys : inner),
                            .v = delta ? in + 2 * keys : in,
                            .z = x + at.gates,
                            .x_stride = m->widths.qkv,
                            .dt = head_scalars_of(p, l, x + at.heads, delta),
                            .a = l->state.a,
                            .dt_bias = l->state.step_bias,
                            .d = l->state.d,
                            .norm = l->state.norm,
                            .eps = m->hyper.eps,
                            .y = y,
                            .y_stride = m->widths.attn };
    if (delta) r.beta = head_scalars_of(p, l, x + at.heads, 0);
    operator_recur(p, &r);
}

/* The norms of the outputs of Mamba-2, over the heads of each group. */
static void norm_groups(const struct pass *p, const struct layer *l)
{
    const struct model *m = p->m;
    const int64_t cols = arch_dim(DIM_STATE_GROUP_WIDTH, m->hyper.arch, &m->shape);
    for (int g = 0; g < m->shape.state.groups; g++) {
        const struct bound w = { .v = layer_slot(l, SLOT_STATE_GROUP_NORM)->v + g * cols };
        pass_norm_in_place(p, p->b.attn + g * cols, m->widths.attn, cols, &w);
    }
}

void pass_run_state(const struct pass *p, const struct layer *l, const float *h)
{
    struct model *m = p->m;
    const bool host = p->site == &m->sites[SITE_HOST];
    float *x = host ? p->b.qkv : m->host_rows, *y = host ? p->b.attn : m->host_out;
    state_project(p, l, h);
    if (m->shape.state.fused) sort_fused(p);
    if (!host) backend_read(p->site->backend, x, p->b.qkv, (size_t)(p->n * m->widths.qkv) * sizeof *x);
    if (m->hyper.arch->state == MIXER_CONVOLUTION)
        run_short_convolution(p, l, x, y);
    else
        run_recurrence(p, l, x, y);
    if (!host) backend_write(p->site->backend, p->b.attn, y, (size_t)(p->n * m->widths.attn) * sizeof *y);
    if (m->hyper.arch->state == MIXER_SCAN) norm_groups(p, l);
}
