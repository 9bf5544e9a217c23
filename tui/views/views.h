/* tui/views/views.h - the views: pure functions of snapshot and ui onto a grid. view_draw() is the whole
 * frame; the others draw into the rectangle they are given. */
#ifndef QDYNO_TUI_VIEWS_H
#define QDYNO_TUI_VIEWS_H

#include "tui/layout.h"
#include "tui/panes.h"
#include "tui/ui.h"

/* One row per view: number key, name, function. */
struct view_row {
    const char *name;
    void (*draw)(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
};
extern const struct view_row VIEWS[VIEW_COUNT];

/* Title, view, status, footer, and what lies over them. Any size, down to 1x1. */
void view_draw(struct grid *g, const struct snapshot *s, const struct ui *u);

void view_live(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
void view_ab(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
void view_advice(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
void view_history(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
void view_model(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
void view_quality(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
void view_load(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
void view_settings(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
void view_log(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
void view_write(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
void view_help(struct grid *g, struct rect body, const struct ui *u);
void view_palette(struct grid *g, struct rect body, const struct ui *u);
/* Keys of this view alone, into the lower edge of what is drawn. */
void view_keys(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
void view_page(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
void view_question(struct grid *g, struct rect body, const struct ui *u);
void view_form(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);

/* ---------------------------------------------------------------- parts that views share (parts.c) */

/* Of the load view: which block of the cache holds which sequence, and how full batches are (blocks.c). */
void box_blocks(struct grid *g, struct rect area, const struct snapshot *s);
/* Of the advice view: memory against speed, with what is not known about both (pareto.c). */
void box_pareto(struct grid *g, struct rect area, const struct snapshot *s, int chosen);
/* ... and what was measured of their quality against speed. */
void box_pareto_quality(struct grid *g, struct rect area, const struct snapshot *s, int chosen);

/* State never by colour alone: a mark, a word and a role. */
struct mark {
    const char *glyph, *word;
    enum role role;
};
struct mark verdict_mark(enum verdict v);
struct mark phase_mark(const struct snapshot *s); /* of the experiment on screen */

/* The metric an experiment is about, and its mean for an arm. */
const struct metric *experiment_metric(const struct experiment_state *x);

int experiment_arms(const struct experiment_state *x);
/* A challenger (arm 1 or higher) against A, and what the run says about it: an invalid run says nothing else.
 */
const struct comparison *experiment_comparison(const struct experiment_state *x, int arm);
enum verdict experiment_verdict(const struct experiment_state *x, int arm);
/* The challenger on screen in the A/B view: the selected one. */
int experiment_selected(const struct experiment_state *x, const struct ui *u);

/* One row: percent axis with zero, margin and the interval of the effect. */
void draw_axis(struct grid *g, struct rect row, const struct experiment_state *x, int arm);

/* Blocks from left to right: each one's effect as a dot in the band of the interval so far, which closes in.
 */
void draw_effect(struct grid *g, struct rect area, const struct experiment_state *x, int arm);

/* "+58.4% [+56.9%, +60.1%] ▲ better" from the pen on. */
void draw_verdict(struct pen *p, const struct experiment_state *x, int arm);

/* "e-value 94 (≥20)": the evidence, and what is enough. */
enum { EVIDENCE_COLUMNS = 20 };
void draw_evidence(struct pen *p, const struct experiment_state *x, int arm);

/* "KLD 0.012 [0.011, 0.014]  same top-1 94.1%": nothing when it was not measured. */
void draw_quality(struct pen *p, const struct experiment_state *x, int arm);

/* "A/A floor ±0.8%   discarded 1 of 8 blocks". */
void draw_control(struct pen *p, const struct experiment_state *x);

/* "block 7  ABBA 3/4  B decode ▇▇▇··· 45/64": what runs now, or how it ended. */
void draw_progress(struct pen *p, const struct snapshot *s);

/* What comes next, in words. Returns buf. */
const char *next_step(const struct snapshot *s, char *buf, size_t size);

/* The tail of the log in area, `back` lines scrolled up. */
void draw_log(struct grid *g, struct rect area, const struct snapshot *s, int back);

/* "label value" with the value dim when it is n/a. */
void pen_value(struct pen *p, const char *label, const char *value);

#endif
