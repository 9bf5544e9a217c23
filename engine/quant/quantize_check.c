/* Checks what is written: every value that the new file means is a finite number.
 *
 * The scales of most formats are f16, whose largest number is 65504: a weight of 1e5 becomes infinite in f16
 * and q4_1, one of 1e6 also in q4_0. A model with such a weight computes nothing, so this is an error.
 * Formats with 8-bit scales or codes clip instead, which is counted. */
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/quant/quantize_internal.h"

struct check {
    const struct format *format;
    const float *x; /* [rows][cols] what was encoded; NULL: unknown */
    const unsigned char *out;
    int64_t rows, cols;
    bool clips;          /* count clipped values */
    _Atomic int64_t bad; /* smallest index of a value that is not finite; -1: none */
    _Atomic int64_t clipped;
    _Atomic bool no_memory;
};

static void note_bad(struct check *c, int64_t at)
{
    int64_t seen = atomic_load(&c->bad);
    while ((seen < 0 || at < seen) && !atomic_compare_exchange_weak(&c->bad, &seen, at)) continue;
}

/* Values that lost more than 30 % of what they were, although they are among the largest of their row: steps
 * between codes are smaller than that in all formats with 4 bits and more. */
static int64_t row_clipped(const float *x, const float *is, int64_t n)
{
    float largest = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) largest = fmaxf(largest, fabsf(x[i]));
    for (int64_t i = 0; i < n; i++)
        count += fabsf(x[i]) > 0.5f * largest && fabsf(is[i]) < 0.7f * fabsf(x[i]);
    return count;
}

/* Thread function: check some rows. */
static void check_rows(void *arg, int member, int size)
{
    struct check *c = arg;
    const int64_t from = c->rows * member / size, to = c->rows * (member + 1) / size,
                  bytes = format_row_bytes(c->format, c->cols);
    if (from == to) return;
    float *is = malloc((size_t)c->cols * sizeof *is);
    if (!is) {
        atomic_store(&c->no_memory, true);
        return;
    }
    int64_t clipped = 0, bad = -1;
    for (int64_t r = from; r < to && bad < 0; r++) {
        format_decode_rows(c->format, c->out + r * bytes, is, 1, c->cols);
        for (int64_t i = 0; i < c->cols && bad < 0; i++)
            if (!isfinite(is[i])) bad = r * c->cols + i;
        if (c->clips && bad < 0) clipped += row_clipped(c->x + r * c->cols, is, c->cols);
    }
    if (bad >= 0) note_bad(c, bad);
    atomic_fetch_add(&c->clipped, clipped);
    free(is);
}

/* The value at index `at` of what was checked, which is `first` values into the tensor. */
static enum err_code check_error(const struct check *c, const struct unit *u, int64_t first, int64_t at,
                                 struct err *why)
{
    const char *name = u->source->name, *format = c->format->name;
    const int64_t cols = c->cols, row = (first + at) / cols;
    int64_t column = (first + at) % cols;
    if (!c->x)
        return err_set(why, ERR_FORMAT,
                       "tensor '%s': row %" PRId64 " column %" PRId64
                       " of the source is not a finite number: the model is damaged; use another copy of it",
                       name, row, column);
    const float *x = c->x +
                     at / cols * cols; /* a scale that is infinite spoils smaller weights of its block, too */
    for (int64_t i = 0; i < cols && isfinite(x[column]); i++)
        if (!(fabsf(x[i]) <= fabsf(x[column]))) column = i;
    const double value = (double)x[column];
    if (!isfinite(value))
        return err_set(why, ERR_FORMAT,
                       "tensor '%s': row %" PRId64 " column %" PRId64
                       " became %g in the calculations of the method: use another method or format",
                       name, row, column, value);
    const size_t n = strlen(name) - (str_ends(name, ".weight") ? strlen(".weight") : 0);
    return err_set(
        why, ERR_FORMAT,
        "tensor '%s': row %" PRId64 " column %" PRId64
        " is %g, which %s cannot store: it would become infinite; use bf16 or f32, or keep this tensor in "
        "bf16 (tensors=%.*s:bf16)",
        name, row, column, value, format, (int)n, name);
}

enum err_code encoded_check(struct quantization *q, const struct unit *u, const struct format *format,
                            const struct checked *what, struct err *why)
{
    struct check c = { .format = format,
                       .x = what->x,
                       .out = what->out,
                       .rows = what->rows,
                       .cols = u->source->shape[0],
                       .clips = what->clips && format && !format->weighted && format->max_nmse < 0.012 };
    if (!format || !format->decode) return ERR_OK;
    atomic_init(&c.bad, -1);
    threadpool_run(q->pool, check_rows, &c);
    if (atomic_load(&c.no_memory))
        return err_set(why, ERR_NOMEM, "out of memory while checking '%s'", u->source->name);
    q->clipped += atomic_load(&c.clipped);
    const int64_t bad = atomic_load(&c.bad);
    return bad < 0 ? ERR_OK : check_error(&c, u, what->first_row * c.cols, bad, why);
}

enum err_code companions_check(const struct tensor_job *job, struct err *why)
{
    for (int i = 0; i < job->companions; i++) {
        const struct companion_tensor *s = &job->companion[i];
        const struct format *f = companion_format(s->what);
        const int64_t bytes = format_row_bytes(f, 1);
        char name[160];
        for (int64_t k = 0; format_is_float(f) && k < s->size; k++) {
            float v;
            format_decode_rows(f, (const unsigned char *)s->data + k * bytes, &v, 1, 1);
            if (isfinite(v)) continue;
            return err_set(
                why, ERR_FORMAT,
                "tensor '%s': value %" PRId64
                " is not a finite number: the weights are too large for the method; use another method, "
                "bf16 or f32",
                companion_name(job->name, s->what, name, sizeof name), k);
        }
    }
    return ERR_OK;
}

void quantize_note_clipped(struct quantization *q, const struct unit *u)
{
    if (q->clipped)
        log_write(q->options->log, LOG_WARN,
                  "tensor '%s': %" PRId64
                  " values are beyond the range of %s and were clipped; bf16, f16 or f32 would keep them",
                  u->source->name, q->clipped, u->format->name);
    q->clipped = 0;
}
