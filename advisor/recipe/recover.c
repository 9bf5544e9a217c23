/* advisor/recipe/recover.c - see recipe.h. KL divergence before and after is measured by the code of `qdyno
 * eval` on the files themselves; a recovery without gain is an error. */
#include "advisor/recipe/recipe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advisor/run/run.h"
#include "engine/chat/chat.h"
#include "engine/text/text.h"

enum { SNIFF = 4096, HELD_OUT_WINDOWS = 64, HELD_OUT_CTX = 256, HELD_OUT_STORIES = 250 };

/* ---------------------------------------------------------------- options */

static enum err_code option_read(struct recover_options *o, const char *key, const char *value,
                                 struct err *why)
{
    int64_t n = 0;
    double x = 0;
    const bool whole = str_to_i64(value, &n) && n >= 1 && n <= 1 << 24;
    if (!strcmp(key, "steps") && whole)
        o->steps = n;
    else if (!strcmp(key, "batch") && whole && n <= 4096)
        o->batch = (int)n;
    else if (!strcmp(key, "ctx") && whole && n >= 8 && n <= 1 << 14)
        o->ctx = (int)n;
    else if (!strcmp(key, "rate") && str_to_double(value, &x) && x > 0 && x < 1)
        o->rate = x;
    else if (!strcmp(key, "only") && !strcmp(value, "norms"))
        o->norms_only = true;
    else if (!strcmp(key, "amp") && !strcmp(value, "off"))
        o->amp = AMP_OFF;
    else if (strcmp(key, "amp") || strcmp(value, "bf16"))
        return err_set(why, ERR_USAGE,
                       "--recover: '%s=%s': expected steps=N[,rate=X][,batch=N][,ctx=N][,only=norms]"
                       "[,amp=off], e.g. steps=200,rate=0.001",
                       key, value);
    return ERR_OK;
}

enum err_code recovery_parse(struct recovery *r, const char *text, struct err *why)
{
    *r = (struct recovery){ .o = recover_defaults() };
    r->o.steps = 0;
    while (*text) {
        char pair[64];
        const size_t n = strcspn(text, ",");
        snprintf(pair, sizeof pair, "%.*s", (int)n, text);
        text += n + (text[n] == ',');
        char *equals = strchr(pair, '=');
        if (equals) *equals = '\0';
        enum err_code rc = option_read(&r->o, pair, equals ? equals + 1 : "", why);
        if (rc) return rc;
    }
    if (r->o.steps) return ERR_OK;
    return err_set(why, ERR_USAGE,
                   "--recover: expected steps=N, the number of training steps, e.g. steps=200");
}

/* ---------------------------------------------------------------- texts */

struct texts {
    struct str training, held_out;
    struct token_list ids; /* of the training text */
};

/* Appends stories until there are enough stories or bytes. */
static void stories_append(const struct corpus *c, enum corpus_split split, uint64_t stories, size_t bytes,
                           struct str *out)
{
    for (uint64_t i = 0; i < stories && out->len < bytes && !out->failed; i++) {
        corpus_story(c, (struct story_id){ 1, split, i }, out);
        str_append(out, "\n");
    }
}

static enum err_code texts_generate(struct texts *t, const struct recover_options *o, struct err *why)
{
    enum {
        CHARACTERS = 4,
        LEAST = 1 << 16,
        MOST = 1 << 22,
        ROW = 256
    }; /* CHARACTERS of a token; LEAST, MOST of the text */
    struct corpus *c;
    const int64_t wanted = o->steps * o->batch * (o->ctx ? o->ctx : ROW) * CHARACTERS;
    enum err_code rc = corpus_open(&c, why);
    if (rc) return rc;
    stories_append(c, CORPUS_CALIBRATION, UINT64_MAX, (size_t)MIN(MAX(wanted, LEAST), MOST), &t->training);
    stories_append(c, CORPUS_HELD_OUT, HELD_OUT_STORIES, SIZE_MAX, &t->held_out);
    corpus_close(c);
    return ERR_OK;
}

/* Splits a text file: four fifths for training, the rest for measuring. The cut is at a space or a line end.
 */
static enum err_code texts_split_file(struct texts *t, const char *path, struct err *why)
{
    char *text;
    size_t n;
    enum text_kind kind = TEXT_PLAIN;
    enum err_code rc = file_read(&text, &n, path, TEXT_FILE_LIMIT, why);
    if (rc) return rc;
    rc = text_kind_find(&kind, text, n, why);
    if (!rc && kind != TEXT_PLAIN) {
        rc = err_set(why, ERR_USAGE, "--recover trains on plain text, and %s is a file of JSON objects",
                     path);
    } else if (!rc && memchr(text, 0, MIN(n, SNIFF))) {
        rc = err_set(why, ERR_USAGE,
                     "--recover trains on a text, and %s is not a text (a calibration file is not enough)",
                     path);
    } else if (!rc) {
        size_t cut = n / 5 * 4;
        while (cut < n && text[cut] != ' ' && text[cut] != '\n') cut++;
        str_append_n(&t->training, text, cut);
        str_append_n(&t->held_out, text + cut, n - cut);
    }
    free(text);
    return rc;
}

static enum err_code texts_open(struct texts *t, struct recovery *r, const struct recovery_job *j,
                                struct err *why)
{
    struct tokenizer *tokenizer;
    struct tokenizer_info info;
    r->stories = !*j->calib;
    enum err_code rc = r->stories ? texts_generate(t, &r->o, why) : texts_split_file(t, j->calib, why);
    if (!rc && (t->training.failed || t->held_out.failed))
        rc = err_set(why, ERR_NOMEM, "out of memory for the texts");
    if (!rc) rc = tokenizer_open(&tokenizer, j->original, why);
    if (rc) return rc;
    tokenizer_describe(tokenizer, &info);
    rc = tokenizer_encode(tokenizer, str_text(&t->training), t->training.len, 0, &t->ids, why);
    tokenizer_close(tokenizer);
    r->o.ids = t->ids.ids;
    r->o.n = t->ids.n;
    r->o.bos = info.add_bos ? info.bos : -1;
    return rc;
}

static void texts_close(struct texts *t)
{
    str_free(&t->training);
    str_free(&t->held_out);
    token_list_free(&t->ids);
}

/* ---------------------------------------------------------------- before, training, after */

/* What the callbacks of trainer and evaluation need to report. */
struct recovery_monitor {
    const struct recovery_job *job;
    enum recovery_phase phase;
};

static bool on_step(void *ctx, const struct recover_progress *p)
{
    const struct recovery_monitor *m = ctx;
    const struct recovery_progress now = {
        .phase = RECOVERY_TRAINING, .done = p->step, .of = p->steps, .loss = p->loss, .left_s = p->left_s
    };
    return !m->job->progress || m->job->progress(m->job->ctx, &now);
}

static bool on_window(void *ctx, int64_t chunk, int64_t of, double nll)
{
    const struct recovery_monitor *m = ctx;
    const struct recovery_progress now = {
        .phase = m->phase, .done = chunk, .of = of, .loss = NAN, .left_s = NAN
    };
    (void)nll;
    return !m->job->progress || m->job->progress(m->job->ctx, &now);
}

/* KL divergence of the model at `path` from the original on `text`. */
static enum err_code divergence_measure(struct divergence *out, const struct recovery_job *j,
                                        const char *path, const struct str *text, struct recovery_monitor *m,
                                        struct err *why)
{
    struct config config;
    struct model_shape shape;
    struct model *original = NULL, *candidate = NULL;
    config_default(&config);
    enum err_code rc = config_resolve_int(&config, KNOB_THREADS, j->threads, why);
    if (!rc) rc = config_set(&config, "force", j->force ? "on" : "off", why);
    if (!rc) rc = model_shape_read(&shape, j->original, why);
    if (rc) return rc;
    struct model_options o = {
        .gguf = j->original, .config = &config, .ctx = (int)MIN(shape.ctx_train, HELD_OUT_CTX), .log = j->log
    };
    const struct eval_request q = { .text = str_text(text),
                                    .n = text->len,
                                    .ctx = o.ctx,
                                    .max_chunks = HELD_OUT_WINDOWS,
                                    .progress = on_window,
                                    .arg = m };
    rc = shapes_model_open(&original, &o, why);
    o.gguf = NULL;
    o.path = path;
    if (!rc) rc = shapes_model_open(&candidate, &o, why);
    if (!rc) rc = eval_divergence(out, original, candidate, &q, why);
    model_close(original);
    model_close(candidate);
    return rc;
}

static enum err_code recover_train(struct recovery *r, const struct recovery_job *j,
                                   struct recovery_monitor *m, struct err *why)
{
    struct gguf *quantized;
    r->o.threads = j->threads;
    r->o.seed = j->seed;
    r->o.progress = on_step;
    r->o.progress_ctx = m;
    enum err_code rc = isa_usable(&r->o.isa, why);
    if (!rc) rc = gguf_open(&quantized, j->quantized, why);
    if (rc) return rc;
    rc = recover_file(j->path, j->original, quantized, &r->o, &r->report, why);
    gguf_close(quantized);
    return rc;
}

static enum err_code gain_check(const struct recovery *r, struct err *why)
{
    if (r->after.kld_mean < r->before.kld_mean) return ERR_OK;
    return err_set(
        why, ERR_FORMAT,
        "recovery did not help: KL divergence was %.6f nats before and %.6f after %lld steps; nothing was "
        "written. Try another rate than %g or more steps, or leave --recover out",
        r->before.kld_mean, r->after.kld_mean, (long long)r->o.steps, r->o.rate);
}

enum err_code recovery_run(struct recovery *r, const struct recovery_job *j, struct err *why)
{
    struct texts t = { 0 };
    struct recovery_monitor m = { .job = j, .phase = RECOVERY_BEFORE };
    enum err_code rc = texts_open(&t, r, j, why);
    if (!rc) rc = divergence_measure(&r->before, j, j->quantized, &t.held_out, &m, why);
    if (!rc) rc = recover_train(r, j, &m, why);
    m.phase = RECOVERY_AFTER;
    if (!rc) {
        rc = divergence_measure(&r->after, j, j->path, &t.held_out, &m, why);
        if (!rc) rc = gain_check(r, why);
        if (rc) unlink(j->path);
    }
    r->held_out_tokens = r->after.candidate.scored;
    texts_close(&t);
    r->o.ids = NULL;
    return rc;
}
