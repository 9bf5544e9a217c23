/* Rounding activations: with AVX512. See rounding.h. */
#include "kernels/isa/isa_kernels.h"
#include "kernels/isa/vectors/rounding.h"

ROUNDING_FUNCTIONS(avx512, true)

const struct rounding_kernels ROUNDING_AVX512 = ROUNDING_TABLE(avx512);
