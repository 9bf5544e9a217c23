/* tui/views/panes.c - focus, full screen and tabs for the panes of every view. */
#include "tui/views/parts.h"

/* Where a screen shows one pane at a time and none has the focus: the pane that says what to do next. */
static const int FIRST_PANE[VIEW_COUNT] = {
    [VIEW_LIVE] = LIVE_AB, [VIEW_AB] = AB_VERDICT, [VIEW_TUNE] = TUNE_LIST
};

void panes_place(struct grid *g, struct rect *box, int boxes, struct rect body, const struct ui *u)
{
    const int focus = u->pane[u->view] - 1;
    const bool focused = focus >= 0 && focus < boxes;
    if (layout_frame(g->w, g->h).single)
        layout_one(body, focused ? focus : FIRST_PANE[u->view], box, boxes);
    else if (u->zoomed && focused)
        layout_one(body, focus, box, boxes);
    for (int i = 0; i < boxes; i++) grid_hit(g, box[i], HIT_PANE, i);
}

/* The pane that fills the body; -1: the view shows no panes now. */
static int pane_shown(const struct grid *g)
{
    for (int i = 0; i < g->hits; i++)
        if (g->hit[i].kind == HIT_PANE && g->hit[i].at.w > 0) return g->hit[i].what;
    return -1;
}

bool panes_tabs(struct grid *g, struct rect row, const struct snapshot *s, const struct ui *u)
{
    const int shown = pane_shown(g);
    struct pen p = pen_at(g, row, 1, 0);
    if (shown < 0) return false;
    pen_put(&p, ROLE_KEY | STYLE_BOLD, "Tab");
    for (int i = 0; i < pane_count(u->view, s); i++) {
        const char *name = pane_name(u->view, i);
        pen_put(&p, ROLE_TEXT, i == shown ? " [" : "  ");
        const int from = p.x;
        pen_put(&p, i == shown ? ROLE_TITLE | STYLE_BOLD : ROLE_TEXT, name);
        grid_hit(g, (struct rect){ row.x + from, row.y, MAX(MIN(p.x, row.w) - from, 0), 1 }, HIT_TAB, i);
        pen_put(&p, ROLE_TEXT, i == shown ? "]" : " ");
    }
    return true;
}

void panes_mark(struct grid *g, const struct ui *u)
{
    const int focus = u->pane[u->view] - 1;
    for (int i = 0; i < g->hits; i++) {
        const struct rect r = g->hit[i].at;
        if (g->hit[i].kind != HIT_PANE || g->hit[i].what != focus) continue;
        for (int y = r.y; y < MIN(r.y + r.h, g->h); y++)
            for (int x = r.x; x < MIN(r.x + r.w, g->w); x++) {
                struct cell *c = &g->cells[y * g->w + x];
                const bool edge = y == r.y || y == r.y + r.h - 1 || x == r.x || x == r.x + r.w - 1;
                if (edge && (c->style & STYLE_ROLE) == ROLE_BORDER) c->style = ROLE_KEY | STYLE_BOLD;
            }
    }
}
