/* Attention with f32 products, on any machine. A piece processes its positions in tiles of TOKENS tokens.
 * With few queries (decoding), kernels of the cache format compute from the stored rows (struct cached_rows);
 * where there are none, scores are dot products with keys decoded into the first-level cache. With many
 * queries, the decoded keys are transposed once and the small matrix product computes the scores. */
#include <math.h>
#include <string.h>

#include "kernels/attention.h"

enum {
    QUERIES = 64,
    TOKENS = ATTENTION_TOKENS,
    DOT_QUERIES_MAX = 8,    /* up to this many queries, dot products are faster than transposing the keys */
    ROW_QUERIES_MAX = 16,   /* the same of the kernels of struct cached_rows */
    STORED_QUERIES_MAX = 4, /* see reads_stored */
};

/* K or V of a layer's cache. */
struct cache_side {
    const void *cache;
    const struct format *f;
    int dim, stored; /* elements that are read, and that a stored row has */
    float *decoded;  /* scratch */
    bool values;     /* V */
};

static struct cache_side keys_of(const struct attention_run *w)
{
    const struct kv_layer *kv = w->t->job->p->kv;
    return (struct cache_side){ kv->k, kv->k_format, kv->k_dim, kv->k_dim, w->keys, false };
}

static struct cache_side values_of(const struct attention_run *w)
{
    const struct kv_layer *kv = w->t->job->p->kv;
    return (struct cache_side){ kv->v, kv->v_format, kv->v_dim, attention_v_stored(kv), w->values, true };
}

int attention_f32_queries(void)
{
    return QUERIES;
}

int64_t attention_f32_bytes(int64_t dim)
{
    return (dim * (2 * QUERIES + 3 * TOKENS) + QUERIES * TOKENS + 2 * QUERIES) * (int64_t)sizeof(float);
}

static void place_scratch(struct attention_run *w, void *scratch)
{
    const struct kv_layer *kv = w->t->job->p->kv;
    const int64_t k_dim = round_up(kv->k_dim, 16), v_dim = round_up(kv->v_dim, 16);
    float *at = scratch;
    w->q = at;
    w->o = at += QUERIES * k_dim;
    w->s = at += QUERIES * v_dim;
    w->s_stride = TOKENS;
    w->keys = at += QUERIES * TOKENS;
    w->keys_transposed = at += TOKENS * k_dim;
    w->values = at += TOKENS * k_dim;
    w->peak = at += TOKENS * v_dim;
    w->total = at + QUERIES;
}

static void decode_tile(const struct attention_piece *t, const struct cache_side *c, int from, int n)
{
    format_decode_fn *decode = t->job->b->k.format[c->f - FORMATS].decode;
    const bool apart = c->f->row_tail_bytes || c->stored != c->dim; /* something lies between the rows */
    for (int i = 0, len; i < n; i += len) {
        len = apart ? 1 : attention_stretch(t, from + i, n - i);
        decode(attention_cached(t, c->cache, c->f, c->stored, from + i), c->decoded + (int64_t)i * c->dim,
               (int64_t)len * c->dim);
    }
}

/* In formats with one scale per row, the kernels ignore that scale. This multiplies everything that belongs
 * to a token by its scale: scores by the scale of its K row, softmax weights by that of its V row. */
static void scale_tokens(const struct attention_run *w, const struct cache_side *c, int from, int n)
{
    if (!c->f->row_tail_bytes) return;
    for (int i = 0; i < n; i++) {
        const uint8_t *row = attention_cached(w->t, c->cache, c->f, c->stored, from + i);
        const float scale = format_row_scale(c->f, row, c->stored);
        for (int q = 0; q < w->t->queries; q++) w->s[q * w->s_stride + i] *= scale;
    }
}

/* Prefetch the start of the next contiguous run of a head's tokens. Runs of other heads lie between, so the
 * hardware prefetcher cannot predict where the next one begins; it follows the rest by itself. */
static void prefetch_run(const struct attention_piece *t, const struct cache_side *c, int from)
{
    enum { LINE = 64, START = 1024, SECOND_CACHE = 2 };
    if (from >= t->to) return;
    const uint8_t *at = attention_cached(t, c->cache, c->f, c->stored, from);
    for (int i = 0; i < START; i += LINE) __builtin_prefetch(at + i, 0, SECOND_CACHE);
}

/* n contiguous tokens of the cache as f32 rows, *stride elements apart: in place, or decoded. */
static const float *cached_rows(const struct attention_piece *t, const struct cache_side *c, int from, int n,
                                int64_t *stride)
{
    prefetch_run(t, c, from + n);
    *stride = c->stored;
    if (c->f == &FORMATS[FORMAT_F32])
        return (const float *)attention_cached(t, c->cache, c->f, c->stored, from);
    *stride = c->dim;
    decode_tile(t, c, from, n);
    return c->decoded;
}

/* Whether the kernels of format f read stored rows, which they convert again for every four queries. With
 * more queries it is faster to decode the rows once, unless one instruction converts a number (f16, bf16). */
static bool reads_stored(const struct attention_piece *t, const struct format *f)
{
    const bool converts_fast = f->block_bytes >= sizeof(uint16_t) * f->block_weights;
    return t->job->b->k.format[f - FORMATS].row_scores &&
           t->queries <= (converts_fast ? ROW_QUERIES_MAX : STORED_QUERIES_MAX);
}

/* Run a kernel of struct cached_rows over n tokens of K or V, on the stored rows or on decoded ones. */
static void run_rows(const struct attention_run *w, const struct cache_side *c, int from, int n)
{
    const struct attention_piece *t = w->t;
    const bool stored = reads_stored(t, c->f);
    const struct format_kernels *f = &t->job->b->k.format[stored ? c->f - FORMATS : FORMAT_F32];
    for (int i = 0, len; i < n; i += len) {
        len = attention_stretch(t, from + i, n - i);
        const int next = from + i + len;
        struct cached_rows r = { .n = len,
                                 .dim = c->dim,
                                 .queries = t->queries,
                                 .q = w->q,
                                 .s = w->s + i,
                                 .s_stride = w->s_stride,
                                 .o = w->o };
        if (stored) {
            r.rows = attention_cached(t, c->cache, c->f, c->stored, from + i);
            r.row_bytes = format_row_bytes(c->f, c->stored);
            if (next < t->to) r.next = attention_cached(t, c->cache, c->f, c->stored, next);
        } else {
            int64_t stride;
            r.rows = (const uint8_t *)cached_rows(t, c, from + i, len, &stride);
            r.row_bytes = stride * (int64_t)sizeof(float);
        }
        (c->values ? f->row_values : f->row_scores)(&r);
    }
}

static void score_by_rows(const struct attention_run *w, int from, int n)
{
    const struct cache_side k = keys_of(w);
    run_rows(w, &k, from, n);
}

static void add_values_by_rows(const struct attention_run *w, int from, int n)
{
    const struct cache_side v = values_of(w);
    run_rows(w, &v, from, n);
}

static void score_by_dots(const struct attention_run *w, int from, int n)
{
    const struct attention_piece *t = w->t;
    const struct cache_side k = keys_of(w);
    int64_t stride;
    for (int i = 0, len; i < n; i += len) {
        len = attention_stretch(t, from + i, n - i);
        const float *rows = cached_rows(t, &k, from + i, len, &stride);
        for (int q = 0; q < t->queries; q++)
            t->job->b->k.vec.dots(rows, stride, len, k.dim, w->q + (int64_t)q * k.dim,
                                  w->s + q * w->s_stride + i);
    }
}

static void score_by_tile(const struct attention_run *w, int from, int n)
{
    const struct kv_layer *kv = w->t->job->p->kv;
    const struct kernel_set *k = &w->t->job->b->k;
    const struct cache_side keys = keys_of(w);
    decode_tile(w->t, &keys, from, n);
    k->vec.transpose(w->keys, kv->k_dim, n, kv->k_dim, w->keys_transposed, TOKENS);
    /* The last columns of a narrower tile could be summed in another order than the same columns inside. */
    if (w->t->job->b->base.options.batch_invariant) n = TOKENS;
    k->tile(&(struct tile){ .m = w->t->queries,
                            .n = n,
                            .k = kv->k_dim,
                            .a = w->q,
                            .lda = kv->k_dim,
                            .b = w->keys_transposed,
                            .ldb = TOKENS,
                            .c = w->s,
                            .ldc = w->s_stride });
}

/* The online softmax: turn the scores of n tokens into weights relative to the new peak, and rescale the sums
 * so far to it. */
static void scores_to_weights(const struct attention_run *w, int from, int n)
{
    const struct attention_piece *t = w->t;
    const struct attention *p = t->job->p;
    const struct vector_kernels *v = &t->job->b->k.vec;
    for (int q = 0; q < t->queries; q++) {
        const int row = t->row + q / t->heads;
        const int lo = MAX(attention_begin(p, row) - from, 0), hi = MIN(attention_end(p, row) - from, n);
        float *s = w->s + q * w->s_stride;
        if (lo >= hi) { /* this row attends to none of these tokens */
            memset(s, 0, (size_t)n * sizeof *s);
            continue;
        }
        if (p->softcap > 0) v->softcap(s + lo, hi - lo, p->softcap);
        const float peak = fmaxf(w->peak[q], v->max(s + lo, hi - lo));
        const float old = peak == w->peak[q] ? 1 : expf(w->peak[q] - peak);
        if (old < 1) v->scale(w->o + (int64_t)q * p->kv->v_dim, p->kv->v_dim, old);
        w->total[q] = w->total[q] * old + v->exp_sum(s + lo, hi - lo, peak);
        w->peak[q] = peak;
        memset(s, 0, (size_t)lo * sizeof *s);
        memset(s + hi, 0, (size_t)(n - hi) * sizeof *s);
    }
}

static void begin_softmax(const struct attention_run *w)
{
    for (int q = 0; q < w->t->queries; q++) {
        const float sink = attention_sink(w->t, q);
        w->peak[q] = sink;
        w->total[q] = sink > -INFINITY;
    }
}

static void finish(const struct attention_run *w)
{
    const struct attention_piece *t = w->t;
    const int v_dim = t->job->p->kv->v_dim;
    for (int q = 0; q < t->queries; q++) {
        const float *o = w->o + (int64_t)q * v_dim;
        if (t->partial) {
            float *part = attention_partial_at(t, q);
            part[0] = w->peak[q];
            part[1] = w->total[q];
            memcpy(part + ATTENTION_SUM_HEAD, o, (size_t)v_dim * sizeof *o);
            continue;
        }
        float *y = attention_result(t, q);
        const float by = 1 / w->total[q]; /* > 0: every row attends at least to itself */
        for (int j = 0; j < v_dim; j++) y[j] = o[j] * by;
    }
}

static void add_values(const struct attention_run *w, int from, int n)
{
    const struct attention_piece *t = w->t;
    const struct cache_side v = values_of(w);
    int64_t stride;
    for (int i = 0, len; i < n; i += len) {
        len = attention_stretch(t, from + i, n - i);
        const float *rows = cached_rows(t, &v, from + i, len, &stride);
        t->job->b->k.tile(&(struct tile){ .m = t->queries,
                                          .n = v.dim,
                                          .k = len,
                                          .a = w->s + i,
                                          .lda = w->s_stride,
                                          .b = rows,
                                          .ldb = stride,
                                          .c = w->o,
                                          .ldc = v.dim,
                                          .add = true });
    }
}

void attention_run_begin(struct attention_run *w, const struct attention_piece *t, void *scratch)
{
    const struct attention *p = t->job->p;
    const int k_dim = p->kv->k_dim, v_dim = p->kv->v_dim;
    const bool invariant = t->job->b->base.options.batch_invariant;
    *w = (struct attention_run){ .t = t };
    place_scratch(w, scratch);
    /* Results of these kernels never depend on the number of queries, those of the others do. */
    w->by_rows = t->job->b->k.format[FORMAT_F32].row_scores && k_dim % ROW_DIMS == 0 &&
                 v_dim % ROW_DIMS == 0 && (invariant || t->queries <= ROW_QUERIES_MAX);
    w->by_dots = t->queries <= DOT_QUERIES_MAX && !invariant;
    for (int q = 0; q < t->queries; q++) {
        const float *x = attention_query(t, q);
        for (int j = 0; j < k_dim; j++) w->q[(int64_t)q * k_dim + j] = x[j] * p->scale;
    }
    memset(w->o, 0, (size_t)t->queries * (size_t)v_dim * sizeof *w->o);
}

void attention_run_scores(const struct attention_run *w, int from, int n)
{
    const struct cache_side k = keys_of(w);
    (w->by_rows ? score_by_rows : w->by_dots ? score_by_dots : score_by_tile)(w, from, n);
    scale_tokens(w, &k, from, n);
}

void attention_run_values(const struct attention_run *w, int from, int n)
{
    const struct cache_side v = values_of(w);
    scale_tokens(w, &v, from, n);
    (w->by_rows ? add_values_by_rows : add_values)(w, from, n);
}

void attention_f32_run(const struct attention_piece *t, void *scratch)
{
    struct attention_run w;
    attention_run_begin(&w, t, scratch);
    begin_softmax(&w);
    for (int from = t->from, n; from < t->to; from += n) {
        n = attention_tile(t, from);
        attention_run_scores(&w, from, n);
        scores_to_weights(&w, from, n);
        attention_run_values(&w, from, n);
    }
    finish(&w);
}
