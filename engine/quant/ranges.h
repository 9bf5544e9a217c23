/* engine/quant/ranges.h - from statistics of activations to the scale and zero point of 8-bit codes.
 * Internal.
 *
 * Observers (observers.h) collect histograms. The functions below find a range in a histogram, and convert a
 * range to a scale and zero point. Pure functions. Sources: PyTorch, torch.ao.quantization observers; NVIDIA
 * TensorRT's entropy calibration (8-bit Inference with TensorRT, 2017), in the variant that masks empty bins.
 */
#ifndef QDYNO_ENGINE_QUANT_RANGES_H
#define QDYNO_ENGINE_QUANT_RANGES_H

#include "base/base.h"

struct range {
    float low, high;
};
/* x ~ scale * (code - zero). */
struct affine {
    float scale;
    int zero;
};

/* ---------------------------------------------------------------- scale and zero */

/* PyTorch's rule: the range is extended to include 0; codes are least .. most. */
struct affine affine_observed(struct range r, int least, int most);
/* Symmetric rule: the zero point is the middle code. */
struct affine symmetric_observed(struct range r, int least, int most);

/* ---------------------------------------------------------------- ranges in a histogram */

/* counts [bins]: number of values between low and high, in bins of equal width; the last one is closed. */
struct histogram {
    const float *counts;
    int bins;
    float low, high;
};

/* The range of bins with the smallest squared error when values, spread evenly within their bins, are rounded
 * to 256 levels: the search of PyTorch's HistogramObserver. */
struct range range_least_error(const struct histogram *h);

/* The narrowest range that leaves (1 - percentile / 100) / 2 of the values outside at each end. */
struct range range_percentile(const struct histogram *h, double percentile);

/* For a histogram over [-high, high] with an odd number of bins: the symmetric range for which quantizing to
 * `levels` levels has the smallest Kullback-Leibler divergence from the histogram. Errors: ERR_NOMEM. */
enum err_code range_entropy(const struct histogram *h, int levels, struct range *out, struct err *why);

#endif
