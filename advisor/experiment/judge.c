/* advisor/experiment/judge.c - from block effects to verdicts (pure).
 *
 * Intervals and evidence are valid at all interim analyses together (stats/anytime.c), so the run is judged
 * after each block and stops when it is decided. Several challengers share an error probability of 5 %:
 * Holm's step-down sets the level of each interval. docs/ab.md explains verdicts to users, and
 * docs/statistics.md shows their error rates by simulation. */
#include "advisor/experiment/parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const VERDICTS[] = {
    [VERDICT_NONE] = "",
    [VERDICT_BETTER] = "better",
    [VERDICT_WORSE] = "worse",
    [VERDICT_EQUIVALENT] = "equivalent",
    [VERDICT_NEGLIGIBLE] = "negligible",
    [VERDICT_INCONCLUSIVE] = "inconclusive",
    [VERDICT_INVALID] = "invalid",
};

const char *verdict_name(enum verdict v)
{
    return (size_t)v < COUNT_OF(VERDICTS) ? VERDICTS[v] : "";
}

enum verdict verdict_parse(const char *name)
{
    for (size_t i = 1; name && i < COUNT_OF(VERDICTS); i++)
        if (!strcmp(name, VERDICTS[i])) return (enum verdict)i;
    return VERDICT_NONE;
}

enum { SENSIBLE_BLOCKS = 4096 }; /* no estimate of further blocks beyond this */

double judge_margin(const struct experiment_state *s)
{
    return s->spec.margin > 0 ? s->spec.margin : 0.01;
}

static int most_blocks(const struct experiment_state *s)
{
    return s->spec.max_blocks > 0 ? s->spec.max_blocks : 64;
}

const struct comparison *experiment_headline(const struct experiment_state *s)
{
    return s->confirming ? &s->confirmation : &s->comparison[MAX(s->headline, 1)];
}

static bool excludes_zero(struct interval i)
{
    return i.lower > 0 || i.upper < 0; /* false for NAN */
}

/* The smallest effect that n blocks find with 80 % power, for normal noise. */
static double smallest_effect(double sd, int n)
{
    return (stats_anytime_factor(n, 1, 0.05) + stats_normal_quantile(0.8)) * sd / sqrt(n);
}

void judge_control(struct experiment_state *s)
{
    const int n = s->control_blocks;
    s->control = stats_t_interval(s->control_d, n, 0.95);
    s->noise_floor = n < 2 ? NAN : 0.5 * (s->control.upper - s->control.lower);
    s->mde = smallest_effect(stats_sd(s->control_d, n), most_blocks(s));
    /* A bias far below the margin is tolerated: a metric almost without noise (memory) would otherwise fail
     * by a page, and one quiet experiment in fifty by chance. */
    s->control_failed = n >= control_wanted(s) && excludes_zero(s->control) &&
                        fabs(s->control.estimate) > 0.25 * judge_margin(s);
}

/* ---------------------------------------------------------------- numbers */

/* The number of blocks after which the interval has about this half width, for normal noise. */
static int blocks_for_half(double sd, double half, double alpha)
{
    if (!(half > 0)) return SENSIBLE_BLOCKS;
    int low = BLOCKS_FOR_A_CLAIM, high = SENSIBLE_BLOCKS; /* the width falls with n: bisection */
    while (low < high) {
        const int n = (low + high) / 2;
        if (stats_anytime_factor(n, 1, alpha) * sd / sqrt(n) <= half)
            high = n;
        else
            low = n + 1;
    }
    return low;
}

/* Estimate of further blocks until a claim becomes possible, if estimate and spread stay as they are: an
 * interval that excludes 0, or an interval of equivalence within the margin. */
static int blocks_until_claim(const struct comparison *c, double margin)
{
    const double sd = stats_sd(c->d, c->blocks), size = fabs(c->effect.estimate);
    if (isnan(sd)) return -1;
    int n = size > margin ? blocks_for_half(sd, size, c->alpha) : SENSIBLE_BLOCKS;
    if (size < margin) n = MIN(n, blocks_for_half(sd, margin - size, 2 * c->alpha));
    return MAX(1, n - c->blocks);
}

static void numbers_of(struct comparison *c, double alpha, double margin)
{
    int positive = 0, nonzero = 0;
    for (int i = 0; i < c->blocks; i++) {
        positive += c->d[i] > 0;
        nonzero += c->d[i] != 0;
    }
    c->alpha = alpha;
    c->effect = stats_anytime_interval(c->d, c->blocks, 1 - alpha);
    c->effect90 = stats_anytime_interval(c->d, c->blocks, 1 - 2 * alpha);
    c->e = stats_coin_evalue(c->d, c->blocks);
    c->e_sign = stats_sign_evalue(positive, nonzero);
    c->p = stats_anytime_p(c->d, c->blocks);
    c->blocks_needed = blocks_until_claim(c, margin);
}

/* Holm's step-down as levels of intervals: the strongest evidence must pass alpha / m, the next alpha / (m -
 * 1) and so on. The first that does not pass ends the steps; the weaker ones get its level, at which they do
 * not pass either. An arm that failed still counts as a member of the family. */
static void holm_levels(const struct experiment_state *s, double level[EXPERIMENT_ARMS])
{
    const int m = s->spec.arms - 1;
    int order[EXPERIMENT_ARMS];
    double e[EXPERIMENT_ARMS];
    for (int k = 1; k <= m; k++) {
        const double v = stats_coin_evalue(s->comparison[k].d, s->comparison[k].blocks);
        int at = k - 1;
        for (; at > 0 && e[order[at - 1]] < v; at--) order[at] = order[at - 1];
        e[k] = isnan(v) ? 0 : v;
        order[at] = k;
    }
    bool passing = true;
    double alpha = 0.05 / m;
    for (int i = 0; i < m; i++) {
        if (passing) alpha = 0.05 / (m - i);
        level[order[i]] = alpha;
        passing = passing && e[order[i]] >= 1 / alpha;
    }
}

void judge_numbers(struct experiment_state *s)
{
    double level[EXPERIMENT_ARMS];
    holm_levels(s, level);
    for (int k = 1; k < s->spec.arms; k++) numbers_of(&s->comparison[k], level[k], judge_margin(s));
    /* The winner was chosen on other blocks: this is a single claim, without a family. */
    if (s->confirming) numbers_of(&s->confirmation, 0.05, judge_margin(s));
    const struct comparison *c = experiment_headline(s);
    if (isnan(s->mde)) s->mde = smallest_effect(stats_sd(c->d, c->blocks), most_blocks(s));
    s->blocks_needed = c->blocks_needed;
}

static void companions_of(struct comparison *c, uint64_t seed)
{
    c->fixed = stats_t_interval(c->d, c->blocks, 0.95);
    c->hodges_lehmann = stats_hodges_lehmann(c->d, c->blocks, 0.95);
    c->permutation_p = stats_permutation_p(c->d, c->blocks, seed);
    c->lag1 = stats_lag1(c->d, c->blocks);
}

void judge_companions(struct experiment_state *s)
{
    for (int k = 1; k < s->spec.arms; k++) companions_of(&s->comparison[k], s->spec.seed);
    if (s->confirming) companions_of(&s->confirmation, s->spec.seed);
}

/* ---------------------------------------------------------------- verdicts */

/* Writes the first reason why the whole run is invalid. False when there is none. */
static bool invalid_reason(const struct experiment_state *s, char *buf, size_t size)
{
    if (s->arm[0].failed) {
        snprintf(buf, size, "arm A failed: %.200s", s->arm[0].error);
        return true;
    }
    if (s->control_failed) {
        snprintf(
            buf, size,
            "the control failed: A against itself differs by %+.2f %% (95 %% interval %+.2f to %+.2f %%)",
            100 * expm1(s->control.estimate), 100 * expm1(s->control.lower), 100 * expm1(s->control.upper));
        return true;
    }
    const int all = s->blocks + s->discarded;
    if (5 * s->discarded > all) { /* more than 20 % */
        snprintf(buf, size, "%d of %d blocks were disturbed and discarded (at most 1 in 5 may be)",
                 s->discarded, all);
        return true;
    }
    return false;
}

static enum verdict claim(const struct comparison *c, double m)
{
    if (excludes_zero(c->effect) && fabs(c->effect.estimate) > m)
        return c->effect.estimate > 0 ? VERDICT_BETTER : VERDICT_WORSE;
    if (c->effect90.lower >= -m && c->effect90.upper <= m) return VERDICT_EQUIVALENT;
    if (excludes_zero(c->effect)) return VERDICT_NEGLIGIBLE;
    return VERDICT_INCONCLUSIVE;
}

/* Sets verdict, reason and blocks_needed of one comparison from its intervals. */
static void judge_one(struct comparison *c, double margin)
{
    c->reason[0] = 0;
    c->verdict = c->blocks < BLOCKS_FOR_A_CLAIM ? VERDICT_INCONCLUSIVE : claim(c, margin);
    if (c->verdict != VERDICT_INCONCLUSIVE) {
        c->blocks_needed = 0;
    } else if (c->blocks < BLOCKS_FOR_A_CLAIM) {
        snprintf(c->reason, sizeof(c->reason), "only %d blocks; a claim needs at least %d", c->blocks,
                 BLOCKS_FOR_A_CLAIM);
    } else {
        snprintf(
            c->reason, sizeof(c->reason),
            "the interval neither excludes 0 nor lies within the margin; about %d more blocks would decide",
            c->blocks_needed);
    }
}

static void judge_invalid(struct comparison *c, const char *reason)
{
    c->verdict = VERDICT_INVALID;
    c->blocks_needed = -1;
    snprintf(c->reason, sizeof(c->reason), "%s", reason);
}

static void judge_arm(struct experiment_state *s, int k)
{
    struct comparison *c = &s->comparison[k];
    char reason[sizeof(c->reason)];
    if (!s->arm[k].failed) {
        judge_one(c, judge_margin(s));
        return;
    }
    snprintf(reason, sizeof(reason), "arm %c failed: %.200s", 'A' + k, s->arm[k].error);
    judge_invalid(c, reason);
}

/* With several challengers the run's verdict is about the best: "is anything better than A?" */
static int best_arm(const struct experiment_state *s)
{
    int best = 1;
    double most = -INFINITY;
    for (int k = 1; k < s->spec.arms; k++) {
        const double v = s->comparison[k].blocks && !s->arm[k].failed ? s->comparison[k].effect.estimate
                                                                      : -INFINITY;
        if (v > most) {
            most = v;
            best = k;
        }
    }
    return best;
}

void experiment_judge(struct experiment_state *s)
{
    char reason[sizeof(s->reason)];
    judge_numbers(s);
    if (!s->confirming) s->headline = best_arm(s);
    const bool invalid = invalid_reason(s, reason, sizeof(reason));
    for (int k = 1; k < s->spec.arms; k++) {
        judge_arm(s, k);
        if (invalid && !s->arm[k].failed) judge_invalid(&s->comparison[k], reason);
    }
    if (s->confirming) judge_one(&s->confirmation, judge_margin(s));
    if (s->confirming && invalid) judge_invalid(&s->confirmation, reason);
    const struct comparison *c = experiment_headline(s);
    s->verdict = c->verdict;
    s->blocks_needed = c->blocks_needed;
    if (c->verdict != VERDICT_INVALID || !*s->reason) snprintf(s->reason, sizeof(s->reason), "%s", c->reason);
}

/* ---------------------------------------------------------------- when to stop */

static bool is_settled(const struct experiment_state *s, const struct comparison *c)
{
    if (c->blocks < MAX(s->spec.min_blocks, BLOCKS_FOR_A_CLAIM)) return false;
    const enum verdict v = claim(
        c, judge_margin(s)); /* "negligible" may still become "better" or "equivalent" */
    return v == VERDICT_BETTER || v == VERDICT_WORSE || v == VERDICT_EQUIVALENT;
}

bool judge_is_decided(const struct experiment_state *s)
{
    if (s->confirming) return is_settled(s, &s->confirmation);
    for (int k = 1; k < s->spec.arms; k++)
        if (!s->arm[k].failed && !is_settled(s, &s->comparison[k])) return false;
    return true;
}

/* ---------------------------------------------------------------- racing */

/* Differences between the effects of two arms, block by block; both are relative to the same A. Arm 0 is A.
 */
static struct interval between(const struct experiment_state *s, int k, int leader, double confidence)
{
    double d[EXPERIMENT_BLOCKS];
    const struct comparison *a = &s->comparison[k], *b = &s->comparison[leader];
    const int n = leader ? MIN(a->blocks, b->blocks) : a->blocks;
    for (int i = 0; i < n; i++) d[i] = a->d[i] - (leader ? b->d[i] : 0);
    return stats_anytime_interval(d, n, confidence);
}

bool judge_race(struct experiment_state *s)
{
    const int family = s->spec.arms - 1;
    const double m = judge_margin(s);
    int leader = 0, running = 0;
    double most = 0; /* the effect of A relative to itself */
    for (int k = 1; k <= family; k++) {
        const struct comparison *c = &s->comparison[k];
        if (c->dropped || s->arm[k].failed || !(c->effect.estimate > most)) continue;
        most = c->effect.estimate;
        leader = k;
    }
    bool alike =
        true; /* all remaining arms are equivalent to the leader: more blocks would not change the choice */
    for (int k = 1; k <= family; k++) {
        struct comparison *c = &s->comparison[k];
        if (c->dropped || s->arm[k].failed) continue;
        running++;
        if (k == leader || c->blocks < BLOCKS_FOR_A_CLAIM) continue;
        const struct interval gap = between(s, k, leader, 1 - 0.05 / family);
        if (gap.upper < 0) {
            c->dropped = true;
            c->dropped_at = c->blocks;
            running--;
        } else if (!(gap.lower >= -m && gap.upper <= m)) {
            alike = false;
        }
    }
    if (leader) s->headline = leader;
    const bool enough = s->blocks >= MAX(s->spec.min_blocks, BLOCKS_FOR_A_CLAIM);
    return running == 0 || (enough && running == 1) || (enough && alike);
}
