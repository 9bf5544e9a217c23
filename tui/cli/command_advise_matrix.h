/* tui/cli/command_advise_matrix.h - `qdyno advise --matrix`: what to try by room in memory and by what
 * matters. */
#ifndef QDYNO_CLI_ADVISE_MATRIX_H
#define QDYNO_CLI_ADVISE_MATRIX_H

#include "advisor/advise/advise.h"
#include "tui/cli/lib/lib.h"

/* Prints the matrix for a model and a machine, and returns the exit status. The model must not be quantized.
 */
int matrix_show(const struct cli_global *g, const struct cli_args *a, const struct rule_case *c,
                const struct advise_options *o);

#endif
