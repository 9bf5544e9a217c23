/* engine/quant/static_input.h - the scale and zero that a matrix' inputs keep for good, learned by
 * calibration. Internal to engine/quant/. */
#ifndef QDYNO_ENGINE_QUANT_STATIC_INPUT_H
#define QDYNO_ENGINE_QUANT_STATIC_INPUT_H

#include "engine/quant/calibration.h"
#include "engine/quant/methods.h"

/* For `sides`: the tensor that holds them. Returns how many: 1. */
int static_input_companion(struct companion_tensor *out);

/* Does the calibration know this matrix' input well enough? ERR_USAGE. */
enum err_code static_input_known(const struct tensor_job *job, struct err *why);

/* Into the job's companion tensor: x ~ scale * (code - zero), codes 0..most. */
void static_input_put(struct tensor_job *job, struct affine a, int most);

#endif
