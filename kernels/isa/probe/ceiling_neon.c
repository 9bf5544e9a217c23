/* The rates of f32 and 8-bit multiply-adds with NEON. */
#include "kernels/isa/v128_neon.h"
#include "kernels/isa/probe/ceiling_f32_v128.h"
#include "kernels/isa/probe/ceiling_int8_v128.h"
