/* Codebooks to bf16 tiles: sixteen values rounded once a unit, then looked up. */
#include "kernels/codebook/codebook.h"
#include "kernels/codebook/tables_avx512.h"
#include "kernels/isa/tables_amx.h"

#define FUNCTIONS(name, NAME, book, nested)                                                                  \
    ALWAYS_INLINE __m512i name##_row32(const uint8_t *row, int64_t i, int64_t have)                          \
    {                                                                                                        \
        (void)have;                                                                                          \
        return table_row32(&NAME, row, i);                                                                   \
    }                                                                                                        \
    static void name##_unpack(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, uint16_t *out)       \
    {                                                                                                        \
        unpack_tiles(w, row_bytes, rows, k, out, name##_row32);                                              \
    }
CODEBOOK_FORMATS(FUNCTIONS)

#define ROW(name, NAME, book, nested) { FORMAT_##NAME, { .unpack_bf16 = name##_unpack } },
const struct format_row CODEBOOK_AMX[CODEBOOK_COUNT] = { CODEBOOK_FORMATS(ROW) };
