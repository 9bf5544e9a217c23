/* advisor/run/openai_load.c - a load for a running server: requests that come and go, over HTTP.
 *
 * Times, lengths and shared beginnings of the requests are those that every arm gets (engine/serve/load.h).
 * The server may still have the prompts of an earlier cell in its cache, so each text begins with tokens that
 * differ from cell to cell: what its cache finds was in this cell. Where token ids cannot be sent, texts of
 * short words are, whose length follows from two requests with which the server counts words. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/run/http_load.h"
#include "advisor/run/openai.h"
#include "advisor/run/server_page.h"
#include "engine/prompts/prompts.h"

enum { LIVE_NS = 200000000, FEW_WORDS = 16, MANY_WORDS = 144, PAGE_MOST = 16 << 20 };

struct load_cell {
    struct openai *s;
    const struct workload *w;
    struct load_plan *plan;
    char hash[17];             /* of the requests as every arm gets them; "": texts, which have no ids */
    const struct prompts *own; /* the user's own prompts; NULL: none */
    uint64_t salt;             /* changes what each prompt begins with */
    json_t **talk; /* [conversations] what was said so far: ids, a text, or messages; NULL: nothing */
    bool shares;   /* requests have beginnings in common, which a cache may find */
    struct http_load_result result;
    struct server_page before, after;
    arm_event_fn *event;
    void *ctx;
    int64_t told_ns, from_ns, to_ns;
};

/* ---------------------------------------------------------------- the requests */

/* The plan, from the ids of the model file's vocabulary, or with words in the place of ids. */
static enum err_code plan_make(struct load_cell *c, uint64_t seed, struct err *why)
{
    struct prompt_source *from = &c->s->model.prompts;
    const bool own = *workload_prompts(c->w);
    struct load_text text = { .vocab = c->s->briefs, .bos = -1 };
    enum err_code rc = ERR_OK;
    if (c->s->ids)
        rc = prompt_source_load(&text, from, c->w, seed, why);
    else if (own)
        rc = prompt_source_load_texts(&text, from, c->w, seed, why);
    if (rc) return rc;
    c->own = own ? prompt_source_prompts(from) : NULL;
    text.salt = openai_random(c->s) | 1;
    c->salt = text.salt;
    rc = load_plan_make(&c->plan, &c->w->load, seed, &text, why);
    if (!rc && c->s->ids) from->facts.repeats |= c->plan->repeats;
    if (!rc && c->s->ids) snprintf(c->hash, sizeof c->hash, "%s", c->plan->hash);
    return rc;
}

/* How many tokens words have here: a text without words, and each further word. */
static enum err_code words_measure(struct load_cell *c, struct err *why)
{
    static const int WORDS[] = { FEW_WORDS, MANY_WORDS };
    double tokens[COUNT_OF(WORDS)];
    struct openai *s = c->s;
    if (s->ids || !isnan(s->words_before)) return ERR_OK;
    for (size_t i = 0; i < COUNT_OF(WORDS); i++) {
        struct reply r;
        const enum err_code rc = openai_send_words(s, WORDS[i], 1, &r, c->event, c->ctx, why);
        tokens[i] = r.prompt_tokens;
        reply_done(&r);
        if (rc) return rc;
    }
    const double each = (tokens[1] - tokens[0]) / (MANY_WORDS - FEW_WORDS);
    if (!(each > 0.2 && each < 20))
        return err_set(why, ERR_USAGE,
                       "the server counted %.0f tokens for %d words and %.0f for %d: no prompt of a wanted "
                       "length can be made from this",
                       tokens[0], FEW_WORDS, tokens[1], MANY_WORDS);
    s->word_tokens = each;
    s->words_before = fmax(tokens[0] - FEW_WORDS * each, 0);
    return ERR_OK;
}

/* The words of a turn, with a space before them in later turns. New reference. */
static json_t *words_of(const struct load_cell *c, const struct load_request *q)
{
    const struct openai *s = c->s;
    struct str text = { 0 };
    const double tokens = q->turn ? q->n : q->n - s->words_before;
    const int words = (int)fmax(1, rint(tokens / s->word_tokens));
    for (int i = 0; i < words; i++) {
        const uint64_t at = (uint64_t)q->prompt[i % q->n] + (uint64_t)(i / q->n);
        str_printf(&text, "%s%s", i || q->turn ? " " : "", s->brief[at % (uint64_t)s->briefs]);
    }
    json_t *o = text.failed ? NULL : json_string(str_text(&text));
    str_free(&text);
    return o;
}

/* Replaces *talk by itself followed by `more`, a text. Steals `more`. */
static void text_append(json_t **talk, json_t *more)
{
    struct str both = { 0 };
    if (*talk) str_append(&both, json_string_value(*talk));
    if (json_is_string(more)) str_append(&both, json_string_value(more));
    json_t *text = both.failed || !more ? NULL : json_string(str_text(&both));
    json_decref(*talk);
    json_decref(more);
    *talk = text;
    str_free(&both);
}

/* The words that begin each of the user's own prompts in this cell, where they are sent as texts. */
static void salt_append(const struct load_cell *c, struct str *out)
{
    enum { WORDS = 8 };
    const struct openai *s = c->s;
    for (int i = 0; i < WORDS; i++)
        str_printf(out, "%s ", s->brief[hash_next(hash_next(c->salt) + (uint64_t)i) % (uint64_t)s->briefs]);
}

/* One of the user's own prompts as a text, or as messages of a chat. New reference. */
static json_t *own_prompt(const struct load_cell *c, const struct load_request *q)
{
    const struct prompt *p = &c->own->prompt[q->item];
    struct str text = { 0 };
    salt_append(c, &text);
    if (c->s->chat && p->messages) {
        json_t *messages = json_deep_copy(p->messages), *first = json_array_get(messages, 0);
        str_append(&text, json_get_str(first, "content", ""));
        json_put_str(first, "content", str_text(&text));
        str_free(&text);
        return messages;
    }
    if (p->text) str_append(&text, p->text);
    for (size_t i = 0; i < json_array_size(p->messages); i++)
        str_printf(&text, "%s%s", i ? "\n\n" : "",
                   json_get_str(json_array_get(p->messages, i), "content", ""));
    json_t *content = text.failed ? NULL : json_string(str_text(&text));
    str_free(&text);
    return c->s->chat ? openai_message(json_array(), "user", content) : content;
}

static json_t *body_of(void *ctx, int i)
{
    struct load_cell *c = ctx;
    struct openai *s = c->s;
    const struct load_request *q = &c->plan->request[i];
    json_t **talk = &c->talk[q->conversation];
    if (c->own && !s->ids) {
        json_t *prompt = own_prompt(c, q);
        return prompt ? openai_body(s, prompt, q->generate, c->shares) : NULL;
    }
    if (s->ids || s->chat) {
        if (!*talk) *talk = json_array();
        for (int k = 0; s->ids && k < q->n; k++) json_array_append_new(*talk, json_integer(q->prompt[k]));
        if (s->chat) openai_message(*talk, "user", words_of(c, q));
    } else {
        text_append(talk, words_of(c, q));
    }
    return *talk ? openai_body(s, json_copy(*talk), q->generate, c->shares) : NULL;
}

/* The answer becomes a part of the conversation, as a client has it: as text. */
static void take_answer(void *ctx, int i, const char *text)
{
    struct load_cell *c = ctx;
    const struct load_request *q = &c->plan->request[i];
    json_t **talk = &c->talk[q->conversation];
    struct token_list ids = { 0 };
    if (q->turn + 1 == c->plan->turns) {
        json_decref(*talk);
        *talk = NULL;
    } else if (c->s->chat) {
        openai_message(*talk, "assistant", json_string(text));
    } else if (!c->s->ids) {
        text_append(talk, json_string(text));
    } else {
        if (!tokenizer_encode(c->s->model.tokenizer, text, strlen(text), 0, &ids, NULL))
            for (int64_t k = 0; k < ids.n; k++) json_array_append_new(*talk, json_integer(ids.ids[k]));
        token_list_free(&ids);
    }
}

/* ---------------------------------------------------------------- can an answer be believed? */

static enum err_code check(void *ctx, int i, const struct reply *r, struct err *why)
{
    const struct load_cell *c = ctx;
    const struct load_request *q = &c->plan->request[i];
    /* The number of prompt tokens is recorded as the server counts it. Tokens of a cache are checked here:
     * the beginning that a chat template gives to all prompts may be in it. */
    struct reply seen = *r;
    seen.cached_tokens = NAN;
    const struct reply_wanted wanted = { .prompt_tokens = c->s->ids && !q->turn ? q->n : 0,
                                         .gen_tokens = q->generate,
                                         .ids = c->s->ids };
    const enum err_code rc = reply_check(&seen, &wanted, why);
    if (rc || c->shares || c->s->chat || !(r->cached_tokens > 1))
        return rc; /* BOS alone is in every prompt */
    return err_set(why, ERR_USAGE,
                   "%.0f of a prompt's %.0f tokens came from the server's prompt cache, although no other "
                   "prompt of this load begins like it",
                   r->cached_tokens, r->prompt_tokens);
}

/* ---------------------------------------------------------------- while it runs */

static bool report(void *ctx, struct load_now *now)
{
    struct load_cell *c = ctx;
    if (!c->event) return true;
    json_t *o = json_object();
    json_put_str(o, "event", "progress");
    json_put_str(o, "phase", "requests");
    json_put_int(o, "done", now->done);
    json_put_int(o, "of", now->of);
    json_put_num(o, "seconds", now->seconds);
    const int64_t clock = clock_ns();
    if (clock - c->told_ns >= LIVE_NS || now->done == now->of) {
        json_put(o, "load", live_to_json(now->live));
        c->told_ns = clock;
    }
    const bool on = c->event(c->ctx, o);
    json_decref(o);
    now->rate_by = c->s->rate_by;
    c->s->rate_by = 1;
    return on;
}

/* The server's own count; a server without such a page is no error. */
static void page_read(const struct load_cell *c, struct server_page *p)
{
    struct str url = { 0 }, text = { 0 };
    struct err ignored;
    str_printf(&url, "%s/metrics", c->s->base);
    *p = (struct server_page){ 0 };
    if (!foreign_get_text(&text, str_text(&url), c->s->key, PAGE_MOST, &ignored))
        server_page_parse(p, str_text(&text));
    str_free(&url);
    str_free(&text);
}

/* ---------------------------------------------------------------- the answer */

static json_t *served_json(const struct load_cell *c)
{
    const struct load_result *r = &c->result.load;
    json_t *o = json_object();
    json_put_num(o, "seconds", r->seconds);
    json_put_int(o, "running_most", r->running_most);
    json_put_int(o, "waiting_most", r->waiting_most);
    json_put_int(o, "cut", c->plan->cut);
    json_put_int(o, "skipped", c->plan->skipped);
    json_put_int(o, "tokens_with_others", c->result.bundled);
    json_put_bool(o, "token_times_unknown", c->result.times_unknown);
    json_put_num(o, "chunk_gap_s", c->result.chunk_gap_s);
    json_put_str(o, "failed_because", *c->result.failed ? c->result.failed : NULL);
    json_t *server = server_page_difference(&c->before, &c->after);
    if (server) json_put(o, "server", server);
    return o;
}

/* Of the requests that were answered; NAN: the server did not count the prompts of all of them. */
static double prompt_tokens(const struct load_result *r)
{
    double sum = 0;
    for (int i = 0; i < r->n; i++)
        if (r->record[i].outcome == LOAD_DONE)
            sum += r->record[i].prompt < 0 ? (double)NAN : r->record[i].prompt;
    return sum;
}

static double generated_tokens(const struct load_result *r)
{
    double sum = 0;
    for (int i = 0; i < r->n; i++)
        if (r->record[i].outcome == LOAD_DONE) sum += r->record[i].tokens;
    return sum;
}

static json_t *answer_of(const struct load_cell *c)
{
    char line[WORKLOAD_LINE];
    json_t *o = json_object(), *spans = json_array(), *span = json_object();
    json_put_str(o, "model", c->s->name);
    json_put_str(o, "workload", workload_line(c->w, line, sizeof line));
    json_put_num(o, "prompt_tokens", prompt_tokens(&c->result.load));
    json_put_num(o, "gen_tokens", generated_tokens(&c->result.load));
    json_put_num(o, "chunk_gap_s", c->result.chunk_gap_s);
    json_put(o, "requests", load_records_to_json(&c->result.load, c->plan));
    json_put(o, "served", served_json(c));
    json_t *classes = prompts_classes_to_json(c->own);
    if (classes) json_put(o, "classes", classes);
    if (c->own || c->s->ids) prompt_facts_put(o, &c->s->model.prompts.facts);
    if (*c->hash) json_put_str(o, "work_hash", c->hash);
    json_put_str(span, "name", "requests");
    json_put_int(span, "from_ns", c->from_ns);
    json_put_int(span, "to_ns", c->to_ns);
    json_array_append_new(spans, span);
    json_put(o, "spans", spans);
    return o;
}

static enum err_code serve(struct load_cell *c, struct err *why)
{
    struct str url = { 0 };
    str_printf(&url, "%s/v1/%s", c->s->base, c->s->chat ? "chat/completions" : "completions");
    const struct http_load_spec spec = { .plan = c->plan,
                                         .url = str_text(&url),
                                         .key = c->s->key,
                                         .silence_s = c->s->silence_s,
                                         .limit = c->w->load.limit,
                                         .limits = c->w->load.limits,
                                         .body = body_of,
                                         .check = check,
                                         .answered = take_answer,
                                         .progress = report,
                                         .ctx = c };
    page_read(c, &c->before);
    c->s->rate_by = 1;
    c->from_ns = clock_ns();
    enum err_code rc = http_load_run(&c->result, &spec, why);
    c->to_ns = c->s->used_ns = clock_ns();
    if (!rc) page_read(c, &c->after);
    str_free(&url);
    int done = 0;
    for (int i = 0; i < c->result.load.n && !rc; i++) done += c->result.load.record[i].outcome == LOAD_DONE;
    if (!rc && !done)
        rc = err_set(why, c->result.failed_code,
                     "none of the %d requests was answered as asked in this repetition. The first error: %s",
                     c->plan->n, c->result.failed);
    return rc;
}

enum err_code openai_load(struct openai *s, const struct workload *w, uint64_t seed, json_t **answer,
                          arm_event_fn *event, void *ctx, struct err *why)
{
    struct load_cell c = { .s = s, .w = w, .event = event, .ctx = ctx };
    enum err_code rc = words_measure(&c, why);
    if (!rc) rc = plan_make(&c, seed, why);
    if (!rc) {
        c.shares = c.plan->turns > 1 || w->load.prefix > 0 || w->load.arrivals == LOAD_TRACE ||
                   *w->load.prompts;
        c.talk = calloc((size_t)c.plan->conversations, sizeof *c.talk);
        if (!c.talk)
            rc = err_set(why, ERR_NOMEM, "out of memory for %d conversations", c.plan->conversations);
    }
    const struct foreign_usage before = foreign_usage(s->pid);
    if (!rc) rc = serve(&c, why);
    if (!rc) {
        *answer = answer_of(&c);
        foreign_put_usage(*answer, s->pid, before);
    }
    for (int i = 0; c.talk && i < c.plan->conversations; i++) json_decref(c.talk[i]);
    free(c.talk);
    http_load_result_free(&c.result);
    load_plan_free(c.plan);
    return rc;
}
