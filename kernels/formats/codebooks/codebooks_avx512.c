/* Codebooks with AVX-512 and f32 activations: the sixteen values fit one register. */
#include "kernels/formats/codebooks/codebooks.h"
#include "kernels/formats/codebooks/tables_avx512.h"

#define FUNCTIONS(name, NAME, book, nested)                                                                  \
    static void name##_decode(const void *blocks, float *x, int64_t n)                                       \
    {                                                                                                        \
        table_decode(&NAME, blocks, x, n);                                                                   \
    }                                                                                                        \
    static void name##_dot_f32(const struct dot *d)                                                          \
    {                                                                                                        \
        table_dot(&NAME, d);                                                                                 \
    }
CODEBOOK_FORMATS(FUNCTIONS)

#define ROW(name, NAME, book, nested)                                                                        \
    { FORMAT_##NAME, { .decode = name##_decode, .dot_f32 = name##_dot_f32 } },
const struct format_row CODEBOOKS_AVX512[CODEBOOKS_COUNT] = { CODEBOOK_FORMATS(ROW) };
