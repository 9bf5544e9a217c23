/* advisor/experiment/next_step.c - what a person would do next, as a step and as a command. */
#include "advisor/experiment/experiment.h"
#include "advisor/experiment/parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What the gate of the run says about an arm; without one, it passes. */
static enum gate_outcome gate_of(const struct experiment_state *x, int arm)
{
    struct gate g;
    struct gate_result r = { .outcome = GATE_PASS };
    if (*x->spec.gate && !gate_parse(&g, x->spec.gate, NULL)) claims_gate(&g, x, arm, &r);
    return r.outcome;
}

/* Can the arm give other answers than A, with nothing known of their quality? */
static bool answers_are_unknown(const struct experiment_state *x, int arm)
{
    return !config_same_answers(&x->spec.config[0], &x->spec.config[arm]) &&
           !x->comparison[arm].quality.known;
}

/* May the arm be proposed for use? Not where `apply` refuses it, or where a limit that was set forbids it. */
static bool arm_is_usable(const struct experiment_state *x, int arm)
{
    const struct quality *q = &x->comparison[arm].quality;
    const double limit = experiment_kld_margin(&x->spec);
    return !config_is_foreign(&x->spec.config[arm]) && !x->spec.workload.train &&
           gate_of(x, arm) == GATE_PASS && !(q->known && q->kld.upper > limit);
}

char *experiment_ratio_text(char buf[RATIO_TEXT], const struct experiment_state *x, int arm)
{
    const double paired = experiment_change(x, experiment_comparison(x, arm)->effect).estimate,
                 means = log(x->arm[arm].rate / x->arm[0].rate);
    buf[0] = '\0';
    if (fabs(paired - means) >= 0.005) /* false for NAN */
        snprintf(
            buf, RATIO_TEXT,
            "%c against A: %+.1f %% by comparisons within each block, which the verdict uses; their mean rates differ by "
            "%+.1f %%, which includes disturbance by other programs",
            'A' + arm, stats_percent(paired), stats_percent(means));
    return buf;
}

enum experiment_step experiment_next_step(const struct experiment_state *x, int arm)
{
    const struct comparison *c = experiment_comparison(x, arm);
    const enum verdict verdict = experiment_verdict(x, arm);
    const bool decided = verdict != VERDICT_INCONCLUSIVE && verdict != VERDICT_NONE;
    const bool open = !decided || (verdict != VERDICT_INVALID && gate_of(x, arm) == GATE_UNDECIDED);
    const int possible = experiment_blocks_possible(x, c), needed = experiment_blocks_needed(x, c);
    if (x->running) return STEP_WATCH;
    if (x->phase == PHASE_STOPPED) return STEP_RESUME;
    if (open && !experiment_is_exact(&x->spec) && !(x->complete > 0 && !x->blocks))
        return possible > 0 && needed <= possible ? STEP_MORE_BLOCKS : STEP_LESS_NOISE;
    return verdict == VERDICT_BETTER && x->spec.arms <= 2 && arm_is_usable(x, arm) ? STEP_APPLY : STEP_READ;
}

static void put_more_blocks(struct str *s, const struct experiment_state *x, int arm)
{
    const struct comparison *c = experiment_comparison(x, arm);
    const long long run = (long long)x->run_id;
    char budget[FORECAST_BUDGET], needed[BLOCKS_NEEDED_TEXT], which[32] = "a verdict";
    if (!*experiment_resume_budget(budget, x, experiment_blocks_needed(x, c)))
        forecast_budget(budget, x->spec.budget_s); /* unknown: as much again */
    if (x->spec.arms > 2) snprintf(which, sizeof which, "the verdict on %c", 'A' + arm);
    if (experiment_verdict(x, arm) != VERDICT_INCONCLUSIVE) snprintf(which, sizeof which, "its gate");
    str_printf(s, "next: qdyno ab --resume %lld --budget %s   (continues run %lld for %s more", run, budget,
               run, budget);
    if (*experiment_blocks_needed_text(needed, x, c))
        str_printf(s, "; %s needs %s", which, needed);
    else if (experiment_verdict(x, arm) > VERDICT_NONE && experiment_verdict(x, arm) != VERDICT_INCONCLUSIVE)
        str_append(s, "; its gate is undecided");
    str_append(s, ")");
}

void experiment_put_command(struct str *s, const struct experiment_state *x, int arm)
{
    const long long run = (long long)x->run_id;
    if (!run) return;
    switch (experiment_next_step(x, arm)) {
    case STEP_WATCH:
        str_printf(s, "next: qdyno show %lld   (the run is still measuring; this shows how far it is)", run);
        break;
    case STEP_RESUME:
        str_printf(s, "next: qdyno ab --resume %lld   (continues where it was stopped)", run);
        break;
    case STEP_MORE_BLOCKS: put_more_blocks(s, x, arm); break;
    case STEP_LESS_NOISE:
        str_printf(
            s,
            "next: qdyno report %lld --out FILE.html   (every block; to decide with fewer, run ab again with "
            "--wait-quiet 10m or a larger --margin)",
            run);
        break;
    case STEP_APPLY:
        str_printf(s, "next: qdyno apply --run %lld   (use B from now on%s)", run,
                   answers_are_unknown(x, arm)
                       ? "; its answers may be worse: ab --quality measures that, and this run did not"
                       : "");
        break;
    case STEP_READ:
        str_printf(s, "next: qdyno report %lld --out FILE.html   (every block, with figures)", run);
        break;
    }
}
