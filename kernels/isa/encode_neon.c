/* NEON: encoders that search (see encode_lanes.h). */
#include "kernels/isa/v128_neon.h"
#include "kernels/isa/lanes_v128.h"
#include "kernels/isa/encode_lanes.h"
