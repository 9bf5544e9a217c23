/* NEON: vector operations (see vectors_v128.h). */
#include "kernels/isa/v128_neon.h"
#include "kernels/isa/vectors/vectors_v128.h"
