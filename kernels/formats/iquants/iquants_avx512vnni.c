/* The codebook formats with AVX-512 VNNI and 8-bit activations. */
#include "kernels/formats/iquants/iquants.h"
#include "kernels/formats/iquants/iquants_avx512.h"
#include "kernels/formats/kquants/kquants_avx512vnni.h"

#define IQ_FUNCTION(name, NAME, sub)                                                                         \
    static void name##_dot_q8(const struct dot *d)                                                           \
    {                                                                                                        \
        dot_q8(d, &NAME##_SHAPE, name##_scales, name##_codes512);                                            \
    }
IQUANT_FORMATS(IQ_FUNCTION)

/* From 5 rows on, looking up the codebook once for all rows is faster than once for each (SPEED.md). */
#define IQ_ROW(name, NAME, sub) { FORMAT_##NAME, { .dot_q8 = name##_dot_q8, .int8_from = 5 } },
const struct format_row IQUANTS_AVX512VNNI[IQUANT_COUNT] = { IQUANT_FORMATS(IQ_ROW) };
