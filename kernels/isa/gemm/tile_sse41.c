/* SSE4.1: the small matrix product (see tile_v128.h). */
#include "kernels/isa/v128_sse41.h"
#include "kernels/isa/gemm/tile_v128.h"
