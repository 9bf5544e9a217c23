/* advisor/predict/predict.h - predicts speed, memory and energy of a config on a machine before it is run,
 * and learns from the residuals of earlier runs. Public header of advisor/predict/. */
#ifndef QDYNO_ADVISOR_PREDICT_H
#define QDYNO_ADVISOR_PREDICT_H

#include "advisor/stats/stats.h"
#include "db/db.h"
#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/eval/eval.h"
#include "engine/model/model.h"
#include "engine/parallel/parallel.h"
#include "engine/plan/plan.h"
#include "telemetry/machine/machine.h"
#include "telemetry/probe/probe.h"

/* ---------------------------------------------------------------- machine conditions */

/* Current machine conditions: speed of memory and cores beside a run, relative to the time when the kernels
 * were timed on this machine.
 *
 * Other tenants of a host change decode rates by half and more from one minute to the next, and no sensor of
 * this machine shows it: when a shared core serves another tenant, the work takes longer, but nothing is
 * counted as stolen time. A short probe between two cells, while nothing of ours computes, measures it.
 * Predictions and residuals then refer to these conditions. */

/* 0: not known. */
struct conditions {
    double memory_ratio; /* memory: rate of a GEMV from memory / its usual rate then */
    double core_ratio;   /* cores: rate of a GEMV in caches / its best rate then */
};

enum { CONDITIONS_READINGS = 512 };
struct conditions_probe {
    struct backend *backend;  /* owned */
    struct speed_probe *pace; /* owned; NULL: no reference for this thread count, the probe does nothing */
    int threads;
    double read_reference_s, compute_reference_s; /* seconds per weight when the kernels were timed */
    /* ring of the latest readings since the restart, seconds per weight */
    double read_s[CONDITIONS_READINGS], compute_s[CONDITIONS_READINGS];
    int readings; /* since the restart */
};
/* Open a probe for work with `threads` threads. If the kernels were not timed with that many (one, or all),
 * the probe measures nothing. Call conditions_probe_close in any case. Errors: as backend_open,
 * backend_reserve. */
enum err_code conditions_probe_open(struct conditions_probe *w, int threads,
                                    const struct machine_ceilings *ceilings, struct err *why);
void conditions_probe_close(struct conditions_probe *w);
void conditions_probe_restart(struct conditions_probe *w);
/* Take six readings; about 40 ms. With one thread, the readings are taken on the CPU that the main thread of
 * process `pid` ran on last (0: any CPU), because the CPUs of a virtual machine are not equally fast at any
 * one time. Afterwards the calling thread leaves that CPU to the process. */
void conditions_probe_run(struct conditions_probe *w, int pid);
struct conditions conditions_probe_result(const struct conditions_probe *w);

/* ---------------------------------------------------------------- correction */

/* Correction of predictions by earlier runs.
 *
 * After every run on this machine, its prediction and its measurement are stored (db residual). Runs that
 * share a model, a recipe or a thread count share part of the cost model's error. ln(measured / predicted) is
 * therefore modelled as a sum of unknown terms, one for each trait: a Gaussian process whose covariance
 * counts the traits that two runs share. Its posterior mean corrects a prediction, and its posterior variance
 * sets the interval, which is narrow where similar runs were measured and wide elsewhere. */

/* Traits that two runs may share. RESIDUAL_TRAITS holds their names and weights. */
enum residual_trait {
    TRAIT_MODEL,
    TRAIT_RECIPE,
    TRAIT_THREADS,
    TRAIT_KV,       /* ctk, ctv, and which of them are rotated */
    TRAIT_PRODUCTS, /* precision, act, isa */
    TRAIT_MEMORY,   /* hugepages, prefetch, repack */
    TRAIT_WORK,     /* depth, batch and sequences, by powers of four */
    TRAIT_COUNT
};
struct residual_traits {
    /* "model=llama/1100048384 recipe=q4_0 ... reading=0.66 pace=0.93 core=0.98 noise=0.021": stored in the
     * database */
    char text[256];
    uint64_t hash[TRAIT_COUNT];
    double memory_share, noise;
    struct conditions conditions;
};
/* What was run, for the correction. When others use the memory, work slows down in proportion to its memory
 * share; when others use the cores, the rest slows down. If both were probed beside the run, the prediction
 * accounts for them, and the residual says more about the other traits. */
struct residual_work {
    int depth, batch, sequences, threads; /* threads that really ran */
    double memory_share;                  /* share of the predicted time that waits for memory, 0 to 1 */
    double noise; /* standard error of ln(rate) by the run's own repetitions; 0: unknown */
    struct conditions conditions;
};
void residual_traits_of(struct residual_traits *out, const struct model_shape *shape, const struct config *c,
                        const struct residual_work *w);

/* the correction model of one machine and basis; immutable once loaded, so several threads may read it */
struct correction;

/* Identifies what uncorrected predictions are based on: cost model revision, ceilings, kernel times.
 * Residuals of another basis are not used. Into buf; returns buf. */
const char *correction_basis(const struct machine_ceilings *c, char *buf, size_t size);
/* Load the residuals and fit the model. d NULL or no residuals: a model that corrects nothing. *out owned:
 * correction_free. Errors: ERR_NOMEM, as db_*. */
enum err_code correction_load(struct correction **out, struct db *d, const char *machine_id,
                              const struct machine_ceilings *c, struct err *why);
void correction_free(struct correction *l); /* NULL is fine */

/* A prediction with its 90 % interval. */
struct estimate {
    struct interval value;
    int runs; /* number of residuals the correction used */
};
/* Correct one prediction. sd: prior standard deviation of ln(measured / uncorrected). m NULL: no correction,
 * only the interval by sd. */
#define RESIDUAL_TOKEN_J                                                                                     \
    "token_j" /* the metric of residuals of energy per decoded token, no row of METRICS */
struct estimate correction_estimate(const struct correction *l, const char *metric,
                                    const struct residual_traits *t, double uncorrected, double sd);

/* How good past predictions of one metric were. A row is the prediction as it was made before its
 * measurement. */
struct accuracy {
    char metric[48];
    int n, within_10, within_20, in_interval;
    double median_error; /* median of |predicted / measured - 1| */
    double bias;         /* mean of ln(measured / predicted) */
};
enum { ACCURACY_MAX = 8 };
/* Returns the number of metrics filled. */
int accuracy_of(struct accuracy out[ACCURACY_MAX], const struct residual_row *rows, int n);

/* ---------------------------------------------------------------- prediction */

/* Prediction of a config's speed, energy and memory before it is tried.
 *
 * The time of a forward pass is the sum of its operations: products by format and shape, attention, the
 * remaining elementwise work, and the bytes of weights and KV cache they read. Each operation's time comes
 * from the kernel times measured on that machine (`qdyno detect --kernels`), otherwise from shares of its
 * ceilings. Residuals of earlier runs correct the sum and narrow its interval. */

/* Intervals: 90 %. *_limit_tok_s: the machine's roofline for this work (bytes / bandwidth,
 * operations / arithmetic). NAN when a ceiling is missing. */
struct prediction {
    struct interval decode_tok_s, prefill_tok_s;
    double decode_limit_tok_s, prefill_limit_tok_s;
    struct interval load_s;  /* with the file in the page cache and the recipe already quantized */
    struct interval token_j; /* energy per decoded token; NAN: no power reading */
    /* the same without correction; without a power reading it is a guess, used only to compute residuals */
    double token_uncorrected_j;
    struct interval peak_bytes; /* of the worker process: memory estimate plus the program itself */
    struct memory_plan plan;
    bool fits;
    double step_read_bytes; /* of weights, by one decode step of all sequences */
    int depth;              /* cached tokens per sequence during decode */
    /* the weights fit in the last-level cache: memory bandwidth does not limit */
    bool in_cache;
    bool decode_bound_by_memory; /* otherwise by arithmetic */
    /* 1 when every call of a decode step is too small for more threads; 0: runs on a device */
    int decode_threads;
    bool on_gpu;  /* predicted for the machine's GPU */
    bool assumed; /* some kernel was not timed on that machine, so the interval is wide */
    struct residual_work decode_work, prefill_work; /* what was run, for recording residuals */
    /* number of earlier runs that corrected the decode rate */
    int runs;
    /* With parallel=: share of exchanges in the time of a decode step, and of prompts. Rates and these are
     * NAN when the exchanges were not measured (`detect --ranks`). */
    double exchange_ratio, prefill_exchange_ratio;
};

/* What one operator of a pass does: bytes that it must read, arithmetic, and the weights of its product. */
struct operator_work {
    double bytes, ops;            /* a multiply-add counts as 2 */
    int64_t rows;                 /* of activations */
    const struct format *weights; /* NULL: attention or a recurrence, which compute with floats */
    bool in_cache;                /* its bytes come from a cache, so that memory does not limit it */
};
/* The least seconds that this takes with the config's threads by the machine's ceilings; *by_memory: reading
 * is the limit, not arithmetic. NAN: no arithmetic, or a ceiling is unknown. */
double predict_operator_limit_s(const struct operator_work *w, const struct config *c,
                                const struct machine *machine, const struct machine_ceilings *ceilings,
                                bool *by_memory);

/* Prompt tokens that prefill is predicted for by default. */
enum { PREDICT_PROMPT = 512 };

/* The session to predict and how full its caches are. Every field may be 0. */
struct predict_for {
    int ctx;       /* tokens per sequence; 0: the session's default */
    int depth;     /* cached tokens per sequence during decode; 0: an eighth of ctx, at most 512 */
    int sequences; /* decoded side by side (rates are their sums); 0: one */
    int prompt;    /* prompt tokens that prefill is predicted for; 0: 512 */
    int past;      /* tokens in the cache before the prompt */
    int gen;       /* tokens decoded in a run, the first with cold caches; 0: many */
    bool on_gpu;   /* use the ceilings of the machine's GPU */
    struct conditions conditions;        /* current machine conditions */
    const struct correction *correction; /* NULL: no earlier runs */
    /* Distinct experts of batches of consecutive tokens, and of independent sequences; NULL: as stored for
     * the model file, else as if routers chose at random. Only for models with experts. */
    const struct expert_curve *experts_consecutive, *experts_apart;
    double decode_experts; /* distinct experts of a layer in a decode step of the sequences; 0: as above */
    /* With parallel=: exchanges between ranks on machines of their own, all like this one. NULL: as measured
     * for the number of ranks, on this machine or the config's hosts. */
    const struct rank_links *links;
    /* Of predict_steps: steps with rows[i] rows that all need logits, of as many independent sequences, or
     * consecutive tokens of one */
    const int *rows;
    int steps;
    bool consecutive;
};
/* The session a workload is measured in, at the middle of what it decodes. */
struct predict_for predict_for_workload(const struct workload *w);

/* What the routers of a model chose on a text (`qdyno info --experts`): distinct experts of batches, means
 * over its layers, and the layers whose choices are the least even. */
enum { STORED_EXPERT_LAYERS = 12 };
struct stored_experts {
    struct expert_curve consecutive, apart;
    char text[64];         /* name of the text; "": stored by an older version, without the following */
    int64_t tokens;        /* of the text */
    double effective_mean; /* over all layers with experts */
    int layers;
    struct stored_expert_layer {
        int layer;
        struct expert_layer use;
    } layer[STORED_EXPERT_LAYERS]; /* the fewest effective experts first */
};
/* The layers of `use`, its curves and its tokens; `text` is the file's name without folders. */
void stored_experts_of(struct stored_experts *out, const struct expert_use *use, const char *text);
/* Store them for a model file, in place of those stored before. Errors: as model_identity; ERR_IO. */
enum err_code stored_experts_save(const struct gguf *g, const struct stored_experts *x, struct err *why);
/* False: none are stored for a model of this content that uses `used` experts per token. */
bool stored_experts_find(struct stored_experts *out, const struct gguf *g, int used);
/* What is stored for all models, as a text that changes with it: "2 1764428284000000000". Returns buf. */
const char *stored_experts_state(char *buf, size_t size);

/* Predict one config. Errors: as recipe_plan_memory, recipe_plan_operations. */
enum err_code predict(struct prediction *out, const struct gguf *g, const struct config *c,
                      const struct machine *machine, const struct machine_ceilings *ceilings,
                      const struct predict_for *what, struct err *why);

/* The same for a config with parallel=; predict calls it. Prediction of one process with the threads of a
 * rank, divided as the model is, plus exchanges; docs/ranks.md states the model. */
enum err_code predict_ranks(struct prediction *out, const struct gguf *g, const struct config *c,
                            const struct machine *machine, const struct machine_ceilings *ceilings,
                            const struct predict_for *what, struct err *why);

/* Exchanges that `detect --ranks` measured, in the cache folder. hosts: file of the machines; "": this one.
 * Errors: ERR_IO, ERR_NOMEM. links_find: false where there are none. */
enum err_code links_save(const struct rank_links *l, const char *machine_id, int ranks, const char *hosts,
                         struct err *why);
bool links_find(struct rank_links *out, const char *machine_id, int ranks, const char *hosts);
/* Of a network of so many bits a second and seconds for a message, with a ring for all-gather and all-reduce.
 */
void links_of_network(struct rank_links *out, double bits_s, double latency_s, int ranks);

/* Predict the seconds of the steps what->rows, without corrections by earlier runs; what->sequences is
 * ignored. seconds [what->steps]; NAN: a ceiling is missing. Errors: as predict. */
enum err_code predict_steps(double *seconds, const struct gguf *g, const struct config *c,
                            const struct machine *machine, const struct machine_ceilings *ceilings,
                            const struct predict_for *what, struct err *why);

/* Bytes of memory that a model may use there; -1: unknown. */
int64_t predict_memory(const struct machine *m, const struct machine_ceilings *k, bool on_gpu);

/* ---------------------------------------------------------------- residuals */

/* Residuals of finished runs, which correct later predictions. */

/* What a run measured, and where. NAN: not measured. */
struct run_observation {
    const struct machine *machine;
    const struct machine_ceilings *ceilings;
    const char *model; /* path of the file */
    const struct config *config;
    const struct workload *workload;
    double decode_tok_s, prefill_tok_s, peak_bytes, load_s, token_j;
    double decode_noise, prefill_noise; /* standard errors of ln(rate), see struct residual_work */
    struct conditions conditions;
    int64_t run_id; /* 0: none */
};
/* Predict the run as it would have been predicted just before it, under its machine conditions, and store
 * prediction and measurement (db residual). Runs with the handicap knob are not recorded. Errors: as
 * gguf_open, predict, db_residual_insert; ERR_NOMEM. */
enum err_code residuals_record(struct db *d, const struct run_observation *l, struct err *why);

#endif
