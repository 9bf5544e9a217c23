/* tui/cli/command_eval_task.h - `qdyno eval --task`: accuracy on questions with choices. */
#ifndef QDYNO_CLI_EVAL_TASK_H
#define QDYNO_CLI_EVAL_TASK_H

#include "tui/cli/lib/lib.h"

/* ERR_USAGE: flags that do not go with --task, or not without it. */
enum err_code eval_task_check(const struct cli_args *a, struct err *why);
/* Asks each config, and the reference (NULL: none), the questions of --task; prints and stores the answers.
 * Returns the exit status. */
int eval_task(const struct cli_global *g, const struct cli_args *a, const struct config *configs, int n,
              const struct config *ref);

#endif
