/* engine/quant/bnb.h - bitsandbytes' statistics: largest magnitudes of blocks, and those magnitudes quantized
 * in turn.
 *
 * Blocks run through the whole matrix as it lies in memory and do not stop at ends of rows. Pure. */
#ifndef QDYNO_ENGINE_QUANT_BNB_H
#define QDYNO_ENGINE_QUANT_BNB_H

#include "base/base.h"

enum { BNB_UNIT = 64 }; /* weights that the formats keep one magnitude for */

/* absmax [n / 64], n a multiple of 64: the largest magnitude of each `blocksize` weights (a multiple of 64;
 * the last block may be short), repeated for every 64 of them. */
void bnb_absmax(const float *x, int64_t n, int blocksize, float *absmax);

/* Of the magnitudes absmax [count] of a whole matrix: their mean, */
float bnb_offset(const float *absmax, int64_t count);
/* and of each `nested_blocksize` of them the largest distance from it: largest [ceil(count / size)]. */
void bnb_nested(const float *absmax, int64_t count, float offset, int nested_blocksize, float *largest);

#endif
