/* Compares a candidate's predictions with a reference's. Both run at the same time, so logits of a whole text
 * (vocabulary x positions) are never stored. Every difference is taken at one position, so variation that the
 * text causes in both (words that are hard to predict) cancels. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/eval/greedy_divergence.h"
#include "engine/eval/statistics.h"
#include "engine/eval/logit_cache.h"
#include "engine/eval/windows.h"
#include "engine/model/model.h"
#include "engine/text/text.h"
#include "engine/arch/arch.h"

/* ---------------------------------------------------------------- checking that both read the same tokens */

/* Check that every token id means the same text in both tokenizers. ERR_USAGE. */
static enum err_code check_same_pieces(const struct tokenizer *a, const struct tokenizer *b, int32_t n,
                                       struct err *why)
{
    struct str x = { 0 }, y = { 0 };
    enum err_code rc = ERR_OK;
    for (int32_t id = 0; id < n && !rc; id++) {
        str_clear(&x);
        str_clear(&y);
        rc = tokenizer_piece(a, id, true, &x, why);
        if (!rc) rc = tokenizer_piece(b, id, true, &y, why);
        if (!rc && (x.len != y.len || memcmp(str_text(&x), str_text(&y), x.len)))
            rc = err_set(
                why, ERR_USAGE,
                "token id %d is '%.40s' in the reference and '%.40s' in the candidate: comparing predictions "
                "needs the same vocabulary",
                id, str_text(&x), str_text(&y));
    }
    str_free(&x);
    str_free(&y);
    return rc;
}

enum err_code eval_check_same_vocabulary(const struct model *a, const struct model *b, struct err *why)
{
    const struct tokenizer *x = model_tokenizer(a), *y = model_tokenizer(b);
    struct tokenizer_info i, j;
    if (!x || !y)
        return err_set(
            why, ERR_USAGE,
            "the %s has no usable tokenizer, so it cannot be checked that both models read the text as "
            "the same tokens",
            x ? "candidate" : "reference");
    tokenizer_describe(x, &i);
    tokenizer_describe(y, &j);
    if (model_shape(a)->vocab != model_shape(b)->vocab || i.n_vocab != j.n_vocab)
        return err_set(why, ERR_USAGE,
                       "the reference has a vocabulary of %lld tokens, the candidate of %lld: comparing "
                       "predictions needs the same vocabulary",
                       (long long)model_shape(a)->vocab, (long long)model_shape(b)->vocab);
    return check_same_pieces(x, y, i.n_vocab, why);
}

/* Check that both models read the text as the same token ids. ERR_USAGE names the first difference. */
static enum err_code check_same_ids(const struct windows *a, const struct windows *b, struct err *why)
{
    if (a->bos != b->bos)
        return err_set(
            why, ERR_USAGE,
            "windows start with token id %d for the reference and %d for the candidate (-1: no BOS)", a->bos,
            b->bos);
    for (int64_t i = 0; i < MIN(a->ids.n, b->ids.n); i++)
        if (a->ids.ids[i] != b->ids.ids[i])
            return err_set(
                why, ERR_USAGE,
                "token %lld of the text is id %d for the reference and %d for the candidate: both must "
                "tokenize the text alike",
                (long long)i, a->ids.ids[i], b->ids.ids[i]);
    if (a->ids.n != b->ids.n)
        return err_set(why, ERR_USAGE,
                       "the text has %lld tokens for the reference and %lld for the candidate: both must "
                       "tokenize it alike",
                       (long long)a->ids.n, (long long)b->ids.n);
    return ERR_OK;
}

/* Cut the text into windows, which must be the same for both models. */
static enum err_code windows_cut_both(struct windows *w, const struct model *reference,
                                      const struct model *candidate, const struct eval_request *r,
                                      struct err *why)
{
    struct windows other = { 0 };
    *w = (struct windows){ 0 };
    enum err_code rc = eval_check_same_vocabulary(reference, candidate, why);
    if (rc) return rc;
    rc = windows_cut(w, reference, r, why);
    if (!rc) rc = windows_cut(&other, candidate, r, why);
    if (!rc) rc = check_same_ids(w, &other, why);
    windows_done(&other);
    return rc;
}

/* ---------------------------------------------------------------- comparing */

struct pair {
    struct model *reference, *candidate;
    struct logit_cache_pass cached;
    struct batch_row *rows; /* [ctx] */
    struct divergence_sums sums;
};

static enum err_code position_not_finite(const struct position *p, int64_t window, int pos, struct err *why)
{
    return err_set(why, ERR_FORMAT, "the %s's logits are not finite numbers at position %d of window %lld",
                   isfinite(p->nll_reference) ? "candidate" : "reference", pos, (long long)window);
}

/* Compare the predictions for the scored rows of a piece. `done` positions of this window were scored before
 * it. */
static enum err_code pair_compare_piece(struct pair *p, const int32_t *ids, int64_t window, int at, int n,
                                        int done, struct err *why)
{
    const int64_t vocab = model_shape(p->reference)->vocab;
    for (int i = 0, row = 0; i < n; i++) {
        if (!p->rows[i].logits) continue;
        const float *reference_logits = p->cached.known ? logit_cache_get(&p->cached, done + row)
                                                        : model_logits(p->reference, row);
        const struct position q = position_compare(reference_logits, model_logits(p->candidate, row), vocab,
                                                   ids[at + i + 1]);
        if (!isfinite(q.kld) || !isfinite(q.nll_reference) || !isfinite(q.nll_candidate))
            return position_not_finite(&q, window, at + i, why);
        if (!p->cached.known) logit_cache_put(&p->cached, done + row, reference_logits);
        divergence_add(&p->sums, &q);
        row++;
    }
    return ERR_OK;
}

/* Run one window through both models, piece by piece, and compare all scored positions. */
static enum err_code pair_compare_window(struct pair *p, const int32_t *ids, int64_t window, int ctx,
                                         struct err *why)
{
    const int most = windows_most_scored(p->reference, 2);
    int n, scored, done = 0;
    model_truncate(p->reference, 0, 0);
    model_truncate(p->candidate, 0, 0);
    logit_cache_open_window(&p->cached, window);
    /* model_forward splits the rows by its own batch size. */
    for (int at = 0; (n = windows_piece(p->rows, ids, ctx, at, ctx, most, &scored)) > 0; at += n) {
        enum err_code rc = p->cached.known ? ERR_OK : model_forward(p->reference, p->rows, n, why);
        if (rc) return err_prefix(why, "reference");
        if ((rc = model_forward(p->candidate, p->rows, n, why))) return err_prefix(why, "candidate");
        if ((rc = pair_compare_piece(p, ids, window, at, n, done, why))) return rc;
        done += scored;
    }
    logit_cache_close_window(&p->cached, done);
    divergence_close_window(&p->sums);
    return ERR_OK;
}

/* Mean KL divergence of the last window. */
static double window_mean(const struct divergence_sums *m, int scored)
{
    double sum = 0;
    for (int64_t i = m->n - scored; i < m->n; i++) sum += m->klds[i];
    return sum / scored;
}

enum err_code eval_divergence(struct divergence *out, struct model *reference, struct model *candidate,
                              const struct eval_request *r, struct err *why)
{
    struct pair p = { .reference = reference, .candidate = candidate };
    struct windows w;
    assert(reference != candidate);
    enum err_code rc = windows_cut_both(&w, reference, candidate, r, why);
    if (!rc) logit_cache_begin(&p.cached, r->logit_cache, &w, model_shape(reference)->vocab);
    if (!rc) rc = divergence_sums_init(&p.sums, w.count, windows_scored(r->ctx), why);
    if (!rc && !(p.rows = malloc((size_t)r->ctx * sizeof *p.rows)))
        rc = err_set(why, ERR_NOMEM, "out of memory");
    for (int64_t c = 0; c < w.count && !rc; c++) {
        rc = pair_compare_window(&p, windows_get(&w, c), c, r->ctx, why);
        if (!rc && r->window_kld && c < r->window_room)
            r->window_kld[c] = window_mean(&p.sums, windows_scored(r->ctx));
        if (!rc && r->progress && !r->progress(r->arg, c + 1, w.count, p.sums.candidate.nll.mean))
            rc = err_set(why, ERR_CANCELLED, "cancelled");
    }
    if (!rc) divergence_finish(out, &p.sums, r->ctx / 2);
    if (!rc) rc = eval_greedy_divergence(&out->greedy, reference, candidate, &w, r, why);
    if (!rc) rc = gguf_check_unchanged(model_gguf(reference), why);
    if (!rc) rc = gguf_check_unchanged(model_gguf(candidate), why);
    model_truncate(reference, 0, 0);
    model_truncate(candidate, 0, 0);
    divergence_sums_done(&p.sums);
    logit_cache_end(&p.cached);
    windows_done(&w);
    free(p.rows);
    return rc;
}
