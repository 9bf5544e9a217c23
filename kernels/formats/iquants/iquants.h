/* kernels/formats/iquants/iquants.h - the formats whose weights share rows of a codebook: iq1_s iq1_m iq2_xxs
 * iq2_xs iq2_s iq3_xxs iq3_s. See README.md here. Signatures: kernels/kernel_set.h. */
#ifndef QDYNO_KERNELS_FORMATS_IQUANTS_IQUANTS_H
#define QDYNO_KERNELS_FORMATS_IQUANTS_IQUANTS_H

#include "kernels/kernel_set.h"

/* The family, once: X(function prefix, FORMAT_ suffix, weights under one scale). */
#define IQUANT_FORMATS(X)                                                                                    \
    X(iq1_s, IQ1_S, 32)                                                                                      \
    X(iq1_m, IQ1_M, 16)                                                                                      \
    X(iq2_xxs, IQ2_XXS, 32)                                                                                  \
    X(iq2_xs, IQ2_XS, 16)                                                                                    \
    X(iq2_s, IQ2_S, 16)                                                                                      \
    X(iq3_xxs, IQ3_XXS, 32)                                                                                  \
    X(iq3_s, IQ3_S, 32)

#define IQUANT_DECLARE(name, NAME, sub)                                                                      \
    format_encode_fn name##_encode_ref;                                                                      \
    format_decode_fn name##_decode_ref;                                                                      \
    encode_rows_fn name##_encode_rows_ref;
IQUANT_FORMATS(IQUANT_DECLARE)
#undef IQUANT_DECLARE

enum { IQUANT_COUNT = 7 };
extern const struct format_row IQUANTS_REF[IQUANT_COUNT];

/* Only on x86-64. */
extern const struct format_row IQUANTS_AVX2[IQUANT_COUNT], IQUANTS_AVX512[IQUANT_COUNT],
    IQUANTS_AVX512VNNI[IQUANT_COUNT], IQUANTS_AVX512BF16[IQUANT_COUNT];

#endif
