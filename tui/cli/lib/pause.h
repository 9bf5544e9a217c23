/* tui/cli/lib/pause.h - Ctrl-Z while something is measured: the pause comes first, then the stop.
 *
 * A process that stands still cannot watch the machine, and the cell of a worker would run on unseen. So
 * SIGTSTP is taken as a wish: the experiment pauses between two cells, the process stops, and `fg` goes on.
 */
#ifndef QDYNO_TUI_CLI_PAUSE_H
#define QDYNO_TUI_CLI_PAUSE_H

#include <signal.h>

#include "advisor/experiment/experiment.h"
#include "db/db.h"
#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/eval/eval.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "telemetry/telemetry.h"

struct cli_pause {
    sigset_t before;
    bool wanted;
};

/* Before any thread is started: they inherit what is blocked. */
void cli_pause_begin(struct cli_pause *p);
/* Now and then while the experiment runs; stands still inside when it is time to. */
void cli_pause_follow(struct cli_pause *p, struct experiment *x, const struct experiment_state *now);
void cli_pause_end(struct cli_pause *p);

#endif
