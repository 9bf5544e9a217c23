/* tui/cli/lib/scenarios.h - scenarios of `qdyno bench --preset`: files that name one config and its
 * workloads.
 *
 * A scenario is a file NAME.conf of lines "config LINE" (at most one; the default config without it),
 * "workload WORKLOAD" (one or more) and "repetitions N" (at most one). Empty lines and lines that begin with
 * # are comments. A preset is a folder of scenarios: one that the user names, or one in share/scenarios. */
#ifndef QDYNO_CLI_SCENARIOS_H
#define QDYNO_CLI_SCENARIOS_H

#include "base/base.h"

enum { SCENARIO_WORKLOADS = 16, SCENARIO_REPETITIONS = 10000 };
struct scenario {
    char *preset, *name; /* owned: "quick"; "q4_K" for q4_K.conf */
    char *text;          /* owned: the file; the next point into it */
    const char *config;  /* a config line */
    const char *workload[SCENARIO_WORKLOADS];
    int workloads, repetitions; /* repetitions 0: not given */
};
struct scenarios {
    struct scenario *one; /* owned: scenarios_free */
    int n;
};

/* Read all scenarios of a preset, by name; "all": of all shipped presets. *out: scenarios_free, also after an
 * error. Errors: ERR_USAGE (no such preset: the message lists the shipped ones; one without scenarios);
 * ERR_FORMAT (file and line, expected, found); those of file_read; ERR_NOMEM. */
enum err_code scenarios_read(struct scenarios *out, const char *preset, struct err *why);
void scenarios_free(struct scenarios *s);

/* Parse the text of one file; takes `text`. `file` is for messages. Errors: ERR_FORMAT, ERR_NOMEM. */
enum err_code scenario_parse(struct scenario *out, char *text, const char *file, struct err *why);

#endif
