/* The codebook formats with AVX-512: decoding, and dot products with f32 activations. */
#include "kernels/formats/iquants/iquants.h"
#include "kernels/formats/iquants/iquants_avx512.h"
#include "kernels/formats/kquants/kquants_avx512_dot.h"

#define IQ_FUNCTIONS(name, NAME, sub) K_FUNCTIONS(name, NAME##_SHAPE, name##_scales, name##_codes512)
IQUANT_FORMATS(IQ_FUNCTIONS)

#define IQ_ROW(name, NAME, sub) { FORMAT_##NAME, { .decode = name##_decode, .dot_f32 = name##_dot_f32 } },
const struct format_row IQUANTS_AVX512[IQUANT_COUNT] = { IQUANT_FORMATS(IQ_ROW) };
