/* Attention of a rank that has the keys and values of a part of the positions (engine/plan/split.h). Each
 * rank computes, for all rows, attention to its own positions: a sum of values, with the largest score and
 * the total weight. The ranks exchange these, and each merges all of them in the order of positions. With
 * batch_invariant one for each block of positions travels, and the merged results have the bits of a single
 * process; otherwise each rank merges its own first, so that one for each head travels.
 *
 * Of a long batch, a prompt, each rank computes some rows: their matrix products, queries, keys and values.
 * These three go to all ranks, results of attention back to the rank that has the row. Models with layers
 * that keep a state need all rows in order, so there, as for short batches, every rank computes all rows. */
#include "engine/model/pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/parallel/parallel.h"
#include "engine/plan/plan.h"
#include "kernels/kernels.h"

enum { WIRE_HEAD = 2 }; /* floats of an attention_sum, before its values */

/* The block tables of this rank's cache. Each sequence has all of its blocks from the start. */
static enum err_code open_cache(struct model *m, struct err *why)
{
    struct kv_cache *kv = &m->context.cache;
    const int sequences = m->session.sequences, blocks = session_kv_layer(&m->session, &m->shape, 0).blocks,
              tokens = blocks / sequences * KV_BLOCK_TOKENS;
    const enum err_code rc = kv_cache_init(kv, tokens, sequences, blocks, why);
    for (int s = 0; s < sequences && !rc; s++) kv_cache_grow(kv, s, tokens);
    return rc;
}

enum err_code model_context_begin(struct model *m, struct err *why)
{
    const struct part *p = &m->session.part;
    struct context_exchange *x = &m->context;
    const struct share_sizes sizes = share_sizes(&m->session, &m->shape, m->hyper.arch);
    if (!sizes.out) return ERR_OK;
    x->floats = sizes.out;
    x->out = malloc((size_t)sizes.out * sizeof(float));
    x->send = malloc((size_t)sizes.send * sizeof(float));
    x->receive = malloc((size_t)sizes.receive * sizeof(float));
    if (!x->out || !x->send || !x->receive)
        return err_set(why, ERR_NOMEM, "out of memory for exchanges between ranks");
    if (sizes.rows && (!(x->rows = malloc((size_t)sizes.rows * sizeof(float))) ||
                       !(x->wanted = malloc((size_t)m->session.batch * sizeof *x->wanted))))
        return err_set(why, ERR_NOMEM, "out of memory for %d rows of all ranks", m->session.batch);
    const enum err_code rc = open_cache(m, why);
    if (rc) return rc;
    const int rank = rank_place(m->rank)->rank;
    x->group = rank_module(m->rank)->split(rank / (p->tp * p->cp) * p->tp + p->tp_rank, rank);
    return x->group < 0 ? err_set(why, ERR_INTERNAL, "MPI allows no more groups of ranks") : ERR_OK;
}

void model_context_free(struct model *m)
{
    free(m->context.out);
    free(m->context.send);
    free(m->context.receive);
    free(m->context.rows);
    free(m->context.wanted);
    kv_cache_done(&m->context.cache);
}

int32_t pass_slot(const struct model *m, int seq, int pos)
{
    const struct attention_share own = part_share(&m->session.part);
    if (!m->context.out) return kv_slot(&m->cache, seq, pos);
    if (share_owner(own.parts, pos / SHARE_TOKENS) != own.part) return -1;
    return kv_slot(&m->context.cache, seq, share_before(&own, pos));
}

/* The blocks of positions that the rows of a call attend to. */
struct blocks {
    int from, end;
};

/* Those of rank r, by their numbers in its cache. */
static struct blocks blocks_of(struct blocks all, int ranks, int r)
{
    return (struct blocks){ share_blocks_before(ranks, r, all.from), share_blocks_before(ranks, r, all.end) };
}

/* The most of them that a rank has. */
static int blocks_most(struct blocks all, int ranks)
{
    int most = 0;
    for (int r = 0; r < ranks; r++) {
        const struct blocks own = blocks_of(all, ranks, r);
        most = MAX(most, own.end - own.from);
    }
    return most;
}

/* As many rows from the first one on as the buffers hold, and the blocks that they attend to. */
static int choose_rows(const struct model *m, const struct attention *o, struct blocks *all)
{
    const int64_t block = o->heads * attention_share_floats(o->kv->v_dim);
    int n = 0;
    for (*all = (struct blocks){ INT32_MAX, 0 }; n < o->n; n++) {
        const int from = MIN(all->from, attention_first(o, o->pos[n]) / SHARE_TOKENS),
                  end = MAX(all->end, o->pos[n] / SHARE_TOKENS + 1);
        const int64_t most = blocks_most((struct blocks){ from, end }, m->session.part.cp);
        if (n && (n + 1) * most * block > m->context.floats) break;
        *all = (struct blocks){ from, end };
    }
    return n;
}

static void add_share(struct attention_sum *sum, float *y, const float *x, int head, int v_dim)
{
    attention_sum_add(sum, y, (struct attention_sum){ x[0], x[1] }, x + head, v_dim);
}

/* Results of this rank for n rows -> m->context.send. */
static void pack(const struct model *m, const struct attention *o, int n, struct blocks own)
{
    const struct context_exchange *x = &m->context;
    const int v_dim = o->kv->v_dim, count = own.end - own.from, step = WIRE_HEAD + v_dim;
    const int64_t floats = attention_share_floats(v_dim), vectors = (int64_t)n * o->heads;
    const float *from = x->out;
    float *to = x->send;
    if (m->session.backend.batch_invariant) {
        for (int64_t i = 0; i < vectors * count; i++, from += floats, to += step) {
            memcpy(to, from, WIRE_HEAD * sizeof *to);
            memcpy(to + WIRE_HEAD, from + ATTENTION_SUM_HEAD, (size_t)v_dim * sizeof *to);
        }
        return;
    }
    for (int64_t i = 0; i < vectors; i++, to += step) {
        struct attention_sum sum = { -INFINITY, 0 };
        memset(to, 0, (size_t)step * sizeof *to);
        for (int b = 0; b < count; b++, from += floats)
            add_share(&sum, to + WIRE_HEAD, from, ATTENTION_SUM_HEAD, v_dim);
        to[0] = sum.peak;
        to[1] = sum.total;
    }
}

/* Exchange results for n rows, and merge them -> o->y; on rank `owner` only, or on all of them (-1). */
static void merge(const struct model *m, const struct attention *o, int n, struct blocks all, int owner)
{
    const struct context_exchange *x = &m->context;
    const bool each = m->session.backend.batch_invariant;
    const int ranks = m->session.part.cp, v_dim = o->kv->v_dim, step = WIRE_HEAD + v_dim;
    int bytes[RANKS_MAX], at[RANKS_MAX], sum = 0;
    struct blocks of[RANKS_MAX];
    for (int r = 0; r < ranks; r++) {
        of[r] = each ? blocks_of(all, ranks, r) : (struct blocks){ 0, 1 };
        at[r] = sum;
        sum += bytes[r] = n * o->heads * (of[r].end - of[r].from) * step * (int)sizeof(float);
    }
    const struct blocks order = each ? all : (struct blocks){ 0, ranks };
    const int rank = m->session.part.cp_rank;
    if (owner < 0)
        rank_all_gather(m->rank, x->group, x->send, bytes[rank], x->receive, bytes, at);
    else
        rank_gather(m->rank, x->group, owner, x->send, bytes[rank], x->receive, bytes, at, owner == rank);
    if (owner >= 0 && owner != rank) return;
    for (int64_t i = 0; i < (int64_t)n * o->heads; i++) {
        struct attention_sum total = { -INFINITY, 0 };
        float *y = o->y + i / o->heads * o->y_stride + i % o->heads * v_dim;
        for (int b = order.from; b < order.end; b++) {
            const int r = each ? share_owner(ranks, b) : b;
            const int64_t count = of[r].end - of[r].from, place = i * count + b / ranks - of[r].from;
            const float *from = x->receive + at[r] / (int)sizeof(float) + place * step;
            add_share(&total, y, from, WIRE_HEAD, v_dim);
        }
        attention_sum_finish(&total, y, v_dim);
    }
}

/* Rows [from, to) of a call, whose results go to o.y; owner: as for merge. */
static void attend(const struct pass *p, struct attention o, int from, int to, int owner)
{
    const struct model *m = p->m;
    const struct part *part = &m->session.part;
    o.q += from * o.q_stride;
    o.pos += from;
    o.seq += from;
    for (int left = to - from, n; left > 0; left -= n) {
        struct blocks all;
        o.n = left;
        o.n = n = choose_rows(m, &o, &all);
        const struct blocks own = blocks_of(all, part->cp, part->cp_rank);
        const struct attention_share share = { part->cp, part->cp_rank, own.from, own.end - own.from,
                                               m->context.out };
        o.share = &share;
        if (share.blocks) operator_attention(p, &o);
        pack(m, &o, n, own);
        merge(m, &o, n, all, owner);
        o.q += n * o.q_stride;
        o.y += n * o.y_stride;
        o.pos += n;
        o.seq += n;
    }
}

/* ---------------------------------------------------------------- rows of long batches */

enum { ROWS_LEAST = 16 }; /* of each rank: for fewer, matrices are read as long as rows are multiplied */

static int first_row(const struct pass *p, int rank)
{
    return (int)split_cut(p->all, 1, p->m->session.part.cp, rank);
}

void pass_run_shared_attention(const struct pass *p, struct attention o)
{
    o.tables = (const int32_t *const *)p->m->context.cache.tables;
    if (!p->all) attend(p, o, 0, o.n, -1);
    for (int r = 0; r < p->m->session.part.cp && p->all; r++)
        attend(p, o, first_row(p, r), first_row(p, r + 1), r);
}

void pass_divide_rows(struct pass *p)
{
    struct model *m = p->m;
    const int ranks = m->session.part.cp, rank = m->session.part.cp_rank;
    const int64_t bytes = p->n * m->widths.qkv * (int64_t)sizeof(float);
    const bool sendable = bytes <= INT32_MAX; /* sizes of MPI are ints */
    if (!m->context.rows || p->n < ranks * ROWS_LEAST || !sendable) return;
    p->all = p->n;
    const int from = first_row(p, rank);
    p->n = first_row(p, rank + 1) - from;
    m->context.all = m->lists;
    m->lists.ids += from;
    m->lists.pos += from;
    m->lists.seq += from;
    m->lists.slots += from;
}

struct row_list pass_own_wanted(const struct pass *p)
{
    const struct model *m = p->m;
    struct row_list own = { m->lists.wanted, p->wanted };
    if (!p->all) return own;
    const int rank = m->session.part.cp_rank, first = first_row(p, rank), end = first_row(p, rank + 1);
    own = (struct row_list){ m->context.wanted, 0 };
    for (int i = 0; i < p->wanted; i++)
        if (m->lists.wanted[i] >= first && m->lists.wanted[i] < end)
            m->context.wanted[own.n++] = m->lists.wanted[i] - first;
    return own;
}

float *pass_gather_rows(const struct pass *p, const float *x)
{
    const struct model *m = p->m;
    const int ranks = m->session.part.cp, row_bytes = (int)(m->widths.qkv * (int64_t)sizeof *x);
    int bytes[RANKS_MAX], at[RANKS_MAX];
    for (int r = 0; r < ranks; r++) {
        at[r] = first_row(p, r) * row_bytes;
        bytes[r] = (first_row(p, r + 1) - first_row(p, r)) * row_bytes;
    }
    rank_all_gather(m->rank, m->context.group, x, p->n * row_bytes, m->context.rows, bytes, at);
    return m->context.rows;
}

void pass_join_rows(struct pass *p)
{
    struct model *m = p->m;
    const int64_t embd = m->shape.embd;
    const int ranks = m->session.part.cp, row_bytes = (int)(embd * (int64_t)sizeof(float));
    int bytes[RANKS_MAX], at[RANKS_MAX];
    const struct row_list own = pass_own_wanted(p);
    /* to the front, in ascending order; where the last layer dropped the others, they are there */
    for (int i = 0; i < own.n && own.n < p->n; i++)
        memmove(p->b.x + i * embd, p->b.x + own.ids[i] * embd, (size_t)row_bytes);
    m->lists = m->context.all;
    for (int r = 0, i = 0; r < ranks; r++) {
        const int from = i;
        while (i < p->wanted && m->lists.wanted[i] < first_row(p, r + 1)) i++;
        at[r] = from * row_bytes;
        bytes[r] = (i - from) * row_bytes;
    }
    if (p->wanted && part_is_last(&m->session.part))
        rank_all_gather(m->rank, m->context.group, p->b.x, own.n * row_bytes, p->b.h, bytes, at);
    struct buffers b = p->b;
    p->b.x = b.h;
    p->b.h = b.x;
    p->n = p->wanted;
    p->all = 0;
}
