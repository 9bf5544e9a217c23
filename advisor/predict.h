/* advisor/predict.h - what a configuration will do on a machine, before it is tried.
 *
 * The work of a forward pass is added up operation by operation: bytes of weights and of the KV cache,
 * products by format and shape, attention, the rest. How long each takes comes from the kernels' own times on
 * that machine where they were measured (`qdyno detect --kernels`), else from shares of its ceilings. Past
 * runs correct the sum and narrow its interval (learn.h). */
#ifndef QDYNO_ADVISOR_PREDICT_H
#define QDYNO_ADVISOR_PREDICT_H

#include "advisor/learn.h"
#include "engine/plan/plan.h"

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

#endif
