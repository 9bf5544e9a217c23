/* kernels/attention.h - the inside of attention: the driver (attention.c) cuts a batch into pieces, and a
 * piece goes one of two ways: attention_f32.c (exact products, any machine) or attention_tiles.c (bf16
 * tiles). */
#ifndef QDYNO_KERNELS_ATTENTION_H
#define QDYNO_KERNELS_ATTENTION_H

#include "kernels/cpu.h"

struct attention_job {
    struct cpu *b;
    const struct attention *p;
    bool tiles;       /* products may be rounded to bf16, and there are tiles */
    int group;        /* query heads of one KV head */
    int heads_a_task; /* <= group */
    int parts;        /* tasks of one KV head: group / heads_a_task, rounded up */
    int rows_a_task;
    int64_t chunk; /* tokens of one piece where positions are split */
    float *partials;
};

/* Some query heads of one KV head and some rows of one sequence, over the tokens from..to-1. A vector of
 * queries is (row, head): q / heads rows behind `row`, q % heads heads behind `head`. */
struct attention_piece {
    const struct attention_job *job;
    int row, rows, kv_head, head, heads, queries;
    int from, to;
    float *partial; /* NULL: the piece sees all tokens, and its result is y */
};

/* What a piece that sees only some tokens leaves for the merge, one a query: the largest score (-inf: saw
 * nothing), the sum of exp(score - peak), and behind them the sum of those times V. */
struct attention_partial {
    float peak, total;
};
enum { PARTIAL_HEAD = 16 }; /* floats before the output: a cache line */

static inline float *attention_partial_at(const struct attention_piece *t, int query)
{
    return t->partial + query * (PARTIAL_HEAD + round_up(t->job->p->kv->v_dim, 16));
}

static inline int attention_first_position(const struct attention *p, int row)
{
    return p->window > 0 ? MAX(0, p->pos[row] - p->window + 1) : 0;
}

/* The stored bytes of a position, and how many tokens from there on lie side by side, at most `most`. */
static inline int attention_stretch(const struct attention_piece *t, int from, int most)
{
    const int block_tokens = t->job->p->kv->block_tokens;
    return MIN(block_tokens - from % block_tokens, most);
}

static inline const uint8_t *attention_cached(const struct attention_piece *t, const void *cache,
                                              const struct format *f, int dim, int position)
{
    const struct attention *p = t->job->p;
    const int block_tokens = p->kv->block_tokens;
    const int64_t block = p->tables[p->seq[t->row]][position / block_tokens];
    const int64_t row = (block * p->kv->kv_heads + t->kv_head) * block_tokens + position % block_tokens;
    return (const uint8_t *)cache + row * format_row_bytes(f, dim);
}

static inline const float *attention_query(const struct attention_piece *t, int q)
{
    const struct attention *p = t->job->p;
    return p->q + (t->row + q / t->heads) * p->q_stride + (int64_t)(t->head + q % t->heads) * p->kv->k_dim;
}

static inline float *attention_result(const struct attention_piece *t, int q)
{
    const struct attention *p = t->job->p;
    return p->y + (t->row + q / t->heads) * p->y_stride + (int64_t)(t->head + q % t->heads) * p->kv->v_dim;
}

/* Most queries a piece may hold, and a thread's scratch, for head dims up to `dim`. */
int attention_f32_queries(void);
int64_t attention_f32_bytes(int64_t dim);
int attention_tiles_queries(int64_t dim);
int64_t attention_tiles_bytes(int64_t dim);

void attention_f32_run(const struct attention_piece *t, void *scratch);
void attention_tiles_run(const struct attention_piece *t, void *scratch);

#endif
