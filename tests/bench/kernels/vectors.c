/* Operations other than products: norms, rope, Hadamard transforms, softmax, activation functions, gather, KV
 * store, the largest numbers of a row, activation quantization, and the cost of waking and joining threads.
 * All but the last two run through the backend with as many rows as a prompt. They work from the caches, so
 * no limit is shown. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/kernels/bench.h"

enum { ROWS = 64, COLS = 2048, VOCAB = 64, HEADS = 32, KV_HEADS = 8, DIM = 64, CELLS = ROWS * COLS };

struct work {
    struct bench *bench;
    struct rig *rig;
    struct backend *b;
    const struct format *f;
    struct weight table;
    struct kv_layer kv;
    struct threadpool *pool;
    float *x, *w, *y; /* [CELLS], [COLS], [CELLS]: each ends at an unreadable page */
    uint8_t *bytes;
    size_t size;
    float freq[DIM / 2];
    int32_t pos[ROWS];
};

/* ---------------------------------------------------------------- what runs */

static void norm(struct work *k, enum norm_kind kind)
{
    backend_norm(k->b, &(struct norm){ .kind = kind,
                                       .x = k->x,
                                       .x_stride = COLS,
                                       .n = ROWS,
                                       .cols = COLS,
                                       .w = k->w,
                                       .eps = 1e-5f,
                                       .y = k->y,
                                       .y_stride = COLS });
}

static void run_norm_rms(void *arg)
{
    norm(arg, NORM_RMS);
}

static void run_norm_layer(void *arg)
{
    norm(arg, NORM_LAYER);
}

static void run_rope(void *arg)
{
    struct work *k = arg; /* in place: turned on and on, lengths stay */
    backend_rope(k->b, &(struct rope){ .x = k->y,
                                       .x_stride = COLS,
                                       .n = ROWS,
                                       .heads = HEADS,
                                       .head_dim = DIM,
                                       .rot_dims = DIM,
                                       .half_split = true,
                                       .freq = k->freq,
                                       .magnitude = 1,
                                       .pos = k->pos });
}

static void run_hadamard(void *arg)
{
    const struct work *k = arg;
    backend_hadamard(
        k->b, &(struct hadamard){ .x = k->y, .x_stride = COLS, .n = ROWS, .cols = COLS, .block = DIM });
}

static void activate(struct work *k, enum activation act, const float *up)
{
    backend_activate(k->b, &(struct activate){ .act = act,
                                               .gate = k->x,
                                               .up = up,
                                               .stride = COLS,
                                               .n = ROWS,
                                               .cols = COLS,
                                               .y = k->y,
                                               .y_stride = COLS });
}

static void run_silu(void *arg)
{
    activate(arg, ACT_SILU, ((struct work *)arg)->x);
}

static void run_gelu(void *arg)
{
    activate(arg, ACT_GELU_TANH, NULL);
}

/* Row by row as attention does it. */
static void run_softmax(void *arg)
{
    const struct work *k = arg;
    const struct vector_kernels *v = &k->rig->kernels.vec;
    memcpy(k->y, k->x, CELLS * sizeof *k->y);
    for (int i = 0; i < ROWS; i++) {
        float *row = k->y + i * COLS;
        v->scale(row, COLS, 1 / v->exp_sum(row, COLS, v->max(row, COLS)));
    }
}

static void run_quantize(void *arg)
{
    const struct work *k = arg;
    int8_t *q = (int8_t *)k->y; /* codes, scales and sums behind one another */
    float *d = k->y + CELLS / 4, *sum = d + CELLS / Q8_BLOCK;
    k->rig->kernels.vec.quantize_q8(k->x, CELLS, q, d, sum);
}

static void run_gather(void *arg)
{
    struct work *k = arg;
    backend_gather(
        k->b, &(struct gather){
                  .table = &k->table, .ids = k->pos, .n = ROWS, .y = k->y, .y_stride = COLS, .scale = 1 });
}

static void run_store(void *arg)
{
    struct work *k = arg;
    backend_kv_store(k->b, &(struct kv_store){ .kv = &k->kv,
                                               .k = k->x,
                                               .v = k->x + KV_HEADS * DIM,
                                               .k_stride = COLS,
                                               .v_stride = COLS,
                                               .n = ROWS,
                                               .slots = k->pos });
}

/* As choosing a token needs it, of all x as one row. */
static void run_top(void *arg)
{
    struct work *k = arg;
    struct ranked *out = (struct ranked *)(void *)k->y;
    backend_top(k->b,
                &(struct top){ .x = k->x, .x_stride = CELLS, .n = 1, .k = 1, .cols = CELLS, .out = out });
}

static void meet(void *arg, int member, int size)
{
    (void)member, (void)size;
    threadpool_barrier(arg);
}

static void run_barrier(void *arg)
{
    const struct work *k = arg;
    threadpool_run(k->pool, meet, k->pool);
}

/* ---------------------------------------------------------------- what it should give */

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static void want_norm(const struct work *k, enum norm_kind kind, double *want)
{
    for (int i = 0; i < ROWS; i++) {
        const float *x = k->x + i * COLS;
        double mean = 0, power = 0;
        for (int j = 0; j < COLS && kind == NORM_LAYER; j++) mean += (double)x[j] / COLS;
        for (int j = 0; j < COLS; j++) power += ((double)x[j] - mean) * ((double)x[j] - mean) / COLS;
        for (int j = 0; j < COLS; j++)
            want[i * COLS + j] = ((double)x[j] - mean) / sqrt(power + 1e-5) * (double)k->w[j];
    }
}

static void want_norm_rms(const struct work *k, double *want)
{
    want_norm(k, NORM_RMS, want);
}

static void want_norm_layer(const struct work *k, double *want)
{
    want_norm(k, NORM_LAYER, want);
}

static void want_rope(const struct work *k, double *want)
{
    for (int i = 0; i < CELLS; i++) {
        const int at = i % DIM, j = at % (DIM / 2);
        const double angle = (double)k->pos[i / COLS] * (double)k->freq[j];
        const double a = (double)k->x[i - at + j], b = (double)k->x[i - at + j + DIM / 2];
        want[i] = at < DIM / 2 ? a * cos(angle) - b * sin(angle) : a * sin(angle) + b * cos(angle);
    }
}

static void want_hadamard(const struct work *k, double *want)
{
    for (int i = 0; i < CELLS; i++) {
        const int row = i % DIM;
        want[i] = 0;
        for (int j = 0; j < DIM; j++)
            want[i] += (__builtin_parity((unsigned)(row & j)) ? -1 : 1) * (double)k->x[i - row + j] /
                       sqrt(DIM);
    }
}

static void want_silu(const struct work *k, double *want)
{
    for (int i = 0; i < CELLS; i++) want[i] = silu((double)k->x[i]) * (double)k->x[i];
}

static void want_gelu(const struct work *k, double *want)
{
    for (int i = 0; i < CELLS; i++) want[i] = gelu((double)k->x[i]);
}

static void want_softmax(const struct work *k, double *want)
{
    for (int i = 0; i < CELLS; i += COLS) {
        double peak = -INFINITY, sum = 0;
        for (int j = 0; j < COLS; j++) peak = fmax(peak, (double)k->x[i + j]);
        for (int j = 0; j < COLS; j++) sum += want[i + j] = exp((double)k->x[i + j] - peak);
        for (int j = 0; j < COLS; j++) want[i + j] /= sum;
    }
}

static void want_gather(const struct work *k, double *want)
{
    float *row = malloc(COLS * sizeof *row);
    for (int i = 0; i < CELLS; i++) {
        if (!row) want[i] = NAN;
        if (row && i % COLS == 0)
            format_decode_rows(k->f, k->bytes + k->pos[i / COLS] * format_row_bytes(k->f, COLS), row, 1,
                               COLS);
        if (row) want[i] = (double)row[i % COLS];
    }
    free(row);
}

/* The codes and scales turned back into numbers are compared: half a step of the block's largest. */
static void read_quantized(struct work *k, float *got)
{
    const int8_t *q = (const int8_t *)k->y;
    const float *d = k->y + CELLS / 4;
    for (int i = 0; i < CELLS; i++) got[i] = d[i / Q8_BLOCK] * (float)q[i];
}

static void read_stored(struct work *k, float *got)
{
    const int64_t row = format_row_bytes(k->f, DIM);
    for (int i = 0; i < CELLS; i++) got[i] = k->x[i]; /* only a row's first KV_HEADS heads are K */
    for (int i = 0; i < ROWS; i++)
        for (int h = 0; h < KV_HEADS; h++) {
            const int block = k->pos[i] / k->kv.block_tokens, token = k->pos[i] % k->kv.block_tokens;
            const int64_t at = ((int64_t)block * KV_HEADS + h) * k->kv.block_tokens + token;
            k->f->decode((const uint8_t *)k->kv.k + at * row, got + i * COLS + h * DIM, DIM);
        }
}

/* What the reference makes of K, head by head. */
static void want_stored(const struct work *k, double *want)
{
    uint8_t bytes[DIM * 4];
    float head[DIM];
    for (int i = 0; i < CELLS; i++) want[i] = (double)k->x[i];
    for (int i = 0; i < ROWS; i++)
        for (int h = 0; h < KV_HEADS; h++) {
            k->f->encode(k->x + i * COLS + h * DIM, bytes, DIM);
            k->f->decode(bytes, head, DIM);
            for (int j = 0; j < DIM; j++) want[i * COLS + h * DIM + j] = (double)head[j];
        }
}

static void read_top(struct work *k, float *got)
{
    memcpy(got, k->x, CELLS * sizeof *got);
    got[0] = ((const struct ranked *)(const void *)k->y)->value;
}

static void want_top(const struct work *k, double *want)
{
    double most = -INFINITY;
    for (int i = 0; i < CELLS; i++) most = fmax(most, want[i] = (double)k->x[i]);
    want[0] = most;
}

static void want_x(const struct work *k, double *want)
{
    for (int i = 0; i < CELLS; i++) want[i] = (double)k->x[i];
}

struct operation {
    const char *kind;
    void (*run)(void *arg);
    void (*want)(const struct work *k, double *want);
    void (*read)(struct work *k, float *got); /* results that are not floats in y; NULL: they are */
    double bound;                             /* of |error|, values being about 1 */
    double bytes;                             /* read and written by one run; 0: the table's and y's */
    enum format_id formats[4];                /* FORMAT_COUNT ends the list; {FORMAT_COUNT}: none */
};
static const struct operation OPERATIONS[] = {
    { "norm_rms", run_norm_rms, want_norm_rms, NULL, 1e-5, 8.0 * CELLS, { FORMAT_COUNT } },
    { "norm_layer", run_norm_layer, want_norm_layer, NULL, 1e-5, 8.0 * CELLS, { FORMAT_COUNT } },
    { "rope", run_rope, want_rope, NULL, 1e-4, 8.0 * CELLS, { FORMAT_COUNT } },
    { "hadamard", run_hadamard, want_hadamard, NULL, 1e-5, 8.0 * CELLS, { FORMAT_COUNT } },
    { "softmax", run_softmax, want_softmax, NULL, 1e-6, 16.0 * CELLS, { FORMAT_COUNT } },
    { "silu_mul", run_silu, want_silu, NULL, 1e-5, 12.0 * CELLS, { FORMAT_COUNT } },
    { "gelu_tanh", run_gelu, want_gelu, NULL, 1e-5, 8.0 * CELLS, { FORMAT_COUNT } },
    { "quantize", run_quantize, want_x, read_quantized, 0.03, 5.0 * CELLS, { FORMAT_COUNT } },
    { "top", run_top, want_top, read_top, 0, 4.0 * CELLS, { FORMAT_COUNT } },
    { "gather",
      run_gather,
      want_gather,
      NULL,
      1e-6,
      0,
      { FORMAT_F16, FORMAT_Q8_0, FORMAT_Q4_K, FORMAT_COUNT } },
    { "store",
      run_store,
      want_stored,
      read_stored,
      1e-6,
      0,
      { FORMAT_F16, FORMAT_Q8_0, FORMAT_Q4_0, FORMAT_COUNT } },
};

/* ---------------------------------------------------------------- the lines */

static void work_free(void *arg)
{
    struct work *k = arg;
    guarded_free(k->x, CELLS * sizeof(float));
    guarded_free(k->w, COLS * sizeof(float));
    guarded_free(k->y, CELLS * sizeof(float));
    guarded_free(k->bytes, k->size);
    free(k->kv.k);
    free(k->kv.v);
    threadpool_close(k->pool);
    free(k);
}

/* Table or cache of a format, where the operation has one. */
static bool work_format(struct work *k)
{
    k->size = (size_t)(VOCAB * format_row_bytes(k->f, COLS));
    k->bytes = guarded(k->size);
    k->kv = (struct kv_layer){ .k_format = k->f,
                               .v_format = k->f,
                               .kv_heads = KV_HEADS,
                               .k_dim = DIM,
                               .v_dim = DIM,
                               .block_tokens = 32,
                               .blocks = ROWS / 32 };
    if (DIM % k->f->block_weights == 0) {
        k->kv.k = calloc(1, (size_t)kv_layer_bytes(&k->kv));
        k->kv.v = calloc(1, (size_t)kv_layer_bytes(&k->kv));
    }
    if (!k->bytes) return false;
    format_encode_rows(k->f, k->x, k->bytes, VOCAB, COLS);
    return !backend_weight_bind(k->b, &k->table, k->f, VOCAB, COLS, NULL, k->bytes, NULL);
}

static struct work *work_new(struct bench *t, struct rig *r, struct backend *b, const struct format *f)
{
    struct rng g = { 5 };
    struct work *k = calloc(1, sizeof *k);
    if (!k) return NULL;
    k->bench = t, k->rig = r, k->b = b, k->f = f;
    k->x = guarded(CELLS * sizeof(float));
    k->w = guarded(COLS * sizeof(float));
    k->y = guarded(CELLS * sizeof(float));
    bool good = k->x && k->w && k->y;
    for (int i = 0; good && i < CELLS; i++) k->x[i] = rng_gauss(&g, 1);
    for (int i = 0; good && i < COLS; i++) k->w[i] = rng_gauss(&g, 1);
    for (int i = 0; i < DIM / 2; i++) k->freq[i] = powf(10000.f, -2.f * (float)i / DIM);
    for (int i = 0; i < ROWS; i++) k->pos[i] = (i * 29 + 7) % ROWS; /* all of them, in no order */
    if (good && f) good = work_format(k);
    if (good) return k;
    work_free(k);
    return NULL;
}

static int judge(struct line *l, struct work *k, const struct operation *o)
{
    double *want = malloc(CELLS * sizeof *want);
    float *got = malloc(CELLS * sizeof *got);
    if (want && got) {
        memcpy(k->y, k->x, CELLS * sizeof *k->y); /* rope and hadamard work in place */
        o->run(k);
        o->want(k, want);
        memcpy(got, k->y, CELLS * sizeof *got);
        if (o->read) o->read(k, got);
        for (int i = 0; i < CELLS; i++)
            line_judge(l, fabs((double)got[i] - want[i]) / fmax(1, fabs(want[i])), o->bound);
    }
    const int failed = !want || !got;
    free(want);
    free(got);
    return failed;
}

static int add(struct bench *t, struct rig *r, struct backend *b, const struct operation *o,
               const struct format *f)
{
    struct line *l = bench_line(t);
    struct work *k = work_new(t, r, b, f);
    if (!l || !k) return 1;
    l->kind = o->kind;
    l->level = r->level;
    l->format = f ? f->name : "";
    l->n = ROWS;
    l->arg = k;
    l->finish = work_free;
    l->run = o->run;
    l->unit = UNIT_BYTES;
    /* the table's rows and what they become, or keys and values and what they become */
    const bool cache = o->read == read_stored;
    l->work = o->bytes > 0 ? o->bytes
              : cache      ? 2.0 * ROWS * KV_HEADS * (DIM * 4 + (double)format_row_bytes(f, DIM))
                           : ROWS * (COLS * 4 + (double)format_row_bytes(f, COLS));
    snprintf(l->shape, sizeof l->shape, "%dx%d", ROWS, cache ? KV_HEADS * DIM : COLS);
    return judge(l, k, o);
}

static int add_barrier(struct bench *t)
{
    struct line *l = bench_line(t);
    struct work *k = calloc(1, sizeof *k);
    if (!l || !k) return 1;
    l->kind = "barrier";
    l->arg = k;
    l->finish = work_free;
    l->unit = UNIT_CALLS;
    l->work = 2; /* one start and end of a parallel region, one barrier inside it */
    snprintf(l->shape, sizeof l->shape, "%d threads", t->o.threads);
    if (threadpool_open(&k->pool, &(struct threadpool_options){ .threads = t->o.threads }, NULL)) return 1;
    l->run = run_barrier;
    return 0;
}

int vectors_add(struct bench *t)
{
    for (size_t o = 0; o < COUNT_OF(OPERATIONS); o++)
        for (size_t f = 0; f < COUNT_OF(OPERATIONS[o].formats); f++) {
            const enum format_id id = OPERATIONS[o].formats[f];
            const struct format *format = id == FORMAT_COUNT ? NULL : &FORMATS[id];
            if (!format && f) break;
            for (int r = 0; r < t->rigs && wanted(t, OPERATIONS[o].kind, format ? format->name : ""); r++)
                for (int p = 0; p < MODES; p++) { /* none of these rounds: one precision says all */
                    if (!t->rig[r].backend[p]) continue;
                    if (add(t, &t->rig[r], t->rig[r].backend[p], &OPERATIONS[o], format)) return 1;
                    break;
                }
            if (!format) break;
        }
    return !t->o.verify_only && wanted(t, "barrier", "") ? add_barrier(t) : 0;
}
