/* Collects activation statistics in one pass over a text.
 *
 * As many sequences as fit into memory go through one layer together before the next layer runs. So a model
 * larger than memory is read once for each such group of sequences, not once for each sequence. Every sum
 * runs over the sequences in their order, so results depend neither on the group size nor on the number of
 * threads.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/arch/arch.h"
#include "engine/chat/chat.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "engine/text/text.h"
#include "kernels/kernels.h"
#include "engine/quant/calibration_internal.h"
#include "engine/quant/observers.h"

enum {
    TILE = 256,           /* columns summed together; their sums fit into the L1 cache */
    SEQUENCE_MIN = 8,     /* shortest useful sequence in tokens */
    TOKENS_MAX = 1 << 24, /* f32, the file's type for token counts, is exact up to this */
};

/* Statistics of one input while it is being collected, beyond those in struct calibration_input. */
struct gathered {
    double *squares;    /* [parts][cols] sums of x^2 */
    double *magnitudes; /* [cols] sums of |x| */
    struct growing_histogram growing;
    struct symmetric symmetric;
    double growing_count[HISTOGRAM_BINS], symmetric_count[SYMMETRIC_BINS_MAX];
};

struct collect {
    struct calibration *c;
    const struct calibration_options *options;
    struct layers *layers;
    struct threadpool *pool;       /* owned by `layers` */
    struct gathered **gathered;    /* [inputs] */
    uint32_t *bins;                /* [threads][HISTOGRAM_BINS + SYMMETRIC_BINS_MAX] counts of one batch */
    float *extremes;               /* [threads][2] minimum and maximum of one batch */
    const struct layer_input *now; /* the batch being observed */
    int input;                     /* index of its input */
    int64_t sequence;              /* and of its sequence */
    int64_t done, total;           /* progress: layers times sequences */
    struct err failed;             /* first error of an observer, which cannot return one */
};

/* ---------------------------------------------------------------- one batch */

/* Sum columns from .. to (at most TILE) over all rows, in the order of the rows, and widen [*low, *high]
 * by their extremes. */
static void collect_sum_tile(struct collect *k, int64_t from, int64_t to, float *low, float *high)
{
    const struct layer_input *b = k->now;
    struct calibration_input *in = &k->c->inputs[k->input];
    const struct gathered *g = k->gathered[k->input];
    double *squares = g->squares + b->part * b->cols + from, *magnitudes = g->magnitudes + from;
    float lows[TILE], highs[TILE];
    const int n = (int)(to - from);
    for (int i = 0; i < n; i++) lows[i] = highs[i] = b->x[from + i];
    for (int r = 0; r < b->n; r++) {
        const float *x = b->x + r * b->stride + from;
        for (int i = 0; i < n; i++) {
            squares[i] += (double)x[i] * (double)x[i];
            magnitudes[i] += (double)fabsf(x[i]);
            lows[i] = x[i] < lows[i] ? x[i] : lows[i];
            highs[i] = x[i] > highs[i] ? x[i] : highs[i];
        }
    }
    for (int i = 0; i < n; i++) {
        in->min[from + i] = fminf(in->min[from + i], lows[i]);
        in->max[from + i] = fmaxf(in->max[from + i], highs[i]);
        *low = fminf(*low, lows[i]);
        *high = fmaxf(*high, highs[i]);
    }
}

/* Thread function: each thread sums some of the columns, so every column is summed in the order of rows.
 */
static void collect_sum_columns(void *arg, int member, int size)
{
    struct collect *k = arg;
    const int64_t cols = k->now->cols, end = cols * (member + 1) / size;
    float low = INFINITY, high = -INFINITY;
    for (int64_t at = cols * member / size; at < end; at += TILE)
        collect_sum_tile(k, at, MIN(at + TILE, end), &low, &high);
    k->extremes[2 * member] = low;
    k->extremes[2 * member + 1] = high;
}

static uint32_t *collect_bins(const struct collect *k, int member)
{
    return k->bins + (int64_t)member * (HISTOGRAM_BINS + SYMMETRIC_BINS_MAX);
}

/* Thread function: each thread counts some of the rows in bins of its own. */
static void collect_count_rows(void *arg, int member, int size)
{
    struct collect *k = arg;
    const struct layer_input *b = k->now;
    const struct gathered *g = k->gathered[k->input];
    uint32_t *bins = collect_bins(k, member);
    const int from = (int)((int64_t)b->n * member / size), to = (int)((int64_t)b->n * (member + 1) / size);
    memset(bins, 0, (size_t)(HISTOGRAM_BINS + g->symmetric.bins) * sizeof *bins);
    for (int r = from; r < to; r++) {
        growing_histogram_count(&g->growing, b->x + r * b->stride, b->cols, bins);
        symmetric_count(&g->symmetric, b->x + r * b->stride, b->cols, bins + HISTOGRAM_BINS);
    }
}

/* Add the threads' counts of a batch to the histograms of the input. */
static void collect_add_bins(struct collect *k)
{
    struct gathered *g = k->gathered[k->input];
    for (int m = 0; m < threadpool_size(k->pool); m++) {
        const uint32_t *bins = collect_bins(k, m);
        for (int i = 0; i < HISTOGRAM_BINS; i++) g->growing.count[i] += bins[i];
        for (int i = 0; i < g->symmetric.bins; i++) g->symmetric.count[i] += bins[HISTOGRAM_BINS + i];
    }
}

/* A NaN or infinity in a column makes its sum of squares NaN or infinite. */
static bool collect_is_finite(const struct collect *k)
{
    const double *squares = k->gathered[k->input]->squares + k->now->part * k->now->cols;
    for (int64_t i = 0; i < k->now->cols; i++)
        if (!isfinite(squares[i])) return false;
    return true;
}

/* ---------------------------------------------------------------- inputs */

/* Create the statistics of an input at its first batch. NULL: out of memory. */
static struct calibration_input *collect_add_input(struct collect *k, const struct layer_input *b)
{
    struct calibration *c = k->c;
    struct arena *a = &c->memory;
    struct calibration_input *in = calibration_add(c, b->tensors, b->count, b->cols, b->parts, c->sequences);
    struct gathered *g = calloc(1, sizeof *g),
                    **more = realloc(k->gathered, (size_t)c->input_count * sizeof *more);
    if (more) k->gathered = more;
    if (!in || !g || !more) {
        free(g);
        if (in) c->input_count--;
        return NULL;
    }
    more[c->input_count - 1] = g;
    growing_histogram_init(&g->growing, g->growing_count);
    symmetric_init(&g->symmetric, g->symmetric_count);
    g->squares = arena_alloc(a, (size_t)b->parts * (size_t)b->cols * sizeof(double));
    g->magnitudes = arena_alloc(a, (size_t)b->cols * sizeof(double));
    if (!g->squares || !g->magnitudes) return NULL;
    for (int64_t i = 0; i < b->cols; i++) {
        in->min[i] = INFINITY;
        in->max[i] = -INFINITY;
    }
    for (int64_t s = 0; s < c->sequences; s++) {
        in->batch_min[s] = INFINITY;
        in->batch_max[s] = -INFINITY;
    }
    return in;
}

static struct calibration_input *collect_find_input(struct collect *k, const struct layer_input *b)
{
    for (k->input = 0; k->input < k->c->input_count; k->input++)
        if (!strcmp(k->c->inputs[k->input].tensors[0], b->tensors[0])) return &k->c->inputs[k->input];
    return collect_add_input(k, b);
}

/* Observer of the layers: adds one batch (the rows of one sequence at one input) to the statistics. */
static void collect_observe(void *ctx, const struct layer_input *b)
{
    struct collect *k = ctx;
    if (k->failed.code) return;
    struct calibration_input *in = collect_find_input(k, b);
    if (!in) {
        err_set(&k->failed, ERR_NOMEM, "out of memory for the statistics of '%s'", b->tensors[0]);
        return;
    }
    k->now = b;
    threadpool_run(k->pool, collect_sum_columns, k);
    if (!collect_is_finite(k)) {
        err_set(&k->failed, ERR_FORMAT, "an input of '%s' is NaN or infinite (sequence %lld)", b->tensors[0],
                (long long)k->sequence);
        return;
    }
    float low = INFINITY, high = -INFINITY;
    for (int m = 0; m < threadpool_size(k->pool); m++) {
        low = fminf(low, k->extremes[2 * m]);
        high = fmaxf(high, k->extremes[2 * m + 1]);
    }
    in->batch_min[k->sequence] = fminf(in->batch_min[k->sequence], low);
    in->batch_max[k->sequence] = fmaxf(in->batch_max[k->sequence], high);
    in->count += b->n;
    in->part_count[b->part] += b->n;
    growing_histogram_reserve(&k->gathered[k->input]->growing, low, high);
    symmetric_reserve(&k->gathered[k->input]->symmetric, low, high);
    threadpool_run(k->pool, collect_count_rows, k);
    collect_add_bins(k);
}

/* ---------------------------------------------------------------- the pass */

/* Report progress after one layer of one sequence. Returns the error of an observer, or ERR_CANCELLED. */
static enum err_code collect_report(struct collect *k, struct err *why)
{
    const struct calibration_options *o = k->options;
    k->done++;
    if (k->failed.code) return err_set(why, k->failed.code, "%s", k->failed.message);
    if (o->progress && !o->progress(o->progress_ctx, (double)k->done / (double)k->total))
        return err_set(why, ERR_CANCELLED, "cancelled");
    return ERR_OK;
}

/* Run sequences first .. first+n-1 through all layers. x [n][tokens][width] holds their hidden states. */
static enum err_code collect_run_group(struct collect *k, int64_t first, int64_t n, float *x, struct err *why)
{
    const struct calibration *c = k->c;
    const int64_t step = c->tokens * layers_width(k->layers);
    enum err_code rc = ERR_OK;
    for (int64_t s = 0; s < n && !rc; s++) {
        int32_t *ids = c->ids + (first + s) * c->tokens;
        const int32_t own = ids[0];
        if (c->bos >= 0) ids[0] = c->bos;
        rc = layers_embed(k->layers, ids, c->tokens, x + s * step, why);
        ids[0] = own;
    }
    for (int l = 0; l <= layers_count(k->layers) && !rc; l++)
        for (int64_t s = 0; s < n && !rc; s++) {
            k->sequence = first + s;
            rc = l < layers_count(k->layers)
                     ? layers_run(k->layers, l, x + s * step, c->tokens, collect_observe, k, why)
                     : layers_head(k->layers, x + s * step, c->tokens, NULL, collect_observe, k, why);
            if (!rc) rc = collect_report(k, why);
        }
    return rc;
}

/* Run all sequences in groups that fit into memory. */
static enum err_code collect_run(struct collect *k, struct err *why)
{
    const struct calibration *c = k->c;
    const int64_t available = memory_available(""),
                  each = c->tokens * layers_width(k->layers) * (int64_t)sizeof(float);
    const int64_t memory = k->options->memory > 0 ? k->options->memory
                                                  : (available < 0 ? 1 << 30 : available) / 4;
    const int64_t group = MAX(MIN(memory / each, c->sequences), 1);
    float *x = malloc((size_t)(group * each));
    if (!x)
        return err_set(why, ERR_NOMEM, "out of memory for the activations of %lld sequences",
                       (long long)group);
    k->total = (layers_count(k->layers) + 1) * c->sequences;
    enum err_code rc = ERR_OK;
    for (int64_t first = 0; first < c->sequences && !rc; first += group)
        rc = collect_run_group(k, first, MIN(group, c->sequences - first), x, why);
    free(x);
    return rc;
}

static float *histogram_counts(struct calibration *c, const double *count, int bins)
{
    float *counts = arena_alloc(&c->memory, (size_t)bins * sizeof *counts);
    for (int i = 0; i < bins && counts; i++) counts[i] = (float)count[i];
    return counts;
}

/* Convert the sums to the precision of the file, so that loading it again gives the same numbers. */
static enum err_code collect_finish(struct collect *k, struct err *why)
{
    struct calibration *c = k->c;
    for (int n = 0; n < c->input_count; n++) {
        struct calibration_input *in = &c->inputs[n];
        const struct gathered *g = k->gathered[n];
        for (int64_t i = 0; i < in->parts * in->cols; i++) in->sum_squares[i] = (float)g->squares[i];
        for (int64_t s = 0; s < in->batches;
             s++) /* an expert in a tensor of its own may see no token of a text */
            if (in->batch_min[s] > in->batch_max[s]) in->batch_min[s] = in->batch_max[s] = 0;
        for (int64_t i = 0; i < in->cols; i++) {
            in->mean_abs[i] = (float)(g->magnitudes[i] / (double)in->count);
            in->max_abs[i] = fmaxf(-in->min[i], in->max[i]);
        }
        in->histogram = (struct histogram){ histogram_counts(c, g->growing.count, HISTOGRAM_BINS),
                                            HISTOGRAM_BINS, g->growing.low, g->growing.high };
        in->symmetric = (struct histogram){ histogram_counts(c, g->symmetric.count, g->symmetric.bins),
                                            g->symmetric.bins, -g->symmetric.high, g->symmetric.high };
        if (!in->histogram.counts || !in->symmetric.counts)
            return err_set(why, ERR_NOMEM, "out of memory for histograms");
    }
    return calibration_finish(c, why);
}

/* ---------------------------------------------------------------- beginning */

/* Tokenize the text and keep as many whole sequences as requested. */
static enum err_code collect_cut_text(struct collect *k, const struct gguf *g,
                                      const struct calibration_text *text, const struct model_shape *shape,
                                      struct err *why)
{
    struct calibration *c = k->c;
    struct tokenizer *t;
    struct tokenizer_info info;
    struct token_list ids = { 0 };
    struct err reason = { 0 };
    enum err_code rc = tokenizer_open(&t, g, &reason);
    if (rc) return err_set(why, ERR_USAGE, "this model has no usable tokenizer: %s", reason.message);
    tokenizer_describe(t, &info);
    rc = text_encode(g, t, text->bytes, text->n, &ids, why);
    tokenizer_close(t);
    for (int64_t i = 0; i < ids.n && !rc; i++)
        if (ids.ids[i] >= shape->vocab)
            rc = err_set(why, ERR_FORMAT, "the tokenizer produced id %d, but the vocabulary has only %lld",
                         ids.ids[i], (long long)shape->vocab);
    if (!rc && ids.n < 2 * SEQUENCE_MIN)
        rc = err_set(why, ERR_USAGE, "the calibration text has %lld tokens, expected at least %d",
                     (long long)ids.n, 2 * SEQUENCE_MIN);
    if (!rc) {
        const int64_t ctx = k->options->ctx > 0 ? k->options->ctx : CALIBRATION_CTX,
                      wanted = k->options->tokens;
        const int64_t most = wanted == 0  ? CALIBRATION_TOKENS
                             : wanted < 0 ? TOKENS_MAX
                                          : MIN(wanted, TOKENS_MAX);
        c->tokens = (int)MIN(MIN(ctx, shape->ctx_train), ids.n / 2);
        c->sequences = MAX(MIN(ids.n, most) / c->tokens, 1);
        c->bos = info.add_bos ? info.bos : -1;
        c->ids = arena_alloc(&c->memory, (size_t)(c->sequences * c->tokens) * sizeof *c->ids);
        if (!c->ids) rc = err_set(why, ERR_NOMEM, "out of memory for a text");
        if (!rc) memcpy(c->ids, ids.ids, (size_t)(c->sequences * c->tokens) * sizeof *c->ids);
    }
    token_list_free(&ids);
    return rc;
}

/* Tokenize the text, open the model, and allocate memory for the threads. */
static enum err_code collect_begin(struct collect *k, const struct gguf *g,
                                   const struct calibration_text *text, struct err *why)
{
    struct model_shape shape;
    struct calibration *c = k->c = calibration_new();
    if (!c) return err_set(why, ERR_NOMEM, "out of memory for a calibration");
    enum err_code rc = model_shape_read(&shape, g, why);
    if (!rc) rc = model_identity(g, c->model, why);
    if (!rc) rc = collect_cut_text(k, g, text, &shape, why);
    if (rc) return rc;
    c->bundled_text = text->bundled;
    c->text = arena_strdup(&c->memory, text->name);
    c->model_name = arena_strdup(&c->memory, shape.name);
    if (!c->text || !c->model_name) return err_set(why, ERR_NOMEM, "out of memory for a calibration");
    const struct layers_options o = { .threads = MAX(k->options->threads, 0),
                                      .tokens = c->tokens,
                                      .precision = k->options->precision,
                                      .force = k->options->force,
                                      .experts = true,
                                      .log = k->options->log };
    if ((rc = layers_open(&k->layers, g, &o, why))) return rc;
    k->pool = layers_threads(k->layers);
    const size_t threads = (size_t)threadpool_size(k->pool);
    k->bins = malloc(threads * (HISTOGRAM_BINS + SYMMETRIC_BINS_MAX) * sizeof *k->bins);
    k->extremes = malloc(threads * 2 * sizeof *k->extremes);
    return k->bins && k->extremes ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for a calibration");
}

enum err_code calibration_collect(struct calibration **out, const struct gguf *g,
                                  const struct calibration_text *text, const struct calibration_options *o,
                                  struct err *why)
{
    struct collect k = { .options = o };
    enum err_code rc = collect_begin(&k, g, text, why);
    if (!rc) rc = collect_run(&k, why);
    if (!rc) rc = collect_finish(&k, why);
    layers_close(k.layers);
    for (int i = 0; k.gathered && k.c && i < k.c->input_count; i++) free(k.gathered[i]);
    free(k.gathered);
    free(k.bins);
    free(k.extremes);
    *out = k.c;
    if (!rc) return ERR_OK;
    calibration_close(k.c);
    *out = NULL;
    return rc;
}
