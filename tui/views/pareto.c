/* tui/views/pareto.c - trade-offs between advised configurations: predicted speed against memory, and
 * measured quality against speed.
 *
 * Numbers are rows of the advice table. Whiskers are prediction or confidence intervals: the chart does not
 * separate two configurations whose whiskers overlap. A configuration that another one beats on both axes is
 * dim. */
#include "tui/views/parts.h"

#include <math.h>
#include <string.h>

#include "advisor/advise/advise.h"
#include "advisor/predict/predict.h"

struct candidate {
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

/* A candidate is beaten if another has no larger x and no smaller y, and differs in one of them. */
static void candidates_mark_beaten(struct candidate *candidate, int n)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            if (k != i && candidate[k].x <= candidate[i].x && candidate[k].y >= candidate[i].y &&
                (candidate[k].x < candidate[i].x || candidate[k].y > candidate[i].y))
                candidate[i].beaten = true;
}

static void axis_include(struct axis *a, double v)
{
    if (!isfinite(v) || (a->log && v <= 0)) return;
    a->lo = fmin(a->lo, v);
    a->hi = fmax(a->hi, v);
}

static void draw_candidates(struct grid *g, struct rect in, struct axis x, struct axis y,
                            const struct candidate *candidate, int n, int chosen)
{
    x.lo = x.hi = y.lo = y.hi = NAN;
    for (int i = 0; i < n; i++) {
        axis_include(&x, candidate[i].x);
        axis_include(&x, candidate[i].x_lo);
        axis_include(&x, candidate[i].x_hi);
        axis_include(&y, candidate[i].y);
        axis_include(&y, candidate[i].y_lo);
        axis_include(&y, candidate[i].y_hi);
    }
    const struct plane p = plane_open(g, in, axis_around(x), axis_around(y));
    for (int i = n - 1; i >= 0; i--) { /* the best ranked is drawn last, on top */
        const unsigned style = candidate[i].beaten ? (unsigned)ROLE_DIM : (unsigned)ROLE_GRAPH;
        plane_whisker_y(&p, candidate[i].x, candidate[i].y_lo, candidate[i].y_hi, style);
        plane_whisker_x(&p, candidate[i].x_lo, candidate[i].x_hi, candidate[i].y, style);
    }
    for (int i = n - 1; i >= 0; i--)
        plane_mark(&p, candidate[i].x, candidate[i].y,
                   candidate[i].number < 10 ? '0' + (uint32_t)candidate[i].number : '*',
                   candidate[i].number == chosen + 1 ? ROLE_TEXT | STYLE_REVERSE
                   : candidate[i].beaten             ? (unsigned)ROLE_DIM
                                                     : ROLE_TEXT | STYLE_BOLD);
}

void box_pareto(struct grid *g, struct rect area, const struct snapshot *s, int chosen)
{
    struct candidate candidate[SNAPSHOT_ADVICE];
    int n = 0;
    struct rect in = grid_box(g, area, "Predicted decode speed by memory (number: row)",
                              "dim: worse on both axes");
    for (int i = 0; i < s->advice_count; i++) {
        const struct prediction *p = &s->advice[i].prediction;
        if (!isfinite(p->decode_tok_s) || p->plan.total <= 0) continue;
        candidate[n++] = (struct candidate){ .x = (double)p->plan.total,
                                             .x_lo = NAN,
                                             .x_hi = NAN,
                                             .y = p->decode_tok_s,
                                             .y_lo = p->decode_low,
                                             .y_hi = p->decode_high,
                                             .number = i + 1 };
    }
    candidates_mark_beaten(candidate, n);
    if (n)
        draw_candidates(g, in, (struct axis){ .name = "memory", .show = show_bytes },
                        (struct axis){ .name = "tok/s", .show = figure_number }, candidate, n, chosen);
    else
        grid_wrap(g, in, ROLE_DIM, "n/a: no prediction is known");
}

/* Whether both configurations give the same answers: every setting that can change answers is equal (recipe,
 * KV types, precision). Both run the model on screen. */
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
    struct candidate candidate[SNAPSHOT_ADVICE];
    int n = 0, without = 0;
    char note[96] = "";
    for (int i = 0; i < s->advice_count; i++) {
        const struct prediction *p = &s->advice[i].prediction;
        const struct quality_result *q = quality_of_advice(s, &s->advice[i]);
        if (!q || !isfinite(p->decode_tok_s) || !(q->kld.estimate > 0)) {
            without++;
            continue;
        }
        candidate[n++] = (struct candidate){ .x = q->kld.estimate,
                                             .x_lo = q->kld.lower > 0 ? q->kld.lower : NAN,
                                             .x_hi = q->kld.upper,
                                             .y = p->decode_tok_s,
                                             .y_lo = p->decode_low,
                                             .y_hi = p->decode_high,
                                             .number = i + 1 };
    }
    if (without) snprintf(note, sizeof note, "loss of %d not measured", without);
    struct rect in = grid_box(g, area, "Measured KL divergence against predicted speed", note);
    candidates_mark_beaten(candidate, n);
    if (n)
        draw_candidates(g, in, (struct axis){ .log = true, .name = "nats", .show = show_nats },
                        (struct axis){ .name = "tok/s", .show = figure_number }, candidate, n, chosen);
    else
        grid_wrap(
            g, in, ROLE_DIM,
            "n/a: the loss of none of these was measured. 6 shows what was measured, and the command that "
            "measures it.");
}
