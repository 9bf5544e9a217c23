/* kernels/formats/codebooks/layout.h - the layout of blocks. A unit is 64 weights with a common largest
 * magnitude: the whole block of nf4 and fp4, a quarter of a block of the nested formats. Codes come 32 at a
 * time in the order of q4_0. */
#ifndef QDYNO_KERNELS_FORMATS_CODEBOOKS_LAYOUT_H
#define QDYNO_KERNELS_FORMATS_CODEBOOKS_LAYOUT_H

#include "kernels/formats/codebooks/tables.h"
#include "kernels/half.h"

enum {
    UNIT = 64,
    UNIT_BYTES = 32, /* of codes */

    PLAIN_CODES = 4, /* behind the f32 */
    PLAIN_BYTES = PLAIN_CODES + UNIT_BYTES,

    NESTED_UNITS = 4,
    NESTED_LARGEST = 0, /* f32 that the codes of the units' magnitudes are multiplied by, */
    NESTED_OFFSET = 4,  /* and f32 that is added */
    NESTED_SCALES = 8,  /* those codes, a byte each */
    NESTED_CODES = 12,
    NESTED_BYTES = NESTED_CODES + NESTED_UNITS * UNIT_BYTES,
    NESTED_RUN = 256, /* units that share `largest` where they were chosen together */
};

/* X(name, NAME, book, nested): every format here, in the order of enum format_id. */
#define CODEBOOK_FORMATS(X)                                                                                  \
    X(nf4, NF4, NF4, 0)                                                                                      \
    X(fp4, FP4, FP4, 0)                                                                                      \
    X(nf4_dq, NF4_DQ, NF4, 1)                                                                                \
    X(fp4_dq, FP4_DQ, FP4, 1)

static inline float load_f32(const void *p)
{
    float v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline float unit_largest(const uint8_t *block, int unit, const int nested)
{
    if (!nested) return load_f32(block);
    return CODEBOOK_DYNAMIC_MAP[block[NESTED_SCALES + unit]] * load_f32(block + NESTED_LARGEST) +
           load_f32(block + NESTED_OFFSET);
}

static inline const uint8_t *unit_codes(const uint8_t *block, int unit, const int nested)
{
    return block + (nested ? NESTED_CODES + unit * UNIT_BYTES : PLAIN_CODES);
}

static inline int block_bytes(const int nested)
{
    return nested ? NESTED_BYTES : PLAIN_BYTES;
}

static inline int block_units(const int nested)
{
    return nested ? NESTED_UNITS : 1;
}

#endif
