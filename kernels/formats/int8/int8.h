/* kernels/formats/int8/int8.h - int8: signed bytes with one f32 scale a row, behind its bytes. See README.md
 * here. Signatures: kernels/kernel_set.h; encode and decode are for one whole row, the functions of the
 * tables see codes only. */
#ifndef QDYNO_KERNELS_FORMATS_INT8_INT8_H
#define QDYNO_KERNELS_FORMATS_INT8_INT8_H

#include "kernels/kernel_set.h"

format_encode_fn int8_encode_ref;
format_decode_fn int8_decode_ref;

enum { INT8_COUNT = 1, INT8_BLOCK = 32 };
extern const struct format_row INT8_REF[INT8_COUNT];

/* Only on x86-64. */
extern const struct format_row INT8_AVX2[INT8_COUNT], INT8_AVX512[INT8_COUNT], INT8_AVX512VNNI[INT8_COUNT],
    INT8_AVX512BF16[INT8_COUNT];

#endif
