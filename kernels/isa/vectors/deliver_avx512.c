/* Results of a matrix product to where they belong. A panel's results come as [row][token], 32 tokens wide;
 * the engine wants [token][row], tokens pages apart. Where the whole is far larger than a cache, stores that
 * would first read every line from memory cost more than the product's arithmetic: those go past the caches.
 */
#include "kernels/isa/avx512.h"
#include "kernels/isa/isa_kernels.h"

/* 16 rows by 16 tokens. `far` is a constant at every call. */
ALWAYS_INLINE void block(const struct delivery *d, int r, int t, const bool far)
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
        const int64_t at = (t + i) * d->stride + r;
        __m512 x = _mm512_castsi512_ps(v[i]);
        if (d->residual) x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(lanes, d->residual + at));
        if (far)
            _mm512_stream_ps(d->y + at, x);
        else
            _mm512_mask_storeu_ps(d->y + at, lanes, x);
    }
}

void deliver_avx512(const struct delivery *d)
{
    const bool far = d->far && (uintptr_t)d->y % LINE_BYTES == 0 && d->stride % 16 == 0;
    for (int r = 0; r < d->rows; r += 16)
        for (int t = 0; t < d->tokens; t += 16) {
            if (far && r + 16 <= d->rows)
                block(d, r, t, true);
            else
                block(d, r, t, false);
        }
    if (far) _mm_sfence(); /* the threadpool's hand-over orders ordinary stores only */
}
