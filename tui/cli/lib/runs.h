/* tui/cli/lib/runs.h - what commands about past runs share. */
#ifndef QDYNO_CLI_RUNS_H
#define QDYNO_CLI_RUNS_H

#include "advisor/history/history.h"
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

/* What differs between two runs: the machine's load, clock and other conditions, what was asked for, and the
 * recorded set-up (capsule). Above the table, because it has to be read before any conclusion; "changes" and
 * "load" in the JSON document. */
void cli_run_changes(struct table *t, const struct results *before, const struct results *after);

/* Adds "run": its number, or null for 0, which is a run that was not stored. */
void cli_put_run(json_t *to, int64_t id);
/* The last line about a run: its number and how to print it again. Added after the table was stored, so that
 * `show` does not print it twice. id 0: it was not stored, and what to do;
 * the error is told elsewhere. */
void cli_note_run(struct table *t, int64_t id);

/* Adds the table to the outcome of a run that ended, so that `show` prints it again. Runs of other kinds than
 * `kind` are left as they are, because they store a document of their own. */
enum err_code cli_run_store_table(const struct cli_global *g, int64_t run_id, const char *kind,
                                  const struct table *t, struct err *why);

/* run_finish with the table as the stored document (t NULL: none), and without a verdict. rc and *why: how
 * the work ended; the state is "stopped" after an error, otherwise `state`. Returns rc, or else the error of
 * storing, which is then in *why. */
enum err_code cli_run_finish(struct run *r, const struct table *t, const char *state, enum err_code rc,
                             struct err *why);

#endif
