/* kernels/formats/int8/int8_v128.h - int8 with 128-bit vectors: the stored bytes are the codes. Include an
 * implementation of isa/v128.h first. */
#ifndef QDYNO_KERNELS_FORMATS_INT8_INT8_V128_H
#define QDYNO_KERNELS_FORMATS_INT8_INT8_V128_H

#include "kernels/isa/gemv/block_dot_v128.h"
#include "kernels/formats/int8/int8.h"

ALWAYS_INLINE void int8_codes(const uint8_t *block, int part, u8x16 out[2])
{
    (void)part;
    out[0] = load_u8(block), out[1] = load_u8(block + 16);
}

ALWAYS_INLINE float int8_scale(const uint8_t *block)
{
    (void)block;
    return 1;
}

static const struct block_kind KIND_INT8 = {
    .bytes = INT8_BLOCK, .parts = 1, .is_signed = true, .codes = int8_codes, .scale = int8_scale
};

BLOCK_KIND_FUNCTIONS(int8, KIND_INT8)

#endif
