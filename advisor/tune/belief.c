/* advisor/tune/belief.c - Bayesian regression over the values of knobs, one look at a time.
 *
 * y = a + sum over dimensions of b[dimension][value] + own, all normal with mean 0. The joint belief about a
 * and b is a mean and a covariance, updated by each look (Kalman's rank-one step); `own`, what is peculiar to
 * one configuration, counts as noise of the look. */
#include "advisor/tune/tune.h"

#include <math.h>
#include <stdlib.h>

struct tune_belief {
    int p, dims, first[TUNE_DIMS]; /* unknowns; where those of a dimension begin */
    double own2;
    double *mean, *cov, *gain; /* [p] [p][p] [p] */
};

static const double UNPREDICTED_SD = 1.5; /* a factor of four or so either way */

enum err_code tune_belief_open(struct tune_belief **out, const struct tune_space *s, double sd_all,
                               double sd_value, double sd_own, struct err *why)
{
    struct tune_belief *b = calloc(1, sizeof *b);
    *out = b;
    if (!b) return err_set(why, ERR_NOMEM, "no memory for a belief");
    b->p = 1;
    b->dims = s->dims;
    b->own2 = sd_own * sd_own;
    for (int d = 0; d < s->dims; d++) {
        b->first[d] = b->p;
        b->p += s->dim[d].n;
    }
    b->mean = calloc((size_t)b->p, sizeof *b->mean);
    b->gain = calloc((size_t)b->p, sizeof *b->gain);
    b->cov = calloc((size_t)b->p * (size_t)b->p, sizeof *b->cov);
    if (!b->mean || !b->gain || !b->cov) {
        tune_belief_free(b);
        *out = NULL;
        return err_set(why, ERR_NOMEM, "no memory for a belief");
    }
    b->cov[0] = sd_all * sd_all;
    for (int d = 0; d < s->dims; d++) {
        const double sd = s->dim[d].unpredicted ? UNPREDICTED_SD : sd_value;
        for (int i = b->first[d]; i < b->first[d] + s->dim[d].n; i++)
            b->cov[(size_t)i * (size_t)b->p + (size_t)i] = sd * sd;
    }
    return ERR_OK;
}

void tune_belief_free(struct tune_belief *b)
{
    if (!b) return;
    free(b->mean);
    free(b->gain);
    free(b->cov);
    free(b);
}

/* The unknowns a configuration is the sum of. Returns their number. */
static int terms(const struct tune_belief *b, const int at[TUNE_DIMS], int term[TUNE_DIMS + 1])
{
    term[0] = 0;
    for (int d = 0; d < b->dims; d++) term[d + 1] = b->first[d] + at[d];
    return b->dims + 1;
}

void tune_belief_see(struct tune_belief *b, const int at[TUNE_DIMS], double y, double sd)
{
    int term[TUNE_DIMS + 1];
    const int n = terms(b, at, term);
    const size_t p = (size_t)b->p;
    double told = 0, spread = b->own2 + sd * sd;
    for (int i = 0; i < n; i++) told += b->mean[term[i]];
    for (size_t r = 0; r < p; r++) { /* gain = covariance with the sum of the terms */
        b->gain[r] = 0;
        for (int i = 0; i < n; i++) b->gain[r] += b->cov[r * p + (size_t)term[i]];
    }
    for (int i = 0; i < n; i++) spread += b->gain[term[i]];
    for (size_t r = 0; r < p; r++) {
        b->mean[r] += b->gain[r] / spread * (y - told);
        for (size_t c = 0; c < p; c++) b->cov[r * p + c] -= b->gain[r] * b->gain[c] / spread;
    }
}

void tune_belief_tell(const struct tune_belief *b, const int at[TUNE_DIMS], double *mean, double *sd)
{
    int term[TUNE_DIMS + 1];
    const int n = terms(b, at, term);
    const size_t p = (size_t)b->p;
    double m = 0, v = b->own2;
    for (int i = 0; i < n; i++) {
        m += b->mean[term[i]];
        for (int j = 0; j < n; j++) v += b->cov[(size_t)term[i] * p + (size_t)term[j]];
    }
    *mean = m;
    *sd = sqrt(fmax(v, 0));
}

double tune_promise(double mean, double sd, double best)
{
    if (!(sd > 0)) return fmax(mean - best, 0);
    const double z = (mean - best) / sd;
    const double density = exp(-0.5 * z * z) / sqrt(2 * M_PI), below = 0.5 * erfc(-z / sqrt(2));
    return sd * (z * below + density);
}
