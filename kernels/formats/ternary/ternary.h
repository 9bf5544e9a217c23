/* kernels/formats/ternary/ternary.h - the ternary formats tq1_0 (five weights a byte) and tq2_0 (four). See
 * README.md here. Signatures: kernels/kernel_set.h. */
#ifndef QDYNO_KERNELS_FORMATS_TERNARY_TERNARY_H
#define QDYNO_KERNELS_FORMATS_TERNARY_TERNARY_H

#include "kernels/kernel_set.h"

format_encode_fn tq1_0_encode_ref, tq2_0_encode_ref;
format_decode_fn tq1_0_decode_ref, tq2_0_decode_ref;

/* Convert n weights (a multiple of 256). The decoded weights are identical to the bit. */
void tq1_0_to_tq2_0(const void *blocks, void *out, int64_t n);

enum { TERNARY_COUNT = 2 };
extern const struct format_row TERNARY_REF[TERNARY_COUNT];

/* Only on x86-64. */
extern const struct format_row TERNARY_AVX2[TERNARY_COUNT], TERNARY_AVX512VNNI[TERNARY_COUNT],
    TERNARY_AVX512BF16[TERNARY_COUNT];

#endif
