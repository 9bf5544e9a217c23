/* The recurrence and convolution of recurrent layers with vectors of 8 floats. */
#define LANES 8
#include "kernels/isa/vectors/recurrence_body.h"

#include "kernels/isa/isa_kernels.h"

const struct recurrent_kernels RECURRENT_AVX2 = { .recur = recur, .convolve = convolve };
