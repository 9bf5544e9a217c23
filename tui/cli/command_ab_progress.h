/* tui/cli/command_ab_progress.h - the lines of progress of `ab`. For programs they have the key "ab"
 * (docs/documents.md), from which the dashboard draws a running A/B. */
#ifndef QDYNO_CLI_COMMAND_AB_PROGRESS_H
#define QDYNO_CLI_COMMAND_AB_PROGRESS_H

#include "advisor/experiment/experiment.h"
#include "tui/cli/lib/progress.h"

/* What was written last, so that events and changes of the phase are written at once. */
struct ab_lines {
    const struct cli_global *g;
    struct progress progress;
    int64_t since_ms; /* events from here on are of this session */
    struct ab_event {
        int64_t unix_ms;
        char text[512];
    } seen; /* the last one that was written */
    struct {
        enum experiment_phase phase;
        int64_t run_id, paused_since_ms;
        bool pausing, known;
    } last;
};
void ab_lines_begin(struct ab_lines *l, const struct cli_global *g);
/* A line for people or programs, if it is time; for people also a note where the budget turns out too short.
 */
void ab_lines_show(struct ab_lines *l, const struct experiment_state *s);
/* The last line. */
void ab_lines_end(struct ab_lines *l, const struct experiment_state *s);

/* Takes over changes of the running load from a FIFO or another file, one JSON object a line:
 * {"rate_by": 1.25, "settings": "schedule=shortest"}; each key may be absent. */
struct ab_changes {
    int fd;          /* -1: none */
    struct str line; /* what has come of the next one */
};
enum err_code ab_changes_open(struct ab_changes *c, const char *path, struct err *why); /* NULL: none */
void ab_changes_poll(struct ab_changes *c, const struct cli_global *g, struct experiment *x);
void ab_changes_close(struct ab_changes *c);

#endif
