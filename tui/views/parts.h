/* tui/views/parts.h - internal to views: the views themselves, and what several of them draw.
 *
 * Every function draws into the rectangle it is given and reads nothing but its arguments. */
#ifndef QDYNO_TUI_VIEWS_PARTS_H
#define QDYNO_TUI_VIEWS_PARTS_H

#include "advisor/experiment/experiment.h"
#include "tui/views/layout.h"
#include "tui/views/views.h"

/* ---------------------------------------------------------------- views and overlays */

void view_live(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
void view_ab(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
void view_advice(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
void view_history(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
void view_model(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
void view_quality(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
void view_load(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
void view_settings(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
void view_log(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
void view_jobs(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
void view_write(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
void view_tune(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
void view_help(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
void view_palette(struct grid *g, struct rect body, const struct ui *u);
void view_page(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
void view_question(struct grid *g, struct rect body, const struct ui *u);
/* A field of the form; the one that is typed into with its cursor and what typing replaces. */
void draw_input(struct pen *p, const struct form *f, int field);
/* Details of the selected row, or help for the focused field. */
void view_explanation(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
extern const unsigned PAGE_STYLES[]; /* by enum page_tone */
/* The line that a filter is typed into, at the lower edge of the screen. */
void view_filter(struct grid *g, struct rect row, const struct snapshot *s, const struct ui *u);
void view_form(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);
/* The keys that only this view has, on its lower edge. */
void view_keys(struct grid *g, struct rect body, const struct snapshot *s, const struct ui *u);

/* Panes of views, in files of their own: KV cache blocks and batch sizes of the load view (blocks.c); memory
 * against speed, and quality against speed, of the advice view (pareto.c). */
/* The processes of the arms, of the A/B view (ranks.c). */
void box_ranks(struct grid *g, struct rect area, const struct snapshot *s);
void box_blocks(struct grid *g, struct rect area, const struct snapshot *s);
/* A load or a server that runs now, in the load view (load_live.c). */
void box_traffic(struct grid *g, struct rect area, const struct snapshot *s);
void box_live_latency(struct grid *g, struct rect area, const struct snapshot *s);
void box_steps(struct grid *g, struct rect area, const struct snapshot *s);
void box_pareto(struct grid *g, struct rect area, const struct snapshot *s, int chosen);
/* The number of rows whose loss was measured and is above 0. */
int pareto_losses(const struct snapshot *s);
void box_pareto_quality(struct grid *g, struct rect area, const struct snapshot *s, int chosen);

/* ---------------------------------------------------------------- the machine (machine.c) */

void box_machine(struct grid *g, struct rect area, const struct snapshot *s);

/* What this machine cannot tell, and why. Returns the count; 0 as long as no sensor was read. */
enum { ABSENT_PARTS = 8 };
struct absent_part {
    const char *name, *why;
};
int machine_absent(const struct snapshot *s, struct absent_part out[ABSENT_PARTS]);

/* "label value", with the style and mark of the value's level: "others 31%!". */
void pen_level(struct pen *p, const char *label, enum metric_id metric, double v, const char *text);

/* Charts one above the other, as many as fit below `row`. */
void draw_timelines(struct grid *g, struct rect in, int row, const struct timeline *t, int n);

/* ---------------------------------------------------------------- a busy machine (busy.c) */

/* The rows below the view that draw_busy() needs now; 0: nothing to say. */
int busy_rows(const struct snapshot *s, const struct ui *u);
void draw_busy(struct grid *g, struct rect area, const struct snapshot *s, const struct ui *u);

/* ---------------------------------------------------------------- a search */

/* What to do next and what was done, before anything was measured since the start (home.c). */
void draw_home(struct grid *g, struct rect in, const struct snapshot *s, const struct ui *u);

/* "A/B", or "Stored run 12 of 2026-11-20, not live" for a run that was read from the database. Returns buf.
 */
const char *run_title(const struct snapshot *s, char *buf, size_t size);

/* A search in a few rows, for the live view (tune.c). */
void draw_tune(struct grid *g, struct rect area, const struct snapshot *s);

/* ---------------------------------------------------------------- panes (panes.c) */

/* Register the panes as click targets. While a pane is zoomed, and on a screen with room for one, `box`
 * becomes the whole body for that pane and empty for the others. */
void panes_place(struct grid *g, struct rect *box, int boxes, struct rect body, const struct ui *u);
/* The names of the panes, the one that is shown in brackets; called after the view is drawn. False: it has
 * none. */
bool panes_tabs(struct grid *g, struct rect row, const struct snapshot *s, const struct ui *u);
/* Highlight the frame of the focused pane; called after the view is drawn. */
void panes_mark(struct grid *g, const struct ui *u);

/* ---------------------------------------------------------------- lists (list_draw.c) */

/* What a view adds to its row of LISTS. */
struct list_view {
    struct grid *g;
    struct rect box;          /* with its frame */
    const char *title, *note; /* in the upper and lower edge; note NULL: none */
    const struct snapshot *s;
    const struct ui *u;
    int below; /* rows that the view draws itself, under the list */
    /* Draws the cells of columns that have no text, such as bars; NULL: none. Its pen stands at the cell. */
    void (*draw)(struct pen *p, int columns, int item, unsigned extra, const void *ctx);
    /* Draws a row that stands for something else than one item. False: it does not; NULL: no row does. */
    bool (*whole)(struct pen *p, int item, unsigned style, const void *ctx);
    const void *ctx;
};

/* Draw the list of the view on screen. Returns the rows left for the view: the whole inside when the list is
 * empty, otherwise the `below` rows. */
struct rect list_draw(const struct list_view *v);

/* ---------------------------------------------------------------- parts of an experiment (parts.c) */

/* One row: an axis in percent with zero, the margin and the interval of the effect. */
void draw_axis(struct grid *g, struct rect row, const struct experiment_state *x, int arm);

/* The effect of each block as a dot, from left to right, inside the band of the interval at that time. */
void draw_effect(struct grid *g, struct rect area, const struct experiment_state *x, int arm);

/* "+58.4% [+56.9%, +60.1%] ▲ better" */
void draw_verdict(struct pen *p, const struct experiment_state *x, int arm);

/* "+58.4% ▲ better" */
void draw_verdict_briefly(struct pen *p, const struct experiment_state *x, int arm);

/* "evidence 94 (≥20)": the e-value, and how much is needed. */
enum { EVIDENCE_COLUMNS = 21 };
void draw_evidence(struct pen *p, const struct experiment_state *x, int arm);

/* "KLD 0.012 [0.011, 0.014]  same top-1 94.1%"; draws nothing when quality was not measured. */
void draw_quality(struct pen *p, const struct experiment_state *x, int arm);

/* "noise ±0.8% (A/A, 3 blocks)   1 of 8 blocks left out". Where the noise exceeds the interval of the arm, it
 * says that few blocks are the cause. */
void draw_control(struct pen *p, const struct experiment_state *x, int arm);

/* "block 7  ABBA 3/4  B decode ▇▇▇··· 45/64": the running cell, or how the experiment ended. */
void draw_progress(struct pen *p, const struct snapshot *s);
/* What holds for all rows of the advice: a caution, otherwise the context that their memory is for. A search
 * shows another memory of the same configuration, that of its own workload. NULL: neither
 * is known. */
const char *advice_note(const struct snapshot *s, char *buf, size_t size);
/* The config line of an arm in `columns`; what it has in common with the other arms gives way first. Returns
 * buf. */
const char *arm_line(const struct experiment_state *x, int arm, int columns, char *buf, size_t size);

/* What to do next, as a sentence. Returns buf. */
const char *next_step(const struct snapshot *s, char *buf, size_t size);

/* The end of the log, scrolled back by `back` lines. */
void draw_log(struct grid *g, struct rect area, const struct snapshot *s, int back);

/* First row of a list to show so that `selected` is visible in `rows`. */
int list_top(int selected, int rows, int count);

/* "label value"; a value of n/a is dim. */
void pen_value(struct pen *p, const char *label, const char *value);

#endif
