/* advisor/stats/robust.c - estimates reported beside the verdict that assume less about the noise: ranks and
 * sign flips. If they disagree with the verdict, it depends on a few blocks. */
#include "advisor/stats/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

static bool any_nan(const double *x, int n)
{
    for (int i = 0; i < n; i++)
        if (isnan(x[i])) return true;
    return false;
}

uint64_t stats_random(uint64_t *state)
{
    return hash_mix(*state += HASH_STEP);
}

/* ---------------------------------------------------------------- ranks */

/* How many Walsh averages may be cut off at either end: the largest k with P(T <= k-1) <= tail, where T is
 * the signed-rank sum of n differences that are symmetric around 0. 0: none. */
static int signed_rank_cut(int n, double tail)
{
    enum { EXACT = 60, SUMS = EXACT * (EXACT + 1) / 2 + 1 };
    const int sums = n * (n + 1) / 2;
    if (n > EXACT) {
        const double sd = sqrt(n * (n + 1.0) * (2.0 * n + 1) / 24);
        return (int)floor(0.5 * sums + 0.5 + stats_normal_quantile(tail) * sd);
    }
    /* Probability of each rank sum, if every rank is included with probability one half. */
    double chance[SUMS] = { 1 };
    for (int rank = 1, most = 0; rank <= n; rank++) {
        most += rank;
        for (int s = most; s >= 0; s--) chance[s] = 0.5 * (chance[s] + (s >= rank ? chance[s - rank] : 0));
    }
    int k = 0;
    for (double below = chance[0]; below <= tail; below += chance[k]) k++;
    return k;
}

struct interval stats_hodges_lehmann(const double *x, int n, double confidence)
{
    struct interval out = { NAN, NAN, NAN };
    enum { MOST = 4096 }; /* eight million averages */
    if (n < 1 || n > MOST || any_nan(x, n) || !(confidence > 0 && confidence < 1)) return out;
    const int count = n * (n + 1) / 2;
    double *walsh = malloc((size_t)count * sizeof *walsh);
    if (!walsh) {
        memory_short_set();
        return out;
    }
    double *to = walsh;
    for (int i = 0; i < n; i++)
        for (int j = i; j < n; j++) *to++ = 0.5 * (x[i] + x[j]);
    stats_sort(walsh, count);
    out.estimate = stats_quantile_sorted(walsh, count, 0.5);
    const int cut = signed_rank_cut(n, 0.5 * (1 - confidence));
    if (cut > 0) {
        out.lower = walsh[cut - 1];
        out.upper = walsh[count - cut];
    }
    free(walsh);
    return out;
}

/* ---------------------------------------------------------------- sign flips */

enum { EXACT_SIGNS = 20, DRAWS = 9999 };

/* Writes all 2^n sums of x[0..n) with every combination of signs to out, ascending. Returns 2^n. */
static int signed_sums(const double *x, int n, double *out)
{
    out[0] = 0;
    int count = 1;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < count; j++) {
            out[count + j] = out[j] + x[i];
            out[j] -= x[i];
        }
        count *= 2;
    }
    stats_sort(out, count);
    return count;
}

/* Enumerates the sums of each half of the values and combines them: 2 x 1024 sums instead of a million. */
static double sign_flips_exact(const double *x, int n, double least)
{
    double left[1 << (EXACT_SIGNS / 2)], right[1 << (EXACT_SIGNS / 2)];
    const int half = n / 2, lefts = signed_sums(x, half, left),
              rights = signed_sums(x + half, n - half, right);
    int64_t beyond = 0;
    for (int i = 0, j = rights; i < lefts; i++) { /* the larger left[i], the more of right reach the sum */
        while (j > 0 && left[i] + right[j - 1] >= least) j--;
        beyond += rights - j;
    }
    return 2 * (double)beyond /
           ((double)lefts * rights); /* times two: flipping all signs gives a sum of the same size */
}

static double sign_flips_drawn(const double *x, int n, double least, uint64_t seed)
{
    int beyond = 0;
    for (int draw = 0; draw < DRAWS; draw++) {
        double sum = 0;
        uint64_t bits = 0;
        for (int i = 0; i < n; i++, bits >>= 1) {
            if (i % 64 == 0) bits = stats_random(&seed);
            sum += bits & 1 ? x[i] : -x[i];
        }
        beyond += fabs(sum) >= least;
    }
    return (beyond + 1.0) / (DRAWS + 1.0);
}

double stats_permutation_p(const double *x, int n, uint64_t seed)
{
    if (n < 1 || any_nan(x, n)) return NAN;
    double sum = 0, size = 0;
    for (int i = 0; i < n; i++) {
        sum += x[i];
        size += fabs(x[i]);
    }
    /* Adding the same values in another order changes the last digits, so allow for rounding. */
    const double least = fabs(sum) - 1e-12 * size;
    if (least <= 0) return 1;
    return n <= EXACT_SIGNS ? sign_flips_exact(x, n, least) : sign_flips_drawn(x, n, least, seed);
}
