#include "advisor/experiment/quality_context.h"

#include <stdio.h>
#include <stdlib.h>

#include "advisor/experiment/experiment.h"
#include "engine/chat/chat.h"
#include "engine/gguf/gguf.h"
#include "engine/import/import.h"
#include "engine/plan/plan.h"
#include "engine/text/text.h"
#include "kernels/kernels.h"

/* Tokens of the text that quality is measured on, and the context that the model was trained with. */
static enum err_code text_and_context(struct quality_context *c, const char *model_path,
                                      const char *text_file, struct err *why)
{
    enum { TEXT_MOST = 64 << 20 };
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    struct memory_estimate about;
    struct token_list ids = { 0 };
    char *text = NULL;
    size_t n = 0;
    enum err_code rc = model_file_open(&g, model_path, why);
    if (!rc) rc = memory_estimate_read(&about, g, 0, format_find("f16"), format_find("f16"), why);
    if (!rc) rc = tokenizer_open(&t, g, why);
    if (!rc) rc = file_read(&text, &n, text_file, TEXT_MOST, why);
    if (!rc) rc = text_encode(g, t, text, n, &ids, why);
    if (!rc) {
        c->text = ids.n;
        c->trained = about.ctx_train;
    }
    token_list_free(&ids);
    free(text);
    tokenizer_close(t);
    gguf_close(g);
    return rc;
}

void quality_context_choose(struct quality_context *out, const struct workload *w, const char *model_path,
                            const char *text_file, int least)
{
    struct err ignored;
    const bool has_length = !w->train && !*w->eval_file && !workload_is_load(w);
    *out = (struct quality_context){ .wanted = has_length ? workload_ctx(w) : 0, .ctx = least };
    if (out->wanted <= least || text_and_context(out, model_path, text_file, &ignored)) return;
    out->ctx = (int)MAX(MIN(out->wanted, MIN(out->text, out->trained)), (int64_t)least);
}

int quality_context_default_windows(int ctx)
{
    return quality_context_windows(ctx, QUALITY_CHUNKS, QUALITY_CTX, QUALITY_LEAST_LONG);
}

int quality_context_windows(int ctx, int windows, int usual, int fewest)
{
    return ctx > usual ? MAX(MIN(fewest, windows), (int)((int64_t)windows * usual / ctx)) : windows;
}

void experiment_quality_follow(struct quality_context *out, struct experiment_spec *s, bool own_chunks)
{
    const char *own = config_text(&s->config[0], KNOB_MODEL); /* arm A is the reference */
    *out = (struct quality_context){ .ctx = QUALITY_CTX };
    if (!*s->quality_file) return;
    quality_context_choose(out, &s->workload, *own ? own : s->model, s->quality_file, QUALITY_CTX);
    if (out->ctx == QUALITY_CTX) return; /* 0 in the specification, as in earlier versions */
    s->quality_ctx = out->ctx;
    s->quality_ctx_least = QUALITY_CTX;
    if (!own_chunks) s->quality_chunks = quality_context_default_windows(out->ctx);
}

const char *quality_context_text(char buf[QUALITY_CONTEXT_TEXT], const struct quality_context *c)
{
    *buf = '\0';
    if (c->wanted <= c->ctx) return buf;
    const int n = snprintf(buf, QUALITY_CONTEXT_TEXT,
                           "quality is measured in windows of %d tokens and not at the workload's %d", c->ctx,
                           c->wanted);
    if (c->text > 0)
        snprintf(buf + n, (size_t)(QUALITY_CONTEXT_TEXT - n),
                 ": the text has %lld tokens, and the model was trained on contexts of %lld",
                 (long long)c->text, (long long)c->trained);
    return buf;
}
