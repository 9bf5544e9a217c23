/* tui/cli/lib/progress.h - how far long work has come, on stderr: for people a line that overwrites itself,
 * on a terminal only; with --progress json a JSON object a line, for programs that watch (the dashboard
 * does).
 *
 * A line of JSON: { "schema": "qdyno.progress/1", "text": what goes on, "done": 0..1, "rate", "unit",
 * "left_s" }, numbers null where unknown; at most ten a second. */
#ifndef QDYNO_CLI_PROGRESS_H
#define QDYNO_CLI_PROGRESS_H

#include "tui/cli/cli.h"

/* Numbers beside the text; NAN unknown, unit NULL none. */
struct progress_figures {
    double done; /* 0..1 */
    double rate; /* in `unit` */
    const char *unit;
    double left_s; /* NAN: reckoned from how `done` has moved so far */
};

struct progress {
    bool on, json, shown;
    int64_t last_ns;
    double first_done; /* when the text's work began, for left_s */
    int64_t first_ns;
};
void progress_init(struct progress *p, const struct cli_global *g);
void progress_show(struct progress *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same with figures, which only programs are told: people read them in the text. */
void progress_tell(struct progress *p, const struct progress_figures *at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void progress_clear(struct progress *p);

#endif
