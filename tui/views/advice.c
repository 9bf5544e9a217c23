/* tui/views/advice.c - the advice view: ranked configurations, and the reason for the selected one. */
#include "tui/views/parts.h"

#include <math.h>
#include <string.h>

#include "advisor/advise/advise.h"
#include "advisor/predict/predict.h"

/* One row for all configurations that hardly anything is known about. */
static bool folded_row(struct pen *p, int item, unsigned style, const void *ctx)
{
    const struct snapshot *s = ctx;
    char text[CONFIG_LINE + 80];
    if (!snapshot_is_folded(s, item)) return false;
    snprintf(text, sizeof text,
             "    %d %s%s too uncertain to rank: select this line and press v to measure %s",
             s->advice_folded, item ? "more " : "", s->advice_folded > 1 ? "are" : "is",
             s->advice[s->advice_count - 1].line);
    pen_field(p, pen_left(p), style, text);
    return true;
}

const char *advice_note(const struct snapshot *s, char *buf, size_t size)
{
    const char *caution = snapshot_caution(s);
    const int ctx = s->advice_count ? s->advice[0].prediction.plan.ctx : 0;
    if (caution || ctx <= 0) return caution;
    snprintf(buf, size, "memory: with %d tokens", ctx);
    return buf;
}

static void advice_details(struct grid *g, struct rect in, const struct advice *a)
{
    int y = grid_wrap(g, in, ROLE_TEXT, a->reason);
    if (a->caution[0]) {
        struct rect rest = rect_rows(in, y, in.h - y);
        struct pen p = pen_at(g, rest, 0, 0);
        pen_put(&p, ROLE_WARN, "! ");
        y += grid_wrap(g, (struct rect){ rest.x + 2, rest.y, MAX(rest.w - 2, 0), rest.h }, ROLE_WARN,
                       a->caution);
    }
    struct pen p = pen_at(g, rect_rows(in, y, in.h - y), 0, 0);
    pen_value(&p, "limit: decode ", figure_number(a->prediction.decode_limit_tok_s).text);
    pen_value(&p, " tok/s (reads), prefill ", figure_number(a->prediction.prefill_limit_tok_s).text);
    pen_put(&p, ROLE_DIM, " tok/s (math)");
    grid_wrap(g, rect_rows(in, y + 1, in.h - y - 1), ROLE_DIM, a->check);
}

void view_advice(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u)
{
    struct rect box[ADVICE_PANES] = { body };
    char note[64];
    if (s->advice_count) {
        layout_advice(body, s->advice_count, box);
        panes_place(g, box, ADVICE_PANES, body, u);
    }
    const bool untimed = s->advice_count && s->ceilings_known && !s->ceilings.kernels.measured;
    const struct list_view list = {
        .g = g,
        .box = box[ADVICE_LIST],
        .title = untimed ? "Advice (# times the kernels once, 55 s: narrower predictions)" : "Advice",
        .note = advice_note(s, note, sizeof note),
        .s = s,
        .u = u,
        .whole = folded_row,
        .ctx = s
    };
    struct rect in = list_draw(&list);
    if (s->advice_count == 0) {
        const char *text =
            s->advice_state[0]   ? s->advice_state
            : s->advice_error[0] ? s->advice_error
            : s->ceilings_known
                ? "No advice yet. a predicts the speed of every configuration from the measured limits of this "
                  "machine, and ranks them. Enter then checks one with an A/B."
                : "No advice yet. a measures the limits of this machine once (memory reads, arithmetic), predicts "
                  "the speed of every configuration and ranks them. Enter then checks one with an A/B.";
        grid_wrap(g, in, s->advice_error[0] && !s->advice_state[0] ? ROLE_ERROR : ROLE_TEXT, text);
        return;
    }
    const int chosen = list_selected(u, s);
    if (chosen < 0) return;
    advice_details(g,
                   grid_box(g, box[ADVICE_DETAILS], "Reason, and the A/B that checks it (v runs it)", NULL),
                   &s->advice[chosen]);
    const bool one = !box[ADVICE_QUALITY].w; /* room for one chart: the one with the most to say */
    if (box[ADVICE_PARETO].w && one && pareto_losses(s))
        box_pareto_quality(g, box[ADVICE_PARETO], s, chosen);
    else if (box[ADVICE_PARETO].w)
        box_pareto(g, box[ADVICE_PARETO], s, chosen);
    if (box[ADVICE_QUALITY].w) box_pareto_quality(g, box[ADVICE_QUALITY], s, chosen);
}
