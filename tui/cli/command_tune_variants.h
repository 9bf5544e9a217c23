/* tui/cli/command_tune_variants.h - `tune` between files of one model, and with a target. */
#ifndef QDYNO_CLI_TUNE_VARIANTS_H
#define QDYNO_CLI_TUNE_VARIANTS_H

#include "advisor/tune/tune.h"
#include "tui/cli/lib/lib.h"

#define TUNE_VARIANT_FLAGS                                                                                   \
    { .name = "--target",                                                                                    \
      .value = "EXPR",                                                                                       \
      .help =                                                                                                \
          "what a config must reach, e.g. 'decode_tok_s >= 20 and kld_mean <= 0.05': status 0 reached, "     \
          "1 not reached, 2 undecided; with --goal speed the fastest one, else the one that loses least" },  \
    {                                                                                                        \
        .name = "--ref", .value = "FILE",                                                                    \
        .help = "of several files: the one that losses are against; default: the most exact one"             \
    }

/* The files to choose from, and the target. files.n 0: one model, as -m says. */
struct tune_choice {
    struct tune_files files;
    int reference;
    struct gate target;       /* terms 0: none */
    char model[CONFIG_VALUE]; /* the reference, or the only file that was named; "": as -m says */
};
/* given: -m or model= names a file. stored: of a search to resume, else {0}. Errors: ERR_USAGE; those of
 * tune_files_find. */
enum err_code tune_choice_read(struct tune_choice *out, const struct cli_args *a,
                               const struct tune_stored *stored, bool given, struct err *why);
/* The default workload: one that measures what the target asks for. Static. */
const char *tune_choice_workload(const struct tune_choice *c);

/* Members of the row: target, target_outcome, target_answer. */
void tune_put_target(json_t *row, const struct tune_result *r, const struct tune_choice *c);
/* Every candidate with intervals; the reference; what was left out. Nothing for other searches. */
void tune_note_variants(struct table *t, const struct tune_result *r, const struct tune_choice *c);
/* The commands that measure and run the answer, or the next step. workload: of the search, as a line. */
void tune_close_variants(struct table *t, const struct tune_result *r, const struct tune_choice *c,
                         const char *model, const char *workload);

#endif
