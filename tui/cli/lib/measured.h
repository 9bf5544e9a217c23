/* tui/cli/lib/measured.h - what commands share that measure configs as one stored run: `bench`, its profile
 * and presets, `eval` and its tasks. */
#ifndef QDYNO_TUI_CLI_LIB_MEASURED_H
#define QDYNO_TUI_CLI_LIB_MEASURED_H

#include "advisor/run/run.h"
#include "db/db.h"
#include "tui/cli/lib/labels.h"
#include "tui/cli/lib/lib.h"

struct measured {
    const struct cli_global *g;
    const struct cli_args *a;
    const struct config *configs; /* the arms of the run: [n], borrowed */
    int n, at;                    /* at: the current one */
    const char *model;            /* of configs without model=; NULL: -m, or the bundled one */
    char line[CONFIG_LINE];       /* the current config */
    struct machine machine;
    struct machine_ceilings ceilings;
    bool ceilings_known;
    struct sampler_thread *sampler;
    struct db *db;
    struct run_labels labels;
    struct run run; /* row.id 0 until the first config has loaded */
    struct table table;
    struct progress progress;
    int ok;           /* rows with results; the work may have failed after them */
    struct err first; /* the first failure of a config */
};
/* Nothing can fail; measured_close in any case. */
void measured_init(struct measured *m, const struct cli_global *g, const struct cli_args *a,
                   const struct document *document);
/* Opens the database, starts the thread that samples the sensors, and finds the machine, its limits as far as
 * they are known, and the labels. periods: as cli_sampler. */
enum err_code measured_open(struct measured *m, const struct cli_args *periods, struct err *why);
void measured_close(struct measured *m);

/* The model file of a config; the caller frees it. Errors: as cli_config_model. */
enum err_code measured_model(char **path, const struct measured *m, const struct config *c, struct err *why);

/* The current config was loaded, which took from `begun` until now: stores that. Begins the run with the
 * first one; what: its kind, workload and label, and whether it has a canary. about: the loaded model.
 * Errors: as run_begin, run_arm_opened. */
enum err_code measured_opened(struct measured *m, const struct run_spec *what, struct moment begun,
                              const json_t *about, struct err *why);

/* Prints the table if some config was measured. Returns the exit status: of the error, of a failed write, or
 * of the first failure if no config was measured. */
int measured_print(const struct measured *m, enum err_code rc, const struct err *why);

#endif
