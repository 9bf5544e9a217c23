/* Groups with AVX-512 and f32 activations: values of codes up to 4 bits are looked up, those of 8-bit codes
 * are computed. */
#include "kernels/formats/groups/groups.h"
#include "kernels/formats/groups/tables_avx512.h"

#define FUNCTIONS(name, NAME, bits, size)                                                                    \
    static void name##_decode(const void *blocks, float *x, int64_t n)                                       \
    {                                                                                                        \
        table_decode(&NAME, blocks, x, n);                                                                   \
    }                                                                                                        \
    static void name##_dot_f32(const struct dot *d)                                                          \
    {                                                                                                        \
        table_dot(&NAME, d);                                                                                 \
    }
GROUP_TABLE_FORMATS(FUNCTIONS)

#define BYTE_FUNCTIONS(name, NAME, bits, size)                                                               \
    ALWAYS_INLINE __m512 name##_load16(const uint8_t *row, int64_t i, __mmask16 lanes)                       \
    {                                                                                                        \
        (void)lanes;                                                                                         \
        return group_bytes16(row + i / (size)*GROUP_BYTES(bits, size), (int)(i % (size) / 16));              \
    }                                                                                                        \
    static void name##_decode(const void *blocks, float *x, int64_t n)                                       \
    {                                                                                                        \
        for (int64_t i = 0; i < n; i += 16) _mm512_storeu_ps(x + i, name##_load16(blocks, i, 0xffff));       \
    }                                                                                                        \
    static void name##_dot_f32(const struct dot *d)                                                          \
    {                                                                                                        \
        dot_floats(d, name##_load16, 1);                                                                     \
    }
GROUP_BYTE_FORMATS(BYTE_FUNCTIONS)

#define ROW(name, NAME, bits, size) { FORMAT_##NAME, { .decode = name##_decode, .dot_f32 = name##_dot_f32 } },
const struct format_row GROUPS_AVX512[GROUPS_COUNT] = { GROUP_FORMATS(ROW) };
