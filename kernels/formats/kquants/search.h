/* kernels/formats/kquants/search.h - search the scale (and minimum) of a sub-block and the integer codes of
 * its weights so that the weighted squared error is small. The weights are approximated by scale * code -
 * minimum, and w[i] is the weight of the squared error of weight i (the error weight). Every operation is one
 * rounded binary32 operation in the order written, so the bytes equal those of ggml's encoders. The functions
 * that are not inline are the reference, which processes one weight after the other.
 * isa/encode/search_lanes.h searches many sub-blocks at once, one per vector lane. */
#ifndef QDYNO_KERNELS_FORMATS_KQUANTS_SEARCH_H
#define QDYNO_KERNELS_FORMATS_KQUANTS_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/half.h"

enum { SEARCH_MOST = 32 }; /* largest number of weights in a search */
#define SEARCH_NEARLY_ZERO 1e-15f

/* Round to the nearest integer, ties to even; v is limited to +-4194303. Adding 1.5 * 2^23 leaves the integer
 * in the low mantissa bits. A call of rintf for each element would take most of the search's time. */
static inline int search_round(float v)
{
    const float cut = v < -4194303.f ? -4194303.f : v > 4194303.f ? 4194303.f : v;
    return (int)(bits_of(cut + 12582912.f) & 0x7fffff) - 0x400000;
}

static inline int search_clamp(int v, int lo, int hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

/* Approximate x by scale * (code - nmax) with codes 0 .. 2 nmax - 1. w: error weights; NULL means x * x.
 * Tries inverse scales around -nmax / (weight of largest magnitude). Returns the scale. If all weights are
 * below SEARCH_NEARLY_ZERO in magnitude, the scale and all codes are 0. */
float search_symmetric(int n, int nmax, const float *x, const float *w, uint8_t *code);

/* The same for q3_K without importance: one trial scale, then coordinate descent over the codes. The error
 * weights are x * x. */
float search_symmetric_steps(int n, int nmax, const float *x, uint8_t *code);

/* Approximate x by scale * code - *min with codes 0 .. nmax and *min >= 0. Tries the inverse scales (rmin + k
 * rdelta + nmax) / range for k = 0 .. steps. For each of them, codes are rounded, and a weighted least
 * squares fit of a line yields the scale and the minimum that suit these codes best. */
struct search_grid {
    int nmax;
    float rmin, rdelta;
    int steps;
    bool squared; /* the search minimizes squared errors, else absolute errors */
};
float search_min(const struct search_grid *g, int n, const float *x, const float *w, uint8_t *code,
                 float *min);

/* Approximate x >= 0 by scale * code with codes 0 .. nmax. It quantizes the scales and minima of a block's
 * sub-blocks; w[j] is then the sum of the error weights in sub-block j. iq2_xxs also searches x with negative
 * elements. ggml stores their negative codes in unsigned bytes, where they wrap around to large codes. This
 * function does the same to produce the same bytes. */
float search_positive(int n, int nmax, const float *x, const float *w, uint8_t *code);

/* Approximate x by scale * (a value of IQ4_VALUES). w: error weights; NULL means x * x. Returns the scale
 * only. */
float search_codebook(int n, const float *x, const float *w);

/* code[i] = index of the value in IQ4_VALUES that is nearest to by * x[i]. SEARCH_CODEBOOK_MIDDLES has the
 * midpoints between neighbouring values, ascending. An element exactly at a midpoint gets the upper value, so
 * the code is the number of midpoints that are not above it. */
#define SEARCH_CODEBOOK_MIDDLES                                                                              \
    -115.5f, -93.5f, -74, -57, -42, -28.5f, -16, -4.5f, 7, 19, 31.5f, 45.5f, 61, 79, 101
static inline void search_codebook_codes(int n, const float *x, float by, uint8_t *code)
{
    static const float MIDDLE[15] = { SEARCH_CODEBOOK_MIDDLES };
    for (int i = 0; i < n; i++) {
        const float v = x[i] * by;
        int c = 0;
        for (int m = 0; m < 15; m++) c += v >= MIDDLE[m];
        code[i] = (uint8_t)c;
    }
}

/* Error weights where columns have an importance: w[i] = importance[i] * sqrt(base + x[i]^2). `base` is a
 * multiple of the mean square of the block or row, so large weights count more, and small ones still count.
 */
void search_weights(int n, const float *x, const float *importance, float base, float *w);
float search_squares(int64_t n, const float *x); /* sum of squares, added in order */

#endif
