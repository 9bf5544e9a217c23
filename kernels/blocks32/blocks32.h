/* kernels/blocks32/blocks32.h - the formats with blocks of 32 weights that are an "expand 32 codes" step over
 * shared dots: q4_1 q5_0 q5_1 iq4_nl mxfp4. See README.md here. Signatures: kernels/kernel_set.h. */
#ifndef QDYNO_KERNELS_BLOCKS32_H
#define QDYNO_KERNELS_BLOCKS32_H

#include "kernels/kernel_set.h"

format_encode_fn q4_1_encode_ref, q5_0_encode_ref, q5_1_encode_ref, iq4_nl_encode_ref, mxfp4_encode_ref;
format_decode_fn q4_1_decode_ref, q5_0_decode_ref, q5_1_decode_ref, iq4_nl_decode_ref, mxfp4_decode_ref;

encode_rows_fn q4_0_encode_rows_ref, q4_1_encode_rows_ref, q5_0_encode_rows_ref, q5_1_encode_rows_ref,
    iq4_nl_encode_rows_ref; /* with and without importance */

enum { BLOCKS32_COUNT = 5 };
extern const struct format_row BLOCKS32_REF[BLOCKS32_COUNT];

/* Built on x86-64 only. */
extern const struct format_row BLOCKS32_AVX2[BLOCKS32_COUNT], BLOCKS32_AVX512[BLOCKS32_COUNT],
    BLOCKS32_AVX512VNNI[BLOCKS32_COUNT], BLOCKS32_AMX[BLOCKS32_COUNT];

#endif
