/* tui/cli/command_show_causes.h - `qdyno show RUN --causes`, and moved metrics as JSON. */
#ifndef QDYNO_CLI_SHOW_CAUSES_H
#define QDYNO_CLI_SHOW_CAUSES_H

#include "advisor/history/history.h"
#include "tui/cli/lib/lib.h"

/* Fills a table with the changes of a run. Errors: as run_causes_read; ERR_USAGE when the run has no results.
 */
enum err_code show_causes(struct table *t, struct db *d, int64_t id, struct err *why);
/* New reference. */
json_t *moved_to_json(const struct moved *m, int n, int at);

#endif
