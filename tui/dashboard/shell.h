/* tui/dashboard/shell.h - runs a command of the command line as another process of the same program. Internal
 * to the dashboard. */
#ifndef QDYNO_TUI_SHELL_H
#define QDYNO_TUI_SHELL_H

#include "tui/frame/frame.h"

/* The process gets a process group of its own and no input. Its standard output and error are passed on line
 * by line. */
struct shell_run {
    const char *program; /* NULL: this program */
    char *const *argv;   /* argv[0] is its name */
    int channel_fd;      /* as in struct process_spec; 0: none */
    void (*line)(void *ctx, const char *text);
    /* The pid may be signalled from now on; pid 0: it has ended, and will not be signalled any more. */
    void (*started)(void *ctx, int pid);
    void *ctx;
};
/* Run it and wait for its end. *status: the exit status, or 128 + the number of the signal that ended it.
 * Errors: ERR_IO, ERR_NOMEM when it could not be started. */
enum err_code shell_run(const struct shell_run *r, int *status, struct err *why);

/* Parse a line that a command wrote under --progress=json (tui/cli/lib/progress.h). NULL: it is something
 * else. New reference. */
json_t *progress_line_parse(const char *line);
void task_progress_read(struct task_progress *out, const json_t *progress);

#endif
