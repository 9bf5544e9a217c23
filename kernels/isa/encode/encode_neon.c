/* NEON: encoders that search (see encode_lanes.h). */
#include "kernels/isa/v128_neon.h"
#include "kernels/isa/encode/lanes_v128.h"
#include "kernels/isa/encode/encode_lanes.h"
