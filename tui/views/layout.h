/* tui/views/layout.h - internal to views: where the boxes of each view are, as a pure function of the size.
 * Tests check every size: boxes do not overlap and stay on the screen.
 *
 * Three arrangements: from 80x24 up, boxes side by side; narrower and at least 34 rows high, one column;
 * smaller, one box at a time with the names of the others in a row of tabs. */
#ifndef QDYNO_TUI_VIEWS_LAYOUT_H
#define QDYNO_TUI_VIEWS_LAYOUT_H

#include "tui/frame/frame.h"

/* The lines around every view. */
struct layout {
    bool too_small;
    bool single; /* one pane at a time */
    struct rect title, body, status, footer;
};
struct layout layout_frame(int w, int h);

/* Give pane `shown` the whole body and the others an empty box. */
void layout_one(struct rect body, int shown, struct rect *box, int boxes);

/* The boxes of each view, indexed by its enum of panes (frame.h). A pane without room has an empty box. */
void layout_live(struct rect body, struct rect box[LIVE_PANES]);
/* ranks: rows of the pane of ranks, 0: it has no room */
void layout_ab(struct rect body, int arms, int ranks, struct rect box[AB_PANES]);
/* Give the verdict up to `rows` rows, as far as the effect above it can spare them. */
void layout_ab_verdict(struct rect box[AB_PANES], int rows);
void layout_advice(struct rect body, int rows, struct rect box[ADVICE_PANES]); /* rows: advice in the table */
void layout_model(struct rect body, struct rect box[MODEL_PANES]);
void layout_quality(struct rect body, struct rect box[QUALITY_PANES]);
void layout_load(struct rect body, struct rect box[LOAD_PANES]);
void layout_tune(struct rect body, struct rect box[TUNE_PANES]);
void layout_write(struct rect body, struct rect box[WRITE_PANES]);
void layout_settings(struct rect body, struct rect box[SETTINGS_PANES]);

/* The lowest `rows` of the body: forms and questions are drawn there, over the view. */
struct rect layout_drawer(struct rect body, int rows);
/* A box in the middle of the body, at most w x h. */
struct rect layout_overlay(struct rect body, int w, int h);

#endif
