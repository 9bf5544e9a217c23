/* tui/panes.c - focus and full screen, for every view alike: views only say where their boxes are. */
#include "tui/panes.h"

#include "tui/layout.h"

enum { PANES = 6 };

static const char *const NAMES[VIEW_COUNT][PANES + 1] = {
    [VIEW_LIVE] = { [LIVE_MACHINE] = "machine",
                    [LIVE_ENGINE] = "engine",
                    [LIVE_AB] = "A/B",
                    [LIVE_ADVICE] = "advice",
                    [LIVE_LOG] = "log" },
    [VIEW_AB] = { [AB_ARMS] = "arms", [AB_EFFECT] = "effect", [AB_VERDICT] = "verdict" },
    [VIEW_ADVICE] = { [ADVICE_LIST] = "advice",
                      [ADVICE_DETAILS] = "reason",
                      [ADVICE_PARETO] = "memory and speed",
                      [ADVICE_QUALITY] = "quality and speed" },
    [VIEW_HISTORY] = { "history" },
    [VIEW_MODEL] = { [MODEL_TENSORS] = "tensors", [MODEL_MEMORY] = "memory" },
    [VIEW_QUALITY] = { [QUALITY_METHODS] = "methods", [QUALITY_LAYERS] = "layers" },
    [VIEW_LOAD] = { [LOAD_REQUESTS] = "requests",
                    [LOAD_LATENCY] = "latency",
                    [LOAD_BLOCKS] = "blocks",
                    [LOAD_ROOFLINE] = "roofline" },
    [VIEW_SETTINGS] = { [SETTINGS_LIST] = "settings", [SETTINGS_DETAIL] = "detail" },
    [VIEW_LOG] = { "log" },
    [VIEW_WRITE] = { [WRITE_A] = "A", [WRITE_B] = "B", [WRITE_BOTH] = "both" },
};

int pane_count(enum view view)
{
    int n = 0;
    while (NAMES[view][n]) n++;
    return n;
}

const char *pane_name(enum view view, int pane)
{
    return pane >= 0 && pane < pane_count(view) ? NAMES[view][pane] : "";
}

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
