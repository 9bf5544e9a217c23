/* engine/quant/static_input.h - static activation quantization: the scale and zero point of a matrix's input
 * are fixed when the model is quantized, from calibration. Internal to engine/quant/. */
#ifndef QDYNO_ENGINE_QUANT_STATIC_INPUT_H
#define QDYNO_ENGINE_QUANT_STATIC_INPUT_H

#include "engine/quant/calibration.h"
#include "engine/quant/methods.h"

/* For a method's `companions`: the tensor that stores scale, zero point and largest code. Returns 1. */
int static_input_companion(struct companion_tensor *out);

/* Check that the calibration contains the ranges of this matrix's input. ERR_USAGE. */
enum err_code static_input_known(const struct tensor_job *job, struct err *why);

/* Store in the job's companion tensor: x ~ scale * (code - zero), codes 0 .. most. */
void static_input_put(struct tensor_job *job, struct affine a, int most);

#endif
