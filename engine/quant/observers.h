/* engine/quant/observers.h - histograms of an activation tensor that grow batch by batch; ranges.h searches
 * what becomes of them. Internal to engine/quant/.
 *
 * A batch is one calibration sequence's input of one matrix. The states are those of the field's observers
 * (quant-methods, "Static INT8"): how a histogram grows decides the range it gives. */
#ifndef QDYNO_QUANT_OBSERVERS_H
#define QDYNO_QUANT_OBSERVERS_H

#include <stdint.h>

#include "base/base.h"

/* Bins over [low, high], which are the extremes of all data seen; the bins widen with them
 * (HistogramObserver). Counts are fractions once old bins had to be spread over new ones. */
enum { HISTOGRAM_BINS = 2048, HISTOGRAM_UPSAMPLE = 128 };
struct growing {
    float low, high; /* low > high: nothing seen */
    double *count;   /* [HISTOGRAM_BINS], borrowed */
};

/* Bins over [-high, high] whose width never changes (the entropy observer): data beyond adds whole bins on
 * both sides. Their number is odd, so that zero lies in the middle of one. Where it would pass
 * SYMMETRIC_BINS_MAX, three neighbours become one first. */
enum { SYMMETRIC_BINS = 2049, SYMMETRIC_BINS_MAX = (1 << 14) + 1 };
struct symmetric {
    float high; /* 0: nothing but zeros seen */
    int bins;
    double *count; /* [SYMMETRIC_BINS_MAX], borrowed; the first `bins` are in use */
};

/* Empty ones over the caller's memory, which is cleared. */
void growing_init(struct growing *h, double *count);
void symmetric_init(struct symmetric *h, double *count);

/* Make room for a batch with these extremes (finite), before its values are counted. */
void growing_reserve(struct growing *h, float low, float high);
void symmetric_reserve(struct symmetric *h, float low, float high);

/* Count n values, all within what was reserved, into counts [bins of h]: what one thread gathers by itself,
 * to be added to h->count when all have. */
void growing_count(const struct growing *h, const float *x, int64_t n, uint32_t *counts);
void symmetric_count(const struct symmetric *h, const float *x, int64_t n, uint32_t *counts);

#endif
