/* figures_time.c - the figure about the course of the run: which arm ran when, which blocks were discarded
 * and why, and clocks, load and temperature.
 *
 * A resumed run may have paused for hours. The time axis leaves pauses out and marks them. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "telemetry/metrics/metrics.h"
#include "tui/report/content.h"

enum { BINS = 240, PAUSE_S = 60, PAUSES = 16 };

/* The time axis without pauses. */
struct timeline {
    double end; /* of the last cell, without the pauses */
    int pauses;
    struct pause {
        double at, left_out; /* seconds on the clock of the cells */
    } pause[PAUSES];
};

/* Position on the time axis of a time since the start of the first cell. */
static double timeline_at(const struct timeline *t, double seconds)
{
    double shown = seconds;
    for (int i = 0; i < t->pauses; i++)
        if (seconds >= t->pause[i].at + t->pause[i].left_out) shown -= t->pause[i].left_out;
    return shown;
}

static double cell_end(const struct report_cell *c)
{
    return c->start_s + (c->seconds > 0 ? c->seconds : 0);
}

static struct timeline timeline_find_pauses(const struct report_source *s)
{
    struct timeline t = { 0 };
    double end = 0;
    for (int i = 0; i < s->cells; i++) {
        const double gap = s->cell[i].start_s - end;
        if (i && gap > PAUSE_S && t.pauses < PAUSES) t.pause[t.pauses++] = (struct pause){ end + 1, gap - 2 };
        end = fmax(end, cell_end(&s->cell[i]));
    }
    t.end = timeline_at(&t, end);
    return t;
}

/* ---------------------------------------------------------------- parts of every plot */

/* Discarded blocks, as stripes over the whole height. */
static void discarded_draw(struct plot *p, struct report *r, const struct report_source *s,
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
                          !strcmp(before->phase, c->phase);
        if (!same) {
            k++;
            l->point[k].x_low = timeline_at(t, c->start_s);
            if (labels) l->point[k].hint = content_printf(r, "block %d discarded: %s", c->block, c->reason);
        }
        l->point[k].x_high = timeline_at(t, cell_end(c));
    }
}

static void pauses_draw(struct plot *p, struct report *r, const struct timeline *t, bool labels)
{
    for (int i = 0; i < t->pauses; i++) {
        struct plot_point at = PLOT_NOWHERE;
        const double minutes = t->pause[i].left_out / 60;
        at.x = timeline_at(t, t->pause[i].at);
        if (labels)
            at.label = minutes < 90 ? content_printf(r, "paused %.0f min", minutes)
                                    : content_printf(r, "paused %.1f h", minutes / 60);
        struct plot_layer *l = plot_place(p, &r->arena, MARK_RULE, HUE_MUTED, at);
        if (l) l->soft = true;
    }
}

static struct plot *timeline_plot(struct figure_plots *f, struct report *r, const struct timeline *t,
                                  const char *title, double height)
{
    struct plot *p = figure_plot(f, r);
    if (!p) return NULL;
    p->title = title;
    p->height = height;
    p->x = (struct plot_axis){ .unit = UNIT_CLOCK, .low = 0, .high = fmax(t->end, 1) };
    return p;
}

/* ---------------------------------------------------------------- arms over time */

static const char *phase_word(const struct report_cell *c)
{
    static const struct {
        const char *phase, *word;
    } WORDS[] = { { "warmup", "warm-up" },
                  { "control", "control block" },
                  { "confirm", "block of the confirmation" } };
    for (size_t i = 0; i < COUNT_OF(WORDS); i++)
        if (!strcmp(c->phase, WORDS[i].phase)) return WORDS[i].word;
    return c->phase;
}

static void arm_lane_draw(struct plot *p, struct report *r, const struct report_source *s,
                          const struct timeline *t, int arm, int lane)
{
    int n = 0;
    for (int i = 0; i < s->cells; i++) n += s->cell[i].arm == arm;
    struct plot_layer *l = n ? plot_layer(p, &r->arena, MARK_BOX, arm, n) : NULL;
    for (int i = 0, k = 0; l && i < s->cells && k < n; i++) {
        const struct report_cell *c = &s->cell[i];
        if (c->arm != arm) continue;
        struct plot_point *at = &l->point[k++];
        at->x_low = timeline_at(t, c->start_s);
        at->x_high = timeline_at(t, cell_end(c));
        const double half = cell_phase_is(c->phase, PHASE_SPEED) ? 0.36 : 0.14;
        at->y_low = lane - half;
        at->y_high = lane + half;
        at->hint = c->block < 0 ? content_printf(r, "%s, %s", report_arm_name(arm), phase_word(c))
                                : content_printf(r, "%s, %s %d%s%s", report_arm_name(arm), phase_word(c),
                                                 c->block, *c->reason ? ": " : "", c->reason);
    }
}

static void arms_plot(struct figure_plots *f, struct report *r, const struct report_source *s,
                      const struct timeline *t)
{
    struct plot *p = timeline_plot(f, r, t, "Arms over time (low bars: warm-up and control)",
                                   26.0 * experiment_arms(&s->state.spec) + 8);
    const char **names = p ? arena_alloc(&r->arena, EXPERIMENT_ARMS * sizeof *names) : NULL;
    if (!names) return;
    for (int a = 0; a < experiment_arms(&s->state.spec); a++)
        names[a] = report_arm_name(experiment_arms(&s->state.spec) - 1 - a);
    p->y = (struct plot_axis){ .unit = UNIT_COUNT,
                               .low = NAN,
                               .high = NAN,
                               .names = names,
                               .n_names = experiment_arms(&s->state.spec) };
    discarded_draw(p, r, s, t, true);
    for (int a = 0; a < experiment_arms(&s->state.spec); a++)
        arm_lane_draw(p, r, s, t, a, experiment_arms(&s->state.spec) - 1 - a);
    pauses_draw(p, r, t, true);
}

/* ---------------------------------------------------------------- sensors over time */

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
            const double at = timeline_at(t, s->cell[i].start_s + (double)sample->t_s) / fmax(t->end, 1);
            const int bin = at < 0 ? 0 : at >= 1 ? BINS - 1 : (int)(at * BINS);
            b->low[bin] = b->n[bin] ? fmin(b->low[bin], sample->value) : sample->value;
            b->high[bin] = b->n[bin] ? fmax(b->high[bin], sample->value) : sample->value;
            b->sum[bin] += sample->value;
            b->n[bin]++;
            b->all++;
        }
}

static void sensor_draw(struct plot *p, struct report *r, const struct bins *b, const struct timeline *t,
                        int hue, const char *name)
{
    int n = 0;
    for (int i = 0; i < BINS; i++) n += b->n[i] > 0;
    struct plot_layer *band = plot_layer(p, &r->arena, MARK_BAND, hue, n);
    struct plot_layer *line = plot_layer(p, &r->arena, MARK_LINE, hue, n);
    for (int i = 0, k = 0; band && line && i < BINS; i++) {
        if (!b->n[i]) continue; /* no samples between cells: the line continues to the next bin */
        band->point[k].x = line->point[k].x = (i + 0.5) / BINS * fmax(t->end, 1);
        band->point[k].y_low = b->low[i];
        band->point[k].y_high = b->high[i];
        line->point[k++].y = b->sum[i] / b->n[i];
    }
    if (band) band->soft = true;
    if (line) line->soft = true;
    if (line) line->name = name;
}

/* Sensors of the same panel share a plot. */
static const struct {
    const char *panel;
    enum plot_unit unit;
    int metric, hue;
    const char *name;
} SENSORS[] = {
    { .panel = "CPU clock",
      .unit = UNIT_HERTZ,
      .metric = METRIC_CPU_FREQUENCY,
      .hue = 0,
      .name = "mean over CPUs" },
    { .panel = "CPUs busy", .unit = UNIT_SHARE, .metric = METRIC_CPU_BUSY, .hue = 0, .name = "all programs" },
    { .panel = "CPUs busy",
      .unit = UNIT_SHARE,
      .metric = METRIC_OTHERS_BUSY,
      .hue = 1,
      .name = "other programs" },
    { .panel = "CPUs busy",
      .unit = UNIT_SHARE,
      .metric = METRIC_CPU_STEAL,
      .hue = HUE_ALERT,
      .name = "taken by the hypervisor" },
    { .panel = "Temperature",
      .unit = UNIT_CELSIUS,
      .metric = METRIC_CPU_TEMPERATURE,
      .hue = 0,
      .name = "CPU" },
    { .panel = "Temperature",
      .unit = UNIT_CELSIUS,
      .metric = METRIC_GPU_TEMPERATURE,
      .hue = 1,
      .name = "GPU" },
    { .panel = "Power", .unit = UNIT_WATTS, .metric = METRIC_CPU_POWER, .hue = 0, .name = "CPU" },
    { .panel = "Power", .unit = UNIT_WATTS, .metric = METRIC_GPU_POWER, .hue = 1, .name = "GPU" },
};

static void sensor_plots(struct figure_plots *f, struct report *r, const struct report_source *s,
                         const struct timeline *t, struct bins *b)
{
    struct plot *p = NULL;
    for (size_t i = 0; i < COUNT_OF(SENSORS); i++) {
        if (i && strcmp(SENSORS[i].panel, SENSORS[i - 1].panel)) p = NULL;
        bins_fill(b, s, t, SENSORS[i].metric);
        if (!b->all) continue;
        if (!p) {
            p = timeline_plot(f, r, t, SENSORS[i].panel, 84);
            if (!p) return;
            p->y = (struct plot_axis){ .unit = SENSORS[i].unit,
                                       .low = SENSORS[i].unit == UNIT_SHARE ? 0 : (double)NAN,
                                       .high = SENSORS[i].unit == UNIT_SHARE ? 1.02 : (double)NAN };
            discarded_draw(p, r, s, t, false);
            pauses_draw(p, r, t, false);
        }
        sensor_draw(p, r, b, t, SENSORS[i].hue, SENSORS[i].name);
    }
}

int figure_timeline(struct figure_plots *f, struct report *r, const struct report_source *s)
{
    *f = (struct figure_plots){
        .title = "Cells, clock rates, load",
        .reading =
            "All plots share one time axis. Lines are means, the stripes around them are ranges. A shaded block was "
            "disturbed by something else on the machine: it was discarded as a whole and repeated. The rules for that were "
            "fixed beforehand and do not use the speed of a cell."
    };
    if (!s->cells) return 0;
    const struct timeline t = timeline_find_pauses(s);
    struct bins *b = malloc(sizeof *b);
    if (!b) {
        r->failed = true;
        return 0;
    }
    arms_plot(f, r, s, &t);
    sensor_plots(f, r, s, &t, b);
    free(b);
    if (f->plots) f->plot[f->plots - 1]->x.title = "minutes:seconds since the first cell";
    return f->plots;
}
