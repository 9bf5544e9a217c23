/* SSE4.1: what it does at most. */
#include "kernels/isa/v128_sse41.h"
#include "kernels/isa/probe/ceiling_f32_v128.h"
#include "kernels/isa/probe/ceiling_int8_v128.h"
