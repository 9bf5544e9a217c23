/* telemetry/probe_kernels.c - how long our own kernels take here, one operation at a time.
 *
 * Each operation is run through the backend as the engine runs it, with weights that stay in a cache, and for
 * one row also with weights that do not; all in what looks at the machine took beside it (stopwatch.h), in
 * several passes over all formats. The commonest settings come first, so that a short time gives what most
 * predictions stand on. */
#include "telemetry/stopwatch.h"
#include "telemetry/telemetry.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    WIDE = 2048,      /* a square matrix like those of a model of a billion weights */
    SMALL_COLS = 256, /* and one like those of a few million */
    SMALL_ROWS = 768,
    ROWS_MOST = 512,
    HEAD_DIM = 64,
    KV_BLOCK = 32,
    DEPTH = 1024,
    PASSES = STOPWATCH_SAMPLES / STOPWATCH_RUNS,
};
static const double DEFAULT_SECONDS = 55, READ_S = 0.05;
static const int64_t BANK_BYTES = INT64_C(256) << 20, FAR_BYTES = INT64_C(128) << 20;
/* A small number in every format of floating-point numbers and of scales: nothing denormal, no NAN. */
enum { BANK_BYTE = 0x2c };

struct bench {
    struct kernel_times *out;
    uint32_t isa;
    int threads[2];
    double begun_s, deadline_s;
    kernel_progress_fn *progress;
    void *ctx;
    bool cancelled;
    float *x, *y;   /* [ROWS_MOST][WIDE * 2] */
    uint8_t *small; /* one matrix of WIDE x WIDE, f32 at most */
    uint8_t *bank;  /* BANK_BYTES */
    float *numbers; /* [WIDE] N(0, 1) or near it */
    struct samples one[FORMAT_COUNT][2], most[FORMAT_COUNT][2], stream[FORMAT_COUNT][2], far[FORMAT_COUNT][2],
        read[KERNEL_READS][2];
    float deep[FORMAT_COUNT][2], shallow[FORMAT_COUNT][2]; /* one row's look at DEPTH tokens, at an eighth */
    struct backend *backend[2]; /* with what is usual; others are opened while they are timed */
    struct stopwatch *watch[2]; /* of these: what it told becomes seconds at best in put_seconds */
};

static double now_s(void)
{
    return (double)clock_ns() * 1e-9;
}

static bool time_is_left(struct bench *b, const char *what)
{
    const double now = now_s();
    if (b->progress && !b->progress(b->ctx, what, (now - b->begun_s) / (b->deadline_s - b->begun_s)))
        b->cancelled = true;
    return !b->cancelled && now < b->deadline_s;
}

static bool usable(double s)
{
    return s > 0 && isfinite(s);
}

/* The lesser of what was known and what a further pass found. */
static void keep_least(float *to, double s)
{
    if (usable(s) && (!(*to > 0) || s < (double)*to)) *to = (float)s;
}

/* The middle of all passes so far. */
static void keep_middle(float *to, struct samples *all, double s)
{
    samples_add(all, s);
    if (usable(samples_middle(all))) *to = (float)samples_middle(all);
}

/* ---------------------------------------------------------------- products */

struct product {
    struct backend *backend;
    struct matmul m;
    struct weight *weights; /* taken in turns: [n] */
    int n;
};

static void run_products(void *arg)
{
    struct product *p = arg;
    for (int i = 0; i < p->n; i++) {
        p->m.w = &p->weights[i];
        backend_matmul(p->backend, &p->m, 1);
    }
}

/* Fill rows with one encoded row: speed does not depend on the numbers. */
static void fill_rows(const struct bench *b, const struct format *f, uint8_t *to, int64_t rows, int64_t cols)
{
    const int64_t bytes = format_row_bytes(f, cols);
    format_encode_rows(f, b->numbers, to, 1, cols);
    for (int64_t i = 1; i < rows; i++) memcpy(to + i * bytes, to, (size_t)bytes);
}

struct shape {
    int64_t rows, cols;
    int n; /* of x */
};

static struct backend_options options_of(const struct bench *b, enum kernel_variant v, int t)
{
    static const enum precision PRECISION[KERNEL_VARIANTS] = { PRECISION_AUTO, PRECISION_HIGHEST,
                                                               PRECISION_HIGH, PRECISION_MEDIUM,
                                                               PRECISION_AUTO };
    const bool int8 = v == KERNEL_VARIANT_INT8;
    return (struct backend_options){ .threads = b->threads[t],
                                     .isa = b->isa,
                                     .precision = PRECISION[v],
                                     .activations = int8 ? ACTIVATIONS_INT8 : ACTIVATIONS_AUTO };
}

static double feels(const struct bench *b, const struct format *f, enum kernel_variant v, int rows)
{
    const struct backend_options o = options_of(b, v, 0);
    return kernel_feels(f, &o, rows);
}

/* Seconds of one product (stopwatch_computing); NAN where the format cannot be run so. */
static double product_s(struct bench *b, struct backend *backend, const struct format *f,
                        enum kernel_variant v, struct shape shape, int t)
{
    struct weight w;
    if (shape.cols % f->block_weights) return NAN;
    fill_rows(b, f, b->small, shape.rows, shape.cols);
    if (backend_weight_bind(backend, &w, f, shape.rows, shape.cols, NULL, b->small, NULL)) return NAN;
    struct product p = {
        .backend = backend,
        .m = { .x = b->x, .x_stride = shape.cols, .n = shape.n, .y = b->y, .y_stride = shape.rows },
        .weights = &w,
        .n = 1,
    };
    const double s = stopwatch_computing(b->watch[t], backend, run_products, &p, feels(b, f, v, shape.n));
    backend_weight_release(backend, &w);
    return s;
}

/* One row through matrices that do not fit in a cache together: bytes that are read in the time of one
 * weight. The bank's bytes are no numbers of that format; speed does not depend on them. */
static void measure_stream(struct bench *b, struct backend *backend, int format, int t)
{
    const struct format *f = &FORMATS[format];
    const int64_t bytes = format_row_bytes(f, WIDE) * WIDE;
    const int n = (int)(BANK_BYTES / bytes);
    struct weight *w = calloc((size_t)n, sizeof *w);
    if (!w) return;
    struct product p = {
        .backend = backend,
        .m = { .x = b->x, .x_stride = WIDE, .n = 1, .y = b->y, .y_stride = WIDE },
        .weights = w,
    };
    while (p.n < n &&
           !backend_weight_bind(backend, &w[p.n], f, WIDE, WIDE, NULL, b->bank + p.n * bytes, NULL))
        p.n++;
    if (p.n == n)
        stopwatch_reading(b->watch[t], backend, &b->stream[format][t], run_products, &p,
                          (double)n * WIDE * WIDE);
    for (int i = 0; i < p.n; i++) backend_weight_release(backend, &w[i]);
    free(w);
}

/* What two shapes say: a product takes `edge` per row and element of input and output, and `weight` per
 * weight. */
static void fit_edge(const struct bench *b, int f, int t, double small)
{
    const double n = ROWS_MOST, large = b->out->product[f][0][KERNEL_ROWS - 1][t] * (double)WIDE * WIDE;
    const double small_edge = n * (SMALL_COLS + SMALL_ROWS), large_edge = n * 2 * WIDE;
    const double small_weights = (double)SMALL_COLS * SMALL_ROWS, large_weights = (double)WIDE * WIDE;
    const double rest = small - large * small_weights / large_weights;
    const double edge = rest / (small_edge - large_edge * small_weights / large_weights);
    const double most = 0.5 * large / large_edge;
    b->out->edge[f][t] = (float)(edge > 0 ? fmin(edge, most) : 1e-6 * most);
}

/* `ends`: of one row and of most, which decoding and prompts stand on; else of all. */
static void measure_products(struct bench *b, struct backend *backend, int f, enum kernel_variant v, int t,
                             bool ends)
{
    const struct format *format = &FORMATS[f];
    for (int r = 0; r < KERNEL_ROWS; r++) {
        const struct shape square = { WIDE, WIDE, KERNEL_ROWS_AT[r] };
        if (ends && r != 0 && r != KERNEL_ROWS - 1) continue;
        const double s = product_s(b, backend, format, v, square, t) / WIDE / WIDE;
        if (v == KERNEL_VARIANT_AUTO && (!r || r == KERNEL_ROWS - 1))
            keep_middle(&b->out->product[f][v][r][t], &(r ? b->most : b->one)[f][t], s);
        else
            keep_least(&b->out->product[f][v][r][t], s);
    }
    if (ends) return;
    const double small = product_s(b, backend, format, v, (struct shape){ SMALL_ROWS, SMALL_COLS, ROWS_MOST },
                                   t);
    if (usable(small) && b->out->product[f][v][KERNEL_ROWS - 1][t] > 0) fit_edge(b, f, t, small);
}

/* Of the time of one thread, what all take. NAN: not measured. */
static double scaling(const struct bench *b, int f, int r)
{
    const float *pair = b->out->product[f][KERNEL_VARIANT_AUTO][r];
    return pair[0] > 0 && pair[1] > 0 ? (double)pair[1] / (double)pair[0] : NAN;
}

/* A second when the machine did other work spoils all that is timed in it. Then these threads take longer
 * than others, of what the same takes in other formats. */
static bool disturbed(const struct bench *b, int f, int t)
{
    const double TOO_LONG = 1.15;
    for (int r = 0; r < KERNEL_ROWS; r++) {
        double all[FORMAT_COUNT];
        int n = 0;
        for (int i = 0; i < FORMAT_COUNT; i++)
            if (!isnan(scaling(b, i, r))) all[n++] = scaling(b, i, r);
        const double here = scaling(b, f, r), usual = pace_usual_s(all, n);
        if (t ? here > TOO_LONG * usual : here * TOO_LONG < usual) return true;
    }
    return false;
}

/* A product of hardly any weights: what is left is the cost of asking the threads. */
static void measure_region(struct bench *b, struct backend *backend, int t)
{
    const struct format *f = &FORMATS[FORMAT_Q8_0];
    const double tiny = product_s(b, backend, f, KERNEL_VARIANT_AUTO, (struct shape){ 256, SMALL_COLS, 1 },
                                  t);
    const double per_weight = b->out->product[FORMAT_Q8_0][0][0][t];
    if (usable(tiny)) b->out->region[t] = (float)fmax(tiny - per_weight * 256 * SMALL_COLS, 0.05 * tiny);
}

/* ---------------------------------------------------------------- attention and the rest of a layer */

struct looking {
    struct backend *backend;
    struct kv_layer kv;
    struct attention a;
    struct norm norm;
    struct rope rope;
    struct kv_store store;
    int32_t *table, pos[ROWS_MOST], seq[ROWS_MOST], slots[ROWS_MOST]; /* table: [kv.blocks] */
    const int32_t *tables[1];
    float freq[HEAD_DIM / 2];
};

static void run_attention(void *arg)
{
    struct looking *l = arg;
    backend_attention(l->backend, &l->a);
}

static bool looking_open(struct looking *l, struct bench *b, struct backend *backend, const struct format *f,
                         int64_t bytes)
{
    memset(l, 0, sizeof *l);
    if (HEAD_DIM % f->block_weights || !f->encode || !f->decode) return false;
    const int64_t block_bytes = KV_BLOCK * KERNEL_KV_HEADS *
                                format_row_bytes(f, HEAD_DIM); /* of K, and of V */
    l->backend = backend;
    l->kv = (struct kv_layer){ .k_format = f,
                               .v_format = f,
                               .kv_heads = KERNEL_KV_HEADS,
                               .k_dim = HEAD_DIM,
                               .v_dim = HEAD_DIM,
                               .block_tokens = KV_BLOCK,
                               .blocks = (int)MAX((DEPTH + ROWS_MOST) / KV_BLOCK + 1,
                                                  bytes / 2 / block_bytes) };
    l->kv.k = backend_alloc(backend, (size_t)(l->kv.blocks * block_bytes));
    l->kv.v = backend_alloc(backend, (size_t)(l->kv.blocks * block_bytes));
    l->table = calloc((size_t)l->kv.blocks, sizeof *l->table);
    for (int i = 0; l->table && i < l->kv.blocks; i++) l->table[i] = i;
    for (int i = 0; i < ROWS_MOST; i++) l->pos[i] = l->slots[i] = i;
    l->tables[0] = l->table;
    l->a = (struct attention){ .kv = &l->kv,
                               .q = b->x,
                               .q_stride = WIDE,
                               .heads = KERNEL_HEADS,
                               .pos = l->pos,
                               .seq = l->seq,
                               .tables = l->tables,
                               .scale = 0.125f,
                               .y = b->y,
                               .y_stride = WIDE };
    return l->kv.k && l->kv.v && l->table;
}

static void looking_close(struct looking *l)
{
    backend_free(l->backend, l->kv.k);
    backend_free(l->backend, l->kv.v);
    free(l->table);
}

static void measure_attention(struct bench *b, struct backend *backend, int f, enum kernel_variant v, int t)
{
    static const int LIKE[KERNEL_VARIANTS] = { FORMAT_Q4_0, FORMAT_F32, FORMAT_F16, FORMAT_Q4_0,
                                               FORMAT_Q4_0 };
    struct looking l;
    if (looking_open(&l, b, backend, &FORMATS[f], 0)) {
        l.a.like = &FORMATS[LIKE[v]];
        l.a.n = ROWS_MOST;
        const double pairs = 0.5 * ROWS_MOST * (ROWS_MOST + 1);
        const double many = stopwatch_computing(b->watch[t], backend, run_attention, &l,
                                                KERNEL_FEELS_ATTENTION) /
                            pairs / (KERNEL_HEADS * HEAD_DIM);
        keep_least(&b->out->attend_many[f][v][t], many);
        if (v == KERNEL_VARIANT_AUTO) {
            l.a.n = 1;
            l.pos[0] = DEPTH - 1;
            keep_least(&b->deep[f][t], stopwatch_computing(b->watch[t], backend, run_attention, &l, 1));
            l.pos[0] = DEPTH / 8 - 1;
            keep_least(&b->shallow[f][t], stopwatch_computing(b->watch[t], backend, run_attention, &l, 1));
            const double one = (double)(b->deep[f][t] - b->shallow[f][t]) / (DEPTH - DEPTH / 8) /
                               (KERNEL_HEADS * HEAD_DIM);
            if (usable(one)) b->out->attend_one[f][t] = (float)one;
        }
    }
    if (l.backend) looking_close(&l);
}

/* One row at a time, each at other tokens, so that none of them is in a cache: as layers come, with all their
 * weights between one and the next. */
static void run_far(void *arg)
{
    struct looking *l = arg;
    for (int first = 0; first + DEPTH / KV_BLOCK <= l->kv.blocks; first += DEPTH / KV_BLOCK) {
        l->tables[0] = l->table + first;
        run_attention(l);
    }
}

static void measure_far(struct bench *b, struct backend *backend, int f, int t)
{
    struct looking l;
    if (looking_open(&l, b, backend, &FORMATS[f], FAR_BYTES)) {
        const double tokens = (double)(l.kv.blocks / (DEPTH / KV_BLOCK)) * DEPTH;
        l.a.n = 1;
        l.pos[0] = DEPTH - 1;
        stopwatch_reading(b->watch[t], backend, &b->far[f][t], run_far, &l,
                          tokens * (KERNEL_HEADS * HEAD_DIM));
    }
    if (l.backend) looking_close(&l);
}

/* What a layer does beside products and looking far back. */
static void run_glue(void *arg)
{
    struct looking *l = arg;
    backend_norm(l->backend, &l->norm);
    backend_rope(l->backend, &l->rope);
    backend_rope(l->backend, &l->rope);
    backend_kv_store(l->backend, &l->store);
    backend_attention(l->backend, &l->a);
    backend_norm(l->backend, &l->norm);
}

static void measure_glue(struct bench *b, struct backend *backend, int t)
{
    struct looking l;
    double s[2] = { NAN, NAN };
    const int rows[2] = { 1, 64 };
    if (looking_open(&l, b, backend, &FORMATS[FORMAT_F16], 0)) {
        for (int i = 0; i < 2; i++) {
            const int n = rows[i];
            for (int k = 0; k < n; k++) l.pos[k] = 0;
            l.norm = (struct norm){ .kind = NORM_RMS,
                                    .x = b->x,
                                    .x_stride = WIDE,
                                    .n = n,
                                    .cols = WIDE,
                                    .w = b->numbers,
                                    .eps = 1e-5f,
                                    .y = b->y,
                                    .y_stride = WIDE };
            l.rope = (struct rope){ .x = b->y,
                                    .x_stride = WIDE,
                                    .n = n,
                                    .heads = KERNEL_HEADS / 2,
                                    .head_dim = HEAD_DIM,
                                    .rot_dims = HEAD_DIM,
                                    .freq = l.freq,
                                    .magnitude = 1,
                                    .pos = l.pos };
            l.store = (struct kv_store){ .kv = &l.kv,
                                         .k = b->x,
                                         .v = b->x,
                                         .k_stride = WIDE,
                                         .v_stride = WIDE,
                                         .n = n,
                                         .slots = l.slots };
            l.a.n = n;
            s[i] = stopwatch_computing(b->watch[t], backend, run_glue, &l, 1);
        }
        const double per = (s[1] - s[0]) / (rows[1] - rows[0]);
        if (usable(per)) b->out->glue_element[t] = (float)(per / WIDE);
        if (usable(s[0])) b->out->glue[t] = (float)fmax(s[0] - (usable(per) ? per : 0), 0.05 * s[0]);
    }
    if (l.backend) looking_close(&l);
}

/* ---------------------------------------------------------------- all of it */

/* What took `looks` at memory, as if cores had been at their best: what is waited for is what both together
 * took at that moment less what computing took then. */
struct moment_of_reading {
    double usual_s; /* of a look at memory */
    double slower;  /* cores took so many times what they take at best */
};

static double from_memory(const struct moment_of_reading *m, double looks, double computing_s)
{
    return kernel_time_together(computing_s,
                                kernel_time_waiting(looks * m->usual_s, computing_s * m->slower));
}

static void put_streams(struct bench *b, int t, const struct moment_of_reading *m)
{
    struct kernel_times *k = b->out;
    const double look_s = from_memory(m, 1, (double)k->product[FORMAT_Q8_0][KERNEL_VARIANT_AUTO][0][t]);
    if (usable(look_s)) k->pace[t] = (float)(1 / look_s);
    for (int f = 0; f < FORMAT_COUNT; f++) {
        const double weight = from_memory(m, samples_middle(&b->stream[f][t]),
                                          (double)k->product[f][KERNEL_VARIANT_AUTO][0][t]);
        const double pair = from_memory(m, samples_middle(&b->far[f][t]), (double)k->attend_one[f][t]);
        if (usable(weight)) k->stream[f][t] = (float)weight;
        if (usable(pair)) k->attend_far[f][t] = (float)pair;
    }
}

static void scale(float *s, double by)
{
    *s = (float)((double)*s * by);
}

/* All of them as if the machine had been one and the same: memory as it usually was, cores at their best. */
static void put_seconds(struct bench *b, int t)
{
    struct kernel_times *k = b->out;
    struct stopwatch *w = b->watch[t];
    const double best_s = stopwatch_best_compute_s(w), fully = best_s / w->first_s;
    if (!usable(best_s)) return; /* nothing was timed */
    k->compute[t] = (float)(1 / best_s);
    for (int f = 0; f < FORMAT_COUNT; f++) {
        for (int v = 0; v < KERNEL_VARIANTS; v++) {
            for (int r = 0; r < KERNEL_ROWS; r++)
                scale(&k->product[f][v][r][t], pow(fully, feels(b, &FORMATS[f], v, KERNEL_ROWS_AT[r])));
            scale(&k->attend_many[f][v][t], pow(fully, KERNEL_FEELS_ATTENTION));
        }
        scale(&k->edge[f][t], pow(fully, feels(b, &FORMATS[f], KERNEL_VARIANT_AUTO, ROWS_MOST)));
        scale(&k->attend_one[f][t], fully);
    }
    scale(&k->region[t], fully);
    scale(&k->glue[t], fully);
    scale(&k->glue_element[t], fully);
    put_streams(b, t,
                &(struct moment_of_reading){ .usual_s = stopwatch_usual_read_s(w),
                                             .slower = fmax(stopwatch_usual_beside_s(w) / best_s, 1) });
}

static enum err_code bench_backend(struct backend **out, const struct bench *b, enum kernel_variant v, int t,
                                   struct err *why)
{
    const struct backend_options o = options_of(b, v, t);
    enum err_code rc = backend_open(out, "cpu", &o, why);
    if (!rc) rc = backend_reserve(*out, &(struct backend_work){ .rows = ROWS_MOST, .cols = WIDE }, why);
    if (rc) {
        backend_close(*out);
        *out = NULL;
    }
    return rc;
}

/* `again`: a further pass over what decoding stands on, and what looks disturbed. */
static void measure_formats(struct bench *b, struct backend *backend, enum kernel_variant v, int t,
                            bool again)
{
    char what[96];
    for (int f = 0; f < FORMAT_COUNT; f++) {
        if (!FORMATS[f].encode || !FORMATS[f].decode) continue;
        snprintf(what, sizeof what, "%s%s, %s, %d thread%s", FORMATS[f].name, again ? " again" : "",
                 KERNEL_VARIANT_NAMES[v], b->threads[t], b->threads[t] == 1 ? "" : "s");
        if (!time_is_left(b, what)) return;
        measure_products(b, backend, f, v, t, v != KERNEL_VARIANT_AUTO || (again && !disturbed(b, f, t)));
        if (v == KERNEL_VARIANT_AUTO) measure_stream(b, backend, f, t);
    }
}

static void measure_rest(struct bench *b, struct backend *backend, enum kernel_variant v, int t, bool again)
{
    /* what caches of conversations are kept in, the two commonest first */
    static const int KV[] = {
        FORMAT_F16, FORMAT_Q8_0, FORMAT_Q4_0, FORMAT_F32, FORMAT_BF16, FORMAT_FP8_E4M3
    };
    const size_t most = again ? 2 : v == KERNEL_VARIANT_AUTO ? COUNT_OF(KV) : 1;
    for (size_t i = 0; i < most && time_is_left(b, "attention"); i++) {
        measure_attention(b, backend, KV[i], v, t);
        if (v == KERNEL_VARIANT_AUTO) measure_far(b, backend, KV[i], t);
    }
    if (again || v != KERNEL_VARIANT_AUTO) return;
    measure_region(b, backend, t);
    measure_glue(b, backend, t);
}

static void measure_reads(struct bench *b, int t)
{
    const struct ceiling_reading all = { .threads = b->threads[t] };
    for (int i = 0; i < KERNEL_READS && time_is_left(b, "memory read"); i++) {
        samples_add(&b->read[i][t], 1 / ceiling_read_bytes_s(&all, KERNEL_READ_AT[i], READ_S));
        const double speed = 1 / samples_middle(&b->read[i][t]);
        if (usable(speed)) b->out->read[i][t] = (float)speed;
    }
}

static enum err_code measure_variant(struct bench *b, enum kernel_variant v, int t, bool again,
                                     struct err *why)
{
    struct backend *backend = b->backend[t];
    enum err_code rc = v == KERNEL_VARIANT_AUTO ? ERR_OK : bench_backend(&backend, b, v, t, why);
    if (rc) return rc;
    measure_formats(b, backend, v, t, again);
    measure_rest(b, backend, v, t, again);
    if (v == KERNEL_VARIANT_AUTO)
        measure_reads(b, t);
    else
        backend_close(backend);
    return ERR_OK;
}

static void fill_numbers(float *x, int64_t n)
{
    uint64_t seed = 88172645463325252u;
    for (int64_t i = 0; i < n; i++) {
        double sum = -6;
        for (int k = 0; k < 12; k++) { /* twelve uniform numbers are near enough to a normal one */
            seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
            sum += (double)(seed >> 11) * 0x1p-53;
        }
        x[i] = (float)sum;
    }
}

static enum err_code bench_memory(struct bench *b, struct err *why)
{
    const size_t rows = sizeof(float) * ROWS_MOST * WIDE;
    b->x = aligned_alloc(64, rows);
    b->y = aligned_alloc(64, rows);
    b->small = aligned_alloc(64, sizeof(float) * WIDE * WIDE);
    b->numbers = aligned_alloc(64, sizeof(float) * WIDE);
    b->bank = mmap(NULL, (size_t)BANK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->bank == MAP_FAILED) b->bank = NULL;
    if (!b->x || !b->y || !b->small || !b->numbers || !b->bank)
        return err_set(why, ERR_NOMEM, "measuring the kernels takes 600 MB of memory");
    /* A model of four formats decoded in what streams through huge pages take, within 3 %, and in up to 4 %
     * less than through plain ones. */
    madvise(b->bank, (size_t)BANK_BYTES, MADV_HUGEPAGE); /* only a hint */
    memset(b->bank, BANK_BYTE, (size_t)BANK_BYTES);
    fill_numbers(b->numbers, WIDE);
    for (int64_t i = 0; i < (int64_t)ROWS_MOST * WIDE; i++) b->x[i] = b->numbers[i % WIDE];
    return ERR_OK;
}

enum err_code kernel_times_measure(struct kernel_times *out, uint32_t isa_usable_bits, double seconds,
                                   kernel_progress_fn *progress, void *ctx, struct err *why)
{
    const int all = threadpool_default_threads();
    struct bench b = {
        .out = out, .isa = isa_usable_bits, .threads = { 1, all }, .progress = progress, .ctx = ctx
    };
    memset(out, 0, sizeof *out);
    out->stream_bytes = BANK_BYTES;
    enum err_code rc = bench_memory(&b, why);
    const int last = all > 1 ? 0 : 1;
    for (int t = last; t < 2 && !rc; t++) {
        rc = bench_backend(&b.backend[t], &b, KERNEL_VARIANT_AUTO, t, why);
        if (!rc) rc = stopwatch_open(&b.watch[t], b.backend[t], why);
    }
    b.begun_s = now_s();
    b.deadline_s = b.begun_s + (seconds > 0 ? seconds : DEFAULT_SECONDS);
    for (int pass = 0; pass < PASSES && !rc; pass++) {
        for (int t = 1; t >= last && !rc; t--)
            rc = measure_variant(&b, KERNEL_VARIANT_AUTO, t, pass > 0, why);
        for (int v = 1; v < KERNEL_VARIANTS && pass == 1 && !rc; v++)
            rc = measure_variant(&b, v, 1, false, why);
    }
    for (int t = 0; t < 2; t++) {
        if (b.watch[t]) put_seconds(&b, t);
        stopwatch_close(b.watch[t]);
        backend_close(b.backend[t]);
    }
    free(b.x);
    free(b.y);
    free(b.small);
    free(b.numbers);
    if (b.bank) munmap(b.bank, (size_t)BANK_BYTES);
    if (!rc && b.cancelled) rc = err_set(why, ERR_CANCELLED, "interrupted");
    out->measured = !rc;
    out->measured_unix_ms = clock_unix_ms();
    return rc;
}
