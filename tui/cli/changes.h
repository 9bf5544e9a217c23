/* tui/cli/changes.h - what the commands about two runs share: naming a run, naming a metric, and telling what
 * changed between them. */
#ifndef QDYNO_CLI_CHANGES_H
#define QDYNO_CLI_CHANGES_H

#include "tui/cli/common.h"

/* A run's number. ERR_USAGE says what it should be. */
enum err_code cli_run_id(int64_t *id, const char *text, struct err *why);

/* --metric, or *out = NULL when it is not given. ERR_USAGE with the nearest name. */
enum err_code cli_metric(const struct metric **out, const struct cli_args *a, struct err *why);

/* What changed between two runs' capsules (NULL: a run has none): "changes" of the JSON document, and a line
 * for each below the table. */
void changes_tell(struct table *t, const json_t *before, const json_t *after);

#endif
