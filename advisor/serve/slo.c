/* Goodput: which requests were answered within the limits of a service-level objective (parts.h). */
#include "advisor/serve/parts.h"

bool slo_note_gap(const struct server *s, struct answer *a, double seconds)
{
    if (!s->o.limit_count) return true;
    if (!array_room(&a->gaps, &a->gap_cap, a->gap_count + 1, sizeof *a->gaps)) return false;
    a->gaps[a->gap_count++] = seconds;
    return true;
}

bool slo_is_met(const struct server *s, const struct call *c)
{
    bool met = true;
    for (int i = 0; i < c->answer_count; i++) {
        const struct answer *a = &c->answers[i];
        if (!a->made) continue; /* it ended at once: nobody waited for a token */
        struct request_times t = { .arrived_s = (double)c->arrived_ns * 1e-9,
                                   .admitted_s = (double)a->admitted_ns * 1e-9,
                                   .first_s = (double)a->first_ns * 1e-9,
                                   .last_s = (double)a->last_ns * 1e-9,
                                   .tokens = a->made,
                                   .gap_s = a->gaps,
                                   .gaps = a->gap_count };
        met = limits_are_met(s->o.limits, s->o.limit_count, &t) && met;
    }
    return met;
}
