/* engine/quant/smoothquant.h - how far the outliers of an input move into the weights that meet it.
 *
 * Source: Xiao et al., "SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language
 * Models", 2022. */
#ifndef QDYNO_ENGINE_QUANT_SMOOTHQUANT_H
#define QDYNO_ENGINE_QUANT_SMOOTHQUANT_H

#include <stdint.h>

/* scales [n]: what inputs are divided by and weights' columns multiplied with. inputs [n]: the largest
 * magnitude of each input in the calibration; weights [n]: of each column, over all matrices that read the
 * input. alpha 0 .. 1: how much of the difficulty moves into the weights. */
void smoothquant_scales(const float *inputs, const float *weights, int64_t n, double alpha, float *scales);

/* weights [cols] = at least the largest magnitude of each column of w [rows][cols]. */
void smoothquant_weight_max(const float *w, int64_t rows, int64_t cols, float *weights);

#endif
