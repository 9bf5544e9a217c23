/* command_push_queue.h - `qdyno push --list`, `--retry` and `--drop`: the outcomes that wait to be sent. */
#ifndef QDYNO_CLI_COMMAND_PUSH_QUEUE_H
#define QDYNO_CLI_COMMAND_PUSH_QUEUE_H

#include "telemetry/export/export.h"
#include "tui/cli/cli.h"

/* Whether a flag of this file is given. */
bool push_queue_asked(const struct cli_args *a);

/* Does what the flag says and lists what still waits. retry: deadline and credentials for --retry, as
 * outcome_flush. Returns the exit status; that of a failed attempt comes after the list. */
int push_queue(const struct cli_global *g, const struct cli_args *a, const struct push_target *retry);

#endif
