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

static bool excludes_zero(struct interval i)
{
    return i.lower > 0 || i.upper < 0; /* false for NAN */
}

void judge_control(struct experiment_state *s)
{
    const int n = s->control_blocks;
    s->control = stats_t_interval(s->control_d, n, 0.95);
    s->noise_floor = n < 2 ? NAN : 0.5 * (s->control.upper - s->control.lower);
    /* A bias far below the margin cannot turn a verdict: a metric almost without noise (memory) would
     * otherwise fail by a page. */
    const double tolerated = 0.25 * experiment_margin(&s->spec);
    s->control_failed = n >= control_wanted(s) &&
                        (s->control.lower > tolerated || s->control.upper < -tolerated);
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

/* Its own maximum limits the blocks that count, the room limits all. */
int experiment_blocks_possible(const struct experiment_state *s, const struct comparison *c)
{
    const int most = s->spec.max_blocks > 0 ? s->spec.max_blocks : EXPERIMENT_BLOCKS;
    return MAX(MIN(most - c->blocks, EXPERIMENT_BLOCKS - s->complete), 0);
}

static char *needed_text(char buf[BLOCKS_NEEDED_TEXT], int needed, int possible, int measured)
{
    buf[0] = '\0';
    if (needed > possible && possible)
        snprintf(buf, BLOCKS_NEEDED_TEXT, "more blocks than the %d that are left", possible);
    else if (needed > possible)
        snprintf(buf, BLOCKS_NEEDED_TEXT, "more blocks than a run may have (%d)", measured);
    else if (needed > 0)
        snprintf(buf, BLOCKS_NEEDED_TEXT, "about %d more block%s", needed, str_plural(needed));
    return buf;
}

int experiment_blocks_needed(const struct experiment_state *s, const struct comparison *c)
{
    return c == experiment_headline(s) ? s->blocks_needed : c->blocks_needed;
}

char *experiment_blocks_needed_text(char buf[BLOCKS_NEEDED_TEXT], const struct experiment_state *s,
                                    const struct comparison *c)
{
    return needed_text(buf, experiment_blocks_needed(s, c), experiment_blocks_possible(s, c), c->blocks);
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
    c->effect = evidence_interval(c, c->blocks, 1 - alpha);
    c->effect90 = evidence_interval(c, c->blocks, 1 - 2 * alpha);
    c->e = evidence_evalue(c, c->blocks);
    c->e_sign = stats_sign_evalue(positive, nonzero);
    c->p = evidence_p(c);
    c->blocks_needed = blocks_until_claim(c, margin);
}

/* What each estimand says: one of the two is the one in use. */
static void estimates_of(struct comparison *c, const struct block_series *control)
{
    struct comparison as = *c;
    for (int e = ESTIMAND_QUIET; e <= ESTIMAND_LOADED; e++) {
        as.use = (enum estimand)e;
        as.blocks = series_select(&c->all, control, as.use, as.d);
        c->by_estimand[e] = (struct estimand_result){ .blocks = as.blocks,
                                                      .effect = evidence_interval(&as, as.blocks,
                                                                                  1 - c->alpha),
                                                      .e = evidence_evalue(&as, as.blocks),
                                                      .p = evidence_p(&as) };
    }
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
        const double v = evidence_evalue(&s->comparison[k], s->comparison[k].blocks);
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

static enum verdict verdict_of_margin(const struct comparison *c, double m)
{
    if (excludes_zero(c->effect) && fabs(c->effect.estimate) > m)
        return c->effect.estimate > 0 ? VERDICT_BETTER : VERDICT_WORSE;
    if (c->effect90.lower >= -m && c->effect90.upper <= m) return VERDICT_EQUIVALENT;
    if (excludes_zero(c->effect)) return VERDICT_NEGLIGIBLE;
    return VERDICT_INCONCLUSIVE;
}

/* ---------------------------------------------------------------- figures without noise */

bool experiment_is_exact(const struct experiment_spec *s)
{
    return *s->workload.eval_file && s->metric == &METRICS[METRIC_PERPLEXITY];
}

/* Perplexity is the same every time: the effect comes from one evaluation of each arm, paired by token, and
 * its interval says that the text is a sample, whose independent units are windows. */
static void exact_numbers(struct comparison *c)
{
    static const struct interval UNKNOWN = { NAN, NAN, NAN };
    const struct interval ratio = c->quality.ppl_ratio; /* to A, less is better */
    c->effect = c->effect90 = UNKNOWN;
    c->blocks_needed = 0;
    if (!c->quality.known) return;
    c->effect = (struct interval){ -log(ratio.estimate), -log(ratio.upper), -log(ratio.lower) };
    if (ratio.estimate == 1 && c->quality.figures.kld_max == 0) c->effect.lower = c->effect.upper = 0;
    const double narrower = stats_normal_quantile(0.95) / stats_normal_quantile(0.975);
    c->effect90.estimate = c->effect.estimate;
    c->effect90.lower = c->effect.estimate - narrower * (c->effect.estimate - c->effect.lower);
    c->effect90.upper = c->effect.estimate + narrower * (c->effect.upper - c->effect.estimate);
    c->by_metric[METRIC_PERPLEXITY - METRIC_SENSOR_COUNT] = c->effect;
}

static void exact_judge(struct comparison *c, double margin)
{
    c->verdict = verdict_of_margin(c, margin);
    if (c->verdict != VERDICT_INCONCLUSIVE) return;
    if (!c->quality.known)
        snprintf(c->reason, sizeof(c->reason), "the texts could not be compared: %s", c->quality.missing);
    else if (isnan(c->effect.lower))
        snprintf(c->reason, sizeof(c->reason), "the text is a single window: there is no interval");
    else
        snprintf(c->reason, sizeof(c->reason),
                 "the interval contains 0 and reaches beyond the margin: a longer text may give a verdict");
}

/* Whether other programs ran more beside one of the arms: the order of a block is a coin that they do not
 * know, so unless they react to the arm, every sign of the difference is as likely as its opposite. */
static void load_judge(struct experiment_state *s, const struct block_series *all)
{
    double known[EXPERIMENT_BLOCKS];
    int n = 0;
    for (int i = 0; i < all->blocks; i++)
        if (!isnan(all->load[i])) known[n++] = all->load[i];
    s->load_reacts = n ? stats_mean(known, n) : NAN;
    s->load_reacts_p = n ? stats_anytime_p(known, n) : NAN;
}

bool experiment_load_reacts(const struct experiment_state *s)
{
    return s->load_reacts_p > 0 && s->load_reacts_p <= 0.05; /* 0 is no p value: nothing was judged */
}

void judge_numbers(struct experiment_state *s)
{
    if (experiment_is_exact(&s->spec)) {
        for (int k = 1; k < s->spec.arms; k++) exact_numbers(&s->comparison[k]);
        s->blocks_needed = 0;
        return;
    }
    double level[EXPERIMENT_ARMS];
    holm_levels(s, level);
    for (int k = 1; k < s->spec.arms; k++)
        numbers_of(&s->comparison[k], level[k], experiment_margin(&s->spec));
    /* The winner was chosen on other blocks: this is a single claim, without a family. */
    if (s->confirming) numbers_of(&s->confirmation, 0.05, experiment_margin(&s->spec));
    const struct comparison *c = experiment_headline(s);
    s->mde = experiment_detectable(stats_sd(c->d, c->blocks), c->blocks);
    s->blocks_needed = c->blocks_needed;
    load_judge(s, &c->all);
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
    for (int k = 1; k < s->spec.arms; k++) {
        companions_of(&s->comparison[k], s->spec.seed);
        estimates_of(&s->comparison[k], &s->control_all);
    }
    if (!s->confirming) return;
    companions_of(&s->confirmation, s->spec.seed);
    estimates_of(&s->confirmation, &s->control_all);
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
            stats_percent(s->control.estimate), stats_percent(s->control.lower),
            stats_percent(s->control.upper));
        return true;
    }
    return false;
}

/* Fewer blocks than a claim needs: what as many blocks as a difference needs could show, from their spread or
 * that of the control, and how many are missing. */
static void too_few_reason(const struct experiment_state *s, struct comparison *c, const char *which,
                           struct str *out)
{
    const int fewest = stats_anytime_fewest(c->alpha > 0 ? c->alpha : 0.05);
    const double sd = c->blocks >= 2 ? stats_sd(c->d, c->blocks) : stats_sd(s->control_d, s->control_blocks);
    c->blocks_needed = MAX(c->blocks_needed, fewest - c->blocks);
    if (c->blocks)
        str_printf(out, "only %d %sblock%s; proving a difference takes at least %d", c->blocks, which,
                   str_plural(c->blocks), fewest);
    else
        str_printf(out, "no %sblock was measured; proving a difference takes at least %d", which, fewest);
    if (sd >= 0)
        str_printf(out, ", which with this noise would probably find one of %.1f %% or more",
                   stats_percent(experiment_detectable(sd, fewest)));
}

double experiment_counted_block_s(const struct experiment_state *s)
{
    if (!(s->block_s > 0) || (s->complete > 0 && !s->blocks)) return NAN;
    return s->complete > 0 ? s->block_s * s->complete / s->blocks : s->block_s;
}

/* Why a comparison is inconclusive: what it could have shown, and what would decide. */
static void inconclusive_reason(const struct experiment_state *s, struct comparison *c, char *buf,
                                size_t size)
{
    const char *which = s->estimand == ESTIMAND_QUIET && s->discarded ? "undisturbed " : "";
    struct str out = { 0 };
    if (c->blocks < BLOCKS_FOR_A_CLAIM)
        too_few_reason(s, c, which, &out);
    else
        str_printf(
            &out,
            "the interval contains 0 and reaches beyond the margin: %d %sblock%s with this noise reliably show only "
            "differences of %.1f %% or more",
            c->blocks, which, str_plural(c->blocks),
            stats_percent(experiment_detectable(stats_sd(c->d, c->blocks), c->blocks)));
    const int possible = experiment_blocks_possible(s, c);
    const bool none_counts = s->complete > 0 && !s->blocks;
    char needed[BLOCKS_NEEDED_TEXT];
    if (*needed_text(needed, c->blocks_needed, possible, c->blocks))
        str_printf(&out, "; a verdict needs %s", needed);
    const double seconds = ceil(experiment_counted_block_s(s) * c->blocks_needed);
    if (none_counts)
        str_printf(&out, ", but none of %d was undisturbed: --estimand loaded uses all", s->complete);
    else if (seconds > 0 && c->blocks_needed <= possible)
        str_printf(&out, " (%.0f s at this load)", seconds);
    snprintf(buf, size, "%s", str_text(&out));
    str_free(&out);
}

/* Sets verdict, reason and blocks_needed of one comparison from its intervals. */
static void judge_one(const struct experiment_state *s, struct comparison *c)
{
    c->reason[0] = 0;
    if (experiment_is_exact(&s->spec)) {
        exact_judge(c, experiment_margin(&s->spec));
        return;
    }
    c->verdict = c->blocks < BLOCKS_FOR_A_CLAIM ? VERDICT_INCONCLUSIVE
                                                : verdict_of_margin(c, experiment_margin(&s->spec));
    if (c->verdict != VERDICT_INCONCLUSIVE)
        c->blocks_needed = 0;
    else
        inconclusive_reason(s, c, c->reason, sizeof(c->reason));
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
        judge_one(s, c);
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
        const double v = s->arm[k].failed ? -INFINITY : s->comparison[k].effect.estimate;
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
    if (s->confirming) judge_one(s, &s->confirmation);
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
    const enum verdict v = verdict_of_margin(
        c, experiment_margin(&s->spec)); /* "negligible" may still become "better" or "equivalent" */
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

/* The difference between the effects of two arms, which are relative to the same A. Arm 0 is A. */
static struct interval arms_difference(const struct experiment_state *s, int k, int leader, double confidence)
{
    const struct comparison *c = &s->comparison[k];
    return leader ? evidence_between(c, &s->comparison[leader], confidence)
                  : evidence_interval(c, c->blocks, confidence);
}

bool judge_race(struct experiment_state *s)
{
    const int family = s->spec.arms - 1;
    const double m = experiment_margin(&s->spec);
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
        const struct interval gap = arms_difference(s, k, leader, 1 - 0.05 / family);
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
