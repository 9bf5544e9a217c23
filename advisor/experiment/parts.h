/* advisor/experiment/parts.h - what the files of one experiment share. Inside advisor/ only.
 *
 *   experiment.c        the thread: load, warm up, control, compare, race, confirm, finish
 *   door.c   begin, resume, look, wait, stop
 *   process.c  the processes of the arms
 *   cell.c   one cell, one block
 *   plan.c   the spec, the order of blocks, how many
 *   judge.c  numbers and verdict (pure)
 *   store.c  the ledger of kept cells, and rebuilding it from the database
 *   json.c   the result as a document
 *   means.c  an arm's own figures, with intervals
 *   quality_run.c  quality of the challengers, after the blocks
 *   contamination.c     what disqualifies a cell */
#ifndef QDYNO_ADVISOR_EXPERIMENT_PARTS_H
#define QDYNO_ADVISOR_EXPERIMENT_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "advisor/run/run.h"
#include "advisor/experiment/experiment.h"

enum { BLOCK_CELLS = 2 * EXPERIMENT_ARMS }; /* at most */

/* ---------------------------------------------------------------- plan */

enum cell_phase { CELL_WARMUP, CELL_CONTROL, CELL_BLOCK, CELL_CONFIRM, CELL_PHASES_COUNT };
extern const char *const CELL_PHASES[]; /* as in the database */

/* The order in which `arms` run in a block: a permutation by a coin of seed, phase and number alone, then the
 * same reversed, so that a linear drift cancels between any two. place[slot] in 0..arms, 2 * arms slots; two
 * arms make ABBA or BAAB. */
void block_order(uint64_t seed, enum cell_phase phase, int block, int arms, int place[BLOCK_CELLS]);
/* Log ratio of what stands at place k to what stands at place 0, positive when k is better: the means of the
 * logs of their two cells. NAN when a value is not a positive number. */
double block_effect(const double value[BLOCK_CELLS], const int place[BLOCK_CELLS], int arms, int k,
                    int better);
/* The arms that still run, ascending, A first; their number. */
int arms_live(const struct experiment_state *s, enum cell_phase phase, int arm[EXPERIMENT_ARMS]);
/* About how many blocks a spread asks for, within the spec's bounds: an effect of the size of the margin is
 * found 4 times in 5. */
int plan_blocks(const struct experiment_spec *s, double sd);
/* Kept control blocks wanted, given those there are: doubled once when the first look excludes 0. */
int control_wanted(const struct experiment_state *s);

/* ---------------------------------------------------------------- judge */

void judge_control(struct experiment_state *s);          /* control, noise_floor, mde, control_failed */
void judge_numbers(struct experiment_state *s);          /* intervals and e-values; no verdict */
void judge_companions(struct experiment_state *s);       /* what is told beside them, at the end */
bool judge_is_decided(const struct experiment_state *s); /* nothing is left to find out */
/* Racing: leaves out every arm that is surely worse than the leader; true when the race is over. */
bool judge_race(struct experiment_state *s);
double judge_margin(const struct experiment_state *s);

/* ---------------------------------------------------------------- cells and their ledger */

/* Where a cell stands in its run, for the database. */
struct cell_place {
    int arm, process, block, slot; /* block -1: outside blocks */
    enum cell_phase phase;
    bool last; /* of its block: the machine's conditions are sampled after it, so between blocks */
};

/* Log ratios to A of every metric of cells, block by block: kept beside the state, which shows intervals. */
struct effects {
    int blocks;
    double d[CELL_METRICS][EXPERIMENT_BLOCKS]; /* NAN unknown */
};
/* Kept cells of one arm in one tier: enough for the means the state shows. */
struct totals {
    int cells;
    double log_sum[CELL_METRICS];
    int n[CELL_METRICS];
    double peak_bytes; /* largest, NAN */
    float *itl;
    int n_itl, cap_itl;
};
struct ledger {
    struct totals arm[EXPERIMENT_ARMS][CELL_PHASES_COUNT];
    struct effects effects[EXPERIMENT_ARMS]; /* [0]: the confirmation's */
    struct effects means[EXPERIMENT_ARMS];   /* d: log means of the arm's own cells */
    int next_block[CELL_PHASES_COUNT];   /* number of the next block of a phase: numbers are never reused */
    double frequency[EXPERIMENT_BLOCKS]; /* of control cells */
    int n_frequency;
    double cell_seconds; /* time spent so far, by all cells of the run; and their number */
    int cells;
    char work_hash[24]; /* "" until the first cell */
};
void ledger_free(struct ledger *l);
void ledger_keep(struct ledger *l, int arm, enum cell_phase phase, const double value[METRIC_COUNT],
                 const float *itl, int n_itl);
/* A kept block: its effects into the state's comparisons and the ledger, its cells into the means. cell[i] at
 * place[i] of the arms arm[0..arms). False when the compared metric has no value in one of them. */
struct block_values {
    enum cell_phase phase;
    int arms, arm[EXPERIMENT_ARMS], place[BLOCK_CELLS];
    const double *value[BLOCK_CELLS]; /* [METRIC_COUNT] */
    const float *itl[BLOCK_CELLS];
    int n_itl[BLOCK_CELLS];
};
bool ledger_block(struct ledger *l, struct experiment_state *s, const struct block_values *b);
/* The arms' figures in the state, from the ledger. */
void ledger_summarize(const struct ledger *l, struct experiment_state *s);
/* The means of a kept block's arms into the ledger, and what bounds they give. */
void means_keep(struct ledger *l, const struct block_values *b);
void means_bounds(const struct effects *e, struct interval mean[CELL_METRICS]);

/* ---------------------------------------------------------------- the database */

/* Why a block does not count although nothing disturbed it. */
extern const char BLOCK_INTERRUPTED[], BLOCK_PAUSED[];
void state_init(struct experiment_state *s, const struct experiment_spec *spec);
/* The oldest falls out. */
void state_event(struct experiment_state *s, int64_t unix_ms, const char *kind, const char *text);
void arm_describe(struct experiment_arm *a, const json_t *description);
/* State and ledger as the cells of the database tell them. `discard_open`: blocks that a kill cut short are
 * marked discarded (for resuming); otherwise they are only left out. */
enum err_code store_rebuild(struct experiment_state *s, struct ledger *l, struct db *d, int64_t run_id,
                            bool discard_open, struct err *why);
/* What is stored beside a cell: how often it repeated the workload, and the answer `description` with which
 * its process opened (NULL: not with this cell). New reference. */
json_t *cell_echo(const struct experiment_state *s, const json_t *description);
/* Stores by how much the predictions for each arm missed what the run measured. Nothing for a run that did
 * not finish, evaluates or trains. */
enum err_code experiment_residuals(struct experiment *x, struct err *why);

/* ---------------------------------------------------------------- the running experiment */

/* How long a process lives: the whole run, a block, or one cell, where memory holds one arm at a time. */
enum fresh { FRESH_RUN, FRESH_BLOCK, FRESH_CELL };

struct experiment {
    pthread_t thread;
    pthread_mutex_t lock; /* guards state, version, finished */
    pthread_cond_t changed;
    int64_t version;
    bool finished;
    struct experiment_state state;

    atomic_bool stop, pause;
    bool joinable;
    char *program;
    struct sampler_thread *sampler;
    struct machine machine;
    struct log log;

    /* of the thread alone */
    struct db *db;
    struct run run;                       /* row.id 0 until the arms are loaded */
    struct machine_ceilings ceilings;     /* of this machine; zeros when it was never probed */
    struct arm *process[EXPERIMENT_ARMS]; /* that of each arm; in a control of new processes: A and A again */
    enum fresh fresh;
    double start_s[EXPERIMENT_ARMS],
        cell_s[EXPERIMENT_ARMS]; /* of the last start and warm-up cell of each arm */
    struct ledger ledger;        /* large */
    struct span_row *early;      /* [n_early] spans from before the run had a row */
    int n_early;
    struct cell_place at;        /* what spans belong to now: block -1 outside of blocks */
    int64_t begun_ns, paused_ns; /* the latter: in pauses that are over */
    double blocks_begun_s;       /* on the clock of experiment_elapsed */
    bool race_over;
    int64_t shown_ns;                /* of the last live update */
    double overhead_sum, overhead_s; /* sampler's cost, weighted by cell seconds */
    struct err why;
};

void *experiment_thread(void *arg); /* the experiment; for pthread_create */

/* How a step ended. */
enum flow {
    FLOW_ON,
    FLOW_DISCARDED, /* this block does not count */
    FLOW_PAUSED,    /* there was a pause, now over: what it cut does not count */
    FLOW_STOPPED,   /* somebody asked */
    FLOW_ARM,       /* an arm failed: state.arm[].failed */
    FLOW_INVALID,   /* cannot be compared: state.reason */
    FLOW_BROKEN     /* the workbench itself: x->why */
};

/* The thread is the only writer of the state: it reads it freely, and writes between these two. */
struct experiment_state *state_edit(struct experiment *x);
void state_done(struct experiment *x);
void experiment_tell(struct experiment *x, const char *kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Spans of an arm, of the block that runs, into the database: at once, or with the run's row. What cannot be
 * stored is not told, and that is all: it is no reason to lose the measurement. */
void experiment_spans(struct experiment *x, int arm, struct span_row *rows, int n);
/* Those that had to wait. */
void experiment_spans_early(struct experiment *x);

/* Between two cells: waits while somebody wants a pause. FLOW_ON: nobody did; FLOW_PAUSED or FLOW_STOPPED. */
enum flow experiment_rest(struct experiment *x);
/* Of arm_open and what an arm is asked: keeps the screen alive, and ends the wait when somebody asks to stop.
 */
bool experiment_event(void *ctx, const json_t *event);
/* One of each arm; sets x->fresh to what memory allows. */
enum flow processes_load(struct experiment *x);
/* Sets x->fresh to what the spec asks and loading costs, after warm-up. */
void processes_plan(struct experiment *x);
/* The arm's process runs after it; FLOW_ARM: x->why says why not, and the caller decides what that means. */
enum flow process_start(struct experiment *x, int process, int arm);
/* The same, and it has run once, untimed. */
enum flow process_prepare(struct experiment *x, int process, int arm);
void processes_end(struct experiment *x);
enum flow arm_gave_up(struct experiment *x, int arm, const struct err *why);
/* One warm-up cell; its length, and its value of the compared metric. */
enum flow cell_warm_up(struct experiment *x, int arm, double *seconds, double *value);
enum flow block_run(struct experiment *x, enum cell_phase phase);
double experiment_elapsed(const struct experiment *x);
/* Quality of every challenger that has none yet, where the spec asks for it. Closes the arms. */
enum flow quality_run(struct experiment *x);
/* True when the cell is one of quality: it is in the state then. */
bool quality_rebuild(struct experiment_state *s, const struct cell_row *c);

#endif
