/* engine/eval/eval.h - quality by next-token likelihood, computed as the field computes it: perplexity of one
 * model, and what a candidate's predictions lose against a reference's at the same positions. */
#ifndef QDYNO_ENGINE_EVAL_H
#define QDYNO_ENGINE_EVAL_H

#include "kernels/kernels.h"

struct model;

extern const char EVAL_TEXT[]; /* of share/: held-out stories, for when no text is named */

/* progress(arg, window, of, nll so far) may be NULL; false cancels. While greedy texts are compared it is
 * called with the number of prompts done and NAN. */
typedef bool eval_progress_fn(void *arg, int64_t chunk, int64_t of, double nll);

/* What one reference said of one text, kept for the next candidate: its logits at the scored positions of the
 * first windows, as far as 256 MiB go. Starts as {0}; of another text or window it begins anew.
 * Belongs to one reference: the caller's word. */
struct logit_cache {
    float **window; /* [windows] of [scored][vocab]; owned */
    int64_t windows, vocab;
    uint64_t ids; /* of the text, as a hash */
    int ctx;
};
void logit_cache_done(struct logit_cache *r);

struct eval_request {
    const char *text;
    size_t n;           /* bytes of text */
    int ctx;            /* tokens of a window */
    int64_t max_chunks; /* 0: all */
    eval_progress_fn *progress;
    void *arg;
    /* eval_divergence only: greedy continuations of both are compared after so many prompts (0: none), the
     * first halves of windows spread over the text, for this many tokens at most (the window's other half if
     * that is less). */
    int greedy_prompts, greedy_tokens;
    /* eval_divergence only: the mean KL divergence of each window, for those who compare two candidates
     * window by window; [window_room], unused ones stay as they are; NULL: not asked. */
    double *window_kld;
    int64_t window_room;
    /* eval_divergence only: where several candidates are held against one reference; NULL: nothing is kept */
    struct logit_cache *logit_cache;
};
enum { GREEDY_PROMPTS = 16, GREEDY_TOKENS = 64 }; /* what the programs ask for */

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

/* KL divergence by how much context a prediction had: scored positions cut into DEPTHS pieces as equal as
 * they can be. */
enum { DEPTHS = 4 };
struct depth {
    int from, to;    /* positions in the window, `to` not in it; equal: no positions */
    double mean, se; /* nats, clustered by chunk; NAN without positions */
};

/* How long two greedy continuations of one prompt stay the same. A prompt after which they never differ says
 * only "longer than the limit", so the median is NAN when that is so for half of the prompts or more. An end
 * of text that both choose ends a continuation that never differed. */
struct greedy_divergence {
    int prompts, diverged; /* 0 prompts: not asked */
    int limit;             /* tokens a continuation has at most */
    double median;         /* tokens before the first difference, over prompts */
};

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
    /* Positions where the most likely id is the text's next one, for only one of the two: discordant pairs */
    int64_t only_reference_right, only_candidate_right;
    double accuracy_reference, accuracy_candidate; /* share of positions that were predicted right */
    double accuracy_change, accuracy_change_se;    /* candidate - reference, paired, clustered */
    struct depth depth[DEPTHS];
    struct greedy_divergence greedy;
};
/* Both models (two sessions) go through the same windows side by side, a piece of a window at a time; no more
 * logits than those of one piece are held (and what `logit_cache` keeps: those windows the reference does not
 * read again), and 8 bytes for each scored position. Both caches are emptied. Errors: as eval_perplexity;
 * ERR_USAGE when the two do not read the text as the same ids of the same vocabulary (says what differs);
 * ERR_FORMAT when a model's logits are not numbers (says whose and where). */
enum err_code eval_divergence(struct divergence *out, struct model *reference, struct model *candidate,
                              const struct eval_request *r, struct err *why);

/* The same with one matrix of the candidate in another format for the time of the call: what that matrix
 * costs alone. *nmse: sum (w - w')^2 / sum w^2 of it, NAN of zeros. Errors: those of eval_divergence;
 * ERR_USAGE when it is no matrix of the model or its rows do not fill the format's blocks. */
struct substitution {
    const char *tensor; /* "blk.3.ffn_down.weight" */
    const struct format *format;
};
enum err_code eval_substitution(struct divergence *out, double *nmse, struct model *reference,
                                struct model *candidate, const struct substitution *s,
                                const struct eval_request *r, struct err *why);

/* The figures as an object and back; keys are those of `qdyno eval -o json`. Unknown is null on the way out
 * and NAN (-1 for a count) on the way in. New reference. */
json_t *divergence_to_json(const struct divergence *d);
void divergence_from_json(struct divergence *d, const json_t *object);
void perplexity_put_json(json_t *to, const struct perplexity *p);

#endif
