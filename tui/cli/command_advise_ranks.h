/* tui/cli/command_advise_ranks.h - `qdyno advise --ranks N`: which way of dividing the model among N
 * processes is the fastest, or that none is faster than one process. */
#ifndef QDYNO_CLI_ADVISE_RANKS_H
#define QDYNO_CLI_ADVISE_RANKS_H

#include "advisor/predict/predict.h"
#include "tui/cli/lib/lib.h"

struct advise_ranks {
    const char *model; /* path */
    const struct machine *machine;
    const struct machine_ceilings *ceilings;
    struct predict_for what;
};
/* Predicts and prints all ways, with --ranks and --network of `a`. Returns the exit status. */
int advise_ranks_show(const struct cli_global *g, const struct cli_args *a, const struct advise_ranks *x);

#endif
