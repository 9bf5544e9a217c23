/* tui/views/panes.c - focus and full screen for the panes of every view. */
#include "tui/views/parts.h"

void panes_place(struct grid *g, struct rect *box, int boxes, struct rect body, const struct ui *u)
{
    const int focus = u->pane[u->view] - 1;
    for (int i = 0; i < boxes; i++) {
        if (u->zoomed && focus >= 0 && focus < boxes)
            box[i] = i == focus ? body : (struct rect){ body.x, body.y, 0, 0 };
        grid_hit(g, box[i], HIT_PANE, i);
    }
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
