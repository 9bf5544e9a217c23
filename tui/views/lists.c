/* tui/views/lists.c - the views that are lists: history, log. */
#include "tui/views/parts.h"

#include <math.h>
#include <string.h>

#include "advisor/experiment/experiment.h"

/* ---------------------------------------------------------------- history */

static struct mark run_mark(const struct run_line *r)
{
    if (!strcmp(r->kind, "ab") && r->verdict[0]) return verdict_mark(verdict_parse(r->verdict));
    if (!strcmp(r->state, "done")) return (struct mark){ "✓", "done", ROLE_TEXT };
    if (!strcmp(r->state, "failed")) return (struct mark){ "✕", "failed", ROLE_ERROR };
    if (!strcmp(r->state, "stopped")) return (struct mark){ "○", "stopped", ROLE_WARN };
    if (!strcmp(r->state, "interrupted")) return (struct mark){ "○", "interrupted", ROLE_WARN };
    return (struct mark){ "●", r->state, ROLE_TITLE };
}

/* A narrower list shows the day without the time, and no workload. */
enum { HISTORY_WHOLE = 70 };

/* mark: 1 or 2 for a run marked for comparison; 0 none. */
static void history_row(struct grid *g, struct rect in, int row, const struct run_line *r, bool chosen,
                        int mark)
{
    unsigned extra = chosen ? STYLE_REVERSE : 0u;
    struct mark m = run_mark(r);
    char text[192];
    struct pen p = pen_at(g, in, 0, row);
    pen_put(&p, ROLE_KEY | STYLE_BOLD | extra, mark ? "◆" : " ");
    snprintf(text, sizeof text, "%lld", (long long)r->id);
    pen_field_right(&p, 5, (mark ? ROLE_KEY : ROLE_DIM) | extra, text);
    const bool narrow = in.w < HISTORY_WHOLE;
    snprintf(text, sizeof text, narrow ? "  %.5s  %-5s " : "  %s  %-5s ", figure_date(r->started_ms).text,
             r->kind);
    pen_put(&p, ROLE_TEXT | extra, text);
    const int workload = narrow ? 0 : 10, tail = workload + 1 + 8 + 15, model = in.w >= 100 ? 22 : 0;
    pen_field(&p, MAX(pen_left(&p) - tail - model, 6), ROLE_TEXT | extra, r->label[0] ? r->label : r->model);
    if (model) pen_field(&p, model, ROLE_DIM | extra, r->model);
    pen_put(&p, ROLE_TEXT | extra, " ");
    pen_field(&p, workload, ROLE_DIM | extra, r->workload);
    pen_field_right(&p, 8, ROLE_TEXT | extra,
                    r->effect_ratio > 0 ? figure_change(log(r->effect_ratio)).text : "");
    snprintf(text, sizeof text, " %s %s", m.glyph, m.word);
    pen_field(&p, 15, (unsigned)m.role | extra, text);
}

void view_history(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u)
{
    char title[192], by[32] = "";
    int order[SNAPSHOT_RUNS];
    if (u->order != BY_TIME) snprintf(by, sizeof by, ", sorted by %s", HISTORY_ORDER_NAMES[u->order]);
    if (u->filter[0])
        snprintf(title, sizeof title, "History: rows that match \"%s\" (Esc shows all)%s", u->filter, by);
    else
        snprintf(title, sizeof title, "History%s", by);
    struct rect in = grid_box(g, body, title, snapshot_caution(s));
    if (s->run_error[0] || s->run_count <= 0) {
        grid_wrap(g, in, s->run_error[0] ? ROLE_ERROR : ROLE_DIM,
                  s->run_error[0]    ? s->run_error
                  : s->run_count < 0 ? "reading the database"
                  : u->filter[0]     ? "no run matches"
                                     : "no runs yet: b starts an A/B");
        return;
    }
    struct pen p = pen_at(g, in, 0, 0);
    pen_put(&p, ROLE_DIM,
            in.w < HISTORY_WHOLE ? "   run  day    kind  arms" : "   run  started      kind  arms");
    ui_history(u, s, order);
    int chosen = u->selected[VIEW_HISTORY], rows = in.h - 1, top = list_top(chosen, rows, s->run_count);
    for (int i = top; i < s->run_count && i - top < rows; i++) {
        const struct run_line *r = &s->run[order[i]];
        history_row(g, in, 1 + i - top, r, i == chosen, ui_mark(u, r->id));
        grid_hit(g, rect_rows(in, 1 + i - top, 1), HIT_ROW, i);
    }
}

void view_log(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u)
{
    draw_log(g, grid_box(g, body, "Log", u->selected[VIEW_LOG] ? "G: newest" : NULL), s,
             u->selected[VIEW_LOG]);
}
