/* Cuts a text into windows and decides which positions are scored. */
#include "engine/eval/windows.h"
#include "engine/chat/chat.h"
#include "engine/model/model.h"
#include "engine/text/text.h"
#include "engine/arch/arch.h"

/* Limit for the logits of one forward pass in bytes (at least one row). All rows of a window at once would
 * take hundreds of megabytes for a large vocabulary, and the memory estimate only includes one row. */
enum { LOGITS_BYTES = 16 << 20 };

int windows_scored(int ctx)
{
    return ctx - 1 - ctx / 2;
}

int windows_most_scored(const struct model *m, int models)
{
    const int64_t row = model_shape(m)->vocab * (int64_t)sizeof(float);
    return (int)MAX(LOGITS_BYTES / (row * models), 1);
}

int windows_piece(struct batch_row *rows, const int32_t *ids, int ctx, int at, int at_most, int most_scored,
                  int *scored)
{
    int n = 0;
    *scored = 0;
    for (; at + n < ctx && n < at_most && *scored < most_scored; n++) {
        const int pos = at + n;
        const bool is_scored = pos >= ctx / 2 && pos <= ctx - 2;
        rows[n] = (struct batch_row){ .token = ids[pos], .pos = pos, .logits = is_scored };
        *scored += is_scored;
    }
    return n;
}

int32_t *windows_get(struct windows *w, int64_t i)
{
    int32_t *ids = w->ids.ids + i * w->ctx;
    if (w->bos >= 0) ids[0] = w->bos;
    return ids;
}

/* Tokenize the request's text and check all ids against the vocabulary. */
static enum err_code windows_tokenize(struct token_list *ids, const struct model *m,
                                      const struct eval_request *r, struct err *why)
{
    const struct tokenizer *t = model_tokenizer(m);
    if (!t) return err_set(why, ERR_USAGE, "this model has no usable tokenizer, so it cannot score text");
    enum err_code rc = text_encode(model_gguf(m), t, r->text, r->n, ids, why);
    for (int64_t i = 0; i < ids->n && !rc; i++)
        if (ids->ids[i] >= model_shape(m)->vocab)
            rc = err_set(why, ERR_FORMAT,
                         "the tokenizer produced id %d, but the model's vocabulary has only %lld",
                         ids->ids[i], (long long)model_shape(m)->vocab);
    return rc;
}

enum err_code windows_cut(struct windows *w, const struct model *m, const struct eval_request *r,
                          struct err *why)
{
    struct tokenizer_info info = { 0 };
    *w = (struct windows){ .ctx = r->ctx, .bos = -1 };
    if (r->ctx < 4 || r->ctx > model_ctx(m))
        return err_set(why, ERR_USAGE, "windows of %d tokens: expected 4 to %d, the session's context",
                       r->ctx, model_ctx(m));
    enum err_code rc = windows_tokenize(&w->ids, m, r, why);
    if (rc) return rc;
    if (w->ids.n < 2 * (int64_t)r->ctx)
        return err_set(
            why, ERR_USAGE,
            "the text has %lld tokens, two windows of %d need %lld: use a longer text or a smaller -c",
            (long long)w->ids.n, r->ctx, 2 * (long long)r->ctx);
    tokenizer_describe(model_tokenizer(m), &info);
    if (info.add_bos) w->bos = info.bos;
    w->count = w->ids.n / r->ctx;
    if (r->max_chunks > 0) w->count = MIN(w->count, r->max_chunks);
    return ERR_OK;
}

void windows_done(struct windows *w)
{
    token_list_free(&w->ids);
}
