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
    VIEW_COUNT
};

struct ui {
    enum view view;
    int selected[VIEW_COUNT]; /* row; the log: lines scrolled back */
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

/* The selected row of the history, of the advice; NULL: none, or another view. */
const struct run_line *ui_run(const struct ui *u, const struct snapshot *s);
const struct advice *ui_advice(const struct ui *u, const struct snapshot *s);

/* The run that p, r and Enter speak of: the selected one of the history, else the experiment on screen; 0:
 * none. */
int64_t ui_run_id(const struct ui *u, const struct snapshot *s);

#endif
