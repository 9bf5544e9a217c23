/* ARM with the dot product: what that does at most. */
#include "kernels/isa/v128_dotprod.h"
#include "kernels/isa/probe/ceiling_int8_v128.h"
