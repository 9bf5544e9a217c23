/* tui/views/advice.c - the advice view: ranked configurations, and the reason for the selected one. */
#include "tui/views/parts.h"

#include <math.h>
#include <string.h>

#include "advisor/advise/advise.h"
#include "advisor/predict/predict.h"

static void advice_row(struct grid *g, struct rect in, int row, const struct advice *a, const char *number,
                       unsigned style)
{
    struct pen p = pen_at(g, in, 0, row);
    const struct prediction *r = a ? &a->prediction : NULL;
    char range[128] = "decode/s (low-high)";
    if (r && isfinite(r->decode_tok_s))
        snprintf(range, sizeof range, "%s (%s-%s)", figure_number(r->decode_tok_s).text,
                 figure_number(r->decode_low).text, figure_number(r->decode_high).text);
    else if (r)
        snprintf(range, sizeof range, "n/a");
    pen_field_right(&p, 3, style, number);
    pen_put(&p, style, " ");
    pen_field(&p, MAX(in.w - 4 - 10 - 22 - 11 - 8 - 6, 8), style, a ? a->line : "configuration");
    pen_field_right(&p, 10, a && a->decode.runs ? (style & ~(unsigned)STYLE_ROLE) | ROLE_BETTER : style,
                    !a               ? "evidence"
                    : a->decode.runs ? "measured"
                                     : "predicted");
    pen_field_right(&p, 22, style, range);
    pen_field_right(&p, 11, style, a ? figure_number(r->prefill_tok_s).text : "prefill/s");
    pen_field_right(&p, 8, style, a ? figure_bytes(r->plan.total).text : "memory");
    pen_field_right(&p, 6, a && !r->fits ? ROLE_WORSE : style, !a ? "fits" : r->fits ? "yes" : "✕ no");
}

/* One row for all configurations that hardly anything is known about. */
static void folded_row(struct grid *g, struct rect in, int row, const struct snapshot *s, unsigned style)
{
    char text[160];
    struct pen p = pen_at(g, in, 0, row);
    snprintf(text, sizeof text, "    not enough known about %d configuration%s: press v to measure %.60s",
             s->advice_folded, s->advice_folded > 1 ? "s" : "", s->advice[s->advice_count - 1].line);
    pen_field(&p, in.w, style, text);
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
    if (s->advice_count) {
        layout_advice(body, s->advice_count, box);
        panes_place(g, box, ADVICE_PANES, body, u);
    }
    const bool untimed = s->advice_count && s->ceilings_known && !s->ceilings.kernels.measured;
    struct rect in = grid_box(g, box[ADVICE_LIST],
                              untimed ? "Advice (D times the kernels once, 55 s: narrower predictions)"
                                      : "Advice",
                              snapshot_caution(s));
    if (s->advice_count == 0) {
        const char *text =
            s->advice_state[0] ? s->advice_state
            : s->advice_error[0]
                ? s->advice_error
                : "No advice yet. a measures the limits of this machine once (memory reads, arithmetic), predicts "
                  "the speed of every configuration and ranks them. Enter then checks one with an A/B.";
        grid_wrap(g, in, s->advice_error[0] && !s->advice_state[0] ? ROLE_ERROR : ROLE_TEXT, text);
        return;
    }
    advice_row(g, in, 0, NULL, "", ROLE_DIM);
    int rows = in.h - 1, chosen = u->selected[VIEW_ADVICE], top = list_top(chosen, rows, s->advice_count);
    for (int i = top; i < s->advice_count && i - top < rows; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", i + 1);
        unsigned style = ROLE_TEXT | (i == chosen ? STYLE_REVERSE : 0u);
        if (snapshot_is_folded(s, i))
            folded_row(g, in, 1 + i - top, s, i == chosen ? style : (unsigned)ROLE_DIM);
        else
            advice_row(g, in, 1 + i - top, &s->advice[i], number, style);
        grid_hit(g, rect_rows(in, 1 + i - top, 1), HIT_ROW, i);
    }
    if (chosen < 0 || chosen >= s->advice_count) return;
    advice_details(g,
                   grid_box(g, box[ADVICE_DETAILS], "Reason, and the A/B that checks it (v runs it)", NULL),
                   &s->advice[chosen]);
    if (box[ADVICE_PARETO].w) box_pareto(g, box[ADVICE_PARETO], s, chosen);
    if (box[ADVICE_QUALITY].w) box_pareto_quality(g, box[ADVICE_QUALITY], s, chosen);
}
