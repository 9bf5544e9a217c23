/* tui/cli/lib/runs.h - what commands about past runs share. */
#ifndef QDYNO_CLI_RUNS_H
#define QDYNO_CLI_RUNS_H

#include "advisor/run/run.h"
#include "db/db.h"
#include "tui/cli/lib/lib.h"

/* Parses the number of a run. ERR_USAGE: not a whole number above 0. */
enum err_code cli_run_id(int64_t *id, const char *text, struct err *why);

/* Parses --arm LETTER: 0 for A and so on; -1 if the flag is not given. ERR_USAGE: not one letter of an arm.
 */
enum err_code cli_arm(int *arm, const struct cli_args *a, struct err *why);

/* The margin that the run's specification asked for; NAN if it has none. */
double cli_run_margin(const struct run_row *run);

/* What changed between the capsules (reproducibility records) of two runs: "changes" in the JSON document,
 * and one line for each change below the table. NULL: that run has no capsule. */
void cli_run_changes(struct table *t, const json_t *before, const json_t *after);

/* run_finish with the table as the stored document (t NULL: none), and without a verdict. rc and *why: how
 * the work ended; the state is "stopped" after an error, otherwise `state`. Returns rc, or else the error of
 * storing, which is then in *why. */
enum err_code cli_run_finish(struct run *r, const struct table *t, const char *state, enum err_code rc,
                             struct err *why);

#endif
