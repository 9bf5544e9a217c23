/* The rate of 8-bit dot products with the ARM dot product instruction. */
#include "kernels/isa/v128_dotprod.h"
#include "kernels/isa/probe/ceiling_int8_v128.h"
