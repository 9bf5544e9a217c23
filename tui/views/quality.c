/* tui/views/quality.c - what each way of storing the model loses, and in which of its tensors. */
#include "tui/views/views.h"
#include "tui/figures.h"

#include <math.h>

static void method_row(struct grid *g, struct rect in, int row, const struct quality_line *q, bool chosen)
{
    enum { KLD = 26, TOP1 = 8, PPL = 20, REFERENCE = 14 };
    const unsigned style = !q ? (unsigned)ROLE_DIM : ROLE_TEXT | (chosen ? STYLE_REVERSE : 0u);
    const int reference = in.w >= 100 ? REFERENCE : 0;
    char kld[64] = "KLD, nats [95 %]", top1[32] = "top-1", ppl[64] = "perplexity";
    if (q) {
        snprintf(kld, sizeof kld, "%.3g [%.3g, %.3g]", q->kld.estimate, q->kld.lower, q->kld.upper);
        snprintf(top1, sizeof top1, "%.1f%%", 100 * q->top1.estimate);
        snprintf(ppl, sizeof ppl, "%.4g (%s)", q->ppl.estimate,
                 figure_change(log(q->ppl_ratio.estimate)).text);
    }
    struct pen p = pen_at(g, in, 0, row);
    pen_field(&p, MAX(in.w - KLD - TOP1 - PPL - reference, 8), style, q ? q->config : "method");
    pen_field(&p, reference, style, q ? q->reference : "against");
    pen_field_right(&p, KLD, style, kld);
    pen_field_right(&p, TOP1, style, top1);
    pen_field_right(&p, PPL, style, ppl);
}

static void box_methods(struct grid *g, struct rect area, const struct snapshot *s, const struct ui *u)
{
    const struct measured_quality *q = &s->quality;
    struct rect in = grid_box(g, area, "Quality of methods",
                              snapshot_random_weights(s) ? RANDOM_WEIGHTS_TEXT : NULL);
    if (q->count <= 0) {
        grid_wrap(g, in, q->error[0] ? ROLE_ERROR : ROLE_DIM,
                  q->error[0] ? q->error
                  : q->count < 0
                      ? "reading what was measured"
                      : "n/a: no quality of this model was measured yet. The command below compares "
                        "a method's predictions with the model's own, token by token.");
        return;
    }
    method_row(g, in, 0, NULL, false);
    const int rows = in.h - 1, chosen = u->selected[VIEW_QUALITY];
    const int top = MAX(MIN(chosen - rows / 2, q->count - rows), 0);
    for (int i = top; i < q->count && i - top < rows; i++) {
        method_row(g, in, 1 + i - top, &q->line[i], i == chosen);
        grid_hit(g, rect_rows(in, 1 + i - top, 1), HIT_ROW, i);
    }
}

static void box_layers(struct grid *g, struct rect area, const struct snapshot *s)
{
    struct rect in = grid_box(g, area, "Sensitivity by tensor and layer", NULL);
    if (!s->sensitivity.kinds)
        grid_wrap(g, in, ROLE_DIM, s->sensitivity.missing[0] ? s->sensitivity.missing : "n/a");
}

void view_quality(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u)
{
    struct rect box[QUALITY_BOXES];
    layout_quality(body, box);
    box_methods(g, box[QUALITY_METHODS], s, u);
    box_layers(g, box[QUALITY_LAYERS], s);
}
