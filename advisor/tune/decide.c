/* advisor/tune/decide.c - what the confirmation proves: the winner, if any, and why. */
#include <math.h>
#include <stdio.h>

#include "advisor/tune/parts.h"

/* Interval of the score's gain: the bounds of the speed effect, plus the known differences in memory and
 * energy, plus and minus 1.96 standard errors of the KL divergences. */
static struct interval score_gain(const struct tuning *t, const struct tune_candidate *c,
                                  struct interval effect)
{
    const struct tune_weights *w = &TUNE_WEIGHTS[t->task.o->goal];
    const struct tune_candidate *a = &t->known.list[0];
    const double rest = -w->memory * log((double)c->memory_bytes / (double)a->memory_bytes) -
                        w->energy * log(c->read_bytes / a->read_bytes) -
                        (c->same_answers ? 0 : w->kld * (c->kld - a->kld));
    const double doubt = c->same_answers
                             ? 0
                             : 1.96 * w->kld *
                                   hypot(isnan(c->kld_se) ? 0 : c->kld_se, isnan(a->kld_se) ? 0 : a->kld_se);
    return (struct interval){ w->speed * effect.estimate + rest, w->speed * effect.lower + rest - doubt,
                              w->speed * effect.upper + rest + doubt };
}

void tune_take_comparison(struct tune_result *r, const struct experiment_state *s, int arm, const char *what)
{
    const struct comparison *c = experiment_comparison(s, arm);
    const bool invalid = s->verdict == VERDICT_INVALID;
    r->effect = c->effect;
    r->alpha = c->alpha;
    r->verdict = invalid ? VERDICT_INVALID : c->verdict;
    r->noise_floor = s->noise_floor;
    r->blocks = c->blocks;
    r->load = experiment_run_load(s, arm);
    if (invalid) snprintf(r->because, sizeof r->because, "the %s is invalid: %s", what, s->reason);
}

/* The finalist whose gain is proven the most. */
static void confirm_read(struct tuning *t, const struct experiment_state *s, int winner, int second)
{
    struct tune_result *r = t->out;
    const int finalist[] = { 0, winner, second };
    int best = 1;
    for (int k = 1; k < s->spec.arms; k++) {
        const struct interval one = score_gain(t, &t->known.list[finalist[k]], s->comparison[k].effect),
                              other = score_gain(t, &t->known.list[finalist[best]],
                                                 s->comparison[best].effect);
        if (one.lower > other.lower || (isnan(other.lower) && !isnan(one.lower))) best = k;
    }
    const bool counts = s->verdict != VERDICT_INVALID && s->comparison[best].blocks >= BLOCKS_FOR_A_CLAIM;
    for (int k = 0; k < s->spec.arms && counts; k++) /* otherwise the race's rates are more reliable */
        if (s->arm[k].rate > 0) {
            struct tune_candidate *c = &t->known.list[finalist[k]];
            c->rate = s->arm[k].rate;
            if (s->arm[0].rate > 0)
                c->normalized_rate = t->known.list[0].normalized_rate * c->rate / s->arm[0].rate;
        }
    r->current = t->known.list[0];
    r->winner = t->known.list[finalist[best]];
    if (s->spec.arms == 3) r->runner_up = t->known.list[finalist[3 - best]];
    tune_take_comparison(r, s, best, "confirmation");
    r->gain = score_gain(t, &r->winner, r->effect);
}

int tune_decimals(double rate)
{
    return rate < 9.995 ? 2 : rate < 99.95 ? 1 : 0;
}

int tune_fewest_blocks(int arms)
{
    return MAX(stats_anytime_fewest(0.05 / (arms - 1)), BLOCKS_FOR_A_CLAIM);
}

void tune_explain_undecided(struct tune_result *r, int arms, double enough_s)
{
    char rates[96] = "";
    const int needed = tune_fewest_blocks(arms);
    if (r->winner.rate > 0 && r->current.rate > 0)
        snprintf(rates, sizeof rates, " (%.*f tokens/s against %.*f)", tune_decimals(r->winner.rate),
                 r->winner.rate, tune_decimals(r->current.rate), r->current.rate);
    r->enough_s = enough_s;
    snprintf(
        r->because, sizeof r->because,
        "the candidate %.200s is not proven better%s: there was time for %d block%s of the A/B with the current "
        "configuration, and a claim needs at least %d; a budget of %.0f s in all should be enough at the speed "
        "of this machine now",
        r->winner.line, rates, r->blocks, str_plural(r->blocks), needed, enough_s);
}

void tune_decide(struct tuning *t, const struct experiment_state *s, int winner, int second)
{
    struct tune_result *r = t->out;
    char change[TUNE_CHANGE];
    confirm_read(t, s, winner, second);
    if (*r->because) return; /* the confirmation is invalid */
    if (isnan(r->gain.lower)) {
        r->unfinished = true;
        const int missing = tune_fewest_blocks(s->spec.arms) - r->blocks;
        const double more_s = s->block_s > 0 ? missing * s->block_s : NAN;
        tune_explain_undecided(r, s->spec.arms, tune_enough_s(t, s->spec.arms, more_s));
        return;
    }
    r->wins = r->gain.lower > 0;
    snprintf(r->because, sizeof r->because, "%s: %.200s is %s",
             r->wins ? "measured better by a paired A/B" : "not proven better for this goal", r->winner.line,
             tune_change(change, sizeof change, r));
}
