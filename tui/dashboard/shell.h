/* tui/dashboard/shell.h - any command of the command line, run from the dashboard: another process of the
 * same program, whose lines go to the log and which can be cancelled. */
#ifndef QDYNO_TUI_SHELL_H
#define QDYNO_TUI_SHELL_H

#include "tui/frame/frame.h"

/* Started in a process group of its own, without input; what it writes, to both streams, is told line by
 * line.
 */
struct shell_run {
    const char *program; /* NULL: this one */
    char *const *argv;   /* [0]: its name */
    void (*line)(void *ctx, const char *text);
    void (*started)(void *ctx, int pid); /* from then on until the end it may be signalled */
    void *ctx;
};
/* Waits for its end. *status: its exit status, or 128 + the signal that ended it. Errors: ERR_IO, ERR_NOMEM
 * when it could not be started. */
enum err_code shell_run(const struct shell_run *r, int *status, struct err *why);

/* Read a progress line of `--progress json` (tui/cli/progress.h). False: the line is something else. */
bool task_progress_read(struct task_progress *out, const char *line);

#endif
