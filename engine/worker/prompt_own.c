/* Which prompts of the user's file a workload takes (engine/prompts reads the file). Their order is
 * pseudo-random and follows from the seed alone, so that every arm, and every cell of a run, gets the same
 * ones.
 *
 * A cell needs a number of tokens: prompts are joined in that order, each with its own beginning, and the
 * last one is cut. A load needs requests: each is one prompt, as long as it is. */
#include "engine/worker/prompt_own.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/config/config.h"
#include "engine/prompts/prompts.h"
#include "engine/serve/serve.h"

struct prompt_own {
    struct prompts list;
    struct prompt_reader *reader; /* NULL: without a tokenizer */
    char *path;
    int *order;                 /* [list.n] */
    struct load_prompt *prompt; /* [prompts] of a load */
    int prompts;
    struct token_list ids; /* of all of them */
    int *of_request;       /* [requests] */
};

static void load_free(struct prompt_own *o)
{
    free(o->prompt);
    free(o->of_request);
    token_list_free(&o->ids);
    o->prompt = NULL;
    o->of_request = NULL;
    o->prompts = 0;
}

void prompt_own_close(struct prompt_own *o)
{
    if (!o) return;
    load_free(o);
    prompts_free(&o->list);
    prompt_reader_close(o->reader);
    free(o->order);
    free(o->path);
    free(o);
}

/* Read the file, unless it is the one that was read last. */
static enum err_code own_open(struct prompt_source *s, const char *path, struct err *why)
{
    if (s->own && !strcmp(s->own->path, path)) return ERR_OK;
    prompt_own_close(s->own);
    struct prompt_own *o = s->own = calloc(1, sizeof *o);
    if (o) o->path = strdup(path);
    if (!o || !o->path) return err_set(why, ERR_NOMEM, "out of memory for prompts");
    enum err_code rc = prompts_read(&o->list, path, why);
    if (!rc && s->tokenizer) rc = prompt_reader_open(&o->reader, s->file, s->tokenizer, why);
    if (!rc && !(o->order = malloc((size_t)o->list.n * sizeof *o->order)))
        rc = err_set(why, ERR_NOMEM, "out of memory for %d prompts", o->list.n);
    if (!rc) return ERR_OK;
    prompt_own_close(o);
    s->own = NULL;
    return rc;
}

/* All prompts in a pseudo-random order (Fisher-Yates). */
static void order_make(struct prompt_own *o, uint64_t seed)
{
    uint64_t draw = hash_next(seed);
    for (int i = 0; i < o->list.n; i++) o->order[i] = i;
    for (int i = o->list.n - 1; i > 0; i--, draw = hash_next(draw)) {
        const int other = (int)(draw % (uint64_t)(i + 1)), kept = o->order[i];
        o->order[i] = o->order[other];
        o->order[other] = kept;
    }
}

static enum err_code own_begin(struct prompt_source *s, const char *path, uint64_t seed, struct err *why)
{
    const enum err_code rc = own_open(s, path, why);
    if (rc) return rc;
    const struct prompts *list = &s->own->list;
    order_make(s->own, seed);
    s->facts = (struct prompt_facts){ .form = list->form, .count = list->n, .skipped = list->skipped };
    snprintf(s->facts.file, sizeof s->facts.file, "%s", path_file_name(path));
    memcpy(s->facts.sha256, list->sha256, sizeof s->facts.sha256);
    return ERR_OK;
}

static enum err_code needs_tokenizer(const struct prompt_source *s, struct err *why)
{
    return s->own->reader
               ? ERR_OK
               : err_set(why, ERR_USAGE,
                         "the model has no tokenizer that is supported, so no prompts can be given to it: "
                         "leave the file of prompts out");
}

static enum err_code ids_check(const struct token_list *ids, int64_t vocab, struct err *why)
{
    for (int64_t i = 0; i < ids->n; i++)
        if (ids->ids[i] < 0 || ids->ids[i] >= vocab)
            return err_set(why, ERR_FORMAT, "the tokenizer gives id %d, the model has only %lld", ids->ids[i],
                           (long long)vocab);
    return ERR_OK;
}

/* ---------------------------------------------------------------- cells */

/* Append prompts from number *at of the order on, until there are `count` tokens. */
static enum err_code join(struct token_list *out, struct prompt_source *s, int64_t count, int64_t *at,
                          struct err *why)
{
    struct prompt_own *o = s->own;
    enum err_code rc = ERR_OK;
    for (; out->n < count && !rc; ++*at)
        rc = prompt_encode(out, o->reader, &o->list, o->order[*at % o->list.n], why);
    return rc;
}

enum err_code prompt_own_fill(int32_t *ids, struct prompt_source *s, const struct workload *w, uint64_t seed,
                              struct err *why)
{
    const int count = prompt_count(w);
    int64_t at = 0;
    uint64_t start = hash_next(seed);
    enum err_code rc = own_begin(s, workload_prompts(w), seed, why);
    if (!rc) rc = needs_tokenizer(s, why);
    for (int i = 0; i < workload_sequences(w) && !rc; i++, start = hash_next(start)) {
        struct token_list list = { 0 };
        const struct prompt_own *o = s->own;
        rc = o->list.form == PROMPTS_TEXT
                 ? prompt_text_cut(&list, o->reader, o->list.prompt, start, count, &s->facts.repeats, why)
                 : join(&list, s, count, &at, why);
        if (!rc) rc = ids_check(&list, s->vocab, why);
        if (!rc) memcpy(ids + (int64_t)i * count, list.ids, (size_t)count * sizeof *ids);
        token_list_free(&list);
    }
    if (!rc && s->own->list.form != PROMPTS_TEXT) s->facts.repeats = at > s->own->list.n;
    if (!rc) s->facts.used = (int)MIN(MAX(at, 1), s->own->list.n);
    return rc;
}

/* ---------------------------------------------------------------- loads */

/* Tokens of the pieces of a plain text that are cut for a load's requests. */
static int64_t piece_tokens(const struct workload *w)
{
    enum { PIECE = 256 };             /* as for the bundled text */
    static const double BOUND = 3.09; /* one length in a thousand is longer, and cut */
    const struct load_length *in = &w->load.in;
    const double tokens = in->median > 0 ? ceil(in->median * exp(BOUND * in->sigma)) : PIECE;
    return (int64_t)fmin(tokens, workload_ctx(w));
}

/* Encode prompt k of the load. */
static enum err_code prompt_make(struct prompt_source *s, int k, const struct workload *w, uint64_t seed,
                                 struct err *why)
{
    struct prompt_own *o = s->own;
    const bool text = o->list.form == PROMPTS_TEXT;
    const int item = text ? 0 : o->order[k];
    const struct prompt *q = &o->list.prompt[item];
    const int64_t before = o->ids.n;
    struct load_prompt *to = &o->prompt[k];
    *to = (struct load_prompt){ .item = item, .class = q->class };
    enum err_code rc = text ? prompt_text_cut(&o->ids, o->reader, q, hash_next(seed) + (uint64_t)k,
                                              piece_tokens(w), &s->facts.repeats, why)
                            : prompt_encode(&o->ids, o->reader, &o->list, item, why);
    if (!rc) rc = prompt_answer(&to->generate, o->reader, q, why);
    if (!rc && o->ids.n - before > INT32_MAX)
        rc = err_set(why, ERR_FORMAT, "a prompt has %lld tokens", (long long)(o->ids.n - before));
    to->n = (int)(o->ids.n - before);
    return rc;
}

/* The same for a server that gets texts. */
static void prompt_estimate(struct prompt_own *o, int k)
{
    enum { BYTES_PER_TOKEN = 4 };
    const struct prompt *q = &o->list.prompt[o->order[k]];
    size_t bytes = q->n;
    for (size_t i = 0; i < json_array_size(q->messages); i++)
        bytes += strlen(json_get_str(json_array_get(q->messages, i), "content", ""));
    const size_t answer = q->answer ? strlen(q->answer) : 0;
    o->prompt[k] = (struct load_prompt){ .item = o->order[k],
                                         .class = q->class,
                                         .n = (int)(bytes / BYTES_PER_TOKEN + 1),
                                         .generate = q->most ? q->most : (int)(answer / BYTES_PER_TOKEN) };
}

static enum err_code load_room(struct prompt_own *o, int requests, struct err *why)
{
    load_free(o);
    o->prompts = o->list.form == PROMPTS_TEXT ? requests : MIN(requests, o->list.n);
    o->prompt = calloc((size_t)o->prompts, sizeof *o->prompt);
    o->of_request = calloc((size_t)requests, sizeof *o->of_request);
    return o->prompt && o->of_request ? ERR_OK
                                      : err_set(why, ERR_NOMEM, "out of memory for %d requests", requests);
}

/* What every load gets: which prompt each request has. */
static void load_end(struct load_text *out, struct prompt_source *s, int requests)
{
    struct prompt_own *o = s->own;
    int64_t at = 0;
    for (int k = 0; k < o->prompts; at += o->prompt[k++].n)
        if (o->ids.n) o->prompt[k].ids = o->ids.ids + at;
    for (int i = 0; i < requests; i++) o->of_request[i] = i % o->prompts;
    out->own = o->prompt;
    out->order = o->of_request;
    s->facts.used = o->list.form == PROMPTS_TEXT ? 1 : o->prompts;
    s->facts.repeats |= requests > o->prompts;
}

enum err_code prompt_own_load(struct load_text *out, struct prompt_source *s, const struct workload *w,
                              uint64_t seed, struct err *why)
{
    const int requests = w->load.requests;
    enum err_code rc = own_begin(s, workload_prompts(w), seed, why);
    if (!rc) rc = needs_tokenizer(s, why);
    if (!rc) rc = load_room(s->own, requests, why);
    for (int k = 0; !rc && k < s->own->prompts; k++) rc = prompt_make(s, k, w, seed, why);
    if (!rc) rc = ids_check(&s->own->ids, s->vocab, why);
    if (!rc) load_end(out, s, requests);
    return rc;
}

enum err_code prompt_source_load_texts(struct load_text *out, struct prompt_source *s,
                                       const struct workload *w, uint64_t seed, struct err *why)
{
    const int requests = w->load.requests;
    enum err_code rc = own_begin(s, workload_prompts(w), seed, why);
    if (!rc && (w->load.in.median > 0 || s->own->list.form == PROMPTS_TEXT))
        rc = err_set(
            why, ERR_USAGE,
            "prompts are cut by tokens, and the server's tokens are not known to be those of a model file "
            "here: expected %s",
            w->load.in.median > 0 ? "no in=" : "a file of prompts, not a plain text, or -m with its model");
    if (!rc) rc = load_room(s->own, requests, why);
    for (int k = 0; !rc && k < s->own->prompts; k++) prompt_estimate(s->own, k);
    if (!rc) load_end(out, s, requests);
    return rc;
}

const struct prompts *prompt_source_prompts(const struct prompt_source *s)
{
    return s->own ? &s->own->list : NULL;
}
