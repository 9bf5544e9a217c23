/* tui/cli/lib/run_changes.h - what the commands about two runs share: naming a run, and telling what changed
 * between them. */
#ifndef QDYNO_CLI_CHANGES_H
#define QDYNO_CLI_CHANGES_H

#include "tui/cli/lib/lib.h"

/* A run's number. ERR_USAGE says what it should be. */
enum err_code cli_run_id(int64_t *id, const char *text, struct err *why);

/* What changed between two runs' capsules (NULL: a run has none): "changes" of the JSON document, and a line
 * for each below the table. */
void changes_tell(struct table *t, const json_t *before, const json_t *after);

#endif
