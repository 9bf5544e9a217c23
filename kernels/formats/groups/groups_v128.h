/* kernels/formats/groups/groups_v128.h - groups with 128-bit vectors: the function that extracts 32 codes as
 * bytes. Include an implementation of isa/v128.h first. */
#ifndef QDYNO_KERNELS_FORMATS_GROUPS_GROUPS_V128_H
#define QDYNO_KERNELS_FORMATS_GROUPS_GROUPS_V128_H

#include "kernels/isa/gemv/block_dot_v128.h"
#include "kernels/formats/groups/layout.h"

/* The 32 codes of a part, from code 32 * part of a group on. bits and weights are constants at every call. */
ALWAYS_INLINE void group_codes(const uint8_t *block, int part, const int bits, const int weights,
                               u8x16 out[2])
{
    const uint8_t *low = block + GROUP_CODES;
    if (bits == 8) {
        out[0] = load_u8(low + part * 32), out[1] = load_u8(low + part * 32 + 16);
        return;
    }
    if (bits == 4) {
        const u8x16 bytes = load_u8(low + part * GROUP_UNIT_BYTES);
        out[0] = bits_to(bytes, 15, 0, 0), out[1] = bits_to(bytes, 15, 4, 0);
        return;
    }
    const u8x16 bytes = load_u8(low + part / 2 * GROUP_UNIT_BYTES);
    out[0] = bits_to(bytes, 3, part % 2 * 4, 0), out[1] = bits_to(bytes, 3, part % 2 * 4 + 2, 0);
    if (bits == 3) add_bits(block + GROUP_THIRD_BITS(weights) + part * 4, 4, out);
}

#define GROUP_KIND(name, NAME, bits, size)                                                                   \
    ALWAYS_INLINE void name##_codes(const uint8_t *block, int part, u8x16 out[2])                            \
    {                                                                                                        \
        group_codes(block, part, bits, size, out);                                                           \
    }                                                                                                        \
    static const struct block_kind KIND_##NAME = { .bytes = GROUP_BYTES(bits, size),                         \
                                                   .parts = (size) / 32,                                     \
                                                   .codes = name##_codes,                                    \
                                                   .min = ZERO,                                              \
                                                   .min_at = GROUP_ZERO,                                     \
                                                   .whole_bytes = (bits) == 8 };                             \
    BLOCK_KIND_FUNCTIONS(name, KIND_##NAME)
GROUP_FORMATS(GROUP_KIND)

#endif
