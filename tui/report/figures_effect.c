/* tui/report/figures_effect.c - the figures about block effects: the comparison closing in, its evidence, and
 * the control beside it. */
#include "tui/report/content.h"

#include <math.h>

#include "advisor/experiment/experiment.h"
#include "advisor/stats/stats.h"

static void name_it(struct plot_layer *l, const char *name)
{
    if (l) l->name = name;
}

static struct plot_layer *rule_y(struct plot *p, struct report *r, double y, const char *label)
{
    struct plot_point at = PLOT_NOWHERE;
    at.y = y;
    at.label = label;
    return plot_place(p, &r->arena, MARK_RULE, HUE_MUTED, at);
}

static double margin_of(const struct report_source *s)
{
    return s->state.spec.margin > 0 ? s->state.spec.margin : 0.01;
}

/* What is too small to matter, as a pale stripe with its two edges. */
static void margin_zone(struct plot *p, struct report *r, const struct report_source *s)
{
    struct plot_point at = PLOT_NOWHERE;
    const double a = report_change(s, margin_of(s)), b = report_change(s, -margin_of(s));
    at.y_low = fmin(a, b);
    at.y_high = fmax(a, b);
    struct plot_layer *l = plot_place(p, &r->arena, MARK_BOX, HUE_MUTED, at);
    if (l) l->soft = true;
    name_it(l, content_printf(r, "too small to matter (margin %.3g %%)", 100 * margin_of(s)));
}

static void block_dots(struct plot *p, struct report *r, const struct report_source *s,
                       const struct comparison *c, int arm)
{
    struct plot_layer *l = plot_layer(p, &r->arena, MARK_DOT, arm, c->blocks);
    for (int i = 0; l && i < c->blocks; i++) {
        l->point[i].x = i + 1;
        l->point[i].y = report_change(s, c->d[i]);
        l->point[i].hint = content_printf(r, "block %d: %s", i + 1, report_percent(r, s, c->d[i]));
    }
    name_it(l, "one block");
}

/* The interval as it stood after each block, and the estimate in it. */
static void closing_band(struct plot *p, struct report *r, const struct report_source *s,
                         const struct comparison *c, int arm)
{
    struct plot_layer *band = plot_layer(p, &r->arena, MARK_BAND, arm, c->blocks);
    struct plot_layer *line = plot_layer(p, &r->arena, MARK_LINE, arm, c->blocks);
    const double alpha = c->alpha > 0 ? c->alpha : 0.05;
    for (int n = 1; band && line && n <= c->blocks; n++) {
        const struct interval i = stats_anytime_interval(c->d, n, 1 - alpha);
        const double a = report_change(s, i.lower), b = report_change(s, i.upper);
        band->point[n - 1].x = line->point[n - 1].x = n;
        band->point[n - 1].y_low = fmin(a, b);
        band->point[n - 1].y_high = fmax(a, b);
        line->point[n - 1].y = report_change(s, i.estimate);
    }
    if (band) band->loose = true;
    if (line) line->soft = true;
    name_it(band, content_printf(r, "%.3g %% interval so far, valid at every look", 100 * (1 - alpha)));
    name_it(line, "estimate so far");
}

static struct plot *effect_plot(struct figure_plots *f, struct report *r, const struct report_source *s,
                                const struct comparison *c, int arm)
{
    struct plot *p = figure_plot(f, r);
    if (!p) return NULL;
    p->x = (struct plot_axis){ "block", UNIT_COUNT, false, 0.5, fmax(c->blocks, 2) + 0.5, NULL, 0 };
    p->y = (struct plot_axis){ content_printf(r, "%s of %s against A (%s is better)", report_metric(s)->name,
                                              report_arm_name(arm),
                                              report_metric(s)->better < 0 ? "down" : "up"),
                               UNIT_CHANGE,
                               false,
                               NAN,
                               NAN,
                               NULL,
                               0 };
    return p;
}

/* What the axis spans: all blocks and the last interval (the early ones are huge), and 0 if asked for. */
static void span(struct plot *p, const struct report_source *s, const struct comparison *c, bool zero)
{
    double low = zero ? fmin(0, report_change(s, -margin_of(s))) : (double)INFINITY;
    double high = zero ? fmax(0, report_change(s, margin_of(s))) : (double)-INFINITY;
    for (int i = 0; i < c->blocks; i++) {
        low = fmin(low, report_change(s, c->d[i]));
        high = fmax(high, report_change(s, c->d[i]));
    }
    const double a = report_change(s, c->effect.lower), b = report_change(s, c->effect.upper);
    low = fmin(low, fmin(a, b)); /* fmin and fmax ignore what is not known */
    high = fmax(high, fmax(a, b));
    const double air = 0.08 * (high - low);
    p->y.low = low - air;
    p->y.high = high + air;
}

int figure_effect(struct figure_plots *f, struct report *r, const struct report_source *s,
                  const struct comparison *c, int arm)
{
    const bool afresh = c == &s->state.confirmation;
    *f = (struct figure_plots){
        .title = content_printf(r, "%s against A, block by block%s", report_arm_name(arm),
                                afresh ? ", measured afresh" : ""),
        .reading =
            "Each mark is one block: the arms run in turns, their order reversed in its second half, so that a "
            "steady drift of the machine cancels. The band is where the true difference lies with 95 % "
            "confidence, as it was known after each block; it closes in as blocks come. A difference is shown "
            "once the band leaves the line at 0."
    };
    if (!c->blocks) return 0;
    struct plot *p = effect_plot(f, r, s, c, arm);
    if (!p) return 0;
    margin_zone(p, r, s);
    rule_y(p, r, 0, "no difference");
    closing_band(p, r, s, c, arm);
    block_dots(p, r, s, c, arm);
    span(p, s, c, true);
    const double sd = stats_sd(c->d, c->blocks), far = fabs(c->effect.estimate);
    if (!(sd > 0) || far < 8 * sd) return f->plots;
    struct plot *near = effect_plot(f, r, s, c, arm); /* 0 is far off: the same without it shows the spread */
    if (!near) return f->plots;
    p->height = 170;
    near->title = "The same, closer";
    near->height = 190;
    closing_band(near, r, s, c, arm);
    block_dots(near, r, s, c, arm);
    span(near, s, c, false);
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

static void evidence_of(struct plot *p, struct report *r, const struct comparison *c, int arm)
{
    struct plot_layer *t = plot_layer(p, &r->arena, MARK_STEP, arm, c->blocks);
    struct plot_layer *dots = plot_layer(p, &r->arena, MARK_DOT, arm, c->blocks);
    int reached = 0;
    for (int n = 1; t && dots && n <= c->blocks; n++) {
        const double e = stats_coin_evalue(c->d, n);
        t->point[n - 1].x = dots->point[n - 1].x = n;
        t->point[n - 1].y = dots->point[n - 1].y = e;
        dots->point[n - 1].hint = content_printf(r, "after block %d: e = %.3g", n, e);
        if (!reached && e >= ENOUGH) reached = n;
    }
    if (dots)
        name_it(dots, reached ? content_printf(r, "%s: enough after block %d", report_arm_name(arm), reached)
                              : content_printf(r, "%s: not enough yet", report_arm_name(arm)));
}

int figure_evidence(struct figure_plots *f, struct report *r, const struct report_source *s)
{
    *f = (struct figure_plots){
        .title = "Evidence for a difference",
        .reading =
            "The e-value is what a bet against \"no difference\" would have won so far, having staked 1. With no "
            "difference it reaches 20 in at most one experiment of twenty, however often somebody looks; so at 20 "
            "a difference may be claimed, and the run may stop. An equivalence needs no such evidence: it "
            "needs a narrow interval."
    };
    double most = ENOUGH * 5;
    int blocks = 0;
    for (int k = 1; k < report_arms(s); k++) {
        const struct comparison *c = report_comparison(s, k);
        blocks = MAX(blocks, c->blocks);
        for (int n = 1; n <= c->blocks; n++) most = fmax(most, 3 * stats_coin_evalue(c->d, n));
    }
    if (blocks < 2) return 0;
    struct plot *p = figure_plot(f, r);
    if (!p) return 0;
    p->height = 180;
    p->x = (struct plot_axis){ "block", UNIT_COUNT, false, 0.5, blocks + 0.5, NULL, 0 };
    p->y = (struct plot_axis){ "e-value", UNIT_NUMBER, true, 0.05, fmin(most, 1e6), NULL, 0 };
    rule_y(p, r, ENOUGH, "enough: 20");
    for (int k = 1; k < report_arms(s); k++) evidence_of(p, r, report_comparison(s, k), k);
    if (report_arms(s) > 2) return f->plots;
    const struct comparison *c = report_comparison(s, 1);
    struct plot_layer *sign = plot_layer(p, &r->arena, MARK_STEP, HUE_MUTED, c->blocks);
    for (int n = 1; sign && n <= c->blocks; n++) {
        sign->point[n - 1].x = n;
        sign->point[n - 1].y = sign_evidence(c->d, n);
    }
    if (sign) sign->soft = true;
    name_it(sign, "from signs alone (assumes least)");
    return f->plots;
}

/* ---------------------------------------------------------------- control */

int figure_control(struct figure_plots *f, struct report *r, const struct report_source *s)
{
    const struct experiment_state *x = &s->state;
    *f = (struct figure_plots){
        .title = "A against itself",
        .reading =
            "The same block with A in all places: whatever shows here is the machine, not the configuration. The "
            "shaded stripe is the noise floor, half the width of the 95 % interval."
    };
    if (!x->control_blocks) return 0;
    struct plot *p = figure_plot(f, r);
    if (!p) return 0;
    p->height = 160;
    p->x = (struct plot_axis){
        "control block", UNIT_COUNT, false, 0.5, fmax(x->control_blocks, 2) + 0.5, NULL, 0
    };
    p->y = (struct plot_axis){
        content_printf(r, "%s of A against A", report_metric(s)->name), UNIT_CHANGE, false, NAN, NAN, NULL, 0
    };
    if (isfinite(x->noise_floor)) {
        struct plot_point at = PLOT_NOWHERE;
        at.y_low = expm1(-x->noise_floor);
        at.y_high = expm1(x->noise_floor);
        struct plot_layer *l = plot_place(p, &r->arena, MARK_BOX, 0, at);
        if (l) l->soft = true;
        name_it(l, content_printf(r, "noise floor %.2f %%", 100 * expm1(x->noise_floor)));
    }
    struct plot_layer *margin = rule_y(p, r, expm1(margin_of(s)), "margin");
    struct plot_layer *below = rule_y(p, r, expm1(-margin_of(s)), NULL);
    if (margin) margin->soft = true;
    if (below) below->soft = true;
    rule_y(p, r, 0, NULL);
    struct plot_layer *l = plot_layer(p, &r->arena, MARK_DOT, 0, x->control_blocks);
    for (int i = 0; l && i < x->control_blocks; i++) {
        l->point[i].x = i + 1;
        l->point[i].y = report_change(s, x->control_d[i]);
        l->point[i].hint = content_printf(r, "control block %d: %s", i + 1,
                                          report_percent(r, s, x->control_d[i]));
    }
    name_it(l, "one control block");
    return f->plots;
}
