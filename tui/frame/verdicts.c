/* tui/frame/verdicts.c - state of an experiment as a mark, a word and a colour role; which arm and which
 * comparison the screen is about. */
#include "tui/frame/frame.h"
#include "advisor/experiment/experiment.h"

struct mark verdict_mark(enum verdict v)
{
    static const struct mark MARKS[] = {
        [VERDICT_NONE] = { .glyph = "?", .word = "undecided", .role = ROLE_UNSURE },
        [VERDICT_BETTER] = { .glyph = "▲", .word = "better", .role = ROLE_BETTER },
        [VERDICT_WORSE] = { .glyph = "▼", .word = "worse", .role = ROLE_WORSE },
        [VERDICT_EQUIVALENT] = { .glyph = "≈", .word = "equivalent", .role = ROLE_EQUAL },
        [VERDICT_NEGLIGIBLE] = { .glyph = "≈", .word = "negligible", .role = ROLE_EQUAL },
        [VERDICT_INCONCLUSIVE] = { .glyph = "?", .word = "inconclusive", .role = ROLE_UNSURE },
        [VERDICT_INVALID] = { .glyph = "✕", .word = "invalid", .role = ROLE_ERROR },
    };
    return (size_t)v < COUNT_OF(MARKS) ? MARKS[v] : MARKS[VERDICT_NONE];
}

struct mark phase_mark(const struct snapshot *s)
{
    static const struct mark MARKS[] = {
        [PHASE_LOADING] = { .glyph = "●", .word = "loading A/B", .role = ROLE_TITLE },
        [PHASE_WARMUP] = { .glyph = "●", .word = "warming up", .role = ROLE_TITLE },
        [PHASE_QUALITY] = { .glyph = "●", .word = "measuring quality", .role = ROLE_TITLE },
        [PHASE_CONTROL] = { .glyph = "●", .word = "A/A control", .role = ROLE_TITLE },
        [PHASE_BLOCKS] = { .glyph = "●", .word = "running A/B", .role = ROLE_TITLE },
        [PHASE_CONFIRM] = { .glyph = "●", .word = "confirming", .role = ROLE_TITLE },
        [PHASE_DONE] = { .glyph = "✓", .word = "done", .role = ROLE_TEXT },
        [PHASE_STOPPED] = { .glyph = "○", .word = "stopped", .role = ROLE_WARN },
        [PHASE_FAILED] = { .glyph = "✕", .word = "failed", .role = ROLE_ERROR },
    };
    if (!s->experiment_known) return (struct mark){ .glyph = "○", .word = "idle", .role = ROLE_DIM };
    if (s->experiment.phase < PHASE_DONE && !s->experiment_live)
        return (struct mark){ .glyph = "○", .word = "interrupted", .role = ROLE_WARN };
    if (s->experiment.paused_since_ms)
        return (struct mark){ .glyph = "○", .word = "paused", .role = ROLE_WARN };
    if (s->experiment.pausing) return (struct mark){ .glyph = "●", .word = "pausing", .role = ROLE_WARN };
    return MARKS[s->experiment.phase];
}

int experiment_selected(const struct experiment_state *x, const struct ui *u)
{
    return MAX(1, MIN(u->selected[VIEW_AB] + 1, experiment_arms(&x->spec) - 1));
}
