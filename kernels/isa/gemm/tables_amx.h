/* kernels/isa/gemm/tables_amx.h - bf16 tile rows for formats whose codes are looked up (tables_avx512.h). */
#ifndef QDYNO_KERNELS_ISA_GEMM_TABLES_AMX_H
#define QDYNO_KERNELS_ISA_GEMM_TABLES_AMX_H

#include "kernels/isa/amx.h"
#include "kernels/isa/gemv/tables_avx512.h"

/* The look-up uses five bits of an index; with the sixteen values repeated in the register, the fifth does
 * not matter. */
ALWAYS_INLINE __m512i table_row32(const struct table_kind *f, const uint8_t *row, int64_t i)
{
    const uint8_t *block = row + i / f->weights * f->bytes;
    const int within = (int)(i % f->weights);
    const __m512 values = f->values(block, within / f->unit);
    return _mm512_permutexvar_epi16(f->codes32(block, within / 32), to_bf16(values, values));
}

/* ROW32_UNPACK defines the unpack_bf16_fn of a format from its function `name`_row32; TABLE_UNPACK defines
 * both from a table_kind. */
#define ROW32_UNPACK(name)                                                                                   \
    static void name##_unpack(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, uint16_t *out)       \
    {                                                                                                        \
        unpack_tiles(w, row_bytes, rows, k, out, name##_row32);                                              \
    }
#define TABLE_UNPACK(name, kind)                                                                             \
    ALWAYS_INLINE __m512i name##_row32(const uint8_t *row, int64_t i, int64_t have)                          \
    {                                                                                                        \
        (void)have;                                                                                          \
        return table_row32(&(kind), row, i);                                                                 \
    }                                                                                                        \
    ROW32_UNPACK(name)

#endif
