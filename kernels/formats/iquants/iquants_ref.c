/* Codebook rows to codes, the reference. kquants_ref.h does the rest. */
#include "kernels/formats/iquants/iquants.h"
#include "kernels/formats/iquants/layout.h"
#include "kernels/formats/kquants/kquants_ref.h"

/* Read the codes of a block. base: bias that is added to magnitudes with signs; 0 if the bytes already
 * contain it. */
static void codes_of(iq_part_fn *part, int base, const uint8_t *block, uint8_t code[K_BLOCK])
{
    for (int p = 0; p < IQ_PARTS; p++) {
        struct iq_part v;
        part(block, p, &v);
        for (int i = 0; i < IQ_PART; i++) {
            const int byte = (int)(v.bytes[i / 8] >> i % 8 * 8 & 0xff);
            *code++ = (uint8_t)(base + (v.negative >> i & 1 ? -byte : byte));
        }
    }
}

#define IQ_CODES_OF(name, base)                                                                              \
    static void name##_codes(const uint8_t *block, uint8_t code[K_BLOCK])                                    \
    {                                                                                                        \
        codes_of(name##_part, base, block, code);                                                            \
    }
IQ_CODES_OF(iq1_s, 0)
IQ_CODES_OF(iq1_m, 0)
IQ_CODES_OF(iq2_xxs, IQ2_XXS_SHAPE.bias)
IQ_CODES_OF(iq2_xs, IQ2_XS_SHAPE.bias)
IQ_CODES_OF(iq2_s, IQ2_S_SHAPE.bias)
IQ_CODES_OF(iq3_xxs, IQ3_XXS_SHAPE.bias)
IQ_CODES_OF(iq3_s, IQ3_S_SHAPE.bias)

#define IQ_REFERENCE(name, NAME, sub)                                                                        \
    static const struct k_format NAME = {                                                                    \
        .id = FORMAT_##NAME, .shape = &NAME##_SHAPE, .scales = name##_scales, .codes = name##_codes          \
    };                                                                                                       \
    K_REFERENCE(name, NAME)
IQUANT_FORMATS(IQ_REFERENCE)

#define IQ_ROW(name, NAME, sub) K_REFERENCE_ROW(name, NAME, sub),
const struct format_row IQUANTS_REF[IQUANT_COUNT] = { IQUANT_FORMATS(IQ_ROW) };
