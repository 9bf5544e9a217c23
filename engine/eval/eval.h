/* engine/eval/eval.h - quality by next-token likelihood, computed as the field computes it: perplexity of one
 * model, and what a candidate's predictions lose against a reference's at the same positions. */
#ifndef QDYNO_ENGINE_EVAL_H
#define QDYNO_ENGINE_EVAL_H

#include "engine/engine.h"

/* progress(arg, window, of, nll so far) may be NULL; false cancels. */
typedef bool eval_progress_fn(void *arg, int64_t chunk, int64_t of, double nll);

struct eval_request {
    const char *text;
    size_t n;           /* bytes of text */
    int ctx;            /* tokens of a window */
    int64_t max_chunks; /* 0: all */
    eval_progress_fn *progress;
    void *arg;
};

struct perplexity {
    double ppl, nll;       /* nats per token */
    double ppl_se, nll_se; /* clustered by chunk */
    double ppl_se_token;   /* as the peer prints it (tokens independent), for comparison */
    int64_t chunks, scored;
};
/* Tokenize the whole text once (BOS as the model asks), cut into windows of ctx ids, drop the rest; the first
 * id of each window is replaced by BOS; positions ctx/2 .. ctx-2 predict the ids scored. max_chunks 0: all.
 * Errors: ERR_USAGE (fewer than two windows: says how many tokens the text has and how many are needed). */
enum err_code eval_perplexity(struct perplexity *out, struct model *m, const char *text, size_t n, int ctx,
                              int64_t max_chunks, eval_progress_fn *progress, void *arg, struct err *why);

/* A candidate against a reference at every position eval_perplexity scores; p is the reference's
 * distribution, q the candidate's. KL divergence is sum p ln(p/q) in nats. Standard errors are clustered by
 * chunk (NAN for one chunk). A quantile is NAN where so few positions say nothing about it (99 % confidence
 * needs 7 for p50, 44 for p90, 459 for p99). */
struct divergence {
    struct perplexity reference, candidate;
    double kld_mean, kld_se, kld_p50, kld_p90, kld_p99, kld_max;
    double top1_ratio, top1_se; /* positions where both hold the same id most likely (of equals: the first) */
    double top1_lower, top1_upper;  /* 95 %, Wilson, at as many independent positions as top1_se is worth */
    double log_ratio, log_ratio_se; /* ln(PPL of the candidate / PPL of the reference), paired by token */
};
/* Both models (two sessions) go through the same windows side by side, a piece of a window at a time; no more
 * logits than those of one piece are held, and 8 bytes for each scored position. Both caches are emptied.
 * Errors: as eval_perplexity; ERR_USAGE when the two do not read the text as the same ids of the same
 * vocabulary (says what differs); ERR_FORMAT when a model's logits are not numbers (says whose and where). */
enum err_code eval_divergence(struct divergence *out, struct model *reference, struct model *candidate,
                              const struct eval_request *r, struct err *why);

#endif
