/* advisor/experiment/estimand.c - which block effects an estimate uses: those of undisturbed blocks as they
 * are, or those of all blocks, corrected for load (experiment.h, enum estimand). The choice depends on how
 * often the machine was disturbed and on the budget, never on an effect, so it cannot favour an arm. */
#include "advisor/experiment/parts.h"

#include <math.h>
#include <string.h>

void series_add(struct block_series *s, double d, double load, bool disturbed)
{
    if (s->blocks == EXPERIMENT_BLOCKS) return;
    s->d[s->blocks] = d;
    s->load[s->blocks] = load;
    s->disturbed[s->blocks++] = disturbed;
}

int series_select(const struct block_series *s, const struct block_series *control, enum estimand e,
                  double d[EXPERIMENT_BLOCKS])
{
    if (e == ESTIMAND_LOADED) {
        /* All blocks count. stats_adjust subtracts from each effect (.d) the part that the difference in load
         * between the two arms (.c) explains. How much a difference in load costs is estimated from earlier
         * blocks only: those of the A/A control, which ran before those of s, and the earlier ones of s. */
        const struct paired_series all = { .d = s->d, .c = s->load, .n = s->blocks };
        const struct paired_series earlier = { .d = control ? control->d : NULL,
                                               .c = control ? control->load : NULL,
                                               .n = control ? control->blocks : 0 };
        stats_adjust(&all, &earlier, d);
        return s->blocks;
    }
    int n = 0; /* ESTIMAND_QUIET: only undisturbed blocks count */
    for (int i = 0; i < s->blocks; i++)
        if (!s->disturbed[i]) d[n++] = s->d[i];
    return n;
}

/* ---------------------------------------------------------------- the choice */

static int disturbed_in(const struct block_series *s)
{
    int n = 0;
    for (int i = 0; i < s->blocks; i++) n += s->disturbed[i];
    return n;
}

/* Blocks of any kind that the rest of the budget allows. */
static double blocks_left(const struct experiment_state *s)
{
    const double left = s->spec.budget_s - s->reserved_s - s->elapsed_s;
    return s->block_s > 0 ? fmax(0, left / s->block_s) : 0;
}

int estimand_most_blocks(const struct experiment_state *s)
{
    const int most = s->spec.max_blocks > 0 ? s->spec.max_blocks : EXPERIMENT_BLOCKS;
    if (!(s->block_s > 0) || s->phase >= PHASE_DONE) return most;
    const double reachable = s->blocks + blocks_left(s);
    return (int)fmin(fmax(reachable, BLOCKS_FOR_A_CLAIM), most);
}

/* With at most one block in five disturbed, undisturbed blocks come nearly as fast as all. Beyond that they
 * are waited for while the budget allows as many as planned, unless that means to throw three of four away.
 */
enum estimand estimand_choose(const struct experiment_state *s)
{
    enum { OFTEN = 5, MOST_TIME = 4, BEFORE_CHOICE = 3 };
    if (s->spec.estimand != ESTIMAND_EITHER) return s->spec.estimand;
    const int all = s->control_all.blocks + s->complete,
              disturbed = disturbed_in(&s->control_all) + s->disturbed, quiet = all - disturbed;
    if (disturbed < BEFORE_CHOICE || OFTEN * disturbed <= all) return ESTIMAND_QUIET;
    if (MOST_TIME * quiet < all) return ESTIMAND_LOADED;
    const double expected = s->complete - s->disturbed + blocks_left(s) * quiet / all;
    const int needed = MAX(s->planned_blocks, BLOCKS_FOR_A_CLAIM + 1);
    return expected >= needed ? ESTIMAND_QUIET : ESTIMAND_LOADED;
}

static void comparison_use(struct experiment_state *s, struct comparison *c, enum estimand e)
{
    c->blocks = series_select(&c->all, &s->control_all, e, c->d);
    (void)series_select(&c->all, &s->control_all, ESTIMAND_LOADED, c->adjusted);
    c->use = e;
    c->share_loaded = s->spec.estimand == ESTIMAND_EITHER ? evidence_share_loaded(s) : 0;
}

void estimand_use(struct experiment_state *s, enum estimand e)
{
    s->estimand = e;
    for (int k = 1; k < s->spec.arms; k++) comparison_use(s, &s->comparison[k], e);
    comparison_use(s, &s->confirmation, e);
    s->control_blocks = series_select(&s->control_all, NULL, e, s->control_d);
    s->control_discarded = s->control_all.blocks - s->control_blocks + s->control_all.incomplete;
    s->discarded = e == ESTIMAND_LOADED ? 0 : s->disturbed;
    s->blocks = s->complete - s->discarded;
}
