/* kernels/f32/f32.h - the kernels of format f32; see README.md here. Signatures: kernels/kernel_set.h. */
#ifndef QDYNO_KERNELS_F32_H
#define QDYNO_KERNELS_F32_H

#include "kernels/kernel_set.h"

format_encode_fn f32_encode_ref;
format_decode_fn f32_decode_ref;
dot_fn f32_dot_f32_ref;

/* Built on x86-64 only. */
dot_fn f32_dot_f32_avx2, f32_dot_f32_avx512;
unpack_bf16_fn f32_unpack_bf16_amx;

#endif
