/* kernels/attention.h - internals of CPU attention. The driver (attention.c) divides a batch into pieces.
 * Each piece runs with f32 products (attention_f32.c, any machine) or with bf16 tiles (attention_tiles.c,
 * AMX). Plain attention (attention_plain.c) runs each piece in three steps. */
#ifndef QDYNO_KERNELS_ATTENTION_H
#define QDYNO_KERNELS_ATTENTION_H

#include <math.h>

#include "kernels/cpu.h"

struct attention_job {
    struct cpu *b;
    const struct attention *p;
    bool plain;         /* attention_plain.c: all scores at a time */
    bool tiles;         /* bf16 tiles are available and the precision allows them */
    int group;          /* query heads that share one KV head */
    int heads_per_task; /* <= group */
    int parts;          /* tasks per KV head: group / heads_per_task, rounded up */
    int rows_per_task;
    int64_t chunk; /* tokens per piece where positions are split; INT32_MAX: they are not */
    bool in_order; /* batch_invariant */
    float *partials;
    float *scores; /* with `plain`: attention_scores_at */
    int64_t scores_stride;
};

/* Some query heads of one KV head and some rows of one sequence, over the positions [from, to). Query vector
 * q of the piece is row `row + q / heads` and head `head + q % heads`. */
struct attention_piece {
    const struct attention_job *job;
    int row, rows, kv_head, head, heads, queries;
    int from, to;
    float *partial; /* partial results of the piece, or those of the share; NULL: the piece covers all
                       positions and writes y */
};

/* Partial result of one query vector over some of its positions: a struct attention_sum, then values. */
static inline float *attention_partial_at(const struct attention_piece *t, int query)
{
    const struct attention *p = t->job->p;
    const struct attention_share *s = p->share;
    int64_t at = query;
    if (s) {
        const int64_t row = t->row + query / t->heads, head = t->head + query % t->heads;
        at = (row * p->heads + head) * s->blocks + t->from / SHARE_TOKENS - s->first;
    }
    return t->partial + at * attention_share_floats(p->kv->v_dim);
}

/* How many positions from `from` on are stored contiguously (in one cache block), at most `most`. */
static inline int attention_stretch(const struct attention_piece *t, int from, int most)
{
    const int block_tokens = t->job->p->kv->block_tokens;
    return MIN(block_tokens - from % block_tokens, most);
}

/* Elements of a stored row of values: with v_in_k, of keys. */
static inline int attention_v_stored(const struct kv_layer *kv)
{
    return kv->v_in_k ? kv->k_dim : kv->v_dim;
}

/* The stored row of a position; rows of the cache have `dim` elements. */
static inline const uint8_t *attention_cached(const struct attention_piece *t, const void *cache,
                                              const struct format *f, int dim, int position)
{
    const struct attention *p = t->job->p;
    const int block_tokens = p->kv->block_tokens;
    const int32_t seq = p->seq[t->row];
    const int64_t block = p->tables ? p->tables[seq][position / block_tokens] : seq;
    const int64_t row = (block * p->kv->kv_heads + t->kv_head) * block_tokens + position % block_tokens;
    return (const uint8_t *)cache + row * format_row_bytes(f, dim);
}

static inline const float *attention_query(const struct attention_piece *t, int q)
{
    const struct attention *p = t->job->p;
    return p->q + (t->row + q / t->heads) * p->q_stride + (int64_t)(t->head + q % t->heads) * p->kv->k_dim;
}

/* The score with which the online softmax of query q begins: its head's sink, in the piece with the row's
 * first position, else -inf. */
static inline float attention_sink(const struct attention_piece *t, int q)
{
    const struct attention *p = t->job->p;
    const int row = t->row + q / t->heads, first = attention_begin(p, row);
    const bool here = !p->share || share_owner(p->share->parts, attention_first(p, p->pos[row]) /
                                                                    SHARE_TOKENS) == p->share->part;
    return p->sinks && here && t->from <= first && first < t->to ? p->sinks[t->head + q % t->heads]
                                                                 : -INFINITY;
}

static inline float *attention_result(const struct attention_piece *t, int q)
{
    const struct attention *p = t->job->p;
    return p->y + (t->row + q / t->heads) * p->y_stride + (int64_t)(t->head + q % t->heads) * p->kv->v_dim;
}

/* The most query vectors of a piece, and the bytes of scratch per thread, for head dims up to `dim`. */
int attention_f32_queries(void);
int64_t attention_f32_bytes(int64_t dim);
int attention_tiles_queries(int64_t dim);
int64_t attention_tiles_bytes(int64_t dim);

/* A piece being computed with f32 products, and its scratch memory (attention_f32_bytes). */
struct attention_run {
    const struct attention_piece *t;
    bool by_rows, by_dots;                  /* which kernels compute its scores */
    float *q, *o;                           /* [queries][k_dim] times the scale, [queries][v_dim] */
    float *s;                               /* [queries][s_stride] scores or weights of some tokens */
    int64_t s_stride;                       /* floats from query to query */
    float *keys, *keys_transposed, *values; /* [TOKENS][k_dim], [k_dim][TOKENS], [TOKENS][v_dim] */
    float *peak, *total;                    /* [queries]: largest score so far, sum of exp(score - peak) */
};
enum { ATTENTION_TOKENS = 64 };

/* Tokens of the tile that begins at `from`. Tiles end at multiples of ATTENTION_TOKENS, so that no row's
 * tiles depend on the other rows of the piece. */
static inline int attention_tile(const struct attention_piece *t, int from)
{
    return MIN((int)ATTENTION_TOKENS - from % ATTENTION_TOKENS, t->to - from);
}

/* Read the queries; o = 0, s: one tile of scratch. */
void attention_run_begin(struct attention_run *w, const struct attention_piece *t, void *scratch);
/* s = q . K for the n tokens of a tile; may write up to ATTENTION_TOKENS columns of s. */
void attention_run_scores(const struct attention_run *w, int from, int n);
/* o += s V for these tokens; changes s in formats with one scale per row. */
void attention_run_values(const struct attention_run *w, int from, int n);

/* The steps of plain attention; every piece has finished one before the next begins. */
enum attention_step { ATTENTION_SCORES, ATTENTION_SOFTMAX, ATTENTION_VALUES, ATTENTION_STEPS };
/* Floats from one query's scores to the next one's, for contexts up to that size. */
int64_t attention_plain_stride(int context);
void attention_plain_run(const struct attention_piece *t, enum attention_step step, void *scratch);

void attention_f32_run(const struct attention_piece *t, void *scratch);
void attention_tiles_run(const struct attention_piece *t, void *scratch);

#endif
