/* tui/cli/command_compare_configs.h - the configs and models of two compared runs: whether they differ, and
 * the command that measures both now. */
#ifndef QDYNO_COMMAND_COMPARE_CONFIGS_H
#define QDYNO_COMMAND_COMPARE_CONFIGS_H

#include "advisor/history/history.h"
#include "db/db.h"
#include "tui/cli/lib/lib.h"

/* Adds the headlines that name both configs, for every pair of different ones. Without a pair the first
 * config of each run is named. */
void compare_put_configs(struct table *t, const struct results *before, const struct results *after,
                         const struct compared *rows, int n);
/* Notes why no row has a value of both runs. */
void compare_note_nothing(struct table *t, const struct results *before, const struct results *after,
                          const struct compared *rows, int n);
/* Sets the last line: the command that measures both configs now, in turn. There is none when the workload is
 * no longer valid or a model file is gone. */
void compare_put_next(struct table *t, struct db *d, const struct results *before,
                      const struct results *after, const struct compared *rows, int n);

#endif
