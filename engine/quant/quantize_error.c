/* Measures the error of quantized weights against their source.
 *
 * The comparison is between effective weights (effective.h), divided by every scale that was folded into
 * them. A scale folded into a norm is read from that norm. A scale folded into the rows of the preceding
 * matrix (v for the attention output, up for down) is not stored anywhere; it is estimated by least squares,
 * one factor a row or column. That fit also removes a small part of the real error, about one weight's share
 * in a row or column. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/quant/effective.h"
#include "engine/quant/quantize_internal.h"

/* Which unknown scale is estimated before comparing. */
enum fit { FIT_NONE, FIT_ROWS, FIT_COLUMNS };

/* One matrix in the source and in the quantized file. */
struct comparison {
    struct effective was, is;
    int64_t rows, cols;
    float *factor; /* [cols]: scale that was folded into a norm; weights of the quantized file are multiplied
                      by it; NULL: 1 */
    enum fit fit;
    bool fitting;    /* in the first pass of FIT_COLUMNS, which sums `columns` */
    float *scratch;  /* [threads][3][cols]: stored, effective and source row */
    double *sums;    /* [threads][2]: sum of squared errors, of squared weights */
    double *columns; /* [threads][2][cols]: sum w y and sum y^2 by column; NULL unless FIT_COLUMNS */
    double *best;    /* [cols]: least-squares factor of each column; NULL unless FIT_COLUMNS */
};

/* ---------------------------------------------------------------- folded scales */

/* A norm as f32. *out is owned; NULL when the tensor is absent or has another size. */
static enum err_code tensor_read_floats(float **out, const struct gguf_tensor *t, int64_t n, struct err *why)
{
    *out = NULL;
    if (!t || t->shape[0] != n || !t->format->decode) return ERR_OK;
    *out = malloc((size_t)n * sizeof **out + 1);
    if (!*out) return err_set(why, ERR_NOMEM, "out of memory to compare '%s'", t->name);
    format_decode_rows(t->format, gguf_tensor_data(t), *out, 1, n);
    return ERR_OK;
}

/* Split "blk.3.attn_q.weight" into the prefix "blk.3." and the rest. False for tensors of no layer. */
static bool layer_name_split(const char *name, char *prefix, size_t size, const char **rest)
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

/* How a method scaled a norm: *ratio [cols] = new / old (owned); NULL: it is unchanged. */
static enum err_code norm_ratio(float **ratio, const struct gguf *source, const struct gguf *made,
                                const char *prefix, const char *norm, int64_t cols, struct err *why)
{
    float *was, *is = NULL;
    bool moved = false;
    *ratio = NULL;
    enum err_code rc = tensor_read_floats(&was, layer_tensor(source, prefix, norm), cols, why);
    if (!rc) rc = tensor_read_floats(&is, layer_tensor(made, prefix, norm), cols, why);
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

/* What computes the input of a matrix: the attention's norm, the feed-forward's norm, or another matrix. */
enum producer { PRODUCER_MATRIX, PRODUCER_ATTENTION_NORM, PRODUCER_FEED_FORWARD_NORM };

static const struct {
    const char *matrix;
    enum producer producer;
    enum fit fit; /* the scale to estimate if the method folded scales between matrices */
} LAYER[] = {
    { .matrix = "attn_q.weight", .producer = PRODUCER_ATTENTION_NORM, .fit = FIT_NONE },
    { .matrix = "attn_k.weight", .producer = PRODUCER_ATTENTION_NORM, .fit = FIT_NONE },
    { .matrix = "attn_v.weight", .producer = PRODUCER_ATTENTION_NORM, .fit = FIT_ROWS },
    { .matrix = "attn_qkv.weight", .producer = PRODUCER_ATTENTION_NORM, .fit = FIT_ROWS },
    { .matrix = "attn_output.weight", .producer = PRODUCER_MATRIX, .fit = FIT_COLUMNS },
    { .matrix = "ffn_gate.weight", .producer = PRODUCER_FEED_FORWARD_NORM, .fit = FIT_NONE },
    { .matrix = "ffn_up.weight", .producer = PRODUCER_FEED_FORWARD_NORM, .fit = FIT_ROWS },
    { .matrix = "ffn_down.weight", .producer = PRODUCER_MATRIX, .fit = FIT_COLUMNS },
};

/* Name of the norm in front of a layer's matrix. Layers that run attention and feed-forward in parallel may
 * share one norm or have a second attention norm. */
static const char *norm_of(const struct gguf *g, const char *prefix, enum producer producer)
{
    if (producer == PRODUCER_FEED_FORWARD_NORM && layer_tensor(g, prefix, "ffn_norm.weight"))
        return "ffn_norm.weight";
    if (producer == PRODUCER_ATTENTION_NORM && layer_tensor(g, prefix, "attn_norm_2.weight"))
        return "attn_norm_2.weight";
    return "attn_norm.weight";
}

/* Find out whether the method folded scales into this matrix (glossary in docs/architecture.md: scale
 * folding), by comparing the norms of its layer in both files.
 * The norm right before the matrix changed: new / old of that norm is the scale of each column, c->factor.
 * Any norm of the layer changed: the method folds scales. It may also have folded scales from one matrix into
 * another. No norm shows those, so c->fit says along which dimension to estimate them by least squares. */
static enum err_code comparison_find_folded(struct comparison *c, const struct gguf *source,
                                            const struct gguf *made, struct err *why)
{
    char prefix[64];
    const char *rest;
    float *other = NULL;
    if (!layer_name_split(c->was.matrix->name, prefix, sizeof prefix, &rest)) return ERR_OK;
    size_t which = 0;
    while (which < COUNT_OF(LAYER) && strcmp(LAYER[which].matrix, rest)) which++;
    if (which == COUNT_OF(LAYER)) return ERR_OK;
    const enum producer producer = LAYER[which].producer;
    enum err_code rc = ERR_OK;
    if (producer != PRODUCER_MATRIX)
        rc = norm_ratio(&c->factor, source, made, prefix, norm_of(source, prefix, producer), c->cols, why);
    /* norm_ratio leaves `other` NULL while the norms are unchanged; the first changed norm ends the loop */
    for (enum producer m = PRODUCER_ATTENTION_NORM; m <= PRODUCER_FEED_FORWARD_NORM && !rc && !other; m++) {
        const char *name = norm_of(source, prefix, m);
        const struct gguf_tensor *norm = layer_tensor(source, prefix, name);
        if (norm) rc = norm_ratio(&other, source, made, prefix, name, norm->shape[0], why);
    }
    if (other) c->fit = LAYER[which].fit;
    free(other);
    return rc;
}

/* Effective row r of the quantized matrix into y, and of the source into w. */
static void comparison_read_row(const struct comparison *c, int64_t r, float *stored, float *y, float *w)
{
    effective_row(&c->was, r, stored, w);
    effective_row(&c->is, r, stored, y);
    for (int64_t j = 0; c->factor && j < c->cols; j++) y[j] *= c->factor[j];
}

/* ---------------------------------------------------------------- comparing */

/* Least-squares factor a that minimizes sum (a y - w)^2: sum w y / sum y^2. */
static double row_fit_factor(const float *y, const float *w, int64_t n)
{
    double with = 0, square = 0;
    for (int64_t j = 0; j < n; j++) {
        with += (double)y[j] * w[j];
        square += (double)y[j] * y[j];
    }
    return square > 0 ? with / square : 1;
}

/* Thread function: compare some rows, or sum the columns for the fit. */
static void comparison_rows(void *arg, int member, int size)
{
    struct comparison *c = arg;
    const int64_t from = c->rows * member / size, to = c->rows * (member + 1) / size;
    float *stored = c->scratch + (int64_t)member * 3 * c->cols, *y = stored + c->cols, *w = y + c->cols;
    double *columns = c->fitting ? c->columns + (int64_t)member * 2 * c->cols : NULL, error = 0, power = 0;
    for (int64_t r = from; r < to; r++) {
        comparison_read_row(c, r, stored, y, w);
        if (c->fitting) {
            for (int64_t j = 0; j < c->cols; j++) {
                columns[j] += (double)y[j] * w[j];
                columns[c->cols + j] += (double)y[j] * y[j];
            }
            continue;
        }
        const double row = c->fit == FIT_ROWS ? row_fit_factor(y, w, c->cols) : 1;
        for (int64_t j = 0; j < c->cols; j++) {
            const double d = (c->best ? c->best[j] : row) * y[j] - w[j];
            error += d * d;
            power += (double)w[j] * w[j];
        }
    }
    c->sums[2 * member] = error;
    c->sums[2 * member + 1] = power;
}

/* First pass of FIT_COLUMNS: the least-squares factor of each column. */
static void comparison_fit_columns(struct comparison *c, struct threadpool *pool)
{
    const int size = threadpool_size(pool);
    c->fitting = true;
    threadpool_run(pool, comparison_rows, c);
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

/* Compare all rows. *nmse: squared error relative to the squared weights. */
static enum err_code comparison_run(struct comparison *c, struct threadpool *pool, double *nmse,
                                    struct err *why)
{
    const size_t size = (size_t)threadpool_size(pool), cols = (size_t)c->cols;
    c->scratch = malloc(size * 3 * cols * sizeof *c->scratch);
    c->sums = calloc(size, 2 * sizeof *c->sums);
    if (c->fit == FIT_COLUMNS) {
        c->columns = calloc(size * cols, 2 * sizeof *c->columns);
        c->best = malloc(cols * sizeof *c->best);
    }
    if (!c->scratch || !c->sums || (c->fit == FIT_COLUMNS && (!c->columns || !c->best)))
        return err_set(why, ERR_NOMEM, "out of memory to compare '%s'", c->was.matrix->name);
    if (c->fit == FIT_COLUMNS) comparison_fit_columns(c, pool);
    threadpool_run(pool, comparison_rows, c);
    double error = 0, power = 0;
    for (size_t m = 0; m < size; m++) {
        error += c->sums[2 * m];
        power += c->sums[2 * m + 1];
    }
    *nmse = error == 0 ? 0 : error / power; /* infinity if all source weights are 0 and some are not now */
    return ERR_OK;
}

enum err_code quantize_tensor_mismatch(const struct tensor_plan *t, const struct gguf_tensor *is,
                                       struct err *why)
{
    const int64_t *want = t->source->shape, *have = is ? is->shape : NULL;
    if (!is)
        return err_set(
            why, ERR_FORMAT,
            "tensor '%s' is missing in the quantized file: expected %s, shape [%lld,%lld,%lld,%lld]; "
            "quantize the source again",
            t->source->name, t->format->name, (long long)want[0], (long long)want[1], (long long)want[2],
            (long long)want[3]);
    return err_set(why, ERR_FORMAT,
                   "tensor '%s': expected %s, shape [%lld,%lld,%lld,%lld]; the quantized file has %s, shape "
                   "[%lld,%lld,%lld,%lld]; quantize the source again",
                   t->source->name, t->format->name, (long long)want[0], (long long)want[1],
                   (long long)want[2], (long long)want[3], is->format->name, (long long)have[0],
                   (long long)have[1], (long long)have[2], (long long)have[3]);
}

/* Measure the error of one tensor. ERR_FORMAT: the file has another format or shape than planned. */
static enum err_code tensor_plan_measure(struct tensor_plan *t, const struct gguf *source,
                                         const struct gguf *made, struct threadpool *pool, struct err *why)
{
    const struct gguf_tensor *is = gguf_tensor_find(made, t->source->name);
    struct comparison c = { .rows = t->source->shape[1] * t->source->shape[2] * t->source->shape[3],
                            .cols = t->source->shape[0] };
    if (!is || is->format != t->format || memcmp(is->shape, t->source->shape, sizeof is->shape) != 0)
        return quantize_tensor_mismatch(t, is, why);
    enum err_code rc = effective_init(&c.was, source, t->source, why);
    if (!rc) rc = effective_init(&c.is, made, is, why);
    if (!rc) rc = comparison_find_folded(&c, source, made, why);
    if (!rc) rc = comparison_run(&c, pool, &t->nmse, why);
    t->nmse_rescaled = c.fit != FIT_NONE;
    effective_done(&c.was);
    effective_done(&c.is);
    free(c.factor);
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
        if (t->fate == FATE_KEPT) continue; /* a norm changed by folding is counted at the matrix behind it */
        rc = tensor_plan_measure(t, source, made, pool, why);
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
