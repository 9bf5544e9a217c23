/* How far the weights of a quantized file are from its source's.
 *
 * Weights are compared as products see them: in the order of the model's inputs, with the columns that were
 * kept aside, and divided by whatever the inputs are multiplied by elsewhere. A method may move a scale into
 * the norm in front of a matrix, which is read off that norm; or into the rows of the matrix before (v for
 * the output of attention, up for down), which can only be estimated: by the factor of a row or column that
 * fits best. That hides about one weight's share of the error in a row or column. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/quant/quantize_internal.h"

enum fit { FIT_NONE, FIT_ROWS, FIT_COLUMNS };

/* One matrix in two files. Arrays are [cols]. */
struct comparison {
    const struct gguf_tensor *was, *is;
    int64_t rows, cols;
    float *factor;    /* column i of what products see = stored * factor; NULL: 1 */
    int64_t *order;   /* stored column j is column order[j]; NULL: j */
    int64_t *outlier; /* [outliers] columns with weights of their own */
    int64_t outliers;
    const unsigned char *outlier_weights; /* f16 [outliers][rows]; NULL: none */
    enum fit fit;
    bool fitting;    /* a first pass for FIT_COLUMNS */
    float *scratch;  /* [threads][3][cols]: stored, seen, source */
    double *sums;    /* [threads][2]: squares of error, of weights */
    double *columns; /* [threads][2][cols]: products with the source, squares; NULL unless FIT_COLUMNS */
    double *best;    /* [cols] of FIT_COLUMNS */
};

/* ---------------------------------------------------------------- what products see */

/* A companion tensor or norm as f32; *out owned, NULL when there is none or it has another size. */
static enum err_code read_floats(float **out, const struct gguf_tensor *t, int64_t n, struct err *why)
{
    *out = NULL;
    if (!t || t->shape[0] != n || !t->format->decode) return ERR_OK;
    *out = malloc((size_t)n * sizeof **out + 1);
    if (!*out) return err_set(why, ERR_NOMEM, "out of memory to compare '%s'", t->name);
    format_decode_rows(t->format, t->data, *out, 1, n);
    return ERR_OK;
}

/* Column indexes; ERR_FORMAT beyond the matrix. */
static enum err_code read_indexes(int64_t **out, const struct gguf_tensor *t, int64_t n, int64_t cols,
                                  struct err *why)
{
    float *values;
    *out = NULL;
    enum err_code rc = read_floats(&values, t, n, why);
    if (rc || !values) return rc;
    *out = malloc((size_t)n * sizeof **out + 1);
    if (!*out) rc = err_set(why, ERR_NOMEM, "out of memory to compare '%s'", t->name);
    for (int64_t i = 0; i < n && !rc; i++) {
        if (!(values[i] >= 0 && values[i] < (float)cols))
            rc = err_set(why, ERR_FORMAT, "tensor '%s' names column %g of %lld", t->name, (double)values[i],
                         (long long)cols);
        else
            (*out)[i] = (int64_t)values[i];
    }
    free(values);
    return rc;
}

/* "blk.3.attn_q.weight": the layer's prefix "blk.3." and the rest; false for names of no layer. */
static bool split_name(const char *name, char *prefix, size_t size, const char **rest)
{
    const char *dot = str_starts(name, "blk.") ? strchr(name + 4, '.') : NULL;
    if (!dot || (size_t)(dot - name) + 2 > size) return false;
    memcpy(prefix, name, (size_t)(dot - name) + 1);
    prefix[dot - name + 1] = '\0';
    *rest = dot + 1;
    return true;
}

static const struct gguf_tensor *layer_tensor(const struct gguf *g, const char *prefix, const char *name)
{
    char full[128];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    return gguf_tensor_find(g, full);
}

/* Did the method change this norm? *ratio (owned, NULL: no) = new / old. */
static enum err_code norm_ratio(float **ratio, const struct gguf *source, const struct gguf *made,
                                const char *prefix, const char *norm, int64_t cols, struct err *why)
{
    float *was, *is = NULL;
    bool moved = false;
    *ratio = NULL;
    enum err_code rc = read_floats(&was, layer_tensor(source, prefix, norm), cols, why);
    if (!rc) rc = read_floats(&is, layer_tensor(made, prefix, norm), cols, why);
    for (int64_t i = 0; !rc && was && is && i < cols; i++) {
        moved |= is[i] != was[i];
        is[i] = was[i] != 0 ? is[i] / was[i] : 1;
    }
    if (moved)
        *ratio = is;
    else
        free(is);
    free(was);
    return rc;
}

/* The inputs of a layer's matrices: from a norm of the attention or the feed-forward, or from another matrix.
 */
enum maker { MAKER_MATRIX, MAKER_ATTENTION, MAKER_FEED_FORWARD };

static const struct {
    const char *matrix;
    enum maker maker;
    enum fit fit; /* where scales may have gone to or come from that no norm tells */
} LAYER[] = {
    { "attn_q.weight", MAKER_ATTENTION, FIT_NONE },      { "attn_k.weight", MAKER_ATTENTION, FIT_NONE },
    { "attn_v.weight", MAKER_ATTENTION, FIT_ROWS },      { "attn_qkv.weight", MAKER_ATTENTION, FIT_ROWS },
    { "attn_output.weight", MAKER_MATRIX, FIT_COLUMNS }, { "ffn_gate.weight", MAKER_FEED_FORWARD, FIT_NONE },
    { "ffn_up.weight", MAKER_FEED_FORWARD, FIT_ROWS },   { "ffn_down.weight", MAKER_MATRIX, FIT_COLUMNS },
};

/* The norm in front; halves side by side may share one, or the attention has a second one. */
static const char *norm_of(const struct gguf *g, const char *prefix, enum maker maker)
{
    if (maker == MAKER_FEED_FORWARD && layer_tensor(g, prefix, "ffn_norm.weight")) return "ffn_norm.weight";
    if (maker == MAKER_ATTENTION && layer_tensor(g, prefix, "attn_norm_2.weight"))
        return "attn_norm_2.weight";
    return "attn_norm.weight";
}

/* Scales that were moved out of this matrix: known ones into c->factor, others to be fitted. */
static enum err_code find_moved(struct comparison *c, const struct gguf *source, const struct gguf *made,
                                struct err *why)
{
    char prefix[64];
    const char *rest;
    float *other = NULL;
    if (!split_name(c->was->name, prefix, sizeof prefix, &rest)) return ERR_OK;
    size_t which = 0;
    while (which < COUNT_OF(LAYER) && strcmp(LAYER[which].matrix, rest)) which++;
    if (which == COUNT_OF(LAYER)) return ERR_OK;
    const enum maker maker = LAYER[which].maker;
    enum err_code rc = ERR_OK;
    if (maker != MAKER_MATRIX)
        rc = norm_ratio(&c->factor, source, made, prefix, norm_of(source, prefix, maker), c->cols, why);
    /* a method that moves scales into one norm of a layer may move others into its matrices */
    for (enum maker m = MAKER_ATTENTION; m <= MAKER_FEED_FORWARD && !rc && !other; m++) {
        const char *name = norm_of(source, prefix, m);
        const struct gguf_tensor *norm = layer_tensor(source, prefix, name);
        if (norm) rc = norm_ratio(&other, source, made, prefix, name, norm->shape[0], why);
    }
    if (other) c->fit = LAYER[which].fit;
    free(other);
    return rc;
}

static enum err_code find_sides(struct comparison *c, const struct gguf *made, struct err *why)
{
    const struct gguf_tensor *kept = companion_find(made, c->is->name, COMPANION_OUTLIERS),
                             *weights = companion_find(made, c->is->name, COMPANION_OUTLIER_WEIGHTS);
    float *divide = NULL;
    enum err_code rc = read_indexes(&c->order, companion_find(made, c->is->name, COMPANION_ORDER), c->cols,
                                    c->cols, why);
    if (!rc) rc = read_floats(&divide, companion_find(made, c->is->name, COMPANION_DIVISORS), c->cols, why);
    if (!rc && kept && weights && weights->bytes == kept->shape[0] * c->rows * 2) {
        c->outliers = kept->shape[0];
        c->outlier_weights = weights->data;
        rc = read_indexes(&c->outlier, kept, c->outliers, c->cols, why);
    }
    for (int64_t i = 0; divide && c->factor && i < c->cols; i++) c->factor[i] /= divide[i];
    for (int64_t i = 0; divide && !c->factor && i < c->cols; i++) divide[i] = 1 / divide[i];
    if (divide && !c->factor)
        c->factor = divide;
    else
        free(divide);
    return rc;
}

/* Row r as products see it into y, and as the source has it into w. */
static void read_row(const struct comparison *c, int64_t r, float *stored, float *y, float *w)
{
    format_decode_rows(c->was->format, c->was->data + r * format_row_bytes(c->was->format, c->cols), w, 1,
                       c->cols);
    format_decode_rows(c->is->format, c->is->data + r * format_row_bytes(c->is->format, c->cols), stored, 1,
                       c->cols);
    for (int64_t j = 0; j < c->cols; j++) y[c->order ? c->order[j] : j] = stored[j];
    for (int64_t k = 0; k < c->outliers; k++) {
        uint16_t half;
        memcpy(&half, c->outlier_weights + (k * c->rows + r) * 2, sizeof half);
        y[c->outlier[k]] = f16_to_f32(half);
    }
    for (int64_t j = 0; c->factor && j < c->cols; j++) y[j] *= c->factor[j];
}

/* ---------------------------------------------------------------- comparing */

static double row_fit(const float *y, const float *w, int64_t n)
{
    double with = 0, square = 0;
    for (int64_t j = 0; j < n; j++) {
        with += (double)y[j] * w[j];
        square += (double)y[j] * y[j];
    }
    return square > 0 ? with / square : 1;
}

static void compare_rows(void *arg, int member, int size)
{
    struct comparison *c = arg;
    const int64_t from = c->rows * member / size, to = c->rows * (member + 1) / size;
    float *stored = c->scratch + (int64_t)member * 3 * c->cols, *y = stored + c->cols, *w = y + c->cols;
    double *columns = c->fitting ? c->columns + (int64_t)member * 2 * c->cols : NULL, error = 0, power = 0;
    for (int64_t r = from; r < to; r++) {
        read_row(c, r, stored, y, w);
        if (c->fitting) {
            for (int64_t j = 0; j < c->cols; j++) {
                columns[j] += (double)y[j] * w[j];
                columns[c->cols + j] += (double)y[j] * y[j];
            }
            continue;
        }
        const double row = c->fit == FIT_ROWS ? row_fit(y, w, c->cols) : 1;
        for (int64_t j = 0; j < c->cols; j++) {
            const double d = (c->best ? c->best[j] : row) * y[j] - w[j];
            error += d * d;
            power += (double)w[j] * w[j];
        }
    }
    c->sums[2 * member] = error;
    c->sums[2 * member + 1] = power;
}

static void fit_columns(struct comparison *c, struct threadpool *pool)
{
    const int size = threadpool_size(pool);
    c->fitting = true;
    threadpool_run(pool, compare_rows, c);
    c->fitting = false;
    for (int64_t j = 0; j < c->cols; j++) {
        double with = 0, square = 0;
        for (int m = 0; m < size; m++) {
            with += c->columns[(2 * (int64_t)m) * c->cols + j];
            square += c->columns[(2 * (int64_t)m + 1) * c->cols + j];
        }
        c->best[j] = square > 0 ? with / square : 1;
    }
}

static enum err_code compare(struct comparison *c, struct threadpool *pool, double *nmse, struct err *why)
{
    const size_t size = (size_t)threadpool_size(pool), cols = (size_t)c->cols;
    c->scratch = malloc(size * 3 * cols * sizeof *c->scratch);
    c->sums = calloc(size, 2 * sizeof *c->sums);
    if (c->fit == FIT_COLUMNS) {
        c->columns = calloc(size * cols, 2 * sizeof *c->columns);
        c->best = malloc(cols * sizeof *c->best);
    }
    if (!c->scratch || !c->sums || (c->fit == FIT_COLUMNS && (!c->columns || !c->best)))
        return err_set(why, ERR_NOMEM, "out of memory to compare '%s'", c->was->name);
    if (c->fit == FIT_COLUMNS) fit_columns(c, pool);
    threadpool_run(pool, compare_rows, c);
    double error = 0, power = 0;
    for (size_t m = 0; m < size; m++) {
        error += c->sums[2 * m];
        power += c->sums[2 * m + 1];
    }
    *nmse = error == 0 ? 0 : error / power; /* weights that were all zero and are not: infinity */
    return ERR_OK;
}

static enum err_code measure_tensor(struct tensor_plan *t, const struct gguf *source, const struct gguf *made,
                                    struct threadpool *pool, struct err *why)
{
    const struct gguf_tensor *is = gguf_tensor_find(made, t->source->name);
    struct comparison c = { .was = t->source,
                            .is = is,
                            .rows = t->source->shape[1] * t->source->shape[2] * t->source->shape[3],
                            .cols = t->source->shape[0] };
    if (!is || is->format != t->format || memcmp(is->shape, t->source->shape, sizeof is->shape) != 0)
        return err_set(why, ERR_FORMAT, "tensor '%s': want %s of the source's shape, the file has %s",
                       t->source->name, t->format->name, is ? is->format->name : "none");
    enum err_code rc = find_moved(&c, source, made, why);
    if (!rc) rc = find_sides(&c, made, why);
    if (!rc) rc = compare(&c, pool, &t->nmse, why);
    t->nmse_rescaled = c.fit != FIT_NONE;
    free(c.factor);
    free(c.order);
    free(c.outlier);
    free(c.scratch);
    free(c.sums);
    free(c.columns);
    free(c.best);
    return rc;
}

enum err_code quantize_plan_measure(struct quantize_plan *p, const struct gguf *source,
                                    const struct gguf *made, int threads, struct err *why)
{
    struct threadpool *pool = NULL;
    const struct threadpool_options o = { .threads = MAX(threads, 1) };
    double sum = 0, weights = 0;
    enum err_code rc = threadpool_open(&pool, &o, why);
    p->worst = -1;
    for (int64_t i = 0; i < p->count && !rc; i++) {
        struct tensor_plan *t = &p->tensors[i];
        if (t->fate == FATE_KEPT) continue; /* whatever was moved into a norm came out of a matrix */
        rc = measure_tensor(t, source, made, pool, why);
        if (rc || !t->quantized) continue;
        const double n = (double)t->source->shape[0] * (double)t->source->shape[1] *
                         (double)t->source->shape[2] * (double)t->source->shape[3];
        sum += n * t->nmse;
        weights += n;
        if (p->worst < 0 || t->nmse > p->tensors[p->worst].nmse) p->worst = i;
    }
    p->nmse = !rc && weights > 0 ? sum / weights : NAN;
    threadpool_close(pool);
    return rc;
}
