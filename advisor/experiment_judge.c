/* advisor/experiment_judge.c - from block effects to a verdict. Pure: the same numbers, the same verdict.
 *
 * The interval is a fixed-n t interval, so it is honest only at a count of blocks chosen before looking; that
 * is why the thread takes the verdict once. What is on screen before is an estimate, and verdict is NONE. */
#include "advisor/experiment_parts.h"

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

static double margin_of(const struct experiment_state *s)
{
    return s->spec.margin > 0 ? s->spec.margin : 0.01;
}

static bool excludes_zero(struct interval i)
{
    return i.lower > 0 || i.upper < 0; /* false for NAN */
}

void judge_control(struct experiment_state *s)
{
    const int n = s->control_blocks;
    s->control = stats_t_interval(s->control_d, n, 0.95);
    s->noise_floor = n < 2 ? NAN : 0.5 * (s->control.upper - s->control.lower);
    s->mde = stats_mde(stats_sd(s->control_d, n), s->spec.max_blocks > 0 ? s->spec.max_blocks : 32, 0.05,
                       0.8);
    /* A bias that cannot matter is none: a metric almost without noise (memory) would otherwise fail by a
     * page, and one quiet experiment in fifty by chance. */
    s->control_failed = n >= control_wanted(s) && excludes_zero(s->control) &&
                        fabs(s->control.estimate) > 0.25 * margin_of(s);
}

/* About how many more blocks until one of the claims becomes possible, were the estimate and the spread to
 * stay: an interval that excludes 0, or a 90 % interval inside the margin. */
static int blocks_until_claim(const struct experiment_state *s, double sd)
{
    const double size = fabs(s->effect.estimate), margin = margin_of(s);
    int n = stats_blocks_for(sd, size, 0.95);
    if (size < margin) n = MIN(n, stats_blocks_for(sd, margin - size, 0.90));
    n = MAX(n, BLOCKS_FOR_A_CLAIM);
    return MAX(1, n - s->blocks);
}

void judge_numbers(struct experiment_state *s)
{
    s->effect = stats_t_interval(s->d, s->blocks, 0.95);
    s->effect90 = stats_t_interval(s->d, s->blocks, 0.90);
    const double sd = stats_sd(s->d, s->blocks);
    if (isnan(s->mde)) s->mde = stats_mde(sd, s->spec.max_blocks > 0 ? s->spec.max_blocks : 32, 0.05, 0.8);
    s->blocks_needed = isnan(sd) ? -1 : blocks_until_claim(s, sd);
}

/* The first reason why no verdict can stand; false when there is none. */
static bool invalid_reason(const struct experiment_state *s, char *buf, size_t size)
{
    for (int i = 0; i < EXPERIMENT_ARMS; i++) {
        if (!s->arm[i].failed) continue;
        snprintf(buf, size, "arm %c did not run: %.200s", 'A' + i, s->arm[i].error);
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

static enum verdict claim(const struct experiment_state *s)
{
    const double m = margin_of(s);
    if (excludes_zero(s->effect) && fabs(s->effect.estimate) > m)
        return s->effect.estimate > 0 ? VERDICT_BETTER : VERDICT_WORSE;
    if (s->effect90.lower >= -m && s->effect90.upper <= m) return VERDICT_EQUIVALENT;
    if (excludes_zero(s->effect)) return VERDICT_NEGLIGIBLE;
    return VERDICT_INCONCLUSIVE;
}

void experiment_judge(struct experiment_state *s)
{
    judge_numbers(s);
    char reason[sizeof(s->reason)];
    if (invalid_reason(s, reason, sizeof(reason))) {
        s->verdict = VERDICT_INVALID;
        s->blocks_needed = -1;
        if (!*s->reason) snprintf(s->reason, sizeof(s->reason), "%s", reason);
        return;
    }
    s->reason[0] = 0;
    s->verdict = s->blocks < BLOCKS_FOR_A_CLAIM ? VERDICT_INCONCLUSIVE : claim(s);
    if (s->verdict != VERDICT_INCONCLUSIVE) {
        s->blocks_needed = 0;
        return;
    }
    if (s->blocks < BLOCKS_FOR_A_CLAIM)
        snprintf(s->reason, sizeof(s->reason), "%d of the %d blocks that any claim needs", s->blocks,
                 BLOCKS_FOR_A_CLAIM);
    else
        snprintf(s->reason, sizeof(s->reason),
                 "the interval neither excludes 0 nor stays within the margin; about %d more blocks",
                 s->blocks_needed);
}
