/* tui/views/pareto.c - trade-offs between advised configurations in speed, loss and memory: speed against
 * loss with the memory of each as a column, and speed against memory.
 *
 * Numbers are rows of the advice table. Whiskers are intervals of predictions or measurements: the chart does
 * not separate two configurations whose whiskers overlap. A line joins the Pareto front; a configuration that
 * another one beats in speed, loss and memory is dim. */
#include "tui/views/parts.h"

#include <math.h>
#include <string.h>

#include "advisor/advise/advise.h"
#include "advisor/predict/predict.h"

struct candidate {
    double x, y, y_lo, y_hi;
    double loss, memory; /* loss NAN: not measured */
    int number;          /* 1-based, of the table */
    bool beaten;
};

static struct figure show_bytes(double v)
{
    return figure_bytes((int64_t)v);
}

static void candidates_mark_beaten(struct candidate *candidate, int n)
{
    enum { GAINS = 3 };
    double gains[SNAPSHOT_ADVICE][GAINS];
    for (int i = 0; i < n; i++) {
        gains[i][0] = candidate[i].y;
        gains[i][1] = -candidate[i].loss;
        gains[i][2] = -candidate[i].memory;
    }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            candidate[i].beaten |= k != i && stats_dominates(gains[k], gains[i], GAINS);
}

static void axis_include(struct axis *a, double v)
{
    if (!isfinite(v) || (a->log && v <= 0)) return;
    a->lo = fmin(a->lo, v);
    a->hi = fmax(a->hi, v);
}

/* Joins what is on the front, from left to right. */
static void draw_front(const struct plane *p, const struct candidate *candidate, int n)
{
    double from[2] = { NAN, NAN };
    for (int done = 0; done < n; done++) {
        const struct candidate *next = NULL;
        for (int i = 0; i < n; i++) {
            const struct candidate *c = &candidate[i];
            const bool after = isnan(from[0]) || c->x > from[0];
            if (!c->beaten && after && (!next || c->x < next->x)) next = c;
        }
        if (!next) return;
        const double to[2] = { next->x, next->y };
        if (!isnan(from[0])) plane_line(p, from, to, ROLE_GRAPH);
        from[0] = to[0];
        from[1] = to[1];
    }
}

static void draw_candidates(struct grid *g, struct rect in, struct axis x, struct axis y,
                            const struct candidate *candidate, int n, int chosen)
{
    x.lo = x.hi = y.lo = y.hi = NAN;
    for (int i = 0; i < n; i++) {
        axis_include(&x, candidate[i].x);
        axis_include(&y, candidate[i].y);
        axis_include(&y, candidate[i].y_lo);
        axis_include(&y, candidate[i].y_hi);
    }
    const struct plane p = plane_open(g, in, axis_around(x), axis_around(y));
    for (int i = n - 1; i >= 0; i--) /* the best ranked is drawn last, on top */
        plane_whisker_y(&p, candidate[i].x, candidate[i].y_lo, candidate[i].y_hi,
                        candidate[i].beaten ? (unsigned)ROLE_DIM : (unsigned)ROLE_GRAPH);
    draw_front(&p, candidate, n);
    for (int i = n - 1; i >= 0; i--)
        plane_mark(&p, candidate[i].x, candidate[i].y,
                   candidate[i].number < 10 ? '0' + (uint32_t)candidate[i].number : '*',
                   candidate[i].number == chosen + 1 ? ROLE_TEXT | STYLE_REVERSE
                   : candidate[i].beaten             ? (unsigned)ROLE_DIM
                                                     : ROLE_TEXT | STYLE_BOLD);
}

/* Everything whose speed and memory are known; x is the memory. */
static int candidates_of(struct candidate candidate[SNAPSHOT_ADVICE], const struct snapshot *s)
{
    int n = 0;
    for (int i = 0; i < s->advice_count; i++) {
        const struct prediction *p = &s->advice[i].prediction;
        if (snapshot_is_folded(s, i) || !isfinite(p->decode_tok_s.estimate) || p->plan.total <= 0) continue;
        candidate[n++] = (struct candidate){ .x = (double)p->plan.total,
                                             .y = p->decode_tok_s.estimate,
                                             .y_lo = p->decode_tok_s.lower,
                                             .y_hi = p->decode_tok_s.upper,
                                             .loss = s->advice[i].kld,
                                             .memory = (double)p->plan.total,
                                             .number = i + 1 };
    }
    candidates_mark_beaten(candidate, n);
    return n;
}

void box_pareto(struct grid *g, struct rect area, const struct snapshot *s, int chosen)
{
    struct candidate candidate[SNAPSHOT_ADVICE];
    const int n = candidates_of(candidate, s);
    struct rect in = grid_box(g, area, "Decode speed by memory (number: row)",
                              "line: Pareto front, dim: beaten");
    if (n)
        draw_candidates(g, in, (struct axis){ .name = "memory", .show = show_bytes },
                        (struct axis){ .name = "tok/s", .show = figure_number }, candidate, n, chosen);
    else
        grid_wrap(g, in, ROLE_DIM, "n/a: no prediction is known");
}

int pareto_losses(const struct snapshot *s)
{
    int n = 0;
    for (int i = 0; i < s->advice_count; i++) n += !snapshot_is_folded(s, i) && s->advice[i].kld > 0;
    return n;
}

/* The third dimension: "1  4.88M", a row for each candidate. */
static void draw_memory(struct grid *g, struct rect in, const struct candidate *candidate, int n)
{
    struct pen p = pen_at(g, in, 0, 0);
    pen_put(&p, ROLE_DIM, "row memory");
    for (int i = 0; i < n && i + 1 < in.h; i++) {
        p = pen_at(g, in, 0, i + 1);
        const unsigned style = candidate[i].beaten ? (unsigned)ROLE_DIM : (unsigned)ROLE_TEXT;
        pen_printf(&p, style, "%3d %6s", candidate[i].number, show_bytes(candidate[i].memory).text);
    }
}

void box_pareto_quality(struct grid *g, struct rect area, const struct snapshot *s, int chosen)
{
    enum { MEMORY = 12 };
    struct candidate candidate[SNAPSHOT_ADVICE];
    const int all = candidates_of(candidate, s);
    int n = 0, exact = 0, foreign = 0;
    double least = NAN;
    char note[96] = "", title[128];
    for (int i = 0; i < all; i++) {
        if (!(candidate[i].loss >= 0)) continue;
        if (candidate[i].loss > 0) least = fmin(least, candidate[i].loss);
        candidate[n++] = candidate[i];
    }
    for (int i = 0; i < n; i++) { /* a logarithmic axis has no 0: no loss is drawn left of the smallest one */
        exact += candidate[i].loss == 0;
        candidate[i].x = candidate[i].loss > 0 ? candidate[i].loss : least / 4;
    }
    for (int i = 0; i < s->advice_count; i++) foreign += !snapshot_is_folded(s, i) && s->advice[i].foreign;
    if (foreign && all - n > foreign)
        snprintf(note, sizeof note, "not drawn: %d not measured, %d on another text", all - n - foreign,
                 foreign);
    else if (foreign)
        snprintf(note, sizeof note, "not drawn: %d measured on another text", foreign);
    else if (all > n)
        snprintf(note, sizeof note, "loss of %d not measured", all - n);
    if (exact) /* the axis is logarithmic: without this, its leftmost number would be read as their loss */
        snprintf(note + strlen(note), sizeof note - strlen(note), "%sleft edge: no loss", *note ? "; " : "");
    snprintf(title, sizeof title, "Speed by loss%s%s (number: row)", s->quality.text[0] ? " on " : "",
             s->quality.text);
    struct rect in = grid_box(g, area, title, note);
    if (!pareto_losses(s)) {
        grid_wrap(
            g, in, ROLE_DIM,
            "n/a: the loss of none of these was measured. 6 shows what was measured, and the command that "
            "measures it.");
        return;
    }
    struct rect chart = in;
    if (in.w >= 3 * MEMORY) {
        chart.w -= MEMORY;
        draw_memory(g, (struct rect){ in.x + chart.w + 1, in.y, MEMORY - 1, in.h }, candidate, n);
    }
    draw_candidates(g, chart, (struct axis){ .log = true, .name = "nats", .show = figure_nats },
                    (struct axis){ .name = "tok/s", .show = figure_number }, candidate, n, chosen);
}
