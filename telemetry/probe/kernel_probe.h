/* telemetry/probe/kernel_probe.h - what the files that measure kernel times share (internal to
 * telemetry/probe). */
#ifndef QDYNO_TELEMETRY_KERNEL_PROBE_H
#define QDYNO_TELEMETRY_KERNEL_PROBE_H

#include <math.h>

#include "telemetry/probe/probe.h"
#include "telemetry/probe/stopwatch.h"

enum {
    PROBE_WIDE = KERNEL_COLS, /* columns and rows of a matrix, as in a model of 1e9 weights */
    PROBE_ROWS = 512,         /* the most rows of activations */
    PROBE_UNCACHED_BYTES = 256 << 20,
    PROBE_SHAPES = 3,     /* of small matrices */
    PROBE_ATTENTIONS = 3, /* variants of attention with one row */
};

/* The state of one measurement. In the arrays below the last index is 0 for one thread, 1 for all threads. */
struct bench {
    struct kernel_times *out;
    uint32_t isa;
    int threads[2];
    double begun_s, deadline_s;
    kernel_progress_fn *progress;
    void *ctx;
    bool cancelled;

    float *x, *y;      /* [PROBE_ROWS][PROBE_WIDE] activations and results */
    uint8_t *matrix;   /* one matrix of PROBE_WIDE x PROBE_WIDE in any format */
    uint8_t *uncached; /* [PROBE_UNCACHED_BYTES] matrices that do not fit in caches */
    float *normal_row; /* [PROBE_WIDE] from an approximate N(0, 1) */

    struct backend *backend[2]; /* with default settings; variants open their own while they are timed */
    struct stopwatch *stopwatch[2];

    /* the samples behind the fields of struct kernel_times with similar names */
    struct samples product_one[FORMAT_COUNT][2], product_most[FORMAT_COUNT][2];
    struct samples near[FORMAT_COUNT][PROBE_SHAPES][2], stream[FORMAT_COUNT][2];
    struct samples attend[FORMAT_COUNT][PROBE_ATTENTIONS][2], attend_far[FORMAT_COUNT][2];
    struct samples read[KERNEL_READS][2], region[2], glue[2], glue_element[2], wake;
};

static inline double probe_now_s(void)
{
    return (double)clock_ns() * 1e-9;
}

static inline bool time_is_valid(double s)
{
    return s > 0 && isfinite(s);
}

/* Stores s in *to if it is less than the values of earlier passes: disturbances only add time. */
static inline void keep_least(float *to, double s)
{
    if (time_is_valid(s) && (!(*to > 0) || s < (double)*to)) *to = (float)s;
}

/* Adds a sample and stores the median of all passes so far in *to. */
static inline void keep_median(float *to, struct samples *all, double s)
{
    samples_add(all, s);
    if (time_is_valid(samples_median(all))) *to = (float)samples_median(all);
}

/* In all functions below: `t` is 0 for one thread, 1 for all; `f` is an index of FORMATS. */

/* kernel_probe_products.c: products with weights */

/* The backend settings that select a kernel variant. */
struct backend_options probe_options(const struct bench *b, enum kernel_variant v, int t);
/* Load sensitivity of a product of `rows` rows (kernel_load_sensitivity) with these settings. */
double probe_load_sensitivity(const struct bench *b, const struct format *f, enum kernel_variant v, int rows);
/* Fills product, near, row, row_short and edge. ends_only: only products of 1 row and of PROBE_ROWS rows,
 * which decoding and prompt processing depend on. */
void probe_products(struct bench *b, struct backend *backend, int f, enum kernel_variant v, int t,
                    bool ends_only);
/* Fills samples of stream: a GEMV on matrices that do not fit in caches. */
void probe_stream(struct bench *b, struct backend *backend, int f, int t);
/* Fills region. Call it after probe_products of q8_0. */
void probe_region(struct bench *b, struct backend *backend, int t);
/* Fills wake. */
void probe_wake(struct bench *b, struct backend *backend);
/* True when this format's times suggest that other programs disturbed the measurement. */
bool probe_disturbed(const struct bench *b, int f, int t);

/* kernel_probe_layer.c: the rest of a layer; f: format of the KV cache */

/* Fills attend_one, attend_many, narrow_one, narrow_many and apart_one. */
void probe_attention(struct bench *b, struct backend *backend, int f, enum kernel_variant v, int t);
/* Fills samples of attend_far: attention of one row over a cache in main memory. */
void probe_attention_far(struct bench *b, struct backend *backend, int f, int t);
/* Fills glue and glue_element. */
void probe_glue(struct bench *b, struct backend *backend, int t);

#endif
