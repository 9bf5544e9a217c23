/* Attention of a rank that has the keys and values of a part of the positions (engine/plan/split.h). Each
 * rank computes, for all rows, attention to its own positions: a sum of values, with the largest score and
 * the total weight. The ranks exchange these, and each merges all of them in the order of positions. With
 * batch_invariant one for each block of positions travels, and the merged results have the bits of a single
 * process; otherwise each rank merges its own first, so that one for each head travels. */
#include "engine/model/pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/parallel/parallel.h"
#include "engine/plan/plan.h"
#include "kernels/kernels.h"

enum { WIRE_HEAD = 2 }; /* floats of an attention_sum, before its values */

/* Each sequence has its blocks for good, in ascending order. */
static bool make_tables(struct model *m)
{
    struct context_exchange *x = &m->context;
    const int sequences = m->session.sequences, blocks = session_kv_layer(&m->session, &m->shape, 0).blocks;
    x->tables = calloc((size_t)sequences, sizeof *x->tables);
    x->table_memory = calloc((size_t)blocks, sizeof *x->table_memory);
    if (!x->tables || !x->table_memory) return false;
    for (int b = 0; b < blocks; b++) x->table_memory[b] = b;
    for (int s = 0; s < sequences; s++) x->tables[s] = x->table_memory + s * (blocks / sequences);
    return true;
}

enum err_code model_context_begin(struct model *m, struct err *why)
{
    const struct part *p = &m->session.part;
    struct context_exchange *x = &m->context;
    const struct share_sizes sizes = share_sizes(&m->session, &m->shape);
    if (!sizes.out) return ERR_OK;
    x->floats = sizes.out;
    x->out = malloc((size_t)sizes.out * sizeof(float));
    x->send = malloc((size_t)sizes.send * sizeof(float));
    x->receive = malloc((size_t)sizes.receive * sizeof(float));
    if (!x->out || !x->send || !x->receive)
        return err_set(why, ERR_NOMEM, "out of memory for exchanges between ranks");
    if (!make_tables(m)) return err_set(why, ERR_NOMEM, "out of memory for the block tables of a KV cache");
    const int rank = rank_place(m->rank)->rank;
    x->group = rank_module(m->rank)->split(rank / (p->tp * p->cp) * p->tp + p->tp_rank, rank);
    return x->group < 0 ? err_set(why, ERR_INTERNAL, "MPI allows no more groups of ranks") : ERR_OK;
}

void model_context_free(struct model *m)
{
    free(m->context.out);
    free(m->context.send);
    free(m->context.receive);
    free(m->context.tables);
    free(m->context.table_memory);
}

int32_t pass_slot(const struct model *m, int seq, int pos)
{
    const struct attention_share own = part_share(&m->session.part);
    if (!m->context.out) return kv_slot(&m->cache, seq, pos);
    if (pos / SHARE_TOKENS % own.parts != own.part) return -1;
    const int at = share_before(&own, pos);
    return m->context.tables[seq][at / KV_BLOCK_TOKENS] * KV_BLOCK_TOKENS + at % KV_BLOCK_TOKENS;
}

/* The blocks of positions that the rows of a call attend to. */
struct blocks {
    int from, end;
};

/* Those of rank r, by their numbers in its cache. */
static struct blocks blocks_of(struct blocks all, int ranks, int r)
{
    const int from = all.from > r ? (all.from - r + ranks - 1) / ranks : 0,
              end = all.end > r ? (all.end - r + ranks - 1) / ranks : 0;
    return (struct blocks){ from, MAX(from, end) };
}

/* As many rows from the first one on as the buffers hold, and the blocks that they attend to. */
static int choose_rows(const struct model *m, const struct attention *o, struct blocks *all)
{
    const int64_t block = o->heads * attention_share_floats(o->kv->v_dim);
    int n = 0;
    for (*all = (struct blocks){ INT32_MAX, 0 }; n < o->n; n++) {
        const int from = MIN(all->from, attention_first(o, o->pos[n]) / SHARE_TOKENS),
                  end = MAX(all->end, o->pos[n] / SHARE_TOKENS + 1);
        const int64_t most = (end - from - 1) / m->session.part.cp + 1;
        if (n && (n + 1) * most * block > m->context.floats) break;
        *all = (struct blocks){ from, end };
    }
    return n;
}

static void add_share(struct attention_sum *sum, float *y, const float *x, int head, int v_dim)
{
    attention_add(sum, y, (struct attention_sum){ x[0], x[1] }, x + head, v_dim);
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

/* Exchange results for n rows, and merge them -> o->y. */
static void merge(const struct model *m, const struct attention *o, int n, struct blocks all)
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
    rank_all_gather(m->rank, x->group, x->send, bytes[m->session.part.cp_rank], x->receive, bytes, at);
    for (int64_t i = 0; i < (int64_t)n * o->heads; i++) {
        struct attention_sum total = { -INFINITY, 0 };
        float *y = o->y + i / o->heads * o->y_stride + i % o->heads * v_dim;
        for (int b = order.from; b < order.end; b++) {
            const int r = b % ranks;
            const int64_t count = of[r].end - of[r].from, place = i * count + b / ranks - of[r].from;
            const float *from = x->receive + at[r] / (int)sizeof(float) + place * step;
            add_share(&total, y, from, WIRE_HEAD, v_dim);
        }
        attention_finish(&total, y, v_dim);
    }
}

void pass_run_shared_attention(const struct pass *p, struct attention o)
{
    const struct model *m = p->m;
    const struct part *part = &m->session.part;
    const struct attention whole = o;
    o.tables = (const int32_t *const *)m->context.tables;
    for (int row = 0, n; row < whole.n; row += n) {
        struct blocks all;
        o.q = whole.q + row * whole.q_stride;
        o.y = whole.y + row * whole.y_stride;
        o.pos = whole.pos + row;
        o.seq = whole.seq + row;
        o.n = whole.n - row;
        o.n = n = choose_rows(m, &o, &all);
        const struct blocks own = blocks_of(all, part->cp, part->cp_rank);
        const struct attention_share share = { part->cp, part->cp_rank, own.from, own.end - own.from,
                                               m->context.out };
        o.share = &share;
        if (share.blocks) operator_attention(p, &o);
        pack(m, &o, n, own);
        merge(m, &o, n, all);
    }
}
