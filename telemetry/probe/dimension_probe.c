/* telemetry/probe/dimension_probe.c - the price of a row length that does not fill vectors and blocks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/probe/probe.h"
#include "telemetry/probe/stopwatch.h"

enum { WEIGHTS = 1 << 19, PAIRS = 5, MANY = 64, PROBE_COLS = 4096 /* more than the speed probe's */ };

struct timed {
    struct backend *backend;
    struct stopwatch *watch;
    const struct format *format;
    int64_t rows; /* of the matrix */
    float *x, *y;
    uint8_t *matrix;
    struct weight w;
    struct matmul m;
};

static void timed_run(void *arg)
{
    struct timed *t = arg;
    backend_matmul(t->backend, &t->m, 1);
}

/* Seconds per weight of one product of `n` rows of activations with a matrix of rows of `cols` numbers. NAN:
 * it cannot be bound. */
static double seconds_per_weight(struct timed *t, int64_t cols, int n)
{
    const int64_t rows = t->rows;
    const struct backend_options o = { .precision = PRECISION_AUTO };
    if (backend_weight_bind(t->backend, &t->w, t->format, rows, cols, NULL, t->matrix, NULL)) return NAN;
    t->m = (struct matmul){ .w = &t->w, .x = t->x, .x_stride = cols, .n = n, .y = t->y, .y_stride = rows };
    const double s = stopwatch_time_compute(t->watch, t->backend, timed_run, t,
                                            kernel_load_sensitivity(t->format, &o, n));
    backend_weight_release(t->backend, &t->w);
    return s / (double)(rows * cols);
}

/* The median over pairs in turns, so that both lengths see the same machine. */
static double price(struct timed *t, int64_t cols, int64_t full, int n)
{
    struct samples ratios = { 0 };
    for (int i = 0; i < PAIRS; i++) {
        const bool first = i % 2;
        double a = first ? seconds_per_weight(t, cols, n) : NAN;
        const double b = seconds_per_weight(t, full, n);
        if (!first) a = seconds_per_weight(t, cols, n);
        samples_add(&ratios, a / b);
    }
    return samples_median(&ratios);
}

static enum err_code timed_open(struct timed *t, int64_t cols, uint32_t isa, struct err *why)
{
    const struct backend_options o = { .threads = 1, .isa = isa, .precision = PRECISION_AUTO };
    const int64_t row_bytes = format_row_bytes(t->format, cols);
    t->x = calloc((size_t)(MANY * cols), sizeof *t->x);
    t->y = malloc((size_t)(MANY * t->rows) * sizeof *t->y);
    t->matrix = malloc((size_t)((t->rows + 1) * row_bytes));
    if (!t->x || !t->y || !t->matrix) return err_set(why, ERR_NOMEM, "out of memory to time a product");
    for (int64_t i = 0; i < MANY * cols; i++) t->x[i] = (float)((i * 37) % 101 - 50) / 50;
    enum err_code rc = backend_open(&t->backend, "cpu", &o, why);
    if (!rc)
        rc = backend_reserve(t->backend,
                             &(struct backend_work){ .rows = MANY, .cols = MAX(cols, PROBE_COLS) }, why);
    return rc ? rc : stopwatch_open(&t->watch, t->backend, why);
}

enum err_code dimension_price(struct dimension_price *out, const struct format *f, int64_t cols, int64_t full,
                              uint32_t isa_usable, struct err *why)
{
    struct timed t = { .format = f, .rows = full > 0 ? MAX(WEIGHTS / full, 16) : 0 };
    *out = (struct dimension_price){ NAN, NAN };
    if (cols % f->block_weights || full % f->block_weights || cols < 1 || full < cols)
        return err_set(why, ERR_USAGE, "rows of %lld and %lld numbers do not fill blocks of %s",
                       (long long)cols, (long long)full, f->name);
    enum err_code rc = timed_open(&t, full, isa_usable, why);
    /* weights of one encoded row: speed does not depend on their values */
    if (!rc) {
        format_encode_rows(f, t.x, t.matrix, 1, full);
        const int64_t bytes = format_row_bytes(f, full);
        for (int64_t i = 1; i <= t.rows; i++) memcpy(t.matrix + i * bytes, t.matrix, (size_t)bytes);
        out->one_row = price(&t, cols, full, 1);
        out->many_rows = price(&t, cols, full, MANY);
    }
    stopwatch_close(t.watch);
    backend_close(t.backend);
    free(t.matrix);
    free(t.y);
    free(t.x);
    return rc;
}
