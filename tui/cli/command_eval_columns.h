/* tui/cli/command_eval_columns.h - the figures of quality in a table of `eval`. */
#ifndef QDYNO_CLI_EVAL_COLUMNS_H
#define QDYNO_CLI_EVAL_COLUMNS_H

#include "tui/cli/lib/lib.h"

/* Copies the quality values that the row does not have yet into it. */
void eval_put_quality(json_t *row, const struct quality *q);

/* Notes the KL divergence by depth in the window, and after how many tokens greedy texts differ. */
void eval_note_quality(struct table *t, const char *config, const struct quality *q);

#endif
