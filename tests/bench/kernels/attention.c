/* Attention over the paged cache. Prompts are reported in operations per second, decoding in bytes of K and V
 * per second. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/kernels/bench.h"

enum {
    HEADS = 32,
    KV_HEADS = 8,
    DIM_MAX = 128,
    BLOCK_TOKENS = 32,
};

/* Error of one output, relative to the largest value it is a mean of. */
static const double BOUND_HIGHEST = 5e-6, BOUND_MEDIUM = 0.05;

struct shape {
    const char *kind;
    int dim;                     /* of a head */
    int n, sequences, tokens;    /* timed: rows of each sequence, tokens each has at the end */
    int small_tokens;            /* with --small */
    int verify_n, verify_tokens; /* verified: odd, and short enough for binary64 */
};
static const struct shape SHAPES[] = {
    { "prompt", 64, 512, 1, 512, 128, 37, 101 }, { "verify", 64, 8, 1, 4096, 256, 5, 67 },
    { "decode", 64, 1, 1, 4096, 256, 1, 203 },   { "decode", 128, 1, 1, 4096, 256, 1, 203 },
    { "deep", 64, 1, 1, 32768, 256, 1, 203 }, /* larger than most caches */
    { "deep", 128, 1, 1, 32768, 256, 1, 203 },   { "batch", 64, 1, 16, 1024, 64, 1, 45 },
};
static const enum format_id CACHES[] = { FORMAT_F32, FORMAT_F16, FORMAT_BF16, FORMAT_Q8_0, FORMAT_Q4_0 };

/* A filled cache and queries for it. */
struct scene {
    struct backend *memory;
    struct kv_layer kv;
    int dim, width, kv_width; /* of a head, of all query heads, of all KV heads */
    int n, sequences, tokens, rows;
    int32_t *pos, *seq, **tables;
    float *k, *v; /* as stored and read back, [sequence][token][kv_width]; only where it is verified */
    float *q, *y; /* [rows][width], each ends at an unreadable page */
};

static size_t scene_floats(const struct scene *s)
{
    return (size_t)s->sequences * (size_t)s->tokens * (size_t)s->kv_width;
}

static void scene_free(struct scene *s)
{
    backend_free(s->memory, s->kv.k);
    backend_free(s->memory, s->kv.v);
    for (int q = 0; s->tables && q < s->sequences; q++) free(s->tables[q]);
    free(s->tables);
    free(s->pos);
    free(s->seq);
    free(s->k);
    free(s->v);
    guarded_free(s->q, (size_t)(s->rows * s->width) * sizeof(float));
    guarded_free(s->y, (size_t)(s->rows * s->width) * sizeof(float));
    free(s);
}

static bool scene_alloc(struct scene *s)
{
    const int blocks = (s->tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    const size_t half = (size_t)kv_layer_bytes(&s->kv) / 2, rows = (size_t)s->rows;
    s->kv.k = backend_alloc(s->memory, half);
    s->kv.v = backend_alloc(s->memory, half);
    s->k = malloc(scene_floats(s) * sizeof(float));
    s->v = malloc(scene_floats(s) * sizeof(float));
    s->q = guarded(rows * (size_t)s->width * sizeof(float));
    s->y = guarded(rows * (size_t)s->width * sizeof(float));
    s->pos = calloc(rows, sizeof *s->pos);
    s->seq = calloc(rows, sizeof *s->seq);
    s->tables = calloc((size_t)s->sequences, sizeof *s->tables);
    bool good = s->kv.k && s->kv.v && s->k && s->v && s->q && s->y && s->pos && s->seq && s->tables;
    for (int q = 0; good && q < s->sequences; q++) {
        good = (s->tables[q] = malloc((size_t)blocks * sizeof **s->tables)) != NULL;
        for (int j = 0; good && j < blocks; j++) /* interleaved and backwards, as a cache in use is */
            s->tables[q][j] = (blocks - 1 - j) * s->sequences + q;
    }
    return good;
}

static void scene_fill(struct scene *s)
{
    const struct format *f = s->kv.k_format;
    uint8_t bytes[1024];
    struct rng r = { 3 };
    for (size_t i = 0; i < scene_floats(s); i++) {
        s->k[i] = rng_gauss(&r, 1);
        s->v[i] = rng_gauss(&r, 1);
    }
    for (int i = 0; i < s->rows * s->width; i++) s->q[i] = rng_gauss(&r, 2);
    for (int i = 0; i < s->rows; i++) {
        s->seq[i] = i / s->n;
        s->pos[i] = s->tokens - s->n + i % s->n;
    }
    for (int q = 0; q < s->sequences; q++)
        for (int p = 0; p < s->tokens; p++) {
            const int32_t slot = s->tables[q][p / BLOCK_TOKENS] * BLOCK_TOKENS + p % BLOCK_TOKENS;
            float *k = s->k + ((int64_t)q * s->tokens + p) * s->kv_width;
            float *v = s->v + ((int64_t)q * s->tokens + p) * s->kv_width;
            backend_kv_store(s->memory,
                             &(struct kv_store){ &s->kv, k, v, s->kv_width, s->kv_width, 1, &slot });
            for (int h = 0; h < KV_HEADS; h++) { /* what the cache holds is the truth */
                f->encode(k + h * s->dim, bytes, s->dim);
                f->decode(bytes, k + h * s->dim, s->dim);
                f->encode(v + h * s->dim, bytes, s->dim);
                f->decode(bytes, v + h * s->dim, s->dim);
            }
        }
}

static struct scene *scene_new(struct backend *memory, const struct format *f, int dim, int n, int sequences,
                               int tokens)
{
    const int blocks = (tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    struct scene *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    *s = (struct scene){ .memory = memory,
                         .kv = { .k_format = f,
                                 .v_format = f,
                                 .kv_heads = KV_HEADS,
                                 .k_dim = dim,
                                 .v_dim = dim,
                                 .block_tokens = BLOCK_TOKENS,
                                 .blocks = blocks * sequences },
                         .dim = dim,
                         .width = HEADS * dim,
                         .kv_width = KV_HEADS * dim,
                         .n = n,
                         .sequences = sequences,
                         .tokens = tokens,
                         .rows = n * sequences };
    if (scene_alloc(s)) {
        scene_fill(s);
        return s;
    }
    scene_free(s);
    return NULL;
}

static void scene_run(const struct scene *s, struct backend *b)
{
    backend_attention(b, &(struct attention){ .kv = &s->kv,
                                              .q = s->q,
                                              .q_stride = s->width,
                                              .n = s->rows,
                                              .heads = HEADS,
                                              .pos = s->pos,
                                              .seq = s->seq,
                                              .tables = (const int32_t *const *)s->tables,
                                              .scale = 1 / sqrtf((float)s->dim),
                                              .y = s->y,
                                              .y_stride = s->width });
}

/* One head of one row in binary64. Returns the largest |v| it is a mean of. */
static double exact(const struct scene *s, int row, int head, double out[DIM_MAX])
{
    const float *q = s->q + (int64_t)row * s->width + head * s->dim;
    const int64_t at = (int64_t)s->seq[row] * s->tokens * s->kv_width + head / (HEADS / KV_HEADS) * s->dim;
    double score[1024], peak = -INFINITY, sum = 0, largest = 0;
    for (int d = 0; d < s->dim; d++) out[d] = 0;
    for (int p = 0; p <= s->pos[row]; p++) {
        score[p] = 0;
        for (int d = 0; d < s->dim; d++)
            score[p] += (double)q[d] * (double)s->k[at + (int64_t)p * s->kv_width + d] / sqrt(s->dim);
        peak = fmax(peak, score[p]);
    }
    for (int p = 0; p <= s->pos[row]; p++) sum += score[p] = exp(score[p] - peak);
    for (int p = 0; p <= s->pos[row]; p++)
        for (int d = 0; d < s->dim; d++) {
            const double v = (double)s->v[at + (int64_t)p * s->kv_width + d];
            out[d] += score[p] / sum * v;
            largest = fmax(largest, fabs(v));
        }
    return largest;
}

static void judge(struct line *l, struct scene *s, struct backend *b, double bound)
{
    for (int i = 0; i < s->rows * s->width; i++) s->y[i] = NAN;
    scene_run(s, b);
    for (int row = 0; row < s->rows; row++)
        for (int h = 0; h < HEADS; h++) {
            double want[DIM_MAX];
            const double largest = exact(s, row, h, want);
            for (int d = 0; d < s->dim; d++)
                line_judge(l,
                           fabs((double)s->y[(int64_t)row * s->width + h * s->dim + d] - want[d]) / largest,
                           bound);
        }
}

/* A scene is filled once and timed by every instruction set; the last line that uses it gives it back. */
struct timed {
    struct scene *s;
    struct backend *b;
    bool last;
};

static void run_timed(void *arg)
{
    const struct timed *i = arg;
    scene_run(i->s, i->b);
}

static void finish_timed(void *arg)
{
    struct timed *i = arg;
    if (i->last) scene_free(i->s);
    free(i);
}

static int time_it(struct bench *t, struct line *l, struct rig *r, struct backend *b, struct scene *s,
                   bool rounded)
{
    struct timed *i = malloc(sizeof *i);
    if (!i) return 1;
    *i = (struct timed){ s, b, false };
    l->arg = i;
    l->finish = finish_timed;
    l->run = run_timed;
    const bool prompt = s->n > 16;
    l->unit = prompt ? UNIT_OPS : UNIT_BYTES;
    l->work = prompt ? s->n * (s->tokens - (s->n - 1) / 2.0) * s->width * 2 * 2
                     : (double)kv_layer_bytes(&s->kv);
    const double tiles = rounded ? rig_ops_s(t, r, "bf16_tile") : NAN;
    l->limit = !prompt ? t->read_bytes_s : isnan(tiles) ? rig_ops_s(t, r, "f32_fma") : tiles;
    snprintf(l->shape, sizeof l->shape, "%d x %d at %d, %d", s->sequences, s->n, s->tokens, s->dim);
    return 0;
}

/* One shape and cache format through all rigs. */
static int add(struct bench *t, const struct shape *shape, const struct format *f, struct backend *memory)
{
    const int tokens = t->o.small ? shape->small_tokens : shape->tokens;
    struct scene *small = scene_new(memory, f, shape->dim, shape->verify_n, MIN(shape->sequences, 3),
                                    shape->verify_tokens),
                 *large = t->o.verify_only ? NULL
                                           : scene_new(memory, f, shape->dim, MIN(shape->n, tokens),
                                                       shape->sequences, tokens);
    int failed = !small || (!large && !t->o.verify_only);
    struct line *l = NULL;
    for (int r = 0; r < t->rigs && !failed; r++)
        for (int p = 0; p < MODES && !failed; p++) {
            struct backend *b = t->rig[r].backend[p];
            if (!b || p > MODE_MEDIUM) continue; /* of products only */
            if (!(l = bench_line(t))) return 1;
            l->kind = shape->kind;
            l->level = t->rig[r].level;
            l->format = f->name;
            l->precision = MODE_TABLE[p].name;
            l->n = shape->n;
            judge(l, small, b, p == MODE_MEDIUM ? BOUND_MEDIUM : BOUND_HIGHEST);
            if (large) failed = time_it(t, l, &t->rig[r], b, large, p == MODE_MEDIUM);
        }
    if (l && l->arg) ((struct timed *)l->arg)->last = true;
    if (small) scene_free(small);
    return failed;
}

int attention_add(struct bench *t)
{
    struct backend *memory = NULL;
    for (int p = 0; p < MODES && t->rigs; p++)
        if (t->rig[0].backend[p]) memory = t->rig[0].backend[p];
    for (size_t s = 0; s < COUNT_OF(SHAPES) && memory; s++)
        for (size_t f = 0; f < COUNT_OF(CACHES); f++)
            if (wanted(t, SHAPES[s].kind, FORMATS[CACHES[f]].name) &&
                add(t, &SHAPES[s], &FORMATS[CACHES[f]], memory))
                return 1;
    return 0;
}
