/* advisor/experiment.h - the paired comparison: control, palindromic blocks, contamination, verdict.
 *
 * Runs in a thread of its own; everybody else sees copies of `struct experiment_state`. Each cell is in the
 * database before the next begins, so a killed run resumes. Two to eight arms; every verdict is about one of
 * them seen from A, arm 0. The intervals hold at every look at once, so the run stops when they decide. */
#ifndef QDYNO_ADVISOR_EXPERIMENT_H
#define QDYNO_ADVISOR_EXPERIMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "db/db.h"
#include "engine/config/config.h"
#include "engine/plan/plan.h"
#include "kernels/kernels.h"
#include "telemetry/telemetry.h"
#include "advisor/quality.h"
#include "advisor/stats.h"

enum verdict {
    VERDICT_NONE,
    VERDICT_BETTER,
    VERDICT_WORSE,
    VERDICT_EQUIVALENT,
    VERDICT_NEGLIGIBLE,
    VERDICT_INCONCLUSIVE,
    VERDICT_INVALID
};
const char *verdict_name(enum verdict v); /* "better" ...; "" for NONE: B seen from A */
enum verdict verdict_parse(const char *name);

enum { EXPERIMENT_ARMS = 8, EXPERIMENT_BLOCKS = 256, EXPERIMENT_EVENTS = 64 };
enum { CELL_METRICS = METRIC_COUNT - METRIC_SENSOR_COUNT }; /* what a cell gives, in the order of METRICS */

/* What a block of cells runs in: processes of its own where starting them costs no more than its cells
 * (AUTO), in any case (NEW), or those the run began with (KEPT). */
enum processes { PROCESSES_AUTO, PROCESSES_NEW, PROCESSES_KEPT };
extern const char *const PROCESSES[];             /* "auto" "new" "kept", NULL */
enum processes processes_parse(const char *name); /* AUTO for what is none */

struct experiment_spec {
    char model[512]; /* path; "" when both configs name one */
    int arms;        /* 0: 2 */
    struct config config[EXPERIMENT_ARMS];
    struct workload workload;
    const struct metric *metric; /* NULL: decode rate if the workload decodes, else prefill rate */
    double margin;               /* log-ratio that matters: 0.01 */
    double budget_s;             /* 0: 5 minutes; no new block starts beyond it */
    int min_blocks, max_blocks;  /* 0: 6 and 64 */
    int control_blocks; /* A/A blocks before the comparison; 0: 3; -1: none (verdicts say "no control") */
    int warmup_cells;   /* of each arm; 0: until their rate has settled */
    enum processes processes;
    bool race; /* leave out arms that cannot win, then measure the winner afresh against A */
    /* quality of every challenger with A as reference; "" : not asked. 0: windows of 512, and all of them */
    char quality_file[512];
    int quality_ctx, quality_chunks;
    double kld_margin; /* mean KL divergence that still counts as no loss, nats; 0: 0.02 */
    char gate[512];    /* what must hold, advisor/gate.h; "": nothing */
    uint64_t seed;
    int64_t resume_id; /* 0: a new run */
};
/* What is compared when the spec names no metric. */
const struct metric *experiment_default_metric(const struct workload *w);
json_t *experiment_spec_to_json(const struct experiment_spec *s);
enum err_code experiment_spec_from_json(struct experiment_spec *s, const json_t *object, struct err *why);

struct experiment_arm {
    char line[640]; /* config line as given */
    char recipe[160];
    bool ready, failed;
    char error[512];    /* why it failed: a result */
    enum err_code code; /* of that failure */
    /* what really runs, from the worker's answer; "" and -1 until it answered */
    char model_name[128], arch[32], sha256[HASH_HEX], dominant_format[16], isa[96], device[16];
    int threads;
    bool merged_known;
    struct config merged; /* every key as it was resolved */
    /* Geometric means over kept cells (blocks if there are any, else control, else warm-up), so that the
     * quotient of two rates is the effect; NAN when not measured. */
    double rate; /* of the metric */
    double prefill_tok_s, decode_tok_s, ttft_s, itl_p50_s, itl_p99_s, perplexity;
    double itl_p95_s, load_s, joules_per_token;
    double train_tok_s, train_loss; /* of workloads that train */
    double rss_after_bytes;         /* between steps of training; else when a cell has ended */
    /* Geometric means again, of every metric; bounds by Student's t over blocks at 95 %, at every
     * look at once; NAN below five. */
    struct interval mean[CELL_METRICS];
    int itl_samples;         /* pooled over kept cells; a percentile they cannot support is NAN */
    int64_t peak_rss_bytes;  /* -1 unknown */
    struct memory_plan plan; /* total -1 until known */
    int cells;
};

/* Arm k against A, from the blocks in which both ran. Log ratios of the compared metric, positive: k is
 * better by METRICS.better. */
struct comparison {
    int blocks;
    double d[EXPERIMENT_BLOCKS]; /* one per kept block */
    /* Valid at every look at once (stats_anytime_interval), and over the whole family of challengers (Holm):
     * with one challenger 95 %. effect90 is the pair of one-sided tests of equivalence. */
    struct interval effect, effect90;
    double alpha;     /* of `effect`: 0.05, less in a family */
    double e, e_sign; /* evidence against "no difference" (stats_coin_evalue; signs alone); 20 is 1 in 20 */
    double p;         /* valid at any time: 1 / the largest e of any look, at most 1 */
    /* companions: honest for one look only; not used for the verdict. NAN until the end of the run */
    struct interval fixed, hodges_lehmann;
    double permutation_p, lag1;
    struct interval by_metric[CELL_METRICS]; /* as effect, at 95 %; NAN unknown */
    struct quality quality;                  /* A is the reference; once, after the blocks */
    bool dropped;                            /* left out of the race */
    int dropped_at;                          /* after so many blocks */
    enum verdict verdict;
    char reason[256];  /* why it is invalid or inconclusive, "" otherwise */
    int blocks_needed; /* about how many more, 0 when decided, -1 unknown */
};

enum experiment_phase {
    PHASE_LOADING,
    PHASE_WARMUP,
    PHASE_CONTROL,
    PHASE_BLOCKS,
    PHASE_CONFIRM, /* the winner of a race, against A, on blocks of its own */
    PHASE_QUALITY,
    PHASE_DONE,
    PHASE_STOPPED,
    PHASE_FAILED
};

/* How full the session that runs is: as the worker told last (engine/worker.h, "occupancy"). */
enum { OCCUPANCY_CELLS = 1024 };
struct occupancy {
    int arm;                        /* whose; -1: nobody told yet */
    int blocks, used, block_tokens; /* of the KV cache */
    int rows, batch;                /* of the last forward pass, and at most */
    int step;                       /* blocks that a character of map stands for */
    char map[OCCUPANCY_CELLS + 1];  /* '.' free, else the sequence: 0-9 a-z, '+' later ones */
};

/* A value: copied under the lock, then immutable. */
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
    struct experiment_arm arm[EXPERIMENT_ARMS];
    /* now */
    int running_arm, block, slot; /* -1 between cells */
    char cell_phase[16];          /* "load" "prefill" "decode" "quantize" "eval" */
    int cell_done, cell_of;
    double live_tok_s; /* of the running cell so far, NAN */
    struct occupancy occupancy;
    double elapsed_s, eta_s; /* without pauses; eta NAN when unknown */
    /* somebody asked to wait */
    bool pausing;            /* asked for: the cell that runs is finished first */
    int64_t paused_since_ms; /* unix; 0: not paused */
    int pauses;              /* begun so far */
    double paused_s;         /* of those that are over */
    /* control */
    int control_blocks;
    int control_discarded;
    double control_d[EXPERIMENT_BLOCKS]; /* log ratio per kept control block */
    double control_frequency;            /* hertz, median over control cells, NAN */
    struct interval control;             /* log ratio A/A, NAN until 2 blocks */
    double noise_floor;                  /* half width, NAN */
    double mde;                          /* smallest detectable effect with max_blocks, NAN */
    bool control_failed;
    int blocks, discarded; /* kept and discarded, of comparison and confirmation */
    int planned_blocks;    /* about how many the control's spread asks for; 0 until known */
    struct comparison comparison[EXPERIMENT_ARMS]; /* by arm; [0] is unused */
    int headline;                   /* the arm that the run's verdict is about: B, the best, the winner */
    bool confirming;                /* `confirmation` has taken the place of comparison[headline] */
    struct comparison confirmation; /* of a race's winner, on fresh blocks */
    enum verdict verdict;           /* of the run */
    char reason[256];               /* why it is invalid or inconclusive, "" otherwise */
    int blocks_needed;              /* about how many more, 0 when decided, -1 unknown */
    bool random_weights;
    double overhead_ratio; /* of sampler thread during cells, share of one core */
    int events;
    struct {
        int64_t unix_ms;
        char kind[12], text[160];
    } event[EXPERIMENT_EVENTS]; /* newest last */
};

struct experiment;
struct experiment_deps {
    const char *db_path;            /* NULL: default; the thread opens its own handle */
    struct sampler_thread *sampler; /* borrowed */
    const struct machine *machine;
    const char *program; /* worker binary, NULL: self */
    const struct log *log;
};
/* Errors: ERR_USAGE when the spec cannot be (metric the workload does not give, bounds, resuming a finished
 * or foreign run); everything later is in the state. */
enum err_code experiment_start(struct experiment **out, const struct experiment_spec *spec,
                               const struct experiment_deps *deps, struct err *why);
void experiment_state(struct experiment *x, struct experiment_state *out);
/* Wait until something changed since `*version` or timeout_ms passed; updates *version. */
void experiment_wait(struct experiment *x, int64_t *version, int timeout_ms);
bool experiment_finished(struct experiment *x);
void experiment_stop(struct experiment *x); /* asks; resumable later by run id */
/* Wait, or go on. It takes effect between two cells: nothing timed spans a pause, a block that it cuts is not
 * counted and runs again. The arms' processes end, so that the machine is free meanwhile; the time does not
 * count against the budget, and the run's events say when. */
void experiment_pause(struct experiment *x, bool wait);
void experiment_close(struct experiment *x); /* stop, join, free; NULL is fine */

/* The comparison that the run's verdict is about. */
const struct comparison *experiment_headline(const struct experiment_state *s);

/* The pure part: every comparison's intervals and verdict, and the run's, from d[], discarded,
 * control_failed, arm[].failed and the spec's margin. May be called after every block: what it says holds at
 * all looks together. Needs 6 blocks for any claim. An invalid run's reason that is already set is kept. */
void experiment_judge(struct experiment_state *s);

/* Why a window of samples disqualifies a cell: "" when it does not. Rules are fixed in CONTAMINATION
 * (experiment rules table). */
const char *contamination_reason(const struct sample *samples, int n, const json_t *cell_answer,
                                 double control_frequency, char *buf, size_t size);

/* What a finished (or running) run says, rebuilt from the database alone. */
enum err_code experiment_load(struct experiment_state *out, struct db *d, int64_t run_id, struct err *why);

/* Full result as one JSON document (schema "qdyno.ab/1"). New reference. */
json_t *experiment_to_json(const struct experiment_state *s);

#endif
