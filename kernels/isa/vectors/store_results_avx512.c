/* Store the results of a GEMM panel. They are in [row][token] order, 32 tokens wide; the output is
 * [token][row], with tokens pages apart. If the output is much larger than a cache, ordinary stores would
 * read every line from memory first, which takes longer than the product: non-temporal (streaming) stores are
 * used then. */
#include "kernels/isa/avx512.h"
#include "kernels/isa/isa_kernels.h"

/* Store 16 rows by 16 tokens. `streaming` is a constant at every call. */
ALWAYS_INLINE void store_block(const struct result_store *d, int r, int t, const bool streaming)
{
    const __mmask16 lanes = first_lanes(d->rows - r);
    const int tokens = MIN(16, d->tokens - t);
    __m512i v[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) v[i] = _mm512_load_si512(d->c + (r + i) * SLIVER + t);
    transpose_16x16(v);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        if (i >= tokens) break;
        const int64_t at = (d->to ? d->to[t + i] : t + i) * d->stride + r;
        __m512 x = _mm512_castsi512_ps(v[i]);
        if (d->to)
            x = _mm512_fmadd_ps(_mm512_set1_ps(d->by[t + i]), x, _mm512_maskz_loadu_ps(lanes, d->y + at));
        if (d->residual) x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(lanes, d->residual + at));
        if (streaming)
            _mm512_stream_ps(d->y + at, x);
        else
            _mm512_mask_storeu_ps(d->y + at, lanes, x);
    }
}

void store_results_avx512(const struct result_store *d)
{
    const bool streaming = d->streaming && (uintptr_t)d->y % LINE_BYTES == 0 && d->stride % 16 == 0;
    for (int r = 0; r < d->rows; r += 16)
        for (int t = 0; t < d->tokens; t += 16) {
            if (streaming && r + 16 <= d->rows)
                store_block(d, r, t, true);
            else
                store_block(d, r, t, false);
        }
    if (streaming) _mm_sfence(); /* the thread pool's synchronization orders ordinary stores only */
}
