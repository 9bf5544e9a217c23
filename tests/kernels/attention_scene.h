/* tests/kernels/attention_scene.h - batches for attention tests on every device: random K, V and queries, the
 * cache layout, and the expected result in binary64. */
#ifndef QDYNO_TESTS_ATTENTION_SCENE_H
#define QDYNO_TESTS_ATTENTION_SCENE_H

#include "tests/kernels/numbers.h"

struct scene {
    enum format_id k, v;
    int heads, kv_heads, k_dim, v_dim, block_tokens;
    int past, n; /* per sequence: tokens already in the cache, and rows of the batch */
    int sequences, window;
    float softcap;
    int chunk;
    bool sinks;
    bool v_in_k; /* the values are the first v_dim elements of the keys; v is k's format */
};

struct stage {
    const struct scene *s;
    struct kv_layer kv;      /* without memory */
    int total, rows, blocks; /* tokens of a sequence, rows of the batch, blocks of a sequence */
    int tokens;              /* of all sequences */
    float *k, *v, *q, *y;    /* [sequence][total][...] */
    float *sinks;            /* [heads]; unused without s->sinks */
    int32_t *pos, *seq, *slots, **tables;
};

static inline void stage_make(struct stage *t, const struct scene *s, struct rng *r)
{
    *t = (struct stage){ .s = s, .total = s->past + s->n, .rows = s->n * s->sequences };
    t->blocks = (t->total + s->block_tokens - 1) / s->block_tokens;
    t->tokens = t->total * s->sequences;
    const int all = t->blocks * s->sequences + 1; /* one block is unused */
    t->kv = (struct kv_layer){ .k_format = &FORMATS[s->k],
                               .v_format = &FORMATS[s->v],
                               .kv_heads = s->kv_heads,
                               .k_dim = s->k_dim,
                               .v_dim = s->v_dim,
                               .v_in_k = s->v_in_k,
                               .block_tokens = s->block_tokens,
                               .blocks = all };
    const size_t tokens = (size_t)t->tokens;
    t->k = malloc(tokens * (size_t)(s->kv_heads * s->k_dim) * sizeof(float));
    t->v = malloc(tokens * (size_t)(s->kv_heads * s->v_dim) * sizeof(float));
    t->q = malloc((size_t)(t->rows * s->heads * s->k_dim) * sizeof(float));
    t->y = malloc((size_t)(t->rows * s->heads * s->v_dim) * sizeof(float));
    t->sinks = malloc((size_t)s->heads * sizeof(float));
    t->pos = malloc((size_t)t->rows * sizeof *t->pos);
    t->seq = malloc((size_t)t->rows * sizeof *t->seq);
    t->slots = malloc(tokens * sizeof *t->slots);
    t->tables = malloc((size_t)s->sequences * sizeof *t->tables);
    fill_gauss(r, t->k, (int64_t)tokens * s->kv_heads * s->k_dim, 1);
    fill_gauss(r, t->v, (int64_t)tokens * s->kv_heads * s->v_dim, 1);
    fill_gauss(r, t->q, (int64_t)t->rows * s->heads * s->k_dim, 2);
    fill_gauss(r, t->sinks, s->heads, 3); /* after the others, whose numbers stay as they were */
    for (int q = 0; q < s->sequences; q++) {
        t->tables[q] = malloc((size_t)t->blocks * sizeof **t->tables);
        for (int j = 0; j < t->blocks; j++) /* descending and interleaved; block 0 is unused */
            t->tables[q][j] = 1 + (t->blocks - 1 - j) * s->sequences + q;
        for (int p = 0; p < t->total; p++)
            t->slots[q * t->total + p] = t->tables[q][p / s->block_tokens] * s->block_tokens +
                                         p % s->block_tokens;
        for (int i = 0; i < s->n; i++) {
            t->pos[q * s->n + i] = s->past + i;
            t->seq[q * s->n + i] = q;
        }
    }
}

/* Bytes of the cache's keys, values. */
static inline size_t stage_k_bytes(const struct stage *t)
{
    const int64_t rows = (int64_t)t->kv.blocks * t->kv.block_tokens * t->kv.kv_heads;
    return (size_t)(rows * format_row_bytes(t->kv.k_format, t->kv.k_dim));
}
static inline size_t stage_v_bytes(const struct stage *t)
{
    return (size_t)kv_layer_bytes(&t->kv) - stage_k_bytes(t);
}

/* Round keys and values to the cache's formats (encode and decode), and copy values that are a part of keys.
 */
static inline void stage_round(struct stage *t)
{
    uint8_t bytes[4096];
    for (size_t i = 0; i < (size_t)t->tokens * (size_t)t->s->kv_heads; i++) {
        t->kv.k_format->encode(t->k + i * (size_t)t->s->k_dim, bytes, t->s->k_dim);
        t->kv.k_format->decode(bytes, t->k + i * (size_t)t->s->k_dim, t->s->k_dim);
        if (t->s->v_in_k) {
            memcpy(t->v + i * (size_t)t->s->v_dim, t->k + i * (size_t)t->s->k_dim,
                   (size_t)t->s->v_dim * sizeof *t->v);
            continue;
        }
        t->kv.v_format->encode(t->v + i * (size_t)t->s->v_dim, bytes, t->s->v_dim);
        t->kv.v_format->decode(bytes, t->v + i * (size_t)t->s->v_dim, t->s->v_dim);
    }
}

/* Make the cache contiguous: a block for each sequence, and no tables. Before it has memory. */
static inline void stage_make_contiguous(struct stage *t)
{
    for (int q = 0; q < t->s->sequences; q++) free(t->tables[q]);
    free(t->tables);
    t->tables = NULL;
    t->kv.blocks = t->s->sequences;
    t->kv.block_tokens = t->blocks * t->s->block_tokens;
    for (int i = 0; i < t->tokens; i++) t->slots[i] = i / t->total * t->kv.block_tokens + i % t->total;
}

/* The stage as an operation; kv, q and y are the device's, and so must sinks be. */
static inline struct attention stage_attention(const struct stage *t, const float *q, float *y)
{
    return (struct attention){ .kv = &t->kv,
                               .q = q,
                               .q_stride = t->s->heads * t->s->k_dim,
                               .n = t->rows,
                               .heads = t->s->heads,
                               .pos = t->pos,
                               .seq = t->seq,
                               .tables = (const int32_t *const *)t->tables,
                               .scale = 1 / sqrtf((float)t->s->k_dim),
                               .softcap = t->s->softcap,
                               .window = t->s->window,
                               .chunk = t->s->chunk,
                               .y = y,
                               .y_stride = t->s->heads * t->s->v_dim };
}

/* One head of one row, by the definition of softmax attention, in binary64. */
static inline void stage_naive(const struct stage *t, int row, int head, double *out)
{
    const struct scene *s = t->s;
    const int kv_head = head / (s->heads / s->kv_heads), last = t->pos[row];
    const int chunk = s->chunk ? last - last % s->chunk : 0,
              from = s->window ? MAX(chunk, last - s->window + 1) : chunk;
    const float *q = t->q + ((int64_t)row * s->heads + head) * s->k_dim;
    const double scale = 1 / sqrtf((float)s->k_dim);
    static double score[4096]; /* by position */
    double peak = -INFINITY, sum = 0;
    for (int d = 0; d < s->v_dim; d++) out[d] = 0;
    for (int p = from; p <= last; p++) {
        const float *k = t->k + (((int64_t)t->seq[row] * t->total + p) * s->kv_heads + kv_head) * s->k_dim;
        double dot = 0;
        for (int d = 0; d < s->k_dim; d++) dot += (double)q[d] * k[d];
        score[p] = dot * scale;
        if (s->softcap > 0) score[p] = s->softcap * tanh(score[p] / s->softcap);
        peak = fmax(peak, score[p]);
    }
    if (s->sinks) peak = fmax(peak, t->sinks[head]);
    if (s->sinks) sum = exp(t->sinks[head] - peak);
    for (int p = from; p <= last; p++) sum += score[p] = exp(score[p] - peak);
    for (int p = from; p <= last; p++) {
        const float *v = t->v + (((int64_t)t->seq[row] * t->total + p) * s->kv_heads + kv_head) * s->v_dim;
        for (int d = 0; d < s->v_dim; d++) out[d] += score[p] / sum * v[d];
    }
}

/* Compare t->y with binary64: no error above `limit`, and an NMSE of at most max_nmse. */
static inline void stage_check(const struct stage *t, const char *what, double limit, double max_nmse)
{
    const struct scene *s = t->s;
    double error = 0, power = 0;
    CHECK_LE(t->total, 4096);
    CHECK_LE(s->v_dim, 1024);
    for (int row = 0; row < t->rows; row++) {
        for (int h = 0; h < s->heads; h++) {
            double want[1024];
            stage_naive(t, row, h, want);
            for (int d = 0; d < s->v_dim; d++) {
                const double got = t->y[((int64_t)row * s->heads + h) * s->v_dim + d];
                power += want[d] * want[d];
                error += pow(got - want[d], 2);
                if (!(fabs(got - want[d]) <= limit))
                    fail_msg("%s row %d head %d dim %d: %.9g, want %.9g", what, row, h, d, got, want[d]);
            }
        }
    }
    if (!(error / power <= max_nmse)) fail_msg("%s: NMSE %g", what, error / power);
}

static inline void stage_free(struct stage *t)
{
    for (int q = 0; q < t->s->sequences && t->tables; q++) free(t->tables[q]);
    free(t->tables), free(t->slots), free(t->seq), free(t->pos), free(t->y), free(t->q), free(t->v),
        free(t->k), free(t->sinks);
}

#endif
