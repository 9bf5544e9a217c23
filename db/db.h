/* db/db.h - what was measured: SQLite, long and narrow. WAL, foreign keys, schema version in user_version,
 * migrations.
 *
 * One handle per thread; several processes may share the file. Every write is a transaction. NAN is NULL. */
#ifndef QDYNO_DB_H
#define QDYNO_DB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

enum { DB_CONFIG_LINE = 2048 }; /* bytes of a config line: CONFIG_LINE of engine/config/config.h */

struct db;

/* path NULL: $XDG_DATA_HOME/qdyno/qdyno.db. ":memory:" works. Creates and migrates. A file that may only be
 * read opens too; writing then fails with ERR_IO. Full disk on any write: ERR_FIT, the handle stays usable.
 * Errors: ERR_IO (cannot open, locked longer than 5 s), ERR_FORMAT (not a database, another program's, or of
 * a newer version).
 */
enum err_code db_open(struct db **out, const char *path, struct err *why);
/* To look only: nothing is created, migrated or written, and another's lock is waited for `wait_ms` at most.
 * Errors: as above; ERR_ABSENT when there is no such file, ERR_FORMAT also when it is of an older version. */
enum err_code db_open_reader(struct db **out, const char *path, int wait_ms, struct err *why);
/* A statement that still runs at that time (clock_ns) ends with ERR_IO. 0: no limit. */
void db_deadline(struct db *d, int64_t at_ns);
void db_close(struct db *d); /* NULL is fine */
const char *db_path(const struct db *d);

/* Identity rows, kept once per id; json is the full description (the newest stays). A run may name only a
 * machine and a model that are stored, or none (""): else ERR_USAGE. */
enum err_code db_machine_put(struct db *d, const char *machine_id, const char *json, struct err *why);
enum err_code db_model_put(struct db *d, const char *sha256, const char *name, const char *path,
                           const char *json, struct err *why);
/* The machine's description as it was stored; *json: free(). NULL when there is none of that id. */
enum err_code db_machine_get(struct db *d, const char *machine_id, char **json, struct err *why);

/* A run: one invocation of bench, ab, eval, tune. */
struct run_row {
    int64_t id;
    char kind[16];  /* "ab" "bench" "eval" */
    char state[16]; /* "running" "done" "stopped" "failed" */
    char machine[16], model_sha256[65], model_name[128], workload[576],
        label[128]; /* label: arms, for lists */
    char metric[48];
    uint64_t seed;
    char verdict[16];             /* "" until reached */
    double effect_ratio;          /* B/A of the metric, NAN */
    int64_t started_ms, ended_ms; /* ended 0: not yet */
    char *spec_json;              /* everything needed to resume or replay; owned by the row: run_row_free */
    char *outcome_json;           /* NULL until done */
};
void run_row_free(struct run_row *r);
/* Fills r->id and started_ms. */
enum err_code db_run_insert(struct db *d, struct run_row *r, struct err *why);
enum err_code db_run_finish(struct db *d, int64_t id, const char *state, const char *verdict,
                            double effect_ratio, const char *outcome_json, struct err *why);
/* Be the one that measures this run, until db_run_release, the end of the handle, or that of the process.
 * ERR_USAGE: another handle, of this or another process, does; ERR_IO. */
enum err_code db_run_hold(struct db *d, int64_t id, struct err *why);
/* Be the one watch of this database, likewise. */
enum err_code db_watch_hold(struct db *d, struct err *why);
void db_run_release(struct db *d); /* all that it holds */
/* Does another handle hold a run? *pid: its process, 0 unknown. False where that cannot be found out. */
bool db_run_held(struct db *d, int *pid);
/* A stopped, killed or undecided run goes on: it has no verdict until db_run_finish. */
enum err_code db_run_reopen(struct db *d, int64_t id, struct err *why);
enum err_code db_run_get(struct db *d, int64_t id, struct run_row *out,
                         struct err *why); /* ERR_USAGE: no such id */
/* Newest first; filter NULL or a substring of label, model, workload, kind or verdict. *rows: free each, then
 * the array. */
enum err_code db_run_list(struct db *d, const char *filter, int limit, struct run_row **rows, int *n,
                          struct err *why);

/* The same for what a person types: "!TEXT" runs without it, "/RE/" an extended regular expression that one
 * of those fields matches, "!/RE/" its opposite. ERR_USAGE: no regular expression. */
enum err_code db_run_find(struct db *d, const char *filter, int limit, struct run_row **rows, int *n,
                          struct err *why);
enum err_code db_filter_check(const char *filter, struct err *why);

/* A cell and everything measured in it, in one transaction. A metric stands once per cell (ERR_USAGE). */
struct measurement {
    const char *metric, *unit;
    double value;
};
struct sample_row {
    int64_t t_ns; /* relative to the cell's start */
    const char *metric;
    double value;
};
/* The requests a cell ran, one after the other, each in `sequences` sequences side by side. */
struct request_figures {
    float prompt_tokens, gen_tokens; /* of all sequences together */
    float ttft_s, prefill_s;         /* NAN without a prompt */
    float decode_s;                  /* NAN without generation */
};
struct request_rows {
    char model[128], workload[576]; /* as their worker calls them */
    int sequences, n;
    struct request_figures *figures; /* [n], the holder's */
};
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
    char error[256];                     /* "" when it ran */
    char worker_json[4096];              /* echo of what ran, shortened of raw samples */
    const struct request_rows *requests; /* stored with it, NULL: none; not filled by db_cell_list */
};
/* Fills c->id. itl: raw inter-token latencies in seconds (may be NULL). */
enum err_code db_cell_insert(struct db *d, struct cell_row *c, const struct measurement *m, int n_m,
                             const struct sample_row *samples, int n_samples, const float *itl, int n_itl,
                             struct err *why);
/* The latencies of a cell, as they were inserted. *itl: free(); NULL and 0 when there are none. */
enum err_code db_itl_get(struct db *d, int64_t cell_id, float **itl, int *n, struct err *why);
/* The requests of all cells after `after_cell`, in order of cells, with their cell's latencies. Borrowed for
 * the call; an error of `row` ends the listing. */
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

/* Every model that was ever run, and where its file was last. Strings are borrowed for the call; an error of
 * `row` ends the listing, here and below. */
typedef enum err_code db_model_fn(void *ctx, const char *sha256, const char *path, struct err *why);
enum err_code db_model_list(struct db *d, db_model_fn *row, void *ctx, struct err *why);

/* Cells that count (kept, without error) of runs of that model, the newest first. */
struct model_query {
    const char *sha256, *metric; /* metric: of db_model_cells only */
    int limit;
};
struct model_cell {
    int64_t run_id, started_ms;
    double value;                      /* of the metric */
    const char *kind;                  /* of the run */
    const char *config, *first_config; /* first: of arm 0 of the same run, what it is compared with */
    const char *worker_json;
};
typedef enum err_code db_model_cell_fn(void *ctx, const struct model_cell *c, struct err *why);
enum err_code db_model_cells(struct db *d, const struct model_query *q, db_model_cell_fn *row, void *ctx,
                             struct err *why);
struct model_requests {
    const char *config, *workload;
    int sequences, n, n_itl;
    const struct request_figures *figures; /* [n] */
    const float *itl;                      /* [n_itl] one a step of decoding; NULL: none */
};
typedef enum err_code db_model_request_fn(void *ctx, const struct model_requests *c, struct err *why);
enum err_code db_model_requests(struct db *d, const struct model_query *q, db_model_request_fn *row,
                                void *ctx, struct err *why);

/* How many cells ("kept", "discarded", "failed"), and how many runs by kind and state, at most `max` rows;
 * *n of them. */
struct count_row {
    char what[16], state[16]; /* of cells: state "" */
    int64_t n;
};
enum err_code db_cell_counts(struct db *d, struct count_row *out, int max, int *n, struct err *why);
/* The newest measurement of `metric` in a cell of that phase, and when: NAN and 0 when there is none. */
enum err_code db_latest(struct db *d, const char *phase, const char *metric, double *value, int64_t *unix_ms,
                        struct err *why);
enum err_code db_run_counts(struct db *d, struct count_row *out, int max, int *n, struct err *why);
/* Mark a whole block as discarded, after the fact. */
enum err_code db_block_discard(struct db *d, int64_t run_id, int block, const char *phase, const char *reason,
                               struct err *why);
/* All cells of a run in order of insertion; free(*cells). */
enum err_code db_cell_list(struct db *d, int64_t run_id, struct cell_row **cells, int *n, struct err *why);
/* One measurement of a cell; NAN when absent. */
double db_measurement_get(struct db *d, int64_t cell_id, const char *metric);
enum err_code db_measurement_list(struct db *d, int64_t cell_id,
                                  void (*row)(void *ctx, const char *metric, const char *unit, double value),
                                  void *ctx, struct err *why);

/* What the sensors said during a cell, in order of time (relative to the cell's start). */
enum err_code db_sample_list(struct db *d, int64_t cell_id,
                             void (*row)(void *ctx, int64_t t_ns, const char *metric, double value),
                             void *ctx, struct err *why);

/* When a part of a run began and ended, wall clock: what is not told by cells, or not as exactly. */
struct span_row {
    int64_t id, run_id, cell_id; /* cell_id 0: of no cell */
    int arm, block;              /* -1: of none */
    char phase[16];              /* of the cell or block it belongs to: as in cell_row, "" of none */
    char name[24];               /* "cell" "load" "quantize" "fill" "prefill" "decode" "push" ... */
    int64_t begun_ns, ended_ns;  /* since 1970, UTC */
    char error[256];             /* "" when it went well */
};
/* All or none; fills their ids. */
enum err_code db_span_insert(struct db *d, struct span_row *rows, int n, struct err *why);
/* In order of insertion; free(*rows). */
enum err_code db_span_list(struct db *d, int64_t run_id, struct span_row **rows, int *n, struct err *why);

/* Runs that could not be told to the collector at `url` ("": the one the environment names) and wait for the
 * next time. Once more: counted as an attempt. */
enum err_code db_trace_due_put(struct db *d, int64_t run_id, const char *url, const char *error,
                               struct err *why);
enum err_code db_trace_due_done(struct db *d, int64_t run_id, const char *url,
                                struct err *why); /* fine if none */
/* Those of one url, oldest first; free(*run_ids). */
enum err_code db_trace_due_list(struct db *d, const char *url, int64_t **run_ids, int *n, struct err *why);
int db_trace_due_count(struct db *d); /* of all urls; -1 on error */

/* Events of a run (discards, control outcome, errors): what the log pane and reports show. */
enum err_code db_event_add(struct db *d, int64_t run_id, const char *kind, const char *text, struct err *why);
enum err_code db_event_list(struct db *d, int64_t run_id,
                            void (*row)(void *ctx, int64_t unix_ms, const char *kind, const char *text),
                            void *ctx, struct err *why);

/* ---------------------------------------------------------------- runs over time */

/* What a run needs to be understood and repeated, taken at its start; one per run (advisor/run/run.h). */
enum err_code db_capsule_put(struct db *d, int64_t run_id, const char *json, struct err *why);
/* *json: free(). NULL when the run has none: it is older than capsules. */
enum err_code db_capsule_get(struct db *d, int64_t run_id, char **json, struct err *why);

/* Every known measurement of a run's cells that count (kept, without error), in order of cells. Strings are
 * borrowed for the call. An error of `row` ends the listing. */
struct value_row {
    int64_t cell_id;
    int arm, block; /* as in the cell */
    const char *phase, *config, *work_hash, *metric;
    const char *workload; /* of the cell, else of its run */
    double value;
};
typedef enum err_code db_value_fn(void *ctx, const struct value_row *v, struct err *why);
enum err_code db_value_list(struct db *d, int64_t run_id, db_value_fn *row, void *ctx, struct err *why);

/* That a run was made because of another: kind "replay" with what it said ("reproduced"). A run has one. */
struct link_row {
    int64_t of_run;
    char kind[16], verdict[16];
};
enum err_code db_link_put(struct db *d, int64_t run_id, int64_t of_run, const char *kind, const char *verdict,
                          struct err *why);
enum err_code db_link_get(struct db *d, int64_t run_id, struct link_row *out, bool *found, struct err *why);

/* A champion: what a challenger is measured against, by name. It outlives the run it came from. */
struct baseline_row {
    int64_t id;
    char name[64], config[DB_CONFIG_LINE], model_path[512], model_sha256[65], model_name[128], workload[576],
        metric[48];
    double margin;    /* log-ratio that matters */
    double value;     /* of the metric when it was set, NAN: not measured */
    char machine[16]; /* where, "" */
    int64_t run_id;   /* 0: it came from no run */
    int64_t set_ms;
};
/* Replaces the one of that name; fills id and set_ms. */
enum err_code db_baseline_put(struct db *d, struct baseline_row *b, struct err *why);
/* By name; *rows: free(). */
enum err_code db_baseline_list(struct db *d, struct baseline_row **rows, int *n, struct err *why);

/* The push spool: a group per key, the newest body wins (PUT replaces a group, so older ones are moot). */
struct spool_row {
    int64_t id;
    char *target_json, *body; /* owned: spool_row_free. No secrets in target_json. */
    int attempts;
    int64_t next_try_ms;
    char last_error[256];
};
void spool_row_free(struct spool_row *r);
enum err_code db_spool_put(struct db *d, const char *group_url, const char *target_json, const char *body,
                           struct err *why);
enum err_code db_spool_next(struct db *d, int64_t now_ms, struct spool_row *out, bool *found,
                            struct err *why);
/* What waits for a group, if anything. */
enum err_code db_spool_find(struct db *d, const char *group_url, struct spool_row *out, bool *found,
                            struct err *why);
/* Be the one that sends, so that no body is on its way twice and none overtakes a newer one: until
 * db_spool_release, the end of the handle, or that of the process. Waits up to wait_ms. Errors: ERR_ABSENT
 * when somebody else still sends; ERR_IO. */
enum err_code db_spool_hold(struct db *d, int64_t wait_ms, struct err *why);
void db_spool_release(struct db *d);
/* It arrived: away with it, and note that the group is ours. */
enum err_code db_spool_sent(struct db *d, int64_t id, const char *group_url, struct err *why);
enum err_code db_spool_failed(struct db *d, int64_t id, int64_t next_try_ms, const char *error,
                              struct err *why);
enum err_code db_spool_done(struct db *d, int64_t id, struct err *why);
int db_spool_count(struct db *d); /* -1 on error */

/* Groups we created on a gateway (for prune). */
struct group_row {
    char url[4096];
    int64_t first_ms, last_ms; /* when it was pushed first and last */
};
enum err_code db_group_put(struct db *d, const char *group_url, struct err *why);
/* Those whose address starts with `prefix`, the oldest push first; *rows: free(). */
enum err_code db_group_list(struct db *d, const char *prefix, struct group_row **rows, int *n,
                            struct err *why);
enum err_code db_group_remove(struct db *d, const char *group_url, struct err *why);

/* ---------------------------------------------------------------- the watch */

/* An alert from its beginning to its end. Per machine, name and subject one fires at a time. */
struct alert_row {
    int64_t id;
    char machine[16], name[64], subject[160], grade[16];
    int64_t since_ms, ended_ms; /* ended 0: it fires */
    double value, threshold;    /* the value that made it fire */
    char text[256], ended[128]; /* why it ended, "" while it fires */
};
/* What is to be told to somebody else about it; waits here until it was. */
struct notice_row {
    int64_t id, alert_id;
    char kind[16];    /* "webhook" "alertmanager" */
    char *url, *body; /* owned by a row that was read: notice_row_free. No secrets in them. */
    int attempts;
    int64_t next_try_ms, refused_ms; /* refused: for good, and not tried again */
    char last_error[256];
};
void notice_row_free(struct notice_row *r);
/* The alert begins or ends, and the notices of that wait, in one transaction: a kill loses neither or both.
 * begin fills a->id; ERR_USAGE when it fires already. end of one that does not fire: ERR_USAGE. */
enum err_code db_alert_begin(struct db *d, struct alert_row *a, struct notice_row *notices, int n,
                             struct err *why);
enum err_code db_alert_end(struct db *d, int64_t id, const char *ended, struct notice_row *notices, int n,
                           struct err *why);
/* Newest first; machine NULL: of all; *rows: free(). */
enum err_code db_alert_list(struct db *d, const char *machine, bool firing_only, int limit,
                            struct alert_row **rows, int *n, struct err *why);
/* The oldest for that address, when it is due: notices go in order, so a later one waits for those before it.
 */
enum err_code db_notice_next(struct db *d, const char *url, int64_t now_ms, struct notice_row *out,
                             bool *found, struct err *why);
enum err_code db_notice_failed(struct db *d, int64_t id, int64_t next_try_ms, const char *error,
                               struct err *why);
enum err_code db_notice_refused(struct db *d, int64_t id, const char *error, struct err *why);
enum err_code db_notice_done(struct db *d, int64_t id, struct err *why);
int db_notice_count(struct db *d, const char *url); /* that wait; url NULL: for anybody; -1 on error */

/* The last value of something, replaced each time. */
struct watch_value {
    char signal[32], subject[160];
    int64_t unix_ms;
    double value; /* NAN */
};
enum err_code db_watch_value_put(struct db *d, const char *machine, const struct watch_value *v,
                                 struct err *why);
/* *rows: free(). */
enum err_code db_watch_value_list(struct db *d, const char *machine, struct watch_value **rows, int *n,
                                  struct err *why);

/* ---------------------------------------------------------------- what predictions were worth */

/* One figure that was predicted before it was measured. */
struct residual_row {
    int64_t id;
    char machine[16], basis[64]; /* basis: what the model stood on; rows of another cannot correct it */
    char model[128], config[DB_CONFIG_LINE], workload[64], metric[48];
    char traits[256];            /* what it may have in common with others: "format=q4_0 threads=2" */
    double untaught;             /* by the model alone; NAN unknown, as all of these */
    double predicted, low, high; /* as it was told: corrected by the rows before */
    double measured;
    double memory_ratio, core_ratio; /* how fast weights came and cores multiplied beside it, of what it was
                                        when kernels were timed; all of the above is told for that. NAN:
                                        nobody looked */
    double foretold;                 /* as `predicted`, without knowing it */
    int64_t run_id;                  /* 0: of no run */
    int64_t unix_ms;
};
/* Fills r->id, and unix_ms when it is 0. */
enum err_code db_residual_insert(struct db *d, struct residual_row *r, struct err *why);
/* Newest first; basis NULL: of any; *rows: free(). */
enum err_code db_residual_list(struct db *d, const char *machine, const char *basis, int limit,
                               struct residual_row **rows, int *n, struct err *why);
/* All of a machine. */
enum err_code db_residual_clear(struct db *d, const char *machine, struct err *why);

/* ---------------------------------------------------------------- sensitivity of tensors */

/* KL divergence of the model's predictions when only this tensor is stored in that format
 * (advisor/recipe/recipe.h). */
struct sensitivity_row {
    int64_t id;
    char model[65]; /* SHA-256 of the file that was asked */
    char basis[96]; /* text and windows it was measured on: only equal ones may be compared */
    char tensor[128], format[24];
    int64_t bytes;            /* of the tensor in that format */
    double kld, kld_se, nmse; /* nats a token; relative squared error of the weights */
    int64_t unix_ms;
};
/* Replaces what is there of the same model, basis, tensor and format; fills id and unix_ms. */
enum err_code db_sensitivity_put(struct db *d, struct sensitivity_row *r, struct err *why);
/* In order of measurement; basis NULL: the one measured last; *rows: free(). */
enum err_code db_sensitivity_list(struct db *d, const char *model, const char *basis,
                                  struct sensitivity_row **rows, int *n, struct err *why);

/* ---------------------------------------------------------------- devices */

/* A line "DEVICE\tSHAPES" (kernels.h, opencl_shapes_measure); replaces what is there of that device.
 * ERR_USAGE: it is no such line. */
enum err_code db_shapes_put(struct db *d, const char *line, struct err *why);
/* All lines, each ended by '\n'; "" when there are none. *out: free(). */
enum err_code db_shapes_all(struct db *d, char **out, struct err *why);

/* SQL text (INSERTs) of one run, for `-o sql`; free(). */
enum err_code db_run_sql(struct db *d, int64_t id, char **out, struct err *why);

/* For `doctor`. ERR_FORMAT with SQLite's own words when integrity_check fails. */
enum err_code db_check(struct db *d, struct err *why);

#endif
