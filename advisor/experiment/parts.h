/* advisor/experiment/parts.h - what the files of one running experiment share. Private to
 * advisor/experiment/.
 *
 * README.md lists the files. struct experiment is divided by who writes: other threads read only `shared`. */
#ifndef QDYNO_ADVISOR_EXPERIMENT_PARTS_H
#define QDYNO_ADVISOR_EXPERIMENT_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "advisor/experiment/experiment.h"
#include "advisor/run/run.h"

enum { BLOCK_CELLS = 2 * EXPERIMENT_ARMS }; /* at most */
enum { TWIN = EXPERIMENT_ARMS };            /* the process of a second A */

/* ---------------------------------------------------------------- plan.c */

enum cell_phase { CELL_WARMUP, CELL_CONTROL, CELL_BLOCK, CELL_CONFIRM, CELL_PHASES_COUNT };
extern const char *const CELL_PHASES[]; /* as in the database */

/* Appends a block; a full series stays as it is. */
void series_add(struct block_series *s, double d, double load, bool disturbed);
/* The block effects that count for an estimand, in d[EXPERIMENT_BLOCKS]: those of undisturbed blocks, or all,
 * adjusted for load with coefficients from `control` (NULL: none) and earlier blocks. Returns their number.
 */
int series_select(const struct block_series *s, const struct block_series *control, enum estimand e,
                  double d[EXPERIMENT_BLOCKS]);
/* Which estimand to use from now on; depends on the disturbances and the budget, never on an effect. */
enum estimand estimand_choose(const struct experiment_state *s);
/* Uses the estimand: selects the blocks of all comparisons and of the control. */
void estimand_use(struct experiment_state *s, enum estimand e);
/* ---------------------------------------------------------------- evidence.c (pure) */

/* The share of the stake on ESTIMAND_LOADED: that of disturbed blocks in the control, by Laplace's rule of
 * succession. It is known before the comparison begins and does not change. */
double evidence_share_loaded(const struct experiment_state *s);
/* evidence_interval of the differences between the effects of two challengers, block by block. */
struct interval evidence_between(const struct comparison *c, const struct comparison *leader,
                                 double confidence);
struct effects;
/* evidence_interval of another metric of the comparison, in the blocks that have a value of it. */
struct interval evidence_of_values(const struct comparison *c, const struct effects *e, int metric,
                                   double confidence);

/* The number of blocks that the budget allows, those that were measured included. */
int estimand_most_blocks(const struct experiment_state *s);

/* The order in which `arms` run in a block: a random permutation that depends on seed, phase and block number
 * only, followed by its reverse, so that a linear drift cancels between any two arms. place[slot] is in
 * 0..arms-1, for 2 * arms slots; two arms give ABBA or BAAB. */
void block_order(uint64_t seed, enum cell_phase phase, int block, int arms, int place[BLOCK_CELLS]);
/* The effect of a block of `cells` cells: the mean log value of the cells at place k minus that of place 0,
 * positive when k is better. NAN when a value is not a positive number. */
double block_effect(const double value[BLOCK_CELLS], const int place[BLOCK_CELLS], int cells, int k,
                    int better);
/* Fills arm[] with the arms that still run in this phase, ascending, A first, and returns their number. */
int arms_live(const struct experiment_state *s, enum cell_phase phase, int arm[EXPERIMENT_ARMS]);
/* The number of blocks, within the bounds of the specification, with which an effect of the size of the
 * margin is found with 80 % power when block effects have standard deviation sd. */
int plan_blocks(const struct experiment_spec *s, double sd);
/* The number of control blocks to keep: doubled once when the first interval excludes 0. */
int control_wanted(const struct experiment_state *s);

/* ---------------------------------------------------------------- judge.c (pure) */

void judge_control(struct experiment_state *s);          /* control, noise_floor, control_failed */
void judge_numbers(struct experiment_state *s);          /* intervals, e-values, mde; no verdict */
void judge_companions(struct experiment_state *s);       /* companions of the verdict, when the run ends */
bool judge_is_decided(const struct experiment_state *s); /* no comparison is inconclusive */
/* Drops every arm that is certainly worse than the leader of a race. True when the race is over. */
bool judge_race(struct experiment_state *s);
/* The compared metric is the same every time (perplexity): it is computed once, without blocks. */
bool experiment_is_exact(const struct experiment_spec *s);

/* ---------------------------------------------------------------- totals over cells (totals.c, means.c)
 */

/* Where a cell belongs in the run. */
struct cell_place {
    int arm, process, block, slot; /* block -1: outside blocks */
    enum cell_phase phase;
    bool last; /* of its block: the machine's conditions are sampled after it */
};

/* For each metric of cells and each kept block: log ratio to A, or the log mean of an arm. NAN unknown. */
struct effects {
    int blocks;
    bool disturbed[EXPERIMENT_BLOCKS];
    double d[CELL_METRICS][EXPERIMENT_BLOCKS];
};
/* Sums over the kept cells of one arm in one phase. */
struct phase_totals {
    int cells;
    double log_sum[CELL_METRICS];
    int n[CELL_METRICS];
    double sum[CELL_METRICS]; /* of known values, also of 0 */
    int known[CELL_METRICS];
    double peak_bytes; /* largest; NAN unknown */
    float *itl;        /* owned: [n_itl] seconds between tokens */
    int n_itl, cap_itl;
};
struct run_totals {
    /* of undisturbed blocks, and of all */
    struct phase_totals arm[ESTIMANDS_COUNT][EXPERIMENT_ARMS][CELL_PHASES_COUNT];
    struct load_sum {
        double sum[3];
        int n[3];
    } load[ESTIMANDS_COUNT];
    double switch_s, switch_tokens; /* first tokens after a change of turns */
    double turn_s, turn_tokens;     /* and the other tokens of these cells */
    double blocks_s;                /* wall-clock time of complete blocks of any phase */
    int timed_blocks;
    struct effects effects[EXPERIMENT_ARMS]; /* log ratios to A; [0]: of the confirmation */
    struct effects means[EXPERIMENT_ARMS];   /* log means of the arm's own cells */
    int next_block[CELL_PHASES_COUNT];       /* number of the next block; numbers are never reused */
    double frequency[EXPERIMENT_BLOCKS];     /* hertz, of control cells */
    int n_frequency;
    double cell_seconds;                 /* of all cells of the run, without waiting for turns */
    int cells;                           /* number of these */
    char work_hash[EXPERIMENT_ARMS][24]; /* of the first cell of a workload and file; "" before */
};
/* The first arm with the workload and the model file of this one. */
int work_of_arm(const struct experiment_spec *s, int arm);
/* Did arms with the same workload get different prompts? hash: work_hash of struct run_totals. */
bool works_differ(const struct experiment_spec *s, const char (*hash)[24]);
/* Do its cells measure METRIC_TOTAL_RATE and METRIC_SEQUENCE_RATE? */
bool spec_has_sequence_rates(const struct experiment_spec *s);
/* The metric that is compared when the specification names none. */
const struct metric *workloads_default_metric(const struct experiment_spec *s);
/* ERR_USAGE for workloads of arms, or a metric or gate of theirs, that cannot be compared. */
enum err_code workloads_check(const struct experiment_spec *s, struct err *why);
void totals_free(struct run_totals *l);
/* A warm-up cell: it counts for both estimands. */
void totals_add_cell(struct run_totals *l, int arm, enum cell_phase phase, const double value[METRIC_COUNT],
                     const float *itl, int n_itl);
/* The cells of a complete block, two of each arm or, in turns, one. Cell i belongs to arm[place[i]]. */
struct block_values {
    enum cell_phase phase;
    bool disturbed;
    int cells;
    double others[BLOCK_CELLS];     /* other runnable tasks beside each cell; NAN unknown */
    double turn_ratio[BLOCK_CELLS]; /* measured_cell.turn_log_ratio */
    int arms, arm[EXPERIMENT_ARMS], place[BLOCK_CELLS];
    const double *value[BLOCK_CELLS]; /* [METRIC_COUNT] */
    const float *itl[BLOCK_CELLS];
    int n_itl[BLOCK_CELLS];
};
/* Adds the block's effects to the comparisons of the state and its cells to the totals. False, with nothing
 * added, when a cell has no value of the compared metric. */
bool totals_add_block(struct run_totals *l, struct experiment_state *s, const struct block_values *b);
/* Fills the arms' figures in the state. */
void totals_summarize(const struct run_totals *l, struct experiment_state *s);
/* Adds the log means of a block's arms; and the intervals that these give. */
void means_keep(struct run_totals *l, const struct block_values *b);
void means_bounds(const struct effects *e, enum estimand use, struct interval mean[CELL_METRICS]);
/* The values of one metric in the blocks of an estimand, without unknown ones. Returns their number. */
int effects_select(const struct effects *e, enum estimand use, int metric, double d[EXPERIMENT_BLOCKS]);

/* ---------------------------------------------------------------- the database (store.c) */

/* Reasons in the database of blocks that were cut short, not disturbed. */
extern const char BLOCK_INTERRUPTED[], BLOCK_PAUSED[], BLOCK_CHANGED[];
enum { INCOMPLETE_REASONS = 3 };
extern const char *const BLOCKS_INCOMPLETE[INCOMPLETE_REASONS]; /* these three */
void state_init(struct experiment_state *s, const struct experiment_spec *spec);
/* Appends an event; the oldest is dropped when there is no room. */
void state_event(struct experiment_state *s, int64_t unix_ms, const char *kind, const char *text);
/* Build, command and program of another engine; null for qdyno's own. New reference. */
json_t *experiment_engine(const struct experiment_arm *a);

/* Appends "; other programs used 81 % of the CPU time ... (most: cc1 40 %)". others: their share of the CPU
 * time; NAN: unknown. */
void others_put(struct str *s, const struct experiment_state *x, double others);
/* Fills the arm from the answer with which its process opened. */
void arm_describe(struct experiment_arm *a, const json_t *description);
/* Rebuilds state and totals from the cells in the database. Blocks that a kill interrupted are left out, and
 * with `discard_open` (for resuming) also marked as discarded. */
enum err_code state_rebuild(struct experiment_state *s, struct run_totals *l, struct db *d, int64_t run_id,
                            bool discard_open, struct err *why);
/* The document stored beside a cell: how often it repeated the workload (in turns with others: turns_repeats;
 * 0: alone), and the answer `description` with which its process opened (NULL: not with this cell). New
 * reference. */
json_t *cell_echo(const struct experiment_state *s, int turns_repeats, const json_t *description);
/* Stores by how much the predictions for each arm missed what the run measured. Nothing for a run that did
 * not finish, evaluates or trains. */
enum err_code experiment_residuals(struct experiment *x, struct err *why);
/* False where most blocks of the arm were disturbed: its rates are those of the load beside it, and would
 * make later predictions wrong (`bench` leaves such runs out, too). Pure. */
bool experiment_arm_teaches(const struct experiment_state *s, int arm);

/* ---------------------------------------------------------------- the running experiment */

/* How long a process lives: the whole run, a block, or one cell (where memory holds one arm at a time). */
enum lifetime { LIFETIME_RUN, LIFETIME_BLOCK, LIFETIME_CELL };

struct experiment {
    /* Shared with other threads. The experiment's thread is the only writer of the state. */
    pthread_t thread;
    bool joinable;
    pthread_mutex_t lock; /* guards state, version, finished */
    pthread_cond_t changed;
    int64_t version;
    bool finished;
    struct experiment_state state;
    atomic_bool stop, pause; /* requests */
    struct {                 /* a change of the running load that was requested: under the lock */
        bool wanted;
        double rate_by;
        char settings[LIVE_SETTINGS];
    } change;

    /* Set before the thread starts, then constant. */
    char *program;
    struct sampler_thread *sampler;
    struct machine machine;
    struct log log;
    struct run_labels labels;

    /* Of the experiment's thread alone. */
    struct db *db;
    struct run run;                   /* row.id 0 until the arms are loaded */
    size_t prompt_notes_told;         /* bytes of run.prompt_notes that are events of the state */
    struct machine_ceilings ceilings; /* of this machine; zeros when it was never probed */
    struct run_totals totals;         /* large */
    struct err why;                   /* of FLOW_BROKEN and FLOW_ARM */
    bool race_over;
    bool changed_by_hand; /* the load, in the block that runs */
    struct {              /* written by process.c */
        /* one per arm; in a control of new processes: A and A again. [TWIN]: A again, in a control with kept
         * processes that runs in turns */
        struct arm *process[EXPERIMENT_ARMS + 1];
        enum lifetime lifetime;
        bool noted[EXPERIMENT_ARMS];     /* the notes of its engine are in the log */
        double start_s[EXPERIMENT_ARMS]; /* duration of the last start of each arm */
    } pool;
    struct {                    /* written by store.c and cell.c */
        struct span_row *early; /* [n_early] spans from before the run had a row */
        int n_early;
        struct cell_place at; /* the cell that spans belong to now */
    } spans;
    struct {                         /* written by experiment.c */
        int64_t begun_ns, paused_ns; /* start; sum of finished pauses */
        double blocks_begun_s;       /* on the clock of experiment_elapsed */
        int64_t shown_ns;            /* last update of the running cell in the state */
        bool last_disturbed;         /* the last block */
    } clock;
    struct {                    /* written by budget.c */
        bool announced;         /* that the budget cannot be kept */
        bool ends_early;        /* filling the caches takes longer than the budget: no block is measured */
        double quality_s;       /* that measuring quality takes; NAN: unknown */
        double on_top_s;        /* of it, what begins when the budget is used up */
        double quality_begun_s; /* on the clock of experiment_elapsed */
    } budget;
    struct {
        double sampler_sum, seconds; /* cost of the sampler, weighted by cell seconds */
    } cost;
};

void *experiment_thread(void *arg); /* the experiment; for pthread_create */

/* How a step ended. */
enum flow {
    FLOW_CONTINUE,
    FLOW_PAUSED,  /* there was a pause; a block that it interrupted does not count */
    FLOW_STOPPED, /* a stop was requested */
    FLOW_ARM,     /* an arm failed: state.arm[].failed */
    FLOW_INVALID, /* the arms cannot be compared: state.reason */
    FLOW_BROKEN   /* the program itself failed: x->why */
};

/* The state is changed between these two calls: the first takes the lock, the second wakes waiting threads.
 */
struct experiment_state *state_edit(struct experiment *x);
void state_done(struct experiment *x);
/* Adds an event to the state, the database and the log. */
void experiment_log_event(struct experiment *x, const char *kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Stores spans of an arm: at once, or with the run's row if it has none yet. Errors are ignored: a span that
 * cannot be stored is no reason to lose the measurement. */
void experiment_spans(struct experiment *x, int arm, struct span_row *rows, int n);
void experiment_spans_early(struct experiment *x); /* those that waited for the row */

/* Between two cells: waits while a pause is requested. FLOW_CONTINUE: there was none. */
enum flow experiment_wait_while_paused(struct experiment *x);
/* The callback of arms: updates the state, and cancels the request when a stop is requested. experiment_event
 * is for the running arm and has the experiment as its ctx; where arms take turns, each has a struct
 * arm_events. */
struct arm_events {
    struct experiment *x;
    int arm;
};
bool experiment_event(void *ctx, const json_t *event);
bool experiment_arm_event(void *ctx, const json_t *event);
/* Starts one process per arm and sets the lifetime to what memory allows. */
enum flow processes_load(struct experiment *x);
/* After warm-up: sets the lifetime by the specification and the cost of starting. */
void processes_plan(struct experiment *x);
/* Makes sure that the arm's process runs. FLOW_ARM: x->why says why it does not. */
enum flow process_start(struct experiment *x, int process, int arm);
/* Whether memory has room for one more process of A beside those that run. */
bool twin_fits(const struct experiment *x);
void process_end(struct experiment *x, int process);
/* The same, and lets it run the workload once, untimed. */
enum flow process_prepare(struct experiment *x, int process, int arm);
void processes_end(struct experiment *x);
/* Records the failure of an arm. FLOW_ARM, or FLOW_STOPPED when it was cancelled. */
enum flow arm_fail(struct experiment *x, int arm, const struct err *why);
/* One warm-up cell: its duration and its value of the compared metric. */
enum flow cell_warm_up(struct experiment *x, int arm, double *seconds, double *value);
enum flow block_run(struct experiment *x, enum cell_phase phase);
/* The cells of a block in turns, one of each arm (turns.c). As the loop over cells in block_run. */
bool block_runs_in_turns(const struct experiment *x, enum cell_phase phase);
enum flow block_in_turns(struct experiment *x, struct block_values *b, int block,
                         struct measured_cell cell[BLOCK_CELLS]);
/* What a measured cell says about the run: cost, totals, failure, equal work. */
enum flow cell_account(struct experiment *x, int arm, struct measured_cell *c);
double experiment_elapsed(const struct experiment *x); /* seconds without pauses */
/* Before the first block: waits for a quiet machine as long as the specification says; this time does not
 * count against the budget. */
enum flow experiment_wait_until_quiet(struct experiment *x);
/* The first block runs in turns where something disturbs the machine already, as blocks after a disturbed one
 * do: in whole cells its effect would be that of the load, and it would stay in the noise floor. */
void experiment_look_for_load(struct experiment *x);

/* ---------------------------------------------------------------- next_step.c */

/* Appends "next: qdyno ..." for the arm; nothing where the run was not stored. */
void experiment_put_command(struct str *s, const struct experiment_state *x, int arm);

/* ---------------------------------------------------------------- forecast.c */

/* What measuring quality takes: token_s for each token of the text, and fixed_s for loading and the greedy
 * texts. */
struct quality_time {
    double fixed_s, token_s;
};
/* On how much text quality is measured. */
struct quality_size {
    int ctx, windows; /* tokens of a window; windows -1: unknown, because the text cannot be read */
};
/* Adds the time for the quality of b against a. Begin with {0}. */
void forecast_quality_add(struct quality_time *q, const struct arm_time *a, const struct arm_time *b);
void forecast_put_time(struct str *s, double seconds); /* "70 s", "5 min", "1.5 h" */
/* The least number of blocks of a verdict on one arm, without the control. */
int forecast_fewest_blocks(const struct experiment_spec *s);
/* The size that the specification asks for. */
struct quality_size forecast_quality_size(const struct experiment_spec *s);
/* Seconds for that; NAN: unknown. Where the specification allows less text, *size becomes smaller until it
 * takes at most half of left_s: fewer windows (quality_least), then shorter ones (quality_ctx_least). */
double forecast_quality_fit(struct quality_size *size, const struct quality_time *q,
                            const struct experiment_spec *s, double left_s);
/* The forecast where these times are known; `before_s`: loading and warming up. The specification is
 * resolved. */
void forecast_of(struct experiment_forecast *f, const struct experiment_spec *s, double before_s,
                 double block_s, double quality_s);

/* Hashes of the model files of a specification, each read once however many arms have it. Begin with {
 * .read = measured_model_identity }. */
struct arm_identities {
    enum err_code (*read)(char sha256[HASH_HEX], struct db *d, const char *model_path, struct err *why);
    int n;
    const char *path[EXPERIMENT_ARMS]; /* of the specification */
    char sha256[EXPERIMENT_ARMS][HASH_HEX];
};
/* That of an arm's model; "": unknown, or no run measured it. At most EXPERIMENT_ARMS different arms. */
const char *forecast_identity(struct arm_identities *k, const struct experiment_spec *s, int arm,
                              struct db *d);

/* Seconds that one further block takes which counts: undisturbed ones come only as often as they did. NAN: no
 * block was timed, or none counted. */
double experiment_counted_block_s(const struct experiment_state *s);
/* "12m": seconds as --budget takes them, rounded up. */
void forecast_budget(char buf[FORECAST_BUDGET], double seconds);

/* Seconds of the budget that blocks may still use; at most 0: none. */
double experiment_budget_left(const struct experiment *x);
/* Whether no further block fits into the budget, which is kept within a tenth. */
bool experiment_block_is_too_late(const struct experiment *x);
/* Updates when the run ends at the latest: after blocks, and while quality is measured. */
void experiment_count_down(struct experiment *x);
/* Whether the budget ends before a block, because each arm fills its cache up to a large depth first. Known
 * as soon as some arms, the first `arms_filled`, did so. Says that in the run's log, with a budget that is
 * enough. */
bool experiment_filling_is_too_long(struct experiment *x, int arms_filled);
/* After warm-up and the first canary, which took canary_s: reserves time for what follows the blocks, and
 * says when the budget cannot be kept or is too short for a claim. */
void experiment_budget_plan(struct experiment *x, double canary_s);
/* The same where nothing is timed: the budget does not apply. */
void experiment_budget_exact(struct experiment *x);
/* At the end: says when the run took more than a tenth longer than its budget, unless it said so before. */
void experiment_budget_end(struct experiment *x);
/* Measures quality for every challenger that has none yet, if the specification asks for it. Ends the arms'
 * processes. */
enum flow quality_run(struct experiment *x);
/* Reads a stored cell of quality into the state. False: the cell is none. */
bool quality_rebuild(struct experiment_state *s, const struct cell_row *c);
/* ranks.c: the ranks of each arm from its newest stored cell that has them. */
void ranks_rebuild(struct experiment_state *s, const struct cell_row *cells, int n);

#endif
