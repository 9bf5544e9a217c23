/* advisor/experiment/gate.c - deciding a gate (experiment.h) in three-valued logic. "invalid" is a kind of
 * undecided: the figure cannot be trusted. It shows only when the other terms leave the whole undecided. */
#include "advisor/experiment/experiment.h"

#include <math.h>
#include <stdio.h>

static const char *const OUTCOMES[] = { "pass", "fail", "undecided", "invalid" };

const char *gate_outcome_name(enum gate_outcome o)
{
    return (size_t)o < COUNT_OF(OUTCOMES) ? OUTCOMES[o] : "";
}

/* ---------------------------------------------------------------- one term */

static bool gate_op_holds(double x, enum gate_op op, double bound)
{
    switch (op) {
    case GATE_LESS: return x < bound;
    case GATE_AT_MOST: return x <= bound;
    case GATE_MORE: return x > bound;
    case GATE_AT_LEAST: return x >= bound;
    }
    return false;
}

static struct interval interval_times(struct interval i, double factor)
{
    return (struct interval){ i.estimate * factor, i.lower * factor, i.upper * factor };
}

static const struct interval UNKNOWN = { NAN, NAN, NAN };

static bool has_bounds(struct interval i)
{
    return !isnan(i.lower) && !isnan(i.upper);
}

/* Estimate of further blocks or windows until the interval decides, if estimate and spread stay: half widths
 * shrink with the square root of the count. */
static double missing_count(const struct gate_value *v, struct interval i, double bound)
{
    const double distance = fabs(i.estimate - bound),
                 half = bound > i.estimate ? i.upper - i.estimate : i.estimate - i.lower;
    if (v->n < 1 || !(distance > 0) || !isfinite(half)) return NAN;
    const double times_wider = half / distance;
    return fmax(1, ceil(v->n * (times_wider * times_wider - 1) - 1e-6)); /* tolerance for rounding */
}

static void gate_row_set_undecided(struct gate_row *r, const struct gate_value *v)
{
    enum { BEYOND_REASON = 1000000 };
    const double more = missing_count(v, r->interval, r->bound);
    r->outcome = GATE_UNDECIDED;
    if (v->invalid || v->missing) {
        if (v->invalid) r->outcome = GATE_INVALID;
        snprintf(r->reason, sizeof(r->reason), "%s", v->invalid ? v->invalid : v->missing);
    } else if (isnan(v->value) || isnan(r->bound)) {
        snprintf(r->reason, sizeof(r->reason), "%s not measured", isnan(v->value) ? "it was" : "A's was");
    } else if (!has_bounds(r->interval)) {
        snprintf(r->reason, sizeof(r->reason), "too little was measured for an interval");
    } else if (more <= BEYOND_REASON) {
        snprintf(r->reason, sizeof(r->reason),
                 "the bound lies within the interval; about %.0f more %s would decide", more, v->of);
    } else {
        snprintf(r->reason, sizeof(r->reason), "the bound lies within the interval");
    }
}

static void judge_term(struct gate_row *r, const struct gate_term *t, const struct gate_value *v)
{
    *r = (struct gate_row){ .value = v->value, .interval = UNKNOWN };
    r->bound = t->offset + (t->scale != 0 ? t->scale * v->a : 0);
    /* comparisons with A use the paired ratio, which is less noisy than either value */
    r->interval = t->scale != 0 && has_bounds(v->ratio) ? interval_times(v->ratio, v->a) : v->absolute;
    if (v->exact && !has_bounds(r->interval)) r->interval = (struct interval){ v->value, v->value, v->value };
    const bool low = gate_op_holds(r->interval.lower, t->op, r->bound),
               high = gate_op_holds(r->interval.upper, t->op, r->bound);
    if (v->invalid || v->missing || isnan(v->value) || isnan(r->bound) || !has_bounds(r->interval) ||
        low != high)
        gate_row_set_undecided(r, v);
    else
        r->outcome = low ? GATE_PASS : GATE_FAIL;
}

/* ---------------------------------------------------------------- the whole */

enum gate_outcome gate_both(enum gate_outcome a, enum gate_outcome b)
{
    return a == GATE_FAIL || b == GATE_FAIL ? GATE_FAIL : MAX(a, b);
}

static enum gate_outcome outcome_negate(enum gate_outcome o)
{
    return o == GATE_PASS ? GATE_FAIL : o == GATE_FAIL ? GATE_PASS : o;
}

static enum gate_outcome outcome_of_node(const struct gate *g, const struct gate_result *r, int node)
{
    const enum gate_kind kind = g->node[node].kind;
    const int left = g->node[node].left;
    if (kind == GATE_TERM) return r->row[left].outcome;
    const enum gate_outcome a = outcome_of_node(g, r, left);
    if (kind == GATE_NOT) return outcome_negate(a);
    const enum gate_outcome b = outcome_of_node(g, r, g->node[node].right);
    return kind == GATE_AND ? gate_both(a, b)
                            : outcome_negate(gate_both(outcome_negate(a), outcome_negate(b)));
}

void gate_judge(const struct gate *g, gate_lookup_fn *lookup, void *ctx, struct gate_result *out)
{
    *out = (struct gate_result){ .terms = g->terms };
    for (int i = 0; i < g->terms; i++) {
        struct gate_value v = { .value = NAN, .a = NAN, .absolute = UNKNOWN, .ratio = UNKNOWN, .of = "" };
        lookup(ctx, &g->term[i], &v);
        judge_term(&out->row[i], &g->term[i], &v);
    }
    out->outcome = outcome_of_node(g, out, g->root);
}

json_t *gate_result_to_json(const struct gate *g, const struct gate_result *r)
{
    json_t *o = json_object(), *terms = json_array();
    json_put_str(o, "gate", g->text);
    json_put_str(o, "outcome", gate_outcome_name(r->outcome));
    for (int i = 0; i < r->terms; i++) {
        const struct gate_row *row = &r->row[i];
        json_t *t = json_object();
        json_put_str(t, "term", g->term[i].text);
        json_put_str(t, "outcome", gate_outcome_name(row->outcome));
        json_put_num(t, "value", row->value);
        json_put_num(t, "bound", row->bound);
        json_put_num(t, "lower", row->interval.lower);
        json_put_num(t, "upper", row->interval.upper);
        json_put_str(t, "reason", *row->reason ? row->reason : NULL);
        json_array_append_new(terms, t);
    }
    json_put(o, "terms", terms);
    return o;
}
