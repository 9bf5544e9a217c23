/* Rounding activations: with AVX2. See rounding.h. */
#include "kernels/isa/isa_kernels.h"
#include "kernels/isa/vectors/rounding.h"

ROUNDING_FUNCTIONS(avx2, true)

const struct rounding_kernels ROUNDING_AVX2 = ROUNDING_TABLE(avx2);
