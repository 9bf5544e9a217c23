/* SSE4.1: vector operations (see vectors_v128.h). */
#include "kernels/isa/v128_sse41.h"
#include "kernels/isa/vectors/vectors_v128.h"
