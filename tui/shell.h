/* tui/shell.h - any command of the command line, run from the dashboard: another process of the same
 * program, whose lines go to the log and which can be cancelled. */
#ifndef QDYNO_TUI_SHELL_H
#define QDYNO_TUI_SHELL_H

#include "base/base.h"

/* A line as a shell would take it apart, in place: words part at blanks, 'single' and "double" quotes hold
 * them together, a backslash takes the next character as it is. No variables, no patterns, no pipes: those
 * characters are themselves. *n words, argv NULL-terminated. ERR_USAGE: a quote is not closed, or more than
 * max - 1 words. */
enum err_code words_split(char *line, char **argv, int max, int *n, struct err *why);

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

/* How far a command has come: a line of `--progress json` (tui/cli/progress.h). */
struct shell_progress {
    double done, rate, left_s; /* NAN unknown */
    char unit[24], text[120];
};
/* False: the line is something else. */
bool shell_progress_read(struct shell_progress *out, const char *line);

#endif
