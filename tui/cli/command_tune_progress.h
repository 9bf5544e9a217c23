/* tui/cli/command_tune_progress.h - what `tune` adds to its lines of progress: the key "tune"
 * (docs/documents.md). The dashboard draws its search view from these lines. */
#ifndef QDYNO_CLI_COMMAND_TUNE_PROGRESS_H
#define QDYNO_CLI_COMMAND_TUNE_PROGRESS_H

#include "advisor/tune/tune.h"
#include "tui/cli/lib/progress.h"

/* How the search ended, for its last line. */
struct tune_end {
    const struct tune_result *result;
    const char *text;                  /* the result in one sentence */
    const char *applied;               /* path of the file that the winner was saved in; NULL: not saved */
    const char *not_applied, *confirm; /* as in struct tune_kept */
};
/* The object "tune". end NULL: the search goes on. New reference. */
json_t *tune_progress_to_json(const struct tune_progress *at, const char *model, const struct tune_end *end);

/* What was written last, so that a change is written at once and the rest once a second. {0}: nothing. */
struct tune_lines {
    struct progress progress;
    const char *model;
    struct tune_progress at; /* the last one; its leaderboard is not kept */
    bool written;
};
/* One line for people or programs, if it is time. */
void tune_lines_show(struct tune_lines *l, const struct tune_progress *at);
/* A phase that the command reports itself. */
void tune_lines_enter(struct tune_lines *l, enum tune_phase phase, const char *why);
/* The last line, for programs only. */
void tune_lines_end(struct tune_lines *l, const struct tune_end *end);

#endif
