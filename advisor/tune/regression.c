/* advisor/tune/regression.c - Bayesian linear regression over the values of the knobs, updated by one
 * observation at a time.
 *
 * y = a + sum over dimensions d of b[d][value of d] + e. All terms are normal with mean 0; e is peculiar to
 * one configuration and counts as observation noise. The posterior of a and b is a mean vector and a
 * covariance matrix; each observation is a rank-one update of both (the Kalman filter's update step). */
#include "advisor/tune/tune.h"

#include <math.h>
#include <stdlib.h>

struct tune_regression {
    int p, dims, first[TUNE_DIMS]; /* number of unknowns; index of each dimension's first one */
    double own2;
    double *mean, *cov, *gain; /* [p] [p][p] [p] */
};

static const double UNPREDICTED_SD = 1.5; /* ln units: within a factor of about four either way */

enum err_code tune_regression_open(struct tune_regression **out, const struct tune_space *s, double sd_all,
                                   double sd_value, double sd_own, struct err *why)
{
    struct tune_regression *b = calloc(1, sizeof *b);
    *out = b;
    if (!b) return err_set(why, ERR_NOMEM, "out of memory for the regression over values of config keys");
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
        tune_regression_free(b);
        *out = NULL;
        return err_set(why, ERR_NOMEM, "out of memory for the regression over values of config keys");
    }
    b->cov[0] = sd_all * sd_all;
    for (int d = 0; d < s->dims; d++) {
        const double sd = s->dim[d].unpredicted ? UNPREDICTED_SD : sd_value;
        for (int i = b->first[d]; i < b->first[d] + s->dim[d].n; i++)
            b->cov[(size_t)i * (size_t)b->p + (size_t)i] = sd * sd;
    }
    return ERR_OK;
}

void tune_regression_free(struct tune_regression *b)
{
    if (!b) return;
    free(b->mean);
    free(b->gain);
    free(b->cov);
    free(b);
}

/* Indices of the unknowns whose sum a configuration is. Returns their number. */
static int config_terms(const struct tune_regression *b, const int at[TUNE_DIMS], int term[TUNE_DIMS + 1])
{
    term[0] = 0;
    for (int d = 0; d < b->dims; d++) term[d + 1] = b->first[d] + at[d];
    return b->dims + 1;
}

void tune_regression_add(struct tune_regression *b, const int at[TUNE_DIMS], double y, double sd)
{
    int term[TUNE_DIMS + 1];
    const int n = config_terms(b, at, term);
    const size_t p = (size_t)b->p;
    double told = 0, spread = b->own2 + sd * sd;
    for (int i = 0; i < n; i++) told += b->mean[term[i]];
    for (size_t r = 0; r < p; r++) { /* gain = covariance of each unknown with the sum of the terms */
        b->gain[r] = 0;
        for (int i = 0; i < n; i++) b->gain[r] += b->cov[r * p + (size_t)term[i]];
    }
    for (int i = 0; i < n; i++) spread += b->gain[term[i]];
    for (size_t r = 0; r < p; r++) {
        b->mean[r] += b->gain[r] / spread * (y - told);
        for (size_t c = 0; c < p; c++) b->cov[r * p + c] -= b->gain[r] * b->gain[c] / spread;
    }
}

void tune_regression_estimate(const struct tune_regression *b, const int at[TUNE_DIMS], double *mean,
                              double *sd)
{
    int term[TUNE_DIMS + 1];
    const int n = config_terms(b, at, term);
    const size_t p = (size_t)b->p;
    double m = 0, v = b->own2;
    for (int i = 0; i < n; i++) {
        m += b->mean[term[i]];
        for (int j = 0; j < n; j++) v += b->cov[(size_t)term[i] * p + (size_t)term[j]];
    }
    *mean = m;
    *sd = sqrt(fmax(v, 0));
}

double expected_improvement(double mean, double sd, double best)
{
    if (!(sd > 0)) return fmax(mean - best, 0);
    const double z = (mean - best) / sd;
    const double density = exp(-0.5 * z * z) / sqrt(2 * M_PI), below = 0.5 * erfc(-z / sqrt(2));
    return sd * (z * below + density);
}
