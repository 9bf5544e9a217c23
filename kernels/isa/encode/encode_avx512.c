/* AVX-512: encoders that search (see encode_lanes.h). */
#include "kernels/isa/encode/lanes_avx512.h"
#include "kernels/isa/encode/encode_lanes.h"
