/* Rounding activations: the reference, and what processors of 128-bit vectors run. */
#include "kernels/isa/isa_kernels.h"
#include "kernels/isa/vectors/rounding.h"

ROUNDING_FUNCTIONS(ref, false)

const struct rounding_kernels ROUNDING_REF = ROUNDING_TABLE(ref);
