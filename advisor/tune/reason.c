/* advisor/tune/reason.c - why a search keeps the current configuration although it measured others.
 *
 * The sentence gives the speeds that decided: estimates from all timings, which pull a candidate that few
 * timings know towards what its neighbours say. The table lists its own timings. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "advisor/tune/parts.h"

/* Why this candidate cannot win, as the end of a sentence; "" when nothing rules it out. */
static void candidate_exclusion(char *buf, size_t size, const struct tuning *t, int i)
{
    const struct tune_candidate *c = &t->known.list[i];
    const struct tune_limits *l = &t->task.o->limits;
    buf[0] = '\0';
    if (c->same_answers) return;
    if (c->quality_failed)
        snprintf(buf, size, "its quality could not be measured: %.200s", c->error);
    else if (isnan(c->kld))
        snprintf(buf, size, "it changes answers, and its quality was not measured within the budget");
    else if (c->kld > l->kld)
        snprintf(buf, size, "its quality loss of %.2g nats (KL divergence) is above the limit of %.3g",
                 c->kld, l->kld);
    else if (l->ppl_ratio > 0 && c->ppl_ratio - 1 > l->ppl_ratio)
        snprintf(buf, size, "its perplexity is %.2g %% higher, more than the limit of %.3g %%",
                 100 * (c->ppl_ratio - 1), 100 * l->ppl_ratio);
    else if (c->accuracy_failed)
        snprintf(buf, size, "its right answers could not be counted: %.200s", c->error);
    else if (l->accuracy > 0 && isnan(c->accuracy_lower))
        snprintf(buf, size, "its right answers were not counted within the budget");
    else if (l->accuracy > 0 && c->accuracy_lower < -l->accuracy)
        snprintf(buf, size, "its loss of right answers is not shown to be within the limit of %.2g %%",
                 100 * l->accuracy);
}

/* The timed candidate with the best score, among those that something rules out or not; -1: none. */
static int best_timed(const struct tuning *t, bool excluded, double *score)
{
    char why[TUNE_BECAUSE];
    int best = -1;
    *score = -INFINITY;
    for (int i = 1; i < t->known.n; i++) {
        double mean, sd;
        if (!t->known.list[i].timings || t->known.list[i].failed) continue;
        candidate_exclusion(why, sizeof why, t, i);
        if (excluded != (*why != '\0')) continue;
        tune_estimate_speed(t, i, &mean, &sd);
        const double s = tune_score(t, &t->known.list[i], mean);
        if (s <= *score) continue;
        *score = s;
        best = i;
    }
    return best;
}

/* Nothing but the current configuration was timed. */
static void explain_unmeasured(char *buf, size_t size, const struct tuning *t)
{
    const struct tune_candidate *failed = NULL;
    for (int i = 1; i < t->known.n && !failed; i++)
        if (t->known.list[i].failed) failed = &t->known.list[i];
    if (failed)
        snprintf(buf, size, "no other configuration could be measured: %.120s failed: %.160s", failed->line,
                 failed->error);
    else if (t->costs.timing.n)
        snprintf(
            buf, size,
            "no other configuration was timed: on this machine now, timing one takes about %.*f s, and the "
            "budget of %.6g s had too little left",
            t->costs.timing.seconds < 9.95 ? 1 : 0, t->costs.timing.seconds, t->task.o->budget_s);
    else
        snprintf(buf, size, "no other configuration was timed within the budget of %.6g s",
                 t->task.o->budget_s);
}

/* How the search goes on, after the reason: only the budget ended it. */
static void append_unfinished(char *buf, size_t size, const struct tuning *t)
{
    const size_t at = strlen(buf);
    if (!t->out || !t->out->unfinished) return;
    snprintf(
        buf + at, size - at,
        "; the budget ended the search with %lld of %lld possible winners timed: with a budget of %.0f s "
        "in all it can go on",
        (long long)tune_timed(t), (long long)t->out->fitting, t->out->enough_s);
}

/* Why the current configuration stays, without how the search goes on. */
static void explain_kept(char *buf, size_t size, const struct tuning *t)
{
    char why[TUNE_BECAUSE];
    double free_score, excluded_score, mean, sd;
    const int other = best_timed(t, false, &free_score), excluded = best_timed(t, true, &excluded_score);
    if (other < 0 && excluded < 0) {
        explain_unmeasured(buf, size, t);
        return;
    }
    tune_estimate_speed(t, 0, &mean, &sd);
    const double current = tune_score(t, &t->known.list[0], mean), current_rate = exp(mean);
    const bool rejected = excluded >= 0 && excluded_score > current && excluded_score > free_score;
    const int named = excluded_score > free_score ? excluded : other; /* one of them was timed */
    const char *line = t->known.list[named].line;
    tune_estimate_speed(t, named, &mean, &sd);
    if (rejected) {
        candidate_exclusion(why, sizeof why, t, excluded);
        snprintf(buf, size, "%.160s is better for this goal (about %.*f tokens/s against about %.*f), but %s",
                 line, tune_decimals(exp(mean)), exp(mean), tune_decimals(current_rate), current_rate, why);
        return;
    }
    snprintf(buf, size,
             "of %lld other configuration%s measured none is better for this goal; the nearest, %.160s, has "
             "about %.*f tokens/s against about %.*f",
             (long long)tune_timed(t), str_plural(tune_timed(t)), line, tune_decimals(exp(mean)), exp(mean),
             tune_decimals(current_rate), current_rate);
}

void tune_explain_kept(char *buf, size_t size, const struct tuning *t)
{
    explain_kept(buf, size, t);
    append_unfinished(buf, size, t);
}

/* ---------------------------------------------------------------- not compared */

void tune_keep_expected(struct tuning *t)
{
    for (int i = 0; i < t->known.n; i++) {
        struct tune_candidate *c = &t->known.list[i];
        double mean, sd;
        if (!c->timings || c->failed) continue;
        tune_estimate_speed(t, i, &mean, &sd);
        c->expected_rate = exp(mean);
        c->expected_score = tune_score(t, c, mean);
    }
}

static const struct tune_candidate *candidate_named(const struct tuning *t, const char *line)
{
    for (int i = 0; i < t->known.n && *line; i++)
        if (!strcmp(t->known.list[i].line, line)) return &t->known.list[i];
    return NULL;
}

/* Why candidate i was passed over for `chosen`, as the end of a sentence about it. */
static void explain_passed(char *buf, size_t size, const struct tuning *t, int i,
                           const struct tune_candidate *chosen)
{
    const struct tune_candidate *c = &t->known.list[i];
    const double expected = c->expected_rate, other = chosen->expected_rate;
    candidate_exclusion(buf, size, t, i);
    if (*buf) return;
    if (c->expected_score > chosen->expected_score)
        snprintf(buf, size, "the time was enough to compare one candidate, and %.120s promises more",
                 t->out->winner.line);
    else if (expected <= other)
        snprintf(
            buf, size,
            "its %d timing%s may be luck: with what similar configurations measured, about %.*f tokens/s are "
            "expected of it, and %.*f of %.120s",
            c->timings, str_plural(c->timings), tune_decimals(expected), expected, tune_decimals(other),
            other, chosen->line);
    else
        snprintf(
            buf, size,
            "the goal %s weighs speed, quality and memory, and in sum it promises less, although about %.*f tokens/s "
            "are expected of it and %.*f of %.120s",
            goal_name(t->task.o->goal), tune_decimals(expected), expected, tune_decimals(other), other,
            chosen->line);
}

/* The fastest candidate that was not compared, is faster than `least`, and is not listed yet; -1: none. */
static int fastest_passed(const struct tuning *t, double least)
{
    const struct tune_result *r = t->out;
    int best = -1;
    for (int i = 1; i < t->known.n; i++) {
        const struct tune_candidate *c = &t->known.list[i];
        bool known = !strcmp(c->line, r->winner.line) || !strcmp(c->line, r->runner_up.line);
        for (int k = 0; k < r->n_passed; k++) known |= !strcmp(c->line, r->passed[k].line);
        if (known || !c->timings || c->failed || isnan(c->expected_rate) || !(c->rate > least)) continue;
        if (best < 0 || c->rate > t->known.list[best].rate) best = i;
    }
    return best;
}

void tune_explain_passed(struct tuning *t)
{
    struct tune_result *r = t->out;
    const struct tune_candidate *winner = candidate_named(t, r->winner.line),
                                *second = candidate_named(t, r->runner_up.line);
    /* the one whose place it could have had: the last of the finalists, or else the second best */
    const struct tune_candidate *chosen = winner && second ? second : &t->known.list[0];
    if (chosen == second && winner->expected_score < second->expected_score) chosen = winner;
    double least = winner ? winner->rate : t->known.list[0].rate;
    if (winner && second) least = fmin(least, second->rate);
    for (int i; r->n_passed < TUNE_PASSED && (i = fastest_passed(t, least)) >= 0;) {
        struct tune_passed *p = &r->passed[r->n_passed++];
        snprintf(p->line, sizeof p->line, "%s", t->known.list[i].line);
        p->rate = t->known.list[i].rate;
        explain_passed(p->why, sizeof p->why, t, i, chosen);
    }
}
