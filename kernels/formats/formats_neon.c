/* NEON: decoding and dots of every format (see formats_v128.h). */
#include "kernels/isa/v128_neon.h"
#include "kernels/formats/formats_v128.h"
