/* tui/dashboard/linear.h - the dashboard without a screen: one line for each change, commands as lines. For
 * screen readers, logs and terminals that cannot place a cursor.
 *
 * It is the same dashboard: lines are typed as its keys, and what is told is what its views show. */
#ifndef QDYNO_TUI_LINEAR_H
#define QDYNO_TUI_LINEAR_H

#include "advisor/experiment/experiment.h"
#include "tui/frame/frame.h"

/* What was said already. {0}: nothing. */
struct linear_reported {
    bool machine, confirm_quit, question;
    int64_t page;
    char model[512], advice_state[96], message[512];
    bool model_read;
    int advice_count;
    int64_t run_id;
    int64_t write_begun_ms,
        write_told_ms; /* which writing side by side was told: that it began, and all of it */
    bool experiment, starting;
    enum experiment_phase phase;
    enum verdict verdict;
    struct log_line last; /* of the log */
    enum form_kind form;
    int focus;
    char form_error[512];
    enum view view;
    int runs;
};

/* Append what is new in this frame as lines "12:00:01 text". */
void linear_report(struct linear_reported *t, const struct snapshot *s, const struct ui *u, struct str *out);

/* What an empty line asks for: where things stand. */
void linear_status(const struct snapshot *s, struct str *out);

/* What a line means, as keys (code points or UI_KEY_*); at most `max`. Returns the count; 0: nothing, the
 * status is asked for. */
int linear_keys(const char *line, const struct ui *u, int *keys, int max);

#endif
