/* The thread that turns bodies of requests into tokens (serve.h). It also answers what needs no model: texts
 * to tokens and back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "advisor/serve/parts.h"
#include "engine/chat/chat.h"
#include "engine/model/model.h"

/* ---------------------------------------------------------------- prompts */

static bool prompt_wrong(struct refusal *no, const char *param, const struct err *why)
{
    return refuse(no, why->code == ERR_NOMEM ? 500 : 400, "invalid_prompt", param, "%s: %s", param,
                  why->message);
}

static bool ids_copy(struct token_list *out, const json_t *list, int32_t vocabulary, struct refusal *no,
                     const char *param)
{
    struct err why = { 0 };
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_int_t id = json_integer_value(json_array_get(list, i));
        if (id >= vocabulary)
            return refuse(no, 400, "invalid_value", param, "%s: token %zu is %lld: expected 0 to %d", param,
                          i, (long long)id, vocabulary - 1);
        if (token_list_push(out, (int32_t)id, &why)) return prompt_wrong(no, param, &why);
    }
    return true;
}

static bool prompt_encode(const struct server *s, struct token_list *out, const json_t *prompt,
                          struct refusal *no)
{
    struct err why = { 0 };
    if (json_is_array(prompt)) return ids_copy(out, prompt, s->vocabulary.n_vocab, no, "prompt");
    return !tokenizer_encode(s->tokenizer, json_string_value(prompt), json_string_length(prompt),
                             TOKENIZE_ADD_BOS | TOKENIZE_SPECIAL, out, &why) ||
           prompt_wrong(no, "prompt", &why);
}

static bool messages_encode(const struct server *s, struct token_list *out, const struct ask *a,
                            struct refusal *no)
{
    struct err why = { 0 };
    const struct chat_request r = { .messages = a->messages,
                                    .tools = a->tools,
                                    .extra = a->template_variables,
                                    .add_generation_prompt = true,
                                    .now = time(NULL) };
    if (!s->chat) {
        char advice[CHAT_ADVICE];
        return refuse(
            no, 400, "no_chat_template", "messages",
            "the model file has no chat template (tokenizer.chat_template). Use /v1/completions, or, "
            "where the server is started, %s",
            chat_template_advice(s->tokenizer, advice));
    }
    return !chat_encode(s->chat, &r, out, &why) || prompt_wrong(no, "messages", &why);
}

static bool call_encode(const struct server *s, struct call *c)
{
    const json_t *p = c->ask.prompt;
    const bool many = json_is_array(p) && !json_is_integer(json_array_get(p, 0));
    const int n = many ? (int)json_array_size(p) : 1;
    c->prompts = calloc((size_t)n, sizeof *c->prompts);
    if (!c->prompts) return refuse(&c->no, 500, "out_of_memory", NULL, "out of memory for the prompts");
    c->prompt_count = n;
    if (!p) return messages_encode(s, &c->prompts[0], &c->ask, &c->no);
    for (int i = 0; i < n; i++)
        if (!prompt_encode(s, &c->prompts[i], many ? json_array_get(p, (size_t)i) : p, &c->no)) return false;
    return true;
}

/* ---------------------------------------------------------------- requests to generate */

/* OpenAI's default of completions is 16; an answer of chat may fill the context. */
static bool call_set_most(const struct server *s, struct call *c)
{
    enum { COMPLETION_MOST = 16 };
    int64_t longest = 0;
    for (int i = 0; i < c->prompt_count; i++) {
        longest = MAX(longest, c->prompts[i].n);
        if (!c->prompts[i].n)
            return refuse(&c->no, 400, "invalid_prompt", "prompt",
                          "the prompt is empty: expected at least one token");
    }
    const int64_t room = s->ctx - longest;
    if (room < 1)
        return refuse(&c->no, 400, "context_length_exceeded", "prompt",
                      "the prompt has %lld token%s, and the context holds %d: expected a shorter prompt",
                      (long long)longest, str_plural(longest), s->ctx);
    if (c->ask.most < 0)
        c->ask.most = c->ask.endpoint == ENDPOINT_CHAT ? room : MIN(room, MAX(COMPLETION_MOST, c->ask.least));
    if (c->ask.most > room)
        return refuse(
            &c->no, 400, "context_length_exceeded", "max_tokens",
            "the prompt has %lld tokens and max_tokens is %lld, but the context holds %d: expected at most "
            "%lld",
            (long long)longest, (long long)c->ask.most, s->ctx, (long long)room);
    return true;
}

/* The last tokens of its prompt: they may begin a thought. */
static void answer_read_prompt(const struct server *s, struct answer *a)
{
    enum { LAST = 8 };
    const struct token_list *prompt = &a->call->prompts[a->prompt];
    struct str text = { 0 };
    for (int64_t i = MAX(prompt->n - LAST, 0); i < prompt->n; i++)
        tokenizer_piece(s->tokenizer, prompt->ids[i], true, &text, NULL);
    tool_reader_prompt(&a->reader, str_text(&text), text.len);
    str_free(&text);
}

static bool call_add_answers(const struct server *s, struct call *c)
{
    const struct tool_style *style = json_array_size(c->ask.tools) ? s->tool_style : NULL;
    const int n = c->prompt_count * (int)c->ask.choices;
    c->answers = calloc((size_t)n, sizeof *c->answers);
    if (!c->answers) return refuse(&c->no, 500, "out_of_memory", NULL, "out of memory for the answers");
    c->answer_count = c->left = n;
    for (int i = 0; i < n; i++) {
        c->answers[i] = (struct answer){ .call = c,
                                         .index = i,
                                         .prompt = i / (int)c->ask.choices,
                                         .reader = { .style = style, .tools = c->ask.tools },
                                         .calls = style ? json_array() : NULL,
                                         .held = { .stop = c->ask.stop, .stops = (int)c->ask.stops } };
        if (style) answer_read_prompt(s, &c->answers[i]);
    }
    return true;
}

/* Without a seed, every request has another one. */
static bool call_set_seed(struct call *c)
{
    uint32_t seed;
    if (c->ask.seed_given) return true;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed)
        return refuse(&c->no, 500, "no_random_numbers", NULL, "the system gives no random numbers");
    c->ask.seed = seed;
    return true;
}

static bool model_check(const struct server *s, const struct ask *a, struct refusal *no)
{
    if (!a->model || !strcmp(a->model, s->o.name)) return true;
    return refuse(no, 404, "model_not_found", "model", "no model '%.100s' here: this server has '%.100s'",
                  a->model, s->o.name);
}

static bool call_prepare(const struct server *s, struct call *c)
{
    const bool parsed = ask_parse(&c->ask, c->ask.endpoint, str_text(&c->body), c->body.len, &c->no);
    str_free(&c->body);
    if (!parsed || !model_check(s, &c->ask, &c->no)) return false;
    if (!c->generates) return true;
    const bool ready = call_encode(s, c) && call_set_most(s, c) && call_set_seed(c) && call_add_answers(s, c);
    if (ready && memory_is_short()) /* texts of the request may be incomplete */
        return refuse(&c->no, 500, "out_of_memory", NULL, "out of memory for the request");
    return ready;
}

/* ---------------------------------------------------------------- requests that need no model */

static bool document_keep(struct call *c, json_t *document)
{
    reply_line(&c->out, "", document, "\n");
    return !c->out.failed || refuse(&c->no, 500, "out_of_memory", NULL, "out of memory for the answer");
}

static bool call_tokenize(const struct server *s, struct call *c)
{
    struct token_list ids = { 0 };
    struct err why = { 0 };
    const json_t *text = c->ask.prompt;
    const unsigned flags = TOKENIZE_SPECIAL | (c->ask.add_special ? TOKENIZE_ADD_BOS : 0);
    bool ok = true;
    if (!text)
        ok = messages_encode(s, &ids, &c->ask, &c->no);
    else if (tokenizer_encode(s->tokenizer, json_string_value(text), json_string_length(text), flags, &ids,
                              &why))
        ok = prompt_wrong(&c->no, "content", &why);
    if (ok) {
        json_t *o = json_object(), *list = json_array();
        for (int64_t i = 0; i < ids.n; i++) json_array_append_new(list, json_integer(ids.ids[i]));
        json_put(o, "tokens", list);
        json_put_int(o, "count", ids.n);
        json_put_int(o, "max_model_len", s->ctx);
        ok = document_keep(c, o);
    }
    token_list_free(&ids);
    return ok;
}

static bool call_detokenize(const struct server *s, struct call *c)
{
    struct token_list ids = { 0 };
    struct str text = { 0 };
    struct err why = { 0 };
    bool ok = ids_copy(&ids, c->ask.tokens, s->vocabulary.n_vocab, &c->no, "tokens");
    if (ok && tokenizer_decode(s->tokenizer, ids.ids, ids.n, true, &text, &why))
        ok = prompt_wrong(&c->no, "tokens", &why);
    if (ok) {
        json_t *o = json_object();
        json_put(o, "content", reply_text(str_text(&text), text.len));
        ok = document_keep(c, o);
    }
    str_free(&text);
    token_list_free(&ids);
    return ok;
}

/* ---------------------------------------------------------------- the thread */

/* Hand a request on. With its own thread gone, or the server stopping, it ends here. */
static void call_hand_on(struct server *s, struct call *c)
{
    enum serve_outcome outcome = SERVE_OUTCOMES;
    pthread_mutex_lock(&s->lock);
    if (c->gone)
        outcome = SERVE_CANCELLED;
    else if (s->failed)
        outcome = SERVE_FAILED;
    else if (s->stopping)
        outcome = SERVE_STOPPED;
    if (outcome == SERVE_OUTCOMES) {
        c->stage = CALL_WAITING;
        call_list_add(&s->to_run, c);
        pthread_cond_signal(&s->engine_wake);
    }
    pthread_mutex_unlock(&s->lock);
    if (outcome == SERVE_OUTCOMES) return;
    if (outcome == SERVE_FAILED) refuse(&c->no, 500, "model_failed", NULL, "%s", s->failure.message);
    if (outcome == SERVE_STOPPED)
        refuse(&c->no, 503, "stopping", NULL, "the server stopped before it could answer");
    server_end(s, c, outcome);
}

static void call_process(struct server *s, struct call *c)
{
    if (!call_prepare(s, c)) {
        server_end(s, c, c->no.status < 500 ? SERVE_REFUSED : SERVE_FAILED);
    } else if (c->generates) {
        call_hand_on(s, c);
    } else {
        if (c->ask.endpoint == ENDPOINT_TOKENIZE)
            call_tokenize(s, c);
        else
            call_detokenize(s, c);
        server_end(s, c, SERVE_COMPLETED);
    }
}

void *prepare_main(void *server)
{
    struct server *s = server;
    thread_asks_for_short_slices();
    for (;;) {
        pthread_mutex_lock(&s->lock);
        while (!s->to_prepare.first && !s->stopping) pthread_cond_wait(&s->prepare_wake, &s->lock);
        struct call *c = call_list_take(&s->to_prepare);
        const bool gone = c && c->gone;
        pthread_mutex_unlock(&s->lock);
        if (!c) return NULL; /* stopping: nothing more comes */
        if (gone)
            server_end(s, c, SERVE_CANCELLED);
        else
            call_process(s, c);
    }
}
