/* figures_pareto.c - the figure about costs: the compared metric against quality, memory and energy. Only
 * measured quantities are drawn. */

#include <math.h>

#include "advisor/experiment/experiment.h"
#include "advisor/stats/stats.h"
#include "telemetry/metrics/metrics.h"
#include "tui/report/content.h"

/* One arm on both axes; less is better on y. */
struct place {
    double x, x_low, x_high, y, y_low, y_high;
};

static struct place arm_place(const struct report_source *s, int arm, struct interval y)
{
    const struct interval x = experiment_rate(&s->state, arm);
    return (struct place){ x.estimate, x.lower, x.upper, y.estimate, y.lower, y.upper };
}

/* Does another arm dominate this one on both axes? */
static bool is_beaten(const struct report_source *s, const struct place *at, int arm)
{
    const int better = metric_sign(experiment_metric(&s->state.spec));
    const double gain[] = { better * at[arm].x, -at[arm].y };
    for (int b = 0; b < experiment_arms(&s->state.spec); b++)
        if (b != arm && stats_dominates((const double[]){ better * at[b].x, -at[b].y }, gain, 2)) return true;
    return false;
}

/* Draws the arms. Those on the Pareto front get a star. */
static void arms_draw(struct plot *p, struct report *r, const struct report_source *s, const struct place *at)
{
    for (int a = 0; a < experiment_arms(&s->state.spec); a++) {
        if (!isfinite(at[a].x) || !isfinite(at[a].y)) continue;
        const bool beaten = is_beaten(s, at, a);
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
    enum metric_id same; /* the metric of this cost: the plot is left out if it is the compared metric */
    struct interval (*of)(const struct report_source *s, int arm);
};

static struct interval memory_of(const struct report_source *s, int arm)
{
    const int64_t bytes = metric_bytes(s->state.arm[arm].value[METRIC_PEAK_MEMORY]);
    return (struct interval){ bytes >= 0 ? (double)bytes : (double)NAN, NAN, NAN };
}

static struct interval perplexity_of(const struct report_source *s, int arm)
{
    return (struct interval){ s->state.arm[arm].value[METRIC_PERPLEXITY], NAN, NAN };
}

static struct interval energy_of(const struct report_source *s, int arm)
{
    const struct experiment_arm *a = &s->state.arm[arm];
    return (struct interval){ a->joules_per_token, a->joules_per_token - a->joules_per_token_half,
                              a->joules_per_token + a->joules_per_token_half };
}

/* The divergence of A, the reference, is 0. */
static struct interval divergence_of(const struct report_source *s, int arm)
{
    const struct quality *q = &s->state.comparison[arm].quality;
    if (!arm) return (struct interval){ 0, NAN, NAN };
    return q->known ? q->kld : (struct interval){ NAN, NAN, NAN };
}

static void cost_plot(struct figure_plots *f, struct report *r, const struct report_source *s,
                      const struct cost *cost)
{
    struct place at[EXPERIMENT_ARMS];
    int known = 0;
    for (int a = 0; a < experiment_arms(&s->state.spec); a++) {
        at[a] = arm_place(s, a, cost->of(s, a));
        known += isfinite(at[a].x) && isfinite(at[a].y);
    }
    struct plot *p = known > 1 ? figure_plot(f, r) : NULL;
    if (!p) return;
    p->title = cost->title;
    p->height = 190;
    p->x = (struct plot_axis){ .title = content_printf(
                                   r, "%s (%s is better)", experiment_metric(&s->state.spec)->name,
                                   experiment_metric(&s->state.spec)->better < 0 ? "left" : "right"),
                               .low = NAN,
                               .high = NAN };
    p->y = (struct plot_axis){ .title = cost->axis, .unit = cost->unit, .low = NAN, .high = NAN };
    arms_draw(p, r, s, at);
}

int figure_pareto(struct figure_plots *f, struct report *r, const struct report_source *s)
{
    static const struct cost COSTS[] = {
        { .title = "Speed and quality",
          .axis = "KL divergence from A, nats (down is better)",
          .unit = UNIT_NUMBER,
          .same = METRIC_KLD,
          .of = divergence_of },
        { .title = "Speed and perplexity",
          .axis = "perplexity (down is better)",
          .unit = UNIT_NUMBER,
          .same = METRIC_PERPLEXITY,
          .of = perplexity_of },
        { .title = "Speed and memory",
          .axis = "peak memory (down is better)",
          .unit = UNIT_BYTES,
          .same = METRIC_PEAK_MEMORY,
          .of = memory_of },
        { .title = "Speed and energy",
          .axis = "joules per token (down is better)",
          .unit = UNIT_NUMBER,
          .same = METRIC_ENERGY,
          .of = energy_of },
    };
    *f = (struct figure_plots){
        .title = "Speed against cost",
        .reading =
            "An arm with a star is on the Pareto front: no other arm is at least as good on both axes. Bars are 95 % "
            "intervals, if known."
    };
    for (size_t i = 0; i < COUNT_OF(COSTS); i++)
        if (experiment_metric(&s->state.spec) != &METRICS[COSTS[i].same]) cost_plot(f, r, s, &COSTS[i]);
    return f->plots;
}
