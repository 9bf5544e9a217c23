/* kernels/q8_0/q8_0.h - the kernels of format q8_0; see README.md here. Signatures: kernels/kernel_set.h. */
#ifndef QDYNO_KERNELS_Q8_0_H
#define QDYNO_KERNELS_Q8_0_H

#include "kernels/kernel_set.h"

format_encode_fn q8_0_encode_ref;
format_decode_fn q8_0_decode_ref;
dot_fn q8_0_dot_f32_ref;
dot_fn q8_0_dot_q8_ref;

/* Built on x86-64 only. */
format_decode_fn q8_0_decode_avx2, q8_0_decode_avx512;
dot_fn q8_0_dot_f32_avx2, q8_0_dot_f32_avx512;
dot_fn q8_0_dot_q8_avx2, q8_0_dot_q8_avx512vnni;
unpack_bf16_fn q8_0_unpack_bf16_amx;
unpack_q8_fn q8_0_unpack_q8_avx2;

#endif
