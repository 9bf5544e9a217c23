/* The codebook formats as bf16 tiles. */
#include "kernels/formats/iquants/iquants.h"
#include "kernels/formats/iquants/iquants_avx512.h"
#include "kernels/formats/kquants/kquants_avx512bf16.h"

#define IQ_FUNCTIONS(name, NAME, sub)                                                                        \
    ALWAYS_INLINE void name##_row(const uint8_t *block, uint16_t *out)                                       \
    {                                                                                                        \
        row_computed(block, out, &NAME##_SHAPE, name##_scales, name##_codes512);                             \
    }                                                                                                        \
    K_UNPACK(name, NAME##_SHAPE)
IQUANT_FORMATS(IQ_FUNCTIONS)

#define IQ_ROW(name, NAME, sub) { FORMAT_##NAME, { .unpack_bf16 = name##_unpack } },
const struct format_row IQUANTS_AVX512BF16[IQUANT_COUNT] = { IQUANT_FORMATS(IQ_ROW) };
