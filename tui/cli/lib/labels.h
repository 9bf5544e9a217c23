/* tui/cli/lib/labels.h - labels of runs: --label KEY=VALUE, and the commit of the current directory. */
#ifndef QDYNO_CLI_LABELS_H
#define QDYNO_CLI_LABELS_H

#include "db/db.h"
#include "tui/cli/lib/lib.h"
#include "tui/cli/lib/output.h"

#define FLAG_LABEL_ROW                                                                                       \
    {                                                                                                        \
        .name = "--label", .value = "KEY=VALUE", .many = true,                                               \
        .help = "store this label with the run; in a git checkout the default is commit=`git describe "      \
                "--always --dirty`"                                                                          \
    }

/* The labels of --label. ERR_USAGE names the label that is not valid. */
enum err_code cli_labels_given(struct run_labels *out, const struct cli_args *a, struct err *why);
/* The labels of a new run: --label, and `commit` if it is not given and the current directory is a git
 * checkout. Without git, or when git takes longer than two seconds, there is no commit. */
enum err_code cli_labels(struct run_labels *out, const struct cli_args *a, struct err *why);

/* {"commit":"v1.2","branch":"main"}. New reference. */
json_t *cli_labels_json(const struct run_labels *l);
/* The labels of a stored run as JSON; {} when it has none; null, and a warning, when they cannot be read. New
 * reference. */
json_t *cli_labels_of_run(const struct cli_global *g, int64_t run_id);
/* Notes where the prompts of a stored run come from (run_prompt_note). */
void cli_note_prompts(struct table *t, const struct cli_global *g, int64_t run_id);
/* Appends "commit=v1.2 branch=main". */
void cli_labels_text(struct str *out, const struct run_labels *l);

#endif
