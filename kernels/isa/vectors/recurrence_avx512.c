/* The recurrence and convolution of recurrent layers with vectors of 16 floats. */
#define LANES 16
#include "kernels/isa/vectors/recurrence_body.h"

#include "kernels/isa/isa_kernels.h"

const struct recurrent_kernels RECURRENT_AVX512 = { .recur = recur, .convolve = convolve };
