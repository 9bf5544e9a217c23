/* figures_cells.c - the figure about single cells: how much their results and the times between tokens
 * vary. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "telemetry/metrics/metrics.h"
#include "tui/report/content.h"

static bool cell_counts(const struct report_cell *c)
{
    return cell_phase_is(c->phase, PHASE_SPEED) && !c->discarded;
}

static bool cell_is_of_arm(const struct report_source *s, const struct report_cell *c, int arm)
{
    return c->arm == arm && arm < experiment_arms(&s->state.spec);
}

/* ---------------------------------------------------------------- latencies */

enum { BINS = 56 };

struct bin_counts {
    double low, high; /* over all arms, > 0 */
    double share[EXPERIMENT_ARMS][BINS];
    int64_t n[EXPERIMENT_ARMS];
};

/* Lower edge of a bin; the bins are equally wide in logs. */
static double bin_edge(const struct bin_counts *h, int bin)
{
    return h->low * pow(h->high / h->low, (double)bin / BINS);
}

static int bin_index(const struct bin_counts *h, double v)
{
    const int bin = (int)(BINS * log(v / h->low) / log(h->high / h->low));
    return bin < 0 ? 0 : bin >= BINS ? BINS - 1 : bin;
}

/* Returns false without any latency. */
static bool histogram_fill(struct bin_counts *h, const struct report_source *s)
{
    *h = (struct bin_counts){ .low = INFINITY, .high = 0 };
    for (int i = 0; i < s->cells; i++)
        for (int k = 0; k < s->cell[i].itls && cell_counts(&s->cell[i]); k++) {
            const double v = s->cell[i].itl[k];
            if (!(v > 0) || !isfinite(v)) continue;
            h->low = fmin(h->low, v);
            h->high = fmax(h->high, v);
        }
    if (!(h->high > 0)) return false;
    if (h->high < 1.05 * h->low) h->high = 1.05 * h->low;
    for (int i = 0; i < s->cells; i++)
        for (int k = 0; k < s->cell[i].itls && cell_counts(&s->cell[i]); k++) {
            const double v = s->cell[i].itl[k];
            if (!(v > 0) || !isfinite(v) || s->cell[i].arm < 0 ||
                s->cell[i].arm >= experiment_arms(&s->state.spec))
                continue;
            h->share[s->cell[i].arm][bin_index(h, v)]++;
            h->n[s->cell[i].arm]++;
        }
    for (int a = 0; a < experiment_arms(&s->state.spec); a++)
        for (int b = 0; b < BINS && h->n[a]; b++) h->share[a][b] /= (double)h->n[a];
    return true;
}

/* The outline of the histogram of an arm, and with `body` a pale area below it. */
static void histogram_layers(struct plot *p, struct report *r, const struct bin_counts *h, int arm, bool body)
{
    struct plot_layer *fill = body ? plot_layer(p, &r->arena, MARK_BAND, arm, 2 * BINS) : NULL;
    for (int b = 0; fill && b < BINS; b++)
        for (int side = 0; side < 2; side++) {
            struct plot_point *at = &fill->point[2 * b + side];
            at->x = bin_edge(h, b + side);
            at->y_low = 0;
            at->y_high = h->share[arm][b];
        }
    if (fill) fill->soft = true;
    struct plot_layer *line = plot_layer(p, &r->arena, MARK_STEP, arm, BINS + 2);
    for (int b = 0; line && b <= BINS + 1; b++) {
        line->point[b].x = bin_edge(h, b ? b - 1 : 0);
        line->point[b].y = b && b <= BINS ? h->share[arm][b - 1] : 0;
    }
    if (line) line->name = content_printf(r, "%s, %lld tokens", report_arm_name(arm), (long long)h->n[arm]);
}

static void latency_plot(struct figure_plots *f, struct report *r, const struct report_source *s)
{
    struct bin_counts *h = malloc(sizeof *h);
    struct plot *p = NULL;
    if (h && histogram_fill(h, s)) p = figure_plot(f, r);
    if (p) {
        p->title = "Time between tokens";
        p->height = 200;
        p->x = (struct plot_axis){ .title = "time from one token to the next (logarithmic)",
                                   .unit = UNIT_SECONDS,
                                   .log = true,
                                   .low = NAN,
                                   .high = NAN };
        p->y = (struct plot_axis){
            .title = "share of the tokens", .unit = UNIT_SHARE, .low = 0, .high = NAN
        };
        for (int a = 0; a < experiment_arms(&s->state.spec); a++)
            if (h->n[a]) histogram_layers(p, r, h, a, experiment_arms(&s->state.spec) <= 2);
    }
    r->failed = r->failed || !h;
    free(h);
}

/* ---------------------------------------------------------------- cells */

static int kept_cells(const struct report_source *s, int arm, double *sum_log)
{
    const int metric = (int)(experiment_metric(&s->state.spec) - METRICS);
    int n = 0;
    for (int i = 0; i < s->cells; i++) {
        const double v = s->cell[i].value[metric];
        if (!cell_counts(&s->cell[i]) || !cell_is_of_arm(s, &s->cell[i], arm) || !(v > 0)) continue;
        if (sum_log) *sum_log += log(v);
        n++;
    }
    return n;
}

/* The cells of an arm in its lane, the earliest at the top, so that a drift appears as a slope. */
static void lane_draw(struct plot *p, struct report *r, const struct report_source *s, int arm, int lane)
{
    const int metric = (int)(experiment_metric(&s->state.spec) - METRICS);
    double sum = 0;
    const int n = kept_cells(s, arm, &sum);
    if (!n) return;
    struct plot_layer *dots = plot_layer(p, &r->arena, MARK_DOT, arm, n);
    for (int i = 0, k = 0; dots && i < s->cells && k < n; i++) {
        const struct report_cell *c = &s->cell[i];
        if (!cell_counts(c) || !cell_is_of_arm(s, c, arm) || !(c->value[metric] > 0)) continue;
        dots->point[k].x = c->value[metric];
        dots->point[k].y = lane + 0.3 - 0.6 * (n > 1 ? (double)k / (n - 1) : 0.5);
        dots->point[k].hint = content_printf(
            r, "%s, block %d: %s", report_arm_name(arm), c->block,
            report_value(r, experiment_metric(&s->state.spec), c->value[metric]));
        k++;
    }
    if (dots) dots->soft = n > 40;
    struct plot_point mean = PLOT_NOWHERE;
    mean.x = exp(sum / n);
    mean.y_low = lane - 0.42;
    mean.y_high = lane + 0.42;
    mean.y = lane + 0.4;
    mean.label = content_printf(r, "mean %s", report_value(r, experiment_metric(&s->state.spec), mean.x));
    plot_place(p, &r->arena, MARK_INTERVAL, arm, mean);
}

static enum plot_unit metric_unit(const struct metric *m)
{
    return !strcmp(m->unit, "seconds") ? UNIT_SECONDS : !strcmp(m->unit, "bytes") ? UNIT_BYTES : UNIT_NUMBER;
}

static void cells_plot(struct figure_plots *f, struct report *r, const struct report_source *s)
{
    int arms = 0;
    for (int a = 0; a < experiment_arms(&s->state.spec); a++) arms += kept_cells(s, a, NULL) > 0;
    struct plot *p = arms ? figure_plot(f, r) : NULL;
    const char **names = p ? arena_alloc(&r->arena, EXPERIMENT_ARMS * sizeof *names) : NULL;
    if (!names) return;
    for (int a = 0; a < experiment_arms(&s->state.spec); a++)
        names[a] = report_arm_name(experiment_arms(&s->state.spec) - 1 - a);
    p->title = content_printf(r, "Every cell: %s", experiment_metric(&s->state.spec)->help);
    p->height = 52.0 * experiment_arms(&s->state.spec) + 16;
    p->x = (struct plot_axis){ .title = content_printf(
                                   r, "%s (%s is better)", experiment_metric(&s->state.spec)->name,
                                   experiment_metric(&s->state.spec)->better < 0 ? "left" : "right"),
                               .unit = metric_unit(experiment_metric(&s->state.spec)),
                               .low = NAN,
                               .high = NAN };
    p->y = (struct plot_axis){ .unit = UNIT_COUNT,
                               .low = NAN,
                               .high = NAN,
                               .names = names,
                               .n_names = experiment_arms(&s->state.spec) };
    for (int a = 0; a < experiment_arms(&s->state.spec); a++)
        lane_draw(p, r, s, a, experiment_arms(&s->state.spec) - 1 - a);
}

int figure_spread(struct figure_plots *f, struct report *r, const struct report_source *s)
{
    *f = (struct figure_plots){
        .title = "Variation of single measurements",
        .reading =
            "Top: time from one token to the next, for all kept tokens of each arm. A narrow peak means steady speed, a "
            "tail to the right means occasional delays. Bottom: each mark is one cell, the earliest at the top of its lane."
    };
    latency_plot(f, r, s);
    cells_plot(f, r, s);
    return f->plots;
}
