/* kernels/formats/blocks64/blocks64.h - the formats with blocks of 64 or 128 weights: q1_0 q2_0 nvfp4. See
 * README.md here. Signatures: kernels/kernel_set.h. */
#ifndef QDYNO_KERNELS_FORMATS_BLOCKS64_BLOCKS64_H
#define QDYNO_KERNELS_FORMATS_BLOCKS64_BLOCKS64_H

#include "kernels/kernel_set.h"

format_encode_fn q1_0_encode_ref, q2_0_encode_ref, nvfp4_encode_ref;
format_decode_fn q1_0_decode_ref, q2_0_decode_ref, nvfp4_decode_ref;

/* Convert n weights (a multiple of 128). The decoded weights are identical to the bit. */
void q1_0_to_q2_0(const void *blocks, void *out, int64_t n);

enum { BLOCKS64_COUNT = 3 };
extern const struct format_row BLOCKS64_REF[BLOCKS64_COUNT];

/* Only on x86-64. */
extern const struct format_row BLOCKS64_AVX2[BLOCKS64_COUNT], BLOCKS64_AVX512[BLOCKS64_COUNT],
    BLOCKS64_AVX512VNNI[BLOCKS64_COUNT], BLOCKS64_AVX512BF16[BLOCKS64_COUNT];

#endif
