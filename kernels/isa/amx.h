/* kernels/isa/amx.h - what the AMX panel unpackers share. Their output is a run of tiles, 16 weight rows by
 * 32 inputs of bf16, 1 KiB each: weights are the A operand, whose rows are plain, so nothing is ever
 * transposed on the weights' side (the activations, packed once per product, take the pair-interleaved B
 * side). */
#ifndef QDYNO_KERNELS_AMX_H
#define QDYNO_KERNELS_AMX_H

#include "kernels/isa/avx512.h"

enum { AMX_TILE_WEIGHTS = TILE_ROWS * TILE_DEPTH };

/* Two times 16 floats to 32 bf16, low first. */
ALWAYS_INLINE __m512i to_bf16(__m512 low, __m512 high)
{
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* 32 weights from index i of a row; `have` of them exist, the others become 0. */
typedef __m512i bf16_row_fn(const uint8_t *row, int64_t i, int64_t have);

/* depth_bytes: what 32 weights of a row take. */
ALWAYS_INLINE void unpack_tiles(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, uint16_t *out,
                                bf16_row_fn *load, const int depth_bytes)
{
    for (int64_t i = 0; i < k; i += TILE_DEPTH, out += AMX_TILE_WEIGHTS) {
        int r = 0;
        for (; r < rows; r++) {
            const uint8_t *row = w + r * row_bytes;
            /* The rows of the next call: sixteen streams are more than the hardware follows. */
            const char *next = (const char *)row + TILE_ROWS * row_bytes + i / TILE_DEPTH * depth_bytes;
#pragma GCC unroll 2
            for (int b = 0; b < depth_bytes; b += LINE_BYTES) _mm_prefetch(next + b, _MM_HINT_T0);
            _mm512_store_si512(out + r * TILE_DEPTH, load(row, i, k - i));
        }
        for (; r < TILE_ROWS; r++) _mm512_store_si512(out + r * TILE_DEPTH, _mm512_setzero_si512());
    }
}

#endif
