/* tui/dashboard/linear.h - the dashboard without a screen (--linear): each change is one line of text, and
 * commands are typed as lines. For screen readers, logs, and terminals that cannot place a cursor. Internal
 * to the dashboard.
 *
 * It is the same dashboard: a typed line becomes the keys a person would press, and the lines printed are
 * what the views show. */
#ifndef QDYNO_TUI_LINEAR_H
#define QDYNO_TUI_LINEAR_H

#include "advisor/experiment/experiment.h"
#include "tui/frame/frame.h"

/* What was reported already, so that each change is reported once. {0}: nothing. */
struct linear_reported {
    bool machine, confirm_quit, question;
    int64_t page; /* number of the text page */
    char model[512], advice_state[96], message[512];
    bool model_read;
    int advice_count;
    int64_t run_id;
    int64_t write_begun_ms,
        write_reported_ms; /* start times of the side-by-side run whose start and end were reported */
    bool experiment, starting;
    int64_t tune_begun_ms, tune_stopped; /* of the search; id of the one that can be resumed */
    enum tune_phase tune_phase;
    bool tune_reported, tune_ended; /* its phase, its end */
    char tune_leader[160];
    enum experiment_phase phase;
    enum verdict verdict;
    struct log_line last; /* line of the log */
    enum form_kind form;
    int focus;
    char form_error[512];
    enum view view;
    int runs;
};

/* Append what is new in this frame as lines "12:00:01 text". */
void linear_report(struct linear_reported *t, const struct snapshot *s, const struct ui *u, struct str *out);

/* Append one line about the current state: the answer to an empty line. */
void linear_status(const struct snapshot *s, struct str *out);

/* Append the answer to a line that needs no key: an empty line (the status), "help", and text that names no
 * key, setting or command. False: the line is for linear_keys. */
bool linear_answer(const char *line, const struct snapshot *s, const struct ui *u, struct str *out);

/* Turn a line that linear_answer refused into keys (code points or UI_KEY_*), at most `max`. Returns the
 * count. The keys are meant for a view, form or question: nothing else may cover the view. */
int linear_keys(const char *line, const struct ui *u, int *keys, int max);

#endif
