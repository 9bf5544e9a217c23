/* advisor/stats/anytime.c - evidence that may be computed after every block, and families of claims.
 *
 * A run is analysed after every block and ends when its result is clear. An ordinary t interval does not
 * allow that: computed forty times, it excludes 0 by chance far more often than once in twenty. */
#include "advisor/stats/stats.h"

#include <math.h>

enum { BEYOND_REASON = 1000000 };

/* ---------------------------------------------------------------- e-values by formula */

double stats_sign_evalue(int positive, int n)
{
    if (positive < 0 || positive > n) return NAN;
    int sign; /* lgamma_r, because lgamma writes a global */
    return exp(n * M_LN2 + lgamma_r(positive + 1.0, &sign) + lgamma_r(n - positive + 1.0, &sign) -
               lgamma_r(n + 2.0, &sign));
}

double stats_t_evalue(const double *x, int n, double g)
{
    if (!(g > 0)) return NAN;
    if (n < 2) return n == 1 && isnan(x[0]) ? NAN : 1;
    /* With t = sqrt(n) mean / sd: 1 + t^2/(n-1) = total/within, and 1 + t^2/((n-1)(1+ng)) = shrunk/within.
     * The formula needs only the ratio total/shrunk, so it also works when all values are equal (within = 0).
     */
    const double mean = stats_mean(x, n), sd = stats_sd(x, n);
    const double within = sd * sd * (n - 1), between = n * mean * mean;
    const double total = within + between, shrunk = within + between / (1 + n * g);
    if (total == 0) return 1 / sqrt(1 + n * g); /* t = 0 */
    return exp(0.5 * n * log(total / shrunk) - 0.5 * log1p(n * g));
}

double stats_anytime_factor(int n, double g, double alpha)
{
    if (!(g > 0) || !(alpha > 0 && alpha < 1)) return NAN;
    if (n < 2) return INFINITY;
    /* The inequality e < 1/alpha, solved for r = t^2/(n-1): (1 + r) < k (1 + r/(1+ng)). */
    const double k = exp((log1p(n * g) - 2 * log(alpha)) / n), room = 1 - k / (1 + n * g);
    return room > 0 ? sqrt((n - 1) * (k - 1) / room) : INFINITY;
}

/* ---------------------------------------------------------------- evidence from the random order */

/* The "coin" in the names of this evidence (stats_coin_evalue) is the random bit that decides the order of
 * the cells in each block, ABBA or BAAB. Without a difference between the arms, the other order would have
 * given the same block effect with the opposite sign, so both signs are equally likely. */

/* The likelihood of n values with this sum and sum of squares under Student's t model (g = 1) is q^(-n/2), up
 * to a factor that does not depend on them. Source: docs/statistics.md, "Evidence". */
static double model_q(double squares, double sum, int n)
{
    return (1 + n) * squares - sum * sum;
}

/* r^(k/2) for r >= 0 by repeated squaring. With pow(), most of the time of an interval would be spent here.
 */
static double half_power(double r, int k)
{
    double power = k & 1 ? sqrt(r) : 1;
    for (int left = k / 2; left; left /= 2, r *= r)
        if (left & 1) power *= r;
    return power;
}

/* The state of a bet on the signs of block effects, after n of them. Half of the stake uses the sizes of the
 * effects to choose its odds, the other half uses their signs alone (stats.h). */
struct bet {
    double sizes, signs; /* the factor by which each half of the stake has grown */
    double sum, squares;
    int n, plus, minus;
};

static const struct bet BET_START = { .sizes = 1, .signs = 1 };

static void bet_on_block(struct bet *b, double d)
{
    b->n++;
    b->squares += d * d;
    const double q = model_q(b->squares, b->sum + d, b->n), mirrored = model_q(b->squares, b->sum - d, b->n);
    b->sum += d;
    if (mirrored > 0)
        b->sizes *= 2 /
                    (1 + half_power(q / mirrored, b->n)); /* otherwise all values are 0 and nothing is bet */
    b->plus += d > 0;
    b->minus += d < 0;
    /* stats_sign_evalue with this block divided by that without it */
    if (d != 0) b->signs *= 2.0 * (d > 0 ? b->plus : b->minus) / (b->plus + b->minus + 1);
}

static double bet_evidence(const struct bet *b)
{
    return 0.5 * (b->sizes + b->signs) +
           0 * b->sum; /* adding 0 * sum makes the result NAN if a value is NAN */
}

static struct bet bet_on_series(const double *x, int n, double null)
{
    struct bet b = BET_START;
    for (int i = 0; i < n; i++) bet_on_block(&b, x[i] - null);
    return b;
}

/* A stake that is divided between series (stats.h). */
struct stakes {
    const struct stats_stake *part;
    int parts;
};

/* The evidence of the values minus `null`, the effect that is tested. *signs: that of their signs alone. */
static double stakes_bet(const struct stakes *s, double null, double *signs)
{
    double all = 0;
    *signs = 0;
    for (int k = 0; k < s->parts; k++) {
        const struct bet b = bet_on_series(s->part[k].x, s->part[k].n, null);
        all += s->part[k].share * bet_evidence(&b);
        *signs += s->part[k].share * 0.5 * b.signs;
    }
    return all;
}

static double stakes_evalue(const struct stakes *s, double null)
{
    double signs;
    return stakes_bet(s, null, &signs);
}

double stats_mixed_evalue(const struct stats_stake *part, int parts)
{
    return stakes_evalue(&(struct stakes){ part, parts }, 0);
}

double stats_coin_evalue(const double *x, int n)
{
    return stats_mixed_evalue(&(struct stats_stake){ x, n, 1 }, 1);
}

double stats_anytime_p(const double *x, int n)
{
    struct bet b = BET_START;
    double most = 1;
    for (int i = 0; i < n; i++) {
        bet_on_block(&b, x[i]);
        most = fmax(most, bet_evidence(&b));
    }
    return isnan(b.sum) ? NAN : 1 / most;
}

/* The largest evidence that n blocks can give. Equal block effects of any size other than 0 give it. */
static double largest_evidence(int n)
{
    struct bet b = BET_START;
    for (int i = 0; i < n; i++) bet_on_block(&b, 1);
    return bet_evidence(&b);
}

int stats_anytime_fewest(double alpha)
{
    if (!(alpha > 0 && alpha < 1)) return BEYOND_REASON;
    int n = 1;
    while (n < 1000 && largest_evidence(n) < 1 / alpha) n++;
    return n;
}

/* Finds the effect at which the evidence reaches `level`, between an effect that is not refuted (`inside`)
 * and one that is (`outside`), to a millionth of the distance from `origin`. The search takes secant steps on
 * the logarithm of the evidence. After a step that narrowed the range by less than half it bisects, because
 * the evidence jumps where the effect passes one of the values. */
static double stakes_crossing(const struct stakes *s, double inside, double outside, double origin,
                              double level)
{
    double low = log(stakes_evalue(s, inside) / level), high = log(stakes_evalue(s, outside) / level);
    bool halve = false;
    for (int i = 0; i < 60 && fabs(outside - inside) > 1e-6 * fabs(outside - origin); i++) {
        const double width = fabs(outside - inside);
        double share = halve || isinf(low) || isinf(high) ? 0.5 : low / (low - high);
        share = fmin(fmax(share, 0.02), 0.98); /* at least 2 % from each end, so that both ends move */
        const double at = inside + share * (outside - inside), v = log(stakes_evalue(s, at) / level);
        if (v < 0) {
            inside = at;
            low = v;
        } else {
            outside = at;
            high = v;
        }
        halve = fabs(outside - inside) > 0.5 * width;
    }
    return outside;
}

/* Finds the effect farthest from `within` on one side that is not refuted. The evidence mostly rises with the
 * distance, but it may fall again where the difference from an outlier changes its sign. So the search goes
 * on after the first refuted effect. It ends when the signs alone refute the effect, because farther away
 * even more signs agree, or when it has passed all values. */
static double stakes_bound(const struct stakes *s, double within, double step, double level)
{
    enum { STEPS = 400 };
    double farthest = within, inside = within, outside = within, signs;
    for (int k = 0; k < s->parts; k++)
        for (int i = 0; i < s->part[k].n; i++)
            if ((s->part[k].x[i] - farthest) * step > 0) farthest = s->part[k].x[i];
    bool refuted = false;
    for (int i = 0; i < STEPS; i++, step *= 1.2) {
        const double at = within + step;
        if (stakes_bet(s, at, &signs) < level) {
            inside = at;
            refuted = false;
            continue;
        }
        if (!refuted) outside = at;
        refuted = true;
        if (signs >= level || (at - farthest) * step > 0) break;
    }
    return refuted ? stakes_crossing(s, inside, outside, within, level) : NAN;
}

/* Finds an effect with as little evidence against it as possible, from which the bounds are searched.
 * *within: the effect. Returns the evidence against it. This is mostly `start`, the mean. In rare cases an
 * outlier moves the mean so far from all other values that the mean itself is refuted (evidence >= level);
 * then the values are tried one after the other. */
static double stakes_least(const struct stakes *s, double start, double level, double *within)
{
    double least = stakes_evalue(s, start);
    *within = start;
    for (int k = 0; k < s->parts; k++)
        for (int i = 0; i < s->part[k].n && least >= level; i++) {
            const double e = stakes_evalue(s, s->part[k].x[i]);
            if (e < least) *within = s->part[k].x[i];
            least = fmin(least, e);
        }
    return least;
}

struct interval stats_mixed_interval(const struct stats_stake *part, int parts, double confidence)
{
    const struct stakes s = { part, parts };
    const struct stats_stake *most = part; /* the series with the most blocks: mean and steps are its */
    double reachable = 0, within;
    for (int k = 0; k < parts; k++) {
        if (part[k].n > most->n) most = &part[k];
        reachable += part[k].share * largest_evidence(part[k].n);
    }
    struct interval out = { stats_mean(most->x, most->n), NAN, NAN };
    const double level = 1 / (1 - confidence), sd = stats_sd(most->x, most->n);
    if (isnan(sd) || !(confidence > 0 && confidence < 1) || reachable < level) return out;
    /* All blocks have the same effect. Any other effect would leave equal differences, whose evidence is the
     * largest possible one (`reachable`), so it is refuted: the interval is a single number. */
    if (sd == 0 && parts == 1) return (struct interval){ out.estimate, out.estimate, out.estimate };
    if (!(stakes_least(&s, out.estimate, level, &within) < level)) return out;
    /* The first step is a quarter of the expected width of the interval, so it is nearly always inside it.
     * stakes_bound then takes larger steps until effects are refuted. If the first step is already refuted,
     * the bound lies between `within` and that step. */
    const double factor = stats_anytime_factor(most->n, 1, 1 - confidence);
    const double step = 0.5 * (isfinite(factor) ? factor : sqrt(most->n)) * sd / sqrt(most->n);
    if (!(step > 0)) return out;
    const double below = stakes_bound(&s, within, -step, level),
                 above = stakes_bound(&s, within, step, level);
    out.lower = isnan(below) ? NAN : fmin(below, out.estimate);
    out.upper = isnan(above) ? NAN : fmax(above, out.estimate);
    return out;
}

struct interval stats_anytime_interval(const double *x, int n, double confidence)
{
    return stats_mixed_interval(&(struct stats_stake){ x, n, 1 }, 1, confidence);
}

/* ---------------------------------------------------------------- planning */

/* Whether n blocks find an effect of this size with that power. stats_anytime_factor agrees with the width of
 * stats_anytime_interval within 2 %, except at the smallest possible number of blocks, where the interval
 * is 1.3 times as wide (both simulated with normal noise). */
static bool effect_shows(double sd, double effect, int n, double alpha, double power)
{
    const double factor = stats_anytime_factor(n, 1, alpha) * (n == stats_anytime_fewest(alpha) ? 1.3 : 1);
    return (factor + stats_normal_quantile(power)) * sd / sqrt(n) <= effect;
}

int stats_anytime_blocks_for(double sd, double effect, double confidence, double power)
{
    if (!(sd >= 0) || !(effect > 0) || !(confidence > 0 && confidence < 1) || !(power > 0 && power < 1))
        return BEYOND_REASON;
    const double alpha = 1 - confidence;
    int low = stats_anytime_fewest(alpha), high = low;
    while (
        !effect_shows(sd, effect, high, alpha, power)) { /* terminates, because the half width falls with n */
        if (high >= BEYOND_REASON) return BEYOND_REASON;
        low = high;
        high *= 2;
    }
    while (high - low > 1) {
        const int n = low + (high - low) / 2;
        if (effect_shows(sd, effect, n, alpha, power))
            high = n;
        else
            low = n;
    }
    return high;
}

/* ---------------------------------------------------------------- families of claims */

void stats_holm(const double *p, int k, double *adjusted)
{
    enum { MEMBERS = 64 };
    double own[MEMBERS]; /* adjusted may be p */
    if (k > MEMBERS) k = MEMBERS;
    for (int i = 0; i < k; i++) own[i] = p[i];
    for (int i = 0; i < k; i++) {
        adjusted[i] = own[i]; /* NAN stays NAN */
        /* Holm: the largest of (k - rank) p over all members whose p is at most this one. */
        for (int j = 0; j < k; j++) {
            if (!(own[j] <= own[i])) continue;
            int before = 0;
            for (int m = 0; m < k; m++) before += own[m] < own[j];
            adjusted[i] = fmax(adjusted[i], (k - before) * own[j]);
        }
        adjusted[i] = isnan(own[i]) ? NAN : fmin(adjusted[i], 1);
    }
}
