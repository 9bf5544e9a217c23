/* Matrix products: each format at each instruction set and precision, for one to many rows of activations. */
#include "tests/bench/kernels/bench.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bounds of kernels/README.md, "Precision". HIGHEST: error / sum |terms|. MEDIUM: squared error / squares of
 * the terms: 8 bits in blocks of 32 give 3e-5, under one scale a token 5e-5 to 8e-5, bf16 on both sides 6e-6;
 * few results scatter. */
static const double BOUND_HIGHEST = 1e-6, BOUND_HIGH = 3e-5, BOUND_MEDIUM = 2e-4;

static const int NS[] = { 1, 2, 3, 4, 5, 8, 16, 17, 33, 512 };
enum {
    FEW = 16,         /* up to here the limit is reading weights, beyond it arithmetic */
    SMALL_MOST = 49,  /* rows of activations that --small verifies with at most */
    ODD_ROWS = 37,    /* of the matrix that is verified */
    RUN_NS = 4000000, /* a run that is timed takes about this long */
    PROMPT_RUN_NS = 16000000,
    SMALL_RUN_NS = 500000,
    ROWS_LEAST = 16, /* weight rows of it */
};

/* What weights and activations hold while errors are looked for. */
enum content {
    ORDINARY,
    NO_WEIGHTS,
    NO_ACTIVATIONS,
    EXTREME,
    TINY_WEIGHTS,
    SUBNORMAL,
    ONE_NAN,
    ONE_INFINITY,
    CONTENTS
};
static const char *const CONTENT_NAMES[CONTENTS] = {
    [ORDINARY] = "ordinary", [NO_WEIGHTS] = "zero weights",   [NO_ACTIVATIONS] = "zero activations",
    [EXTREME] = "extremes",  [TINY_WEIGHTS] = "tiny weights", [SUBNORMAL] = "subnormal activations",
    [ONE_NAN] = "one NaN",   [ONE_INFINITY] = "one infinity",
};

/* One verified matrix: weights, activations and results each end at an unreadable page, and only the last n
 * rows of x and y are used. */
struct trial {
    const struct format *f;
    int64_t rows, cols;
    int most; /* rows of activations: the last n of them are a trial of n */
    enum content content;
    uint8_t *bytes;
    size_t size;
    float *x, *y;                     /* [most][cols], [most][rows] */
    float *w;                         /* what the bytes decode to */
    double *product, *terms, *powers; /* [most][rows]: sums of terms, magnitudes, squares */
};

static float weight_of(struct rng *r, enum content c)
{
    if (c == NO_WEIGHTS) return 0;
    if (c == EXTREME) return rng_u32(r) & 1 ? 1000.f : -1000.f;
    return rng_gauss(r, c == TINY_WEIGHTS ? 1e-6 : 0.05); /* tiny: f16 scales become subnormal */
}

static float activation_of(struct rng *r, enum content c)
{
    if (c == NO_ACTIVATIONS) return 0;
    if (c == EXTREME) return rng_u32(r) & 1 ? 500.f : -500.f;
    return rng_gauss(r, c == SUBNORMAL ? 1e-40 : 1);
}

static void solve(struct trial *t)
{
    for (int64_t i = 0; i < t->most; i++)
        for (int64_t r = 0; r < t->rows; r++) {
            double sum = 0, terms = 0, powers = 0;
            for (int64_t k = 0; k < t->cols; k++) {
                const double term = (double)t->x[i * t->cols + k] * (double)t->w[r * t->cols + k];
                sum += term, terms += fabs(term), powers += term * term;
            }
            t->product[i * t->rows + r] = sum;
            t->terms[i * t->rows + r] = terms;
            t->powers[i * t->rows + r] = powers;
        }
}

static void trial_free(struct trial *t)
{
    guarded_free(t->bytes, t->size);
    guarded_free(t->x, sizeof(float) * (size_t)(t->most * t->cols));
    guarded_free(t->y, sizeof(float) * (size_t)(t->most * t->rows));
    free(t->w);
    free(t->product);
}

static int trial_make(struct trial *t)
{
    const struct format *f = t->f;
    const int64_t rows = t->rows, cols = t->cols;
    const enum content c = t->content;
    struct rng r = { 17 + (uint64_t)c };
    const size_t results = (size_t)(t->most * rows);
    t->size = (size_t)(rows * format_row_bytes(f, cols));
    t->bytes = guarded(t->size);
    t->x = guarded(sizeof(float) * (size_t)(t->most * cols));
    t->y = guarded(sizeof(float) * results);
    t->w = malloc(sizeof(float) * (size_t)(rows * cols));
    t->product = malloc(3 * results * sizeof(double));
    if (!t->bytes || !t->x || !t->y || !t->w || !t->product) return 1;
    t->terms = t->product + results;
    t->powers = t->terms + results;
    for (int64_t i = 0; i < rows * cols; i++) t->w[i] = weight_of(&r, c);
    for (int64_t i = 0; i < t->most * cols; i++) t->x[i] = activation_of(&r, c);
    if (c == ONE_NAN || c == ONE_INFINITY) /* in the last row of activations, which every run multiplies */
        t->x[t->most * cols - 1 - cols / 3] = c == ONE_NAN ? NAN : -INFINITY;
    format_encode_rows(f, t->w, t->bytes, rows, cols);
    format_decode_rows(f, t->bytes, t->w, rows, cols);
    solve(t);
    return 0;
}

/* Errors that cannot be measured by the terms: a multiplier may take subnormals for 0, and zeros stored as
 * codes with an offset (up to 128) leave the rounding of the activations' sum. */
static double allowance(const struct trial *t)
{
    if (t->content == SUBNORMAL) return (double)t->cols * (double)FLT_MIN;
    return t->content == NO_WEIGHTS ? 1e-6 * (double)(t->cols + 128) : 0;
}

static void trial_judge(const struct trial *t, struct line *l, enum mode p, int n)
{
    const bool poisoned = t->content == ONE_NAN || t->content == ONE_INFINITY;
    const int64_t first = (t->most - n) * t->rows, end = (t->most - poisoned) * t->rows;
    double worst = 0, error = 0, power = 0;
    for (int64_t i = end; i < t->most * t->rows;
         i++) /* all results of a row that is not finite are not, too */
        if (isfinite(t->y[i])) worst = error = INFINITY;
    for (int64_t i = first; i < end; i++) {
        const double e = fmax(fabs((double)t->y[i] - t->product[i]) - allowance(t), 0);
        /* fmax drops a NaN: look at the result itself. */
        if (!isfinite(t->y[i])) worst = error = INFINITY;
        if (e > 0) worst = fmax(worst, e / t->terms[i]);
        error += e * e, power += t->powers[i];
    }
    if (p == MODE_MEDIUM || p == MODE_INT8 || p == MODE_INT8_TOKEN)
        line_judge(l, error > 0 ? error / power : 0, BOUND_MEDIUM * (1 + 16.0 / (double)(n * t->rows)));
    else
        line_judge(l, worst, p == MODE_HIGH ? BOUND_HIGH : BOUND_HIGHEST);
    for (int64_t i = 0; i < first; i++) /* nothing in front of the results was touched */
        if (t->y[i] != -77.f) line_judge(l, INFINITY, 1);
}

static void trial_run(struct trial *t, struct line *l, struct backend *b, enum mode p)
{
    struct weight w;
    const int n = MIN(l->n, t->most);
    l->trying = CONTENT_NAMES[t->content];
    float *y = t->y + (t->most - n) * t->rows;
    if (backend_weight_bind(b, &w, t->f, t->rows, t->cols, NULL, t->bytes, NULL)) {
        line_judge(l, INFINITY, 1);
        return;
    }
    for (int64_t i = 0; i < t->most * t->rows; i++) t->y[i] = -77.f;
    for (int64_t i = 0; i < n * t->rows; i++) y[i] = NAN;
    backend_matmul(b,
                   &(struct matmul){ .w = &w,
                                     .x = t->x + (t->most - n) * t->cols,
                                     .x_stride = t->cols,
                                     .n = n,
                                     .y = y,
                                     .y_stride = t->rows },
                   1);
    trial_judge(t, l, p, n);
    backend_weight_release(b, &w);
}

/* ---------------------------------------------------------------- timed */

struct product {
    struct bench *bench;
    struct backend *b;
    const struct format *f;
    int64_t rows, cols;
    int n, copies, turn; /* weights in a ring, so that decoding never finds them in a cache */
    struct weight w[64];
};

static void run_product(void *arg)
{
    struct product *p = arg;
    backend_matmul(p->b,
                   &(struct matmul){ .w = &p->w[p->turn++ % p->copies],
                                     .x = p->bench->x,
                                     .x_stride = p->cols,
                                     .n = p->n,
                                     .y = p->bench->y,
                                     .y_stride = p->rows },
                   1);
}

static bool bind(struct product *p, int64_t rows)
{
    const int64_t bytes = rows * format_row_bytes(p->f, p->cols);
    p->rows = rows;
    p->copies = p->n <= FEW ? (int)MAX((int64_t)1, MIN((int64_t)COUNT_OF(p->w), p->bench->bytes_size / bytes))
                            : 1;
    for (int c = 0; c < p->copies; c++)
        if (backend_weight_bind(p->b, &p->w[c], p->f, rows, p->cols, NULL, p->bench->bytes + c * bytes, NULL))
            return false;
    return true;
}

static int64_t time_once(struct product *p)
{
    run_product(p); /* caches and page tables */
    const int64_t start = bench_now_ns(p->bench);
    run_product(p);
    return MAX(bench_now_ns(p->bench) - start, (int64_t)1);
}

/* As many weight rows as a run of RUN_NS has time for: the reference is a thousand times slower than tiles.
 * In steps, because packing the activations costs the same for any number of weight rows. */
static bool size_product(struct product *p, int64_t most)
{
    enum { STEP = 4 };
    const int64_t run_ns = p->bench->o.small ? SMALL_RUN_NS : p->n <= FEW ? RUN_NS : PROMPT_RUN_NS;
    int64_t rows = ROWS_LEAST, before = 0;
    while (rows != before) {
        if (!bind(p, rows)) return false;
        const int64_t fit = rows * run_ns / time_once(p) / ROWS_LEAST * ROWS_LEAST;
        before = rows;
        rows = MIN(MIN(MAX(fit, rows), STEP * rows), most);
    }
    return true;
}

static const char *ceiling_of(const struct rig *r, const struct format *f, enum mode p)
{
    return matmul_ceiling(f, &(struct backend_options){ .isa = r->level->bits,
                                                        .precision = MODE_TABLE[p].precision,
                                                        .activations = MODE_TABLE[p].activations });
}

static int line_time(struct bench *t, struct line *l, struct rig *r, const struct format *f, enum mode p,
                     int64_t cols)
{
    struct product *item = calloc(1, sizeof *item);
    if (!item) return 1;
    *item = (struct product){ .bench = t, .b = r->backend[p], .f = f, .cols = cols, .n = l->n };
    l->arg = item;
    l->finish = free;
    if (!size_product(item, t->o.small ? 1024 : COLS_MAX * 2048 / cols)) return 0; /* verification says why */
    const bool few = l->n <= FEW;
    l->run = run_product;
    l->unit = few ? UNIT_BYTES : UNIT_OPS;
    l->work = few ? (double)(item->rows * format_row_bytes(f, cols))
                  : 2.0 * (double)item->rows * (double)cols * l->n;
    l->limit = few ? t->read_bytes_s : rig_ops_s(t, r, ceiling_of(r, f, p));
    snprintf(l->shape, sizeof l->shape, "%lldx%lld", (long long)item->rows, (long long)cols);
    return 0;
}

/* ---------------------------------------------------------------- the lines */

/* The same functions as at the level before: nothing new to verify or to time. */
static bool same_product(const struct rig *a, const struct rig *b, int f)
{
    struct kernel_set x = a->kernels, y = b->kernels;
    const struct format_kernels fx = x.format[f], fy = y.format[f];
    x.isa = y.isa = 0;
    memset(&x.vec, 0, sizeof x.vec);
    memset(&y.vec, 0, sizeof y.vec);
    memset(x.format, 0, sizeof x.format);
    memset(y.format, 0, sizeof y.format);
    if (f != FORMAT_INT8) {
        x.w8a8_dot = y.w8a8_dot, x.gemm_w8a8 = y.gemm_w8a8;
        x.rounding = y.rounding;
    }
    x.format[f] = fx;
    y.format[f] = fy;
    return !memcmp(&x, &y, sizeof x);
}

/* Whether a mode computes otherwise than the ones before it. */
static bool differs(const struct rig *r, int f, enum mode p)
{
    const struct format *format = &FORMATS[f];
    if (p == MODE_HIGHEST) return true;
    if (p == MODE_HIGH) return strcmp(ceiling_of(r, format, p), ceiling_of(r, format, MODE_HIGHEST)) != 0;
    if (p == MODE_INT8_TOKEN) return f == FORMAT_INT8;
    if (p == MODE_INT8) return strcmp(ceiling_of(r, format, p), ceiling_of(r, format, MODE_MEDIUM)) != 0;
    return r->kernels.format[f].dot_q8 || strcmp(ceiling_of(r, format, p), "f32_fma") != 0;
}

static bool wants_rows(const struct bench *t, int n)
{
    char word[16];
    snprintf(word, sizeof word, "%d", n);
    if (t->o.rows) return listed(t->o.rows, word);
    return !t->o.small || n == 1 || n == 4 || n == 17 || n == 512;
}

static int add_rig(struct bench *t, struct rig *r, int f)
{
    static const int64_t COLS[] = { 2048, 8192 };
    for (int p = 0; p < MODES; p++) {
        if (!r->backend[p] || !differs(r, f, (enum mode)p)) continue;
        for (size_t i = 0; i < COUNT_OF(NS); i++) {
            if (!wants_rows(t, NS[i])) continue;
            const bool twice = NS[i] == 512 && p == MODE_MEDIUM && !t->o.small;
            for (size_t c = 0; c < (twice ? COUNT_OF(COLS) : 1); c++) {
                struct line *l = bench_line(t);
                if (!l) return 1;
                l->kind = "product";
                l->level = r->level;
                l->format = FORMATS[f].name;
                l->precision = MODE_TABLE[p].name;
                l->n = NS[i];
                if (!t->o.verify_only && line_time(t, l, r, &FORMATS[f], (enum mode)p, COLS[c])) return 1;
            }
        }
    }
    return 0;
}

static struct rig *rig_of(struct bench *t, const struct isa_level *level)
{
    struct rig *r = t->rig;
    while (r->level != level) r++;
    return r;
}

static enum mode mode_of(const char *name)
{
    int p = 0;
    while (strcmp(MODE_TABLE[p].name, name) != 0) p++;
    return (enum mode)p;
}

/* All contents through all lines of one format: encoding and the exact product are made once. */
static int verify(struct bench *t, const struct format *f, int first)
{
    const int64_t block = f->block_weights;
    const int64_t shapes[][2] = { { ODD_ROWS, block == 1 ? 331 : block * (block > 64 ? 3 : 7) },
                                  { 1, block } };
    for (size_t s = 0; s < COUNT_OF(shapes); s++)
        for (int c = 0; c < CONTENTS; c++) {
            struct trial trial = { .f = f,
                                   .rows = shapes[s][0],
                                   .cols = shapes[s][1],
                                   .most = t->o.small ? SMALL_MOST : PRODUCT_ROWS_MAX,
                                   .content = (enum content)c };
            int failed = trial_make(&trial);
            for (int i = first; i < t->count && !failed; i++) {
                const enum mode p = mode_of(t->line[i].precision);
                trial_run(&trial, &t->line[i], rig_of(t, t->line[i].level)->backend[p], p);
            }
            trial_free(&trial);
            if (failed) return 1;
        }
    return 0;
}

int products_add(struct bench *t)
{
    for (int f = 0; f < FORMAT_COUNT; f++) {
        if (!FORMATS[f].decode || !FORMATS[f].encode || !wanted(t, "product", FORMATS[f].name)) continue;
        const int first = t->count;
        for (int r = 0; r < t->rigs; r++) {
            if (r && same_product(&t->rig[r - 1], &t->rig[r], f)) continue;
            if (add_rig(t, &t->rig[r], f)) return 1;
        }
        if (verify(t, &FORMATS[f], first)) return 1;
    }
    return 0;
}
