/* advisor/tune/tune.h - finds the best configuration by measurement: the search space of KNOBS is pruned by
 * prediction, raced by measurement, and the winner is confirmed by a new A/B experiment.
 *
 * Cheap information comes first: memory estimate and prediction cost nothing and rule out most candidates.
 * Each following measurement is the one with the largest expected improvement per second; the regression that
 * estimates it starts from the predictions and learns from every measurement what each knob value is worth on
 * this machine. Two thirds of the budget go to this race. The last third goes to an A/B of the current
 * configuration, the best and the runner-up on new blocks, because the measured rate of a selected maximum is
 * biased upwards. If a verdict takes longer than that, it gets up to 70 % of the budget and no A/A
 * control; if the blocks are still too few, the current configuration is kept, and the search can be resumed
 * with a larger budget. A candidate that changes answers can win only if its measured KL divergence
 * against the unchanged model is within the limit, and where a limit on right answers is given, only if its
 * loss of them is shown to be within that. Every measurement is stored before the next begins, so a
 * killed search can be resumed. */
#ifndef QDYNO_ADVISOR_TUNE_H
#define QDYNO_ADVISOR_TUNE_H

#include "advisor/advise/advise.h"
#include "advisor/experiment/experiment.h"

enum { TUNE_DIMS = 16, TUNE_VALUES = 40, TUNE_VALUE = 96, TUNE_CANDIDATES = 1 << 12 };

/* ---------------------------------------------------------------- the space */

/* One dimension of the space. `key` is a key of config lines, also "recipe" or "kv". */
struct tune_dim {
    char key[24];
    char value[TUNE_VALUES][TUNE_VALUE]; /* [0] is the default */
    int n;
    bool changes_answers;
    bool unpredicted; /* no predictor knows its values: they may differ by factors, not by percents */
};
struct tune_space {
    struct tune_dim dim[TUNE_DIMS];
    int dims;
    struct config base; /* settings that are no dimension; the defaults at first */
    bool for_quality;   /* also try values that are more exact than the defaults */
    bool requantize;    /* recipes quantize again what is quantized */
    bool is_quantized;  /* the file is: nothing in it is quantized again unless the user asks for that */
    char left_out[128]; /* dimensions dropped because the space would be too large; "" */
    /* recipes dropped because they make the same file as another one: "q3_K as file"; "" */
    char doubles[256];
};
/* Build the space for this file, machine and workload. `asked` NULL: all that is worth trying; otherwise the
 * space itself: "recipe=file|q8_0|q4_K,threads=1|2". Errors: ERR_USAGE, naming the invalid word; ERR_NOMEM.
 */
enum err_code tune_space(struct tune_space *out, const struct gguf *g, const struct machine *m,
                         const struct workload *w, enum goal goal, const char *asked, struct err *why);
/* Append the dimensions of a text such as "recipe=file|q8_0,args=\"-fa on|-fa off\"" to a space. Errors:
 * ERR_USAGE, naming the invalid word; ERR_NOMEM. */
enum err_code tune_space_parse(struct tune_space *s, const char *asked, struct err *why);
/* Let recipes quantize this quantized file again, and add formats smaller than its own if the space has no
 * recipes. */
void tune_space_requantize(struct tune_space *s, const struct gguf *g);
int64_t tune_space_size(const struct tune_space *s);
/* Configuration number i. False: its settings contradict each other. */
bool tune_space_config(struct config *out, const struct tune_space *s, int64_t i);
/* at[dims]: the index of its value in each dimension. */
void tune_space_at(int at[TUNE_DIMS], const struct tune_space *s, int64_t i);

/* ---------------------------------------------------------------- regression */

/* Bayesian linear regression of ln(measured / predicted) on knob values: one unknown for each value of each
 * dimension, so a measurement informs all configurations that share a value with it. Prior standard
 * deviations: sd_all of the common term, sd_value of each value, sd_own of what is peculiar to one
 * configuration. Pure. *out owned. Errors: ERR_NOMEM. */
struct tune_regression;
enum err_code tune_regression_open(struct tune_regression **out, const struct tune_space *s, double sd_all,
                                   double sd_value, double sd_own, struct err *why);
void tune_regression_free(struct tune_regression *b); /* NULL is fine */
/* Add the observation y of a configuration, with standard error sd. */
void tune_regression_add(struct tune_regression *b, const int at[TUNE_DIMS], double y, double sd);
/* Posterior mean and standard deviation for a configuration. */
void tune_regression_estimate(const struct tune_regression *b, const int at[TUNE_DIMS], double *mean,
                              double *sd);

/* Expected improvement E[max(X - best, 0)] of a normal X (Jones et al. 1998). */
double expected_improvement(double mean, double sd, double best);

/* ---------------------------------------------------------------- files of one model */

/* Several files of one model, each in other formats: one of them is the reference, the others are variants.
 */
enum { TUNE_FILES = 32, TUNE_SKIPPED = 400 };
struct tune_file {
    char path[CONFIG_VALUE]; /* that a config line can hold */
    char quantization[48];   /* "Q4_K_M" */
    double bits;             /* bits per weight, over all tensors */
    int64_t bytes;           /* of the file, all shards */
};
struct tune_files {
    struct tune_file file[TUNE_FILES]; /* the most exact first: by bits, then by path */
    int n;
    char
        skipped[TUNE_SKIPPED]; /* files of a folder that hold no weights of a model: "mmproj.gguf (mmproj)" */
};
/* given: paths of files, or of folders, of which all *.gguf with weights count; of a split file its first
 * part. Reads headers only, and proves from them that all are the same model: architecture, its settings,
 * tensors by name and shape, tokenizer. Errors: ERR_USAGE (two models, with what differs; none; too many; a
 * path too long); as model_file_open. */
enum err_code tune_files_find(struct tune_files *out, const char *const *given, int n, struct err *why);
/* Which of them is the file at this path, under whatever name; -1: none. */
int tune_files_index(const struct tune_files *l, const char *path);

/* ---------------------------------------------------------------- a target */

/* "q4_0.gguf, threads=2": a config line with the name of its file in place of the path. Returns buf. */
char *target_name(char *buf, size_t size, const char *line);

/* A target is a gate (experiment.h) that every candidate is judged by, as seen from the reference. The values
 * are exit statuses. */
enum tune_reach { TUNE_REACHED, TUNE_NOT_REACHED, TUNE_UNDECIDED };
enum { TUNE_TARGET_TEXT = 900 };
struct tune_target {
    bool asked;
    enum tune_reach reach;
    int candidate; /* in tune_result.seen: that reaches it, or comes nearest; -1: none measured */
    char text[TUNE_TARGET_TEXT]; /* "reached by ...", "not reached: the nearest is ...", "undecided: ..." */
    struct gate_result judged;   /* of that candidate */
};

/* ---------------------------------------------------------------- the search */

struct tune_limits {
    int64_t memory_bytes; /* of the memory estimate; 0: the machine's memory */
    double kld;           /* mean KL divergence against the unchanged file; 0: 0.02 nats per token */
    double ppl_ratio;     /* relative increase of perplexity, such as 0.02; 0: no limit */
    double accuracy;      /* largest loss of right answers to the task's questions, 0.005; 0: no limit */
};
/* Weights of a goal's score: ln speed, ln memory, KL divergence in nats, ln bytes read per token. */
struct tune_weights {
    double speed, memory, kld, energy;
};
extern const struct tune_weights TUNE_WEIGHTS[]; /* by enum goal */

struct tune_progress; /* below */
struct tune_options {
    const char *model_path;
    const struct config *current; /* the configuration to beat; its model= is not used */
    struct workload workload;
    enum goal goal;
    struct tune_limits limits;
    const char *space; /* NULL: all that is worth trying */
    double budget_s;
    const char *text_file; /* for quality measurements; NULL: the model's text (quality_text_of) */
    const char *task_file; /* questions with choices, for limits.accuracy; NULL: none */
    int quality_ctx;       /* tokens of a window of that text; 0: as the workload (quality_context.h) */
    uint64_t seed;
    int64_t resume_id;      /* 0: a new run */
    bool requantize;        /* recipes may quantize again what the file has quantized */
    bool search_only;       /* skip the confirmation: the result is the race's best candidate */
    enum estimand estimand; /* of the confirmation */
    const struct machine *machine;
    const struct machine_ceilings *ceilings;
    const char *db_path;             /* NULL: default */
    const struct run_labels *labels; /* of the runs that it makes; NULL: none */
    struct sampler_thread *sampler;  /* borrowed; NULL: no sensors */
    const char *program;             /* worker binary, NULL: this program */
    const struct log *log;
    /* Called before each measurement and several times a second during one; false stops. May be NULL. */
    bool (*progress)(void *ctx, const struct tune_progress *at);
    void *ctx;
    /* Files of one model to choose from, or a target: then tune() measures quality and speed of each
     * candidate (variants.c). NULL: one file, model_path. reference: index in files; model_path is its path.
     */
    const struct tune_files *files;
    int reference;
    const struct gate *target; /* NULL or without terms: none */
    /* Turns a candidate into a file on this machine before it is measured; NULL: names are paths. */
    enum err_code (*local)(void *ctx, char *path, size_t size, const char *name, struct err *why);
    void *local_ctx;
};

struct tune_candidate {
    int64_t index; /* in the space; -1: the current configuration, when the space does not contain it */
    char line[CONFIG_LINE];
    /* which probe of machine conditions applies: 0 the one for one thread, 1 for all threads, -1 none */
    int probe;
    int settings;                /* number of settings that differ from the defaults */
    uint64_t answer;             /* hash of the answer line: equal for configs with the same answers */
    bool same_answers;           /* as the current configuration: its quality need not be measured */
    double ln_guess;             /* prior mean of ln(KL divergence) */
    int64_t memory_bytes;        /* memory estimate */
    double read_bytes;           /* bytes read per decoded token, at the prediction's depth */
    double predicted, low, high; /* tokens/s, predicted before any measurement */
    double rate;                 /* tokens/s, mean of the timings; NAN: not measured */
    double normalized_rate;      /* what the race compares: the rate normalized to usual machine conditions */
    double normalized_sd;        /* standard deviation of its logarithm */
    int timings;
    /* 0 and 1 for configs with the unchanged file's answers; NAN: not measured */
    double kld, kld_se, ppl_ratio;
    /* accuracy minus that of the unchanged file, and its paired 95 % interval; NAN: not measured */
    double accuracy_change, accuracy_lower, accuracy_upper;
    /* of variants: 95 % of rate and kld; NAN unknown */
    struct interval rate_interval, kld_interval;
    double bits;              /* bits per weight of its file; NAN unknown */
    bool front, knee;         /* no other one is better in speed, loss and memory; the bend of these */
    enum gate_outcome target; /* of variants with a target */
    bool quality_failed, accuracy_failed, failed; /* could not be measured */
    bool judged; /* measuring its quality was tried, and not that of another one with the same answers */
    char error[160];
    double score; /* by goal; NAN: unknown */
    /* the estimates that chose the finalists: from all timings, pulled towards what similar configurations
     * measured; NAN: none were chosen, or it was not timed */
    double expected_rate, expected_score;
};

/* The phases of a search, in their order. The first and the last are the caller's: tune() never reports them.
 */
enum tune_phase {
    TUNE_PHASE_MACHINE, /* measuring the limits of the machine */
    TUNE_PHASE_SPACE,   /* predicting every configuration and pruning */
    TUNE_PHASE_RACE,
    TUNE_PHASE_QUALITY, /* the finalists' answers, on more text */
    TUNE_PHASE_CONFIRM,
    TUNE_PHASE_SAVE,
    TUNE_PHASES
};
extern const char *const TUNE_PHASE_NAMES[TUNE_PHASES]; /* "machine" "space" ... */

enum { TUNE_BOARD = 12 };
struct tune_board_row {
    const struct tune_candidate *candidate;
    bool is_current;
    const char *excluded; /* why it cannot win; NULL: it can */
};
/* What a search is doing, valid during the call of the progress function. Pointers are borrowed. */
struct tune_progress {
    enum tune_phase phase;
    int64_t run_id;           /* 0: none yet */
    const char *what;         /* what is being measured: "speed" or "quality"; "" otherwise */
    char config[CONFIG_LINE]; /* the configuration that is being measured; "" none */
    char why[240];            /* why this one */
    double share, left_s;     /* used share of the budget; seconds of it that are left */
    /* without the current configuration: those that can win, those timed; and measured answers */
    int64_t possible, timed, judged;
    struct tune_board_row board[TUNE_BOARD]; /* the best measured ones by score, and always the current one */
    int n;
    /* the confirmation: its leading challenger against the current configuration */
    char challenger[CONFIG_LINE]; /* "": not begun */
    struct interval effect;       /* ln(challenger / current) of the metric; NAN unknown */
    enum verdict verdict;         /* so far */
    int blocks, blocks_needed;    /* so far; about how many more, 0 decided, -1 unknown */
    int64_t confirm_run;
};

enum { TUNE_BECAUSE = 512, TUNE_PASSED = 3 };
/* A timed candidate that looks faster than those of the confirmation, and why it was not compared. */
struct tune_passed {
    char line[CONFIG_LINE];
    double rate;
    char why[300];
};
struct tune_result {
    int64_t run_id, confirm_run; /* 0: none */
    /* number of configurations: all; after pruning; timed; answers measured */
    int64_t space, fitting, raced, judged;
    char left_out[128], doubles[256];
    char
        alike[CONFIG_LINE]; /* not tried, because the current configuration runs with the same settings; "" */
    struct tune_candidate current, winner, runner_up; /* line "": none */
    struct config keep;          /* the winner if it wins, otherwise the current configuration */
    struct tune_candidate *seen; /* [n_seen] every measured candidate, best first; owned: tune_result_free */
    int n_seen;
    struct tune_passed passed[TUNE_PASSED]; /* the fastest first */
    int n_passed;
    struct interval effect; /* ln(winner / current) of the metric, from the confirmation */
    double alpha;           /* error probability of this interval: 0.05, less with a runner-up */
    struct interval gain;   /* of the score: from the intervals of the effect and of KL divergence */
    enum verdict verdict;   /* about speed */
    double noise_floor;     /* of the confirmation's A/A control */
    int blocks;
    struct run_load load; /* of the machine during those blocks */
    const struct metric *metric;
    double seconds, search_s; /* spent, over all resumptions */
    bool wins;                /* the winner is proven better and should be kept */
    bool stopped;             /* can be resumed with resume_id = run_id */
    bool unfinished;          /* the same, because the budget was too short for a verdict */
    double enough_s;          /* a whole budget that should be enough; NAN: the given one was */
    bool random_weights, answers_unverified;
    char because[TUNE_BECAUSE];
    double accuracy_limit;        /* as in the limits; 0: none */
    int asked;                    /* questions of the task; 0: none */
    char reference[CONFIG_VALUE]; /* of variants: the file that all losses are against; "" no variants */
    bool reference_quantized;     /* it is itself quantized, so losses are against that, not the original */
    struct tune_target target;
    char text[128], text_sha256[HASH_HEX]; /* name and content of the text of all losses */
    struct quality_context quality;        /* the length of its windows, and that of the workload */
};
/* Search. A candidate that fails is a result. *out: tune_result_free, also after an error. Errors: ERR_USAGE
 * (options, space, a run that cannot be resumed); ERR_FIT when nothing fits; those of opening the model and
 * the database. */
enum err_code tune(struct tune_result *out, const struct tune_options *o, struct err *why);
/* Whether `current` or a value of the space runs another engine. tune() then measures all configs against the
 * current one: nothing predicts them, their answers are not compared (kld is NAN), memory is the peak that
 * was measured, and a search that stops cannot be resumed. At most TUNE_FOREIGN configs. False, too, for a
 * space that cannot be parsed. */
enum { TUNE_FOREIGN = 64 };
bool tune_is_foreign(const struct config *current, const char *space);
void tune_result_free(struct tune_result *r);
/* Marks the candidates that no other one beats in normalized_rate, kld and memory (front), and of at least
 * three of them the one at the bend of the curve of rate and kld (knee). Those that were not measured are on
 * none. */
void tune_front(struct tune_candidate *list, int n);

/* The options of a stored search, to continue it. Texts are owned: tune_stored_free. */
struct tune_stored {
    char *model_path, *space, *text_file, *task_file; /* but the first: NULL as in struct tune_options */
    char *target;                                     /* NULL: none */
    char (*file)[CONFIG_VALUE];                       /* [files]: of variants, the reference first; NULL */
    int files;
    struct config current;
    struct workload workload;
    enum goal goal;
    struct tune_limits limits;
    double budget_s; /* of a search whose budget was too short: one that should be enough */
    uint64_t seed;
    int quality_ctx; /* never 0 */
    bool requantize;
    enum estimand estimand;
};
/* Errors: ERR_USAGE when there is no such run or it is no search; ERR_FORMAT when its options cannot be read;
 * as db_open. */
enum err_code tune_stored_read(struct tune_stored *out, const char *db_path, int64_t run_id, struct err *why);
void tune_stored_free(struct tune_stored *s); /* {0} is fine */

/* The result in one sentence: "q4_K,threads=2 is 33 % faster (95 %: +24 to +42 %), 23 % less memory, quality
 * loss 0.001 nats on held-out.txt, compared with default." or "Keep ...". Returns buf. */
char *tune_sentence(char *buf, size_t size, const struct tune_result *r);
enum { TUNE_SENTENCE = 800 };

#endif
