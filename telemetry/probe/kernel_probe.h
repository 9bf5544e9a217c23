/* telemetry/probe/kernel_probe.h - what the parts of the measurement of kernels share. Internal to telemetry/. */
#ifndef QDYNO_TELEMETRY_PROBE_KERNELS_H
#define QDYNO_TELEMETRY_PROBE_KERNELS_H

#include <math.h>

#include "telemetry/probe/probe.h"
#include "telemetry/probe/stopwatch.h"

enum {
    PROBE_WIDE = KERNEL_COLS, /* a square matrix like those of a model of a billion weights */
    PROBE_ROWS = 512,         /* of activations, at most */
    PROBE_BANK_BYTES = 256 << 20,
    PROBE_SHAPES = 3, /* of small matrices */
    PROBE_WAYS = 3,   /* of one row to look back */
};

struct bench {
    struct kernel_times *out;
    uint32_t isa;
    int threads[2];
    double begun_s, deadline_s;
    kernel_progress_fn *progress;
    void *ctx;
    bool cancelled;
    float *x, *y;   /* [PROBE_ROWS][PROBE_WIDE] */
    uint8_t *small; /* one matrix of PROBE_WIDE squared, f32 at most */
    uint8_t *bank;  /* PROBE_BANK_BYTES */
    float *numbers; /* [PROBE_WIDE] N(0, 1) or near it */
    struct samples one[FORMAT_COUNT][2], most[FORMAT_COUNT][2], near[FORMAT_COUNT][PROBE_SHAPES][2],
        stream[FORMAT_COUNT][2], look[FORMAT_COUNT][PROBE_WAYS][2], far[FORMAT_COUNT][2],
        read[KERNEL_READS][2], region[2], glue[2], glue_element[2], wake;
    struct backend *backend[2]; /* with what is usual; others are opened while they are timed */
    struct stopwatch *watch[2]; /* of these: what it told becomes seconds at best in put_seconds */
};

static inline double now_s(void)
{
    return (double)clock_ns() * 1e-9;
}

static inline bool usable(double s)
{
    return s > 0 && isfinite(s);
}

/* The lesser of what was known and what a further pass found. */
static inline void keep_least(float *to, double s)
{
    if (usable(s) && (!(*to > 0) || s < (double)*to)) *to = (float)s;
}

/* The middle of all passes so far. */
static inline void keep_middle(float *to, struct samples *all, double s)
{
    samples_add(all, s);
    if (usable(samples_middle(all))) *to = (float)samples_middle(all);
}

/* probe_products.c. `ends`: of one row and of most, which decoding and prompts stand on; else of all. */
struct backend_options probe_options(const struct bench *b, enum kernel_variant v, int t);
double probe_feels(const struct bench *b, const struct format *f, enum kernel_variant v, int rows);
void probe_products(struct bench *b, struct backend *backend, int f, enum kernel_variant v, int t, bool ends);
void probe_stream(struct bench *b, struct backend *backend, int format, int t);
void probe_region(struct bench *b, struct backend *backend, int t); /* after the products of q8_0 */
void probe_waking(struct bench *b, struct backend *backend);
bool probe_disturbed(const struct bench *b, int f, int t);

/* probe_layer.c: attention with a cache of format f, and what a layer does beside products and that. */
void probe_attention(struct bench *b, struct backend *backend, int f, enum kernel_variant v, int t);
void probe_far(struct bench *b, struct backend *backend, int f, int t); /* its tokens in memory */
void probe_glue(struct bench *b, struct backend *backend, int t);

#endif
