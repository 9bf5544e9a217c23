/* engine/quant/smoothquant.h - SmoothQuant: moves activation outliers into the weights. Internal.
 *
 * Source: Xiao et al., "SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language
 * Models", 2022. */
#ifndef QDYNO_ENGINE_QUANT_SMOOTHQUANT_H
#define QDYNO_ENGINE_QUANT_SMOOTHQUANT_H

#include <stdint.h>

/* scales [n] = inputs^alpha / weights^(1 - alpha): inputs are divided by them and columns of weights are
 * multiplied by them. inputs [n]: largest |activation| of each input in the calibration; weights [n]: largest
 * |weight| of each column, over all matrices with this input. alpha, 0 .. 1: migration strength. */
void smoothquant_scales(const float *inputs, const float *weights, int64_t n, double alpha, float *scales);

/* Raise weights [cols] to the largest magnitude of each column of w [rows][cols]. */
void smoothquant_weight_max(const float *w, int64_t rows, int64_t cols, float *weights);

#endif
