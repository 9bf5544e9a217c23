/* engine/quant/bnb.h - the statistics of bitsandbytes' 4-bit formats: largest magnitudes of blocks (absmax),
 * and double quantization of those magnitudes. Internal to engine/quant/.
 *
 * Blocks run through the whole matrix in memory order and may span rows. Pure functions. Sources: Dettmers et
 * al., "QLoRA: Efficient Finetuning of Quantized LLMs", 2023; bitsandbytes. */
#ifndef QDYNO_ENGINE_QUANT_BNB_H
#define QDYNO_ENGINE_QUANT_BNB_H

#include "base/base.h"

enum { BNB_UNIT = 64 }; /* our formats store one magnitude for each 64 weights */

/* absmax [n / 64], n a multiple of 64: the largest magnitude of each block of `blocksize` weights (a multiple
 * of 64; the last block may be shorter), repeated for every 64 weights of the block. */
void bnb_absmax(const float *x, int64_t n, int blocksize, float *absmax);

/* Double quantization: the mean of a matrix' magnitudes absmax [count], */
float bnb_offset(const float *absmax, int64_t count);
/* and the largest distance from it in each run of `nested_blocksize` magnitudes: largest [ceil(count /
 * size)].
 */
void bnb_nested(const float *absmax, int64_t count, float offset, int nested_blocksize, float *largest);

#endif
