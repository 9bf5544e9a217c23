/* advisor/tune/progress.c - reports to the caller what is being measured, why, and the best candidates so far
 * (struct tune_progress). */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "advisor/tune/parts.h"

const char *const TUNE_PHASE_NAMES[TUNE_PHASES] = {
    "machine", "space", "race", "quality", "confirm", "save"
};

static bool progress_call(struct tuning *t)
{
    const struct tune_options *o = t->task.o;
    const double spent_s = tune_spent(t);
    t->now.run_id = t->out->run_id;
    t->now.possible = t->out->fitting;
    t->now.share = fmin(spent_s / o->budget_s, 1);
    t->now.left_s = fmax(o->budget_s - spent_s, 0);
    return !o->progress || o->progress(o->ctx, &t->now);
}

bool tune_event(void *ctx, const json_t *event)
{
    (void)event;
    return progress_call(ctx);
}

void tune_explain(struct tuning *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(t->now.why, sizeof t->now.why, fmt, args);
    va_end(args);
}

/* ---------------------------------------------------------------- the leaderboard */

static const char *candidate_excluded(const struct tuning *t, int i)
{
    const struct tune_candidate *c = &t->known.list[i];
    if (c->failed) return "failed";
    if (c->quality_failed) return "quality failed";
    return i && tune_quality_known(c) && !tune_within_limits(t, c) ? "quality limit" : NULL;
}

struct ranked_candidate {
    struct tune_board_row row;
    double score;
};

static bool ranked_before(const struct ranked_candidate *a, const struct ranked_candidate *b)
{
    if (!a->row.excluded != !b->row.excluded) return !a->row.excluded;
    return a->score > b->score;
}

static struct ranked_candidate candidate_rank(const struct tuning *t, int i)
{
    const struct tune_candidate *c = &t->known.list[i];
    struct ranked_candidate r = { { c, i == 0, candidate_excluded(t, i) }, -INFINITY };
    double mean, sd;
    if (!c->timings) return r;
    tune_estimate_speed(t, i, &mean, &sd);
    r.score = tune_score(t, c, mean);
    return r;
}

/* Insertion into the best TUNE_BOARD; the current configuration takes the last row if it is worse than all.
 */
static void board_update(struct tuning *t)
{
    struct ranked_candidate best[TUNE_BOARD];
    struct tune_progress *now = &t->now;
    int n = 0;
    bool has_current = false;
    now->timed = 0;
    for (int i = 0; i < t->known.n; i++) {
        const struct tune_candidate *c = &t->known.list[i];
        now->timed += i > 0 && c->timings > 0;
        if (!c->timings && !c->failed && !c->judged) continue;
        const struct ranked_candidate r = candidate_rank(t, i);
        int at = n < TUNE_BOARD ? n++ : TUNE_BOARD;
        while (at > 0 && ranked_before(&r, &best[at - 1])) {
            if (at < TUNE_BOARD) best[at] = best[at - 1];
            at--;
        }
        if (at < TUNE_BOARD) best[at] = r;
    }
    for (int i = 0; i < n; i++) has_current |= best[i].row.is_current;
    if (n == TUNE_BOARD && !has_current) best[n - 1] = candidate_rank(t, 0);
    for (int i = 0; i < n; i++) now->board[i] = best[i].row;
    now->n = n;
    now->judged = t->known.answers;
}

/* ---------------------------------------------------------------- measurements */

bool tune_report(struct tuning *t, const char *what, const char *config)
{
    t->now.what = what;
    snprintf(t->now.config, sizeof t->now.config, "%s", config);
    board_update(t);
    return progress_call(t);
}

void tune_progress_take(struct tune_progress *now, const struct experiment_state *s)
{
    const int arm = s->headline > 0 ? s->headline : 1;
    const struct comparison *c = experiment_comparison(s, arm);
    snprintf(now->challenger, sizeof now->challenger, "%s", s->arm[arm].line);
    now->effect = c->effect;
    now->verdict = c->verdict;
    now->blocks = c->blocks;
    now->blocks_needed = c->blocks_needed;
    now->confirm_run = s->run_id;
}

bool tune_report_confirmation(struct tuning *t, const struct experiment_state *s)
{
    struct tune_progress *now = &t->now;
    if (!now->challenger[0]) board_update(t); /* it does not change while cells are timed */
    tune_progress_take(now, s);
    if (s->phase <= PHASE_CONTROL)
        tune_explain(t, "the current configuration against itself: measures the noise");
    else if (now->blocks_needed > 0)
        tune_explain(t, "a new A/B against the current configuration decides: about %d more block%s",
                     now->blocks_needed, str_plural(now->blocks_needed));
    else
        tune_explain(t, "a new A/B against the current configuration decides");
    now->what = "";
    snprintf(now->config, sizeof now->config, "%s", t->out->winner.line);
    return progress_call(t);
}
