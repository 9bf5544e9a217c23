/* Conversion of blocks of 64 and 128 weights to bf16 tiles: values as in the reference, rounded once. */
#include "kernels/isa/bf16_tiles.h"
#include "kernels/formats/blocks64/blocks64.h"
#include "kernels/formats/blocks64/values_avx512.h"

#define FUNCTIONS(name, NAME)                                                                                \
    ALWAYS_INLINE __m512i name##_row32(const uint8_t *row, int64_t i, int64_t have)                          \
    {                                                                                                        \
        const uint8_t *block = row + i / NAME##_BLOCK * NAME##_BYTES;                                        \
        const int g = (int)(i % NAME##_BLOCK / 16);                                                          \
        (void)have;                                                                                          \
        return to_bf16(name##_floats(block, g), name##_floats(block, g + 1));                                \
    }                                                                                                        \
    static void name##_unpack(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, uint16_t *out)       \
    {                                                                                                        \
        unpack_tiles(w, row_bytes, rows, k, out, name##_row32);                                              \
    }
FUNCTIONS(q1_0, Q1_0)
FUNCTIONS(q2_0, Q2_0)
FUNCTIONS(nvfp4, NVFP4)

const struct format_row BLOCKS64_AVX512BF16[BLOCKS64_COUNT] = {
    { FORMAT_Q1_0, { .unpack_bf16 = q1_0_unpack } },
    { FORMAT_Q2_0, { .unpack_bf16 = q2_0_unpack } },
    { FORMAT_NVFP4, { .unpack_bf16 = nvfp4_unpack } },
};
