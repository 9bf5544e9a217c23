/* advisor/history/series_changes.c - change points of a series: E-divisive (Matteson and James 2014), with
 * the t test that Hunter (Fleming et al. 2023) uses in place of permutations, because it is deterministic and
 * precise enough for a level.
 *
 * The sums of |x_i - x_j| over all pairs inside [a, b) are tabulated for every a and b, so that the
 * divergence of any split takes three look-ups. */
#include "advisor/history/history.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 2048 };

struct change_rule change_rule_default(double min_effect)
{
    return (struct change_rule){ .min_segment = CHANGE_SEGMENT_DEFAULT,
                                 .alpha = CHANGE_ALPHA_DEFAULT,
                                 .min_effect = min_effect };
}

struct distances {
    int n;
    double *within; /* [n][n+1]: sum over pairs i < j of [a, b) at a * (n+1) + b */
};

static double pair_mean(const struct distances *d, int a, int b)
{
    return d->within[(size_t)a * ((size_t)d->n + 1) + (size_t)b];
}

static enum err_code distances_open(struct distances *d, const double *x, int n, struct err *why)
{
    const size_t row = (size_t)n + 1;
    d->n = n;
    d->within = calloc((size_t)n * row, sizeof *d->within);
    if (!d->within)
        return err_set(why, ERR_NOMEM,
                       "out of memory for finding change points in a series of %d values, which needs %zu "
                       "bytes: select fewer runs",
                       n, (size_t)n * row * sizeof *d->within);
    for (int b = 0; b < n; b++) {
        double to_b = 0; /* sum of |x_i - x_b| over i in [a, b) */
        for (int a = b; a >= 0; a--) {
            to_b += fabs(x[a] - x[b]);
            d->within[(size_t)a * row + (size_t)b + 1] = (a < b ? pair_mean(d, a, b) : 0) + to_b;
        }
    }
    return ERR_OK;
}

/* Divergence of the split of [from, to) at tau. */
static double split_divergence(const struct distances *d, int from, int tau, int to)
{
    const double n = tau - from, m = to - tau;
    if (n < 2 || m < 2) return NAN;
    const double left = pair_mean(d, from, tau), right = pair_mean(d, tau, to);
    const double cross = pair_mean(d, from, to) - left - right;
    return n * m / (n + m) * (2 * cross / (n * m) - 2 * left / (n * (n - 1)) - 2 * right / (m * (m - 1)));
}

double series_divergence(const double *x, int tau, int kappa)
{
    struct distances d;
    if (tau < 2 || kappa - tau < 2 || distances_open(&d, x, kappa, NULL)) return NAN;
    const double q = split_divergence(&d, 0, tau, kappa);
    free(d.within);
    return q;
}

struct search {
    const double *x;
    const struct change_rule *rule;
    struct distances d;
    int *cut; /* [n], not in order */
    int cuts;
};

static bool is_change(const struct search *s, int from, int tau, int to, struct change *out)
{
    const struct two_samples t = series_test(s->x + from, tau - from, s->x + tau, to - tau, SPREAD_POOLED);
    *out = (struct change){ tau, t.difference, t.p };
    return t.p < s->rule->alpha && fabs(t.difference) >= s->rule->min_effect;
}

/* The best split of [from, to). The right part may end before `to`, otherwise a level that came and went
 * would be averaged with what followed. */
static bool split_best(const struct search *s, int from, int to, int *tau, int *kappa)
{
    const int least = s->rule->min_segment;
    double best = 0;
    *tau = -1;
    for (int t = from + least; t + least <= to; t++)
        for (int k = t + least; k <= to; k++) {
            const double q = split_divergence(&s->d, from, t, k);
            if (!(q > best)) continue;
            best = q;
            *tau = t;
            *kappa = k;
        }
    return *tau >= 0;
}

static void changes_search(struct search *s, int from, int to)
{
    int tau, kappa;
    struct change c;
    if (!split_best(s, from, to, &tau, &kappa) || !is_change(s, from, tau, kappa, &c)) return;
    s->cut[s->cuts++] = tau;
    changes_search(s, from, tau);
    changes_search(s, tau, to);
}

static int change_compare(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Between its neighbours a point may be less significant than in the range that was searched. Remove the
 * weakest one until all remaining points are significant. */
static int changes_prune(struct search *s, int n, struct change *out)
{
    qsort(s->cut, (size_t)s->cuts, sizeof *s->cut, change_compare);
    for (;;) {
        int weakest = -1;
        for (int i = 0; i < s->cuts; i++) {
            const int from = i ? s->cut[i - 1] : 0, to = i + 1 < s->cuts ? s->cut[i + 1] : n;
            if (is_change(s, from, s->cut[i], to, &out[i])) continue;
            if (weakest < 0 || !(out[i].p <= out[weakest].p)) weakest = i;
        }
        if (weakest < 0) return s->cuts;
        memmove(s->cut + weakest, s->cut + weakest + 1, (size_t)(s->cuts - weakest - 1) * sizeof *s->cut);
        s->cuts--;
    }
}

enum err_code series_changes(struct change **out, int *count, const double *x, int n,
                             const struct change_rule *rule, struct err *why)
{
    *out = NULL;
    *count = 0;
    if (n > LONGEST)
        return err_set(why, ERR_USAGE, "a series of %d values: at most %d can be searched for changes", n,
                       LONGEST);
    if (rule->min_segment < 2)
        return err_set(why, ERR_USAGE, "a segment of %d values: expected at least 2", rule->min_segment);
    if (n < 2 * rule->min_segment) return ERR_OK;
    struct search s = { .x = x, .rule = rule };
    enum err_code rc = distances_open(&s.d, x, n, why);
    if (rc) return rc;
    s.cut = malloc((size_t)n * sizeof *s.cut);
    struct change *changes = malloc((size_t)n * sizeof *changes);
    if (s.cut && changes) {
        changes_search(&s, 0, n);
        *count = changes_prune(&s, n, changes);
    } else {
        rc = err_set(why, ERR_NOMEM,
                     "out of memory for finding change points in a series of %d values: select fewer runs",
                     n);
    }
    free(s.cut);
    free(s.d.within);
    if (*count) {
        *out = changes;
        return ERR_OK;
    }
    free(changes);
    return rc;
}
