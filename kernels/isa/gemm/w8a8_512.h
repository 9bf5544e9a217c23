/* kernels/isa/gemm/w8a8_512.h - operands of W8A8 GEMM for AVX-512 VNNI and AMX. A tile has 64 inputs of 16
 * rows, 1 KiB. Weight rows are stored plainly; of activations, row i of a tile holds inputs 4 i .. 4 i + 3 of
 * 16 tokens, one token per 32-bit lane. A group of a panel and half a sliver are runs of tiles. */
#ifndef QDYNO_KERNELS_ISA_GEMM_W8A8_512_H
#define QDYNO_KERNELS_ISA_GEMM_W8A8_512_H

#include <string.h>

#include "kernels/isa/avx512.h"

enum { W8A8_DEPTH = 64, W8A8_TILE = TILE_ROWS * W8A8_DEPTH };

ALWAYS_INLINE __mmask64 first_bytes(int64_t n)
{
    return n >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << n) - 1;
}

/* Bytes in the tiles of 16 rows of k. */
static inline int64_t w8a8_run(int64_t k)
{
    return (k + W8A8_DEPTH - 1) / W8A8_DEPTH * W8A8_TILE;
}

/* Pack 16 tokens from `first` on. Missing tokens and padded inputs become 0; their products are unused, or
 * have weights of 0. */
static inline void w8a8_pack_half(const uint8_t *code, int64_t stride, int tokens, int k, uint8_t *out)
{
    for (int i = 0; i < k; i += W8A8_DEPTH, out += W8A8_TILE) {
        const __mmask64 here = first_bytes(k - i);
        __m512i v[16];
#pragma GCC unroll 16
        for (int t = 0; t < 16; t++)
            v[t] = t < tokens ? _mm512_maskz_loadu_epi8(here, code + t * stride + i) : _mm512_setzero_si512();
        transpose_16x16(v);
#pragma GCC unroll 16
        for (int p = 0; p < 16; p++) _mm512_store_si512(out + p * W8A8_DEPTH, v[p]);
    }
}

static inline void w8a8_pack(const uint8_t *code, int64_t stride, int tokens, int k, uint8_t *sliver)
{
    w8a8_pack_half(code, stride, MIN(tokens, (int)TILE_ROWS), k, sliver);
    w8a8_pack_half(code + TILE_ROWS * stride, stride, tokens - TILE_ROWS, k, sliver + w8a8_run(k));
}

/* The sum of a row's codes. */
static inline int32_t w8a8_sum(const uint8_t *w, int64_t k)
{
    __m512i sum = _mm512_setzero_si512();
    for (int64_t i = 0; i < k; i += W8A8_DEPTH)
        sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(1),
                                  _mm512_maskz_loadu_epi8(first_bytes(k - i), w + i));
    return _mm512_reduce_add_epi32(sum);
}

/* Copy codes and compute their sums. Prefetch the next 16 rows, which are more streams than the hardware
 * prefetcher follows. */
static inline void w8a8_unpack(const struct unpacking *u)
{
    if (u->rows < TILE_ROWS) {
        memset(u->group, 0, (size_t)w8a8_run(u->k));
        memset(u->sums, 0, TILE_ROWS * sizeof *u->sums);
    }
    for (int r = 0; r < u->rows; r++) {
        const uint8_t *w = u->w + r * u->row_bytes;
        uint8_t *out = (uint8_t *)u->group + r * W8A8_DEPTH;
        for (int64_t i = 0; i < u->k; i += W8A8_DEPTH) {
            __builtin_prefetch(w + TILE_ROWS * u->row_bytes + i);
            _mm512_store_si512(out + i * TILE_ROWS, _mm512_maskz_loadu_epi8(first_bytes(u->k - i), w + i));
        }
        u->sums[r] = w8a8_sum(w, u->k);
    }
}

/* The sums of row r with half a sliver, corrected for `zero`, as floats. */
ALWAYS_INLINE void w8a8_store(const struct gemm_step *p, int r, int half, __m512i sum)
{
    const __m512i off = _mm512_set1_epi32(p->zero * p->sums[r]);
    _mm512_store_ps(p->c + r * SLIVER + half * TILE_ROWS, _mm512_cvtepi32_ps(_mm512_sub_epi32(sum, off)));
}

#endif
