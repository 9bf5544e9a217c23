/* The recurrence and convolution of recurrent layers with vectors of 4 floats. */
#define LANES 4
#include "kernels/isa/vectors/recurrence_body.h"

#include "kernels/isa/isa_kernels.h"

const struct recurrent_kernels RECURRENT_REF = { .recur = recur, .convolve = convolve };
