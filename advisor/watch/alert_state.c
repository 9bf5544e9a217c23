/* advisor/watch/alert_state.c - decides when an alert begins and ends (watch.h): hysteresis and minimum
 * durations. */
#include "advisor/watch/watch.h"

#include <math.h>
#include <string.h>

static bool is_bad(const struct alert *a, double v)
{
    return a->side == SIDE_ABOVE ? v > a->threshold : v < a->threshold;
}

static bool is_clear(const struct alert *a, double v)
{
    return a->side == SIDE_ABOVE ? v <= a->clear : v >= a->clear;
}

/* Seconds since the previous value; 0 when it is too old to be assumed constant in between. */
static double seconds_seen(const struct alert *a, const struct alert_state *s, int64_t t_ns)
{
    const double dt = s->known ? (double)(t_ns - s->last_ns) * 1e-9 : 0;
    return dt > 0 && dt <= SIGNALS[a->signal].stands_s ? dt : 0;
}

static enum alert_change state_set(struct alert_state *s, enum alert_phase phase, enum alert_change change)
{
    s->phase = phase;
    s->held = false;
    s->held_s = 0;
    return change;
}

enum alert_change alert_step(const struct alert *a, struct alert_state *s, int64_t t_ns, double value)
{
    if (isnan(value)) {
        s->known = false;
        return CHANGE_NONE;
    }
    const bool wanted = s->phase == ALERT_FIRING ? is_clear(a, value) : is_bad(a, value);
    const double dt = seconds_seen(a, s, t_ns);
    s->held_s = wanted && s->held ? s->held_s + dt : 0;
    s->held = wanted;
    s->known = true;
    s->last_ns = t_ns;
    s->value = value;
    if (s->phase == ALERT_FIRING)
        return wanted && s->held_s >= a->keep_s ? state_set(s, ALERT_QUIET, CHANGE_RESOLVED) : CHANGE_NONE;
    if (!wanted) return s->phase == ALERT_PENDING ? state_set(s, ALERT_QUIET, CHANGE_CALM) : CHANGE_NONE;
    if (s->held_s >= a->for_s) return state_set(s, ALERT_FIRING, CHANGE_FIRING);
    if (s->phase == ALERT_PENDING) return CHANGE_NONE;
    s->phase = ALERT_PENDING;
    return CHANGE_PENDING;
}

/* ---------------------------------------------------------------- all alerts */

struct alert_instance *alerts_instance(struct alerts *a, int rule, const char *subject)
{
    for (int i = 0; i < a->n; i++)
        if (a->instance[i].rule == rule && !strcmp(a->instance[i].subject, subject)) return &a->instance[i];
    if (a->n == ALERT_INSTANCES) return NULL;
    struct alert_instance *new = &a->instance[a->n++];
    *new = (struct alert_instance){ .rule = rule };
    snprintf(new->subject, sizeof new->subject, "%s", subject);
    return new;
}

int alerts_feed(struct alerts *a, const struct alert_feed *f, struct alert_event out[SIGNAL_RULES])
{
    int n = 0;
    if (!isnan(f->value)) a->known_ns[f->signal] = f->t_ns;
    for (int i = 0; i < ALERT_COUNT && n < SIGNAL_RULES; i++) {
        struct alert row = a->rules.row[i];
        if (row.signal != f->signal || a->rules.off[i]) continue;
        struct alert_instance *x = alerts_instance(a, i, f->subject);
        if (!x) continue;
        if (a->at_once) row.for_s = row.keep_s = 0;
        const enum alert_change change = alert_step(&row, &x->state, f->t_ns, f->value);
        if (change == CHANGE_NONE) continue;
        if (change == CHANGE_FIRING) x->since_ms = f->unix_ms;
        out[n++] = (struct alert_event){ change, x };
    }
    return n;
}

double alerts_unknown_s(const struct alerts *a, enum signal_id signal, int64_t t_ns)
{
    if (!isfinite(SIGNALS[signal].stands_s) || SIGNALS[signal].subject == SUBJECT_SIGNAL ||
        !a->known_ns[signal])
        return NAN;
    return fmax((double)(t_ns - a->known_ns[signal]) * 1e-9, 0);
}

int alerts_highest(const struct alerts *a)
{
    int highest = -1;
    for (int i = 0; i < a->n; i++) {
        const struct alert_instance *x = &a->instance[i];
        if (a->at_once && !x->state.known) continue;
        if (x->state.phase == ALERT_FIRING) highest = MAX(highest, (int)a->rules.row[x->rule].grade);
    }
    return highest;
}
