/* kernels/formats/groups/groups.h - u8, u4, u3 and u2 codes in groups of 32 to 128 weights, each with a scale
 * and a zero point: the layout that AWQ, GPTQ, HQQ and quanto share here. See README.md here. Signatures:
 * kernels/kernel_set.h. */
#ifndef QDYNO_KERNELS_FORMATS_GROUPS_GROUPS_H
#define QDYNO_KERNELS_FORMATS_GROUPS_GROUPS_H

#include "kernels/kernel_set.h"

format_encode_fn u4_g32_encode_ref, u4_g64_encode_ref, u4_g128_encode_ref, u3_g64_encode_ref,
    u3_g128_encode_ref, u2_g64_encode_ref, u2_g128_encode_ref, u8_g64_encode_ref, u8_g128_encode_ref;
format_decode_fn u4_g32_decode_ref, u4_g64_decode_ref, u4_g128_decode_ref, u3_g64_decode_ref,
    u3_g128_decode_ref, u2_g64_decode_ref, u2_g128_decode_ref, u8_g64_decode_ref, u8_g128_decode_ref;

enum { GROUPS_COUNT = 9 };
extern const struct format_row GROUPS_REF[GROUPS_COUNT];

/* Only on x86-64. */
extern const struct format_row GROUPS_AVX2[GROUPS_COUNT], GROUPS_AVX512[GROUPS_COUNT],
    GROUPS_AVX512VNNI[GROUPS_COUNT], GROUPS_AVX512BF16[GROUPS_COUNT];

#endif
