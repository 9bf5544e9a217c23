/* Attention of many queries with bf16 tile products. Keys and values of up to TOKENS_MAX tokens are converted
 * to tile order once and then used by all queries of the piece, 32 queries (a group) at a time. Steps of 32
 * tokens to which no query of a group attends are skipped; other invisible tokens are masked. */
#include <math.h>
#include <string.h>

#include "kernels/attention.h"

enum {
    GROUP = 32,           /* queries per call of the kernel */
    STEP = 32,            /* tokens in the depth of one tile product */
    QUERY_FLOATS = 65536, /* queries x dim of a piece: 128 KiB of queries, 256 KiB of results */
    TOKEN_FLOATS = 32768, /* tokens x dim of a block in tile order: keys and values 64 KiB each */
    TOKENS_MAX = 64,
    ROWS_FLOATS = 8, /* floats per dim that hold 16 rows of bf16 */
    TILE = TILE_ROWS * TILE_DEPTH,
    GROUPS_MAX = QUERY_FLOATS / STEP / GROUP,
};

/* The positions [first, end) that each query of a group attends to. */
struct bounds {
    int32_t first[GROUP], end[GROUP];
    int32_t least_first, most_first, least_end, most_end;
};

struct piece_run {
    const struct attention_piece *t;
    int k_dim, v_dim;    /* rounded up to whole tiles */
    int tokens;          /* most tokens of a block */
    uint16_t *q;         /* [groups][GROUP * k_dim] */
    float *o;            /* [groups][v_dim][GROUP] */
    float *peak, *total; /* [groups][GROUP] */
    uint16_t *k, *v;     /* of a block, in the layout of struct attend */
    uint16_t *loose;     /* V of STEP tokens before it is transposed */
    uint16_t *spare;     /* 16 rows of a tile before they are moved to their place */
    float scales[2][TOKENS_MAX];
    const float *k_scale, *v_scale; /* in scales, or NULL */
    float *s;                       /* [2][tokens][GROUP] */
    uint16_t *p;                    /* [2][tokens][GROUP] softmax weights, as tiles */
    struct bounds *bounds;          /* [groups] */
};

static int tokens_for(int64_t dim)
{
    return (int)MAX(MIN(TOKEN_FLOATS / dim, (int64_t)TOKENS_MAX) / STEP * STEP, (int64_t)STEP);
}

int attention_tiles_queries(int64_t dim)
{
    return (int)MAX(QUERY_FLOATS / round_up(dim, STEP) / GROUP * GROUP, (int64_t)GROUP);
}

static int64_t bytes_for(int64_t queries, int64_t tokens, int64_t k_dim, int64_t v_dim)
{
    const int64_t dim = MAX(k_dim, v_dim);
    return queries * (2 * k_dim + 4 * v_dim + 8) + queries / GROUP * (int64_t)sizeof(struct bounds) +
           tokens * (2 * k_dim + 2 * v_dim + 2 * 6 * GROUP) + 2 * STEP * dim + 4 * ROWS_FLOATS * dim;
}

int64_t attention_tiles_bytes(int64_t dim)
{
    int64_t most = 0;
    for (int64_t d = STEP; d <= dim; d += STEP)
        most = MAX(most, bytes_for(attention_tiles_queries(d), tokens_for(d), d, d));
    return most;
}

static void piece_place_scratch(struct piece_run *w, void *scratch)
{
    const struct kv_layer *kv = w->t->job->p->kv;
    w->k_dim = (int)round_up(kv->k_dim, STEP);
    w->v_dim = (int)round_up(kv->v_dim, STEP);
    const int64_t dim = MAX(w->k_dim, w->v_dim), queries = round_up(w->t->queries, GROUP);
    w->tokens = tokens_for(dim);
    float *at = scratch;
    w->o = at;
    w->peak = at += queries * w->v_dim;
    w->total = at += queries;
    w->s = at += queries;
    w->spare = (uint16_t *)(at += 2 * (int64_t)w->tokens * GROUP);
    at += ROWS_FLOATS * dim;
    w->q = (uint16_t *)at;
    w->k = w->q + queries * w->k_dim;
    w->v = w->k + (int64_t)w->tokens * w->k_dim;
    w->loose = w->v + (int64_t)w->tokens * w->v_dim;
    w->p = w->loose + STEP * dim;
    w->bounds = (struct bounds *)(w->p + 2 * (int64_t)w->tokens * GROUP);
}

/* ---------------------------------------------------------------- keys and values in tile order */

/* K or V of a layer's cache. */
struct cache_part {
    const void *cache;
    const struct format *f;
    int dim, stored; /* elements that are read, and that a row has */
};

static void cache_unpack_rows(const struct piece_run *w, const struct cache_part *c, int position, int rows,
                              uint16_t *out)
{
    const struct format_kernels *f = &w->t->job->b->k.format[c->f - FORMATS];
    const uint8_t *from = attention_cached(w->t, c->cache, c->f, c->stored, position);
    const int64_t row_bytes = format_row_bytes(c->f, c->stored);
    if (rows < TILE_ROWS) memset(out, 0, (size_t)round_up(c->dim, TILE_DEPTH) * TILE_ROWS * sizeof *out);
    w->t->job->b->k.attend.load(c->f, f, from, row_bytes, rows, c->dim, out);
}

/* Convert positions at .. at + 15 to [dim / 32] tiles. Positions outside the piece become 0 and are not read.
 */
static void load_rows(const struct piece_run *w, const struct cache_part *c, int at, uint16_t *out)
{
    const int from = MAX(at, w->t->from), to = MIN(at + TILE_ROWS, w->t->to);
    const int64_t tiles = round_up(c->dim, TILE_DEPTH) / TILE_DEPTH;
    if (from == at && from < to && attention_stretch(w->t, from, TILE_ROWS) >= to - from) {
        cache_unpack_rows(w, c, from, to - from, out);
        return;
    }
    memset(out, 0, (size_t)(tiles * TILE) * sizeof *out);
    for (int p = from, n; p < to;
         p += n) { /* rows that do not start the tile, or are spread over several cache blocks */
        n = attention_stretch(w->t, p, to - p);
        cache_unpack_rows(w, c, p, n, w->spare);
        for (int64_t i = 0; i < tiles; i++)
            memcpy(out + i * TILE + (p - at) * TILE_DEPTH, w->spare + i * TILE,
                   (size_t)n * TILE_DEPTH * sizeof *out);
    }
}

/* The row scales of `tokens` positions, in formats that have one per row; NULL for the others. */
static const float *load_scales(const struct piece_run *w, const struct cache_part *c, int at, int tokens,
                                float *out)
{
    if (!c->f->row_tail_bytes) return NULL;
    for (int i = 0; i < tokens; i++) {
        const bool here = at + i >= w->t->from && at + i < w->t->to;
        out[i] = here ? format_row_scale(c->f, attention_cached(w->t, c->cache, c->f, c->stored, at + i),
                                         c->stored)
                      : 0;
    }
    return out;
}

/* Convert keys and values of 32 * steps positions from `at` on (a multiple of 16) to tile order. */
static void load_block(struct piece_run *w, int at, int steps)
{
    const struct kv_layer *kv = w->t->job->p->kv;
    const struct cache_part k = { .cache = kv->k, .f = kv->k_format, .dim = kv->k_dim, .stored = kv->k_dim };
    const struct cache_part v = {
        .cache = kv->v, .f = kv->v_format, .dim = kv->v_dim, .stored = attention_v_stored(kv)
    };
    uint16_t *second = w->loose + TILE_ROWS * w->v_dim;
    w->k_scale = load_scales(w, &k, at, steps * STEP, w->scales[0]);
    w->v_scale = load_scales(w, &v, at, steps * STEP, w->scales[1]);
    for (int i = 0; i < steps * STEP; i += TILE_ROWS) load_rows(w, &k, at + i, w->k + (int64_t)i * w->k_dim);
    for (int i = 0; i < steps; i++) {
        load_rows(w, &v, at + i * STEP, w->loose);
        load_rows(w, &v, at + i * STEP + TILE_ROWS, second);
        w->t->job->b->k.attend.transpose_v(w->loose, second, w->v_dim / TILE_DEPTH, w->v + i * TILE,
                                           (int64_t)steps * TILE);
    }
}

/* ---------------------------------------------------------------- queries */

static int group_queries(const struct piece_run *w, int g)
{
    return MIN((int)GROUP, w->t->queries - g * GROUP);
}

static void find_bounds(const struct piece_run *w, int g)
{
    const struct attention_piece *t = w->t;
    const struct attention *p = t->job->p;
    struct bounds *b = &w->bounds[g];
    b->least_first = b->least_end = INT32_MAX, b->most_first = b->most_end = 0;
    for (int q = 0; q < GROUP; q++) { /* missing queries get the bounds of the last one */
        const int row = t->row + MIN(g * GROUP + q, t->queries - 1) / t->heads;
        const int first = MAX(attention_begin(p, row), t->from), end = MIN(attention_end(p, row), t->to);
        b->first[q] = first, b->end[q] = end;
        b->least_first = MIN(b->least_first, first), b->most_first = MAX(b->most_first, first);
        b->least_end = MIN(b->least_end, end), b->most_end = MAX(b->most_end, end);
    }
}

static void piece_begin(const struct piece_run *w)
{
    const struct attention *p = w->t->job->p;
    /* The kernel computes softmax weights as powers of 2, or, with a soft cap, takes the argument of tanh. */
    const float by = p->softcap > 0 ? p->scale / p->softcap : p->scale * (float)M_LOG2E;
    for (int g = 0; g * GROUP < w->t->queries; g++) {
        const int n = group_queries(w, g);
        const float *x[GROUP];
        find_bounds(w, g);
        for (int q = 0; q < n; q++) x[q] = attention_query(w->t, g * GROUP + q);
        w->t->job->b->k.attend.pack(x, n, p->kv->k_dim, by, w->q + (int64_t)g * GROUP * w->k_dim);
        for (int q = 0; q < GROUP; q++) {
            const float sink = q < n ? attention_sink(w->t, g * GROUP + q) : -INFINITY;
            w->peak[g * GROUP + q] = sink * (float)M_LOG2E; /* the kernel's scores are exponents of 2 */
            w->total[g * GROUP + q] = sink > -INFINITY;
        }
    }
    memset(w->o, 0, (size_t)(round_up(w->t->queries, GROUP) * w->v_dim) * sizeof *w->o);
}

/* Set up the kernel's arguments for group g and the block of tokens from `at` on. Returns false if no query
 * of the group attends to any of them. */
static bool group_prepare(const struct piece_run *w, int g, int at, int steps, struct attend *a)
{
    const struct bounds *b = &w->bounds[g];
    const int from = MAX(b->least_first - at, 0), to = MIN(b->most_end - at, steps * STEP);
    if (from >= to) return false;
    const int skip = from / STEP, used = (int)round_up(to, STEP) / STEP - skip, start = at + skip * STEP;
    const struct attention *p = w->t->job->p;
    *a = (struct attend){
        .q = w->q + (int64_t)g * GROUP * w->k_dim,
        .k = w->k + (int64_t)skip * STEP * w->k_dim,
        .v = w->v + skip * TILE,
        .v_stride = (int64_t)steps * TILE,
        .depth = w->k_dim / TILE_DEPTH,
        .v_dim = w->v_dim,
        .tokens = used * STEP,
        .queries = group_queries(w, g),
        .position = start,
        .first = b->first,
        .end = b->end,
        .masked = b->most_first > start || b->least_end < start + used * STEP,
        .k_scale = w->k_scale ? w->k_scale + skip * STEP : NULL,
        .v_scale = w->v_scale ? w->v_scale + skip * STEP : NULL,
        .softcap = p->softcap,
        .o = w->o + (int64_t)g * GROUP * w->v_dim,
        .peak = w->peak + g * GROUP,
        .total = w->total + g * GROUP,
    };
    return true;
}

/* Let all groups attend to the block of tokens from `at` on. Neighbouring groups use alternating scratch. */
static void attend_block(const struct piece_run *w, int at, int steps)
{
    struct attend a[GROUPS_MAX];
    int count = 0;
    for (int g = 0; g * GROUP < w->t->queries; g++) {
        if (!group_prepare(w, g, at, steps, &a[count])) continue;
        a[count].s = w->s + (int64_t)(count & 1) * w->tokens * GROUP;
        a[count].p = w->p + (int64_t)(count & 1) * w->tokens * GROUP;
        count++;
    }
    if (count) w->t->job->b->k.attend.attend(a, count);
}

static void piece_finish(const struct piece_run *w)
{
    const struct attention_piece *t = w->t;
    const int v_dim = t->job->p->kv->v_dim;
    for (int g = 0; g * GROUP < t->queries; g++) {
        const int n = group_queries(w, g);
        float by[GROUP] = { 0 }, *y[GROUP];
        for (int q = 0; q < n; q++) {
            const float total = w->total[g * GROUP + q];
            by[q] = t->partial ? 1 : 1 / total; /* > 0: every row attends at least to itself */
            y[q] = t->partial ? attention_partial_at(t, g * GROUP + q) : attention_result(t, g * GROUP + q);
            if (!t->partial) continue;
            y[q][0] = w->peak[g * GROUP + q] * (float)M_LN2;
            y[q][1] = total;
            y[q] += ATTENTION_SUM_HEAD;
        }
        t->job->b->k.attend.unpack(w->o + (int64_t)g * GROUP * w->v_dim, by, n, v_dim, y);
    }
}

void attention_tiles_run(const struct attention_piece *t, void *scratch)
{
    struct piece_run w = { .t = t };
    piece_place_scratch(&w, scratch);
    piece_begin(&w);
    for (int at = t->from / STEP * STEP; at < t->to; at += w.tokens) {
        const int steps = (int)round_up(MIN(w.tokens, t->to - at), STEP) / STEP;
        load_block(&w, at, steps);
        attend_block(&w, at, steps);
    }
    piece_finish(&w);
}
