/* Codebooks to bf16 tiles: sixteen values rounded once a unit, then looked up. */
#include "kernels/codebook/codebook.h"
#include "kernels/codebook/tables_avx512.h"
#include "kernels/isa/tables_amx.h"

#define FUNCTIONS(name, NAME, book, nested) TABLE_UNPACK(name, NAME)
CODEBOOK_FORMATS(FUNCTIONS)

#define ROW(name, NAME, book, nested) { FORMAT_##NAME, { .unpack_bf16 = name##_unpack } },
const struct format_row CODEBOOK_AMX[CODEBOOK_COUNT] = { CODEBOOK_FORMATS(ROW) };
