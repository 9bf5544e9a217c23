#include "tui/report/content.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
int report_arms(const struct report_source *s)
{
    (void)s;
    return EXPERIMENT_ARMS;
}
const char *report_arm_name(int arm)
{
    static const char *const NAMES[] = { "A", "B", "C", "D", "E", "F", "G", "H" };
    return NAMES[arm >= 0 && (size_t)arm < COUNT_OF(NAMES) ? arm : 0];
}
const struct claim *report_comparison(const struct report_source *cs, int arm)
{
    struct report_source *s = (struct report_source *)cs;
    const struct experiment_state *x = &s->state;
    (void)arm;
    if (!s->comparison) s->comparison = arena_alloc(&s->arena, sizeof *s->comparison);
    struct claim *c = s->comparison;
    c->blocks = x->blocks;
    memcpy(c->d, x->d, sizeof c->d);
    c->effect = stats_anytime_interval(c->d, c->blocks, 0.95);
    c->effect90 = stats_anytime_interval(c->d, c->blocks, 0.90);
    c->fixed = stats_t_interval(c->d, c->blocks, 0.95);
    c->hodges_lehmann = stats_hodges_lehmann(c->d, c->blocks, 0.95);
    c->permutation_p = stats_permutation_p(c->d, c->blocks, 1);
    c->lag1 = stats_lag1(c->d, c->blocks);
    int k = 0;
    for (int i = 0; i < c->blocks; i++) k += c->d[i] > 0;
    c->e_sign = stats_sign_evalue(k, c->blocks);
    c->e_t = stats_coin_evalue(c->d, c->blocks);
    c->p = 1 / c->e_t;
    c->verdict = x->verdict;
    strcpy(c->reason, x->reason);
    c->blocks_needed = x->blocks_needed;
    return c;
}
