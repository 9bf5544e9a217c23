/* tui/cli/command_ab_arms.h - the arms of `ab`: configs, workloads, or pairs of both. */
#ifndef QDYNO_CLI_AB_ARMS_H
#define QDYNO_CLI_AB_ARMS_H

#include "tui/cli/lib/lib.h"

/* Sets arms, configs and workloads of the spec. ERR_USAGE: numbers of config lines and -w that do not fit. */
enum err_code ab_arms(struct experiment_spec *s, const struct cli_args *a, struct err *why);

/* Lines under the table, where arms have workloads of their own: both rates, and what kind of comparison it
 * is. */
void ab_arms_note(struct table *t, const struct experiment_state *s);

#endif
