/* tui/frame/verdicts.c - state of an experiment as a mark, a word and a colour role; which arm and which
 * comparison the screen is about. */
#include "tui/frame/frame.h"
#include "advisor/experiment/experiment.h"

struct mark verdict_mark(enum verdict v)
{
    static const struct mark MARKS[] = {
        [VERDICT_NONE] = { "?", "undecided", ROLE_UNSURE },
        [VERDICT_BETTER] = { "▲", "better", ROLE_BETTER },
        [VERDICT_WORSE] = { "▼", "worse", ROLE_WORSE },
        [VERDICT_EQUIVALENT] = { "≈", "equivalent", ROLE_EQUAL },
        [VERDICT_NEGLIGIBLE] = { "≈", "negligible", ROLE_EQUAL },
        [VERDICT_INCONCLUSIVE] = { "?", "inconclusive", ROLE_UNSURE },
        [VERDICT_INVALID] = { "✕", "invalid", ROLE_ERROR },
    };
    return (size_t)v < COUNT_OF(MARKS) ? MARKS[v] : MARKS[VERDICT_NONE];
}

struct mark phase_mark(const struct snapshot *s)
{
    static const struct mark MARKS[] = {
        [PHASE_LOADING] = { "●", "loading A/B", ROLE_TITLE },
        [PHASE_WARMUP] = { "●", "warming up", ROLE_TITLE },
        [PHASE_QUALITY] = { "●", "measuring quality", ROLE_TITLE },
        [PHASE_CONTROL] = { "●", "A/A control", ROLE_TITLE },
        [PHASE_BLOCKS] = { "●", "running A/B", ROLE_TITLE },
        [PHASE_CONFIRM] = { "●", "confirming", ROLE_TITLE },
        [PHASE_DONE] = { "✓", "done", ROLE_TEXT },
        [PHASE_STOPPED] = { "○", "stopped", ROLE_WARN },
        [PHASE_FAILED] = { "✕", "failed", ROLE_ERROR },
    };
    if (!s->experiment_known) return (struct mark){ "○", "idle", ROLE_DIM };
    if (s->experiment.phase < PHASE_DONE && !s->experiment_live)
        return (struct mark){ "○", "interrupted", ROLE_WARN };
    if (s->experiment.paused_since_ms) return (struct mark){ "○", "paused", ROLE_WARN };
    if (s->experiment.pausing) return (struct mark){ "●", "pausing", ROLE_WARN };
    return MARKS[s->experiment.phase];
}

const struct metric *experiment_metric(const struct experiment_state *x)
{
    return x->spec.metric ? x->spec.metric : experiment_default_metric(&x->spec.workload);
}

int experiment_arms(const struct experiment_state *x)
{
    return x->spec.arms > 0 ? x->spec.arms : 2;
}

const struct comparison *experiment_comparison(const struct experiment_state *x, int arm)
{
    return x->confirming && arm == x->headline ? &x->confirmation : &x->comparison[arm];
}

enum verdict experiment_verdict(const struct experiment_state *x, int arm)
{
    if (x->verdict == VERDICT_INVALID || experiment_arms(x) == 2) return x->verdict;
    return experiment_comparison(x, arm)->verdict;
}

int experiment_selected(const struct experiment_state *x, const struct ui *u)
{
    return MAX(1, MIN(u->selected[VIEW_AB] + 1, experiment_arms(x) - 1));
}
