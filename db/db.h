/* db/db.h - the database of measurements: SQLite with WAL, foreign keys, and migrations.
 *
 * Use one handle per thread; several processes may share the file. Every write is a transaction. NAN is
 * stored as NULL. Lists (*rows, *n) are arrays that the caller frees, together with the owned strings in
 * their rows. All functions return ERR_IO when the file cannot be read or written and ERR_FIT when the disk
 * is full; the handle stays usable. */
#ifndef QDYNO_DB_H
#define QDYNO_DB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

enum { DB_CONFIG_LINE = 2048 }; /* bytes of a config line: CONFIG_LINE of engine/config/config.h */

struct db;

/* Opens the database; creates or migrates it if necessary. path NULL: $XDG_DATA_HOME/qdyno/qdyno.db;
 * ":memory:" is possible. Only the user may read and write the file: its permissions are set when it is
 * created, and when its owner opens it. A read-only file can be opened, too; writing then fails with ERR_IO.
 * *out: db_close. Errors: ERR_IO (cannot open, or locked longer than 5 s), ERR_FORMAT (not a database,
 * another program's, or a newer version). */
enum err_code db_open(struct db **out, const char *path, struct err *why);
/* Opens the database for reading only: creates, migrates and writes nothing, and waits at most wait_ms for
 * locks. Errors as for db_open; ERR_ABSENT: no such file; ERR_FORMAT also for an older version. */
enum err_code db_open_reader(struct db **out, const char *path, int wait_ms, struct err *why);
/* Statements that still run at this time (clock_ns) end with ERR_IO. 0: no limit. */
void db_deadline(struct db *d, int64_t at_ns);
void db_close(struct db *d); /* NULL is fine */
const char *db_path(const struct db *d);

/* Stores the identity of a machine or model, once per id; a newer description replaces the older. Runs may
 * refer only to stored machines and models, or to none (""); otherwise ERR_USAGE. */
enum err_code db_machine_put(struct db *d, const char *machine_id, const char *json, struct err *why);
enum err_code db_model_put(struct db *d, const char *sha256, const char *name, const char *path,
                           const char *json, struct err *why);
/* The stored description of a machine; the caller frees *json. NULL: unknown id. */
enum err_code db_machine_get(struct db *d, const char *machine_id, char **json, struct err *why);

/* A run: one invocation of bench, ab, eval, tune. */
enum { RUN_LABEL = 1024 };
struct run_row {
    int64_t id;
    char kind[16];  /* "ab" "bench" "eval" */
    char state[16]; /* "running" "done" "stopped" "failed" "interrupted" */
    char machine[16], model_sha256[65], model_name[128], workload[576],
        label[RUN_LABEL]; /* label: arms, for lists */
    char metric[48];
    uint64_t seed;
    char verdict[16];             /* "" until there is one */
    double effect_ratio;          /* B/A of the metric; NAN: unknown */
    int64_t started_ms, ended_ms; /* ended_ms 0: still running */
    char *spec_json;              /* all that is needed to resume or replay; owned: run_row_free */
    char *outcome_json;           /* NULL until done; owned */
};
void run_row_free(struct run_row *r);
/* Fills r->id and started_ms. */
enum err_code db_run_insert(struct db *d, struct run_row *r, struct err *why);
/* The same, and locks the new run for `holder`, a handle of the same database; both or neither. */
enum err_code db_run_insert_locked(struct db *d, struct db *holder, struct run_row *r, struct err *why);
enum err_code db_run_finish(struct db *d, int64_t id, const char *state, const char *verdict,
                            double effect_ratio, const char *outcome_json, struct err *why);
/* Locks a run for measuring, until db_unlock, db_close or the end of the process. ERR_USAGE: another handle,
 * of this or another process, has locked it. */
enum err_code db_run_lock(struct db *d, int64_t id, struct err *why);
/* Locks the database for one watch, likewise. */
enum err_code db_watch_lock(struct db *d, struct err *why);
void db_unlock(struct db *d); /* releases all locks of this handle */
/* Sets runs that are stored as "running", but that no handle has locked, to "interrupted": the process that
 * measured them was killed, or the machine went down. They end with their last cell. db_open does this, so a
 * list of runs never shows a dead one as running. Whoever stores a run as "running" must have locked it, in
 * the same transaction or before. */
enum err_code db_runs_close_abandoned(struct db *d, struct err *why);
/* True when another handle has locked any run. *pid: its process; 0: unknown. False also when this cannot be
 * determined. */
bool db_run_is_locked(struct db *d, int *pid);
/* Continues a locked run that was stopped, interrupted or undecided: clears its verdict until db_run_finish.
 */
enum err_code db_run_reopen(struct db *d, int64_t id, struct err *why);
enum err_code db_run_get(struct db *d, int64_t id, struct run_row *out,
                         struct err *why); /* ERR_USAGE: no such id */
/* Delete a run: it disappears from all lists and results, and can be restored until db_runs_purge(). Both in
 * one transaction. ERR_USAGE: no such run, or it is being measured; not deleted. */
enum err_code db_run_delete(struct db *d, int64_t id, struct err *why);
enum err_code db_run_restore(struct db *d, int64_t id, struct err *why);
/* Remove the rows of runs that were deleted before this time; *removed: how many runs. */
enum { RUN_DELETED_KEPT_DAYS = 7 };
enum err_code db_runs_purge(struct db *d, int64_t before_ms, int *removed, struct err *why);
/* Newest first, without deleted runs. filter: a substring of label, model, workload, kind, verdict or state;
 * NULL: all. Call run_row_free for each row. */
enum err_code db_run_list(struct db *d, const char *filter, int limit, struct run_row **rows, int *n,
                          struct err *why);

/* Deleted runs, newest first. */
enum err_code db_run_list_deleted(struct db *d, int limit, struct run_row **rows, int *n, struct err *why);

/* db_run_list with the filter syntax of the user interface: "TEXT", "!TEXT" (runs without TEXT), "/RE/" (an
 * extended regular expression that matches one of the fields), "!/RE/". ERR_USAGE: invalid regular
 * expression. */
enum err_code db_run_find(struct db *d, const char *filter, int limit, struct run_row **rows, int *n,
                          struct err *why);
enum err_code db_filter_check(const char *filter, struct err *why);

/* Labels of a run: KEY=VALUE pairs of the user, such as the commit that was measured. */
enum { RUN_LABELS = 16, LABEL_KEY = 64, LABEL_VALUE = 256 }; /* bytes with the final zero */
struct run_labels {
    int n;
    struct {
        char key[LABEL_KEY], value[LABEL_VALUE];
    } label[RUN_LABELS];
};
/* Adds "KEY=VALUE". ERR_USAGE: a key that is not [a-zA-Z_][a-zA-Z0-9_]*, an empty or too long value, a value
 * with control characters or invalid UTF-8, a key that is already there, too many labels. */
enum err_code run_labels_add(struct run_labels *l, const char *text, struct err *why);
const char *run_labels_find(const struct run_labels *l,
                            const char *key); /* the value; NULL: none. Borrowed */
/* Stores all labels of a new run, or none. */
enum err_code db_labels_put(struct db *d, int64_t run_id, const struct run_labels *l, struct err *why);
/* The labels of a run, by key. */
enum err_code db_labels_get(struct db *d, int64_t run_id, struct run_labels *out, struct err *why);
/* db_run_find among the runs that have all of these labels; labels NULL: all runs. */
enum err_code db_run_find_labeled(struct db *d, const char *filter, const struct run_labels *labels,
                                  int limit, struct run_row **rows, int *n, struct err *why);

/* ---------------------------------------------------------------- cells */

/* A cell is stored with everything measured in it in one transaction. A metric may occur once per cell
 * (ERR_USAGE). */
struct measurement {
    const char *metric, *unit;
    double value;
};
struct sample_row {
    int64_t t_ns; /* relative to the cell's start */
    const char *metric;
    double value;
};
/* The requests of a cell, in succession; each consists of `sequences` parallel sequences. */
struct request_figures {
    float prompt_tokens, gen_tokens; /* of all sequences together */
    float ttft_s, prefill_s;         /* NAN without a prompt */
    float decode_s;                  /* NAN without generation */
};
struct request_rows {
    char model[128], workload[576]; /* as the worker reports them */
    int sequences, n;
    struct request_figures *figures; /* [n], borrowed */
};
struct span_row;
struct cell_row {
    int64_t id, run_id;
    int arm;         /* 0 = A */
    int block, slot; /* block -1: outside blocks (warm-up, bench); slot 0..3 */
    char phase[16];  /* "warmup" "control" "block" "bench" */
    bool discarded;
    char discard_reason[160];
    char config[DB_CONFIG_LINE];
    char work_hash[24], output_hash[24];
    int64_t started_ms;
    double seconds;
    char error[256]; /* "": it ran without an error */
    /* What the worker really ran, without raw samples. Borrowed; NULL is stored as "". From db_cell_list:
     * never NULL, in the memory of the list. */
    const char *worker_json;
    /* Stored with the cell in the same transaction. Borrowed; NULL: none. db_cell_list leaves them NULL. */
    const struct request_rows *requests;
    struct span_row *spans; /* [n_spans]; db_cell_insert fills in their ids and cell_id */
    int n_spans;
};
/* Fills c->id. itl: raw inter-token latencies in seconds (may be NULL). */
enum err_code db_cell_insert(struct db *d, struct cell_row *c, const struct measurement *m, int n_m,
                             const struct sample_row *samples, int n_samples, const float *itl, int n_itl,
                             struct err *why);
/* The stored latencies of a cell; the caller frees *itl. NULL and 0: none. */
enum err_code db_itl_get(struct db *d, int64_t cell_id, float **itl, int *n, struct err *why);
/* Calls `row` with the requests of all cells whose id is greater than after_cell, in order of cells, with the
 * cell's latencies. Borrowed for the call; an error that `row` returns ends the listing. */
struct cell_requests {
    int64_t cell_id;
    struct request_rows requests;
    const float *itl; /* [n_itl] one a step of decoding; NULL: none */
    int n_itl;
};
typedef enum err_code db_request_fn(void *ctx, const struct cell_requests *c, struct err *why);
enum err_code db_request_list(struct db *d, int64_t after_cell, db_request_fn *row, void *ctx,
                              struct err *why);

/* ---------------------------------------------------------------- one model over all runs */

/* Every model that was ever run, and the last path of its file. Strings are borrowed for the call; an error
 * that `row` returns ends the listing, here and below. */
typedef enum err_code db_model_fn(void *ctx, const char *sha256, const char *path, struct err *why);
enum err_code db_model_list(struct db *d, db_model_fn *row, void *ctx, struct err *why);

/* The text that a model's quality is measured on, where the user chose one: its absolute path, and the
 * SHA-256 of its content when it was chosen. */
struct model_text {
    char model[65]; /* SHA-256 of the model file */
    char path[4096], sha256[65];
    int64_t set_ms; /* unix time */
};
/* Replaces the model's text; fills set_ms. ERR_USAGE: the model is not stored. */
enum err_code db_model_text_put(struct db *d, struct model_text *t, struct err *why);
/* Removes the model's text; none is fine. */
enum err_code db_model_text_remove(struct db *d, const char *model_sha256, struct err *why);
/* All of them, the newest first. */
enum err_code db_model_text_list(struct db *d, struct model_text **rows, int *n, struct err *why);

/* Valid cells (kept, without error) of all runs of a model, newest first. */
struct model_query {
    const char *sha256, *metric; /* metric: for db_model_cells only */
    int limit;
    const char *error; /* measurement with the standard error of metric; NULL: none */
};
struct model_cell {
    int64_t run_id, started_ms;
    double value;     /* of the metric */
    double error;     /* its standard error, the measurement "error" of the query; NAN: unknown */
    const char *kind; /* of the run */
    const char *config, *first_config; /* first_config: of arm 0 of the same run */
    const char *worker_json;
    const char *run_text; /* "text" of the run's spec: the text file that a search was given; "": none */
};
typedef enum err_code db_model_cell_fn(void *ctx, const struct model_cell *c, struct err *why);
enum err_code db_model_cells(struct db *d, const struct model_query *q, db_model_cell_fn *row, void *ctx,
                             struct err *why);
/* Valid cells that timed a model on one machine, of runs that neither failed nor became invalid and that no
 * longer measure: newest run first, the cells of a run in order. `disturbed` names a measurement that marks a
 * cell as disturbed; "": none does. */
struct speed_query {
    const char *sha256, *machine;
    const char *decode, *prefill, *disturbed; /* names of measurements */
    int limit;
};
struct speed_cell {
    int64_t run_id;
    int block; /* as in the cell */
    const char *phase, *config, *workload;
    const char *kernels, *isa; /* of the run's capsule: build of the kernels, QDYNO_ISA; "": unknown */
    double decode_tok_s, prefill_tok_s; /* NAN: not measured */
    bool disturbed;                     /* it has the measurement that the query names */
};
typedef enum err_code db_speed_fn(void *ctx, const struct speed_cell *c, struct err *why);
enum err_code db_model_speeds(struct db *d, const struct speed_query *q, db_speed_fn *row, void *ctx,
                              struct err *why);
/* The newest finished run of a kind of a model on one machine. *found false (ERR_OK): there is none.
 * Otherwise: run_row_free. */
enum err_code db_model_newest_run(struct db *d, const char *kind, const char *sha256, const char *machine,
                                  struct run_row *out, bool *found, struct err *why);
struct model_requests {
    const char *config, *workload;
    int sequences, n, n_itl;
    const struct request_figures *figures; /* [n] */
    const float *itl;                      /* [n_itl] one a step of decoding; NULL: none */
};
typedef enum err_code db_model_request_fn(void *ctx, const struct model_requests *c, struct err *why);
enum err_code db_model_requests(struct db *d, const struct model_query *q, db_model_request_fn *row,
                                void *ctx, struct err *why);

/* Counts of cells ("kept", "discarded", "failed"), and of runs by kind and state; at most `max` rows. Runs
 * that are stored as running, but whose process is gone, count as interrupted, also where the file can only
 * be read. */
struct count_row {
    char what[16], state[16]; /* cells: state is "" */
    int64_t n;
};
enum err_code db_cell_counts(struct db *d, struct count_row *out, int max, int *n, struct err *why);
/* The newest measurement of `metric` in a cell of this phase, and its time; NAN and 0: none. */
enum err_code db_latest(struct db *d, const char *phase, const char *metric, double *value, int64_t *unix_ms,
                        struct err *why);
enum err_code db_run_counts(struct db *d, struct count_row *out, int max, int *n, struct err *why);
/* Marks the cells of all discarded blocks of a run as kept, unless one failed or their reason is one of
 * `except`. The reasons stay. */
enum err_code db_blocks_keep(struct db *d, int64_t run_id, const char *const except[3], struct err *why);
/* Marks all cells of a stored block as discarded. */
enum err_code db_block_discard(struct db *d, int64_t run_id, int block, const char *phase, const char *reason,
                               struct err *why);
/* All cells of a run, in order of insertion. *cells owned: free. */
enum err_code db_cell_list(struct db *d, int64_t run_id, struct cell_row **cells, int *n, struct err *why);
/* One measurement of a cell; NAN: absent. */
double db_measurement_get(struct db *d, int64_t cell_id, const char *metric);
enum err_code db_measurement_list(struct db *d, int64_t cell_id,
                                  void (*row)(void *ctx, const char *metric, const char *unit, double value),
                                  void *ctx, struct err *why);

/* The sensor samples of a cell in order of time, which is relative to the cell's start. */
enum err_code db_sample_list(struct db *d, int64_t cell_id,
                             void (*row)(void *ctx, int64_t t_ns, const char *metric, double value),
                             void *ctx, struct err *why);

/* ---------------------------------------------------------------- a period of time */

/* Runs that took place, at least in part, at [from_ms, to_ms), in order of their start, and the cells of
 * these runs that started in it; without deleted runs. Strings and arrays are borrowed for the call; an error
 * that `row` returns ends the listing. */
struct period_run {
    int64_t id, started_ms;
    int64_t ended_ms; /* 0: still being measured. Of a run whose process is gone: the end of its last cell */
    const char *kind, *state, *verdict; /* state "interrupted" also where the file can only be read */
    const char *error;                  /* of a failed run; "": unknown */
};
typedef enum err_code db_period_run_fn(void *ctx, const struct period_run *r, struct err *why);
enum err_code db_period_runs(struct db *d, int64_t from_ms, int64_t to_ms, db_period_run_fn *row, void *ctx,
                             struct err *why);
struct period_cell {
    int64_t id, run_id, started_ms;
    double seconds; /* NAN: unknown */
    bool discarded;
    const char *phase, *discard_reason, *error; /* as in cell_row */
    const char *workload;                       /* of its requests; "": it has none */
    int sequences, n, n_itl, running_most;      /* running_most: of a load, its most requests at once; 0 */
    const struct request_figures *figures;      /* [n] */
    const float *itl;                           /* [n_itl]; NULL: none */
};
typedef enum err_code db_period_cell_fn(void *ctx, const struct period_cell *c, struct err *why);
enum err_code db_period_cells(struct db *d, int64_t from_ms, int64_t to_ms, db_period_cell_fn *row, void *ctx,
                              struct err *why);

/* ---------------------------------------------------------------- spans and traces */

/* When a part of a run began and ended (wall clock), more precisely than its cells do. */
struct span_row {
    int64_t id, run_id, cell_id; /* cell_id 0: belongs to no cell */
    int arm, block;              /* -1: belongs to none */
    char phase[16];              /* of its cell or block, as in cell_row; "": none */
    char name[24];               /* "cell" "load" "quantize" "fill" "prefill" "decode" "push" ... */
    int64_t begun_ns, ended_ns;  /* Unix time */
    char error[256];             /* "": no error */
};
/* Inserts all or none; fills their ids. */
enum err_code db_span_insert(struct db *d, struct span_row *rows, int n, struct err *why);
/* In order of insertion. */
enum err_code db_span_list(struct db *d, int64_t run_id, struct span_row **rows, int *n, struct err *why);

/* Notes that the trace of a run could not be sent to the collector at `url` ("": the one in the environment),
 * so that it is sent later. Noting it again counts as another attempt. */
enum err_code db_trace_due_put(struct db *d, int64_t run_id, const char *url, const char *error,
                               struct err *why);
enum err_code db_trace_due_done(struct db *d, int64_t run_id, const char *url,
                                struct err *why); /* no error if there is none */
/* The runs to send to one url, oldest first; the caller frees *run_ids. */
enum err_code db_trace_due_list(struct db *d, const char *url, int64_t **run_ids, int *n, struct err *why);
int db_trace_due_count(struct db *d); /* of all urls; -1 on error */
/* The same with the error; *n is -1 then. */
enum err_code db_trace_due_count_read(struct db *d, int *n, struct err *why);

/* Events of a run (discarded blocks, result of the A/A control, errors), for the log pane and reports. */
enum err_code db_event_add(struct db *d, int64_t run_id, const char *kind, const char *text, struct err *why);
enum err_code db_event_list(struct db *d, int64_t run_id,
                            void (*row)(void *ctx, int64_t unix_ms, const char *kind, const char *text),
                            void *ctx, struct err *why);

/* ---------------------------------------------------------------- runs over time */

/* The capsule: the reproducibility record of a run, taken at its start; one per run. */
enum err_code db_capsule_put(struct db *d, int64_t run_id, const char *json, struct err *why);
/* The caller frees *json. NULL: the run has none, because it is older than capsules. */
enum err_code db_capsule_get(struct db *d, int64_t run_id, char **json, struct err *why);

/* Every known measurement of a run's valid cells (kept, without error), in order of cells. Strings are
 * borrowed for the call. An error that `row` returns ends the listing. */
struct value_row {
    int64_t cell_id;
    int arm, block; /* as in the cell */
    const char *phase, *config, *work_hash, *metric;
    const char *workload; /* of the cell, or else of its run */
    double value;
};
typedef enum err_code db_value_fn(void *ctx, const struct value_row *v, struct err *why);
enum err_code db_value_list(struct db *d, int64_t run_id, db_value_fn *row, void *ctx, struct err *why);

/* Links a run to another run that caused it: kind "replay" with the verdict "reproduced". One link per run.
 */
struct link_row {
    int64_t run_id, of_run;
    char kind[16], verdict[16];
};
enum err_code db_link_put(struct db *d, int64_t run_id, int64_t of_run, const char *kind, const char *verdict,
                          struct err *why);
enum err_code db_link_get(struct db *d, int64_t run_id, struct link_row *out, bool *found, struct err *why);

/* A named baseline, against which later results are compared. It is kept when its run is deleted. */
struct baseline_row {
    int64_t id;
    char name[64], config[DB_CONFIG_LINE], model_path[512], model_sha256[65], model_name[128], workload[576],
        metric[48];
    double margin;    /* the log ratio that matters */
    double value;     /* of the metric when the baseline was set; NAN: not measured */
    char machine[16]; /* where it was measured; "": unknown */
    int64_t run_id;   /* 0: from no run */
    int64_t set_ms;
};
/* Replaces the baseline of the same name; fills id and set_ms. */
enum err_code db_baseline_put(struct db *d, struct baseline_row *b, struct err *why);
/* Ordered by name. */
enum err_code db_baseline_list(struct db *d, struct baseline_row **rows, int *n, struct err *why);

/* The longest pause between two attempts to send something that is stored. A stored time that is further
 * ahead was written before the clock was set back, and counts as due. */
enum { DB_RETRY_MOST_MS = 3600 * 1000 };

/* ---------------------------------------------------------------- push spool */

/* Pushes that could not be sent yet, one per group: a newer body replaces an older one, as PUT would on the
 * gateway. */
struct spool_row {
    int64_t id;
    char *group_url, *target_json, *body; /* owned: spool_row_free. target_json contains no secrets */
    int attempts;
    int64_t next_try_ms;
    char last_error[256];
};
void spool_row_free(struct spool_row *r);
enum err_code db_spool_put(struct db *d, const char *group_url, const char *target_json, const char *body,
                           struct err *why);
/* The pushes that are due; now_ms INT64_MAX: all. The one that has waited longest is first. The caller frees
 * *rows after spool_row_free of each. */
enum err_code db_spool_list(struct db *d, int64_t now_ms, struct spool_row **rows, int *n, struct err *why);
/* The push that waits for a group, if any. */
enum err_code db_spool_find(struct db *d, const char *group_url, struct spool_row *out, bool *found,
                            struct err *why);
/* Locks sending to one gateway, given by its address, so that no body is sent twice or after a newer one,
 * until db_spool_unlock, db_close or the end of the process. A handle locks one gateway at a time. Waits up
 * to wait_ms. ERR_ABSENT: another process is still sending to it. */
enum err_code db_spool_lock(struct db *d, const char *gateway, int64_t wait_ms, struct err *why);
void db_spool_unlock(struct db *d);
/* After a successful push: deletes it from the spool and stores that we created the group. */
enum err_code db_spool_sent(struct db *d, int64_t id, const char *group_url, struct err *why);
enum err_code db_spool_failed(struct db *d, int64_t id, int64_t next_try_ms, const char *error,
                              struct err *why);
enum err_code db_spool_done(struct db *d, int64_t id, struct err *why);
int db_spool_count(struct db *d); /* -1 on error */
/* The same with the error; *n is -1 then. */
enum err_code db_spool_count_read(struct db *d, int *n, struct err *why);

/* Groups that we created on a gateway, for `push prune`. */
struct group_row {
    char url[4096];
    int64_t first_ms, last_ms; /* first and last push */
};
enum err_code db_group_put(struct db *d, const char *group_url, struct err *why);
/* The groups whose address starts with `prefix`, oldest push first. */
enum err_code db_group_list(struct db *d, const char *prefix, struct group_row **rows, int *n,
                            struct err *why);
enum err_code db_group_remove(struct db *d, const char *group_url, struct err *why);

/* ---------------------------------------------------------------- the watch */

/* An alert from its beginning to its end. For each machine, name and subject at most one fires at a time. */
struct alert_row {
    int64_t id;
    char machine[16], name[64], subject[160], grade[16];
    int64_t since_ms, ended_ms; /* ended_ms 0: it is firing */
    double value, threshold;    /* the value that triggered it */
    char text[256], ended[128]; /* ended: why it ended; "" while it fires */
};
/* A notice about an alert that waits for delivery to one receiver. */
struct notice_row {
    int64_t id, alert_id;
    char kind[16];    /* "webhook" "alertmanager" */
    char *url, *body; /* the receiver, by a name without secrets, and the document; owned by rows that were
                         read: notice_row_free */
    int attempts;
    int64_t next_try_ms, refused_ms; /* refused_ms: when it was refused; it is not retried */
    char last_error[256];
};
void notice_row_free(struct notice_row *r);
/* Begins or ends an alert and stores its notices in one transaction. db_alert_begin fills a->id. ERR_USAGE:
 * the alert is already firing, or (db_alert_end) is not firing. */
enum err_code db_alert_begin(struct db *d, struct alert_row *a, struct notice_row *notices, int n,
                             struct err *why);
enum err_code db_alert_end(struct db *d, int64_t id, const char *ended, struct notice_row *notices, int n,
                           struct err *why);
/* Newest first. machine NULL: all machines. */
enum err_code db_alert_list(struct db *d, const char *machine, bool firing_only, int limit,
                            struct alert_row **rows, int *n, struct err *why);
/* The oldest notice for an address, if it is due. Notices are delivered in order: one that is not due yet
 * blocks those after it. Stored times: see DB_RETRY_MOST_MS. */
enum err_code db_notice_next(struct db *d, const char *url, int64_t now_ms, struct notice_row *out,
                             bool *found, struct err *why);
/* Renames a receiver: its waiting notices then belong to `to`. */
enum err_code db_notice_rename(struct db *d, const char *from, const char *to, struct err *why);
enum err_code db_notice_failed(struct db *d, int64_t id, int64_t next_try_ms, const char *error,
                               struct err *why);
enum err_code db_notice_refused(struct db *d, int64_t id, const char *error, struct err *why);
enum err_code db_notice_done(struct db *d, int64_t id, struct err *why);
int db_notice_count(struct db *d, const char *url); /* waiting notices; url NULL: all; -1: error */

/* The last value of a signal that the watch measures. */
struct watch_value {
    char machine[16]; /* db_watch_value_put ignores it */
    char signal[32], subject[160];
    int64_t unix_ms;
    double value; /* NAN: unknown */
};
enum err_code db_watch_value_put(struct db *d, const char *machine, const struct watch_value *v,
                                 struct err *why);
enum err_code db_watch_value_list(struct db *d, const char *machine, struct watch_value **rows, int *n,
                                  struct err *why);

/* ---------------------------------------------------------------- prediction residuals */

/* A value that was predicted before it was measured. NAN: unknown. */
struct residual_row {
    int64_t id;
    char machine[16],
        basis[64]; /* basis: the data behind the cost model; residuals of another basis do not apply */
    char model[128], config[DB_CONFIG_LINE], workload[64], metric[48];
    char traits[256];            /* properties that residuals can share: "format=q4_0 threads=2" */
    double untaught;             /* prediction of the cost model alone, without corrections */
    double predicted, low, high; /* prediction and interval with corrections from earlier residuals */
    double measured;
    double memory_ratio,
        core_ratio;  /* speed of memory and of cores during the run, relative to when kernel times were
                        measured; `untaught` and `predicted` account for it. NAN: not probed */
    double foretold; /* like `predicted`, but without the two ratios, as known before the run */
    int64_t run_id;  /* 0: from no run */
    int64_t unix_ms;
};
/* Fills r->id, and unix_ms when it is 0. */
enum err_code db_residual_insert(struct db *d, struct residual_row *r, struct err *why);
/* Newest first. basis NULL: any. */
enum err_code db_residual_list(struct db *d, const char *machine, const char *basis, int limit,
                               struct residual_row **rows, int *n, struct err *why);
/* Deletes all residuals of a machine. */
enum err_code db_residual_clear(struct db *d, const char *machine, struct err *why);

/* ---------------------------------------------------------------- sensitivity of tensors */

/* The KL divergence of a model's predictions when only this tensor is stored in this format. */
struct sensitivity_row {
    int64_t id;
    char model[65]; /* SHA-256 of the model file */
    char basis[96]; /* text and windows of the measurement; only rows with the same basis are comparable */
    char tensor[128], format[24];
    int64_t bytes;            /* of the tensor in that format */
    double kld, kld_se, nmse; /* nats per token, its standard error; relative squared error of the weights */
    int64_t unix_ms;
};
/* Replaces the row of the same model, basis, tensor and format; fills id and unix_ms. */
enum err_code db_sensitivity_put(struct db *d, struct sensitivity_row *r, struct err *why);
/* In order of measurement. basis NULL: the one measured last. */
enum err_code db_sensitivity_list(struct db *d, const char *model, const char *basis,
                                  struct sensitivity_row **rows, int *n, struct err *why);

/* ---------------------------------------------------------------- devices */

/* Stores a line "DEVICE\tSHAPES" (opencl_shapes_measure in kernels.h); replaces the row of that device.
 * ERR_USAGE: not such a line. */
enum err_code db_shapes_put(struct db *d, const char *line, struct err *why);
/* All lines, each with '\n'; "": none. The caller frees *out. */
enum err_code db_shapes_all(struct db *d, char **out, struct err *why);

/* One run as a transaction of SQL statements, for `qdyno show ID -o sql`: creates missing tables and inserts
 * the run, its machine, model, labels, capsule, cells, spans and events under the ids they have here. In a
 * database that has a run with this id, the first INSERT of a run fails. The caller frees *out. Errors:
 * ERR_USAGE: no such run. */
enum err_code db_run_sql(struct db *d, int64_t id, char **out, struct err *why);

/* Runs SQLite's integrity_check. ERR_FORMAT with its message when it fails. */
enum err_code db_check(struct db *d, struct err *why);

#endif
