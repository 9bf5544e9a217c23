/* advisor/experiment/loaded.c - whether a result was measured while other programs used the machine
 * (experiment.h, struct run_load). This is the only place that decides it. */
#include <math.h>
#include <stdio.h>

#include "advisor/experiment/parts.h"

struct run_load experiment_run_load(const struct experiment_state *s, int arm)
{
    const struct comparison *c = experiment_comparison(s, arm);
    struct run_load l = { .others_busy = s->load[ESTIMAND_LOADED].others_busy, .blocks = c->all.blocks };
    for (int i = 0; i < c->all.blocks; i++) l.undisturbed += !c->all.disturbed[i];
    if (s->estimand == ESTIMAND_QUIET) { /* only undisturbed blocks count */
        l.others_busy = s->load[ESTIMAND_QUIET].others_busy;
        return l;
    }
    const bool too_few = l.undisturbed < l.blocks && l.undisturbed < BLOCKS_FOR_A_CLAIM;
    l.loaded = l.blocks > 0 &&
               (too_few || l.others_busy > contamination_limit(METRIC_OTHERS_BUSY)); /* false for NAN */
    return l;
}

char *experiment_run_load_text(char buf[RUN_LOAD_TEXT], const struct run_load *l)
{
    buf[0] = '\0';
    if (!l->loaded) return buf;
    int n = 0;
    if (isfinite(l->others_busy))
        n = snprintf(buf, RUN_LOAD_TEXT, "other programs used %.0f %% of the processors, ",
                     100 * l->others_busy);
    snprintf(buf + n, RUN_LOAD_TEXT - (size_t)n, "%d of %d block%s %s disturbed", l->blocks - l->undisturbed,
             l->blocks, str_plural(l->blocks), l->blocks - l->undisturbed == 1 ? "was" : "were");
    return buf;
}
