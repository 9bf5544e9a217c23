/* Attention over a paged cache with the online softmax: no row of scores longer than one tile ever exists.
 *
 * A task is one KV head and a few query rows of one sequence: all their query heads (up to QUERIES vectors)
 * share every decoded tile of TOKENS keys and values. Few queries (decoding) dot the keys straight from the
 * stored bytes; many turn the tile once and use the small matrix product. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/backend.h"

enum {
    QUERIES = 64,
    TOKENS = 64,
    DOT_QUERIES_MAX = 8, /* up to here, dots from the stored bytes beat decoding and turning the keys */
};

struct job {
    struct backend *b;
    const struct attention *p;
    int group;        /* query heads of one KV head */
    int heads_a_task; /* <= group, <= QUERIES */
    int rows_a_task;
};

/* One task, and its memory. */
struct task {
    const struct job *job;
    int row, rows, kv_head, head, heads, queries;
    float *q, *o, *s;                   /* [queries][k_dim], [queries][v_dim], [queries][TOKENS] */
    float *keys, *keys_turned, *values; /* [TOKENS][k_dim], [k_dim][TOKENS], [TOKENS][v_dim] */
    float *peak, *total;                /* [queries]: largest score so far, sum of exp(score - peak) */
};

int64_t attention_thread_bytes(int64_t cols)
{
    const int64_t dim = round_up(MIN(cols, (int64_t)HEAD_DIM_MAX), 16);
    return (dim * (2 * QUERIES + 3 * TOKENS) + QUERIES * TOKENS + 2 * QUERIES) * (int64_t)sizeof(float);
}

static void task_place(struct task *t, int member)
{
    const struct kv_layer *kv = t->job->p->kv;
    const int64_t k_dim = round_up(kv->k_dim, 16), v_dim = round_up(kv->v_dim, 16);
    float *at = backend_thread_scratch(t->job->b, member);
    t->q = at;
    t->o = at += QUERIES * k_dim;
    t->s = at += QUERIES * v_dim;
    t->keys = at += QUERIES * TOKENS;
    t->keys_turned = at += TOKENS * k_dim;
    t->values = at += TOKENS * k_dim;
    t->peak = at += TOKENS * v_dim;
    t->total = at + QUERIES;
}

static int first_position(const struct attention *p, int row)
{
    return p->window > 0 ? MAX(0, p->pos[row] - p->window + 1) : 0;
}

/* Tokens from `from` on that lie side by side in the cache, at most `most`. */
static int stretch(const struct task *t, int from, int most)
{
    const int block_tokens = t->job->p->kv->block_tokens;
    return MIN(block_tokens - from % block_tokens, most);
}

static const uint8_t *cached(const struct task *t, const void *cache, const struct format *f, int dim,
                             int position)
{
    const struct attention *p = t->job->p;
    const int block_tokens = p->kv->block_tokens;
    const int64_t block = p->tables[p->seq[t->row]][position / block_tokens];
    const int64_t row = (block * p->kv->kv_heads + t->kv_head) * block_tokens + position % block_tokens;
    return (const uint8_t *)cache + row * format_row_bytes(f, dim);
}

static void decode_tile(const struct task *t, const void *cache, const struct format *f, int dim, int from,
                        int n, float *out)
{
    format_decode_fn *decode = t->job->b->k.format[f - FORMATS].decode;
    for (int i = 0, len; i < n; i += len) {
        len = f->row_tail_bytes ? 1 : stretch(t, from + i, n - i); /* tails lie between the rows */
        decode(cached(t, cache, f, dim, from + i), out + (int64_t)i * dim, (int64_t)len * dim);
    }
}

/* Formats with a scale for each row: decoded or dotted were the codes, so what belongs to a token is
 * multiplied by its scale - scores by K's, weights by V's. */
static void scale_tokens(const struct task *t, const void *cache, const struct format *f, int dim, int from,
                         int n)
{
    if (!f->row_tail_bytes) return;
    for (int i = 0; i < n; i++) {
        const float scale = format_row_scale(f, cached(t, cache, f, dim, from + i), dim);
        for (int q = 0; q < t->queries; q++) t->s[(int64_t)q * TOKENS + i] *= scale;
    }
}

static void score_by_dots(const struct task *t, int from, int n)
{
    const struct kv_layer *kv = t->job->p->kv;
    const struct format_kernels *f = &t->job->b->k.format[kv->k_format - FORMATS];
    struct dot d = { .row_bytes = format_row_bytes(kv->k_format, kv->k_dim),
                     .cols = kv->k_dim,
                     .x_stride = kv->k_dim,
                     .y_stride = TOKENS };
    for (int i = 0; i < n; i += d.rows) {
        d.rows = stretch(t, from + i, n - i);
        d.w = cached(t, kv->k, kv->k_format, kv->k_dim, from + i);
        for (int q = 0; q < t->queries; q += DOT_X) {
            d.n = MIN((int)DOT_X, t->queries - q);
            d.x = t->q + (int64_t)q * kv->k_dim;
            d.y = t->s + (int64_t)q * TOKENS + i;
            f->dot_f32(&d);
        }
    }
}

static void score_by_tile(const struct task *t, int from, int n)
{
    const struct kv_layer *kv = t->job->p->kv;
    const struct kernel_set *k = &t->job->b->k;
    decode_tile(t, kv->k, kv->k_format, kv->k_dim, from, n, t->keys);
    k->vec.transpose(t->keys, kv->k_dim, n, kv->k_dim, t->keys_turned, TOKENS);
    k->tile(&(struct tile){ .m = t->queries,
                            .n = n,
                            .k = kv->k_dim,
                            .a = t->q,
                            .lda = kv->k_dim,
                            .b = t->keys_turned,
                            .ldb = TOKENS,
                            .c = t->s,
                            .ldc = TOKENS });
}

/* Scores of tokens from.. to weights, and what was summed so far brought to the new peak. */
static void soften(const struct task *t, int from, int n)
{
    const struct attention *p = t->job->p;
    const struct vector_kernels *v = &t->job->b->k.vec;
    for (int q = 0; q < t->queries; q++) {
        const int row = t->row + q / t->heads;
        const int lo = MAX(first_position(p, row) - from, 0), hi = MIN(p->pos[row] + 1 - from, n);
        float *s = t->s + (int64_t)q * TOKENS;
        if (lo >= hi) { /* nothing here is this row's business */
            memset(s, 0, (size_t)n * sizeof *s);
            continue;
        }
        if (p->softcap > 0)
            for (int i = lo; i < hi; i++) s[i] = p->softcap * tanhf(s[i] / p->softcap);
        const float peak = fmaxf(t->peak[q], v->max(s + lo, hi - lo)), old = expf(t->peak[q] - peak);
        if (old < 1) v->scale(t->o + (int64_t)q * p->kv->v_dim, p->kv->v_dim, old);
        t->total[q] = t->total[q] * old + v->exp_sum(s + lo, hi - lo, peak);
        t->peak[q] = peak;
        memset(s, 0, (size_t)lo * sizeof *s);
        memset(s + hi, 0, (size_t)(n - hi) * sizeof *s);
    }
}

static void task_start(const struct task *t)
{
    const struct attention *p = t->job->p;
    const int k_dim = p->kv->k_dim;
    for (int q = 0; q < t->queries; q++) {
        const float *x = p->q + (t->row + q / t->heads) * p->q_stride +
                         (int64_t)(t->head + q % t->heads) * k_dim;
        for (int j = 0; j < k_dim; j++) t->q[(int64_t)q * k_dim + j] = x[j] * p->scale;
        t->peak[q] = -INFINITY;
        t->total[q] = 0;
    }
    memset(t->o, 0, (size_t)t->queries * (size_t)p->kv->v_dim * sizeof *t->o);
}

static void task_end(const struct task *t)
{
    const struct attention *p = t->job->p;
    const int v_dim = p->kv->v_dim;
    for (int q = 0; q < t->queries; q++) {
        float *y = p->y + (t->row + q / t->heads) * p->y_stride + (int64_t)(t->head + q % t->heads) * v_dim;
        const float by = 1 / t->total[q]; /* every row sees at least itself */
        for (int j = 0; j < v_dim; j++) y[j] = t->o[(int64_t)q * v_dim + j] * by;
    }
}

static void task_run(const struct task *t)
{
    const struct attention *p = t->job->p;
    const struct kv_layer *kv = p->kv;
    int from = INT32_MAX, last = 0;
    for (int row = t->row; row < t->row + t->rows; row++) {
        from = MIN(from, first_position(p, row));
        last = MAX(last, p->pos[row]);
    }
    task_start(t);
    for (int n; from <= last; from += n) {
        n = MIN((int)TOKENS, last + 1 - from);
        (t->queries <= DOT_QUERIES_MAX ? score_by_dots : score_by_tile)(t, from, n);
        scale_tokens(t, kv->k, kv->k_format, kv->k_dim, from, n);
        soften(t, from, n);
        scale_tokens(t, kv->v, kv->v_format, kv->v_dim, from, n);
        decode_tile(t, kv->v, kv->v_format, kv->v_dim, from, n, t->values);
        t->job->b->k.tile(&(struct tile){ .m = t->queries,
                                          .n = kv->v_dim,
                                          .k = n,
                                          .a = t->s,
                                          .lda = TOKENS,
                                          .b = t->values,
                                          .ldb = kv->v_dim,
                                          .c = t->o,
                                          .ldc = kv->v_dim,
                                          .add = true });
    }
    task_end(t);
}

/* The rows of one sequence that end before `end`, at most rows_a_task. */
static int rows_before(const struct job *job, int end)
{
    int n = 1;
    while (n < job->rows_a_task && end - n > 0 && job->p->seq[end - n - 1] == job->p->seq[end - 1]) n++;
    return n;
}

static void attention_member(void *arg, int member, int size)
{
    const struct job *job = arg;
    const struct attention *p = job->p;
    const int parts = (job->group + job->heads_a_task - 1) / job->heads_a_task;
    const int tasks = p->kv->kv_heads * parts;
    struct task t = { .job = job };
    (void)size;
    task_place(&t, member);
    int64_t first = 0, mine = threadpool_next(job->b->pool, 1);
    /* Later rows see more tokens: begin with them, so that the last tasks to be handed out are short. */
    for (int end = p->n; end > 0; end -= t.rows, first += tasks) {
        t.rows = rows_before(job, end);
        t.row = end - t.rows;
        for (; mine < first + tasks; mine = threadpool_next(job->b->pool, 1)) {
            const int part = (int)(mine - first) % parts;
            t.kv_head = (int)(mine - first) / parts;
            t.head = t.kv_head * job->group + part * job->heads_a_task;
            t.heads = MIN(job->heads_a_task, job->group - part * job->heads_a_task);
            t.queries = t.rows * t.heads;
            task_run(&t);
        }
    }
}

void backend_attention(struct backend *b, const struct attention *p)
{
    const struct kv_layer *kv = p->kv;
    struct job job = { .b = b, .p = p, .group = p->heads / kv->kv_heads };
    assert(p->heads % kv->kv_heads == 0 && kv->k_dim <= HEAD_DIM_MAX && kv->v_dim <= HEAD_DIM_MAX);
    assert(MAX(kv->k_dim, kv->v_dim) <= b->plan.cols); /* backend_reserve first */
    job.heads_a_task = MIN(job.group, (int)QUERIES);
    job.rows_a_task = QUERIES / job.heads_a_task;
    int64_t tokens = 0;
    for (int i = 0; i < p->n; i++) tokens += p->window ? MIN(p->pos[i] + 1, p->window) : p->pos[i] + 1;
    backend_run(b, tokens * p->heads * (kv->k_dim + kv->v_dim) / DOTS_AN_ELEMENT, attention_member, &job);
}
