/* One timed run. What is asked is fixed by workload and seed and hashed, so that two arms can be shown to
 * have done the same; only forward passes and the choice of the next token are on the clock. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/eval/eval.h"

enum { SAMPLE_LIMIT = 64 << 20, REPORT_NS = 100000000 };

/* A run in progress. */
struct cell {
    struct cell_result *out;
    struct model *m;
    const struct workload *w;
    cell_progress_fn *progress;
    void *ctx;
    int32_t *prompt; /* [depth + max(prompt, 1)] ids */
    int prompt_count;
    int32_t *output; /* [gen] */
    struct batch_row *rows;
    int64_t reported_ns;
};

/* At most every 100 ms, but always at the end of a phase. */
static enum err_code tell(struct cell *c, const char *phase, int done, int of, double seconds,
                          struct err *why)
{
    const int64_t now = clock_ns();
    if (!c->progress || (done < of && now - c->reported_ns < REPORT_NS)) return ERR_OK;
    c->reported_ns = now;
    if (c->progress(c->ctx, phase, done, of, seconds)) return ERR_OK;
    return err_set(why, ERR_CANCELLED, "cancelled");
}

/* ---------------------------------------------------------------- what is asked */

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

/* The bundled text as ids, without BOS. */
static enum err_code sample_ids(struct token_list *ids, const struct tokenizer *t, struct err *why)
{
    char *path, *text = NULL;
    size_t n;
    enum err_code rc = file_share(&path, "text/sample.txt", why);
    if (rc) return rc;
    rc = file_read(&text, &n, path, SAMPLE_LIMIT, why);
    free(path);
    if (!rc) rc = tokenizer_encode(t, text, n, 0, ids, why);
    if (!rc && ids->n == 0) rc = err_set(why, ERR_FORMAT, "the bundled text gives no tokens");
    free(text);
    return rc;
}

/* Prompt ids: real text from a seeded place on, again from its start when it is too short; without a
 * tokenizer, seeded ids. BOS comes first where the model wants one. */
static enum err_code make_prompt(struct cell *c, uint64_t seed, struct err *why)
{
    const struct tokenizer *t = model_tokenizer(c->m);
    const int64_t vocab = model_shape(c->m)->vocab;
    struct token_list text = { 0 };
    int at = 0;
    enum err_code rc = ERR_OK;
    if (t) {
        struct tokenizer_info info;
        tokenizer_describe(t, &info);
        if ((rc = sample_ids(&text, t, why))) goto done;
        if (info.add_bos && info.bos >= 0) c->prompt[at++] = info.bos;
    }
    const uint64_t start = mix(seed);
    for (int64_t i = 0; at < c->prompt_count; i++) {
        const int32_t id = text.n ? text.ids[(start + (uint64_t)i) % (uint64_t)text.n]
                                  : (int32_t)(mix(start + (uint64_t)i) % (uint64_t)vocab);
        if (id >= vocab) {
            rc = err_set(why, ERR_FORMAT, "the tokenizer gives id %d, the model has only %lld", id,
                         (long long)vocab);
            goto done;
        }
        c->prompt[at++] = id;
    }
done:
    token_list_free(&text);
    return rc;
}

static void hash_short(char out[17], const struct str *text)
{
    char hex[HASH_HEX];
    hash_bytes(str_text(text), text->len, hex);
    memcpy(out, hex, 16);
    out[16] = '\0';
}

static enum err_code hash_work(struct cell *c, struct err *why)
{
    struct str s = { 0 };
    char line[600];
    str_printf(&s, "%s\n", workload_line(c->w, line, sizeof line));
    str_append_n(&s, c->prompt, (size_t)c->prompt_count * sizeof *c->prompt);
    const bool failed = s.failed;
    hash_short(c->out->work_hash, &s);
    str_free(&s);
    return failed ? err_set(why, ERR_NOMEM, "out of memory") : ERR_OK;
}

/* ---------------------------------------------------------------- phases */

/* Feed prompt ids [from, to) into sequence 0, batch by batch; logits of the last one when wanted. */
static enum err_code feed(struct cell *c, const char *phase, int from, int to, bool logits, double *seconds,
                          struct err *why)
{
    const int batch = (int)config_int(model_config(c->m), KNOB_BATCH);
    const int64_t start = clock_ns();
    for (int at = from; at < to; at += batch) {
        const int n = MIN(batch, to - at);
        for (int i = 0; i < n; i++)
            c->rows[i] = (struct batch_row){ .token = c->prompt[at + i],
                                             .pos = at + i,
                                             .logits = logits && at + i == to - 1 };
        enum err_code rc = model_forward(c->m, c->rows, n, why);
        *seconds = (double)(clock_ns() - start) * 1e-9;
        if (!rc) rc = tell(c, phase, at + n - from, to - from, *seconds, why);
        if (rc) return rc;
    }
    return ERR_OK;
}

static int32_t best_token(const float *logits, int64_t n)
{
    int32_t best = -1;
    float most = -INFINITY;
    for (int64_t i = 0; i < n; i++)
        if (logits[i] > most) {
            most = logits[i];
            best = (int32_t)i;
        }
    return best;
}

static enum err_code choose(struct cell *c, int32_t *token, struct err *why)
{
    *token = best_token(model_logits(c->m, 0), model_shape(c->m)->vocab);
    if (*token >= 0) return ERR_OK;
    return err_set(why, ERR_FORMAT, "the model's logits are not numbers: its weights are damaged");
}

/* `token` is what comes next at position `pos`. */
static enum err_code decode(struct cell *c, int32_t token, int pos, struct err *why)
{
    const int64_t start = clock_ns();
    int64_t before = start;
    for (int i = 0; i < c->w->gen; i++) {
        const struct batch_row row = { .token = token, .pos = pos + i, .logits = true };
        enum err_code rc = model_forward(c->m, &row, 1, why);
        if (!rc) rc = choose(c, &token, why);
        if (rc) return rc;
        const int64_t now = clock_ns();
        c->output[i] = token;
        c->out->itl_s[i] = (float)((double)(now - before) * 1e-9);
        c->out->gen_tokens = i + 1;
        c->out->decode_s = (double)(now - start) * 1e-9;
        if ((rc = tell(c, "decode", i + 1, c->w->gen, c->out->decode_s, why))) return rc;
        before = clock_ns(); /* what the listener took is not the model's */
    }
    /* The sum of the steps, without the time between them. */
    c->out->decode_s = 0;
    for (int i = 0; i < c->w->gen; i++) c->out->decode_s += (double)c->out->itl_s[i];
    return ERR_OK;
}

static enum err_code run_tokens(struct cell *c, struct err *why)
{
    const struct workload *w = c->w;
    double ignored = 0;
    enum err_code rc;
    if ((rc = feed(c, "load", 0, w->depth, false, &ignored, why))) return rc;
    int32_t token = c->prompt[w->depth];
    if (w->prompt) {
        const int64_t start = clock_ns();
        double seconds = 0;
        if ((rc = feed(c, "prefill", w->depth, w->depth + w->prompt, true, &seconds, why))) return rc;
        if ((rc = choose(c, &token, why))) return rc;
        c->out->ttft_s = (double)(clock_ns() - start) * 1e-9;
        c->out->prefill_s = seconds;
        c->out->prompt_tokens = w->prompt;
    }
    return w->gen ? decode(c, token, w->depth + w->prompt, why) : ERR_OK;
}

static enum err_code alloc_cell(struct cell *c, struct err *why)
{
    const int batch = (int)config_int(model_config(c->m), KNOB_BATCH);
    c->prompt_count = c->w->depth + MAX(c->w->prompt, 1);
    c->prompt = malloc((size_t)c->prompt_count * sizeof *c->prompt);
    c->output = malloc((size_t)MAX(c->w->gen, 1) * sizeof *c->output);
    c->rows = malloc((size_t)MIN(batch, c->prompt_count) * sizeof *c->rows);
    c->out->itl_s = malloc((size_t)MAX(c->w->gen, 1) * sizeof *c->out->itl_s);
    if (c->prompt && c->output && c->rows && c->out->itl_s) return ERR_OK;
    return err_set(why, ERR_NOMEM, "out of memory for a run of %d tokens", workload_ctx(c->w));
}

/* ---------------------------------------------------------------- quality */

static bool eval_tell(void *arg, int64_t chunk, int64_t of, double nll)
{
    struct cell *c = arg;
    (void)nll;
    return !tell(c, "eval", (int)chunk, (int)of, NAN, NULL);
}

static enum err_code run_eval(struct cell *c, struct err *why)
{
    char *text, hex[HASH_HEX];
    size_t n;
    struct perplexity p;
    enum err_code rc = file_read(&text, &n, c->w->eval_file, SAMPLE_LIMIT, why);
    if (rc) return rc;
    struct str s = { 0 };
    hash_bytes(text, n, hex);
    str_printf(&s, "eval %d %s", c->w->eval_ctx, hex);
    hash_short(c->out->work_hash, &s);
    str_free(&s);
    const int64_t start = clock_ns();
    rc = eval_perplexity(&p, c->m, text, n, c->w->eval_ctx, 0, eval_tell, c, why);
    free(text);
    if (rc) return rc;
    c->out->prefill_s = (double)(clock_ns() - start) * 1e-9;
    c->out->prompt_tokens = (int)MIN(p.chunks * c->w->eval_ctx, INT32_MAX);
    c->out->perplexity = p.ppl;
    c->out->nll = p.nll;
    c->out->nll_se = p.nll_se;
    c->out->scored_tokens = p.scored;
    return ERR_OK;
}

enum err_code cell_run(struct cell_result *out, struct model *m, const struct workload *w, uint64_t seed,
                       cell_progress_fn *progress, void *ctx, struct err *why)
{
    *out = (struct cell_result){ .prefill_s = NAN,
                                 .decode_s = NAN,
                                 .ttft_s = NAN,
                                 .load_s = NAN,
                                 .perplexity = NAN,
                                 .nll = NAN,
                                 .nll_se = NAN };
    struct cell c = { .out = out, .m = m, .w = w, .progress = progress, .ctx = ctx };
    if (workload_ctx(w) > model_ctx(m))
        return err_set(why, ERR_USAGE, "the workload needs a context of %d tokens, this session has %d",
                       workload_ctx(w), model_ctx(m));
    enum err_code rc;
    const int64_t start = clock_ns();
    if ((rc = model_warm(m, why))) return rc;
    out->load_s = (double)(clock_ns() - start) * 1e-9;
    model_truncate(m, 0, 0);
    if (w->eval_file[0]) {
        rc = run_eval(&c, why);
    } else {
        rc = alloc_cell(&c, why);
        if (!rc) rc = make_prompt(&c, seed, why);
        if (!rc) rc = hash_work(&c, why);
        if (!rc) rc = run_tokens(&c, why);
        struct str s = { 0 };
        str_append_n(&s, c.output, (size_t)out->gen_tokens * sizeof *c.output);
        if (!rc && out->gen_tokens) hash_short(out->output_hash, &s);
        str_free(&s);
    }
    model_truncate(m, 0, 0);
    free(c.prompt);
    free(c.output);
    free(c.rows);
    if (rc) cell_result_free(out);
    return rc;
}
