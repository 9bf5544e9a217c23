/* advisor/run/run.h - the public header of advisor/run/. */
#ifndef QDYNO_ADVISOR_RUN_H
#define QDYNO_ADVISOR_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "advisor/predict/predict.h"
#include "advisor/run/arm.h"
#include "advisor/run/load.h"
#include "advisor/run/profile.h"
#include "db/db.h"
#include "engine/config/config.h"
#include "engine/model/model.h"
#include "kernels/kernels.h"
#include "telemetry/export/export.h"
#include "telemetry/machine/machine.h"
#include "telemetry/metrics/metrics.h"
#include "telemetry/sensors/sensors.h"

/* ---------------------------------------------------------------- span */

/* A span records when a part of a run began and ended (db.h, span_row). advisor/outcome exports spans as a
 * trace.
 *
 * The wall clock is read once, at the beginning of a part; durations come from the monotonic clock. Nested
 * spans therefore stay nested when somebody sets the wall clock in the meantime. */

enum { SPANS_MOST = 8 }; /* spans kept of one answer or cell: a cell may repeat a short workload 256 times */

/* The same instant on both clocks, in nanoseconds. */
struct moment {
    int64_t unix_ns, clock_ns;
};
struct moment moment_now(void);

/* A span from `begun` until now, with arm and block -1. name and error are cut to fit; error NULL: none. */
struct span_row span_until_now(const char *name, struct moment begun, const char *error);

/* Appends the "spans" of a worker's answer (engine/worker/worker.h) at rows[n] of rows[most], and returns the
 * new number. Spans outside the time from `begun` until now, or with an end before their beginning, are left
 * out: they were measured by another clock. */
int spans_read(struct span_row *rows, int n, int most, const json_t *answer, struct moment begun);

/* The start of an arm's process: from `begun` on, for `seconds`. */
struct span_load {
    struct moment begun;
    double seconds;
    const json_t *description; /* of the arm; NULL: it failed */
    const char *error;         /* "" when it did not */
};
enum err_code spans_store_load(struct db *d, int64_t run_id, int arm, const struct span_load *load,
                               struct err *why);

/* ---------------------------------------------------------------- cell */

/* A cell is one timed run of a config on a workload. A short workload is repeated within the cell without a
 * pause, because otherwise it would end between two sensor readings and clock noise would dominate its time.
 * Tokens and seconds are summed over the repeats, which do not count as independent measurements. */

enum { CELL_REPEATS_MAX = 256 };
enum { WINDOW_SAMPLES = 6000, WINDOW_STORED = 64 * METRIC_SENSOR_COUNT };
#define CELL_LEAST_S 0.25 /* seconds that the repeats of a workload within a cell last together, usually */

/* Numbers in the worker's answer to "cell" (engine/worker/worker.h), and of quality. */
enum field {
    FIELD_PREFILL_S,
    FIELD_DECODE_S,
    FIELD_TTFT_S,
    FIELD_PROMPT_TOKENS,
    FIELD_GEN_TOKENS,
    FIELD_DECODE_EXPERTS, /* distinct experts of a layer in a decode step */
    FIELD_CPU_S,
    FIELD_PEAK_BYTES,
    FIELD_RSS_BYTES,
    FIELD_MAJOR_FAULTS,
    FIELD_MINOR_FAULTS,
    FIELD_VOLUNTARY,
    FIELD_INVOLUNTARY,
    FIELD_PERPLEXITY,
    FIELD_NLL,
    FIELD_NLL_SE,
    FIELD_SCORED,
    FIELD_KLD_SE, /* of quality: standard error of METRIC_KLD; perplexity over the reference's */
    FIELD_PPL_RATIO,
    FIELD_TRAIN_S,
    FIELD_TRAIN_TOKENS,
    FIELD_TRAIN_LOSS,
    FIELD_SERVER_PREFILL_S, /* of another engine, by its own clock */
    FIELD_SERVER_DECODE_S,
    FIELD_CHUNK_GAP_S,   /* median between chunks of its stream */
    FIELD_FILL_S,        /* filling the cache up to the depth; in no other figure */
    FIELD_FILLED_TOKENS, /* by that; 0: an earlier cell did */
    FIELD_CACHED_TOKENS, /* of the prompt, by its count */
    FIELD_COUNT
};

/* What was measured in one cell, over all its repeats. */
struct measured_cell {
    double field[FIELD_COUNT];  /* NAN unknown */
    double value[METRIC_COUNT]; /* by enum metric_id; sensors: mean over the cell; NAN unknown */
    float *itl;                 /* owned: seconds between tokens */
    int n_itl;
    json_t *answer;               /* owned: the worker's last answer without its latencies; NULL: none */
    struct request_rows requests; /* its figures are below; n 0: the workload has no requests */
    struct request_figures request[CELL_REPEATS_MAX];
    struct request_figures
        *load_request; /* [requests.n] of a load, in place of `request`; owned. NULL: none */
    char work_hash[24], output_hash[24];
    struct err failure;  /* code not 0: the arm failed, and this says how */
    char disturbed[160]; /* what disturbed the machine meanwhile (contamination_reason); "" nothing */
    bool discarded;      /* it does not count because of that */
    struct moment begun;
    int64_t started_ms, begun_ns;          /* wall clock; clock_ns */
    struct span_row spans[1 + SPANS_MOST]; /* when it and its phases ran; the first is the cell itself */
    int n_spans;
    double seconds;
    struct conditions beside; /* of the machine during the cell; zeros: not sampled */
    double usual_rate;        /* tokens/s expected under usual conditions; 0: not computed */
    double usual_sd;          /* standard deviation of its logarithm */
    double others_running;    /* mean number of other runnable tasks in its turns; NAN: unknown, no turns */
    /* Owned: [n_turns] seconds of each turn; turn i of every cell is the same work. NULL: no turns. */
    struct cell_turn {
        float seconds;
        bool prefill;
    } * turn;
    int n_turns;
    bool untimed_work;        /* the arm also did work in this time that no figure counts, e.g. loading */
    struct load_summary load; /* requests 0: the workload is no load */
    double turn_log_ratio;    /* of the compared metric, this arm over A (turns_log_speedup); NAN: unknown */
    struct other_machines others;
    double switch_s, switch_tokens; /* decode time and tokens left out after a change of turns; 0: none */
};
#define CELL_MEMORY_RATIO "memory_ratio" /* its measurements in the database */
#define CELL_CORE_RATIO   "core_ratio"
#define CELL_USUAL_RATE   "usual_rate"
#define CELL_USUAL_SD     "usual_sd"
#define CELL_OTHERS       "others_running"
#define CELL_TURN_RATIO   "turn_log_ratio"
#define CELL_FILL         "fill_seconds"
#define CELL_DISTURBED    "disturbed" /* 1: other work disturbed the cell (contamination_reason) */

struct cell_ask {
    struct arm *arm;
    const char *workload;
    int repeats; /* 1 to CELL_REPEATS_MAX */
    uint64_t seed;
    struct sampler_thread *sampler; /* NULL: no sensors */
    arm_event_fn *event;
    void *ctx;
    struct turn_length turn; /* of cells_take_in_turns, which sets it */
};
/* Runs the workload and samples the sensors. *c is filled as far as it came, also on failure; cell_done.
 * window: [WINDOW_SAMPLES], the samples of the cell; *n of them. Errors: those of arm_cell. */
enum err_code cell_take(struct measured_cell *c, const struct cell_ask *ask, struct sample *window, int *n,
                        struct err *why);

/* One cell of each of `n` arms (at most CELLS_IN_TURNS) at the same time, in turns: cell 0, 1, ... n-1, then
 * n-1, ... 0, starting at another cell each round. A disturbance of the machine that lasts longer than a turn
 * then meets every cell. The figures contain only the time of the cell's own turns; sensors describe the time
 * of all together, and energy stays unknown. Fills c[i].failure; when one fails, the others are cancelled
 * (ERR_CANCELLED). cell_done for each. */
enum { CELLS_IN_TURNS = 8 };
void cells_take_in_turns(struct measured_cell *c, const struct cell_ask *ask, int n, struct turn_length turn,
                         struct sample *window, int *samples);
/* How much faster the turns of cell b were than the same turns of cell a: the median of the log ratios of
 * their times, of prefill or of decode turns. Other programs delay single turns by up to several times their
 * length, which the median of pairs that ran one after the other hardly shows. NAN: fewer than three. */
double turns_log_speedup(const struct measured_cell *a, const struct measured_cell *b, bool prefill);
/* The length of turns of about `turn_s` for a config that needs prefill_s and decode_s (NAN or 0: no such
 * phase) for the whole workload, in batches of `batch` rows. */
struct turn_length turn_length_for(const struct workload *w, int batch, double prefill_s, double decode_s,
                                   double turn_s);
/* The number of tasks on this machine that run or wait for a processor, without the calling thread. NAN:
 * unknown. */
double others_running(void);

/* How many repeats make a cell last `least_s` when one run of the workload lasts `seconds`. */
int cell_repeats(double seconds, double least_s);

/* Samples as rows for the database, evenly thinned for each sensor to at most WINDOW_STORED rows together,
 * into out. Returns their number. */
int cell_thin(const struct sample *window, int n, int64_t t0_ns, struct sample_row *out);

/* Stores a cell with its measurements, samples, latencies, requests and spans in one transaction. Run, arm,
 * block, slot, phase, config, error and worker_json are the caller's in *row; everything else comes from *c.
 */
enum err_code cell_insert(struct db *d, struct cell_row *row, const struct measured_cell *c,
                          const struct sample_row *samples, int n_samples, struct err *why);

void cell_done(struct measured_cell *c); /* frees what it owns; fine for a zeroed one */
/* The parts of cell_take, for what is measured in this process: everything unknown; the clocks start; the
 * clocks stop, and the samples since cell_clock_start go to window[WINDOW_SAMPLES] and, as means, to
 * c->value. */
void cell_init(struct measured_cell *c);
void cell_clock_start(struct measured_cell *c);
void cell_clock_stop(struct measured_cell *c, struct sampler_thread *sampler, struct sample *window, int *n);

/* ---------------------------------------------------------------- capsule */

/* The capsule is the provenance record of a run, taken at its start: everything needed to understand the
 * run a year later, to repeat it, and to say what changed between two runs.
 *
 * It is a JSON document of groups:
 *   machine      hardware, limits, power source (what it is)
 *   kernel, governor, microcode   how it is set up (telemetry's machine_state_to_json)
 *   library      what the program runs on: C library, OpenBLAS, GPU drivers
 *   program      version, compiler, SHA-256 of the binary that ran the cells
 *   environment  variables that change what is measured
 *   model, config   of each arm: file and hash; the line and every key as it was resolved
 * The specification is in the run's own row, and raw samples are in its cells. Unknown is null. */

struct capsule_arm {
    const char *line;                             /* the config line as given */
    const struct config *resolved;                /* as the worker merged it; NULL unknown */
    const char *model_path, *model_name, *sha256; /* "" unknown */
    const json_t *engine; /* of another engine: build, command, hash of the program; NULL: qdyno's own */
    /* What its process answered when it opened: run_begin stores it with the model, and takes sha256 and
     * resolved from it. NULL: nothing is known. */
    const json_t *description;
};
struct capsule_of {
    const struct machine *machine;
    const char *root;    /* where machine settings are read: "" for this machine */
    const char *program; /* the worker's binary; NULL: this program's own */
    const struct capsule_arm *arm;
    int arms;
};
/* Fingerprint of the compiled kernels: equal texts mean equal machine code (kernels/build_id.cmake). */
extern const char KERNELS_BUILD[];
json_t *capsule_take(const struct capsule_of *of); /* schema "qdyno.capsule/1"; new reference */
enum err_code capsule_store(struct db *d, int64_t run_id, const struct capsule_of *of, struct err *why);
/* *out: new reference; NULL when the run has none (older than capsules). ERR_FORMAT when it is damaged. */
enum err_code capsule_load(json_t **out, struct db *d, int64_t run_id, struct err *why);
/* The same, but a damaged capsule is none: *out is NULL. Errors: those of the database, ERR_NOMEM. */
enum err_code capsule_find(json_t **out, struct db *d, int64_t run_id, struct err *why);

/* The model { name, path, sha256 } of the arm with that config line; NULL: there is none. Borrowed. */
const json_t *capsule_model(const json_t *capsule, const char *line);

/* The differences of two capsules: an array of { group, key, before, after } in the order of the groups
 * above; keys of arms look like "A.threads"; null is unknown. With `line` not NULL, only the arm with that
 * config line is compared in the groups model and config, and with "" none. Empty when either capsule is
 * NULL. New reference. */
json_t *capsule_diff(const json_t *before, const json_t *after, const char *line);
/* Append one difference, "kernel.release 6.1.0 -> 6.9.1", or only its values, "6.1.0 -> 6.9.1". */
void capsule_change_text(struct str *out, const json_t *change);
void capsule_values_text(struct str *out, const json_t *change);

/* ---------------------------------------------------------------- phases */

/* What the stored cells of a phase (cell_row.phase) are for. */
enum phase_use {
    PHASE_SPEED = 1,      /* figures of speed are computed from them */
    PHASE_RESULT = 2,     /* the run's results are computed from them: of speed or of quality */
    PHASE_CONDITIONS = 4, /* what the sensors read during them describes the conditions of the run */
    PHASE_CONFIG = 8      /* a config computes them: neither warm-up nor canary */
};
/* A phase that is not in the table, of another version of the program, is for nothing. */
bool cell_phase_is(const char *phase, enum phase_use use);

/* ---------------------------------------------------------------- canary */

/* The canary is a fixed reference workload, measured at the start and at the end of every run.
 *
 * Whatever changes a machine from one week to the next (clocks, microcode, other programs on the same host)
 * changes the canary as well. Dividing a rate by it leaves the changes that the program and the model caused.
 * It reads 64 MiB repeatedly and multiplies from registers, on qdyno's default number of threads, for a
 * quarter of a second together. It does not measure the machine's bandwidth: a cache may hold 64 MiB. */

#define CANARY_PHASE "canary" /* of its cells: arm and block -1, slot 0 at the start, 1 at the end */

struct canary {
    double read_bytes_s, ops_s; /* NAN: not measured */
    char work[96];              /* description of the work; only equal works may be compared */
    double seconds;
};
void canary_measure(struct canary *out);
/* Makes *best the faster of the two, figure by figure: what disturbed the other was no change of the machine.
 * One without `work` was not measured. */
void canary_best(struct canary *best, const struct canary *c);

enum canary_when { CANARY_START, CANARY_END };
enum err_code canary_store(struct db *d, int64_t run_id, enum canary_when when, const struct canary *c,
                           struct err *why);

/* The canary metric that a metric of cells is divided by to be comparable over time. *sign: +1 where the
 * metric grows with the canary (rates), -1 where it falls (times). METRIC_COUNT: none (bytes, perplexity). */
enum metric_id canary_of(enum metric_id metric, int *sign);

/* ---------------------------------------------------------------- requests */

/* Totals and histograms over all requests that were ever measured, for the scrape page.
 *
 * Each cell stores how long its requests took (db/request.c). They are counted here by model and workload. A
 * scrape reads only cells that are new since the last one. Cells from before requests were stored are not
 * counted. */

/* One answer of a worker to "cell" as a request: model, workload and sequences into *rows (they are the same
 * for all of a cell), figures into *f. False: it was none (evaluation, training). */
bool request_read(struct request_rows *rows, struct request_figures *f, const json_t *answer);

/* The times of one sequence of a request, in seconds; NAN: it had no such part. sequences: how many of the
 * cell ran side by side. in_load: the first token comes from the prefill, so there is one gap less than
 * tokens. */
struct request_parts_s {
    double ttft_s, tpot_s, duration_s, prefill_s, decode_s;
};
struct request_parts_s request_parts_s(const struct request_figures *f, int sequences, bool in_load);

/* Series beyond so many, in order of appearance, are counted together as model "other", workload "other": a
 * page stays readable, sums stay right. */
enum { REQUEST_SERIES = 32, REQUEST_HISTOGRAMS = 6 };
struct request_series {
    char model[128], workload[576];
    double prompt_tokens, prompt_seconds, generated_tokens, generate_seconds;
    struct histogram_counts histogram[REQUEST_HISTOGRAMS];
};
struct request_totals {
    int64_t last_cell; /* all up to it are counted */
    int n;
    struct request_series series[REQUEST_SERIES + 1]; /* large: on the heap */
};
/* Count what came since the last call. Errors: those of reading; what was counted until then stays. */
enum err_code request_totals_update(struct request_totals *t, struct db *d, struct err *why);
/* One cell's. */
void request_totals_add(struct request_totals *t, const struct cell_requests *c);
void request_totals_tell(const struct request_totals *t, const struct family_sink *to);

/* ---------------------------------------------------------------- contamination */

/* What the rules ask of a cell beside its samples. */
struct contamination_of {
    double major_faults;      /* of its process; NAN unknown */
    double control_frequency; /* hertz, median of the control cells; NAN unknown */
    bool on_gpu;
};
/* Why a window of samples disqualifies a cell: "" when it does not. The rules are those of CONTAMINATION
 * (contamination.c). */
const char *contamination_reason(const struct sample *samples, int n, const struct contamination_of *of,
                                 char *buf, size_t size);

/* The value of a sensor from which on its rule holds; NAN: no rule limits it. */
double contamination_limit(enum metric_id metric);
/* What the rule of a sensor says: "a processor slowed down for heat"; NULL: there is no rule. Static. */
const char *contamination_text(enum metric_id metric);

/* Which other programs use the processors, as the end of a message: ". The processors are used by cc1 40 %";
 * "" when no program stands out. Sleeps for a third of a second. Returns buf. */
enum { RUN_BUSIEST = 200 };
const char *run_busiest(char buf[RUN_BUSIEST]);

/* What disturbed the machine in the last second, as contamination_reason says; "" nothing, or no samples.
 * Returns buf. */
const char *run_disturbance(struct sampler_thread *sampler, char *buf, size_t size);

/* Waits until nothing has disturbed the machine for a second (the same rules), at most `most_s`. `waiting` is
 * called every quarter of a second while something does, with what it is; returning false ends the wait.
 * True: the machine is quiet. */
typedef bool run_wait_fn(void *ctx, const char *reason, double waited_s);
bool run_wait_quiet(struct sampler_thread *sampler, double most_s, run_wait_fn *waiting, void *ctx);

/* ---------------------------------------------------------------- tally */

/* Totals over the repetitions of one config on one workload, as `bench`, `watch` and `govern` make them. */
enum { TALLY_RATES = 64 };
struct tally_totals {
    int n;                                            /* repetitions */
    double prefill[TALLY_RATES], decode[TALLY_RATES]; /* tokens/s of the first ones; NAN: none */
    double prompt_tokens, prefill_s, gen_tokens, decode_s, ttft_s, energy_j, energy_half_j, co2_g;
    double server_prefill_s, server_decode_s, chunk_gap_s; /* of other engines; NAN: none */
    double decode_experts;                                 /* sum over repetitions; NAN: no experts */
    double load[METRIC_LOAD_LAST - METRIC_LOAD_FIRST +
                1];                                /* sums of the figures of loads; NAN: unknown in one */
    double ttft_half_s, tpot_half_s, goodput_half; /* sums of half widths of intervals */
    double fill_s, filled_tokens;                  /* filling the cache up to the depth; in no other figure */
    int warmup, steady; /* sum of requests of warm-up; repetitions with a steady state */
    char unsteady[160]; /* why the last one without it had none */
    char failed[240];   /* over HTTP: why the last request that failed first did */
    double peak_bytes;  /* largest; 0 unknown */
};
struct cell_tally {
    struct tally_totals all;
    struct tally_totals undisturbed; /* only these correct the prediction model */
    float *itl;                      /* owned: seconds between tokens, of all repetitions */
    int n_itl, room_itl;
};
/* A cell counts as undisturbed when c->disturbed is empty. ERR_NOMEM. */
enum err_code tally_add(struct cell_tally *t, const struct measured_cell *c, struct err *why);
void tally_free(struct cell_tally *t);
/* By enum metric_id, over all repetitions: rates are total tokens over total seconds, latencies are pooled,
 * times and energy are means, memory is the largest. NAN: not measured. Sorts t->itl. */
void tally_values(struct cell_tally *t, double value[METRIC_COUNT]);
int tally_rates(const struct tally_totals *s); /* how many of the rates are in the arrays */
double tally_prefill_rate(const struct tally_totals *s);
double tally_decode_rate(const struct tally_totals *s);
/* The cost of a decode step of `sequences` sequences: the time that all take for one token each, divided by
 * that of one sequence in the same repetition (`one`). The median over the repetitions, because other
 * programs slow down single ones. *sd: standard deviation over them. NAN: not measured. */
double tally_row_cost(const struct tally_totals *t, const struct tally_totals *one, int sequences,
                      double *sd);
/* Standard error of the logarithm of the mean of rates[n]; 0 for fewer than two, which say nothing of it. */
double rates_noise(const double *rates, int n);

/* ---------------------------------------------------------------- a run */

/* Everything that measures goes through these calls, so that every run leaves the same behind: its row, a
 * provenance record (the capsule), a canary at both ends, and for each cell in one transaction the
 * measurements, the samples of all sensors, the token latencies, the spans and the machine's conditions.
 *
 *   run_begin           row, machine, models, capsule, first canary
 *   run_arm_opened      a process has loaded its config: model, capsule, how long loading took
 *   run_cell            measures a cell in an arm's process and stores it
 *   run_measure_begin, _end, run_store   the same for what this process measures itself
 *   run_residuals       what a prediction missed by
 *   run_finish          last canary, state, verdict, outcome
 *   run_close           frees; fine after any failure, and for a zeroed struct run
 *
 * Not thread-safe: one thread per run. */
struct run_spec {
    const char *kind;             /* "ab" "bench" "profile" "eval" "task" "tune" "watch" "govern" */
    const char *workload, *label; /* label: the configs, for lists of runs */
    const char *metric;           /* NULL: none is compared */
    const char *spec_json;        /* what is needed to resume or replay the run; NULL */
    uint64_t seed;
    int64_t resume_id;                       /* 0: a new run; else its row and capsule are kept */
    bool has_canary;                         /* measure it in run_begin and run_finish */
    const struct machine *machine;           /* borrowed until run_close */
    const struct machine_ceilings *ceilings; /* likewise; NULL unknown: no conditions and no residuals */
    struct sampler_thread *sampler;          /* likewise; NULL: no sensors */
    const char *root, *program;              /* likewise; as in struct capsule_of; root NULL: "" */
    const struct run_labels *labels;         /* of the new run; NULL: none. Borrowed by run_begin */
    struct db *holder; /* whose handle holds the run (db_run_lock); NULL: the one that stores it */
    const struct capsule_arm *arm; /* [arms], at least one */
    int arms;
};
struct run {
    struct db *db;      /* borrowed */
    struct run_row row; /* row.id 0: it has no row yet */
    const struct machine *machine;
    const struct machine_ceilings *ceilings;
    struct sampler_thread *sampler;
    const char *root, *program;
    bool has_canary;
    struct canary canary[2]; /* by enum canary_when; NAN until measured */
    struct run_arm *arm;     /* owned: [arms] */
    int arms;
    struct conditions_probe conditions;
    struct sample *window; /* owned: [WINDOW_SAMPLES], of the last cell */
    int samples;           /* in it */
    struct sample_row *stored;
    struct str prompt_notes; /* owned: run_prompt_note of its cells, each once and in a line */
};

/* *r needs run_close also after an error. With row.id set it needs run_finish, too. Errors: ERR_NOMEM; as
 * db_*; ERR_USAGE when another process measures the run that is to be resumed. */
enum err_code run_begin(struct run *r, struct db *db, const struct run_spec *s, struct err *why);
/* `load`: from the start of the process to its answer; its description NULL: it failed. */
enum err_code run_arm_opened(struct run *r, int arm, const struct span_load *load, struct err *why);

/* Where a cell belongs in its run. */
struct run_place {
    int arm, block, slot; /* block -1: outside blocks */
    const char *phase;    /* "warmup" "block" "bench" "quality" ... */
    const char *config;   /* its line */
    const json_t *echo;   /* stored beside the cell (run_echo_text); NULL: the worker's answer */
};
enum run_contamination {
    CONTAMINATION_IGNORED,  /* warm-up: nothing depends on it */
    CONTAMINATION_NOTED,    /* c->disturbed says why, and the cell counts */
    CONTAMINATION_DISCARDS, /* and the cell is marked: whether it counts depends on what is estimated */
};
struct run_cell {
    struct arm *arm;
    const char *workload;
    int repeats; /* of the workload without a break, 1 to CELL_REPEATS_MAX; 0: 1 */
    uint64_t seed;
    arm_event_fn *event;
    void *ctx;
    enum run_contamination contamination;
    double control_frequency; /* hertz: a clock well below it disturbs; NAN: unknown */
    bool sample_conditions;   /* 40 ms of probing after the cell */
    bool sequence_rates;      /* measure METRIC_TOTAL_RATE and METRIC_SEQUENCE_RATE as well */
    struct run_place place;
};
/* Measures and stores. A cell whose arm fails is stored with the reason, and the call succeeds:
 * c->failure.code says so. cell_done in any case. Errors: ERR_CANCELLED, with nothing stored; as db_*. */
enum err_code run_cell(struct run *r, const struct run_cell *what, struct measured_cell *c, struct err *why);
/* The same for one cell of each of `n` arms at the same time, in turns (cells_take_in_turns), each compared
 * with cell `reference` by the turns of prefill or decode (turn_log_ratio). The cells are stored in the order
 * of `what`, also when an arm failed, but not those that were cancelled for that reason (c[i].failure.code).
 */
struct run_turns {
    struct turn_length length;
    int reference;
    bool prefill;
};
enum err_code run_cells_in_turns(struct run *r, const struct run_cell *what, int n,
                                 const struct run_turns *turns, struct measured_cell *c, struct err *why);
/* Measures and stores nothing: to warm up (caches fill, pages are mapped, c->seconds says how long the work
 * takes), or where the caller stores the cell (run_store). Errors: as arm_cell. */
enum err_code run_measure_cell(struct run *r, const struct run_cell *what, struct measured_cell *c,
                               struct err *why);

/* Around work that this process or one of its own (pid) does: *c is emptied, then filled with times and
 * samples. The caller adds its values, and stores. */
void run_measure_begin(struct run *r, struct measured_cell *c, int pid);
void run_measure_end(struct run *r, struct measured_cell *c);
enum err_code run_store(struct run *r, const struct run_place *p, const struct measured_cell *c,
                        struct err *why);
/* A document for a text column of `size` bytes: whole if it fits, else without the members that take most
 * room, and never cut in the middle. */
void run_echo_text(char *buf, size_t size, const json_t *document);

/* What a reader must know of the prompts of a cell, from its answer: where the user's own come from, and
 * whether text repeats in them. "": nothing. Returns buf. */
enum { RUN_PROMPT_NOTE = 512 };
#define RUN_PROMPT_EVENT "prompts" /* kind of the event that stores it */
const char *run_prompt_note(char *buf, size_t size, const json_t *answer);
/* Add it to the notes of the run, and to its events, unless it is there. */
void run_note_prompts(struct run *r, const json_t *answer);

/* One config on one workload, after its repetitions. */
struct run_timing {
    const char *model; /* path */
    const struct config *config;
    const struct workload *workload;
    const struct cell_tally *tally;
    const json_t *description; /* of its process */
};
/* Predicts `t` without past runs: limits, threads and work. With repetitions in t->tally, the limits are
 * those of the experts that the routers really chose. False when the machine's ceilings are unknown or the
 * model cannot be read. */
bool run_predict(const struct run *r, const struct run_timing *t, struct prediction *out);
/* The machine's conditions (predict.h) are probed from now on, by as many threads as do that work: t->tally
 * is not read. Nothing is probed for training and evaluation, and where run_predict says nothing. Errors: as
 * conditions_probe_open; the run can go on without. */
enum err_code run_conditions_open(struct run *r, const struct run_timing *t, struct err *why);
void run_conditions_sample(struct run *r, int pid);    /* 40 ms, while nothing of ours works */
struct conditions run_conditions(const struct run *r); /* of all samples since run_conditions_open */
/* Stores by how much the prediction missed what was measured, for the correction model. Stores nothing when
 * more than half of the repetitions were disturbed, QDYNO_ISA hides instructions of this machine, or
 * run_predict predicts nothing. */
enum err_code run_residuals(struct run *r, const struct run_timing *t, struct err *why);

enum err_code run_canary(struct run *r, enum canary_when when, struct err *why);

struct run_outcome {
    const char *state;      /* "done" "stopped" "failed" */
    const char *verdict;    /* NULL: none */
    double effect_ratio;    /* NAN: none */
    const json_t *document; /* NULL: none */
};
/* Nothing when the run has no row. The state is stored even when the canary cannot be. */
enum err_code run_finish(struct run *r, const struct run_outcome *o, struct err *why);
void run_close(struct run *r);

#endif
