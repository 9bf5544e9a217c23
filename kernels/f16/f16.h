/* kernels/f16/f16.h - the kernels of format f16; see README.md here. Signatures: kernels/kernel_set.h. */
#ifndef QDYNO_KERNELS_F16_H
#define QDYNO_KERNELS_F16_H

#include "kernels/kernel_set.h"

format_encode_fn f16_encode_ref;
format_decode_fn f16_decode_ref;
dot_fn f16_dot_f32_ref;

/* Built on x86-64 only. */
format_decode_fn f16_decode_avx2, f16_decode_avx512;
dot_fn f16_dot_f32_avx2, f16_dot_f32_avx512;
unpack_bf16_fn f16_unpack_bf16_amx;

#endif
