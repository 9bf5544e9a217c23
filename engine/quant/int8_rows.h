/* engine/quant/int8_rows.h - 8-bit weights with one scale a row, with the rounding rules of several methods.
 * Internal to engine/quant/.
 *
 * The rules differ in the divisor of the largest magnitude and in how ties are rounded: differences of one
 * step at the ends of the range and half a step between, which explain differences in published results. */
#ifndef QDYNO_ENGINE_QUANT_INT8_ROWS_H
#define QDYNO_ENGINE_QUANT_INT8_ROWS_H

#include "engine/quant/methods.h"

/* Choose codes [n] for x [n]; returns their scale > 0: weight = codes[i] * scale. */
typedef float int8_row_fn(const float *x, int64_t n, int8_t *codes);

/* EETQ: scale = largest magnitude / 128, kept as f16; ties away from 0. */
int8_row_fn eetq_row;
/* LLM.int8: weights are rounded to f16 first; scale = largest / 127; code -128 is not used. */
int8_row_fn llm_int8_row;
/* PyTorch's per-channel observer: scale = largest / 127.5, half a step short at both ends. */
int8_row_fn int8_observed_row;

float int8_largest(const float *x, int64_t n); /* largest magnitude */

/* Encode rows of a job whose format is int8, with one of these rules. */
void int8_rows_encode(const struct tensor_job *job, int8_row_fn *row, const float *x, void *out,
                      int64_t rows);

#endif
