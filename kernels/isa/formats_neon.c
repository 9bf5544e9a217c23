/* NEON: decoding and dots of every format (see formats_v128.h). */
#include "kernels/isa/v128_neon.h"
#include "kernels/isa/formats_v128.h"
