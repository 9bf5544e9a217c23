/* kernels/formats/blocks32/blocks32.h - the formats with blocks of 32 weights: q4_0 q4_1 q5_0 q5_1 q8_0
 * iq4_nl mxfp4. See README.md here. Signatures: kernels/kernel_set.h. */
#ifndef QDYNO_KERNELS_FORMATS_BLOCKS32_BLOCKS32_H
#define QDYNO_KERNELS_FORMATS_BLOCKS32_BLOCKS32_H

#include "kernels/kernel_set.h"

format_encode_fn q4_0_encode_ref, q8_0_encode_ref, q4_1_encode_ref, q5_0_encode_ref, q5_1_encode_ref,
    iq4_nl_encode_ref, mxfp4_encode_ref;
format_decode_fn q4_0_decode_ref, q8_0_decode_ref, q4_1_decode_ref, q5_0_decode_ref, q5_1_decode_ref,
    iq4_nl_decode_ref, mxfp4_decode_ref;

/* q4_0 and q8_0 have kernels of their own on x86-64; the tables below list them with the others. */
dot_fn q4_0_dot_f32_ref, q4_0_dot_q8_ref, q8_0_dot_f32_ref, q8_0_dot_q8_ref;

encode_rows_fn q4_0_encode_rows_ref, q4_1_encode_rows_ref, q5_0_encode_rows_ref, q5_1_encode_rows_ref,
    iq4_nl_encode_rows_ref; /* with and without importance */

enum { BLOCKS32_COUNT = 7 };
extern const struct format_row BLOCKS32_REF[BLOCKS32_COUNT];

/* Only on x86-64. */
format_decode_fn q4_0_decode_avx2, q4_0_decode_avx512, q8_0_decode_avx2, q8_0_decode_avx512;
dot_fn q4_0_dot_f32_avx2, q4_0_dot_f32_avx512, q8_0_dot_f32_avx2, q8_0_dot_f32_avx512;
dot_fn q4_0_dot_q8_avx2, q4_0_dot_q8_avx512vnni, q8_0_dot_q8_avx2, q8_0_dot_q8_avx512vnni;
unpack_bf16_fn q4_0_unpack_bf16_amx, q8_0_unpack_bf16_amx;
unpack_q8_fn q4_0_unpack_q8_avx2, q8_0_unpack_q8_avx2;
cached_rows_fn q4_0_row_scores_avx512, q4_0_row_values_avx512, q8_0_row_scores_avx512, q8_0_row_values_avx512,
    q4_0_row_scores_avx2, q4_0_row_values_avx2, q8_0_row_scores_avx2, q8_0_row_values_avx2;
unpack_columns_fn q4_0_unpack_columns, q8_0_unpack_columns, q4_1_unpack_columns, q5_0_unpack_columns,
    q5_1_unpack_columns, iq4_nl_unpack_columns, mxfp4_unpack_columns; /* AVX-512 VNNI */

extern const struct format_row BLOCKS32_AVX2[BLOCKS32_COUNT], BLOCKS32_AVX512[BLOCKS32_COUNT],
    BLOCKS32_AVX512VNNI[BLOCKS32_COUNT], BLOCKS32_AVX512BF16[BLOCKS32_COUNT];

#endif
