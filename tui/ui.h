/* tui/ui.h - what the person is looking at and typing: the other half of a frame, beside the snapshot. */
#ifndef QDYNO_TUI_UI_H
#define QDYNO_TUI_UI_H

#include "tui/form.h"
#include "tui/palette.h"
#include "tui/snapshot.h"

enum view {
    VIEW_LIVE,
    VIEW_AB,
    VIEW_ADVICE,
    VIEW_HISTORY,
    VIEW_MODEL,
    VIEW_QUALITY,
    VIEW_LOAD,
    VIEW_SETTINGS,
    VIEW_LOG,
    VIEW_WRITE, /* key 0 */
    VIEW_COUNT
};

/* How the history is sorted; the newest first among equals. */
enum history_order { BY_TIME, BY_EFFECT, BY_VERDICT, BY_MODEL, BY_WORKLOAD, BY_KIND, HISTORY_ORDERS };
extern const char *const HISTORY_ORDER_NAMES[HISTORY_ORDERS];

/* Something that cannot be undone, and waits for a yes. */
struct question {
    char text[400];  /* "" none */
    char line[1600]; /* behind "qdyno": what yes runs */
    char makes[512]; /* the file that it writes, "" none */
};

enum { MARKED = 2 };

struct ui {
    enum view view;
    int selected[VIEW_COUNT]; /* row; the log: lines scrolled back */
    int pane[VIEW_COUNT];     /* the focused one from 1; 0: none */
    bool zoomed;              /* it fills the screen */
    bool help;
    int help_scroll;
    bool confirm_quit;
    bool read_only;
    struct form form;
    const struct palette_command *commands; /* what the palette finds beside keys and settings; borrowed */
    int command_count;
    int palette_row; /* selected */
    bool mouse;
    char filter[64]; /* of the history */
    enum history_order order;
    int64_t marked[MARKED]; /* run ids, the older mark first; 0: none */
    struct question question;
    bool page; /* what is to be read lies over the view */
    int page_row, page_column;
    char toast[512]; /* answer to the last key; "" when none */
    bool toast_is_error;
    int64_t toast_until_ms; /* unix */
    bool waiting_to_start;  /* an A/B was asked for and begins when the probe is over */
};

/* The usage of the command that is being typed into the form, or what there is. Returns buf. */
const char *ui_command_hint(const struct ui *u, char *buf, size_t size);

/* What quitting would end now, as a question. */
const char *ui_quit_question(const struct snapshot *s);

/* What the palette finds for what is typed into it; returns the count. */
enum { PALETTE_ROWS = 64 };
int ui_palette(const struct ui *u, struct palette_entry out[PALETTE_ROWS]);

/* Rows of the current view that can be selected or scrolled. */
int ui_rows(const struct ui *u, const struct snapshot *s);

/* Put the selection back into the rows there are. */
void ui_clamp(struct ui *u, const struct snapshot *s);

/* Why an action cannot be done now, "" when it can. Shown when its key is pressed, and dims it in the footer.
 */
const char *action_refusal(enum action action, const struct ui *u, const struct snapshot *s, char *buf,
                           size_t size);

/* The command that does the same without the dashboard, with this screen's values; "" when there is none. */
const char *action_command(enum action action, const struct ui *u, const struct snapshot *s, char *buf,
                           size_t size);

/* Rows of the history as they are sorted: indices into s->run. */
void ui_history(const struct ui *u, const struct snapshot *s, int rows[SNAPSHOT_RUNS]);
/* Which mark a run bears: 1, 2; 0 none. */
int ui_mark(const struct ui *u, int64_t id);
/* The two runs that `compare` means, the older first: the marked ones, or the marked and the selected one.
 * False: there are none. */
bool ui_compared(const struct ui *u, const struct snapshot *s, int64_t id[MARKED]);

/* The selected row of the history, of the advice; NULL: none, or another view. */
const struct run_line *ui_run(const struct ui *u, const struct snapshot *s);
const struct advice *ui_advice(const struct ui *u, const struct snapshot *s);

/* The command that does the same as what is on screen or being typed; "" when there is none. Returns buf. */
const char *screen_command(const struct ui *u, const struct snapshot *s, char *buf, size_t size);

/* The run that p, r and Enter speak of: the selected one of the history, else the experiment on screen; 0:
 * none. */
int64_t ui_run_id(const struct ui *u, const struct snapshot *s);

#endif
