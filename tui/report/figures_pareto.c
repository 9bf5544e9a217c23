/* tui/report/figures_pareto.c - what speed costs: the compared metric against quality, or against memory.
 * Only axes that were measured are drawn. */
#include "tui/report/content.h"

#include <math.h>

/* One arm on both axes; less is better on y. */
struct place {
    double x, x_low, x_high, y;
};

static struct place place_of(const struct report_source *s, int arm, double y)
{
    const struct experiment_arm *a = &s->state.arm[arm];
    struct place at = { a->rate, NAN, NAN, y };
    if (!arm) return at;
    const struct comparison *c = report_comparison(s, arm);
    const struct interval i = c->effect;
    const double base = s->state.arm[0].rate;
    const double low = base * (1 + report_change(s, i.lower)), high = base * (1 + report_change(s, i.upper));
    at.x_low = fmin(low, high);
    at.x_high = fmax(low, high);
    return at;
}

static bool is_beaten(const struct place *p, const struct place *by, int better)
{
    const double gain = better < 0 ? p->x - by->x : by->x - p->x;
    return gain >= 0 && by->y <= p->y && (gain > 0 || by->y < p->y);
}

/* The arms that no other beats on both axes are named so. */
static void place_arms(struct plot *p, struct report *r, const struct report_source *s,
                       const struct place *at)
{
    const int better = report_metric(s)->better;
    for (int a = 0; a < report_arms(s); a++) {
        if (!isfinite(at[a].x) || !isfinite(at[a].y)) continue;
        bool beaten = false;
        for (int b = 0; b < report_arms(s); b++)
            beaten = beaten || (b != a && is_beaten(&at[a], &at[b], better));
        struct plot_point point = PLOT_NOWHERE;
        point.x = at[a].x;
        point.y = at[a].y;
        point.x_low = at[a].x_low;
        point.x_high = at[a].x_high;
        plot_place(p, &r->arena, MARK_INTERVAL, a, point);
        point.label = content_printf(r, "%s %.28s%s", report_arm_name(a),
                                     content_plain(r, s->state.arm[a].line), beaten ? "" : " *");
        struct plot_layer *l = plot_place(p, &r->arena, MARK_DOT, a, point);
        if (l) l->name = content_printf(r, "%s%s", report_arm_name(a), beaten ? "" : " *");
    }
}

struct cost {
    const char *title, *axis;
    enum plot_unit unit;
    double (*of)(const struct experiment_arm *a);
};

static double memory_of(const struct experiment_arm *a)
{
    return a->peak_rss_bytes >= 0 ? (double)a->peak_rss_bytes : NAN;
}

static double perplexity_of(const struct experiment_arm *a)
{
    return a->perplexity;
}

static double energy_of(const struct experiment_arm *a)
{
    return a->joules_per_token;
}

static void cost_plot(struct figure_plots *f, struct report *r, const struct report_source *s,
                      const struct cost *cost)
{
    struct place at[EXPERIMENT_ARMS];
    int known = 0;
    for (int a = 0; a < report_arms(s); a++) {
        at[a] = place_of(s, a, cost->of(&s->state.arm[a]));
        known += isfinite(at[a].x) && isfinite(at[a].y);
    }
    struct plot *p = known > 1 ? figure_plot(f, r) : NULL;
    if (!p) return;
    p->title = cost->title;
    p->height = 190;
    p->x = (struct plot_axis){ content_printf(r, "%s (%s is better)", report_metric(s)->name,
                                              report_metric(s)->better < 0 ? "left" : "right"),
                               UNIT_NUMBER,
                               false,
                               NAN,
                               NAN,
                               NULL,
                               0 };
    p->y = (struct plot_axis){ cost->axis, cost->unit, false, NAN, NAN, NULL, 0 };
    place_arms(p, r, s, at);
}

int figure_pareto(struct figure_plots *f, struct report *r, const struct report_source *s)
{
    static const struct cost COSTS[] = {
        { "Speed and quality", "perplexity (down is better)", UNIT_NUMBER, perplexity_of },
        { "Speed and memory", "peak memory (down is better)", UNIT_BYTES, memory_of },
        { "Speed and energy", "joules per token (down is better)", UNIT_NUMBER, energy_of },
    };
    *f = (struct figure_plots){
        .title = "What it costs",
        .reading =
            "An arm with a star is on the Pareto front: no other arm is at least as good on both axes. Bars are 95 % "
            "intervals where they are known, drawn around A's mean for the compared metric."
    };
    const struct metric *m = report_metric(s);
    for (size_t i = 0; i < COUNT_OF(COSTS); i++) {
        if ((m == &METRICS[METRIC_PERPLEXITY] && i == 0) || (m == &METRICS[METRIC_PEAK_MEMORY] && i == 1) ||
            (m == &METRICS[METRIC_ENERGY] && i == 2))
            continue; /* against itself it says nothing */
        cost_plot(f, r, s, &COSTS[i]);
    }
    return f->plots;
}
