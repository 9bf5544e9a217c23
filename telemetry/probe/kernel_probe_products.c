/* telemetry/probe/kernel_probe_products.c - how long products take: see probe_kernels.c. */
#include "telemetry/probe/kernel_probe.h"

#include <stdlib.h>
#include <string.h>

#include "telemetry/probe/probe.h"
#include "telemetry/probe/stopwatch.h"

/* Matrices like those of a model of a few million weights, in a core's own cache, of as many weights: what
 * one takes longer than the other is for its rows. */
static const struct {
    int rows, cols;
} SMALL[PROBE_SHAPES] = { { KERNEL_NEAR_WEIGHTS / KERNEL_LONG_COLS, KERNEL_LONG_COLS },
                          { KERNEL_NEAR_WEIGHTS / 1024, 1024 },
                          { KERNEL_NEAR_WEIGHTS / KERNEL_SHORT_COLS, KERNEL_SHORT_COLS } };
enum { TINY = 256 };

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

double probe_feels(const struct bench *b, const struct format *f, enum kernel_variant v, int rows)
{
    const struct backend_options o = probe_options(b, v, 0);
    return kernel_load_sensitivity(f, &o, rows);
}

/* One product with a matrix of `small`, bound to w (backend_weight_release); false where the format cannot be
 * run so. */
static bool product_open(struct product *p, struct weight *w, struct bench *b, struct backend *backend,
                         const struct format *f, struct shape shape)
{
    if (shape.cols % f->block_weights) return false;
    fill_rows(b, f, b->small, shape.rows, shape.cols);
    if (backend_weight_bind(backend, w, f, shape.rows, shape.cols, NULL, b->small, NULL)) return false;
    *p = (struct product){
        .backend = backend,
        .m = { .x = b->x, .x_stride = shape.cols, .n = shape.n, .y = b->y, .y_stride = shape.rows },
        .weights = w,
        .n = 1,
    };
    return true;
}

/* Seconds of one product (stopwatch_computing); NAN where the format cannot be run so. */
static double product_s(struct bench *b, struct backend *backend, const struct format *f,
                        enum kernel_variant v, struct shape shape, int t)
{
    struct weight w;
    struct product p;
    if (!product_open(&p, &w, b, backend, f, shape)) return NAN;
    const double s = stopwatch_computing(b->watch[t], backend, run_products, &p,
                                         probe_feels(b, f, v, shape.n));
    backend_weight_release(backend, &w);
    return s;
}

/* One row through matrices that do not fit in a cache together: bytes that are read in the time of one
 * weight. The bank's bytes are no numbers of that format; speed does not depend on them. */
void probe_stream(struct bench *b, struct backend *backend, int format, int t)
{
    const struct format *f = &FORMATS[format];
    const int64_t bytes = format_row_bytes(f, PROBE_WIDE) * PROBE_WIDE;
    const int n = (int)(PROBE_BANK_BYTES / bytes);
    struct weight *w = calloc((size_t)n, sizeof *w);
    if (!w) return;
    struct product p = {
        .backend = backend,
        .m = { .x = b->x, .x_stride = PROBE_WIDE, .n = 1, .y = b->y, .y_stride = PROBE_WIDE },
        .weights = w,
    };
    while (p.n < n && !backend_weight_bind(backend, &w[p.n], f, PROBE_WIDE, PROBE_WIDE, NULL,
                                           b->bank + p.n * bytes, NULL))
        p.n++;
    if (p.n == n)
        stopwatch_reading(b->watch[t], backend, &b->stream[format][t], run_products, &p,
                          (double)n * PROBE_WIDE * PROBE_WIDE);
    for (int i = 0; i < p.n; i++) backend_weight_release(backend, &w[i]);
    free(w);
}

/* What two shapes say: a product takes `edge` per row and element of input and output, and `weight` per
 * weight. */
static void fit_edge(const struct bench *b, int f, int t, double small)
{
    const double n = PROBE_ROWS, weights = (double)PROBE_WIDE * PROBE_WIDE;
    const double large = b->out->product[f][0][KERNEL_ROWS - 1][t] * weights;
    const double small_edge = n * (SMALL[0].cols + SMALL[0].rows), large_edge = n * 2 * PROBE_WIDE;
    const double rest = small - large * KERNEL_NEAR_WEIGHTS / weights;
    const double edge = rest / (small_edge - large_edge * KERNEL_NEAR_WEIGHTS / weights);
    const double most = 0.5 * large / large_edge;
    b->out->edge[f][t] = (float)(edge > 0 ? fmin(edge, most) : 1e-6 * most);
}

static struct shape small_shape(int i, int n)
{
    return (struct shape){ SMALL[i].rows, SMALL[i].cols, n };
}

/* One row, of so few weights that each row of them and the call count. */
static void measure_near(struct bench *b, struct backend *backend, int f, int t)
{
    double s[PROBE_SHAPES];
    const bool has_short = KERNEL_SHORT_COLS % FORMATS[f].block_weights == 0;
    for (int i = 0; i < PROBE_SHAPES - !has_short; i++) {
        samples_add(&b->near[f][i][t],
                    product_s(b, backend, &FORMATS[f], KERNEL_VARIANT_AUTO, small_shape(i, 1), t));
        s[i] = samples_middle(&b->near[f][i][t]);
    }
    const double row = fmax((s[0] - s[1]) / (SMALL[0].rows - SMALL[1].rows), 0);
    const double weight = (s[1] - row * SMALL[1].rows) / KERNEL_NEAR_WEIGHTS;
    if (!usable(weight)) return;
    b->out->row[f][t] = (float)row;
    b->out->near[f][t] = (float)weight;
    if (has_short)
        b->out->row_short[f][t] = (float)fmax((s[2] - weight * KERNEL_NEAR_WEIGHTS) / SMALL[2].rows, row);
}

void probe_products(struct bench *b, struct backend *backend, int f, enum kernel_variant v, int t, bool ends)
{
    const struct format *format = &FORMATS[f];
    for (int r = 0; r < KERNEL_ROWS; r++) {
        const struct shape square = { PROBE_WIDE, PROBE_WIDE, KERNEL_ROWS_AT[r] };
        if (ends && r != 0 && r != KERNEL_ROWS - 1) continue;
        const double s = product_s(b, backend, format, v, square, t) / PROBE_WIDE / PROBE_WIDE;
        if (v == KERNEL_VARIANT_AUTO && (!r || r == KERNEL_ROWS - 1))
            keep_middle(&b->out->product[f][v][r][t], &(r ? b->most : b->one)[f][t], s);
        else
            keep_least(&b->out->product[f][v][r][t], s);
    }
    if (v == KERNEL_VARIANT_AUTO) measure_near(b, backend, f, t);
    if (ends) return;
    const double small = product_s(b, backend, format, v, small_shape(0, PROBE_ROWS), t);
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
bool probe_disturbed(const struct bench *b, int f, int t)
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

/* A product of hardly any weights: what is left is the cost of asking the threads, which is in the small
 * ones, too. */
void probe_region(struct bench *b, struct backend *backend, int t)
{
    const int f = FORMAT_Q8_0;
    const struct shape tiny = { TINY, TINY, 1 };
    const double row = b->out->row[f][t], few = samples_middle(&b->near[f][1][t]) - SMALL[1].rows * row;
    const double s = product_s(b, backend, &FORMATS[f], KERNEL_VARIANT_AUTO, tiny, t), rest = s - TINY * row;
    const double weights = (double)TINY * TINY, weight = (few - rest) / (KERNEL_NEAR_WEIGHTS - weights);
    if (usable(s) && usable(few))
        keep_middle(&b->out->region[t], &b->region[t],
                    fmin(fmax(rest - weight * weights, 0.02 * s), 0.5 * s));
}

/* What the first product after a while takes more, as the other threads have to be woken. */
void probe_waking(struct bench *b, struct backend *backend)
{
    enum { TRIES = 24 };
    static const int64_t WHILE_NS = 1000000; /* far beyond what they spin */
    struct weight w;
    struct product p;
    double first[TRIES], second[TRIES];
    if (!product_open(&p, &w, b, backend, &FORMATS[FORMAT_Q8_0], small_shape(0, 1))) return;
    for (int i = 0; i < TRIES; i++) {
        const int64_t until = clock_ns() + WHILE_NS;
        while (clock_ns() < until) continue; /* who asks has been at work */
        const double from = now_s();
        run_products(&p);
        const double between = now_s();
        run_products(&p);
        first[i] = between - from;
        second[i] = now_s() - between;
    }
    backend_weight_release(backend, &w);
    const double wake = pace_usual_s(first, TRIES) - pace_usual_s(second, TRIES);
    if (usable(wake)) keep_middle(&b->out->wake, &b->wake, wake);
}
