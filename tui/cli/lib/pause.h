/* tui/cli/lib/pause.h - Ctrl-Z during an experiment: pause first, then stop the process.
 *
 * A stopped process cannot sample the machine, but the cell in its worker would run on. So SIGTSTP only
 * requests a pause: the experiment pauses between two cells, then the process stops, and `fg` continues both.
 * The dashboard pauses an A/B in the same way. */
#ifndef QDYNO_TUI_CLI_PAUSE_H
#define QDYNO_TUI_CLI_PAUSE_H

#include <signal.h>

#include "advisor/experiment/experiment.h"

struct cli_pause {
    sigset_t before; /* the signal mask to restore */
    bool wanted;
};

/* Blocks SIGTSTP and SIGCONT. Call before any thread starts: threads inherit the signal mask. */
void cli_pause_begin(struct cli_pause *p);

/* Call repeatedly while the experiment runs. Requests the pause, and stops the process inside this call once
 * the experiment has paused. */
void cli_pause_poll(struct cli_pause *p, struct experiment *x, const struct experiment_state *now);

/* Restores the signal mask; a request that was not taken yet is dropped. */
void cli_pause_end(struct cli_pause *p);

#endif
