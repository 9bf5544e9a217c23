/* Perplexity by the rule the field uses, so that figures compare with those of other programs to the digit.
 */
#include <math.h>
#include <stdlib.h>

#include "engine/eval/eval.h"

/* A forward is asked for this many bytes of logits at most (one row at least): all rows of a window at once
 * would be hundreds of megabytes for a large vocabulary, and the memory plan knows of one row. */
enum { LOGITS_BYTES = 16 << 20 };

struct sums {
    double nll, nll_squared;     /* over tokens */
    double chunk, chunk_squared; /* over chunk means */
    int64_t scored, chunks;
};

/* -ln p of `id` under softmax(logits). */
static double surprise(const float *logits, int64_t n, int32_t id)
{
    float most = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        if (logits[i] > most) most = logits[i];
    for (int64_t i = 0; i < n; i++) sum += exp((double)(logits[i] - most));
    return log(sum) - (double)(logits[id] - most);
}

/* Feed one window and score its second half. */
static enum err_code score_window(struct sums *s, struct model *m, const int32_t *ids, int ctx,
                                  struct batch_row *rows, struct err *why)
{
    const int64_t vocab = model_shape(m)->vocab;
    const int first = ctx / 2, batch = (int)config_int(model_config(m), KNOB_BATCH);
    const int most_rows = (int)MAX(LOGITS_BYTES / (vocab * (int64_t)sizeof(float)), 1);
    double window = 0;
    model_truncate(m, 0, 0);
    for (int at = 0; at < ctx;) {
        int n = 0, wanted = 0;
        for (; at + n < ctx && n < batch && wanted < most_rows; n++) {
            const int pos = at + n;
            const bool scored = pos >= first && pos <= ctx - 2;
            rows[n] = (struct batch_row){ .token = ids[pos], .pos = pos, .logits = scored };
            wanted += scored;
        }
        enum err_code rc = model_forward(m, rows, n, why);
        if (rc) return rc;
        for (int i = 0, row = 0; i < n; i++) {
            if (!rows[i].logits) continue;
            const double nll = surprise(model_logits(m, row++), vocab, ids[at + i + 1]);
            window += nll;
            s->nll_squared += nll * nll;
        }
        at += n;
    }
    const int scored = ctx - 1 - first;
    s->nll += window;
    s->scored += scored;
    s->chunks++;
    s->chunk += window / scored;
    s->chunk_squared += (window / scored) * (window / scored);
    return ERR_OK;
}

/* Standard error of the mean of n values with these sums; NAN below two. */
static double standard_error(double sum, double squares, int64_t n)
{
    if (n < 2) return NAN;
    const double mean = sum / (double)n, variance = (squares - sum * mean) / (double)(n - 1);
    return sqrt(fmax(variance, 0) / (double)n);
}

static void finish(struct perplexity *out, const struct sums *s)
{
    const double n = (double)s->scored, mean = s->nll / n;
    *out = (struct perplexity){ .nll = mean, .ppl = exp(mean), .chunks = s->chunks, .scored = s->scored };
    /* Windows have equally many scored tokens: the mean of their means is the mean. */
    out->nll_se = standard_error(s->chunk, s->chunk_squared, s->chunks);
    out->ppl_se = out->ppl * out->nll_se;
    out->ppl_se_token = out->ppl * sqrt(fmax(s->nll_squared / n - mean * mean, 0) / (n - 1));
}

static enum err_code tokenize(struct token_list *ids, const struct model *m, const char *text, size_t n,
                              struct err *why)
{
    const struct tokenizer *t = model_tokenizer(m);
    if (!t)
        return err_set(why, ERR_USAGE, "this model has no tokenizer that can be used: text cannot be scored");
    enum err_code rc = tokenizer_encode(t, text, n, TOKENIZE_ADD_BOS, ids, why);
    for (int64_t i = 0; i < ids->n && !rc; i++)
        if (ids->ids[i] >= model_shape(m)->vocab)
            rc = err_set(why, ERR_FORMAT, "the tokenizer gives id %d, the model has only %lld", ids->ids[i],
                         (long long)model_shape(m)->vocab);
    return rc;
}

enum err_code eval_perplexity(struct perplexity *out, struct model *m, const char *text, size_t n, int ctx,
                              int64_t max_chunks, eval_progress_fn *progress, void *arg, struct err *why)
{
    if (ctx < 4 || ctx > model_ctx(m))
        return err_set(why, ERR_USAGE, "windows of %d tokens: want 4 to the session's context of %d", ctx,
                       model_ctx(m));
    struct token_list ids = { 0 };
    struct tokenizer_info info = { 0 };
    struct sums s = { 0 };
    const int batch = (int)MIN(config_int(model_config(m), KNOB_BATCH), ctx);
    struct batch_row *rows = malloc((size_t)batch * sizeof *rows);
    enum err_code rc = rows ? tokenize(&ids, m, text, n, why) : err_set(why, ERR_NOMEM, "out of memory");
    if (rc) goto done;
    tokenizer_describe(model_tokenizer(m), &info);
    if (ids.n < 2 * (int64_t)ctx) {
        rc = err_set(
            why, ERR_USAGE,
            "the text has %lld tokens, two windows of %d need %lld: use a longer text or a smaller -c",
            (long long)ids.n, ctx, 2 * (long long)ctx);
        goto done;
    }
    int64_t chunks = ids.n / ctx;
    if (max_chunks > 0) chunks = MIN(chunks, max_chunks);
    for (int64_t c = 0; c < chunks && !rc; c++) {
        int32_t *window = ids.ids + c * ctx;
        if (info.add_bos && info.bos >= 0) window[0] = info.bos;
        rc = score_window(&s, m, window, ctx, rows, why);
        if (!rc && progress && !progress(arg, c + 1, chunks, s.nll / (double)s.scored))
            rc = err_set(why, ERR_CANCELLED, "cancelled");
    }
    if (!rc) finish(out, &s);
done:
    model_truncate(m, 0, 0);
    token_list_free(&ids);
    free(rows);
    return rc;
}
