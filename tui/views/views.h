/* tui/views/views.h - draws a frame: title, the current view, status line, footer, and any form or overlay.
 *
 * Drawing is a pure function of snapshot and ui onto a grid of any size. */
#ifndef QDYNO_TUI_VIEWS_H
#define QDYNO_TUI_VIEWS_H

#include "tui/frame/frame.h"

/* A smaller screen shows only a message that asks for more room. */
enum { VIEW_MIN_W = 60, VIEW_MIN_H = 16 };

/* Draw the whole frame. Any grid size is valid, down to 1x1. */
void view_draw(struct grid *g, const struct snapshot *s, const struct ui *u);

/* One row per view, indexed by enum view. */
struct view_row {
    const char *name; /* in the title line: "live" */
    void (*draw)(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
};
extern const struct view_row VIEWS[VIEW_COUNT];

#endif
