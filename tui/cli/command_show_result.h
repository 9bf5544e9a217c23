/* tui/cli/command_show_result.h - `show` of runs without a table of their own, and the conditions of any run.
 */
#ifndef QDYNO_CLI_SHOW_RESULT_H
#define QDYNO_CLI_SHOW_RESULT_H

#include "db/db.h"
#include "tui/cli/lib/lib.h"

/* Adds what each config of the run measured, the fastest first, and its events. */
enum err_code show_candidates(struct table *t, struct db *d, const struct run_row *run, struct err *why);
/* The command that continues a search that can go on; nothing for other runs. */
void show_next_of_search(struct table *t, const struct run_row *run);
/* Appends what is known of the machine while the run's cells ran, in words. */
void show_conditions_text(struct str *text, struct db *d, int64_t run_id);
/* Adds a line about the machine while the run's cells ran. */
void show_conditions(struct table *t, struct db *d, int64_t run_id);

#endif
