/* kernels/formats/kquants/search.h - choosing the scale (and minimum) of a few weights so that the weighted
 * squared error of their codes is small. Every operation is one rounded binary32 operation in the order
 * written: files of other programs are reproduced byte for byte. Functions that are not inline are the
 * reference, one weight after another; isa/search_lanes.h does the same for many sub-blocks side by side. */
#ifndef QDYNO_KERNELS_FORMATS_KQUANTS_SEARCH_H
#define QDYNO_KERNELS_FORMATS_KQUANTS_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/half.h"

enum { SEARCH_MOST = 32 }; /* weights at most */
#define SEARCH_NEARLY_ZERO 1e-15f

/* To the nearest integer, ties to even, |v| cut at 4194303. Adding 1.5 * 2^23 leaves the integer in the low
 * mantissa bits; a call of rintf an element would be most of the search's time. */
static inline int search_round(float v)
{
    const float cut = v < -4194303.f ? -4194303.f : v > 4194303.f ? 4194303.f : v;
    return (int)(bits_of(cut + 12582912.f) & 0x7fffff) - 0x400000;
}

static inline int search_clamp(int v, int lo, int hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

/* x ~ scale * (code - nmax), codes 0..2 nmax - 1, errors weighted by w (NULL: by x * x). Returns the scale, 0
 * (and codes 0) for weights that are all but zero. */
float search_symmetric(int n, int nmax, const float *x, const float *w, uint8_t *code);

/* The same, but one trial improved code by code (q3_K). */
float search_symmetric_steps(int n, int nmax, const float *x, uint8_t *code);

/* x ~ scale * code - *min, codes 0..nmax, *min >= 0. Tries inverse scales (rmin + k rdelta + nmax) / range
 * for k = 0..steps, each followed by a least squares fit. */
struct search_grid {
    int nmax;
    float rmin, rdelta;
    int steps;
    bool squared; /* errors count squared, else as magnitudes */
};
float search_min(const struct search_grid *g, int n, const float *x, const float *w, uint8_t *code,
                 float *min);

/* x >= 0 as scale * code, codes 0..nmax: the scales of sub-blocks, as heavy as the weights below them. An x
 * below zero (iq2_xxs has some) is searched as ggml does: its code is kept as a byte, so it seems large. */
float search_positive(int n, int nmax, const float *x, const float *w, uint8_t *code);

/* x ~ scale * IQ4 value, errors weighted by w (NULL: by x * x). Returns the scale only. */
float search_codebook(int n, const float *x, const float *w);

/* The codes 0..15 of the values nearest to by * x: what lies in the middle of two takes the upper one, so a
 * code is the number of middles not above it. */
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

/* How heavy an error is where columns have an importance: the larger weights of a column count more, and how
 * much more depends on the mean square of their surroundings, `base`. */
void search_weights(int n, const float *x, const float *importance, float base, float *w);
float search_squares(int64_t n, const float *x); /* sum, in order */

#endif
