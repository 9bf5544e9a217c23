/* Groups with AVX2: how 32 codes become bytes. */
#include "kernels/isa/gemv/block_dot_avx2.h"
#include "kernels/formats/groups/codes_avx2.h"
#include "kernels/formats/groups/groups.h"

ALWAYS_INLINE float scale_of(const uint8_t *block)
{
    return scale_at(block);
}

ALWAYS_INLINE float min_of(const uint8_t *block)
{
    return -(scale_at(block + GROUP_ZERO) * scale_at(block));
}

#define FUNCTIONS(name, NAME, bits, size)                                                                    \
    ALWAYS_INLINE __m256i name##_codes(const uint8_t *block, int part)                                       \
    {                                                                                                        \
        return group_codes32(block, part, bits, size);                                                       \
    }                                                                                                        \
    static const struct block_kind NAME = { GROUP_BYTES(bits, size),                                         \
                                            (size) / 32,                                                     \
                                            0,                                                               \
                                            name##_codes,                                                    \
                                            (bits) == 8 ? products_lowered : products_unsigned,              \
                                            scale_of,                                                        \
                                            min_of };                                                        \
    BLOCK_KIND_FUNCTIONS(name, NAME)
GROUP_FORMATS(FUNCTIONS)

#define UNPACK_Q8(name, NAME, bits, size) BLOCK_KIND_UNPACK_Q8(name, NAME)
GROUP_TABLE_FORMATS(UNPACK_Q8) /* 8-bit codes with a zero point have no integer GEMM */

#define ROW(name, NAME, bits, size)                                                                          \
    { FORMAT_##NAME,                                                                                         \
      { .decode = name##_decode,                                                                             \
        .dot_f32 = name##_dot_f32,                                                                           \
        .dot_q8 = name##_dot_q8,                                                                             \
        .unpack_q8 = name##_unpack_q8 } },
#define BYTE_ROW(name, NAME, bits, size)                                                                     \
    { FORMAT_##NAME, { .decode = name##_decode, .dot_f32 = name##_dot_f32, .dot_q8 = name##_dot_q8 } },
const struct format_row GROUPS_AVX2[GROUPS_COUNT] = { GROUP_TABLE_FORMATS(ROW) GROUP_BYTE_FORMATS(BYTE_ROW) };
