/* tui/report/figures_pareto.c - what speed costs: the compared metric against quality, or against memory.
 * Only axes that were measured are drawn. */
#include "tui/report/content.h"

#include <math.h>

#include "advisor/experiment/experiment.h"
#include "advisor/stats/stats.h"

/* One arm on both axes; less is better on y. */
struct place {
    double x, x_low, x_high, y, y_low, y_high;
};

/* A's mean has no interval here: the others' are about how they differ from it. */
static struct place place_of(const struct report_source *s, int arm, struct interval y)
{
    struct place at = { s->state.arm[arm].rate, NAN, NAN, y.estimate, y.lower, y.upper };
    if (!arm) return at;
    const struct interval i = report_comparison(s, arm)->effect;
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
        point.y_low = at[a].y_low;
        point.y_high = at[a].y_high;
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
    enum metric_id same; /* against itself it says nothing */
    struct interval (*of)(const struct report_source *s, int arm);
};

static struct interval memory_of(const struct report_source *s, int arm)
{
    const int64_t bytes = s->state.arm[arm].peak_rss_bytes;
    return (struct interval){ bytes >= 0 ? (double)bytes : (double)NAN, NAN, NAN };
}

static struct interval perplexity_of(const struct report_source *s, int arm)
{
    return (struct interval){ s->state.arm[arm].perplexity, NAN, NAN };
}

static struct interval energy_of(const struct report_source *s, int arm)
{
    return (struct interval){ s->state.arm[arm].joules_per_token, NAN, NAN };
}

/* A is the reference, 0 away from itself. */
static struct interval divergence_of(const struct report_source *s, int arm)
{
    const struct quality *q = &report_comparison(s, arm)->quality;
    if (!arm) return (struct interval){ 0, NAN, NAN };
    return q->known ? q->kld : (struct interval){ NAN, NAN, NAN };
}

static void cost_plot(struct figure_plots *f, struct report *r, const struct report_source *s,
                      const struct cost *cost)
{
    struct place at[EXPERIMENT_ARMS];
    int known = 0;
    for (int a = 0; a < report_arms(s); a++) {
        at[a] = place_of(s, a, cost->of(s, a));
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
        { "Speed and quality", "KL divergence from A, nats (down is better)", UNIT_NUMBER, METRIC_KLD,
          divergence_of },
        { "Speed and perplexity", "perplexity (down is better)", UNIT_NUMBER, METRIC_PERPLEXITY,
          perplexity_of },
        { "Speed and memory", "peak memory (down is better)", UNIT_BYTES, METRIC_PEAK_MEMORY, memory_of },
        { "Speed and energy", "joules per token (down is better)", UNIT_NUMBER, METRIC_ENERGY, energy_of },
    };
    *f = (struct figure_plots){
        .title = "What it costs",
        .reading =
            "An arm with a star is on the Pareto front: no other arm is at least as good on both axes. Bars are 95 % "
            "intervals where they are known, drawn around A's mean for the compared metric."
    };
    for (size_t i = 0; i < COUNT_OF(COSTS); i++)
        if (report_metric(s) != &METRICS[COSTS[i].same]) cost_plot(f, r, s, &COSTS[i]);
    return f->plots;
}
