/* kernels/formats/kquants/kquants_avx512bf16.h - conversion of blocks of 256 weights to bf16 tiles. Every
 * weight is computed as in the reference and rounded once. With six to a few dozen rows of activations, this
 * conversion takes most of a product's time. */
#ifndef QDYNO_KERNELS_FORMATS_KQUANTS_KQUANTS_AVX512BF16_H
#define QDYNO_KERNELS_FORMATS_KQUANTS_KQUANTS_AVX512BF16_H

#include "kernels/isa/bf16_tiles.h"
#include "kernels/formats/kquants/kquants_avx512.h"

/* Convert a block to one row in each of eight tiles, 32 weights per tile. */
typedef void k_row_fn(const uint8_t *block, uint16_t *out);

ALWAYS_INLINE void tile_put(uint16_t *out, int tile, __m512i weights)
{
    _mm512_store_si512(out + tile * BF16_TILE_WEIGHTS, weights);
}

/* Convert one row after the other, so that a block's scales are unpacked once. */
ALWAYS_INLINE void blocks_unpack(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, uint16_t *out,
                                 const int block_bytes, k_row_fn *row)
{
    enum { TILES = K_BLOCK / TILE_DEPTH };
    for (int64_t i = 0; i < k; i += K_BLOCK, w += block_bytes, out += TILES * BF16_TILE_WEIGHTS) {
        for (int r = 0; r < rows; r++) {
            const uint8_t *block = w + r * row_bytes;
            row(block, out + r * TILE_DEPTH);
        }
    }
}

/* The k_row_fn for any format: compute every weight. */
ALWAYS_INLINE void row_computed(const uint8_t *block, uint16_t *out, const struct k_shape *shape,
                                k_scales_fn *scales, k_codes512_fn *codes)
{
    struct k_unpacked u;
    k_unpack(block, shape, scales, codes, &u);
#pragma GCC unroll 8
    for (int t = 0; t < K_BLOCK / TILE_DEPTH; t++)
        tile_put(out, t, to_bf16(k_weights16(&u, shape, 2 * t), k_weights16(&u, shape, 2 * t + 1)));
}

/* Define the unpack_bf16_fn of a format from its k_row_fn, name##_row. */
#define K_UNPACK(name, shape)                                                                                \
    static void name##_unpack(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, uint16_t *out)       \
    {                                                                                                        \
        blocks_unpack(w, row_bytes, rows, k, out, shape.block_bytes, name##_row);                            \
    }

#endif
