/* Attention over a paged KV cache. The online softmax keeps scores of one tile of tokens at a time.
 *
 * A batch is divided into pieces: one KV head and some rows of one sequence (all their query heads share each
 * decoded key and value). When that yields fewer pieces than the threads can use, the positions are divided
 * into stretches, too. Threads take pieces dynamically, the last rows first, because they attend to the most
 * positions. Pieces that cover only a part of the positions write partial sums, which are merged after a
 * barrier. Source of the partial softmax: Flash-Decoding (split-KV).
 *
 * With batch_invariant, the result of a row is defined as the merged partial sums of its positions between
 * multiples of INVARIANT_TOKENS, in ascending order. A piece with all positions merges them one after the
 * other; or they are pieces of their own, on several threads. Both compute the same bits. */
#include "kernels/attention.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum {
    TILE_QUERIES_MIN = 8, /* fewer query vectors leave most of a tile empty: use f32 */
    SPLIT_QUERIES =
        64, /* pieces with more query vectors are not split by positions: partial sums cost memory */
    SPLIT_TOKENS = 256,        /* shortest stretch of positions: shorter ones do not pay for the merge */
    PIECES_PER_THREAD = 4,     /* wanted number of pieces, so that the last ones are short */
    PARTIALS_PER_THREAD = 256, /* limit of partial results (vectors) */
    INVARIANT_TOKENS = SHARE_TOKENS,      /* as long as possible, yet a few pieces at usual depths */
    INVARIANT_PARTIALS_PER_THREAD = 1024, /* the limit with INVARIANT_TOKENS, which cannot grow */
};

static int64_t head_dim_padded(int head_dim)
{
    return round_up(head_dim, 32);
}

int64_t attention_thread_bytes(const struct kernel_set *k, const struct backend_options *o, int head_dim)
{
    int64_t f32 = attention_f32_bytes(head_dim_padded(head_dim));
    if (o->batch_invariant) /* run_in_order */
        f32 += SPLIT_QUERIES * (ATTENTION_SUM_HEAD + head_dim_padded(head_dim)) * (int64_t)sizeof(float);
    return k->attend.attend ? MAX(f32, attention_tiles_bytes(head_dim_padded(head_dim))) : f32;
}

static int64_t partials_limit(const struct backend_options *o, int threads)
{
    return (int64_t)threads * (o->batch_invariant ? INVARIANT_PARTIALS_PER_THREAD : PARTIALS_PER_THREAD);
}

int64_t attention_shared_bytes(const struct backend_options *o, const struct backend_work *w, int head_dim)
{
    if (o->attention == ATTENTION_PLAIN)
        return w->rows * w->heads * attention_plain_stride(w->context) * (int64_t)sizeof(float);
    return partials_limit(o, o->threads) * (ATTENTION_SUM_HEAD + head_dim_padded(head_dim)) *
           (int64_t)sizeof(float);
}

/* ---------------------------------------------------------------- dividing the work */

/* Rows of one sequence that form pieces together. Their positions [from, to) are divided into `stretches` of
 * job->chunk positions from `base` <= from on. */
struct row_block {
    int row, rows, from, to, stretches;
    int64_t base;
};

/* The rows of one sequence that end before `end`, at most rows_per_task. */
static struct row_block block_before(const struct attention_job *job, int end)
{
    const struct attention *p = job->p;
    struct row_block r = { .row = end - 1, .rows = 1, .from = INT32_MAX };
    while (r.rows < job->rows_per_task && r.row > 0 && p->seq[r.row - 1] == p->seq[end - 1])
        r.row--, r.rows++;
    for (int row = r.row; row < end; row++) {
        r.from = MIN(r.from, attention_begin(p, row));
        r.to = MAX(r.to, attention_end(p, row));
    }
    const bool share = p->share, may = share || r.rows * job->heads_per_task <= SPLIT_QUERIES;
    r.base = job->in_order || share ? r.from / job->chunk * job->chunk : r.from;
    r.stretches = may ? (int)((r.to - r.base + job->chunk - 1) / job->chunk) : 1;
    return r;
}

/* The number of partial results (vectors) when positions are divided into stretches of job->chunk tokens. */
static int64_t count_partials(const struct attention_job *job)
{
    int64_t count = 0;
    for (int end = job->p->n; end > 0;) {
        const struct row_block r = block_before(job, end);
        const int64_t vectors = (int64_t)r.rows * job->heads_per_task * job->parts * job->p->kv->kv_heads;
        if (r.stretches > 1) count += r.stretches * vectors;
        end = r.row;
    }
    return count;
}

static void choose_chunk(struct attention_job *job, int threads)
{
    const int64_t most = partials_limit(&job->b->base.options, threads);
    int64_t tokens = 0, pieces = 0;
    job->chunk = job->p->share ? SHARE_TOKENS : INT32_MAX; /* do not divide positions */
    if (job->p->share) return;                             /* each piece writes its own part of the result */
    if (threads == 1 || job->plain) return;
    for (int end = job->p->n; end > 0; pieces++) {
        const struct row_block r = block_before(job, end);
        tokens += r.to - r.from;
        end = r.row;
    }
    tokens *= job->p->kv->kv_heads * job->parts;
    pieces *= job->p->kv->kv_heads * job->parts;
    if (job->in_order) {
        job->chunk = INVARIANT_TOKENS;
        const int64_t count = count_partials(job);
        if (pieces >= (int64_t)threads * PIECES_PER_THREAD || !count || count > most) job->chunk = INT32_MAX;
        return;
    }
    const int64_t fair = (tokens + threads * PIECES_PER_THREAD - 1) / (threads * PIECES_PER_THREAD);
    job->chunk = MAX(round_up(fair, SPLIT_TOKENS), (int64_t)SPLIT_TOKENS);
    int64_t count;
    while ((count = count_partials(job)) > most) job->chunk *= 2;
    if (count == 0) job->chunk = INT32_MAX;
}

static void choose_pieces(struct attention_job *job, int threads)
{
    const struct attention *p = job->p;
    const int most = job->tiles ? attention_tiles_queries(MAX(p->kv->k_dim, p->kv->v_dim))
                                : attention_f32_queries();
    job->heads_per_task = MIN(job->group, most);
    job->parts = (job->group + job->heads_per_task - 1) / job->heads_per_task;
    job->rows_per_task = most / job->heads_per_task;
    if (job->tiles) { /* many rows per piece share decoded keys, but every thread needs enough pieces */
        const int tasks = p->kv->kv_heads * job->parts;
        const int blocks = (threads * PIECES_PER_THREAD + tasks - 1) / tasks;
        const int fair = (p->n + blocks - 1) / blocks, least = (SPLIT_QUERIES - 1) / job->heads_per_task + 1;
        job->rows_per_task = MIN(job->rows_per_task, MAX(fair, least));
    }
    choose_chunk(job, threads);
}

/* ---------------------------------------------------------------- merging */

void attention_sum_add(struct attention_sum *sum, float *y, struct attention_sum share, const float *o,
                       int v_dim)
{
    if (share.total == 0) return; /* none of these positions is visible to the row */
    if (sum->total == 0) {
        *sum = share;
        memcpy(y, o, (size_t)v_dim * sizeof *y);
        return;
    }
    const float most = fmaxf(sum->peak, share.peak), old = expf(sum->peak - most),
                by = expf(share.peak - most);
    sum->peak = most;
    sum->total = sum->total * old + share.total * by;
    for (int j = 0; j < v_dim; j++) y[j] = y[j] * old + o[j] * by;
}

void attention_sum_finish(const struct attention_sum *sum, float *y, int v_dim)
{
    const float by = 1 / sum->total; /* > 0: every row attends at least to itself */
    for (int j = 0; j < v_dim; j++) y[j] *= by;
}

static void merge_add(const float *part, int v_dim, struct attention_sum *m, float *y)
{
    attention_sum_add(m, y, (struct attention_sum){ part[0], part[1] }, part + ATTENTION_SUM_HEAD, v_dim);
}

/* Merge the partial results of all stretches of one unit (KV head and part) into y, in ascending order. `t`
 * is its first piece. */
static void merge_unit(struct attention_piece t, int stretches, int64_t stride)
{
    const int v_dim = t.job->p->kv->v_dim;
    for (int q = 0; q < t.queries; q++) {
        struct attention_sum m = { 0 };
        float *y = attention_result(&t, q);
        for (int s = 0; s < stretches; s++) merge_add(attention_partial_at(&t, q) + s * stride, v_dim, &m, y);
        attention_sum_finish(&m, y, v_dim);
    }
}

/* ---------------------------------------------------------------- running */

/* Piece `index` of a row block. Pieces are ordered by stretch, and within a stretch by KV head and part. */
static struct attention_piece piece_at(const struct attention_job *job, const struct row_block *r, int index,
                                       float *partials)
{
    const int units = job->p->kv->kv_heads * job->parts, unit = index % units, stretch = index / units;
    const int part = unit % job->parts;
    struct attention_piece t = { .job = job, .row = r->row, .rows = r->rows, .kv_head = unit / job->parts };
    t.head = t.kv_head * job->group + part * job->heads_per_task;
    t.heads = MIN(job->heads_per_task, job->group - part * job->heads_per_task);
    t.queries = t.rows * t.heads;
    t.from = (int)MAX((int64_t)r->from, r->base + stretch * job->chunk);
    t.to = (int)MIN((int64_t)r->to, r->base + (stretch + 1) * job->chunk);
    if (r->stretches > 1) t.partial = partials;
    if (job->p->share) t.partial = job->p->share->out;
    return t;
}

static int64_t partial_floats(const struct attention_job *job)
{
    return attention_share_floats(job->p->kv->v_dim);
}

/* A piece with positions on both sides of a multiple of INVARIANT_TOKENS: compute and merge its parts one
 * after the other. */
static void run_in_order(struct attention_piece t, void *scratch)
{
    const int v_dim = t.job->p->kv->v_dim, to = t.to;
    struct attention_sum m[SPLIT_QUERIES] = { { 0 } };
    t.partial = (float *)((char *)scratch + attention_f32_bytes(head_dim_padded(t.job->b->work.head_dim)));
    for (; t.from < to; t.from = t.to) {
        t.to = MIN(to, t.from / INVARIANT_TOKENS * INVARIANT_TOKENS + INVARIANT_TOKENS);
        attention_f32_run(&t, scratch);
        for (int q = 0; q < t.queries; q++)
            merge_add(attention_partial_at(&t, q), v_dim, &m[q], attention_result(&t, q));
    }
    for (int q = 0; q < t.queries; q++) attention_sum_finish(&m[q], attention_result(&t, q), v_dim);
}

static bool crosses_multiple(const struct attention_piece *t)
{
    return t->from / INVARIANT_TOKENS != (t->to - 1) / INVARIANT_TOKENS;
}

static void run_piece(const struct attention_piece *t, void *scratch)
{
    const bool tiles = t->job->tiles && t->queries >= TILE_QUERIES_MIN;
    if (t->job->in_order && crosses_multiple(t))
        run_in_order(*t, scratch);
    else
        (tiles ? attention_tiles_run : attention_f32_run)(t, scratch);
}

/* Take pieces until none is left; their numbers from the pool begin at `first`. Returns the number after the
 * last piece. */
static int64_t run_pieces(const struct attention_job *job, enum attention_step step, int64_t first,
                          void *scratch)
{
    const int units = job->p->kv->kv_heads * job->parts;
    float *partials = job->partials;
    int64_t mine = threadpool_next(job->b->base.pool, 1);
    struct row_block r;
    for (int end = job->p->n; end > 0; end = r.row) {
        r = block_before(job, end);
        const int64_t pieces = (int64_t)units * r.stretches;
        const int64_t floats = r.rows * job->heads_per_task * partial_floats(job);
        for (; mine < first + pieces; mine = threadpool_next(job->b->base.pool, 1)) {
            const struct attention_piece t = piece_at(job, &r, (int)(mine - first),
                                                      partials + (mine - first) * floats);
            if (job->plain)
                attention_plain_run(&t, step, scratch);
            else
                run_piece(&t, scratch);
        }
        first += pieces;
        if (r.stretches > 1) partials += pieces * floats;
    }
    return first;
}

/* Every member takes one number that is no piece's before it waits for the others. */
static void run_plain(const struct attention_job *job, int member, int size)
{
    int64_t first = 0;
    for (int step = 0; step < ATTENTION_STEPS; step++) {
        if (step) threadpool_barrier(job->b->base.pool);
        first = size + run_pieces(job, (enum attention_step)step, first, cpu_thread_scratch(job->b, member));
    }
}

static void merge_pieces(const struct attention_job *job, int member, int size)
{
    const int units = job->p->kv->kv_heads * job->parts;
    float *partials = job->partials;
    struct row_block r;
    for (int end = job->p->n; end > 0; end = r.row) {
        r = block_before(job, end);
        if (r.stretches == 1) continue;
        const int64_t step = r.rows * job->heads_per_task * partial_floats(job);
        for (int u = member; u < units; u += size)
            merge_unit(piece_at(job, &r, u, partials + u * step), r.stretches, units * step);
        partials += units * r.stretches * step;
    }
}

static void attention_member(void *arg, int member, int size)
{
    const struct attention_job *job = arg;
    if (job->plain) {
        run_plain(job, member, size);
        return;
    }
    if (job->tiles) job->b->k.attend.begin();
    run_pieces(job, ATTENTION_STEPS, 0, cpu_thread_scratch(job->b, member));
    if (job->tiles) job->b->k.attend.end();
    if (job->chunk == INT32_MAX || job->p->share) return;
    threadpool_barrier(job->b->base.pool);
    merge_pieces(job, member, size);
}

/* No position is visible yet. */
static void clear_share(const struct attention *p)
{
    const int64_t vectors = (int64_t)p->n * p->heads * p->share->blocks,
                  floats = attention_share_floats(p->kv->v_dim);
    for (int64_t i = 0; i < vectors; i++) {
        p->share->out[i * floats] = -INFINITY;
        p->share->out[i * floats + 1] = 0;
    }
}

void cpu_attention(struct backend *base, const struct attention *p)
{
    struct cpu *b = (struct cpu *)base;
    const struct kv_layer *kv = p->kv;
    struct attention_job job = { .b = b, .p = p, .group = p->heads / kv->kv_heads };
    assert(p->heads % kv->kv_heads == 0 && kv->k_dim <= HEAD_DIM_MAX && kv->v_dim <= HEAD_DIM_MAX);
    assert(MAX(kv->k_dim, kv->v_dim) <= b->work.head_dim); /* backend_reserve first */
    const struct format *like = p->weight_format ? p->weight_format : &FORMATS[FORMAT_F32];
    job.plain = b->base.options.attention == ATTENTION_PLAIN;
    job.tiles = b->k.attend.attend && !b->base.options.batch_invariant && !job.plain &&
                precision_for(b->base.options.precision, like) == PRECISION_MEDIUM;
    job.in_order = b->base.options.batch_invariant && !job.plain;
    job.partials = job.scores = (float *)b->shared;
    job.scores_stride = attention_plain_stride(b->work.context);
    choose_pieces(&job, threadpool_size(b->base.pool));
    int64_t tokens = 0;
    for (int i = 0; i < p->n && job.plain; i++) assert(p->pos[i] < b->work.context);
    assert(!job.plain || (p->heads <= b->work.heads && p->n <= b->work.rows));
    for (int i = 0; i < p->n; i++) tokens += attention_end(p, i) - attention_begin(p, i);
    assert(!p->share || !job.plain);
    if (p->share) clear_share(p);
    cpu_run(b, tokens * p->heads * (kv->k_dim + kv->v_dim) / DOTS_PER_ELEMENT, attention_member, &job);
}
