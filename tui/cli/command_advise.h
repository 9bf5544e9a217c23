/* tui/cli/command_advise.h - internal: the forms of `qdyno advise` that print another document. Each returns
 * the exit status. */
#ifndef QDYNO_CLI_COMMAND_ADVISE_H
#define QDYNO_CLI_COMMAND_ADVISE_H

#include "advisor/advise/advise.h"
#include "tui/cli/lib/lib.h"

/* --accuracy: predicted against measured values on this machine. */
int accuracy_show(const struct cli_global *g, const struct cli_args *a);

/* --matrix: what to try by room in memory and by what matters. The model must not be quantized. */
int matrix_show(const struct cli_global *g, const struct cli_args *a, const struct rule_case *c,
                const struct advise_options *o);

/* --ranks N: which way of dividing the model among N processes is the fastest, or that none is faster than
 * one process; with --ranks and --network of `a`. */
struct advise_ranks {
    const char *model; /* path */
    const struct machine *machine;
    const struct machine_ceilings *ceilings;
    struct predict_for what;
};
int advise_ranks_show(const struct cli_global *g, const struct cli_args *a, const struct advise_ranks *x);

#endif
