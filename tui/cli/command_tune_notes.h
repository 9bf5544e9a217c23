/* tui/cli/command_tune_notes.h - lines below the result of `tune`. */
#ifndef QDYNO_CLI_TUNE_NOTES_H
#define QDYNO_CLI_TUNE_NOTES_H

#include "advisor/tune/tune.h"
#include "tui/cli/lib/lib.h"

/* The first candidates whose speed was measured; all of them as "tried" of the document. */
void tune_note_tried(struct table *t, const struct tune_result *r);
/* The candidates that look faster in the list than those that were compared, and why they were not. */
void tune_note_passed(struct table *t, const struct tune_result *r);
/* The machine during the blocks of the confirmation, or where there are none, during all measurements.
 * db_path NULL: the default database. */
void tune_close_conditions(struct table *out, const struct tune_result *r, const char *db_path);

#endif
