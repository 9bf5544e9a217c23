/* advisor/tune/tune.h - from "what should I run?" to a configuration that was measured: the space that KNOBS
 * span, pruned by the cost model, raced by measurement, the winner confirmed by a fresh A/B.
 *
 * The cheapest information comes first: the memory plan and the prediction cost nothing and rule out most;
 * then each measurement is the one that promises most for its time, by a model that begins as the cost model
 * and learns what each value of each knob is really worth here. Two thirds of the budget go to that, the last
 * third to an A/B of the current configuration, the best and the runner-up on blocks of their own, because
 * being chosen flatters; where too few blocks would fit into half of the budget the search gets all of it,
 * and nothing is kept. What changes answers can win only with a measured KL divergence against the model as
 * it is, within the limit. Every measurement is in the database before the next begins: a killed tune goes on
 * where it was. */
#ifndef QDYNO_ADVISOR_TUNE_H
#define QDYNO_ADVISOR_TUNE_H

#include "advisor/advise/advise.h"
#include "advisor/experiment/experiment.h"

enum { TUNE_DIMS = 16, TUNE_VALUES = 40, TUNE_CANDIDATES = 1 << 12 };

/* ---------------------------------------------------------------- the space */

/* One thing that may be set. `key` is that of a config line, "recipe" and "kv" among them. */
struct tune_dim {
    char key[24];
    char value[TUNE_VALUES][32]; /* [0] is the default */
    int n;
    bool changes_answers;
    bool unpredicted; /* nobody says what its values do: by factors, not by shares */
};
struct tune_space {
    struct tune_dim dim[TUNE_DIMS];
    int dims;
    struct config
        base; /* what every configuration says of settings that are no dimension; the defaults at first */
    bool for_quality;   /* values more exact than the defaults are worth trying */
    char left_out[128]; /* settings that would have made it too large; "" */
    char doubles[256];  /* recipes that would make the same file as another one: "q3_K as file"; "" */
};
/* What is worth trying for this file, machine and workload. `asked`: NULL, or the space itself:
 * "recipe=file|q8_0|q4_K,threads=1|2". ERR_USAGE names the word that cannot be. */
enum err_code tune_space(struct tune_space *out, const struct gguf *g, const struct machine *m,
                         const struct workload *w, enum goal goal, const char *asked, struct err *why);
int64_t tune_space_size(const struct tune_space *s);
/* Configuration number i. False: its parts do not go together. */
bool tune_space_config(struct config *out, const struct tune_space *s, int64_t i);
/* at[dims]: which value of each dimension it has. */
void tune_space_at(int at[TUNE_DIMS], const struct tune_space *s, int64_t i);

/* ---------------------------------------------------------------- what is known */

/* ln(measured / predicted) as a sum of unknowns, one for each value of each dimension, all normal: what is
 * learned of one configuration is learned of all that share a value. Pure. */
struct tune_belief;
enum err_code tune_belief_open(struct tune_belief **out, const struct tune_space *s, double sd_all,
                               double sd_value, double sd_own, struct err *why);
void tune_belief_free(struct tune_belief *b); /* NULL is fine */
/* One look at a configuration said y, give or take sd. */
void tune_belief_see(struct tune_belief *b, const int at[TUNE_DIMS], double y, double sd);
/* Of a configuration that was not looked at itself. */
void tune_belief_tell(const struct tune_belief *b, const int at[TUNE_DIMS], double *mean, double *sd);

/* How much more than `best` a normal unknown promises on average. */
double tune_promise(double mean, double sd, double best);

/* ---------------------------------------------------------------- the search */

struct tune_limits {
    int64_t memory_bytes; /* plan; 0: what the machine has */
    double kld;           /* mean KL divergence against the file as it is; 0: 0.02 nats a token */
    double ppl_ratio;     /* perplexity it may lose, 0.02; 0: no such limit */
};
/* How much a goal cares: of ln speed, ln memory, KL divergence in nats, and ln of what a token reads. */
struct tune_weights {
    double speed, memory, kld, energy;
};
extern const struct tune_weights TUNE_WEIGHTS[]; /* by enum goal */

struct tune_options {
    const char *model_path;
    const struct config *current; /* must be beaten; its model= is not used */
    struct workload workload;
    enum goal goal;
    struct tune_limits limits;
    const char *space; /* NULL: all that is worth trying */
    double budget_s;
    const char *text_file; /* for quality; NULL: the bundled one */
    uint64_t seed;
    int64_t resume_id; /* 0: a new run */
    bool search_only;  /* no confirmation: what the search alone would pick */
    const struct machine *machine;
    const struct machine_ceilings *ceilings;
    const char *db_path;            /* NULL: default */
    struct sampler_thread *sampler; /* borrowed; NULL: no sensors */
    const char *program;            /* worker binary, NULL: self */
    const struct log *log;
    /* What is being done; false asks to stop. May be NULL. */
    bool (*progress)(void *ctx, const char *doing, double share);
    void *ctx;
};

struct tune_candidate {
    int64_t index; /* in the space; -1: the current configuration, when it is not in it */
    char line[640];
    int looks_by;    /* whose looks at the machine hold for it: 0 one thread's, 1 all threads', -1 nobody's */
    int settings;    /* that differ from the defaults */
    uint64_t answer; /* equal: the same answers */
    double ln_guess; /* of KL divergence, before anything was measured */
    int64_t memory_bytes;        /* plan */
    double read_bytes;           /* that a token of decoding reads, at the prediction's depth */
    double predicted, low, high; /* tokens/s, before anything was measured */
    double rate;                 /* measured: mean of `looks` looks, NAN */
    double usual_rate; /* what the race goes by: the same for the usual machine, where it was looked at */
    double usual_sd;   /* of the logarithm of that */
    int looks;
    double kld, kld_se, ppl_ratio; /* 0 and 1 for what gives the answers of the file as it is; NAN unknown */
    bool quality_failed, failed;   /* could not be measured */
    char error[160];
    double score; /* by goal; NAN unknown */
};

struct tune_result {
    int64_t run_id, confirm_run; /* 0: none */
    int64_t space, fitting, raced,
        judged; /* configurations: all; after pruning; speed measured; answers measured */
    char left_out[128], doubles[256];
    struct tune_candidate current, winner, runner_up; /* line "": none */
    struct config keep; /* the winner if it wins, else the current configuration */
    struct tune_candidate
        *seen; /* [n_seen] everything that was measured, best first; owned: tune_result_free */
    int n_seen;
    struct interval effect; /* ln of the metric, winner / current, of the confirmation */
    struct interval gain;   /* of the score: bounds by the effect's and KL divergence's */
    enum verdict verdict;   /* of speed */
    double noise_floor;     /* of the control */
    int blocks;
    const struct metric *metric;
    double seconds, search_s; /* spent, over all resumptions */
    bool wins;                /* the winner shall be kept */
    bool stopped;             /* go on with resume_id = run_id */
    bool random_weights;
    char because[512];
};
/* Errors: ERR_USAGE (options, space, a run that cannot be resumed), those of opening the model; ERR_FIT when
 * nothing fits; a candidate that fails is a result. */
enum err_code tune(struct tune_result *out, const struct tune_options *o, struct err *why);
void tune_result_free(struct tune_result *r);

#endif
