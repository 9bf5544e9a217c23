/* advisor/tune/target.c - the answer to "which candidate reaches this target?", from the intervals of each.
 *
 * A candidate reaches the target when the bad end of every interval does. Where one candidate does, the
 * question is answered. Where none does, one that is undecided leaves it open. */
#include <math.h>
#include <string.h>

#include "advisor/tune/parts.h"

/* How far one figure is on the wrong side of its bound, relative to it; at most 0: it holds. */
static double term_distance(const struct gate_term *t, const struct gate_row *r)
{
    if (isnan(r->value) || isnan(r->bound)) return INFINITY;
    const bool more = t->op == GATE_MORE || t->op == GATE_AT_LEAST;
    const double short_of = more ? r->bound - r->value : r->value - r->bound;
    return short_of <= 0 ? 0 : short_of / fmax(fabs(r->bound), 1e-12);
}

double target_distance(const struct gate *g, const struct gate_result *r)
{
    double worst = 0;
    for (int i = 0; i < r->terms; i++)
        if (r->row[i].outcome != GATE_PASS) worst = fmax(worst, term_distance(&g->term[i], &r->row[i]));
    return worst;
}

char *target_name(char *buf, size_t size, const char *line)
{
    struct config c;
    char rest[CONFIG_LINE];
    if (config_parse(&c, line, NULL) || !*config_text(&c, KNOB_MODEL)) {
        snprintf(buf, size, "%s", line);
        return buf;
    }
    char name[CONFIG_VALUE];
    snprintf(name, sizeof name, "%s", path_file_name(config_text(&c, KNOB_MODEL)));
    config_unset(&c, KNOB_MODEL);
    config_line(&c, rest, sizeof rest);
    snprintf(buf, size, "%s%s%s", name, strcmp(rest, "default") ? ", " : "",
             strcmp(rest, "default") ? rest : "");
    return buf;
}

static const char *term_name(const struct gate_term *t)
{
    return t->metric >= 0 ? METRICS[t->metric].name : GATE_NAMES[t->figure].name;
}

/* With the unit of bytes, "25.4M". Returns buf. */
static const char *figure_text(char *buf, size_t size, const struct gate_term *t, double value)
{
    if (t->metric >= 0 && !strcmp(METRICS[t->metric].unit, "bytes") && value >= 0 && value < 1e18)
        str_from_bytes((int64_t)value, buf, size);
    else
        snprintf(buf, size, "%.4g", value);
    return buf;
}

/* "decode_tok_s 25.3 [24.9, 25.8], kld_mean 0.021 [0.019, 0.023]" */
static void put_figures(struct str *s, const struct gate *g, const struct gate_result *r)
{
    for (int i = 0; i < r->terms; i++) {
        const struct gate_row *x = &r->row[i];
        str_printf(s, "%s%s ", i ? ", " : "", term_name(&g->term[i]));
        if (isnan(x->value)) {
            str_printf(s, "unknown (%s)", x->reason);
            continue;
        }
        const struct gate_term *t = &g->term[i];
        char value[32], lower[32], upper[32];
        str_append(s, figure_text(value, sizeof value, t, x->value));
        if (isfinite(x->interval.lower) && x->interval.lower < x->interval.upper)
            str_printf(s, " [%s, %s]", figure_text(lower, sizeof lower, t, x->interval.lower),
                       figure_text(upper, sizeof upper, t, x->interval.upper));
    }
}

/* The terms with this outcome: what was missed, or what is open and why. */
static void put_terms(struct str *s, const struct gate *g, const struct gate_result *r, bool failed)
{
    int n = 0;
    for (int i = 0; i < r->terms; i++) {
        const struct gate_row *x = &r->row[i];
        const bool open = x->outcome == GATE_UNDECIDED || x->outcome == GATE_INVALID;
        if (failed ? x->outcome != GATE_FAIL : !open) continue;
        str_printf(s, "%s%s", n++ ? "; " : "", g->term[i].text);
        if (!failed && *x->reason) str_printf(s, " (%s)", x->reason);
    }
}

/* Candidates may be from different experiments, in which the machine was differently fast: what compares is
 * the rate relative to the reference of the same experiment. */
static bool is_better(const struct tune_candidate *a, const struct tune_candidate *b, bool fastest)
{
    const double x = a->normalized_rate, y = b->normalized_rate;
    if (fastest) return x > y || (x > 0 && isnan(y));
    if (a->kld != b->kld) return a->kld < b->kld || (isnan(b->kld) && !isnan(a->kld));
    return x > y;
}

/* The best of those with this outcome; -1: none. */
static int best_of(enum gate_outcome outcome, const struct gate_result *judged,
                   const struct tune_candidate *list, int n, bool fastest)
{
    int best = -1;
    for (int i = 0; i < n; i++)
        if (judged[i].outcome == outcome && (best < 0 || is_better(&list[i], &list[best], fastest))) best = i;
    return best;
}

static int nearest_of(const struct gate *g, const struct gate_result *judged, int n, bool open_only)
{
    int best = -1;
    double least = INFINITY;
    for (int i = 0; i < n; i++) {
        const double d = target_distance(g, &judged[i]);
        if (open_only && judged[i].outcome == GATE_FAIL) continue;
        if (best >= 0 && d >= least) continue;
        least = d;
        best = i;
    }
    return best;
}

void target_answer(struct tune_target *out, const struct gate *g, const struct gate_result *judged,
                   const struct tune_candidate *list, int n, bool fastest)
{
    struct str s = { 0 };
    char name[CONFIG_LINE];
    const int reached = best_of(GATE_PASS, judged, list, n, fastest), open = nearest_of(g, judged, n, true);
    *out = (struct tune_target){ .asked = true };
    out->reach = reached >= 0 ? TUNE_REACHED : open >= 0 ? TUNE_UNDECIDED : TUNE_NOT_REACHED;
    out->candidate = reached >= 0 ? reached : open >= 0 ? open : nearest_of(g, judged, n, false);
    if (out->candidate >= 0) {
        out->judged = judged[out->candidate];
        target_name(name, sizeof name, list[out->candidate].line);
    }
    switch (out->reach) {
    case TUNE_REACHED:
        str_printf(&s, "reached by %.300s: ", name);
        put_figures(&s, g, &out->judged);
        break;
    case TUNE_UNDECIDED:
        str_printf(&s, "undecided: %.300s may reach it, but not for certain: ", name);
        put_terms(&s, g, &out->judged, false);
        str_append(&s, "; ");
        put_figures(&s, g, &out->judged);
        break;
    case TUNE_NOT_REACHED:
        str_append(&s, "not reached");
        if (out->candidate < 0) break;
        str_printf(&s, ": the nearest is %.300s, which misses ", name);
        put_terms(&s, g, &out->judged, true);
        str_append(&s, ": ");
        put_figures(&s, g, &out->judged);
        break;
    }
    snprintf(out->text, sizeof out->text, "%s", str_text(&s));
    str_free(&s);
}

/* ---------------------------------------------------------------- the trade-off */

static bool beats(const struct tune_candidate *a, const struct tune_candidate *b)
{
    const double x[] = { a->normalized_rate, -a->kld, -(double)a->memory_bytes },
                 y[] = { b->normalized_rate, -b->kld, -(double)b->memory_bytes };
    return stats_dominates(x, y, 3);
}

/* Distance of a point from the line between the fastest and the most exact one, both axes scaled to 0..1. */
static void mark_knee(struct tune_candidate *list, int n)
{
    double fast = -INFINITY, slow = INFINITY, most = -INFINITY, least = INFINITY, far = 0;
    int at = -1, count = 0;
    for (int i = 0; i < n; i++) {
        if (!list[i].front) continue;
        count++;
        fast = fmax(fast, log(list[i].normalized_rate)), slow = fmin(slow, log(list[i].normalized_rate));
        most = fmax(most, list[i].kld), least = fmin(least, list[i].kld);
    }
    if (count < 3 || !(fast > slow) || !(most > least)) return;
    for (int i = 0; i < n; i++) {
        if (!list[i].front) continue;
        const double d = (log(list[i].normalized_rate) - slow) / (fast - slow) -
                         (list[i].kld - least) / (most - least);
        if (d <= far) continue;
        far = d;
        at = i;
    }
    if (at >= 0) list[at].knee = true;
}

void tune_front(struct tune_candidate *list, int n)
{
    for (int i = 0; i < n; i++) {
        struct tune_candidate *c = &list[i];
        c->knee = false;
        c->front = !c->failed && c->normalized_rate > 0 && !isnan(c->kld);
        for (int k = 0; k < n && c->front; k++)
            if (k != i && !list[k].failed && list[k].normalized_rate > 0 && !isnan(list[k].kld) &&
                beats(&list[k], c))
                c->front = false;
    }
    mark_knee(list, n);
}
