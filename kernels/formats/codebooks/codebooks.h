/* kernels/formats/codebooks/codebooks.h - nf4 and fp4: four-bit codes that look up sixteen values between -1
 * and 1, each 64 weights under their largest magnitude, which in nf4_dq and fp4_dq is a code itself. See
 * README.md here. Signatures: kernels/kernel_set.h. */
#ifndef QDYNO_KERNELS_FORMATS_CODEBOOKS_CODEBOOKS_H
#define QDYNO_KERNELS_FORMATS_CODEBOOKS_CODEBOOKS_H

#include "kernels/kernel_set.h"

format_encode_fn nf4_encode_ref, fp4_encode_ref, nf4_dq_encode_ref, fp4_dq_encode_ref;
format_decode_fn nf4_decode_ref, fp4_decode_ref, nf4_dq_decode_ref, fp4_dq_decode_ref;

enum { CODEBOOKS_COUNT = 4 };
extern const struct format_row CODEBOOKS_REF[CODEBOOKS_COUNT];

/* Only on x86-64. */
extern const struct format_row CODEBOOKS_AVX2[CODEBOOKS_COUNT], CODEBOOKS_AVX512[CODEBOOKS_COUNT],
    CODEBOOKS_AVX512BF16[CODEBOOKS_COUNT];

#endif
