/* kernels/formats/groups/layout.h - the layout of a block (one group): its scale and zero point in f16,
 * then the codes' lower bits, then (u3) their third bits. Codes of 8 bits are bytes in order; codes of 4 bits
 * come 32 at a time in the order of q4_0, lower bits of 2 come 64 at a time: byte j of 16 holds codes j, j +
 * 16, j + 32, j + 48. The third bit of code i is bit i % 8 of byte i / 8. */
#ifndef QDYNO_KERNELS_FORMATS_GROUPS_LAYOUT_H
#define QDYNO_KERNELS_FORMATS_GROUPS_LAYOUT_H

#include "kernels/half.h"

enum {
    GROUP_ZERO = 2,
    GROUP_CODES = 4,
    GROUP_MAX = 128,
    GROUP_UNIT_BYTES = 16, /* 32 codes of 4 bits, the lower bits of 64 others */
};

/* X(name, NAME, bits, size): every format here, in the order of enum format_id. */
#define GROUP_FORMATS(X)                                                                                     \
    GROUP_TABLE_FORMATS(X)                                                                                   \
    GROUP_BYTE_FORMATS(X)
/* Formats with codes of up to 4 bits, whose values are looked up, and formats with 8-bit codes. */
#define GROUP_BYTE_FORMATS(X)                                                                                \
    X(u8_g64, U8_G64, 8, 64)                                                                                 \
    X(u8_g128, U8_G128, 8, 128)
#define GROUP_TABLE_FORMATS(X)                                                                               \
    X(u4_g32, U4_G32, 4, 32)                                                                                 \
    X(u4_g64, U4_G64, 4, 64)                                                                                 \
    X(u4_g128, U4_G128, 4, 128)                                                                              \
    X(u3_g64, U3_G64, 3, 64)                                                                                 \
    X(u3_g128, U3_G128, 3, 128)                                                                              \
    X(u2_g64, U2_G64, 2, 64)                                                                                 \
    X(u2_g128, U2_G128, 2, 128)

/* Byte offset of the third bits of a group with 3-bit codes; the size of a block. */
#define GROUP_THIRD_BITS(weights)  (GROUP_CODES + (weights) / 4)
#define GROUP_BYTES(bits, weights) (GROUP_CODES + (weights) * (bits) / 8)

/* The minimum m in weight = scale * code + m, that is -zero * scale. The product is exact in binary32, so
 * scale * code + m rounds once, as (code - zero) * scale does. */
static inline float group_min(const uint8_t *block)
{
    return -(half_to_float(load_u16(block + GROUP_ZERO)) * half_to_float(load_u16(block)));
}

#endif
