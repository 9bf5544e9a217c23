/* engine/quant/int8_rows.h - signed bytes under one scale for each row, as several methods choose them.
 * Internal to engine/quant/.
 *
 * They differ in what the largest magnitude is divided by and in how ties are rounded: one step at the ends
 * of the range, half a step in between; and that is what separates published figures. */
#ifndef QDYNO_ENGINE_QUANT_INT8_ROWS_H
#define QDYNO_ENGINE_QUANT_INT8_ROWS_H

#include "engine/quant/methods.h"

/* codes [n] of x [n]; returns what they are multiplied by, > 0. codes[i] * that is the weight. */
typedef float int8_row_fn(const float *x, int64_t n, int8_t *codes);

/* EETQ: steps of 1/128 of the largest magnitude, ties away from 0, the scale kept as f16. */
int8_row_fn eetq_row;
/* LLM.int8: weights through f16 first, 127 steps, no -128. */
int8_row_fn llm_int8_row;
/* PyTorch's per-channel observer: the range of 255 steps halved, so both ends are half a step away. */
int8_row_fn int8_observed_row;

float int8_largest(const float *x, int64_t n);

/* All rows of a job whose format is int8. */
void int8_rows_encode(const struct tensor_job *job, int8_row_fn *row, const float *x, void *out,
                      int64_t rows);

#endif
