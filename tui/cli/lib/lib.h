/* tui/cli/lib/lib.h - what most commands need: the model, the configs, the machine, progress, the way out. */
#ifndef QDYNO_CLI_LIB_H
#define QDYNO_CLI_LIB_H

#include "tui/cli/cli.h"
#include "tui/cli/lib/output.h"
#include "tui/cli/lib/progress.h"

/* Flags that several commands share, so that they read the same everywhere. */
#define FLAG_MODEL_ROW                                                                                       \
    {                                                                                                        \
        .name = "-m", .alias = "--model", .value = "FILE", .help = "GGUF model; default: the bundled one"    \
    }
#define FLAG_CONFIG_ROW                                                                                      \
    {                                                                                                        \
        .name = "-C", .alias = "--config", .value = "CONFIG",                                                \
        .help = "config line, e.g. q8_0,threads=2 (see `qdyno help knobs`)"                                  \
    }
#define FLAG_CONFIGS_ROW                                                                                     \
    {                                                                                                        \
        .name = "-C", .alias = "--config", .value = "CONFIG",                                                \
        .help = "config line, e.g. q8_0,threads=2 (see `qdyno help knobs`)", .many = true                    \
    }

/* "qdyno bench: message" on stderr; returns the exit status of why->code. */
int cli_fail(const struct cli_args *a, const struct err *why);

/* The table on stdout in the wanted format; returns `status`, or the failure's own. */
int cli_print(const struct cli_global *g, const struct cli_args *a, const struct table *t, int status);

bool cli_is_interrupted(const struct cli_global *g);

/* -m, or the bundled model. *path owned. Errors: ERR_ABSENT when there is no bundled model. */
enum err_code cli_model(char **path, const struct cli_args *a, struct err *why);

/* The file `c` runs: its model=, else -m, else the bundled one. *path owned. */
enum err_code cli_config_model(char **path, const struct cli_args *a, const struct config *c,
                               struct err *why);

/* A config line with the knob flags as defaults. line NULL: nothing but the flags. "applied" is what is kept
 * for the model (advisor/advise/advise.h), "@FILE" the line that a file holds. */
enum err_code cli_config(struct config *out, const struct cli_args *a, const char *line, struct err *why);

/* Where neither -C nor a knob flag says anything: *c becomes what is kept for the model, if something is, and
 * stderr says so. Errors: a file that is kept but cannot be read. */
enum err_code cli_usual_config(struct config *c, const struct cli_global *g, const struct cli_args *a,
                               struct err *why);

/* Every -C line times every combination of comma-separated knob flags; *out: free(). At least one. */
enum err_code cli_configs(struct config **out, int *n, const struct cli_args *a, struct err *why);

/* --limit memory=BYTES,kld=NATS: what is not named there stays as it was. */
enum err_code cli_limits(int64_t *memory_bytes, double *kld, const struct cli_args *a, struct err *why);

/* --metric, or *out = NULL when it is not given. ERR_USAGE with the nearest name. */
enum err_code cli_metric(const struct metric **out, const struct cli_args *a, struct err *why);

/* A remark on stderr unless --quiet. */
void cli_note(const struct cli_global *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* This machine; its ceilings from the cache, or measured now (`probe`), else *known false. */
enum cli_probe { PROBE_CACHED, PROBE_IF_MISSING, PROBE_FRESH };
enum err_code cli_machine(const struct cli_global *g, enum cli_probe probe, struct machine *m,
                          struct machine_ceilings *c, bool *known, struct err *why);

/* Text of -p or -f (exactly one): *text owned, *n bytes. */
enum err_code cli_text(char **text, size_t *n, const struct cli_args *a, struct err *why);

/* "nvidia Imaginary 3", or the name alone when it begins with its maker. Returns buf. */
const char *cli_gpu_name(const struct gpu_identity *u, char *buf, size_t size);

/* The last part of a path. */
const char *cli_base_name(const char *path);

extern const char *const GOAL_NAMES[]; /* the advisor's goals as choices of a flag, NULL-terminated */
extern const char RANDOM_WEIGHTS[];    /* "random weights: quality figures mean nothing" */

#endif
