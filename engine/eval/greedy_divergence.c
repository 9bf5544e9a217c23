/* Compares greedy continuations. A mean divergence does not tell when a reader would notice a difference. The
 * greedy texts of two models are identical up to the first token where their most likely tokens differ. So
 * both models run in step on the same tokens and stop at the first difference. */
#include "engine/eval/greedy_divergence.h"

#include <math.h>
#include <stdlib.h>

#include "engine/eval/statistics.h"

struct greedy_run {
    struct model *reference, *candidate;
    struct batch_row *rows;            /* [half a window] */
    const struct tokenizer *tokenizer; /* of the reference: knows where answers end */
    int limit;
};

/* Run the same rows through both models and return the token that each ranks first. */
static enum err_code greedy_step(struct greedy_run *g, int n, int32_t chosen[2], struct err *why)
{
    struct model *const both[2] = { g->reference, g->candidate };
    for (int i = 0; i < 2; i++) {
        enum err_code rc = model_forward_best(both[i], g->rows, n, &chosen[i], why);
        if (rc) return err_prefix(why, i ? "candidate" : "reference");
    }
    return ERR_OK;
}

/* *same: number of tokens before the first difference; -1: none within the limit. */
static enum err_code greedy_compare_prompt(struct greedy_run *g, const int32_t *ids, int prompt, int *same,
                                           struct err *why)
{
    int32_t chosen[2];
    model_truncate(g->reference, 0, 0);
    model_truncate(g->candidate, 0, 0);
    for (int i = 0; i < prompt; i++)
        g->rows[i] = (struct batch_row){ .token = ids[i], .pos = i, .logits = i == prompt - 1 };
    enum err_code rc = greedy_step(g, prompt, chosen, why);
    for (int tokens = 0; !rc; tokens++) {
        *same = tokens;
        if (chosen[0] != chosen[1]) return ERR_OK;
        *same = -1;
        if (tokenizer_ends(g->tokenizer, chosen[0]) || tokens + 1 == g->limit) return ERR_OK;
        g->rows[0] = (struct batch_row){ .token = chosen[0], .pos = prompt + tokens, .logits = true };
        rc = greedy_step(g, 1, chosen, why);
    }
    return rc;
}

enum err_code eval_greedy_divergence(struct greedy_divergence *out, struct model *reference,
                                     struct model *candidate, struct windows *w, const struct eval_request *r,
                                     struct err *why)
{
    const int prompt = w->ctx / 2, prompts = (int)MIN(r->greedy_prompts, w->count);
    struct greedy_run g = { .reference = reference,
                            .candidate = candidate,
                            .limit = MIN(r->greedy_tokens, w->ctx - prompt) };
    *out = (struct greedy_divergence){ .median = NAN };
    if (prompts < 1 || g.limit < 1) return ERR_OK;
    g.tokenizer = model_tokenizer(reference);
    g.rows = malloc((size_t)prompt * sizeof *g.rows);
    int *same = malloc((size_t)prompts * sizeof *same);
    enum err_code rc = g.rows && same ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
    for (int i = 0; i < prompts && !rc; i++) {
        rc = greedy_compare_prompt(&g, windows_get(w, i * w->count / prompts), prompt, &same[i], why);
        if (!rc && r->progress && !r->progress(r->arg, i + 1, prompts, NAN))
            rc = err_set(why, ERR_CANCELLED, "cancelled");
    }
    if (!rc) greedy_divergence_finish(out, same, prompts, g.limit);
    free(g.rows);
    free(same);
    return rc;
}
