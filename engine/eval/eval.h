/* engine/eval/eval.h - public header of engine/eval: measures quality by next-token likelihood.
 *
 * Perplexity of one model, and the divergence of a candidate's predictions from a reference's at the same
 * positions. Windows, scored positions and figures are defined as in llama.cpp's perplexity tool, so that
 * results can be compared. */
#ifndef QDYNO_ENGINE_EVAL_H
#define QDYNO_ENGINE_EVAL_H

#include "kernels/kernels.h"

struct expert_curve; /* engine/plan/plan.h */
struct model;
struct model_shape; /* engine/arch/arch.h */

extern const char EVAL_TEXT[]; /* path below share/ of held-out stories, the default text */

/* Called after each window with the number of windows done and their total, and the mean negative
 * log-likelihood so far. While greedy texts are compared, it counts prompts and nll is NAN. false cancels. */
typedef bool eval_progress_fn(void *arg, int64_t chunk, int64_t of, double nll);

/* Cache of one reference's logits on one text, for comparing several candidates: the scored positions of the
 * first windows, up to 256 MiB. Initialize with {0}; another text or window size clears it. The caller must
 * not use one cache with two references. */
struct logit_cache {
    float **window; /* [windows] arrays of [scored][vocab]; owned */
    int64_t windows, vocab;
    char ids[HASH_HEX]; /* SHA-256 of the text's token ids */
    int ctx;
};
void logit_cache_done(struct logit_cache *r);

struct eval_request {
    const char *text;
    size_t n;                   /* bytes of text */
    int ctx;                    /* tokens in a window */
    int64_t max_chunks;         /* use at most this many windows; 0: all */
    eval_progress_fn *progress; /* may be NULL */
    void *arg;
    /* The rest is for eval_divergence only. Greedy continuations are compared for this many prompts (0:
     * none), the first halves of windows spread over the text, each for at most this many tokens (and at most
     * the other half of the window). */
    int greedy_prompts, greedy_tokens;
    double *window_kld; /* [window_room]: receives the mean KL divergence of each window; NULL: not wanted */
    int64_t window_room;
    struct logit_cache *logit_cache; /* NULL: no cache */
};
enum { GREEDY_PROMPTS = 16, GREEDY_TOKENS = 64 }; /* what the commands use */

struct perplexity {
    double ppl, nll;        /* nll: mean nats a token; ppl: e^nll */
    double ppl_se, nll_se;  /* standard errors, clustered by window */
    double ppl_se_token;    /* standard error as llama.cpp prints it, which treats tokens as independent */
    int64_t chunks, scored; /* windows; scored tokens */
};
/* Perplexity of a text. A text that is a file of conversations (engine/chat/chat.h) is rendered by the
 * model's chat template. The text is tokenized once (with BOS if the model wants it) and cut into windows of
 * ctx ids; the rest is dropped. BOS replaces the first id of each window. Positions ctx/2 .. ctx-2 predict
 * the scored ids. Errors: ERR_USAGE (fewer than two windows: says how many tokens the text has and how many
 * are needed), ERR_CANCELLED; those of model_forward. */
enum err_code eval_perplexity(struct perplexity *out, struct model *m, const char *text, size_t n, int ctx,
                              int64_t max_chunks, eval_progress_fn *progress, void *arg, struct err *why);

/* KL divergence by depth, the amount of context a prediction had: the scored positions are divided into
 * DEPTHS pieces of equal size, as far as possible. */
enum { DEPTHS = 4 };
struct depth {
    int from, to;    /* positions in the window, from <= position < to; equal: no positions */
    double mean, se; /* nats; se clustered by window; NAN without positions */
};

/* Length of the common beginning of two greedy continuations of one prompt. For prompts whose continuations
 * never differ it is only known to exceed the limit; so the median is NAN when these are half or more. If
 * both models choose the end of text, the continuation counts as never differing. */
struct greedy_divergence {
    int prompts, diverged; /* prompts 0: not measured */
    int limit;             /* largest number of tokens compared */
    double median;         /* tokens before the first difference, median over prompts */
};

/* A candidate compared with a reference at every position that eval_perplexity scores. p is the reference's
 * distribution, q the candidate's; KL divergence is sum p ln(p/q) in nats. Standard errors are clustered by
 * window (NAN for a single window). A quantile is NAN if there are too few positions for it (99 % confidence
 * needs 7 for p50, 44 for p90, 459 for p99). */
struct divergence {
    struct perplexity reference, candidate;
    double kld_mean, kld_se, kld_p50, kld_p90, kld_p99, kld_max;
    double top1_ratio, top1_se; /* share of positions where both rank the same id first (ties: lowest id) */
    double top1_lower, top1_upper;  /* 95 % Wilson interval for the effective number of positions */
    double log_ratio, log_ratio_se; /* ln(perplexity of candidate / of reference), paired by token */
    /* Discordant pairs: positions where only one of the two ranks the text's next id first. */
    int64_t only_reference_right, only_candidate_right;
    double accuracy_reference, accuracy_candidate; /* share of positions where the first-ranked id is right */
    double accuracy_change, accuracy_change_se;    /* candidate - reference, paired, clustered by window */
    struct depth depth[DEPTHS];
    struct greedy_divergence greedy;
};
/* Compare two models (two sessions). Both process the same windows, piece by piece; memory holds the logits
 * of one piece, those in the cache (whose windows the reference skips), and 8 bytes for each scored position.
 * Both KV caches are emptied. Errors: as eval_perplexity; ERR_USAGE when the two tokenize the text
 * differently or have different vocabularies (says where); ERR_FORMAT when logits are not finite (says whose
 * and where). */
enum err_code eval_divergence(struct divergence *out, struct model *reference, struct model *candidate,
                              const struct eval_request *r, struct err *why);

/* Two models that need not read a text as the same tokens, on the same bytes of it. The text is cut into
 * pieces between words; each model reads the first half of a piece and is scored on the second half, so both
 * are scored on exactly the same bytes. Standard errors are clustered by piece. */
struct byte_comparison {
    int64_t pieces, bytes;                      /* pieces 0: not measured; bytes: scored */
    int64_t reference_tokens, candidate_tokens; /* of the scored bytes */
    double reference, candidate;                /* bits that predicting a byte takes: less is better */
    double change, change_se;                   /* candidate - reference, paired by piece; NAN unknown */
};
/* Do both models read text as the same tokens, which eval_divergence needs? ERR_USAGE: no, with the
 * difference. */
enum err_code eval_check_same_vocabulary(const struct model *reference, const struct model *candidate,
                                         struct err *why);
/* r: text, n, ctx (the most tokens of a piece), max_chunks (the most pieces), progress (its nll is NAN) and
 * arg. Both KV caches are emptied. Errors: ERR_USAGE (a model without a tokenizer; a text too short for two
 * pieces); ERR_CANCELLED; those of model_forward. */
enum err_code eval_bytes(struct byte_comparison *out, struct model *reference, struct model *candidate,
                         const struct eval_request *r, struct err *why);
/* As a member "bits_per_byte" of an object, and back; pieces is 0 without that member. */
void byte_comparison_put_json(json_t *to, const struct byte_comparison *b);
void byte_comparison_from_json(struct byte_comparison *b, const json_t *from);

/* eval_divergence with one matrix of the candidate temporarily replaced by its version in another format: the
 * sensitivity of the model to that matrix. *nmse: sum (w - w')^2 / sum w^2 of the matrix, NAN if it is all
 * zeros. Errors: those of eval_divergence; ERR_USAGE when `tensor` is not a matrix of the model, or its rows
 * are not a multiple of the format's block. */
struct substitution {
    const char *tensor; /* "blk.3.ffn_down.weight" */
    const struct format *format;
};
enum err_code eval_substitution(struct divergence *out, double *nmse, struct model *reference,
                                struct model *candidate, const struct substitution *s,
                                const struct eval_request *r, struct err *why);

/* ---------------------------------------------------------------- experts */

/* Which experts the routers of a model chose for the tokens of a text, and how many different ones worked on
 * batches of them: consecutive tokens (a prompt, or the verification of drafted tokens), and tokens of
 * independent sequences that are decoded together (the same position of different windows; not the first
 * position, where every window may have the BOS token). Batches larger than a window, or than 32 windows, are
 * not measured. */
enum { EXPERT_WINDOWS = 32 };
struct expert_use {
    int layers, experts, used; /* of the model's shape; layers without experts have no choices */
    int64_t windows, tokens;
    int64_t *count;                           /* [layers][experts] choices; owned, expert_use_done */
    struct expert_curve *consecutive, *apart; /* [layers]; all NAN for a layer without experts; owned */
};
/* r: text, n, ctx, max_chunks, progress (its nll is NAN) and arg. Runs each window once, and requests the
 * largest logit of every row. Errors: as eval_perplexity; ERR_USAGE: the model has no experts. Call
 * expert_use_done in any case. */
enum err_code eval_experts(struct expert_use *out, struct model *m, const struct eval_request *r,
                           struct err *why);
void expert_use_done(struct expert_use *u);
/* ERR_USAGE: a model of this shape has no experts. */
enum err_code expert_use_check(const struct model_shape *s, struct err *why);

/* The choices of one layer. A model that uses all experts alike has effective = experts, and each expert has
 * the share 1 / experts. */
enum { EXPERTS_HOTTEST = 3 };
struct expert_layer {
    double entropy_bits;          /* of the choices: sum -p log2 p, p = share of all choices */
    double effective;             /* 2^entropy: as many equally used experts have this entropy */
    int never;                    /* experts that no token chose */
    int hottest[EXPERTS_HOTTEST]; /* -1: there are fewer experts */
    double share[EXPERTS_HOTTEST];
};
/* False: the layer has no experts. */
bool expert_use_layer(struct expert_layer *out, const struct expert_use *u, int layer);
/* The mean of a curve over the layers that have experts: u->consecutive or u->apart. */
struct expert_curve expert_use_mean(const struct expert_use *u, const struct expert_curve *curves);

/* The figures as a JSON object and back; keys are those of `qdyno eval -o json`. Unknown values are null in
 * JSON, and NAN (-1 for counts) in the struct. The caller owns the object. */
json_t *divergence_to_json(const struct divergence *d);
void divergence_from_json(struct divergence *d, const json_t *object);
void perplexity_put_json(json_t *to, const struct perplexity *p);

#include "engine/eval/task.h"

#endif
