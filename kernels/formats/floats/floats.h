/* kernels/formats/floats/floats.h - the kernels of f32, f16 and bf16; see README.md here. Signatures:
 * kernels/kernel_set.h. */
#ifndef QDYNO_KERNELS_FORMATS_FLOATS_FLOATS_H
#define QDYNO_KERNELS_FORMATS_FLOATS_FLOATS_H

#include "kernels/kernel_set.h"

format_encode_fn f32_encode_ref, f16_encode_ref, bf16_encode_ref;
format_decode_fn f32_decode_ref, f16_decode_ref, bf16_decode_ref;

enum { FLOATS_COUNT = 3 };
extern const struct format_row FLOATS_REF[FLOATS_COUNT];

/* Only on x86-64. */
extern const struct format_row FLOATS_AVX2[FLOATS_COUNT], FLOATS_AVX512[FLOATS_COUNT],
    FLOATS_AVX512BF16[FLOATS_COUNT];

#endif
