/* tui/report/figures_time.c - the run as it happened: which arm ran when, which blocks were thrown away and
 * why, and what clocks, load and temperature did meanwhile.
 *
 * A resumed run has hours in it during which nothing ran: the axis leaves them out and says where. */
#include "tui/report/content.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/experiment/experiment.h"

enum { BINS = 240, PAUSE_S = 60, PAUSES = 16 };

/* Time with the pauses taken out. */
struct timeline {
    double end; /* of the last cell, on the shortened axis */
    int pauses;
    struct pause {
        double at, left_out; /* seconds on the clock of the cells */
    } pause[PAUSES];
};

static double time_at(const struct timeline *t, double seconds)
{
    double shown = seconds;
    for (int i = 0; i < t->pauses; i++)
        if (seconds >= t->pause[i].at + t->pause[i].left_out) shown -= t->pause[i].left_out;
    return shown;
}

static double end_of(const struct report_cell *c)
{
    return c->start_s + (c->seconds > 0 ? c->seconds : 0);
}

static struct timeline timeline_of(const struct report_source *s)
{
    struct timeline t = { 0 };
    double end = 0;
    for (int i = 0; i < s->cells; i++) {
        const double gap = s->cell[i].start_s - end;
        if (i && gap > PAUSE_S && t.pauses < PAUSES) t.pause[t.pauses++] = (struct pause){ end + 1, gap - 2 };
        end = fmax(end, end_of(&s->cell[i]));
    }
    t.end = time_at(&t, end);
    return t;
}

/* ---------------------------------------------------------------- what every panel shows */

/* Discarded blocks from their first cell to their last, as stripes over the whole height. */
static void discarded_stripes(struct plot *p, struct report *r, const struct report_source *s,
                              const struct timeline *t, bool labels)
{
    int n = 0;
    for (int i = 0; i < s->cells; i++) n += s->cell[i].discarded;
    struct plot_layer *l = n ? plot_layer(p, &r->arena, MARK_BOX, HUE_ALERT, n) : NULL;
    if (!l) return;
    l->soft = true;
    l->name = labels ? "discarded block" : NULL;
    int k = -1;
    for (int i = 0; i < s->cells; i++) {
        const struct report_cell *c = &s->cell[i], *before = i ? &s->cell[i - 1] : NULL;
        if (!c->discarded) continue;
        const bool same = k >= 0 && before && before->discarded && before->block == c->block &&
                          before->phase == c->phase;
        if (!same) {
            k++;
            l->point[k].x_low = time_at(t, c->start_s);
            if (labels) l->point[k].hint = content_printf(r, "block %d discarded: %s", c->block, c->reason);
        }
        l->point[k].x_high = time_at(t, end_of(c));
    }
}

static void pause_rules(struct plot *p, struct report *r, const struct timeline *t, bool labels)
{
    for (int i = 0; i < t->pauses; i++) {
        struct plot_point at = PLOT_NOWHERE;
        const double minutes = t->pause[i].left_out / 60;
        at.x = time_at(t, t->pause[i].at);
        if (labels)
            at.label = minutes < 90 ? content_printf(r, "paused %.0f min", minutes)
                                    : content_printf(r, "paused %.1f h", minutes / 60);
        struct plot_layer *l = plot_place(p, &r->arena, MARK_RULE, HUE_MUTED, at);
        if (l) l->soft = true;
    }
}

static struct plot *panel(struct figure_plots *f, struct report *r, const struct timeline *t,
                          const char *title, double height)
{
    struct plot *p = figure_plot(f, r);
    if (!p) return NULL;
    p->title = title;
    p->height = height;
    p->x = (struct plot_axis){ NULL, UNIT_CLOCK, false, 0, fmax(t->end, 1), NULL, 0 };
    return p;
}

/* ---------------------------------------------------------------- which arm when */

static void ribbon(struct plot *p, struct report *r, const struct report_source *s, const struct timeline *t,
                   int arm, int lane)
{
    int n = 0;
    for (int i = 0; i < s->cells; i++) n += s->cell[i].arm == arm;
    struct plot_layer *l = n ? plot_layer(p, &r->arena, MARK_BOX, arm, n) : NULL;
    for (int i = 0, k = 0; l && i < s->cells && k < n; i++) {
        static const char *const PHASES[] = { "warm-up", "control block", "block" };
        const struct report_cell *c = &s->cell[i];
        if (c->arm != arm) continue;
        struct plot_point *at = &l->point[k++];
        at->x_low = time_at(t, c->start_s);
        at->x_high = time_at(t, end_of(c));
        at->y_low = lane - (c->phase == REPORT_BLOCK ? 0.36 : 0.14);
        at->y_high = lane + (c->phase == REPORT_BLOCK ? 0.36 : 0.14);
        at->hint = c->block < 0 ? content_printf(r, "%s, warm-up", report_arm_name(arm))
                                : content_printf(r, "%s, %s %d%s%s", report_arm_name(arm), PHASES[c->phase],
                                                 c->block, *c->reason ? ": " : "", c->reason);
    }
}

static void ribbons(struct figure_plots *f, struct report *r, const struct report_source *s,
                    const struct timeline *t)
{
    struct plot *p = panel(f, r, t, "Which arm ran when (low bars: warm-up and control)",
                           26.0 * report_arms(s) + 8);
    const char **names = p ? arena_alloc(&r->arena, EXPERIMENT_ARMS * sizeof *names) : NULL;
    if (!names) return;
    for (int a = 0; a < report_arms(s); a++) names[a] = report_arm_name(report_arms(s) - 1 - a);
    p->y = (struct plot_axis){ NULL, UNIT_COUNT, false, NAN, NAN, names, report_arms(s) };
    discarded_stripes(p, r, s, t, true);
    for (int a = 0; a < report_arms(s); a++) ribbon(p, r, s, t, a, report_arms(s) - 1 - a);
    pause_rules(p, r, t, true);
}

/* ---------------------------------------------------------------- what the machine did */

struct bins {
    double sum[BINS], low[BINS], high[BINS];
    int n[BINS], all;
};

static void bins_fill(struct bins *b, const struct report_source *s, const struct timeline *t, int metric)
{
    memset(b, 0, sizeof *b);
    for (int i = 0; i < s->cells; i++)
        for (int k = 0; k < s->cell[i].samples; k++) {
            const struct report_sample *sample = &s->cell[i].sample[k];
            if (sample->metric != metric || !isfinite(sample->value)) continue;
            const double at = time_at(t, s->cell[i].start_s + (double)sample->t_s) / fmax(t->end, 1);
            const int bin = at < 0 ? 0 : at >= 1 ? BINS - 1 : (int)(at * BINS);
            b->low[bin] = b->n[bin] ? fmin(b->low[bin], sample->value) : sample->value;
            b->high[bin] = b->n[bin] ? fmax(b->high[bin], sample->value) : sample->value;
            b->sum[bin] += sample->value;
            b->n[bin]++;
            b->all++;
        }
}

static void sensor_line(struct plot *p, struct report *r, const struct bins *b, const struct timeline *t,
                        int hue, const char *name)
{
    int n = 0;
    for (int i = 0; i < BINS; i++) n += b->n[i] > 0;
    struct plot_layer *band = plot_layer(p, &r->arena, MARK_BAND, hue, n);
    struct plot_layer *line = plot_layer(p, &r->arena, MARK_LINE, hue, n);
    for (int i = 0, k = 0; band && line && i < BINS; i++) {
        if (!b->n[i]) continue; /* between two cells nothing is sampled: the line goes on to the next */
        band->point[k].x = line->point[k].x = (i + 0.5) / BINS * fmax(t->end, 1);
        band->point[k].y_low = b->low[i];
        band->point[k].y_high = b->high[i];
        line->point[k++].y = b->sum[i] / b->n[i];
    }
    if (band) band->soft = true;
    if (line) line->soft = true;
    if (line) line->name = name;
}

/* One panel per row; sensors of the same panel share an axis. */
static const struct {
    const char *panel;
    enum plot_unit unit;
    int metric, hue;
    const char *name;
} SENSORS[] = {
    { "Processor clock", UNIT_HERTZ, METRIC_CPU_FREQUENCY, 0, "mean over processors" },
    { "Processors busy", UNIT_SHARE, METRIC_CPU_BUSY, 0, "all programs" },
    { "Processors busy", UNIT_SHARE, METRIC_OTHERS_BUSY, 1, "other programs" },
    { "Processors busy", UNIT_SHARE, METRIC_CPU_STEAL, HUE_ALERT, "taken by the hypervisor" },
    { "Temperature", UNIT_CELSIUS, METRIC_CPU_TEMPERATURE, 0, "processor" },
    { "Temperature", UNIT_CELSIUS, METRIC_GPU_TEMPERATURE, 1, "GPU" },
    { "Power", UNIT_WATTS, METRIC_CPU_POWER, 0, "processor" },
    { "Power", UNIT_WATTS, METRIC_GPU_POWER, 1, "GPU" },
};

static void sensor_panels(struct figure_plots *f, struct report *r, const struct report_source *s,
                          const struct timeline *t, struct bins *b)
{
    struct plot *p = NULL;
    for (size_t i = 0; i < COUNT_OF(SENSORS); i++) {
        if (i && strcmp(SENSORS[i].panel, SENSORS[i - 1].panel)) p = NULL;
        bins_fill(b, s, t, SENSORS[i].metric);
        if (!b->all) continue;
        if (!p) {
            p = panel(f, r, t, SENSORS[i].panel, 84);
            if (!p) return;
            p->y = (struct plot_axis){ NULL,
                                       SENSORS[i].unit,
                                       false,
                                       SENSORS[i].unit == UNIT_SHARE ? 0 : (double)NAN,
                                       SENSORS[i].unit == UNIT_SHARE ? 1.02 : (double)NAN,
                                       NULL,
                                       0 };
            discarded_stripes(p, r, s, t, false);
            pause_rules(p, r, t, false);
        }
        sensor_line(p, r, b, t, SENSORS[i].hue, SENSORS[i].name);
    }
}

int figure_timeline(struct figure_plots *f, struct report *r, const struct report_source *s)
{
    *f = (struct figure_plots){
        .title = "Cells, clocks, load",
        .reading =
            "All panels share one clock. Lines are means, the stripe around them the range. A block that something "
            "else on the machine disturbed is shaded: it was thrown away whole, by rules fixed beforehand that "
            "never look at how fast a cell was, and run again."
    };
    if (!s->cells) return 0;
    const struct timeline t = timeline_of(s);
    struct bins *b = malloc(sizeof *b);
    if (!b) {
        r->failed = true;
        return 0;
    }
    ribbons(f, r, s, &t);
    sensor_panels(f, r, s, &t, b);
    free(b);
    if (f->plots) f->plot[f->plots - 1]->x.title = "minutes:seconds since the first cell";
    return f->plots;
}
