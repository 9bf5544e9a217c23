/* telemetry/probe/kernel_probe_products.c - times products of activations with weights. */
#include "telemetry/probe/kernel_probe.h"

#include <stdlib.h>
#include <string.h>

#include "telemetry/probe/probe.h"
#include "telemetry/probe/stopwatch.h"

/* Small matrices, as in a model of a few million weights, that fit in a core's own cache. All have the same
 * number of weights, so a difference of their times is due to the number of rows. */
static const struct {
    int rows, cols;
} SMALL[PROBE_SHAPES] = { { KERNEL_NEAR_WEIGHTS / KERNEL_LONG_COLS, KERNEL_LONG_COLS },
                          { KERNEL_NEAR_WEIGHTS / 1024, 1024 },
                          { KERNEL_NEAR_WEIGHTS / KERNEL_SHORT_COLS, KERNEL_SHORT_COLS } };
enum { TINY = 256 }; /* rows and columns of a matrix so small that the call itself dominates */

/* The work that is timed: one product with each of n matrices. */
struct product {
    struct backend *backend;
    struct matmul m;
    struct weight *weights; /* [n] */
    int n;
};

static void product_run(void *arg)
{
    struct product *p = arg;
    for (int i = 0; i < p->n; i++) {
        p->m.w = &p->weights[i];
        backend_matmul(p->backend, &p->m, 1);
    }
}

/* Fills all rows with the same encoded row, because speed does not depend on the values. */
static void weights_fill(const struct bench *b, const struct format *f, uint8_t *to, int64_t rows,
                         int64_t cols)
{
    const int64_t bytes = format_row_bytes(f, cols);
    format_encode_rows(f, b->normal_row, to, 1, cols);
    for (int64_t i = 1; i < rows; i++) memcpy(to + i * bytes, to, (size_t)bytes);
}

struct shape {
    int64_t rows, cols;
    int n; /* rows of activations */
};

struct backend_options probe_options(const struct bench *b, enum kernel_variant v, int t)
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

double probe_load_sensitivity(const struct bench *b, const struct format *f, enum kernel_variant v, int rows)
{
    const struct backend_options o = probe_options(b, v, 0);
    return kernel_load_sensitivity(f, &o, rows);
}

/* Prepares one product with a matrix in b->matrix, bound to *w (backend_weight_release). False when the
 * format does not allow this shape. */
static bool product_open(struct product *p, struct weight *w, struct bench *b, struct backend *backend,
                         const struct format *f, struct shape shape)
{
    if (shape.cols % f->block_weights) return false;
    weights_fill(b, f, b->matrix, shape.rows, shape.cols);
    if (backend_weight_bind(backend, w, f, shape.rows, shape.cols, NULL, b->matrix, NULL)) return false;
    *p = (struct product){
        .backend = backend,
        .m = { .x = b->x, .x_stride = shape.cols, .n = shape.n, .y = b->y, .y_stride = shape.rows },
        .weights = w,
        .n = 1,
    };
    return true;
}

/* Seconds of one product (see stopwatch_time_compute); NAN when the format does not allow this shape. */
static double product_s(struct bench *b, struct backend *backend, const struct format *f,
                        enum kernel_variant v, struct shape shape, int t)
{
    struct weight w;
    struct product p;
    if (!product_open(&p, &w, b, backend, f, shape)) return NAN;
    const double s = stopwatch_time_compute(b->stopwatch[t], backend, product_run, &p,
                                            probe_load_sensitivity(b, f, v, shape.n));
    backend_weight_release(backend, &w);
    return s;
}

/* The uncached memory holds as many matrices as fit in PROBE_UNCACHED_BYTES, which exceeds the caches. Its
 * bytes are not valid weights of the format; speed does not depend on their values. */
void probe_stream(struct bench *b, struct backend *backend, int f, int t)
{
    const struct format *format = &FORMATS[f];
    const int64_t bytes = format_row_bytes(format, PROBE_WIDE) * PROBE_WIDE;
    const int n = (int)(PROBE_UNCACHED_BYTES / bytes);
    struct weight *w = calloc((size_t)n, sizeof *w);
    if (!w) return;
    struct product p = {
        .backend = backend,
        .m = { .x = b->x, .x_stride = PROBE_WIDE, .n = 1, .y = b->y, .y_stride = PROBE_WIDE },
        .weights = w,
    };
    while (p.n < n && !backend_weight_bind(backend, &w[p.n], format, PROBE_WIDE, PROBE_WIDE, NULL,
                                           b->uncached + p.n * bytes, NULL))
        p.n++;
    if (p.n == n)
        stopwatch_time_memory(b->stopwatch[t], backend, &b->stream[f][t], product_run, &p,
                              (double)n * PROBE_WIDE * PROBE_WIDE);
    for (int i = 0; i < p.n; i++) backend_weight_release(backend, &w[i]);
    free(w);
}

/* Solves two equations for `edge`, the time per row and element of input or output:
 *
 *   large_s = per_weight * large_weights + edge * large_elements
 *   small_s = per_weight * small_weights + edge * small_elements
 *
 * Noise can make the solution negative or too large, so it is limited to half of the large product's time. */
static void edge_fit(const struct bench *b, int f, int t, double small_s)
{
    const double large_weights = (double)PROBE_WIDE * PROBE_WIDE, share = KERNEL_NEAR_WEIGHTS / large_weights;
    const double large_s = b->out->product[f][0][KERNEL_ROWS - 1][t] * large_weights;
    const double small_elements = (double)PROBE_ROWS * (SMALL[0].cols + SMALL[0].rows);
    const double large_elements = (double)PROBE_ROWS * 2 * PROBE_WIDE;
    const double edge = (small_s - large_s * share) / (small_elements - large_elements * share);
    const double most = 0.5 * large_s / large_elements;
    b->out->edge[f][t] = (float)(edge > 0 ? fmin(edge, most) : 1e-6 * most);
}

static struct shape small_shape(int i, int n)
{
    return (struct shape){ .rows = SMALL[i].rows, .cols = SMALL[i].cols, .n = n };
}

/* GEMV on small matrices: fills near, row and row_short from the times of three shapes, each of which is
 * near * weights + row * rows. */
static void probe_near(struct bench *b, struct backend *backend, int f, int t)
{
    double s[PROBE_SHAPES];
    const bool has_short = KERNEL_SHORT_COLS % FORMATS[f].block_weights == 0;
    for (int i = 0; i < PROBE_SHAPES - !has_short; i++) {
        samples_add(&b->near[f][i][t],
                    product_s(b, backend, &FORMATS[f], KERNEL_VARIANT_AUTO, small_shape(i, 1), t));
        s[i] = samples_median(&b->near[f][i][t]);
    }
    const double row = fmax((s[0] - s[1]) / (SMALL[0].rows - SMALL[1].rows), 0);
    const double weight = (s[1] - row * SMALL[1].rows) / KERNEL_NEAR_WEIGHTS;
    if (!time_is_valid(weight)) return;
    b->out->row[f][t] = (float)row;
    b->out->near[f][t] = (float)weight;
    if (has_short)
        b->out->row_short[f][t] = (float)fmax((s[2] - weight * KERNEL_NEAR_WEIGHTS) / SMALL[2].rows, row);
}

void probe_products(struct bench *b, struct backend *backend, int f, enum kernel_variant v, int t,
                    bool ends_only)
{
    const struct format *format = &FORMATS[f];
    for (int r = 0; r < KERNEL_ROWS; r++) {
        const struct shape square = { .rows = PROBE_WIDE, .cols = PROBE_WIDE, .n = KERNEL_ROWS_AT[r] };
        if (ends_only && r != 0 && r != KERNEL_ROWS - 1) continue;
        const double s = product_s(b, backend, format, v, square, t) / PROBE_WIDE / PROBE_WIDE;
        if (v == KERNEL_VARIANT_AUTO && (!r || r == KERNEL_ROWS - 1))
            keep_median(&b->out->product[f][v][r][t], &(r ? b->product_most : b->product_one)[f][t], s);
        else
            keep_least(&b->out->product[f][v][r][t], s);
    }
    if (v == KERNEL_VARIANT_AUTO) probe_near(b, backend, f, t);
    if (ends_only) return;
    const double small = product_s(b, backend, format, v, small_shape(0, PROBE_ROWS), t);
    if (time_is_valid(small) && b->out->product[f][v][KERNEL_ROWS - 1][t] > 0) edge_fit(b, f, t, small);
}

/* Time with all threads divided by the time with one. NAN: not measured. */
static double thread_scaling(const struct bench *b, int f, int r)
{
    const float *pair = b->out->product[f][KERNEL_VARIANT_AUTO][r];
    return pair[0] > 0 && pair[1] > 0 ? (double)pair[1] / (double)pair[0] : NAN;
}

/* Other programs slow down everything that is timed while they run. A format whose thread scaling is 15 %
 * worse than usual among the formats was probably timed at such a time: with all threads the scaling is then
 * too high, with one thread too low. */
bool probe_disturbed(const struct bench *b, int f, int t)
{
    static const double TOO_LONG = 1.15;
    for (int r = 0; r < KERNEL_ROWS; r++) {
        double all[FORMAT_COUNT];
        int n = 0;
        for (int i = 0; i < FORMAT_COUNT; i++)
            if (!isnan(thread_scaling(b, i, r))) all[n++] = thread_scaling(b, i, r);
        const double here = thread_scaling(b, f, r), usual = speed_probe_typical_s(all, n);
        if (t ? here > TOO_LONG * usual : here * TOO_LONG < usual) return true;
    }
    return false;
}

/* The time of a tiny product is mostly the cost of starting the threads. That cost is also part of the small
 * products' times, so the time per weight is taken from the difference between the two. */
void probe_region(struct bench *b, struct backend *backend, int t)
{
    const int f = FORMAT_Q8_0;
    const struct shape tiny = { .rows = TINY, .cols = TINY, .n = 1 };
    const double row = b->out->row[f][t], few = samples_median(&b->near[f][1][t]) - SMALL[1].rows * row;
    const double s = product_s(b, backend, &FORMATS[f], KERNEL_VARIANT_AUTO, tiny, t), rest = s - TINY * row;
    const double weights = (double)TINY * TINY, weight = (few - rest) / (KERNEL_NEAR_WEIGHTS - weights);
    if (time_is_valid(s) && time_is_valid(few))
        keep_median(&b->out->region[t], &b->region[t],
                    fmin(fmax(rest - weight * weights, 0.02 * s), 0.5 * s));
}

/* After a pause the other threads sleep, and the first product waits until they are awake: its extra time,
 * compared with the product that follows at once, is `wake`. */
void probe_wake(struct bench *b, struct backend *backend)
{
    enum { TRIES = 24 };
    static const int64_t PAUSE_NS = 1000000; /* threads spin for much less than this before they sleep */
    struct weight w;
    struct product p;
    double first[TRIES], second[TRIES];
    if (!product_open(&p, &w, b, backend, &FORMATS[FORMAT_Q8_0], small_shape(0, 1))) return;
    for (int i = 0; i < TRIES; i++) {
        const int64_t until = clock_ns() + PAUSE_NS;
        while (clock_ns() < until) continue; /* the calling thread stays awake, as in the engine */
        const double from = probe_now_s();
        product_run(&p);
        const double between = probe_now_s();
        product_run(&p);
        first[i] = between - from;
        second[i] = probe_now_s() - between;
    }
    backend_weight_release(backend, &w);
    const double wake = speed_probe_typical_s(first, TRIES) - speed_probe_typical_s(second, TRIES);
    if (time_is_valid(wake)) keep_median(&b->out->wake, &b->wake, wake);
}
