/* tui/views/pareto.c - what can be had: speed against memory as predicted, quality against speed as measured.
 *
 * Numbers are rows of the advice's table. Whiskers say how far a measured value may lie from the mark: two
 * whose whiskers overlap are not told apart by this picture. What another beats on both axes is dim. */
#include "tui/views/parts.h"

#include <math.h>
#include <string.h>

#include "advisor/advise/advise.h"
#include "advisor/predict/predict.h"

struct spot {
    double x, x_lo, x_hi, y, y_lo, y_hi;
    int number; /* 1-based, of the table */
    bool beaten;
};

static struct figure show_bytes(double v)
{
    return figure_bytes((int64_t)v);
}

static struct figure show_nats(double v)
{
    struct figure f;
    snprintf(f.text, sizeof f.text, "%.0e", v);
    return f;
}

/* Less of x and more of y is better. */
static void mark_beaten(struct spot *spot, int n)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            if (k != i && spot[k].x <= spot[i].x && spot[k].y >= spot[i].y &&
                (spot[k].x < spot[i].x || spot[k].y > spot[i].y))
                spot[i].beaten = true;
}

static void hold(struct axis *a, double v)
{
    if (!isfinite(v) || (a->log && v <= 0)) return;
    a->lo = fmin(a->lo, v);
    a->hi = fmax(a->hi, v);
}

static void draw_spots(struct grid *g, struct rect in, struct axis x, struct axis y, const struct spot *spot,
                       int n, int chosen)
{
    x.lo = x.hi = y.lo = y.hi = NAN;
    for (int i = 0; i < n; i++) {
        hold(&x, spot[i].x);
        hold(&x, spot[i].x_lo);
        hold(&x, spot[i].x_hi);
        hold(&y, spot[i].y);
        hold(&y, spot[i].y_lo);
        hold(&y, spot[i].y_hi);
    }
    const struct plane p = plane_open(g, in, axis_around(x), axis_around(y));
    for (int i = n - 1; i >= 0; i--) { /* the best ranked on top */
        const unsigned style = spot[i].beaten ? (unsigned)ROLE_DIM : (unsigned)ROLE_GRAPH;
        plane_whisker_y(&p, spot[i].x, spot[i].y_lo, spot[i].y_hi, style);
        plane_whisker_x(&p, spot[i].x_lo, spot[i].x_hi, spot[i].y, style);
    }
    for (int i = n - 1; i >= 0; i--)
        plane_mark(&p, spot[i].x, spot[i].y, spot[i].number < 10 ? '0' + (uint32_t)spot[i].number : '*',
                   spot[i].number == chosen + 1 ? ROLE_TEXT | STYLE_REVERSE
                   : spot[i].beaten             ? (unsigned)ROLE_DIM
                                                : ROLE_TEXT | STYLE_BOLD);
}

void box_pareto(struct grid *g, struct rect area, const struct snapshot *s, int chosen)
{
    struct spot spot[SNAPSHOT_ADVICE];
    int n = 0;
    struct rect in = grid_box(g, area, "Predicted decode speed by memory (number: row)",
                              "dim: beaten on both");
    for (int i = 0; i < s->advice_count; i++) {
        const struct prediction *p = &s->advice[i].prediction;
        if (!isfinite(p->decode_tok_s) || p->plan.total <= 0) continue;
        spot[n++] = (struct spot){ .x = (double)p->plan.total,
                                   .x_lo = NAN,
                                   .x_hi = NAN,
                                   .y = p->decode_tok_s,
                                   .y_lo = p->decode_low,
                                   .y_hi = p->decode_high,
                                   .number = i + 1 };
    }
    mark_beaten(spot, n);
    if (n)
        draw_spots(g, in, (struct axis){ .name = "memory", .show = show_bytes },
                   (struct axis){ .name = "tok/s", .show = figure_number }, spot, n, chosen);
    else
        grid_wrap(g, in, ROLE_DIM, "n/a: no prediction is known");
}

/* Would both give the same answers? Whatever may change them must be the same: the recipe, the KV types, the
 * precision; the model is the one on screen. */
static bool same_answers(const struct config *a, const struct config *b)
{
    for (int id = 0; id < KNOB_COUNT; id++) {
        const bool counts = KNOBS[id].changes_answers && KNOBS[id].matters_for & FOR_ALL && id != KNOB_MODEL;
        if (counts && strcmp(config_text(a, (enum knob_id)id), config_text(b, (enum knob_id)id)) != 0)
            return false;
    }
    return true;
}

static const struct quality_result *quality_of_advice(const struct snapshot *s, const struct advice *a)
{
    struct config c;
    for (int i = 0; i < s->quality.count; i++)
        if (!config_parse(&c, s->quality.line[i].config, NULL) && same_answers(&a->config, &c))
            return &s->quality.line[i];
    return NULL;
}

void box_pareto_quality(struct grid *g, struct rect area, const struct snapshot *s, int chosen)
{
    struct spot spot[SNAPSHOT_ADVICE];
    int n = 0, without = 0;
    char note[96] = "";
    for (int i = 0; i < s->advice_count; i++) {
        const struct prediction *p = &s->advice[i].prediction;
        const struct quality_result *q = quality_of_advice(s, &s->advice[i]);
        if (!q || !isfinite(p->decode_tok_s) || !(q->kld.estimate > 0)) {
            without++;
            continue;
        }
        spot[n++] = (struct spot){ .x = q->kld.estimate,
                                   .x_lo = q->kld.lower > 0 ? q->kld.lower : NAN,
                                   .x_hi = q->kld.upper,
                                   .y = p->decode_tok_s,
                                   .y_lo = p->decode_low,
                                   .y_hi = p->decode_high,
                                   .number = i + 1 };
    }
    if (without) snprintf(note, sizeof note, "%d without a loss that was measured", without);
    struct rect in = grid_box(g, area, "Measured KL divergence against predicted speed", note);
    mark_beaten(spot, n);
    if (n)
        draw_spots(g, in, (struct axis){ .log = true, .name = "nats", .show = show_nats },
                   (struct axis){ .name = "tok/s", .show = figure_number }, spot, n, chosen);
    else
        grid_wrap(g, in, ROLE_DIM,
                  "n/a: of none of these was measured what it loses. 6 shows what was, and the command that "
                  "measures it.");
}
