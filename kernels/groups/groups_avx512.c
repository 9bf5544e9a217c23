/* Groups with AVX-512, f32 activations: codes look up their values. */
#include "kernels/groups/groups.h"
#include "kernels/groups/tables_avx512.h"

#define FUNCTIONS(name, NAME, bits, size)                                                                    \
    static void name##_decode(const void *blocks, float *x, int64_t n)                                       \
    {                                                                                                        \
        table_decode(&NAME, blocks, x, n);                                                                   \
    }                                                                                                        \
    static void name##_dot_f32(const struct dot *d)                                                          \
    {                                                                                                        \
        table_dot(&NAME, d);                                                                                 \
    }
GROUP_FORMATS(FUNCTIONS)

#define ROW(name, NAME, bits, size) { FORMAT_##NAME, { .decode = name##_decode, .dot_f32 = name##_dot_f32 } },
const struct format_row GROUPS_AVX512[GROUPS_COUNT] = { GROUP_FORMATS(ROW) };
