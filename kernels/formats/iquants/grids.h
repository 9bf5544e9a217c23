/* kernels/formats/iquants/grids.h - the codebooks of the family in two forms: as bytes for the kernels, and
 * as packed indices for the encoders. */
#ifndef QDYNO_KERNELS_FORMATS_IQUANTS_GRIDS_H
#define QDYNO_KERNELS_FORMATS_IQUANTS_GRIDS_H

#include <stdint.h>

enum {
    IQ2_XXS_CODES = 256,
    IQ2_XS_CODES = 512,
    IQ2_S_CODES = 1024,
    IQ1_CODES = 2048,
    IQ3_XXS_CODES = 256,
    IQ3_S_CODES = 512
};

/* [code] the magnitudes of its weights as bytes, the first weight lowest. IQ1_BYTES has 8 * l + IQ1_BIAS (l =
 * -1, 0, 1), so that adding 1 or -1 to every byte shifts the weights by 1/8. */
enum { IQ1_BIAS = 16 };
extern const uint64_t IQ2_XXS_BYTES[IQ2_XXS_CODES], IQ2_XS_BYTES[IQ2_XS_CODES], IQ2_S_BYTES[IQ2_S_CODES],
    IQ1_BYTES[IQ1_CODES];
extern const uint32_t IQ3_XXS_BYTES[IQ3_XXS_CODES], IQ3_S_BYTES[IQ3_S_CODES];

/* [code] the indices of these magnitudes, packed: two bits for each of eight weights, three bits for each of
 * four. */
extern const uint16_t IQ2_XXS_INDEX[IQ2_XXS_CODES], IQ2_XS_INDEX[IQ2_XS_CODES], IQ2_S_INDEX[IQ2_S_CODES],
    IQ1_INDEX[IQ1_CODES], IQ3_XXS_INDEX[IQ3_XXS_CODES], IQ3_S_INDEX[IQ3_S_CODES];

#endif
