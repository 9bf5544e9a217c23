/* kernels/kquants/search.h - choosing the scale (and minimum) of a few weights so that the weighted squared
 * error of their codes is small. Every operation is one rounded binary32 operation in the order written:
 * files of other programs are reproduced byte for byte. Only for the reference encoders. */
#ifndef QDYNO_KERNELS_KQUANTS_SEARCH_H
#define QDYNO_KERNELS_KQUANTS_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

enum { SEARCH_MOST = 32 }; /* weights at most */

/* To the nearest integer, ties to even, |v| cut at 4194303. Adding 1.5 * 2^23 leaves the integer in the low
 * mantissa bits; a call of rintf an element would be most of the search's time. */
int search_round(float v);

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

/* x >= 0 as scale * code, codes 0..nmax: the scales of sub-blocks, as heavy as the weights below them. */
float search_positive(int n, int nmax, const float *x, const float *w, uint8_t *code);

/* x ~ scale * IQ4 value, errors weighted by w (NULL: by x * x). Returns the scale only. */
float search_codebook(int n, const float *x, const float *w);
int search_codebook_nearest(float v); /* 0..15 */

/* How heavy an error is where columns have an importance: the larger weights of a column count more, and how
 * much more depends on the mean square of their surroundings, `base`. */
void search_weights(int n, const float *x, const float *importance, float base, float *w);
float search_squares(int64_t n, const float *x); /* sum, in order */

#endif
