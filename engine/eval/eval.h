/* engine/eval/eval.h - quality by next-token likelihood, computed as the field computes it. */
#ifndef QDYNO_ENGINE_EVAL_H
#define QDYNO_ENGINE_EVAL_H

#include "engine/engine.h"

struct perplexity {
    double ppl, nll;       /* nats per token */
    double ppl_se, nll_se; /* clustered by chunk */
    double ppl_se_token;   /* as the peer prints it (tokens independent), for comparison */
    int64_t chunks, scored;
};
/* Tokenize the whole text once (BOS as the model asks), cut into windows of ctx ids, drop the rest; the first
 * id of each window is replaced by BOS; positions ctx/2 .. ctx-2 predict the ids scored. max_chunks 0: all.
 * progress(ctx, chunk, of, nll so far) may be NULL; false cancels.
 * Errors: ERR_USAGE (fewer than two windows: says how many tokens the text has and how many are needed). */
typedef bool eval_progress_fn(void *arg, int64_t chunk, int64_t of, double nll);
enum err_code eval_perplexity(struct perplexity *out, struct model *m, const char *text, size_t n, int ctx,
                              int64_t max_chunks, eval_progress_fn *progress, void *arg, struct err *why);

#endif
