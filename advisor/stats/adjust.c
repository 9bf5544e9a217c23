/* advisor/stats/adjust.c - less variance by covariate adjustment (control variates).
 *
 * Part of the difference between two arms in a block comes from other programs that ran more often beside one
 * of them. Where that was measured (c, a difference between the arms, too), its share is subtracted:
 * d - beta c.
 *
 * Theorem. Let the coin of block i be independent of everything before it, and beta_i a function of earlier
 * blocks only. Without a difference between the arms, exchanging them changes the sign of both d_i and c_i
 * and nothing else, hence the sign of d_i - beta_i c_i: given the past and its size, the sign is a fair coin.
 * All that stats_coin_evalue needs holds for the adjusted values, whatever beta_i is. (Control variates:
 * Lavenberg and Welch 1981; coefficients that depend on the past only: as in any martingale transform.)
 *
 * With a difference between the arms the mean stays right when c does not depend on the arm: choose a c that
 * the arms do not influence. */
#include "advisor/stats/stats.h"

#include <math.h>

enum { FEWEST = 8 };   /* blocks before a coefficient is used */
#define CONVINCING 2.5 /* |t| of a coefficient below which it is not used: noise would only be added */

/* Sums of a group of blocks, whose mean effect may differ from that of another group. */
struct group {
    int n;
    double d, c, cc, cd, dd;
};

static void group_add(struct group *g, double d, double c)
{
    if (isnan(d) || isnan(c)) return;
    g->n++;
    g->d += d;
    g->c += c;
    g->cc += c * c;
    g->cd += c * d;
    g->dd += d * d;
}

/* The slope of d over c within both groups by least squares; 0 when it is not convincing. */
static double groups_slope(const struct group *a, const struct group *b)
{
    double cc = 0, cd = 0, dd = 0;
    int n = 0, groups = 0;
    const struct group *const all[] = { a, b };
    for (int i = 0; i < 2; i++) {
        const struct group *g = all[i];
        if (g->n < 2) continue;
        cc += g->cc - g->c * g->c / g->n;
        cd += g->cd - g->c * g->d / g->n;
        dd += g->dd - g->d * g->d / g->n;
        n += g->n;
        groups++;
    }
    const int free = n - groups - 1;
    if (n < FEWEST || free < 1 || !(cc > 0)) return 0;
    const double beta = cd / cc, rest = dd - beta * cd;
    const double error = sqrt(fmax(rest, 0) / free / cc);
    return fabs(beta) > CONVINCING * error ? beta : 0;
}

void stats_adjust(const struct paired_series *x, const struct paired_series *control, double *out)
{
    struct group before = { 0 }, own = { 0 };
    for (int i = 0; control && i < control->n; i++) group_add(&before, control->d[i], control->c[i]);
    for (int i = 0; i < x->n; i++) {
        const double beta = groups_slope(&before, &own), c = x->c[i];
        out[i] = isnan(c) ? x->d[i] : x->d[i] - beta * c;
        group_add(&own, x->d[i], c);
    }
}
