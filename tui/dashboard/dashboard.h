/* tui/dashboard/dashboard.h - the door of tui/: the dashboard, started by main. */
#ifndef QDYNO_TUI_H
#define QDYNO_TUI_H

#include <signal.h>

#include "base/base.h"

struct palette_command;

struct dashboard_options {
    const char *model; /* path */
    const char *db_path;
    const char *arms[2];  /* config lines prefilled for the next A/B; NULL: defaults */
    const char *workload; /* NULL: "tg64" */
    const char *push_url; /* NULL: none */
    bool color;           /* false: NO_COLOR or --no-color */
    const char *theme;    /* name or path; NULL: what was kept, else the default */
    bool no_mouse;
    bool linear;                              /* lines instead of a screen: linear.h */
    const volatile sig_atomic_t *interrupted; /* set by Ctrl-C, looked at by `linear`; NULL: never */
    bool read_only;
    int frames; /* > 0: draw that many frames without a terminal (fixed 80x24 grid, text to stdout) and leave
                 */
    int64_t resume_id;
    const struct log *log;
    const struct palette_command *commands; /* for the palette, borrowed */
    int command_count;
};
/* Runs until the person quits. Returns ERR_ABSENT (with a helpful message) when the terminal cannot do it. */
enum err_code dashboard_run(const struct dashboard_options *o, struct err *why);

#endif
