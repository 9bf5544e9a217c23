/* tui/cli/commands.h - the functions behind COMMANDS: one file each. */
#ifndef QDYNO_CLI_ROWS_H
#define QDYNO_CLI_ROWS_H

#include "advisor/experiment/experiment.h"
#include "advisor/stats/stats.h"
#include "engine/text/text.h"
#include "tui/cli/lib/lib.h"

typedef int command_fn(const struct cli_global *g, const struct cli_args *a);

command_fn command_compare, command_replay, command_baseline, command_watch;
command_fn command_dashboard, command_detect, command_info, command_run, command_tokenize, command_logits,
    command_bench, command_calibrate, command_eval, command_ab, command_advise, command_tune, command_fit,
    command_synth, command_train, command_stories, command_history, command_methods, command_quantize,
    command_show, command_report, command_push, command_doctor, command_help, command_worker;

command_fn command_telemetry, command_serve_metrics, command_prune, command_apply, command_recipe,
    command_govern;

extern const struct cli_flag FLAGS_APPLY[], FLAGS_RECIPE[], FLAGS_GOVERN[];
extern const struct cli_flag FLAGS_TELEMETRY[], FLAGS_SERVE_METRICS[], FLAGS_PRUNE[];
extern const struct cli_flag FLAGS_COMPARE[], FLAGS_REPLAY[], FLAGS_BASELINE[], FLAGS_SHOW[], FLAGS_WATCH[];
extern const struct cli_flag FLAGS_DASHBOARD[], FLAGS_DETECT[], FLAGS_INFO[], FLAGS_RUN[], FLAGS_TOKENIZE[],
    FLAGS_LOGITS[], FLAGS_BENCH[], FLAGS_CALIBRATE[], FLAGS_EVAL[], FLAGS_AB[], FLAGS_ADVISE[], FLAGS_TUNE[],
    FLAGS_FIT[], FLAGS_SYNTH[], FLAGS_TRAIN[], FLAGS_STORIES[], FLAGS_HISTORY[], FLAGS_METHODS[],
    FLAGS_QUANTIZE[], FLAGS_PUSH[], FLAGS_REPORT[], FLAGS_HELP[], FLAGS_WORKER[];

/* "1,2,3" or a JSON array. ERR_USAGE names what is no id. */
enum err_code ids_parse(struct token_list *ids, const char *text, struct err *why);

/* `history --detect`: exit status 1 when some config is now at a lower level than before. */
command_fn history_detect_print;

/* Tables that `show` prints again from the database. */
extern const struct column BENCH_COLUMNS[], EVAL_COLUMNS[];
extern const size_t BENCH_COLUMN_COUNT, EVAL_COLUMN_COUNT;
/* Log ratio of the metric, B/A, as it was measured (lower may be better). */
struct interval ab_effect(const struct experiment_state *s);
int ab_status(const struct experiment_state *s); /* the exit status of a run that is over */
void ab_table_fill(struct table *t, const struct experiment_state *s);

/* One A/B from start to verdict with progress on stderr; *out is the final state. Ctrl-C stops it. */
enum err_code ab_run(const struct cli_global *g, const struct experiment_spec *spec,
                     struct experiment_state *out, struct err *why);

#endif
