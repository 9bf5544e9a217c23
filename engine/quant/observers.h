/* engine/quant/observers.h - observers: histograms of activations that grow batch by batch; ranges.h derives
 * quantization ranges from them. Internal to engine/quant/.
 *
 * A batch is the input of one matrix in one calibration sequence. How a histogram grows influences the range
 * found in it later, so both follow published observers step by step. Sources: PyTorch,
 * torch.ao.quantization, HistogramObserver; TensorRT's entropy calibrator. */
#ifndef QDYNO_QUANT_OBSERVERS_H
#define QDYNO_QUANT_OBSERVERS_H

#include <stdint.h>

#include "base/base.h"

/* Histogram over [low, high], the extremes of all data seen so far (HistogramObserver). When the range grows,
 * bins widen and old counts are spread over the new bins, which makes counts fractional. */
enum { HISTOGRAM_BINS = 2048, HISTOGRAM_UPSAMPLE = 128 };
struct growing_histogram {
    float low, high; /* low > high: no data yet */
    double *count;   /* [HISTOGRAM_BINS], borrowed */
};

/* Histogram over [-high, high] with bins of constant width, for the entropy method: data outside adds whole
 * bins on both ends. The number of bins is odd, so that 0 is in the middle of one. If it would exceed
 * SYMMETRIC_BINS_MAX, each three neighbours are merged first. */
enum { SYMMETRIC_BINS = 2049, SYMMETRIC_BINS_MAX = (1 << 14) + 1 };
struct symmetric {
    float high; /* 0: only zeros so far */
    int bins;
    double *count; /* [SYMMETRIC_BINS_MAX], borrowed; the first `bins` are in use */
};

/* Initialize an empty histogram. `count` is the caller's memory and is cleared. */
void growing_histogram_init(struct growing_histogram *h, double *count);
void symmetric_init(struct symmetric *h, double *count);

/* Extend the range to a batch with these extremes (finite), before counting its values. */
void growing_histogram_reserve(struct growing_histogram *h, float low, float high);
void symmetric_reserve(struct symmetric *h, float low, float high);

/* Count n values within the reserved range in counts [bins of h]. Each thread has its own counts; the caller
 * adds them to h->count afterwards. */
void growing_histogram_count(const struct growing_histogram *h, const float *x, int64_t n, uint32_t *counts);
void symmetric_count(const struct symmetric *h, const float *x, int64_t n, uint32_t *counts);

#endif
