/* kernels/bf16/bf16.h - the kernels of format bf16; see README.md here. Signatures: kernels/kernel_set.h. */
#ifndef QDYNO_KERNELS_BF16_H
#define QDYNO_KERNELS_BF16_H

#include "kernels/kernel_set.h"

format_encode_fn bf16_encode_ref;
format_decode_fn bf16_decode_ref;
dot_fn bf16_dot_f32_ref;

/* Built on x86-64 only. */
format_decode_fn bf16_decode_avx2, bf16_decode_avx512;
dot_fn bf16_dot_f32_avx2, bf16_dot_f32_avx512;
unpack_bf16_fn bf16_unpack_bf16_amx;

#endif
