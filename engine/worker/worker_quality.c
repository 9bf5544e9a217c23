/* The request "quality": compares the open model's predictions with a reference's. The reference is open in
 * this process during the request, so that both models process the same batches and no logits need to be
 * stored. Two models may not fit where one did: that is checked before anything is computed. */
#include "engine/worker/worker_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/config/config.h"
#include "engine/eval/eval.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "engine/quant/quant.h"
#include "engine/text/text.h"
#include "kernels/kernels.h"

enum { WINDOW = 512 };

struct quality_run {
    struct worker *w;
    int64_t started_ns;
    char *text, *path;
    size_t n;
    struct model *reference;
    bool by_bytes; /* eval_bytes runs, which reports no likelihood */
};

static bool quality_report(void *arg, int64_t done, int64_t of, double nll)
{
    const struct quality_run *q = arg;
    return worker_progress(q->w, isnan(nll) && !q->by_bytes ? "greedy" : "eval", done, of,
                           (double)(clock_ns() - q->started_ns) * 1e-9);
}

static enum err_code read_text(struct quality_run *q, const char *file, struct err *why)
{
    enum err_code rc = ERR_OK;
    if (*file && !(q->path = strdup(file))) rc = err_set(why, ERR_NOMEM, "out of memory");
    if (!*file) rc = file_share(&q->path, EVAL_TEXT, why);
    return rc ? rc : file_read(&q->text, &q->n, q->path, TEXT_FILE_LIMIT, why);
}

enum err_code worker_quality_fits(int64_t wanted, int64_t mapped, int64_t available, struct err *why)
{
    char need[16], more[16], have[16];
    if (available < 0 || wanted + mapped <= available) return ERR_OK;
    return err_set(why, ERR_FIT,
                   "not enough memory: the reference model needs %s, the loaded model's file %s, but only %s "
                   "are available: use a smaller reference model or a shorter window (-c)",
                   str_from_bytes(wanted, need, sizeof need), str_from_bytes(mapped, more, sizeof more),
                   str_from_bytes(available, have, sizeof have));
}

/* If both models use the same file, it is in memory once. */
static enum err_code check_both_fit(const struct model *open, const struct model *reference,
                                    int64_t available, struct err *why)
{
    struct model_memory memory;
    const bool shared = !strcmp(gguf_path(model_gguf(open)), gguf_path(model_gguf(reference)));
    model_memory(open, &memory);
    const int64_t mapped = shared ? 0 : MAX(model_plan(open)->weights - memory.copied_bytes, 0);
    return worker_quality_fits(model_plan(reference)->total, mapped, available, why);
}

static enum err_code open_reference(struct quality_run *q, const json_t *about, int ctx, struct err *why)
{
    struct config config;
    struct open_progress progress = { .w = q->w, .started_ns = q->started_ns };
    const int64_t available = memory_available("");
    enum err_code rc = config_parse(&config, json_get_str(about, "config", ""), why);
    const struct model_options options = { .path = json_get_str(about, "model", ""),
                                           .config = &config,
                                           .ctx = ctx,
                                           .sequences = 1,
                                           .log = q->w->log,
                                           .shapes = json_get_str(about, "shapes", NULL),
                                           .progress = worker_report_open,
                                           .progress_arg = &progress };
    if (!rc) rc = recipe_model_open(&q->reference, &options, why);
    if (rc) return rc == ERR_CANCELLED ? rc : err_prefix(why, "reference");
    return check_both_fit(q->w->model, q->reference, available, why);
}

struct quality_figures {
    struct divergence d;
    struct byte_comparison bytes; /* pieces > 0: instead of d, because the models read different tokens ... */
    char differ[160];             /* ... and this is the difference */
};

/* Answer the request with the divergence of the worker's model from the reference. The answer to `open`
 * already contains what autotuning measured for the worker's model, so this one contains what it measured for
 * the reference. */
static void quality_run_send(struct quality_run *q, const struct quality_figures *f, int ctx)
{
    json_t *o = channel_ok(&q->w->channel);
    json_t *figures = f->bytes.pieces ? json_object() : divergence_to_json(&f->d);
    const char *slash = strrchr(q->path, '/');
    char sha256[HASH_HEX];
    hash_bytes(q->text, q->n, sha256);
    if (f->bytes.pieces) {
        byte_comparison_put_json(figures, &f->bytes);
        json_put_str(figures, "tokens_differ", f->differ);
    }
    json_put_str(figures, "file", slash ? slash + 1 : q->path);
    json_put_str(figures, "text_sha256", sha256);
    json_put_int(figures, "ctx", ctx);
    json_put(o, "quality", figures);
    worker_put_autotune(o, q->reference);
    json_put_bool(o, "random_weights",
                  model_shape(q->w->model)->random_weights || model_shape(q->reference)->random_weights);
    /* unknown: number of metadata keys and tensors that may change answers and that nothing uses (arch.h) */
    json_put_bool(o, "answers_unverified",
                  model_shape(q->w->model)->unknown || model_shape(q->reference)->unknown);
    json_put_num(o, "seconds", (double)(clock_ns() - q->started_ns) * 1e-9);
    channel_send(&q->w->channel, o);
}

static enum err_code read_request(struct eval_request *r, const json_t *request, struct err *why)
{
    const int64_t ctx = json_get_int(request, "ctx", 0), chunks = json_get_int(request, "chunks", 0);
    if (ctx < 0 || ctx > INT32_MAX || chunks < 0)
        return err_set(
            why, ERR_USAGE,
            "%lld windows of %lld tokens: expected 0 or more windows of a positive number of tokens",
            (long long)chunks, (long long)ctx);
    *r = (struct eval_request){ .ctx = ctx ? (int)ctx : WINDOW,
                                .max_chunks = chunks,
                                .progress = quality_report,
                                .greedy_prompts = json_get_bool(request, "greedy", true) ? GREEDY_PROMPTS : 0,
                                .greedy_tokens = GREEDY_TOKENS };
    return ERR_OK;
}

/* Divergence where both models read the text as the same tokens, else bits per byte. */
static enum err_code compare(struct quality_figures *f, struct quality_run *q, const struct eval_request *r,
                             struct err *why)
{
    struct err differ = { 0 };
    *f = (struct quality_figures){ 0 };
    const enum err_code rc = eval_check_same_vocabulary(q->reference, q->w->model, &differ);
    if (rc != ERR_USAGE || !model_tokenizer(q->reference) || !model_tokenizer(q->w->model))
        return eval_divergence(&f->d, q->reference, q->w->model, r, why);
    snprintf(f->differ, sizeof f->differ, "%.*s", (int)sizeof f->differ - 1, differ.message);
    q->by_bytes = true;
    return eval_bytes(&f->bytes, q->reference, q->w->model, r, why);
}

enum err_code worker_quality(struct worker *w, const json_t *request, struct err *why)
{
    struct quality_run q = { .w = w, .started_ns = clock_ns() };
    struct eval_request r;
    struct quality_figures figures;
    enum err_code rc = worker_needs_model(w, why);
    if (!rc) rc = read_request(&r, request, why);
    if (!rc) rc = read_text(&q, json_get_str(request, "file", ""), why);
    if (!rc) rc = open_reference(&q, json_object_get(request, "reference"), r.ctx, why);
    if (!rc) {
        r.text = q.text;
        r.n = q.n;
        r.arg = &q;
        rc = compare(&figures, &q, &r, why);
    }
    if (!rc) quality_run_send(&q, &figures, r.ctx);
    model_close(q.reference);
    free(q.text);
    free(q.path);
    return rc;
}
