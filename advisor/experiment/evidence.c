/* advisor/experiment/evidence.c - the evidence on a comparison, also where the run may choose its estimand.
 *
 * Each estimand has evidence of its own, and that of one reaches 1/alpha with probability alpha at most. A
 * run that looks at both and stops at either would be wrong twice as often. So a third player divides the
 * stake between the two before the first block of the comparison (stats_mixed_evalue), and with --estimand
 * either an effect is refuted only where both agree: the evidence of the estimand in use, and that of the
 * divided stake.
 *
 * Theorem. If no block has an effect, or all have the tested one, the divided stake reaches 1/alpha with
 * probability alpha at most, so the run is wrong at any interim analysis with at most this probability,
 * however it chose between the estimands. If only the undisturbed blocks have the tested effect, the same
 * holds for `quiet` because its own evidence is needed, too. (Closed testing: Marcus, Peritz, Gabriel 1976.)
 *
 * On a quiet machine both estimands have the same blocks, the three players are one, and this costs nothing.
 */
#include "advisor/experiment/parts.h"

#include <math.h>

double evidence_share_loaded(const struct experiment_state *s)
{
    const struct block_series *control = &s->control_all;
    int disturbed = 0;
    for (int i = 0; i < control->blocks; i++) disturbed += control->disturbed[i];
    return (disturbed + 1.0) / (control->blocks + 2.0);
}

/* The series that both players bet on, after the first n blocks that count and the disturbed ones that
 * followed. */
struct players {
    double quiet[EXPERIMENT_BLOCKS], loaded[EXPERIMENT_BLOCKS];
    int n_quiet, n_loaded;
    enum estimand use;
    double share_loaded; /* 0: there is only the estimand in use */
};

static void players_of(struct players *p, const struct comparison *c, const struct comparison *minus, int n)
{
    *p = (struct players){ .use = c->use, .share_loaded = c->share_loaded };
    const int blocks = minus ? MIN(c->all.blocks, minus->all.blocks) : c->all.blocks;
    for (int i = 0; i < blocks; i++) {
        const bool counts = c->use == ESTIMAND_LOADED || !c->all.disturbed[i];
        if (counts && (c->use == ESTIMAND_LOADED ? p->n_loaded : p->n_quiet) == n) break;
        p->loaded[p->n_loaded++] = c->adjusted[i] - (minus ? minus->adjusted[i] : 0);
        if (!c->all.disturbed[i]) p->quiet[p->n_quiet++] = c->all.d[i] - (minus ? minus->all.d[i] : 0);
    }
}

static int stakes_of(const struct players *p, struct stats_stake part[2])
{
    part[0] = (struct stats_stake){ p->quiet, p->n_quiet, 1 - p->share_loaded };
    part[1] = (struct stats_stake){ p->loaded, p->n_loaded, p->share_loaded };
    return 2;
}

static double players_evalue(const struct players *p)
{
    struct stats_stake part[2];
    const double own = p->use == ESTIMAND_LOADED ? stats_coin_evalue(p->loaded, p->n_loaded)
                                                 : stats_coin_evalue(p->quiet, p->n_quiet);
    return fmin(own, stats_mixed_evalue(part, stakes_of(p, part)));
}

/* Every effect that one of the two players does not refute. A bound that one of them lacks is unknown. */
static struct interval players_interval(const struct players *p, double confidence)
{
    struct stats_stake part[2];
    struct interval own = p->use == ESTIMAND_LOADED
                              ? stats_anytime_interval(p->loaded, p->n_loaded, confidence)
                              : stats_anytime_interval(p->quiet, p->n_quiet, confidence);
    const struct interval mixed = stats_mixed_interval(part, stakes_of(p, part), confidence);
    own.lower = isnan(own.lower) || isnan(mixed.lower) ? NAN : fmin(own.lower, mixed.lower);
    own.upper = isnan(own.upper) || isnan(mixed.upper) ? NAN : fmax(own.upper, mixed.upper);
    return own;
}

/* Whether the choice between the estimands matters: with the same blocks there is nothing to choose. */
static bool is_single(const struct comparison *c)
{
    if (!(c->share_loaded > 0)) return true;
    for (int i = 0; i < c->all.blocks; i++)
        if (c->all.disturbed[i] || c->adjusted[i] != c->all.d[i]) return false;
    return true;
}

double evidence_evalue(const struct comparison *c, int n)
{
    struct players p;
    if (is_single(c)) return stats_coin_evalue(c->d, n);
    players_of(&p, c, NULL, n);
    return players_evalue(&p);
}

double evidence_p(const struct comparison *c)
{
    double most = 1;
    if (is_single(c)) return stats_anytime_p(c->d, c->blocks);
    for (int n = 1; n <= c->blocks; n++) {
        const double e = evidence_evalue(c, n);
        if (isnan(e)) return NAN;
        most = fmax(most, e);
    }
    return 1 / most;
}

struct interval evidence_interval(const struct comparison *c, int n, double confidence)
{
    struct players p;
    if (is_single(c)) return stats_anytime_interval(c->d, n, confidence);
    players_of(&p, c, NULL, n);
    return players_interval(&p, confidence);
}

struct interval evidence_between(const struct comparison *c, const struct comparison *leader,
                                 double confidence)
{
    struct players p;
    const int n = MIN(c->blocks, leader->blocks);
    if (is_single(c) && is_single(leader)) {
        double d[EXPERIMENT_BLOCKS];
        for (int i = 0; i < n; i++) d[i] = c->d[i] - leader->d[i];
        return stats_anytime_interval(d, n, confidence);
    }
    players_of(&p, c, leader, n);
    return players_interval(&p, confidence);
}

struct interval evidence_of_values(const struct comparison *c, const struct effects *e, int metric,
                                   double confidence)
{
    struct players p = { .use = c->use, .share_loaded = c->share_loaded };
    p.n_quiet = effects_select(e, ESTIMAND_QUIET, metric, p.quiet);
    p.n_loaded = effects_select(e, ESTIMAND_LOADED, metric, p.loaded);
    if (c->share_loaded > 0 && p.n_quiet != p.n_loaded) return players_interval(&p, confidence);
    return c->use == ESTIMAND_LOADED ? stats_anytime_interval(p.loaded, p.n_loaded, confidence)
                                     : stats_anytime_interval(p.quiet, p.n_quiet, confidence);
}
