/* tui/panes.h - the panes of each view: which one has the focus, and whether it fills the screen alone. */
#ifndef QDYNO_TUI_PANES_H
#define QDYNO_TUI_PANES_H

#include "tui/grid.h"
#include "tui/ui.h"

int pane_count(enum view view);
const char *pane_name(enum view view, int pane);

/* What a view draws into, from where its layout put the boxes: all of them, or the focused one alone in the
 * body and the others nowhere. Says where they are (HIT_PANE). */
void panes_place(struct grid *g, struct rect *box, int boxes, struct rect body, const struct ui *u);
/* The frame of the focused one, once all is drawn. */
void panes_mark(struct grid *g, const struct ui *u);

#endif
