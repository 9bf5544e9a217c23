/* Attention of many queries as bf16 tile products. Keys and values of up to TOKENS_MAX tokens are brought
 * into tile order once and then serve all queries of the piece, 32 at a time; what a query may not see is
 * skipped where 32 tokens at once are hidden from all 32, and masked elsewhere. */
#include <math.h>
#include <string.h>

#include "kernels/attention.h"
#include "kernels/half.h"

enum {
    GROUP = 32,           /* queries of one call of the kernel */
    STEP = 32,            /* tokens of one tile product's depth */
    QUERY_FLOATS = 65536, /* queries x dim of a piece: 128 KiB of queries, 256 KiB of results */
    TOKEN_FLOATS = 32768, /* tokens x dim in tile order at a time: keys and values 64 KiB each */
    TOKENS_MAX = 256,
    TILE = TILE_ROWS * TILE_DEPTH,
};

struct walk {
    const struct attention_piece *t;
    int k_dim, v_dim;    /* in whole tiles */
    int tokens;          /* of a block */
    uint16_t *q;         /* [groups][GROUP * k_dim] */
    float *o;            /* [groups][v_dim][GROUP] */
    float *peak, *total; /* [groups][GROUP] */
    uint16_t *k, *v;     /* of a block, in the order of struct attend */
    uint16_t *loose;     /* V of STEP tokens before it is turned, or a few rows of a tile on their way */
    float *rows;         /* GROUP vectors; one decoded row */
    float scales[2][TOKENS_MAX];
    const float *k_scale, *v_scale; /* in scales, or NULL */
    float *s;                       /* [tokens][GROUP] */
    uint16_t *p;                    /* the same, as tiles */
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
    return queries * (2 * k_dim + 4 * v_dim + 8) + tokens * (2 * k_dim + 2 * v_dim + 6 * GROUP) +
           2 * STEP * dim + 4 * GROUP * dim;
}

int64_t attention_tiles_bytes(int64_t dim)
{
    int64_t most = 0;
    for (int64_t d = STEP; d <= dim; d += STEP)
        most = MAX(most, bytes_for(attention_tiles_queries(d), tokens_for(d), d, d));
    return most;
}

static void place(struct walk *w, void *scratch)
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
    w->rows = at += (int64_t)w->tokens * GROUP;
    at += GROUP * dim;
    w->q = (uint16_t *)at;
    w->k = w->q + queries * w->k_dim;
    w->v = w->k + (int64_t)w->tokens * w->k_dim;
    w->loose = w->v + (int64_t)w->tokens * w->v_dim;
    w->p = w->loose + STEP * dim;
}

/* ---------------------------------------------------------------- keys and values to tiles */

/* Any format by way of f32: slower than a format's own function, but a format needs only `decode`. */
static void unpack_by_decoding(const struct walk *w, const struct format_kernels *f, const uint8_t *from,
                               int64_t row_bytes, int rows, int dim, uint16_t *out)
{
    memset(out, 0, (size_t)round_up(dim, TILE_DEPTH) * TILE_ROWS * sizeof *out);
    for (int r = 0; r < rows; r++) {
        f->decode(from + r * row_bytes, w->rows, dim);
        for (int i = 0; i < dim; i++)
            out[(i / TILE_DEPTH * TILE_ROWS + r) * TILE_DEPTH + i % TILE_DEPTH] = bhalf_from_float(
                w->rows[i]);
    }
}

/* One side of the cache. */
struct side {
    const void *cache;
    const struct format *f;
    int dim;
};

static void unpack(const struct walk *w, const struct side *c, int position, int rows, uint16_t *out)
{
    const struct format_kernels *f = &w->t->job->b->k.format[c->f - FORMATS];
    const uint8_t *from = attention_cached(w->t, c->cache, c->f, c->dim, position);
    const int64_t row_bytes = format_row_bytes(c->f, c->dim);
    if (f->unpack_bf16)
        f->unpack_bf16(from, row_bytes, rows, c->dim, out);
    else
        unpack_by_decoding(w, f, from, row_bytes, rows, c->dim, out);
}

/* Positions at..at+15 to [dim / 32] tiles; those outside the piece become 0 and are not read. */
static void load_rows(const struct walk *w, const struct side *c, int at, uint16_t *out, uint16_t *spare)
{
    const int from = MAX(at, w->t->from), to = MIN(at + TILE_ROWS, w->t->to);
    const int64_t tiles = round_up(c->dim, TILE_DEPTH) / TILE_DEPTH;
    if (from == at && from < to && attention_stretch(w->t, from, TILE_ROWS) >= to - from) {
        unpack(w, c, from, to - from, out);
        return;
    }
    memset(out, 0, (size_t)(tiles * TILE) * sizeof *out);
    for (int p = from, n; p < to; p += n) { /* rows that are not the tile's first, or lie in several blocks */
        n = attention_stretch(w->t, p, to - p);
        unpack(w, c, p, n, spare);
        for (int64_t i = 0; i < tiles; i++)
            memcpy(out + i * TILE + (p - at) * TILE_DEPTH, spare + i * TILE,
                   (size_t)n * TILE_DEPTH * sizeof *out);
    }
}

/* The scales of formats that have one for each row; NULL for the others. */
static const float *load_scales(const struct walk *w, const struct side *c, int at, int tokens, float *out)
{
    if (!c->f->row_tail_bytes) return NULL;
    for (int i = 0; i < tokens; i++) {
        const bool here = at + i >= w->t->from && at + i < w->t->to;
        out[i] = here ? format_row_scale(c->f, attention_cached(w->t, c->cache, c->f, c->dim, at + i), c->dim)
                      : 0;
    }
    return out;
}

/* Tokens at.. (a multiple of 16) of a block; `steps` times 32 of them. */
static void load_block(struct walk *w, int at, int steps)
{
    const struct kv_layer *kv = w->t->job->p->kv;
    const struct side k = { kv->k, kv->k_format, kv->k_dim }, v = { kv->v, kv->v_format, kv->v_dim };
    uint16_t *second = w->loose + TILE_ROWS * w->v_dim,
             *spare = (uint16_t *)(w->rows + MAX(w->k_dim, w->v_dim));
    w->k_scale = load_scales(w, &k, at, steps * STEP, w->scales[0]);
    w->v_scale = load_scales(w, &v, at, steps * STEP, w->scales[1]);
    for (int i = 0; i < steps * STEP; i += TILE_ROWS)
        load_rows(w, &k, at + i, w->k + (int64_t)i * w->k_dim, spare);
    for (int i = 0; i < steps; i++) {
        load_rows(w, &v, at + i * STEP, w->loose, spare);
        load_rows(w, &v, at + i * STEP + TILE_ROWS, second, spare);
        w->t->job->b->k.attend.turn(w->loose, second, w->v_dim / TILE_DEPTH, w->v + i * TILE,
                                    (int64_t)steps * TILE);
    }
}

/* ---------------------------------------------------------------- queries */

static int group_queries(const struct walk *w, int g)
{
    return MIN((int)GROUP, w->t->queries - g * GROUP);
}

static void start(const struct walk *w)
{
    const struct attention *p = w->t->job->p;
    const int k_dim = p->kv->k_dim;
    /* Scores come out as powers of 2, or, with a cap, as what tanh takes. */
    const float by = p->softcap > 0 ? p->scale / p->softcap : p->scale * (float)M_LOG2E;
    for (int g = 0; g * GROUP < w->t->queries; g++) {
        const int n = group_queries(w, g);
        for (int q = 0; q < n; q++) {
            const float *x = attention_query(w->t, g * GROUP + q);
            for (int j = 0; j < k_dim; j++) w->rows[q * k_dim + j] = x[j] * by;
        }
        w->t->job->b->k.attend.pack(w->rows, k_dim, n, k_dim, w->q + (int64_t)g * GROUP * w->k_dim);
        for (int q = 0; q < GROUP; q++) {
            w->peak[g * GROUP + q] = -INFINITY;
            w->total[g * GROUP + q] = 0;
        }
    }
    memset(w->o, 0, (size_t)(round_up(w->t->queries, GROUP) * w->v_dim) * sizeof *w->o);
}

/* Group g over the block of tokens at.., as far as it may see them. */
static void attend_group(const struct walk *w, int g, int at, int steps)
{
    const struct attention_piece *t = w->t;
    const struct attention *p = t->job->p;
    const int n = group_queries(w, g), tokens = steps * STEP;
    int32_t first[GROUP], end[GROUP], from = tokens, to = 0, last_first = 0, first_end = tokens;
    for (int q = 0; q < GROUP; q++) {
        const int row = t->row + MIN(g * GROUP + q, t->queries - 1) / t->heads;
        first[q] = MAX(MAX(attention_first_position(p, row), t->from) - at, 0);
        end[q] = MIN(MIN(p->pos[row] + 1, t->to) - at, tokens);
        from = MIN(from, first[q]), last_first = MAX(last_first, first[q]);
        to = MAX(to, end[q]), first_end = MIN(first_end, end[q]);
    }
    if (from >= to) return;
    const int skip = from / STEP, used = (int)round_up(to, STEP) / STEP - skip;
    for (int q = 0; q < GROUP; q++) first[q] -= skip * STEP, end[q] -= skip * STEP;
    const bool all = last_first <= skip * STEP && first_end >= (skip + used) * STEP;
    t->job->b->k.attend.attend(&(struct attend){
        .q = w->q + (int64_t)g * GROUP * w->k_dim,
        .k = w->k + (int64_t)skip * STEP * w->k_dim,
        .v = w->v + skip * TILE,
        .v_stride = (int64_t)steps * TILE,
        .depth = w->k_dim / TILE_DEPTH,
        .v_dim = w->v_dim,
        .tokens = used * STEP,
        .queries = n,
        .first = all ? NULL : first,
        .end = all ? NULL : end,
        .k_scale = w->k_scale ? w->k_scale + skip * STEP : NULL,
        .v_scale = w->v_scale ? w->v_scale + skip * STEP : NULL,
        .softcap = p->softcap,
        .s = w->s,
        .p = w->p,
        .o = w->o + (int64_t)g * GROUP * w->v_dim,
        .peak = w->peak + g * GROUP,
        .total = w->total + g * GROUP,
    });
}

static void finish(const struct walk *w)
{
    const struct attention_piece *t = w->t;
    const int v_dim = t->job->p->kv->v_dim;
    for (int g = 0; g * GROUP < t->queries; g++) {
        const int n = group_queries(w, g);
        t->job->b->k.vec.transpose(w->o + (int64_t)g * GROUP * w->v_dim, GROUP, v_dim, n, w->rows, v_dim);
        for (int q = 0; q < n; q++) {
            const float *o = w->rows + (int64_t)q * v_dim;
            const float peak = w->peak[g * GROUP + q], total = w->total[g * GROUP + q];
            if (t->partial) {
                float *part = attention_partial_at(t, g * GROUP + q);
                part[0] = peak * (float)M_LN2;
                part[1] = total;
                memcpy(part + PARTIAL_HEAD, o, (size_t)v_dim * sizeof *o);
                continue;
            }
            float *y = attention_result(t, g * GROUP + q);
            const float by = 1 / total; /* every row sees at least itself */
            for (int j = 0; j < v_dim; j++) y[j] = o[j] * by;
        }
    }
}

void attention_tiles_run(const struct attention_piece *t, void *scratch)
{
    struct walk w = { .t = t };
    place(&w, scratch);
    start(&w);
    for (int at = t->from / STEP * STEP; at < t->to; at += w.tokens) {
        const int steps = (int)round_up(MIN(w.tokens, t->to - at), STEP) / STEP;
        load_block(&w, at, steps);
        for (int g = 0; g * GROUP < t->queries; g++) attend_group(&w, g, at, steps);
    }
    finish(&w);
}
