/* tui/cli/lib/gates.h - --gate of several commands: a condition that decides the exit status. */
#ifndef QDYNO_CLI_GATES_H
#define QDYNO_CLI_GATES_H

#include "advisor/experiment/experiment.h"
#include "tui/cli/lib/lib.h"

#define FLAG_GATE_ROW(example)                                                                               \
    {                                                                                                        \
        .name = "--gate", .value = "EXPR", .many = true,                                                     \
        .help = "condition that decides the exit status, e.g. '" example "'"                                 \
    }

/* Parses all --gate of the command line, joined by "and". Without one, out->terms is 0. ERR_USAGE: the
 * position and what was expected there. */
enum err_code cli_gate(struct gate *out, const struct cli_args *a, struct err *why);

/* Adds the outcome of the gate and a line for each of its conditions below the table. subject: what was
 * judged, e.g. "B". */
void cli_note_gate(struct table *t, const char *subject, const struct gate *g, const struct gate_result *r);

#endif
