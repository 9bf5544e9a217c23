/* advisor/predict/predict.h - the public header of advisor/predict/. */
#ifndef QDYNO_ADVISOR_PREDICT_H
#define QDYNO_ADVISOR_PREDICT_H

#include "db/db.h"
#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "telemetry/telemetry.h"

/* ---------------------------------------------------------------- conditions */

/* how fast this machine is beside a run, against what it was when kernels were timed
 * here.
 *
 * What others on a host do to its memory and its cores changes decoding by half and more from one minute to
 * the next, and no sensor of this machine sees it: time that a shared core gives to somebody else is not
 * stolen, it only lasts longer. Looked at between the cells, when nothing of ours is working, it says for
 * which machine a figure holds. */

/* Of what was usual (memory) or best (cores) when kernels were timed. 0: not known. */
struct conditions {
    double memory_ratio; /* how fast a row of weights came from memory, its arithmetic included */
    double core_ratio;   /* how fast the threads worked on weights in their caches */
};

enum { CONDITIONS_LOOKS = 512 };
struct conditions_watch {
    struct backend *backend; /* owned */
    struct pacer *pace;      /* owned; NULL: there is nothing to compare with */
    int threads;
    double read_then_s, compute_then_s;
    double read_now_s[CONDITIONS_LOOKS], compute_now_s[CONDITIONS_LOOKS]; /* the last since the restart */
    int looks;                                                            /* since then */
};
/* For work that so many threads do. Where kernels were not timed with them it looks at nothing.
 * conditions_watch_close in any case. Errors: as backend_open, backend_reserve. */
enum err_code conditions_watch_open(struct conditions_watch *w, int threads,
                                    const struct machine_ceilings *ceilings, struct err *why);
void conditions_watch_close(struct conditions_watch *w);
void conditions_watch_restart(struct conditions_watch *w);
/* Takes some forty milliseconds. Of one thread it looks at the processor that the first thread of process
 * `pid` ran on last (0: anywhere), and leaves it for the process: those of a virtual machine are not equally
 * fast at a time. */
void conditions_watch_look(struct conditions_watch *w, int pid);
struct conditions conditions_of(const struct conditions_watch *w);

/* ---------------------------------------------------------------- losses */

/* what earlier runs measured of a model's answers: KL divergence against the file as it
 * is, by those settings of a configuration that decide what it says. */

/* The part of a configuration that decides what the model says, as a line; "default" when it is the file as
 * it is.
 */
void answer_line(const struct config *c, char *out, size_t size);

struct loss {
    char answer[640];
    double kld;     /* mean, nats a token, of the newest measurement */
    int64_t run_id; /* that measured it */
};
struct losses {
    struct loss *row; /* [n] */
    int n;
};

/* Of the model in that file, from evals, tunes and A/B runs whose reference was the file as it is. A model
 * the database has never seen has none, and is not hashed to find out. *out: losses_free, also after an
 * error. Errors: as gguf_open, db_*; ERR_NOMEM. */
enum err_code losses_load(struct losses *out, struct db *d, const char *model_path, struct err *why);
void losses_free(struct losses *l);

/* Of a configuration; NULL: nobody measured it. */
const struct loss *losses_find(const struct losses *l, const struct config *c);

/* ---------------------------------------------------------------- learn */

/* what past runs teach about predictions.
 *
 * After every run on this machine the prediction made before it and what was measured are kept (db residual).
 * Runs that share a model, a recipe, a thread count ... with a new question share what the cost model got
 * wrong there: the logarithm of measured / predicted is a sum of unknowns, one for each thing in common (a
 * Gaussian process whose covariance counts what two runs share). The correction is its mean, the interval its
 * spread: it narrows where much like this was measured, and stays wide elsewhere. */

/* What two runs may have in common; LESSON_TRAITS has the names and what each weighs. */
enum lesson_trait {
    TRAIT_MODEL,
    TRAIT_RECIPE,
    TRAIT_THREADS,
    TRAIT_KV,
    TRAIT_PRODUCTS, /* precision, act, isa */
    TRAIT_MEMORY,   /* hugepages, prefetch */
    TRAIT_WORK,     /* depth, batch and sequences, by powers of four */
    TRAIT_COUNT
};
struct lesson_traits {
    /* "model=llama/1100048384 recipe=q4_0 ... reading=0.66 pace=0.93 core=0.98 noise=0.021" */
    char text[256];
    uint64_t hash[TRAIT_COUNT];
    double reading, noise;
    struct conditions now;
};
/* What was done. A memory that is slower than it was when kernels were timed (others use it, too) slows work
 * down as far as it waits for it, and cores that others use as well slow down the rest, whatever the model.
 * Where both were looked at beside the run, the prediction knows, and the run says the more about everything
 * else. */
struct lesson_work {
    int depth, batch, sequences, threads; /* threads that really ran */
    double reading;                       /* share of the predicted time that is waiting for memory: 0 .. 1 */
    double noise; /* standard error of the rate's logarithm, by its repetitions; 0: nobody knows */
    struct conditions now;
};
void lesson_traits_of(struct lesson_traits *out, const struct model_shape *shape, const struct config *c,
                      const struct lesson_work *w);

struct lessons; /* of one machine and basis; immutable once loaded, may be read by several threads */

/* What predictions stand on: rows of another basis cannot correct them. Into buf. Returns buf. */
const char *lessons_basis(const struct machine_ceilings *c, char *buf, size_t size);
/* d NULL or nothing known: lessons that teach nothing. *out owned: lessons_free. ERR_NOMEM, as db_*. */
enum err_code lessons_load(struct lessons **out, struct db *d, const char *machine_id,
                           const struct machine_ceilings *c, struct err *why);
void lessons_free(struct lessons *l); /* NULL is fine */

/* A prediction with its interval: nine in ten shall lie in it. */
struct estimate {
    double value, low, high;
    int runs; /* that taught it something */
};
/* sd: of ln(measured / untaught) before anything was measured. l NULL: only the interval. */
struct estimate lessons_correct(const struct lessons *l, const char *metric, const struct lesson_traits *t,
                                double untaught, double sd);

/* Share of predictions: how good they were. Rows as they were told, so each before it was measured. */
struct accuracy {
    char metric[48];
    int n, within_10, within_20, in_interval;
    double median_error; /* of |predicted / measured - 1| */
    double bias;         /* mean ln(measured / predicted) */
};
enum { ACCURACY_MAX = 8 };
/* Returns how many were filled. */
int accuracy_of(struct accuracy out[ACCURACY_MAX], const struct residual_row *rows, int n);

/* ---------------------------------------------------------------- predict */

/* what a configuration will do on a machine, before it is tried.
 *
 * The work of a forward pass is added up operation by operation: bytes of weights and of the KV cache,
 * products by format and shape, attention, the rest. How long each takes comes from the kernels' own times on
 * that machine where they were measured (`qdyno detect --kernels`), else from shares of its ceilings. Past
 * runs correct the sum and narrow its interval (predict.h). */

/* Rates are predictions, *_low to *_high hold what is measured nine times in ten; *_limit is the machine's
 * own limit for this work (bytes over bandwidth, operations over arithmetic). NAN when a ceiling is missing.
 */
struct prediction {
    double decode_tok_s, decode_low, decode_high;
    double prefill_tok_s, prefill_low, prefill_high;
    double decode_limit_tok_s, prefill_limit_tok_s;
    double load_s, load_low_s, load_high_s;    /* from the page cache, the recipe made before */
    double token_j, token_low_j, token_high_j; /* of decoding; NAN: nothing is known of power */
    double token_untaught_j; /* the same without past runs, by a guess where nothing is known of power */
    double peak_bytes, peak_low_bytes, peak_high_bytes; /* of the process: the plan and the program */
    struct memory_plan plan;
    bool fits;
    int depth;                   /* tokens in each cache that decode was predicted at */
    bool in_cache;               /* weights fit in the last cache: memory's bandwidth is no limit */
    bool decode_bound_by_memory; /* else by arithmetic */
    int decode_threads;          /* 1 where every call of decoding is too small for more; 0: a device's */
    bool on_gpu;                 /* predicted for the machine's GPU */
    bool assumed; /* some kernel's time was not measured on that machine: the interval is wide */
    struct lesson_work decode_work, prefill_work; /* what runs of this teach about */
    int runs;                                     /* past runs that the decode rate learned from */
};

/* An eighth of the context, at most 512: where a chat usually is. The check commands measure there. */
int predict_depth(int ctx);

/* What is predicted: a session, and how full it is. All may be 0. */
struct predict_for {
    int ctx;                       /* of each sequence; 0: as the session would take it */
    int depth;                     /* tokens in each cache while decoding; 0: predict_depth(ctx) */
    int sequences;                 /* that decode side by side: the rates are their sums; 0: one */
    int prompt;                    /* tokens of each prompt that prefill is predicted for; 0: 512 */
    int past;                      /* tokens in the cache before the prompt */
    int gen;                       /* tokens of a run, of which the first finds nothing in caches; 0: many */
    bool on_gpu;                   /* by the ceilings of the machine's GPU */
    struct conditions now;         /* beside it */
    const struct lessons *lessons; /* NULL: nothing was learned */
};
/* The session that a workload is timed in, and the middle of what it decodes. */
struct predict_for predict_for_workload(const struct workload *w);

/* Errors: as recipe_plan_memory. */
enum err_code predict(struct prediction *out, const struct gguf *g, const struct config *c,
                      const struct machine *machine, const struct machine_ceilings *ceilings,
                      const struct predict_for *what, struct err *why);

/* Bytes that a model may take there; -1 unknown. */
int64_t predict_memory(const struct machine *m, const struct machine_ceilings *k, bool on_gpu);

/* ---------------------------------------------------------------- teach */

/* what runs leave behind for the next prediction (predict.h reads it). */

/* What a run measured, for the next prediction: NAN where it did not. */
struct lesson {
    const struct machine *machine;
    const struct machine_ceilings *ceilings;
    const char *model; /* path */
    const struct config *config;
    const struct workload *workload;
    double decode_tok_s, prefill_tok_s, peak_bytes, load_s, token_j;
    double decode_noise, prefill_noise; /* struct lesson_work */
    struct conditions now;
    int64_t run_id; /* 0: none */
};
/* Predict as it would have been told just now, for how fast the machine was, and keep that beside what was
 * measured. */
enum err_code lesson_keep(struct db *d, const struct lesson *l, struct err *why);

#endif
