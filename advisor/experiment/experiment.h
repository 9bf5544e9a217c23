/* advisor/experiment/experiment.h - the public header of advisor/experiment/. */
#ifndef QDYNO_ADVISOR_EXPERIMENT_H
#define QDYNO_ADVISOR_EXPERIMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "advisor/experiment/forecast.h"
#include "advisor/experiment/quality_context.h"
#include "advisor/predict/predict.h"
#include "advisor/quality/quality.h"
#include "advisor/run/run.h"
#include "advisor/stats/stats.h"
#include "base/base.h"
#include "db/db.h"
#include "engine/config/config.h"
#include "engine/eval/eval.h"
#include "engine/parallel/parallel.h"
#include "engine/plan/plan.h"
#include "engine/serve/serve.h"
#include "kernels/kernels.h"
#include "telemetry/machine/machine.h"
#include "telemetry/metrics/metrics.h"
#include "telemetry/probe/probe.h"
#include "telemetry/sensors/sensors.h"

/* ---------------------------------------------------------------- quality */

/* How far a challenger's predictions are from the reference's, with intervals.
 *
 * The engine computes the figures (engine/eval/eval.h). They are deterministic, so repeating the measurement
 * gives nothing: the intervals express that the text is a sample, whose independent units are windows. */

/* {0} means "not measured". */
struct quality {
    bool known;
    char missing[160]; /* why it is unknown although it was asked for; "" otherwise */
    /* Instead of the figures below, where the two models read different tokens (missing says so): bits per
     * byte of the text. pieces 0: not measured. */
    struct byte_comparison bytes;
    struct interval bits_change; /* of bytes.change, 95 % over pieces */
    char text[256];              /* base name of the file */
    char text_sha256[HASH_HEX];  /* of its content; "": measured by an older version */
    int ctx;                     /* tokens of a window */
    struct divergence figures;   /* of the challenger (candidate) against A (reference) */
    /* 95 %, over windows; bounds NAN for a single window */
    struct interval kld;       /* mean KL divergence, nats; never below 0 */
    struct interval top1;      /* share of positions with the same most likely token */
    struct interval ppl;       /* the challenger's perplexity */
    struct interval ppl_ratio; /* of the challenger's perplexity to A's, paired by token */
    /* Exact two-sided p of McNemar's test: does one of the two predict the next token right more often? It
     * treats positions as independent, which those of one window are not, so the true p is larger. */
    double mcnemar_p;
};

/* Computes the intervals from the figures. */
void quality_of(struct quality *q, const struct divergence *figures, const char *text, int ctx);

/* Keys as `qdyno eval -o json`; null when neither they nor bits per byte are known. New reference. From JSON:
 * known is false for null. */
json_t *quality_to_json(const struct quality *q);
void quality_from_json(struct quality *q, const json_t *object);

/* Opens the arm described by `arm` (with the window's context) in a process of its own and the reference in
 * the same process, compares them, and closes both. Do not call it while a cell is timed. Events have phase
 * "load", "quantize", "eval" and "greedy"; returning false from `event` cancels. Errors: as arm_open and
 * eval_divergence, which name the model; ERR_FIT when both do not fit in memory together; ERR_CANCELLED. */
enum err_code quality_measure(struct quality *q, const struct arm_spec *arm, const struct quality_spec *spec,
                              arm_event_fn *event, void *ctx, struct err *why);

#include "advisor/experiment/gate.h"
#include "advisor/experiment/joint.h"

/* ---------------------------------------------------------------- experiment */

/* The paired comparison of two to eight arms: A/A control, blocks in mirrored random order, verdict.
 *
 * An experiment runs in a thread of its own; other threads get copies of `struct experiment_state`. Each cell
 * is stored before the next begins, so a killed run can be resumed. Every verdict is about one arm as seen
 * from A, arm 0. The intervals are valid at all interim analyses together, so the run stops when they decide.
 */

enum verdict {
    VERDICT_NONE,
    VERDICT_BETTER,
    VERDICT_WORSE,
    VERDICT_EQUIVALENT,
    VERDICT_NEGLIGIBLE,
    VERDICT_INCONCLUSIVE,
    VERDICT_INVALID
};
const char *verdict_name(enum verdict v);     /* "better": the arm is better than A; "" for NONE */
enum verdict verdict_parse(const char *name); /* NONE for an unknown name */

enum { EXPERIMENT_ARMS = 8, EXPERIMENT_BLOCKS = 256, EXPERIMENT_EVENTS = 64 };
enum { CELL_METRICS = METRIC_COUNT - METRIC_SENSOR_COUNT }; /* metrics of cells, in the order of METRICS */

/* The processes of a block: new ones where starting them takes no longer than its cells (AUTO), always new
 * ones (NEW), or those that the run began with (KEPT). */
enum processes { PROCESSES_AUTO, PROCESSES_NEW, PROCESSES_KEPT };
extern const char *const PROCESSES[];             /* "auto" "new" "kept", NULL */
enum processes processes_parse(const char *name); /* AUTO for an unknown name */

/* What is estimated, and so which blocks count. The order of the arms in a block is a fair coin, and load
 * that does not know the coin favours no arm: it makes intervals wider, not wrong. So disturbed blocks may be
 * left out, to learn the speed on an undisturbed machine, but need not be. */
enum estimand {
    ESTIMAND_EITHER, /* quiet if it can be had within the budget, else loaded */
    ESTIMAND_QUIET,  /* speed undisturbed: blocks that pass the contamination rules */
    ESTIMAND_LOADED, /* speed on this machine as it is: all blocks */
    ESTIMANDS_COUNT
};
extern const char *const ESTIMANDS[];           /* "either" "quiet" "loaded", NULL */
enum estimand estimand_parse(const char *name); /* EITHER for an unknown name */

/* Whether the arms of a block run in turns of about BLOCK_TURN_S or one whole cell after the other: in turns
 * while the machine is disturbed (AUTO), always where possible (ON), never (OFF). */
enum turns_mode { TURNS_AUTO, TURNS_ON, TURNS_OFF };
extern const char *const TURNS[];              /* "auto" "on" "off", NULL */
enum turns_mode turns_parse(const char *name); /* AUTO for an unknown name */
#define BLOCK_TURN_S 0.05

struct experiment_spec {
    char model[512]; /* path; "" when all configs name one */
    int arms;        /* 0: 2 */
    struct config config[EXPERIMENT_ARMS];
    struct workload workload; /* of all arms, or of arm A */
    bool by_arm;              /* each arm has its own: experiment_set_workloads */
    struct workload arm_workload[EXPERIMENT_ARMS];
    bool as_systems;             /* compare also what different work makes incomparable */
    const struct metric *metric; /* NULL: decode rate if the workload decodes, else prefill rate */
    double margin;               /* smallest log ratio that matters, e.g. 0.01 */
    double budget_s;             /* 0: 5 minutes; no new block starts beyond it */
    int min_blocks, max_blocks;  /* 0: 6 and 256 */
    int control_blocks;          /* A/A blocks before the comparison; 0: 3; -1: none */
    int warmup_cells;            /* of each arm; 0: until their rate has settled */
    enum processes processes;
    enum estimand estimand;
    enum turns_mode turns;
    double wait_quiet_s; /* wait so long for a quiet machine before the first measurement; 0: do not wait */
    bool race;           /* drop arms that cannot win, then measure the winner again against A */
    bool race_only; /* with race: without that last measurement, which the caller makes in a run of its own */
    /* text for the quality of every challenger against A; "": not requested. ctx 0: 512 tokens; chunks 0: all
     */
    char quality_file[512];
    int quality_ctx, quality_chunks;
    /* fewer windows than quality_chunks may be measured to keep the budget, but at least so many; 0: all of
     * them are measured, however long that takes */
    int quality_least;
    /* windows may be shortened to this many tokens where the budget is too short for quality_ctx; 0: never */
    int quality_ctx_least;
    double kld_margin; /* largest mean KL divergence that counts as no loss, nats; 0: 0.02 */
    char gate[512];    /* see "gate" above; "": none */
    uint64_t seed;
    int64_t resume_id; /* 0: a new run */
};
/* What opening arm `arm` would refuse (arm_check). The message begins with the arm. */
enum err_code experiment_check_arm(const struct experiment_spec *s, int arm, struct err *why);
/* The same for the arms without which nothing can be compared: A, and B of two. The others may fail. */
enum err_code experiment_check(const struct experiment_spec *s, struct err *why);
/* Replaces zeros by defaults. ERR_USAGE for an impossible specification. */
enum err_code spec_resolve(struct experiment_spec *s, struct err *why);
/* A sign-flip permutation test cannot reach a level of 5 % with fewer blocks: 2 / 2^6 = 3 %. */
enum { BLOCKS_FOR_A_CLAIM = 6 };

/* What a budget gives, foreseen before a run starts. A run that ends short of a verdict has cost its budget
 * for nothing, so who starts one shows this first. */
enum { FORECAST_BUDGET = 16, FORECAST_TEXT = 320 };
struct experiment_forecast {
    double before_s;              /* starting, filling the context and warming up */
    double block_s;               /* one block */
    double quality_s;             /* what follows the blocks; NAN: unknown; 0: nothing */
    int control;                  /* blocks of the A/A control */
    int wanted;                   /* blocks of a verdict at least, those of the control included */
    int given;                    /* blocks that the budget gives */
    bool quality_on_top;          /* it does not fit into the budget and follows it */
    bool resumed;                 /* both are about further blocks of a run that is continued */
    double budget_s, needed_s;    /* the budget; one that is enough for `wanted` */
    char budget[FORECAST_BUDGET]; /* the latter as --budget takes it: "12m" */
    char unknown[160];            /* why all of this is unknown; "": it is known */
};
/* Where the speed of the arms comes from, the first that knows it. */
struct forecast_sources {
    struct db *db;                           /* earlier runs of the same config and workload; NULL: none */
    const struct machine *machine;           /* required */
    const struct machine_ceilings *ceilings; /* to predict; NULL: never measured */
    const struct correction *correction;     /* of predictions; NULL: none */
};
/* Reads the header of each arm's model file, and its content if an earlier run used a file of this path: from
 * milliseconds to the time that hashing takes, so not between two frames. */
void experiment_forecast(struct experiment_forecast *f, const struct experiment_spec *s,
                         const struct forecast_sources *from);
/* Is the budget known to be too short for a verdict? */
bool experiment_forecast_is_short(const struct experiment_forecast *f);
/* "one block takes about 70 s; 5 min give 3; a verdict needs at least 10, 3 of them control blocks", with
 * what comes before the first block where that takes much of the budget, or why it is unknown. Who shows it
 * adds how to give f->budget. Returns buf. */
char *experiment_forecast_text(char buf[FORECAST_TEXT], const struct experiment_forecast *f);

/* The metric that is compared when the specification names none. */
const struct metric *experiment_default_metric(const struct workload *w);
/* Gives each of the first n arms its workload; by_arm stays false where all are the same. */
void experiment_set_workloads(struct experiment_spec *s, const struct workload *w, int n);
const struct workload *experiment_workload(const struct experiment_spec *s, int arm); /* borrowed */
/* The workload of all arms, or those of the arms: "tg64 vs tg64@b16". Returns buf. */
char *experiment_workload_line(const struct experiment_spec *s, char *buf, size_t size);
/* Does a figure (enum metric_id) of this arm say anything beside that of A? */
bool experiment_comparable(const struct experiment_spec *s, int arm, int metric);
json_t *experiment_spec_to_json(const struct experiment_spec *s);
enum err_code experiment_spec_from_json(struct experiment_spec *s, const json_t *object, struct err *why);

struct experiment_arm {
    char line[CONFIG_LINE]; /* config line as given */
    char recipe[160];
    bool ready, failed;
    char error[512];    /* why it failed */
    enum err_code code; /* of that failure */
    /* from the worker's answer when it opened; "" and -1 before */
    char model_name[128], arch[32], sha256[HASH_HEX], dominant_format[16], isa[96], device[16];
    char quantization[48]; /* "Q4_K_M"; "" of runs of earlier versions */
    char engine[1024];     /* of another engine: its build, command and program, as JSON; "" qdyno's own */
    int threads;
    bool merged_known;
    struct config merged; /* every setting as the worker resolved it */
    /* By enum metric_id: the values of its kept cells, combined as METRICS[].combine says (cells of blocks if
     * there are any, else of the control, else of the warm-up). NAN: not measured, and for every sensor. */
    double value[METRIC_COUNT];
    double rate; /* geometric mean of the compared metric; NAN when not measured */
    /* NAN without a power sensor; co2: also without grid_gco2_per_kwh. half: of the 95 % interval */
    double joules_per_token, joules_per_token_half, co2_g_per_token;
    /* Geometric means of every metric. Bounds: Student's t over blocks at 95 %, valid at all interim analyses
     * together; NAN with fewer than five blocks. */
    struct interval mean[CELL_METRICS];
    int itl_samples;         /* token latencies in value[METRIC_ITL_*]; too few for a percentile: it is NAN */
    struct memory_plan plan; /* total -1 until known */
    int cells;
    /* Of its newest warm-up cell: the cell itself, and before it the filling of the cache up to the
     * workload's depth, which every new process of the arm does. 0: not known */
    double cell_s, fill_s;
    /* parallel=: what each process of the arm used in its newest cell, which may be running; 0: unknown */
    int ranks;
    struct rank_usage rank[RANKS_MAX];
};
/* From the list "ranks" of a worker's answer or progress event, without those that ended. False: it is none,
 * *a is unchanged. */
bool arm_ranks_read(struct experiment_arm *a, const json_t *list);

/* Arm k against A, from the blocks in which both ran. Effects are log ratios of the compared metric, with the
 * sign turned so that positive means that k is better (METRICS[].better). */
struct block_series { /* all complete blocks, in the order in which they ran */
    int blocks;
    double d[EXPERIMENT_BLOCKS];    /* log ratio, positive is better */
    double load[EXPERIMENT_BLOCKS]; /* other runnable tasks beside the arm minus beside A; NAN: no turns */
    bool disturbed[EXPERIMENT_BLOCKS];
    int incomplete; /* disturbed blocks without effect: versions before estimands ended those early */
};
/* What the blocks of one estimand say. */
struct estimand_result {
    int blocks;
    struct interval effect; /* as comparison.effect, at the same alpha */
    double e, p;
};

struct comparison {
    struct block_series all;
    /* the blocks of the estimand in use; of ESTIMAND_LOADED adjusted for `load` (stats_adjust) */
    int blocks;
    double d[EXPERIMENT_BLOCKS];
    enum estimand use;                  /* the one in use */
    double adjusted[EXPERIMENT_BLOCKS]; /* [all.blocks]: as ESTIMAND_LOADED sees them */
    /* Share of the stake on ESTIMAND_LOADED where the run may choose between the estimands; 0: it may not */
    double share_loaded;
    struct estimand_result by_estimand[ESTIMANDS_COUNT]; /* QUIET and LOADED, whichever is in use */
    /* Valid at all interim analyses together (evidence_interval) and over the family of challengers
     * (Holm): 95 % with one challenger. effect90 is for the two one-sided tests of equivalence. */
    struct interval effect, effect90;
    double alpha;     /* error probability of `effect`: 0.05, less with several challengers */
    double e, e_sign; /* e-values against "no difference": evidence_evalue, and of signs alone */
    double p;         /* 1 / the largest of the former so far, valid at every interim analysis */
    /* companions: valid for a single analysis, never used for the verdict; NAN until the run ends */
    struct interval fixed, hodges_lehmann;
    double permutation_p, lag1;
    struct interval by_metric[CELL_METRICS]; /* as effect, at 95 %; NAN unknown */
    struct quality quality;                  /* against A; measured once, after the blocks */
    bool dropped;                            /* out of the race, ... */
    int dropped_at;                          /* ... after this many blocks */
    enum verdict verdict;
    char reason[256];  /* why it is invalid or inconclusive, "" otherwise */
    int blocks_needed; /* estimate of further blocks; 0: decided, -1: unknown */
};

enum experiment_phase {
    PHASE_LOADING,
    PHASE_WARMUP,
    PHASE_CONTROL,
    PHASE_BLOCKS,
    PHASE_CONFIRM, /* the winner of a race against A, on new blocks */
    PHASE_QUALITY,
    PHASE_DONE,
    PHASE_STOPPED,
    PHASE_FAILED
};
extern const char
    *const EXPERIMENT_PHASES[]; /* by phase, as in documents: "loading" "warmup" "control" ... */

/* KV cache of the running session, from the worker's last "occupancy" line (engine/worker). */
enum { OCCUPANCY_CELLS = 1024 };
struct occupancy {
    int arm;                        /* the arm it belongs to; -1: not known yet */
    int blocks, used, block_tokens; /* of the KV cache */
    int rows, batch;                /* of the last forward pass; the largest possible */
    int step;                       /* cache blocks per character of map */
    bool serves;                    /* the workload is a load of requests; the next three are known then */
    int cached;                     /* blocks without a user whose contents can be found */
    int spared;                     /* blocks that would be used more if requests shared none */
    int running, waiting;           /* requests */
    /* '.' free, else the sequence that uses it: 0-9 a-z, '+' for later ones. Of a load also: '#' used by
     * several requests, '-' cached. */
    char map[OCCUPANCY_CELLS + 1];
};
/* From JSON (model_occupancy_to_json, serving_occupancy_to_json). False: it is none, *o is unchanged. */
bool occupancy_read(struct occupancy *o, int arm, const json_t *object);

/* What other programs did to the machine, mean over cells; NAN unknown. */
struct machine_load {
    double others_busy; /* share of all processor time */
    double steal;       /* share that the hypervisor took */
    double stalled;     /* share of time in which a task waited for a processor (pressure stall) */
};

#define EXPERIMENT_WAITS "wait quiet" /* a phase of cells: for a quiet machine, before the first one */

/* A copy of the state, taken under the lock. */
struct experiment_state {
    int64_t run_id; /* 0 until the arms are loaded */
    enum experiment_phase phase;
    char error[512]; /* PHASE_FAILED */
    enum err_code error_code;
    char machine_id[16];
    int64_t started_ms, ended_ms; /* ended 0: not yet */
    int cell_repeats; /* how often a cell runs the workload (short ones are repeated for sensors and clocks)
                       */
    struct experiment_spec spec;
    bool running; /* read from the database while another process still measures it (experiment_load) */
    struct experiment_arm arm[EXPERIMENT_ARMS];
    /* the running cell */
    int running_arm, block, slot; /* -1 between cells */
    char cell_phase[16];          /* "load" "fill" "prefill" "decode" "quantize" "eval"; EXPERIMENT_WAITS */
    int cell_done, cell_of;
    double live_tok_s; /* of the running cell so far, NAN */
    struct occupancy occupancy;
    bool live_known;         /* a cell of a load runs, or was the last one that ran */
    struct live live;        /* of that cell */
    double elapsed_s, eta_s; /* without pauses; eta NAN when unknown */
    double reserved_s;       /* of the budget, for what follows the blocks */
    /* pauses */
    bool pausing;                              /* requested; the running cell is finished first */
    int64_t paused_since_ms;                   /* unix; 0: not paused */
    int pauses;                                /* number so far */
    double paused_s;                           /* seconds, of the pauses that are over */
    enum estimand estimand;                    /* in use: QUIET or LOADED */
    double block_s;                            /* mean duration of a block so far, NAN */
    struct machine_load load[ESTIMANDS_COUNT]; /* during the blocks of each estimand */
    char busiest[RUN_BUSIEST]; /* programs that used the processors when the machine was found busy: "cc1 40
                                  %, ld 12 %" */
    double switch_cost; /* first token after a change of turns, relative to the others, log; NAN: no turns */
    /* Mean difference of other runnable tasks beside the headline arm and beside A, and the p value of "no
     * difference", valid at every interim analysis. NAN: not counted, because no block ran in turns. */
    double load_reacts, load_reacts_p;
    /* control */
    struct block_series control_all;
    int control_blocks;
    int control_discarded;
    double control_d[EXPERIMENT_BLOCKS]; /* log ratio per kept control block */
    double control_frequency;            /* hertz, median over control cells, NAN */
    struct interval control;             /* log ratio A/A, NAN until 2 blocks */
    double noise_floor;                  /* half width, NAN */
    double mde; /* experiment_detectable with the blocks of the headline; NAN: too few */
    bool control_failed;
    int blocks, discarded;   /* of comparison and confirmation: counted by the estimand in use, and not */
    int complete, disturbed; /* complete blocks of comparison and confirmation, and how many were disturbed */
    int planned_blocks;      /* expected number, from the control's spread; 0 until known */
    struct comparison comparison[EXPERIMENT_ARMS]; /* by arm; [0] is unused */
    int headline; /* arm that the run's verdict is about: B, the best challenger, or the winner of a race */
    bool confirming;                         /* `confirmation` replaces comparison[headline] */
    struct comparison confirmation;          /* of a race's winner, on new blocks */
    enum verdict verdict;                    /* of the run */
    char reason[256];                        /* why it is invalid or inconclusive, "" otherwise */
    int blocks_needed;                       /* about how many more, 0 when decided, -1 unknown */
    bool random_weights, answers_unverified; /* of any arm */
    /* Arms with different model files get different prompts for one workload, because their tokenizers
     * differ: a token of one is not a token of the other. */
    bool tokens_differ;
    double overhead_ratio; /* cost of the sampler during cells, share of one core */
    int events;
    struct {
        int64_t unix_ms;
        char kind[12], text[512];
    } event[EXPERIMENT_EVENTS]; /* newest last */
};
/* The time in which an undecided run measures `blocks` more blocks, as --budget takes it ("3m"), with a tenth
 * to spare; "": not known, because nothing that counts was timed, or `blocks` is not positive. Pure. Returns
 * buf. */
char *experiment_resume_budget(char buf[FORECAST_BUDGET], const struct experiment_state *x, int blocks);
/* How an arm is divided among processes. */
struct parallel experiment_arm_parallel(const struct experiment_state *s, int arm);
/* The known ranks of all arms together. */
int experiment_ranks(const struct experiment_state *s);

/* The config line of an arm, with its workload if it has its own: "q8_0 on tg64@b16". Returns buf. */
char *experiment_arm_line(const struct experiment_state *s, int arm, char *buf, size_t size);

struct experiment;
struct experiment_deps {
    const char *db_path;            /* NULL: default; the thread opens its own handle */
    struct sampler_thread *sampler; /* borrowed */
    const struct machine *machine;
    const char *program;             /* worker binary, NULL: self */
    const struct log *log;           /* of the texts of its events, too */
    const struct run_labels *labels; /* of a new run; NULL: none */
};
/* The kind of an event that says what disturbed a block. */
#define EVENT_DISCARD "discard"
/* *out is the caller's (experiment_close). Errors: ERR_USAGE for a wrong specification (metric that the
 * workload does not measure, bounds, resuming a finished run or one of another machine), ERR_NOMEM, as
 * db_open. Everything that fails later is in the state. */
enum err_code experiment_start(struct experiment **out, const struct experiment_spec *spec,
                               const struct experiment_deps *deps, struct err *why);
void experiment_state(struct experiment *x, struct experiment_state *out);
/* Waits until the state has changed since `*version` or timeout_ms have passed; updates *version. */
void experiment_wait(struct experiment *x, int64_t *version, int timeout_ms);
bool experiment_finished(struct experiment *x);
void experiment_stop(struct experiment *x); /* requests a stop; the run can be resumed by its id */
/* Pauses (wait true) or continues. A pause begins after the running cell: no timed work spans it, and a block
 * that it interrupts runs again. The arms' processes end, so that the machine is free meanwhile. The time
 * does not count against the budget; events record it. */
void experiment_pause(struct experiment *x, bool wait);
/* Change the load that a cell runs now: requests come rate_by times as fast (struct load_now), and the
 * settings of a config line change; "": none. Several changes before the load has taken them over add up. The
 * block is measured again, because what was changed by hand cannot be compared. Nothing happens while no load
 * runs. */
void experiment_change_load(struct experiment *x, double rate_by, const char *settings);
void experiment_close(struct experiment *x); /* stop, join, free; NULL is fine */

/* The result for a challenger (arm 1 or higher) in one to three sentences, without a line break: the compared
 * metric, the other axes, quality, what the machine did, and what to do when undecided. "B (q8_0) is 19 %
 * faster at decoding (95 %: 16 to 23 %), takes 15 % less memory; quality not measured." Changes are of the
 * number itself. Pure. Returns buf. */
char *experiment_sentence(char *buf, size_t size, const struct experiment_state *x, int arm);
enum { EXPERIMENT_SENTENCE = 800 };

/* How every sentence names a change with an interval: "19 % faster at decoding (95 %: 16 to 23 %)", and where
 * the interval is wide, or the change is within the noise floor (NAN: unknown), only what is proven: "at
 * least 0.3 % faster (95 %: 0.3 to 179 %)". `change`: log ratio of the number itself. */
struct change_words {
    const char *more, *less, *what; /* "faster", "slower"; "at decoding" or "" */
};
void experiment_put_change(struct str *s, struct interval change, double noise_floor, double alpha,
                           const struct change_words *w);

/* The same in the lines with which a command ends its output, so that the last thing on a terminal is the
 * answer. "": nothing to say. Pure. */
struct experiment_closing {
    char result[EXPERIMENT_SENTENCE];
    char evidence[320];   /* how many blocks, and the noise */
    char conditions[480]; /* what the machine did meanwhile */
    char next[200];       /* one command */
};
/* Why the effect of an arm is not the quotient of the rates beside it, where both would be printed
 * differently;
 * "" where they agree. Returns buf. */
enum { RATIO_TEXT = 256 };
char *experiment_ratio_text(char buf[RATIO_TEXT], const struct experiment_state *x, int arm);
/* What a person would do next. */
enum experiment_step {
    STEP_WATCH,       /* it is still measured */
    STEP_RESUME,      /* it was stopped */
    STEP_MORE_BLOCKS, /* continue it: the blocks that a verdict or its gate needs are left */
    STEP_LESS_NOISE,  /* measure again with less noise or a larger margin: more blocks than are left would
                         decide */
    STEP_APPLY,
    STEP_READ
};
enum experiment_step experiment_next_step(const struct experiment_state *x, int arm);
void experiment_closing(struct experiment_closing *out, const struct experiment_state *x, int arm);

/* The blocks of comparison and confirmation: "9 blocks measured: 8 used, 1 left out as disturbed; about 12
 * were planned". Screen, report and command line show the same text. Pure. Returns buf. */
enum { EXPERIMENT_BLOCKS_TEXT = 120 };
char *experiment_blocks_text(char buf[EXPERIMENT_BLOCKS_TEXT], const struct experiment_state *x);
/* Why the noise floor is wider than the interval of the arm, as the end of a sentence about its blocks: ":
 * wide because they are few, B has 24"; "" where it is not wider. Pure. Returns buf. */
char *experiment_noise_text(char buf[EXPERIMENT_BLOCKS_TEXT], const struct experiment_state *x, int arm);

/* The evidence after the first n of the blocks that count (comparison.blocks): stats_coin_evalue and
 * stats_anytime_interval of their effects; where the run may choose between estimands, such that all its
 * analyses of both together keep the error probability (evidence.c). Pure. */
double evidence_evalue(const struct comparison *c, int n);
double evidence_p(const struct comparison *c); /* after all blocks */
struct interval evidence_interval(const struct comparison *c, int n, double confidence);

/* Whether other programs react to the arms, which breaks every design: at 5 %, at all interim analyses
 * together, they ran more beside one of them. */
bool experiment_load_reacts(const struct experiment_state *s);

/* What other programs did to the machine while the blocks of the verdict were measured. A setting that was
 * found beside a load may be the best one beside that load only: a thread less, say, because a core was
 * taken. */
struct run_load {
    bool loaded; /* the result rests on blocks beside other programs: it need not hold on a quiet machine */
    double others_busy;      /* share of all processor time, mean over the cells that count; NAN unknown */
    int blocks, undisturbed; /* of the comparison: complete ones, and those without a disturbance */
};
/* `loaded`: disturbed blocks count, and either fewer than BLOCKS_FOR_A_CLAIM undisturbed ones exist or other
 * programs used more of the processors than a block may have to count as undisturbed (CONTAMINATION). arm: a
 * challenger. Pure. */
struct run_load experiment_run_load(const struct experiment_state *s, int arm);
/* "other programs used 65 % of the processors, 12 of 12 blocks were disturbed"; "" when not loaded. Returns
 * buf. */
enum { RUN_LOAD_TEXT = 120 };
char *experiment_run_load_text(char buf[RUN_LOAD_TEXT], const struct run_load *l);

/* Further blocks that the run may have for this comparison. An estimate (blocks_needed) may be larger: texts
 * then say that these will probably not decide. */
int experiment_blocks_possible(const struct experiment_state *s, const struct comparison *c);
/* What a verdict needs: "about 4 more blocks", "more blocks than the 2 that are left", "more blocks than a
 * run may have (256)"; "": none, or not known. Returns buf. */
int experiment_blocks_needed(const struct experiment_state *s,
                             const struct comparison *c); /* <= 0: see above */
enum { BLOCKS_NEEDED_TEXT = 64 };
char *experiment_blocks_needed_text(char buf[BLOCKS_NEEDED_TEXT], const struct experiment_state *s,
                                    const struct comparison *c);

/* Computes the intervals and verdicts of all comparisons and of the run (pure): from d[], discarded,
 * control_failed, arm[].failed and the margin. May be called after every block, because the results are valid
 * at all interim analyses together. Keeps the reason of an invalid run that is already set. */
void experiment_judge(struct experiment_state *s);

/* Rebuilds the state of a finished or running run from the database. Errors: ERR_USAGE when the run is no
 * experiment; ERR_NOMEM; as db_*. */
enum err_code experiment_load(struct experiment_state *out, struct db *d, int64_t run_id, struct err *why);

/* The result as a JSON document, "qdyno.ab/1" (docs/documents.md). New reference. */
json_t *experiment_to_json(const struct experiment_state *s);

#include "advisor/experiment/claims.h"
#include "advisor/experiment/figures.h"
#include "advisor/experiment/now.h"

#endif
