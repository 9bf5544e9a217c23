/* kernels/formats/fp8/fp8.h - fp8_e4m3 and fp8_e5m2: eight-bit floats with one f32 scale a row, behind its
 * bytes; fp8_e4m3_b128: with one for every 128. See README.md here. Signatures: kernels/kernel_set.h; encode
 * and decode of the first two are for one whole row, the functions of the tables see their codes only. */
#ifndef QDYNO_KERNELS_FORMATS_FP8_FP8_H
#define QDYNO_KERNELS_FORMATS_FP8_FP8_H

#include "kernels/kernel_set.h"

format_encode_fn fp8_e4m3_encode_ref, fp8_e5m2_encode_ref;
format_decode_fn fp8_e4m3_decode_ref, fp8_e5m2_decode_ref;
format_encode_fn fp8_e4m3_b128_encode_ref;
format_decode_fn fp8_e4m3_b128_decode_ref;

enum { FP8_COUNT = 3, FP8_BLOCK = 128, FP8_BLOCK_BYTES = 132 /* codes, then the scale */ };
extern const struct format_row FP8_REF[FP8_COUNT];

/* Only on x86-64. */
extern const struct format_row FP8_AVX2[FP8_COUNT], FP8_AVX512[FP8_COUNT], FP8_AVX512BF16[FP8_COUNT];

#endif
