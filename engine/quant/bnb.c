/* NF4 and FP4: sixteen values under the largest magnitude of each block, spaced for numbers that are normally
 * distributed (NF4) or like a tiny float (FP4); and double quantization, which stores those magnitudes as
 * bytes around their mean. */
#include "engine/quant/bnb.h"

#include <math.h>
#include <stdlib.h>

#include "engine/quant/methods.h"

/* ---------------------------------------------------------------- statistics */

void bnb_absmax(const float *x, int64_t n, int blocksize, float *absmax)
{
    for (int64_t from = 0; from < n; from += blocksize) {
        const int64_t to = MIN(from + blocksize, n);
        float largest = 0;
        for (int64_t i = from; i < to; i++) largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
        for (int64_t u = from / BNB_UNIT; u < to / BNB_UNIT; u++) absmax[u] = largest;
    }
}

float bnb_offset(const float *absmax, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += absmax[i];
    return count ? (float)(sum / (double)count) : 0;
}

void bnb_nested(const float *absmax, int64_t count, float offset, int nested_blocksize, float *largest)
{
    for (int64_t from = 0; from < count; from += nested_blocksize) {
        float most = 0;
        for (int64_t i = from; i < MIN(from + nested_blocksize, count); i++) {
            const float over = fabsf(absmax[i] - offset);
            most = over > most ? over : most;
        }
        largest[from / nested_blocksize] = most;
    }
}
