/* tui/cli/lib/progress.h - progress of long work on stderr: for people a line that overwrites itself, on a
 * terminal only; with --progress json one JSON object a line, for programs (the dashboard reads it).
 *
 * A line of JSON: { "schema": "qdyno.progress/1", "text": current step, "done": 0..1, "rate", "unit",
 * "left_s" }. Unknown numbers are null. At most ten lines a second are written. A command may add one object
 * of its own (docs/documents.md). */
#ifndef QDYNO_CLI_PROGRESS_H
#define QDYNO_CLI_PROGRESS_H

#include "tui/cli/cli.h"

/* Numbers for the JSON line. NAN: unknown; unit NULL: none. */
struct progress_figures {
    double done; /* 0..1 */
    double rate; /* in `unit` */
    const char *unit;
    double left_s;       /* NAN: estimated from the speed at which `done` has grown so far */
    const char *own_key; /* key of the command's own object in the JSON line; NULL: none */
    json_t *own;         /* borrowed */
    bool at_once;        /* write it even if the last line was just written */
};
/* The figures where only the share that is done, and perhaps the seconds that are left, are known. */
#define PROGRESS_AT(share, left)                                                                             \
    &(struct progress_figures)                                                                               \
    {                                                                                                        \
        .done = (share), .rate = NAN, .left_s = (left)                                                       \
    }

/* The object of one line. New reference. */
json_t *progress_to_json(const struct progress_figures *at, const char *text, double left_s);

struct progress {
    bool on, json, shown;
    int64_t last_ns;
    double first_done; /* `done` and time at the start of the current work, for the estimate of left_s */
    int64_t first_ns;
};
void progress_init(struct progress *p, const struct cli_global *g);

/* Shows a text without numbers. */
void progress_show(struct progress *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Shows a text; the figures go only into the JSON line, because people read them in the text. */
void progress_report(struct progress *p, const struct progress_figures *at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Whether JSON is written and the last line is at least this old, or there is none: for objects that are
 * large. */
bool progress_is_due(const struct progress *p, double seconds);

/* Erases the line. Call before anything else is printed. */
void progress_clear(struct progress *p);

#endif
