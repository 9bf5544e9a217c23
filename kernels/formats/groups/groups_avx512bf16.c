/* Groups as bf16 tiles: the values that a group can hold are computed and rounded once, then looked up. */
#include "kernels/formats/groups/groups.h"
#include "kernels/formats/groups/tables_avx512.h"
#include "kernels/isa/gemm/tables_amx.h"

#define FUNCTIONS(name, NAME, bits, size) TABLE_UNPACK(name, NAME)
GROUP_TABLE_FORMATS(FUNCTIONS)

#define BYTE_FUNCTIONS(name, NAME, bits, size)                                                               \
    ALWAYS_INLINE __m512i name##_row32(const uint8_t *row, int64_t i, int64_t have)                          \
    {                                                                                                        \
        const uint8_t *block = row + i / (size)*GROUP_BYTES(bits, size);                                     \
        const int at = (int)(i % (size) / 16);                                                               \
        (void)have;                                                                                          \
        return to_bf16(group_bytes16(block, at), group_bytes16(block, at + 1));                              \
    }                                                                                                        \
    ROW32_UNPACK(name)
GROUP_BYTE_FORMATS(BYTE_FUNCTIONS)

#define ROW(name, NAME, bits, size) { FORMAT_##NAME, { .unpack_bf16 = name##_unpack } },
const struct format_row GROUPS_AVX512BF16[GROUPS_COUNT] = { GROUP_FORMATS(ROW) };
