/* kernels/isa/bf16_tiles.h - weights as bf16 in tile order, and the template that converts them. Include it
 * only in files compiled with AVX-512 BF16 flags.
 *
 * A run of tiles holds 16 weight rows: tile after tile of 32 inputs in bf16, 1 KiB each, rows of a tile 64
 * bytes apart. AMX multiplies whole tiles; the AVX-512 kernels read them row by row. */
#ifndef QDYNO_KERNELS_ISA_BF16_TILES_H
#define QDYNO_KERNELS_ISA_BF16_TILES_H

#include "kernels/isa/avx512.h"

enum { BF16_TILE_WEIGHTS = TILE_ROWS * TILE_DEPTH };

/* unpack_bf16_fn for any format; formats without one are decoded and rounded (gemm_bf16_avx512.c). */
void unpack_bf16_tiles(const struct format *format, const struct format_kernels *f, const uint8_t *w,
                       int64_t row_bytes, int rows, int64_t k, uint16_t *out);

/* The number of bf16 elements in a run of tiles: 16 rows of k inputs. */
static inline int64_t bf16_run(int64_t k)
{
    return (k + TILE_DEPTH - 1) / TILE_DEPTH * BF16_TILE_WEIGHTS;
}

/* Convert 2 x 16 floats to 32 bf16; the lower half comes from `low`. */
ALWAYS_INLINE __m512i to_bf16(__m512 low, __m512 high)
{
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* Convert 16 floats to bf16 and repeat them. Beside tile products this is faster than one two-register
 * conversion, which waits for the tile unit (SPEED.md, "Conversion beside tile products"). */
ALWAYS_INLINE __m512i twice_bf16(__m512 values)
{
    return _mm512_broadcast_i64x4((__m256i)_mm512_cvtneps_pbh(values));
}

/* Convert the f16 scales of n <= 8 (a constant) neighbouring blocks, `step` bytes apart, to floats in memory:
 * integer loads and one conversion. Broadcasting them from memory later uses no vector port. */
ALWAYS_INLINE void load_8_scales(const uint8_t *p, int step, const int n, float out[8])
{
    uint64_t four[2] = { 0, 0 };
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) four[i / 4] |= (uint64_t)load_u16(p + i * step) << 16 * (i % 4);
    _mm256_storeu_ps(out, _mm256_cvtph_ps(_mm_set_epi64x((long long)four[1], (long long)four[0])));
    __asm__ volatile("" : : "r"(out) : "memory"); /* keep the floats in memory */
}

/* Load 32 weights from index i of a row as bf16. `have` of them exist; the others become 0. */
typedef __m512i bf16_row_fn(const uint8_t *row, int64_t i, int64_t have);

/* The body of an unpack_bf16_fn, from a function that loads 32 weights. */
ALWAYS_INLINE void unpack_tiles(const uint8_t *w, int64_t row_bytes, int rows, int64_t k, uint16_t *out,
                                bf16_row_fn *load)
{
    for (int r = 0; r < rows; r++, w += row_bytes, out += TILE_DEPTH)
        for (int64_t i = 0; i < k; i += TILE_DEPTH)
            _mm512_store_si512(out + i / TILE_DEPTH * BF16_TILE_WEIGHTS, load(w, i, k - i));
}

#endif
