/* Attention with exact products, on any machine: a piece walks its tokens in tiles of TOKENS. Few queries
 * (decoding) are dotted with keys decoded into the first cache; many turn them once and use the small matrix
 * product. */
#include <math.h>
#include <string.h>

#include "kernels/attention.h"

enum {
    QUERIES = 64,
    TOKENS = 64,
    DOT_QUERIES_MAX = 8, /* up to here, dots beat turning the keys */
};

/* A piece on its way, and its memory. */
struct walk {
    const struct attention_piece *t;
    float *q, *o, *s;                   /* [queries][k_dim], [queries][v_dim], [queries][TOKENS] */
    float *keys, *keys_turned, *values; /* [TOKENS][k_dim], [k_dim][TOKENS], [TOKENS][v_dim] */
    float *peak, *total;                /* [queries]: largest score so far, sum of exp(score - peak) */
};

int attention_f32_queries(void)
{
    return QUERIES;
}

int64_t attention_f32_bytes(int64_t dim)
{
    return (dim * (2 * QUERIES + 3 * TOKENS) + QUERIES * TOKENS + 2 * QUERIES) * (int64_t)sizeof(float);
}

static void place(struct walk *w, void *scratch)
{
    const struct kv_layer *kv = w->t->job->p->kv;
    const int64_t k_dim = round_up(kv->k_dim, 16), v_dim = round_up(kv->v_dim, 16);
    float *at = scratch;
    w->q = at;
    w->o = at += QUERIES * k_dim;
    w->s = at += QUERIES * v_dim;
    w->keys = at += QUERIES * TOKENS;
    w->keys_turned = at += TOKENS * k_dim;
    w->values = at += TOKENS * k_dim;
    w->peak = at += TOKENS * v_dim;
    w->total = at + QUERIES;
}

static void decode_tile(const struct attention_piece *t, const void *cache, const struct format *f, int dim,
                        int from, int n, float *out)
{
    format_decode_fn *decode = t->job->b->k.format[f - FORMATS].decode;
    for (int i = 0, len; i < n; i += len) {
        len = f->row_tail_bytes ? 1 : attention_stretch(t, from + i, n - i); /* tails lie between the rows */
        decode(attention_cached(t, cache, f, dim, from + i), out + (int64_t)i * dim, (int64_t)len * dim);
    }
}

/* Formats with a scale for each row: decoded or dotted were the codes, so what belongs to a token is
 * multiplied by its scale - scores by K's, weights by V's. */
static void scale_tokens(const struct walk *w, const void *cache, const struct format *f, int dim, int from,
                         int n)
{
    if (!f->row_tail_bytes) return;
    for (int i = 0; i < n; i++) {
        const float scale = format_row_scale(f, attention_cached(w->t, cache, f, dim, from + i), dim);
        for (int q = 0; q < w->t->queries; q++) w->s[(int64_t)q * TOKENS + i] *= scale;
    }
}

/* Runs of one head's tokens lie between those of other heads: where the next one begins no hardware can know,
 * how it goes on it sees by itself. */
static void prefetch_run(const struct attention_piece *t, const void *cache, const struct format *f, int dim,
                         int from)
{
    enum { LINE = 64, START = 1024, SECOND_CACHE = 2 };
    if (from >= t->to) return;
    const uint8_t *at = attention_cached(t, cache, f, dim, from);
    for (int i = 0; i < START; i += LINE) __builtin_prefetch(at + i, 0, SECOND_CACHE);
}

/* Tokens of one run of the cache as f32 rows: where they lie, or decoded. */
static const float *rows_of(const struct attention_piece *t, const void *cache, const struct format *f,
                            int dim, int from, int n, float *decoded)
{
    prefetch_run(t, cache, f, dim, from + n);
    if (f == &FORMATS[FORMAT_F32]) return (const float *)attention_cached(t, cache, f, dim, from);
    decode_tile(t, cache, f, dim, from, n, decoded);
    return decoded;
}

static void score_by_dots(const struct walk *w, int from, int n)
{
    const struct attention_piece *t = w->t;
    const struct kv_layer *kv = t->job->p->kv;
    for (int i = 0, len; i < n; i += len) {
        len = attention_stretch(t, from + i, n - i);
        const float *rows = rows_of(t, kv->k, kv->k_format, kv->k_dim, from + i, len, w->keys);
        for (int q = 0; q < t->queries; q++)
            t->job->b->k.vec.dots(rows, kv->k_dim, len, kv->k_dim, w->q + (int64_t)q * kv->k_dim,
                                  w->s + (int64_t)q * TOKENS + i);
    }
}

static void score_by_tile(const struct walk *w, int from, int n)
{
    const struct kv_layer *kv = w->t->job->p->kv;
    const struct kernel_set *k = &w->t->job->b->k;
    decode_tile(w->t, kv->k, kv->k_format, kv->k_dim, from, n, w->keys);
    k->vec.transpose(w->keys, kv->k_dim, n, kv->k_dim, w->keys_turned, TOKENS);
    k->tile(&(struct tile){ .m = w->t->queries,
                            .n = n,
                            .k = kv->k_dim,
                            .a = w->q,
                            .lda = kv->k_dim,
                            .b = w->keys_turned,
                            .ldb = TOKENS,
                            .c = w->s,
                            .ldc = TOKENS });
}

/* Scores of tokens from.. to weights, and what was summed so far brought to the new peak. */
static void soften(const struct walk *w, int from, int n)
{
    const struct attention_piece *t = w->t;
    const struct attention *p = t->job->p;
    const struct vector_kernels *v = &t->job->b->k.vec;
    for (int q = 0; q < t->queries; q++) {
        const int row = t->row + q / t->heads;
        const int lo = MAX(attention_first_position(p, row) - from, 0), hi = MIN(p->pos[row] + 1 - from, n);
        float *s = w->s + (int64_t)q * TOKENS;
        if (lo >= hi) { /* nothing here is this row's business */
            memset(s, 0, (size_t)n * sizeof *s);
            continue;
        }
        if (p->softcap > 0) v->softcap(s + lo, hi - lo, p->softcap);
        const float peak = fmaxf(w->peak[q], v->max(s + lo, hi - lo)), old = expf(w->peak[q] - peak);
        if (old < 1) v->scale(w->o + (int64_t)q * p->kv->v_dim, p->kv->v_dim, old);
        w->total[q] = w->total[q] * old + v->exp_sum(s + lo, hi - lo, peak);
        w->peak[q] = peak;
        memset(s, 0, (size_t)lo * sizeof *s);
        memset(s + hi, 0, (size_t)(n - hi) * sizeof *s);
    }
}

static void start(const struct walk *w)
{
    const struct attention *p = w->t->job->p;
    const int k_dim = p->kv->k_dim;
    for (int q = 0; q < w->t->queries; q++) {
        const float *x = attention_query(w->t, q);
        for (int j = 0; j < k_dim; j++) w->q[(int64_t)q * k_dim + j] = x[j] * p->scale;
        w->peak[q] = -INFINITY;
        w->total[q] = 0;
    }
    memset(w->o, 0, (size_t)w->t->queries * (size_t)p->kv->v_dim * sizeof *w->o);
}

static void finish(const struct walk *w)
{
    const struct attention_piece *t = w->t;
    const int v_dim = t->job->p->kv->v_dim;
    for (int q = 0; q < t->queries; q++) {
        const float *o = w->o + (int64_t)q * v_dim;
        if (t->partial) {
            float *part = attention_partial_at(t, q);
            part[0] = w->peak[q];
            part[1] = w->total[q];
            memcpy(part + PARTIAL_HEAD, o, (size_t)v_dim * sizeof *o);
            continue;
        }
        float *y = attention_result(t, q);
        const float by = 1 / w->total[q]; /* every row sees at least itself */
        for (int j = 0; j < v_dim; j++) y[j] = o[j] * by;
    }
}

static void add_values(const struct walk *w, int from, int n)
{
    const struct attention_piece *t = w->t;
    const struct kv_layer *kv = t->job->p->kv;
    for (int i = 0, len; i < n; i += len) {
        len = attention_stretch(t, from + i, n - i);
        const float *rows = rows_of(t, kv->v, kv->v_format, kv->v_dim, from + i, len, w->values);
        t->job->b->k.tile(&(struct tile){ .m = t->queries,
                                          .n = kv->v_dim,
                                          .k = len,
                                          .a = w->s + i,
                                          .lda = TOKENS,
                                          .b = rows,
                                          .ldb = kv->v_dim,
                                          .c = w->o,
                                          .ldc = kv->v_dim,
                                          .add = true });
    }
}

void attention_f32_run(const struct attention_piece *t, void *scratch)
{
    const struct kv_layer *kv = t->job->p->kv;
    struct walk w = { .t = t };
    place(&w, scratch);
    start(&w);
    for (int from = t->from, n; from < t->to; from += n) {
        n = MIN((int)TOKENS, t->to - from);
        (t->queries <= DOT_QUERIES_MAX ? score_by_dots : score_by_tile)(&w, from, n);
        scale_tokens(&w, kv->k, kv->k_format, kv->k_dim, from, n);
        soften(&w, from, n);
        scale_tokens(&w, kv->v, kv->v_format, kv->v_dim, from, n);
        add_values(&w, from, n);
    }
    finish(&w);
}
