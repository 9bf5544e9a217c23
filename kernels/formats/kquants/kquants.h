/* kernels/formats/kquants/kquants.h - the formats with blocks of 256 weights: q2_K q3_K q4_K q5_K q6_K
 * iq4_xs. See README.md here. Signatures: kernels/kernel_set.h. */
#ifndef QDYNO_KERNELS_FORMATS_KQUANTS_KQUANTS_H
#define QDYNO_KERNELS_FORMATS_KQUANTS_KQUANTS_H

#include "kernels/kernel_set.h"

format_encode_fn q2_k_encode_ref, q3_k_encode_ref, q4_k_encode_ref, q5_k_encode_ref, q6_k_encode_ref,
    iq4_xs_encode_ref;
format_decode_fn q2_k_decode_ref, q3_k_decode_ref, q4_k_decode_ref, q5_k_decode_ref, q6_k_decode_ref,
    iq4_xs_decode_ref;
encode_rows_fn q2_k_encode_rows_ref, q3_k_encode_rows_ref, q4_k_encode_rows_ref, q5_k_encode_rows_ref,
    q6_k_encode_rows_ref, iq4_xs_encode_rows_ref;

enum { KQUANT_COUNT = 6 };
extern const struct format_row KQUANTS_REF[KQUANT_COUNT];

/* Only on x86-64. */
unpack_columns_fn q2_k_unpack_columns, q3_k_unpack_columns, q4_k_unpack_columns, q5_k_unpack_columns,
    q6_k_unpack_columns, iq4_xs_unpack_columns; /* AVX-512 VNNI */
extern const struct format_row KQUANTS_AVX2[KQUANT_COUNT], KQUANTS_AVX512[KQUANT_COUNT],
    KQUANTS_AVX512VNNI[KQUANT_COUNT], KQUANTS_AVX512BF16[KQUANT_COUNT];

#endif
