/* tui/cli/lib/lib.h - what most commands need: the model, the configs, this machine, messages, exit statuses.
 */
#ifndef QDYNO_CLI_LIB_H
#define QDYNO_CLI_LIB_H

#include "engine/config/config.h"
#include "telemetry/gpu/gpu.h"
#include "telemetry/http/http.h"
#include "telemetry/machine/machine.h"
#include "telemetry/metrics/metrics.h"
#include "telemetry/probe/probe.h"
#include "tui/cli/cli.h"
#include "tui/cli/lib/output.h"
#include "tui/cli/lib/progress.h"

struct gguf;        /* engine/gguf/gguf.h */
struct gguf_tensor; /* engine/gguf/gguf.h */
struct model;       /* engine/model/model.h */
struct model_shape; /* engine/arch/arch.h */

/* Flags that several commands share, so that they read the same everywhere. */
#define FLAG_REQUANTIZE_ROW                                                                                  \
    {                                                                                                        \
        .name = "--requantize", .help = "let recipes quantize a quantized file again; losses are then "      \
                                        "against that file, not against the original"                        \
    }
/* With --requantize: requantize=on in a config with a recipe. */
enum err_code cli_requantize(struct config *c, const struct cli_args *a, struct err *why);

#define FLAG_MODEL_ROW                                                                                       \
    {                                                                                                        \
        .name = "-m", .alias = "--model", .value = "MODEL", .model = true,                                   \
        .help = "file, folder, or a name such as hf:OWNER/REPO:TAG or ollama:NAME (see `qdyno models`); "    \
                "default: the bundled model"                                                                 \
    }
#define FLAG_PROMPTS_ROW                                                                                     \
    {                                                                                                        \
        .name = "--prompts", .value = "FILE",                                                                \
        .help = "take the prompts of all workloads from this file or folder (docs/prompts.md): text, JSON "  \
                "lines, ShareGPT, OpenAI batch; as @prompts:FILE and load:...,prompts=FILE do for one"       \
    }
#define CONFIG_HELP "config line, e.g. q8_0,threads=2 (see `qdyno help knobs`)"
#define FLAG_CONFIG_ROW                                                                                      \
    {                                                                                                        \
        .name = "-C", .alias = "--config", .value = "CONFIG", .help = CONFIG_HELP                            \
    }
#define FLAG_CONFIGS_ROW                                                                                     \
    {                                                                                                        \
        .name = "-C", .alias = "--config", .value = "CONFIG", .help = CONFIG_HELP, .many = true              \
    }

/* ---------------------------------------------------------------- messages (messages.c) */

/* A word of the command line for a message. It may be an address in the wrong place, whose password and path
 * are not shown. Returns word or buf. */
const char *cli_word_shown(const char *word, char buf[HTTP_SHOWN_MAX]);

/* Prints "qdyno COMMAND: message" on stderr. Returns the exit status of why->code. */
int cli_fail(const struct cli_args *a, const struct err *why);

/* cli_fail with "out of memory". */
int cli_fail_memory(const struct cli_args *a);

/* The rows of `qdyno doctor` (check, state, found, advice) for people: problems first, then notes, then what
 * is fine. width: columns. Pure. (doctor_text.c) */
void doctor_text(struct str *out, const json_t *rows, int width);

/* Prints the table on stdout in the format of -o. Returns `status`, or the status of a failed write. */
int cli_print(const struct cli_global *g, const struct cli_args *a, const struct table *t, int status);
/* The same, and frees the table. */
int cli_finish(const struct cli_global *g, const struct cli_args *a, struct table *t, int status);
/* cli_print for a command that goes on afterwards: what was printed is written before it returns. */
int cli_print_now(const struct cli_global *g, const struct cli_args *a, const struct table *t, int status);

/* Prints a line on stderr unless --quiet. */
void cli_note(const struct cli_global *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ERR_USAGE: the path is a file that the model `source` was opened from. (target.c) */
enum err_code cli_target_spares(const struct gguf *source, const char *path, struct err *why);
/* May a command write a model made of `source` to this path? ERR_USAGE: the same; it is no regular file; it
 * exists, and `force` is false. */
enum err_code cli_target_check(const struct gguf *source, const char *path, bool force, struct err *why);

/* True after Ctrl-C or SIGTERM. */
bool cli_is_interrupted(const struct cli_global *g);
/* The progress callback of struct model_options for commands that show no progress of it: arg is a
 * struct cli_global. Ctrl-C and SIGTERM cancel. */
bool cli_open_goes_on(void *arg, const char *phase, double done);

/* Opens the model with a config for one sequence of ctx tokens (0: the config's). Ctrl-C cancels. Errors: as
 * shapes_model_open. (configs.c) */
enum err_code cli_model_open(struct model **out, const struct cli_global *g, const char *path,
                             const struct config *c, int ctx, struct err *why);

/* What a model with random weights means for quality figures. */
extern const char RANDOM_WEIGHTS[];

/* The same in documents: the keys, and their values. */
#define CAUTION_KEYS                                                                                         \
    KEY("random_weights", .kind = COLUMN_BOOL), KEY("answers_unverified", .kind = COLUMN_BOOL)
void cli_put_cautions(json_t *row, bool random_weights, bool answers_unverified);
/* The notes under every table whose figures come from a model with random weights, or from one with unknown
 * parts (force=on). */
void cli_note_cautions(struct table *t, bool random_weights, bool answers_unverified);

/* A note for each part of the file that is unknown; in JSON the list "unknown". */
void cli_note_unknown(struct table *t, const struct model_shape *s, const struct gguf *g);

/* For files of gguf_open_any_type: notes for tensors whose type this program cannot read; in JSON the list
 * "unsupported_tensors". Nothing if there are none. */
void cli_note_unsupported(struct table *t, const struct gguf *g);

enum { SHAPE_TEXT = 96, TYPE_TEXT = 48 };
/* Write "4096x1024", row length first. Returns buf. */
const char *cli_tensor_shape(char buf[SHAPE_TEXT], const struct gguf_tensor *t);
/* Write the name of the tensor's type, "q4_0", or "type 200" if the number has no name. Returns buf. */
const char *cli_tensor_type(char buf[TYPE_TEXT], const struct gguf_tensor *t);

/* ---------------------------------------------------------------- models and configs (configs.c) */

/* -m, or the bundled model. *path is owned by the caller. Errors: ERR_ABSENT if there is no bundled model. */
enum err_code cli_model(char **path, const struct cli_args *a, struct err *why);

/* The model file that `c` runs: its model=, else -m, else the bundled one. *path is owned by the caller. */
enum err_code cli_config_model(char **path, const struct cli_args *a, const struct config *c,
                               struct err *why);

/* Parses a config line; the knob flags of the command line are its defaults. line NULL: only the flags.
 * "applied" stands for the config that `qdyno apply` or `qdyno tune` saved for the model, "@FILE" for the
 * config in a file. */
enum err_code cli_config(struct config *out, const struct cli_args *a, const char *line, struct err *why);

/* If neither -C nor a knob flag is given, replaces *c by the config that is saved for the model, if there is
 * one, and notes that on stderr. Errors: a saved file that cannot be read. */
enum err_code cli_applied_config(struct config *c, const struct cli_global *g, const struct cli_args *a,
                                 struct err *why);
/* The same for the model in the file `path`. */
enum err_code cli_applied_config_of(struct config *c, const struct cli_global *g, const struct cli_args *a,
                                    const char *path, struct err *why);

/* Every -C line times every combination of the comma-separated knob flags, without duplicates; at least one.
 * *out is owned by the caller: free(). Errors: ERR_USAGE, also for more than 4096 configs. */
enum err_code cli_config_grid(struct config **out, int *n, const struct cli_args *a, struct err *why);

/* Adds, once, that a real model's quality was measured on the bundled stories, and how to set another text.
 */
void cli_note_text(struct table *t, const char *model, const char *text_sha256);
/* A config and the model file that it was measured with. */
struct config_on {
    const struct config *config;
    const char *model; /* unless the config reads no file, because a server has the model; "": unknown */
};
/* Appends " -m MODEL A B", the arms of an A/B that measures both again: the second has a model= where its
 * file is another one. False, and nothing is appended: both are the same config with one model, a path
 * cannot stand in a config line, or memory ran out. */
bool cli_append_pair(struct str *out, const struct config_on side[2]);
/* The text that the quality of this model is measured on (advisor/predict/predict.h), to measure on it. The
 * caller frees *path. Errors: as quality_text_path, db_open. */
enum err_code cli_quality_text(char **path, const struct cli_global *g, const char *model, struct err *why);

/* Reads --limit memory=BYTES,kld=NATS,accuracy=-SHARE. A limit that is not given leaves its variable
 * unchanged. accuracy: the largest loss, 0.005 for "-0.5%"; NULL: the command does not have this limit. */
enum err_code cli_limits(int64_t *memory_bytes, double *kld, double *accuracy, const struct cli_args *a,
                         struct err *why);

/* Reads --metric; *out = NULL if it is not given. ERR_USAGE names the nearest metric. */
enum err_code cli_metric(const struct metric **out, const struct cli_args *a, struct err *why);

extern const char *const GOAL_NAMES[]; /* names of enum goal, NULL-terminated, as choices of a flag */

/* The text of -p or -f ("-" is standard input). *text is owned by the caller, zero-terminated. ERR_USAGE if
 * both or neither are given. */
enum err_code cli_text(char **text, size_t *n, const struct cli_args *a, struct err *why);

/* The key of a server: the first line of the file that --api-key-file names, otherwise QDYNO_API_KEY. *key
 * owned; NULL: none is given. Errors: ERR_USAGE, those of file_read, ERR_NOMEM. */
enum err_code cli_api_key(char **key, const struct cli_args *a, struct err *why);

/* The part of a path behind its last slash. Borrowed. */
const char *cli_base_name(const char *path);

/* ---------------------------------------------------------------- this machine (machine.c) */

enum cli_probe {
    PROBE_CACHED,     /* read the measured limits from the cache; *known is false if there are none */
    PROBE_IF_MISSING, /* measure them if the cache has none */
    PROBE_FRESH       /* measure them now */
};
/* This machine, and its measured limits (ceilings) if *known. known may be NULL unless `probe` is
 * PROBE_CACHED: the others measure what is missing. New measurements go into the cache, except when QDYNO_ISA
 * hides instruction sets. */
enum err_code cli_machine(const struct cli_global *g, enum cli_probe probe, struct machine *m,
                          struct machine_ceilings *c, bool *known, struct err *why);

#endif
