#include "tui/report/content.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
int report_arms(const struct report_source *s)
{
    return s->state.spec.arms;
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
    if (!s->comparison) s->comparison = arena_alloc(&s->arena, EXPERIMENT_ARMS * sizeof *s->comparison);
    struct claim *c = &s->comparison[arm];
    const struct comparison *from = x->confirming && arm == x->headline ? &x->confirmation
                                                                        : &x->comparison[arm];
    c->blocks = from->blocks;
    memcpy(c->d, from->d, sizeof c->d);
    c->effect = from->effect;
    c->effect90 = from->effect90;
    c->fixed = from->fixed;
    c->hodges_lehmann = from->hodges_lehmann;
    c->permutation_p = from->permutation_p;
    c->lag1 = from->lag1;
    c->e_sign = from->e_sign;
    c->e_t = from->e;
    c->p = from->p;
    c->verdict = x->spec.arms == 2 ? x->verdict : from->verdict;
    memcpy(c->reason, from->reason, sizeof c->reason);
    c->blocks_needed = from->blocks_needed;
    c->dropped = from->dropped;
    c->dropped_at = from->dropped_at;
    return c;
}
