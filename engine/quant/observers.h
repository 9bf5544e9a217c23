/* engine/quant/observers.h - what static quantization has to remember of an activation tensor, batch by
 * batch, and the ranges that observers make of it. Internal to engine/quant/.
 *
 * A batch is one calibration sequence's input of one matrix. The states are those of the field's observers
 * (quant-methods, "Static INT8"): how a histogram grows decides the range it gives. */
#ifndef QDYNO_QUANT_OBSERVERS_H
#define QDYNO_QUANT_OBSERVERS_H

#include <stdint.h>

#include "base/base.h"

/* Activations x[rows][cols] of one batch. */
struct observed {
    const float *x;
    int64_t stride; /* floats from row to row */
    int64_t rows, cols;
    float min, max; /* of all of them */
};

/* Bins over [min, max], all of the data seen (HistogramObserver). Counts are fractions once old bins had to
 * be spread over new ones. */
enum { HISTOGRAM_BINS = 2048, HISTOGRAM_UPSAMPLE = 128 };
struct histogram {
    float min, max; /* min > max: nothing seen */
    double *count;  /* [HISTOGRAM_BINS], borrowed */
};

/* Bins over [-limit, limit] whose width never changes (the entropy observer): data beyond the limit adds
 * whole bins on both sides. Where that would be more than SYMMETRIC_BINS_MAX, neighbours become one bin
 * first. */
enum { SYMMETRIC_BINS = 2048, SYMMETRIC_BINS_MAX = 1 << 16 };
struct symmetric_histogram {
    float limit;   /* 0: nothing but zeros seen */
    int bins;      /* even: bin bins/2 begins at zero */
    double *count; /* [SYMMETRIC_BINS_MAX], borrowed; the first `bins` are in use */
};

/* Empty ones over the caller's memory, which is cleared. */
void histogram_init(struct histogram *h, double *count);
void symmetric_histogram_init(struct symmetric_histogram *h, double *count);

/* Make room for a batch with these extremes (finite), before its values are counted. */
void histogram_reserve(struct histogram *h, float min, float max);
void symmetric_histogram_reserve(struct symmetric_histogram *h, float min, float max);

/* Count n values, all within what was reserved, into counts[bins of h]: the whole numbers a thread gathers by
 * itself, to be added to h->count when all have. */
void histogram_count(const struct histogram *h, const float *x, int64_t n, uint32_t *counts);
void symmetric_histogram_count(const struct symmetric_histogram *h, const float *x, int64_t n,
                               uint32_t *counts);

/* A whole batch on the calling thread. */
void histogram_add(struct histogram *h, const struct observed *batch);
void symmetric_histogram_add(struct symmetric_histogram *h, const struct observed *batch);

#endif
