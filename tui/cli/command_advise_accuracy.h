/* tui/cli/command_advise_accuracy.h - `qdyno advise --accuracy`: predicted against measured values on this
 * machine. */
#ifndef QDYNO_CLI_ACCURACY_H
#define QDYNO_CLI_ACCURACY_H

#include "tui/cli/lib/lib.h"

/* Prints the table and returns the exit status. */
int accuracy_show(const struct cli_global *g, const struct cli_args *a);

#endif
