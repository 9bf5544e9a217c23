/* engine/quant/ranges.h - from what was seen of activations to the scale and zero of a byte.
 *
 * Observers (observers.h) collect; here a range is searched in what they collected and becomes (scale,
 * zero point). Pure functions. Sources: PyTorch's observers, FBGEMM's ChooseQuantizationParams, TensorRT's
 * entropy calibration in the form that masks empty bins. */
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

/* PyTorch's rule: the range takes in 0; codes least .. most. */
struct affine affine_observed(struct range r, int least, int most);
/* Symmetric: zero is the middle of the codes. */
struct affine symmetric_observed(struct range r, int least, int most);
/* FBGEMM's rule, in double precision; preserve_sparsity: 0 is exact and in the middle. */
struct affine affine_fbgemm(struct range r, int least, int most, bool preserve_sparsity);
int affine_code(const struct affine *a, float x, int least, int most);

/* ---------------------------------------------------------------- ranges in a histogram */

/* counts [bins] of values between low and high, bins of equal width, last one closed. */
struct histogram {
    const float *counts;
    int bins;
    float low, high;
};

/* The window of bins whose values, spread evenly in their bins, lose least (sum of squares) when they are
 * rounded to 256 levels: PyTorch's HistogramObserver. */
struct range range_least_error(const struct histogram *h);

/* The narrowest range that leaves (1 - percentile / 100) / 2 of the mass outside at either end. */
struct range range_percentile(const struct histogram *h, double percentile);

/* Of a histogram over [-high, high] with an odd number of bins: the half width at which `levels` levels
 * diverge least (Kullback-Leibler) from what was seen. Symmetric. Errors: ERR_NOMEM. */
enum err_code range_entropy(const struct histogram *h, int levels, struct range *out, struct err *why);

#endif
