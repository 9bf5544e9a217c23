/* Codebooks as bf16 tiles: the sixteen values of a unit are rounded once, then looked up. */
#include "kernels/formats/codebooks/codebooks.h"
#include "kernels/formats/codebooks/tables_avx512.h"
#include "kernels/isa/gemm/tables_amx.h"

#define FUNCTIONS(name, NAME, book, nested) TABLE_UNPACK(name, NAME)
CODEBOOK_FORMATS(FUNCTIONS)

#define ROW(name, NAME, book, nested) { FORMAT_##NAME, { .unpack_bf16 = name##_unpack } },
const struct format_row CODEBOOKS_AVX512BF16[CODEBOOKS_COUNT] = { CODEBOOK_FORMATS(ROW) };
