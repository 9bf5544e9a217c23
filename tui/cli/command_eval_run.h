/* tui/cli/command_eval_run.h - the stored run of `qdyno eval`, with and without --task: all configs are its
 * arms. */
#ifndef QDYNO_CLI_EVAL_RUN_H
#define QDYNO_CLI_EVAL_RUN_H

#include "advisor/run/run.h"
#include "engine/model/model.h"
#include "tui/cli/lib/lib.h"

struct eval_arms {
    const struct cli_global *g;
    const struct cli_args *a;
    const char *kind;  /* of the run, and what its workload begins with: "eval" "task" */
    const char *file;  /* text or questions */
    const char *model; /* of configs without model=; NULL: -m, or the bundled one */
    const char *line;  /* of the current config */
    const struct config *configs;
    int n, at; /* at: the current config */
    struct db *db;
    const struct machine *machine;
    struct sampler_thread *sampler;
    const struct run_labels *labels;
};

/* The model file of a config; the caller frees it. Errors: as cli_config_model. */
enum err_code eval_model_path(char **path, const struct eval_arms *e, const struct config *c,
                              struct err *why);

/* The current config's model was loaded: stores its identity, also in sha256, and how long that took since
 * `begun`. Begins the run with the first one (run->row.id 0). Errors: as run_begin, run_arm_opened. */
enum err_code eval_model_opened(struct run *run, char sha256[HASH_HEX], const struct eval_arms *e,
                                const struct model *m, struct moment begun, struct err *why);

#endif
