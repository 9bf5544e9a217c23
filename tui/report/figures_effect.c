/* figures_effect.c - the figures about block effects: the interval after each block, the evidence, and the
 * A/A control. */

#include <math.h>

#include "advisor/experiment/experiment.h"
#include "advisor/stats/stats.h"
#include "tui/report/content.h"

static void layer_name(struct plot_layer *l, const char *name)
{
    if (l) l->name = name;
}

/* A horizontal line at y with a label. */
static struct plot_layer *rule_add(struct plot *p, struct report *r, double y, const char *label)
{
    struct plot_point at = PLOT_NOWHERE;
    at.y = y;
    at.label = label;
    return plot_place(p, &r->arena, MARK_RULE, HUE_MUTED, at);
}

/* The range of differences below the margin, as a pale stripe. */
static void margin_draw(struct plot *p, struct report *r, const struct report_source *s)
{
    struct plot_point at = PLOT_NOWHERE;
    const double a = report_change(s, experiment_margin(&s->state.spec)),
                 b = report_change(s, -experiment_margin(&s->state.spec));
    at.y_low = fmin(a, b);
    at.y_high = fmax(a, b);
    struct plot_layer *l = plot_place(p, &r->arena, MARK_BOX, HUE_MUTED, at);
    if (l) l->soft = true;
    layer_name(l, content_printf(r, "below the margin of %.3g %%: too small to matter",
                                 100 * experiment_margin(&s->state.spec)));
}

static void blocks_draw(struct plot *p, struct report *r, const struct report_source *s,
                        const struct comparison *c, int arm)
{
    struct plot_layer *l = plot_layer(p, &r->arena, MARK_DOT, arm, c->blocks);
    for (int i = 0; l && i < c->blocks; i++) {
        l->point[i].x = i + 1;
        l->point[i].y = report_change(s, c->d[i]);
        l->point[i].hint = content_printf(r, "block %d: %s", i + 1,
                                          report_percent(r, experiment_change_of(&s->state, c->d[i])));
    }
    layer_name(l, "one block");
}

/* The interval and the estimate after each block. */
static void interval_draw(struct plot *p, struct report *r, const struct report_source *s,
                          const struct comparison *c, int arm)
{
    struct plot_layer *band = plot_layer(p, &r->arena, MARK_BAND, arm, c->blocks);
    struct plot_layer *line = plot_layer(p, &r->arena, MARK_LINE, arm, c->blocks);
    const double alpha = c->alpha > 0 ? c->alpha : 0.05;
    for (int n = 1; band && line && n <= c->blocks; n++) {
        const struct interval i = evidence_interval(c, n, 1 - alpha);
        const double a = report_change(s, i.lower), b = report_change(s, i.upper);
        band->point[n - 1].x = line->point[n - 1].x = n;
        band->point[n - 1].y_low = fmin(a, b);
        band->point[n - 1].y_high = fmax(a, b);
        line->point[n - 1].y = report_change(s, i.estimate);
    }
    if (band) band->loose = true;
    if (line) line->soft = true;
    layer_name(band, content_printf(r, "%.3g %% interval after each block, valid at every interim analysis",
                                    100 * (1 - alpha)));
    layer_name(line, "estimate so far");
}

static struct plot *effect_plot(struct figure_plots *f, struct report *r, const struct report_source *s,
                                const struct comparison *c, int arm)
{
    struct plot *p = figure_plot(f, r);
    if (!p) return NULL;
    p->x = (struct plot_axis){
        .title = "block", .unit = UNIT_COUNT, .low = 0.5, .high = fmax(c->blocks, 2) + 0.5
    };
    p->y = (struct plot_axis){ .title = content_printf(
                                   r, "%s of %s against A (%s is better)",
                                   experiment_metric(&s->state.spec)->name, report_arm_name(arm),
                                   experiment_metric(&s->state.spec)->better < 0 ? "down" : "up"),
                               .unit = UNIT_CHANGE,
                               .low = NAN,
                               .high = NAN };
    return p;
}

/* Sets the range of the y axis: all blocks and the last interval (early ones are huge), with `zero` also 0.
 */
static void y_range_set(struct plot *p, const struct report_source *s, const struct comparison *c, bool zero)
{
    double low = zero ? fmin(0, report_change(s, -experiment_margin(&s->state.spec))) : (double)INFINITY;
    double high = zero ? fmax(0, report_change(s, experiment_margin(&s->state.spec))) : (double)-INFINITY;
    for (int i = 0; i < c->blocks; i++) {
        low = fmin(low, report_change(s, c->d[i]));
        high = fmax(high, report_change(s, c->d[i]));
    }
    const double a = report_change(s, c->effect.lower), b = report_change(s, c->effect.upper);
    low = fmin(low, fmin(a, b)); /* fmin and fmax ignore NaN */
    high = fmax(high, fmax(a, b));
    const double air = 0.08 * (high - low);
    p->y.low = low - air;
    p->y.high = high + air;
}

int figure_effect(struct figure_plots *f, struct report *r, const struct report_source *s,
                  const struct comparison *c, int arm)
{
    const bool confirming = c == &s->state.confirmation;
    *f = (struct figure_plots){
        .title = content_printf(r, "%s against A, block by block%s", report_arm_name(arm),
                                confirming ? ", confirmation" : ""),
        .reading =
            "Each mark is one block. The arms run alternately and in reverse order in the second half of a block, so "
            "that a steady drift of the machine cancels. The band is the 95 % interval of the true difference after "
            "each block; it becomes narrower with more blocks. A difference is proven when the band excludes 0."
    };
    if (!c->blocks) return 0;
    struct plot *p = effect_plot(f, r, s, c, arm);
    if (!p) return 0;
    margin_draw(p, r, s);
    rule_add(p, r, 0, "no difference");
    interval_draw(p, r, s, c, arm);
    blocks_draw(p, r, s, c, arm);
    y_range_set(p, s, c, true);
    const double sd = stats_sd(c->d, c->blocks), far = fabs(c->effect.estimate);
    if (!(sd > 0) || far < 8 * sd) return f->plots;
    struct plot *near = effect_plot(f, r, s, c,
                                    arm); /* 0 is far away: a second plot without it shows the spread */
    if (!near) return f->plots;
    p->height = 170;
    near->title = "The same, enlarged";
    near->height = 190;
    interval_draw(near, r, s, c, arm);
    blocks_draw(near, r, s, c, arm);
    y_range_set(near, s, c, false);
    for (int i = 0; i < near->layers; i++) near->layer[i].name = NULL;
    return f->plots;
}

/* ---------------------------------------------------------------- evidence */

enum { ENOUGH = 20 };

static double sign_evidence(const double *d, int n)
{
    int positive = 0, all = 0;
    for (int i = 0; i < n; i++) {
        positive += d[i] > 0;
        all += d[i] != 0;
    }
    return stats_sign_evalue(positive, all);
}

static void evidence_draw(struct plot *p, struct report *r, const struct comparison *c, int arm)
{
    struct plot_layer *t = plot_layer(p, &r->arena, MARK_STEP, arm, c->blocks);
    struct plot_layer *dots = plot_layer(p, &r->arena, MARK_DOT, arm, c->blocks);
    int reached = 0;
    for (int n = 1; t && dots && n <= c->blocks; n++) {
        const double e = evidence_evalue(c, n);
        t->point[n - 1].x = dots->point[n - 1].x = n;
        t->point[n - 1].y = dots->point[n - 1].y = e;
        dots->point[n - 1].hint = content_printf(r, "after block %d: e = %.3g", n, e);
        if (!reached && e >= ENOUGH) reached = n;
    }
    if (dots)
        layer_name(dots, reached ? content_printf(r, "%s: enough evidence after block %d",
                                                  report_arm_name(arm), reached)
                                 : content_printf(r, "%s: not enough evidence", report_arm_name(arm)));
}

int figure_evidence(struct figure_plots *f, struct report *r, const struct report_source *s)
{
    *f = (struct figure_plots){
        .title = "Evidence for a difference",
        .reading =
            "The e-value is the capital of a bettor who started with 1 and bet against \"no difference\" in every block. "
            "Without a difference it reaches 20 in at most one of twenty experiments, however many interim analyses "
            "there are. So at 20 a difference may be claimed and the run may stop. Equivalence does not need this "
            "evidence but a narrow interval."
    };
    double most = ENOUGH * 5;
    int blocks = 0;
    for (int k = 1; k < experiment_arms(&s->state.spec); k++) {
        const struct comparison *c = experiment_comparison(&s->state, k);
        blocks = MAX(blocks, c->blocks);
        for (int n = 1; n <= c->blocks; n++) most = fmax(most, 3 * evidence_evalue(c, n));
    }
    if (blocks < 2) return 0;
    struct plot *p = figure_plot(f, r);
    if (!p) return 0;
    p->height = 180;
    p->x = (struct plot_axis){ .title = "block", .unit = UNIT_COUNT, .low = 0.5, .high = blocks + 0.5 };
    p->y = (struct plot_axis){ .title = "e-value", .log = true, .low = 0.05, .high = fmin(most, 1e6) };
    rule_add(p, r, ENOUGH, "enough evidence: 20");
    for (int k = 1; k < experiment_arms(&s->state.spec); k++)
        evidence_draw(p, r, experiment_comparison(&s->state, k), k);
    if (experiment_arms(&s->state.spec) > 2) return f->plots;
    const struct comparison *c = experiment_comparison(&s->state, 1);
    struct plot_layer *sign = plot_layer(p, &r->arena, MARK_STEP, HUE_MUTED, c->blocks);
    for (int n = 1; sign && n <= c->blocks; n++) {
        sign->point[n - 1].x = n;
        sign->point[n - 1].y = sign_evidence(c->d, n);
    }
    if (sign) sign->soft = true;
    layer_name(sign, "from the signs alone (fewest assumptions)");
    return f->plots;
}

/* ---------------------------------------------------------------- control */

int figure_control(struct figure_plots *f, struct report *r, const struct report_source *s)
{
    const struct experiment_state *x = &s->state;
    *f = (struct figure_plots){
        .title = "A against itself",
        .reading =
            "Blocks with A in all places: every difference here comes from the machine, not from the configuration. The "
            "shaded stripe is the noise floor, half the width of the 95 % interval."
    };
    if (!x->control_blocks) return 0;
    struct plot *p = figure_plot(f, r);
    if (!p) return 0;
    p->height = 160;
    p->x = (struct plot_axis){
        .title = "control block", .unit = UNIT_COUNT, .low = 0.5, .high = fmax(x->control_blocks, 2) + 0.5
    };
    p->y = (struct plot_axis){ .title = content_printf(r, "%s of A against A",
                                                       experiment_metric(&s->state.spec)->name),
                               .unit = UNIT_CHANGE,
                               .low = NAN,
                               .high = NAN };
    if (isfinite(x->noise_floor)) {
        struct plot_point at = PLOT_NOWHERE;
        at.y_low = expm1(-x->noise_floor);
        at.y_high = expm1(x->noise_floor);
        struct plot_layer *l = plot_place(p, &r->arena, MARK_BOX, 0, at);
        if (l) l->soft = true;
        layer_name(l, content_printf(r, "noise floor %.2f %%", stats_percent(x->noise_floor)));
    }
    struct plot_layer *margin = rule_add(p, r, expm1(experiment_margin(&s->state.spec)), "margin");
    struct plot_layer *below = rule_add(p, r, expm1(-experiment_margin(&s->state.spec)), NULL);
    if (margin) margin->soft = true;
    if (below) below->soft = true;
    rule_add(p, r, 0, NULL);
    struct plot_layer *l = plot_layer(p, &r->arena, MARK_DOT, 0, x->control_blocks);
    for (int i = 0; l && i < x->control_blocks; i++) {
        l->point[i].x = i + 1;
        l->point[i].y = report_change(s, x->control_d[i]);
        l->point[i].hint = content_printf(
            r, "control block %d: %s", i + 1,
            report_percent(r, experiment_change_of(&s->state, x->control_d[i])));
    }
    layer_name(l, "one control block");
    return f->plots;
}
