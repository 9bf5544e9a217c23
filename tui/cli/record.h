/* tui/cli/record.h - bench and eval leave the same trail: a run, its cells, and the table as its outcome. */
#ifndef QDYNO_CLI_RECORD_H
#define QDYNO_CLI_RECORD_H

#include "tui/cli/lib/lib.h"

struct recorder {
    struct db *db;
    struct run_row run;
    bool started;
};

/* Opens the database; nothing is written before recorder_start. */
enum err_code recorder_open(struct recorder *r, const struct cli_global *g, const char *kind,
                            struct err *why);

/* Once per run, when the first model is known: machine, model and run rows. */
enum err_code recorder_start(struct recorder *r, const struct machine *m, const json_t *description,
                             const char *model_path, const char *workload, const char *label, uint64_t seed,
                             struct err *why);

/* One timed cell. answer: the worker's, NULL when it failed (why then says how). */
struct recorded_cell {
    int arm;
    const char *config;
    const json_t *answer;
    const char *error;
    int64_t started_ms;
    double seconds, energy_j;
    const struct sample *samples;
    int n_samples;
    int64_t start_ns; /* of the cell, on clock_ns: samples are stored relative to it */
};
enum err_code recorder_cell(struct recorder *r, const struct recorded_cell *cell, struct err *why);

/* state: "done" or "stopped". The rows become the run's outcome, so `show` prints the same table again. */
enum err_code recorder_finish(struct recorder *r, const char *state, const struct table *t, struct err *why);
void recorder_close(struct recorder *r);

/* A run's table again. Errors: ERR_USAGE when it never finished. */
enum err_code recorded_table(struct table *t, const struct run_row *run, struct err *why);

/* Reading the worker's answer. NAN where the phase is absent. */
double answer_prefill_rate(const json_t *answer);
double answer_decode_rate(const json_t *answer);
/* Appends itl_s to *all (realloc'd, owned by the caller); ERR_NOMEM. */
enum err_code answer_itl(const json_t *answer, float **all, int *n, struct err *why);

#endif
