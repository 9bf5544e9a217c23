/* tui/cli/command_tune_keep.h - whether the winner of a search is saved. A setting that was found while other
 * programs used the machine is saved only with --keep, or after the person at the terminal agreed. */
#ifndef QDYNO_CLI_COMMAND_TUNE_KEEP_H
#define QDYNO_CLI_COMMAND_TUNE_KEEP_H

#include "advisor/tune/tune.h"
#include "tui/cli/cli.h"

/* The name of the flag. */
#define FLAG_KEEP "--keep"

struct tune_kept {
    bool save;
    char reason[320];   /* why it is not saved; "": it is, or there is nothing to save */
    struct str confirm; /* the command that measures it on a quiet machine, never cut; empty: not needed.
                           Owned: str_free */
};
/* Decide about a winner; asks on a terminal. */
void tune_keep_decide(struct tune_kept *out, const struct cli_global *g, const struct cli_args *a,
                      const char *model, const char *workload, const struct tune_result *r);

#endif
