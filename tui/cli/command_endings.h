/* tui/cli/command_endings.h - the lines that end the output of `bench` and `eval`, made from the rows of
 * their tables: the result (all that -q prints), one line of evidence, one of conditions. */
#ifndef QDYNO_COMMAND_ENDINGS_H
#define QDYNO_COMMAND_ENDINGS_H

#include "tui/cli/lib/lib.h"

void bench_close_table(struct table *t);
/* reference: the config that losses are measured against; "": none. */
void eval_close_table(struct table *t, const char *reference);
/* Sets the last line to a command that prints the run again. */
void close_with_run(struct table *t, int64_t run);
/* Sets the last line to an A/B of two configs of the run; where both are the same config on one model, to
 * close_with_run. Call it after the table was stored, as close_with_run. */
struct next_ab {
    struct config_on side[2];
    const char *workload, *why;
};
void close_with_ab(struct table *t, int64_t run, const struct next_ab *next);

#endif
