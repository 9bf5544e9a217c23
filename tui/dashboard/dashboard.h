/* tui/dashboard/dashboard.h - the interactive dashboard: the public header of the sub-room. */
#ifndef QDYNO_TUI_DASHBOARD_H
#define QDYNO_TUI_DASHBOARD_H

#include <signal.h>

#include "base/base.h"
#include "telemetry/export/export.h"

struct palette_command;

/* All pointers are borrowed until dashboard_run() returns; NULL means not given. */
struct dashboard_options {
    const char *model; /* path of a model file */
    const char *db_path;
    const char *arms[2];  /* config lines offered for the next A/B */
    const char *workload; /* offered for the next A/B; NULL: "tg64" */
    const char *push_url; /* address of a Pushgateway */
    const char *server;   /* a `qdyno serve` to watch: "http://127.0.0.1:8080" */
    const char *server_key;
    bool color;        /* false: NO_COLOR or --no-color */
    const char *theme; /* name or path; NULL: the saved one, else the default */
    bool no_mouse;
    bool linear;                              /* print lines and read commands as lines; no screen */
    const volatile sig_atomic_t *interrupted; /* set by Ctrl-C; only `linear` reads it */
    bool read_only;
    int frames;        /* > 0: print this many 80x24 frames as text and return; no terminal needed */
    int64_t resume_id; /* run to resume or, with read_only or frames, to show; 0: none */
    const struct log *log;
    const struct palette_command *commands; /* the command line's table, for the palette */
    int command_count;
};
/* Run until the person quits. Errors: ERR_ABSENT when the terminal cannot show the dashboard (the message
 * says what to do), those of preferences and themes, ERR_NOMEM, ERR_IO. */
enum err_code dashboard_run(const struct dashboard_options *o, struct err *why);

#endif
