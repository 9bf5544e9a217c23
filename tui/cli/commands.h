/* tui/cli/commands.h - the functions and flag tables behind COMMANDS, and what one command file offers to
 * others. A command includes it for all that most commands need. */
#ifndef QDYNO_CLI_COMMANDS_H
#define QDYNO_CLI_COMMANDS_H

#include "advisor/experiment/experiment.h"
#include "advisor/stats/stats.h"
#include "db/db.h"
#include "engine/text/text.h"
#include "tui/cli/documents.h"
#include "tui/cli/lib/lib.h"

/* Runs a command and returns the exit status of the process. */
typedef int command_fn(const struct cli_global *g, const struct cli_args *a);

command_fn command_ab, command_advise, command_apply, command_audit, command_baseline, command_bench,
    command_cache, command_calibrate, command_claims, command_compare, command_dashboard, command_detect,
    command_doctor, command_eval, command_fit, command_govern, command_help, command_history, command_import,
    command_info, command_logits, command_methods, command_models, command_prune, command_push,
    command_quantize, command_rank, command_recipe, command_replay, command_report, command_run,
    command_serve, command_serve_metrics, command_show, command_stories, command_synth, command_telemetry,
    command_tokenize, command_train, command_tune, command_watch, command_worker, command_complete;
extern const struct cli_flag FLAGS_AB[], FLAGS_ADVISE[], FLAGS_APPLY[], FLAGS_AUDIT[], FLAGS_BASELINE[],
    FLAGS_BENCH[], FLAGS_CACHE[], FLAGS_CALIBRATE[], FLAGS_CLAIMS[], FLAGS_COMPARE[], FLAGS_DASHBOARD[],
    FLAGS_DETECT[], FLAGS_EVAL[], FLAGS_FIT[], FLAGS_GOVERN[], FLAGS_HELP[], FLAGS_HISTORY[], FLAGS_IMPORT[],
    FLAGS_INFO[], FLAGS_LOGITS[], FLAGS_METHODS[], FLAGS_MODELS[], FLAGS_PRUNE[], FLAGS_PUSH[],
    FLAGS_QUANTIZE[], FLAGS_RANK[], FLAGS_RECIPE[], FLAGS_REPLAY[], FLAGS_REPORT[], FLAGS_RUN[],
    FLAGS_SERVE[], FLAGS_SERVE_METRICS[], FLAGS_SHOW[], FLAGS_STORIES[], FLAGS_SYNTH[], FLAGS_TELEMETRY[],
    FLAGS_TOKENIZE[], FLAGS_TRAIN[], FLAGS_TUNE[], FLAGS_WATCH[], FLAGS_WORKER[];

/* Parses token ids from "1,2,3" or a JSON array. ERR_USAGE names the word that is not an id. */
enum err_code ids_parse(struct token_list *ids, const char *text, struct err *why);

/* `history --detect`. Exit status 1: some config is now at a worse level than before its last change. */
command_fn history_detect_print;
/* `history --summary TIME`. */
command_fn history_summary_print;

/* `detect --ranks`. */
command_fn detect_ranks;

/* `info --experts`. */
command_fn info_experts;

/* `info --dimensions`. */
command_fn info_dimensions;

/* ln(B/A) of the metric. Positive means that the number grew, whether or not more is better. */
struct interval ab_effect(const struct experiment_state *s);
/* What `eval` measures. All pointers are borrowed. */
struct eval_plan {
    const struct config *configs; /* [n] */
    int n, ctx;                   /* ctx: tokens per window */
    int64_t chunks;               /* at most; 0: all */
    const struct config *ref;     /* NULL: compare with nothing */
    const char *model;            /* of configs that name none; NULL: -m, or the bundled one */
    const char *file;             /* the text; NULL: the one of the first config's model */
    const char *prompts;          /* a file of prompts that is scored instead of a text; NULL: none */
    bool set_text;                /* make it the text of the models that are measured */
    struct gate gate;             /* terms 0: none */
    json_t *baseline;             /* member of the document; NULL: none */
};
/* Measures, prints the table, and returns the exit status: that of the gate, if there is one. */
int eval_plan_run(const struct cli_global *g, const struct cli_args *a, const struct eval_plan *plan);

/* The document of a run, with its labels; with a summary if it is not NULL. New reference. */
json_t *ab_document(const struct cli_global *g, const struct experiment_state *s,
                    const struct summary *summary);
/* The summary of a run that ends with this exit status. */
struct summary ab_summary(const struct experiment_state *s, int status);
/* The exit status of a finished run. */
int ab_status(const struct experiment_state *s);
/* Fills the table of `ab`; table_done by the caller. */
void ab_table_fill(struct table *t, const struct experiment_state *s);

/* Runs one A/B, with the labels of the command line, from start to verdict with progress on stderr. *out is
 * the final state. Ctrl-C stops it. */
enum err_code ab_run(const struct cli_global *g, const struct cli_args *a, const struct experiment_spec *spec,
                     struct experiment_state *out, struct err *why);

#endif
