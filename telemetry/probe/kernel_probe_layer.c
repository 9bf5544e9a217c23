/* telemetry/probe/kernel_probe_layer.c - times attention, and everything else in a layer besides products. */
#include "telemetry/probe/kernel_probe.h"

#include <stdlib.h>
#include <string.h>

#include "telemetry/probe/probe.h"
#include "telemetry/probe/stopwatch.h"

enum { KV_BLOCK = 32, DEPTH = 1024 }; /* tokens of a cache block; tokens that one row attends to */
static const int64_t FAR_BYTES = INT64_C(128) << 20; /* of K and V: more than the caches hold */

/* A layer with a KV cache, and the operations on it that are timed. */
struct layer {
    struct backend *backend;
    struct kv_layer kv;
    struct attention a;
    struct norm norm;
    struct rope rope;
    struct kv_store store;
    int32_t *table, pos[PROBE_ROWS], seq[PROBE_ROWS], slots[PROBE_ROWS]; /* table: [kv.blocks] */
    const int32_t *tables[1];
    float freq[KERNEL_HEAD_DIM / 2];
};

static void layer_attend(void *arg)
{
    struct layer *l = arg;
    backend_attention(l->backend, &l->a);
}

/* dim: elements of a head. bytes: the least size of K and V together. False: the format does not allow this
 * head size, or out of memory. Call layer_close if l->backend is set, in either case. */
static bool layer_open(struct layer *l, struct bench *b, struct backend *backend, const struct format *f,
                       int kv_heads, int dim, int64_t bytes)
{
    memset(l, 0, sizeof *l);
    if (dim % f->block_weights || !f->encode || !f->decode) return false;
    const int64_t block_bytes = KV_BLOCK * kv_heads * format_row_bytes(f, dim); /* of K, and of V */
    l->backend = backend;
    l->kv = (struct kv_layer){ .k_format = f,
                               .v_format = f,
                               .kv_heads = kv_heads,
                               .k_dim = dim,
                               .v_dim = dim,
                               .block_tokens = KV_BLOCK,
                               .blocks = (int)MAX((DEPTH + PROBE_ROWS) / KV_BLOCK + 1,
                                                  bytes / 2 / block_bytes) };
    l->kv.k = backend_alloc(backend, (size_t)(l->kv.blocks * block_bytes));
    l->kv.v = backend_alloc(backend, (size_t)(l->kv.blocks * block_bytes));
    l->table = calloc((size_t)l->kv.blocks, sizeof *l->table);
    for (int i = 0; l->table && i < l->kv.blocks; i++) l->table[i] = i;
    for (int i = 0; i < PROBE_ROWS; i++) l->pos[i] = l->slots[i] = i;
    l->tables[0] = l->table;
    l->a = (struct attention){ .kv = &l->kv,
                               .q = b->x,
                               .q_stride = PROBE_WIDE,
                               .heads = KERNEL_HEADS,
                               .pos = l->pos,
                               .seq = l->seq,
                               .tables = l->tables,
                               .scale = 0.125f,
                               .y = b->y,
                               .y_stride = PROBE_WIDE };
    return l->kv.k && l->kv.v && l->table;
}

static void layer_close(struct layer *l)
{
    backend_free(l->backend, l->kv.k);
    backend_free(l->backend, l->kv.v);
    free(l->table);
}

/* Seconds per token and element of all heads of a row that attends to DEPTH tokens, less those of a row that
 * attends to an eighth of them: the difference removes the cost of the call. */
static double layer_attend_one_s(struct bench *b, struct layer *l, int t)
{
    double s[2];
    l->a.n = 1;
    for (int i = 0; i < 2; i++) {
        l->pos[0] = (i ? DEPTH / 8 : DEPTH) - 1;
        s[i] = stopwatch_time_compute(b->stopwatch[t], l->backend, layer_attend, l, 1);
    }
    l->pos[0] = 0;
    return (s[0] - s[1]) / (DEPTH - DEPTH / 8) / (KERNEL_HEADS * l->kv.k_dim);
}

/* Seconds per pair of row and token, and element, of causal attention among PROBE_ROWS rows. */
static double layer_attend_many_s(struct bench *b, struct layer *l, int t)
{
    const double pairs = 0.5 * PROBE_ROWS * (PROBE_ROWS + 1);
    l->a.n = PROBE_ROWS;
    return stopwatch_time_compute(b->stopwatch[t], l->backend, layer_attend, l,
                                  KERNEL_LOAD_SENSITIVITY_ATTENTION) /
           pairs / (KERNEL_HEADS * l->kv.k_dim);
}

void probe_attention(struct bench *b, struct backend *backend, int f, enum kernel_variant v, int t)
{
    /* the weight format whose kernels the variant selects */
    static const int LIKE[KERNEL_VARIANTS] = { FORMAT_Q4_0, FORMAT_F32, FORMAT_F16, FORMAT_Q4_0,
                                               FORMAT_Q4_0 };
    struct kernel_times *k = b->out;
    const bool usual = v == KERNEL_VARIANT_AUTO;
    const struct {
        int kv_heads, dim;
        float *one, *many; /* results; NULL: not needed */
    } SHAPES[PROBE_ATTENTIONS] = {
        { .kv_heads = KERNEL_KV_HEADS,
          .dim = KERNEL_HEAD_DIM,
          .one = usual ? &k->attend_one[f][t] : NULL,
          .many = &k->attend_many[f][v][t] },
        { .kv_heads = KERNEL_KV_HEADS,
          .dim = kernel_narrow_dim(&FORMATS[f]),
          .one = &k->narrow_one[f][t],
          .many = &k->narrow_many[f][t] },
        { .kv_heads = KERNEL_HEADS, .dim = KERNEL_HEAD_DIM, .one = &k->apart_one[f][t] },
    };
    for (int i = 0; i < (usual ? PROBE_ATTENTIONS : 1); i++) {
        struct layer l;
        if (layer_open(&l, b, backend, &FORMATS[f], SHAPES[i].kv_heads, SHAPES[i].dim, 0)) {
            l.a.weight_format = &FORMATS[LIKE[v]];
            if (SHAPES[i].many) keep_least(SHAPES[i].many, layer_attend_many_s(b, &l, t));
            /* twice, because most cache formats are timed in one pass only */
            for (int n = 0; n < 2 && SHAPES[i].one; n++)
                keep_median(SHAPES[i].one, &b->attend[f][i][t], layer_attend_one_s(b, &l, t));
        }
        if (l.backend) layer_close(&l);
    }
}

/* One row after the other, each with tokens that no row before it used, so that none is in a CPU cache. In a
 * model the same happens because a layer's weights displace the cache of the layer before. */
static void layer_attend_far(void *arg)
{
    struct layer *l = arg;
    for (int first = 0; first + DEPTH / KV_BLOCK <= l->kv.blocks; first += DEPTH / KV_BLOCK) {
        l->tables[0] = l->table + first;
        layer_attend(l);
    }
}

void probe_attention_far(struct bench *b, struct backend *backend, int f, int t)
{
    struct layer l;
    if (layer_open(&l, b, backend, &FORMATS[f], KERNEL_KV_HEADS, KERNEL_HEAD_DIM, FAR_BYTES)) {
        const double tokens = (double)(l.kv.blocks / (DEPTH / KV_BLOCK)) * DEPTH;
        l.a.n = 1;
        l.pos[0] = DEPTH - 1;
        stopwatch_time_memory(b->stopwatch[t], backend, &b->attend_far[f][t], layer_attend_far, &l,
                              tokens * (KERNEL_HEADS * KERNEL_HEAD_DIM));
    }
    if (l.backend) layer_close(&l);
}

/* What a layer does besides products, with attention to one token. */
static void layer_glue(void *arg)
{
    struct layer *l = arg;
    backend_norm(l->backend, &l->norm);
    backend_rope(l->backend, &l->rope);
    backend_rope(l->backend, &l->rope);
    backend_kv_store(l->backend, &l->store);
    backend_attention(l->backend, &l->a);
    backend_norm(l->backend, &l->norm);
}

void probe_glue(struct bench *b, struct backend *backend, int t)
{
    struct layer l;
    double s[2] = { NAN, NAN };
    const int rows[2] = { 1, 64 };
    if (layer_open(&l, b, backend, &FORMATS[FORMAT_F16], KERNEL_KV_HEADS, KERNEL_HEAD_DIM, 0)) {
        for (int i = 0; i < 2; i++) {
            const int n = rows[i];
            for (int k = 0; k < n; k++) l.pos[k] = 0;
            l.norm = (struct norm){ .kind = NORM_RMS,
                                    .x = b->x,
                                    .x_stride = PROBE_WIDE,
                                    .n = n,
                                    .cols = PROBE_WIDE,
                                    .w = b->normal_row,
                                    .eps = 1e-5f,
                                    .y = b->y,
                                    .y_stride = PROBE_WIDE };
            l.rope = (struct rope){ .x = b->y,
                                    .x_stride = PROBE_WIDE,
                                    .n = n,
                                    .heads = KERNEL_HEADS / 2,
                                    .head_dim = KERNEL_HEAD_DIM,
                                    .rot_dims = KERNEL_HEAD_DIM,
                                    .freq = l.freq,
                                    .magnitude = 1,
                                    .pos = l.pos };
            l.store = (struct kv_store){ .kv = &l.kv,
                                         .k = b->x,
                                         .v = b->x,
                                         .k_stride = PROBE_WIDE,
                                         .v_stride = PROBE_WIDE,
                                         .n = n,
                                         .slots = l.slots };
            l.a.n = n;
            s[i] = stopwatch_time_compute(b->stopwatch[t], backend, layer_glue, &l, 1);
        }
        const double per = (s[1] - s[0]) / (rows[1] - rows[0]);
        if (time_is_valid(per)) keep_median(&b->out->glue_element[t], &b->glue_element[t], per / PROBE_WIDE);
        if (time_is_valid(s[0]))
            keep_median(&b->out->glue[t], &b->glue[t],
                        fmax(s[0] - (time_is_valid(per) ? per : 0), 0.05 * s[0]));
    }
    if (l.backend) layer_close(&l);
}
