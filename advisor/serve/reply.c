/* The documents and events of answers, in OpenAI's form (parts.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/serve/parts.h"

/* ---------------------------------------------------------------- texts of models */

json_t *reply_text(const char *bytes, size_t n)
{
    json_t *text = json_stringn(bytes, n);
    if (text) return text;
    struct str clean = { 0 };
    for (size_t used; n; bytes += used, n -= used) {
        uint32_t c;
        char put[4];
        used = str_utf8_next(bytes, n, &c);
        str_append_n(&clean, put, str_utf8_put(c, put));
    }
    text = json_stringn(str_text(&clean), clean.len);
    str_free(&clean);
    return text;
}

/* Counts the characters of a text that comes in pieces, as reply_text shows it: those that are complete. */
static void characters_add(struct character_count *count, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t c;
        count->begun[count->n++] = bytes[i];
        while (count->n > str_utf8_unfinished(count->begun, count->n)) {
            const size_t used = str_utf8_next(count->begun, count->n, &c);
            count->n -= used;
            memmove(count->begun, count->begun + used, count->n);
            count->characters++;
        }
    }
}

static bool is_utf8(const char *bytes, size_t n)
{
    json_t *text = json_stringn(bytes, n);
    json_decref(text);
    return text != NULL;
}

/* The name of a token in log-probabilities. One that is no UTF-8, because it is a part of a character, is
 * written as its bytes, as OpenAI does: bytes:\xe2\x80 in completions, \xe2\x80 in chat. So different tokens
 * keep different names. */
static json_t *token_name(const struct str *piece, const char *prefix)
{
    if (is_utf8(str_text(piece), piece->len)) return json_stringn(str_text(piece), piece->len);
    struct str name = { 0 };
    str_append(&name, prefix);
    for (size_t i = 0; i < piece->len; i++)
        str_printf(&name, "\\x%02x", (unsigned)(unsigned char)piece->data[i]);
    json_t *out = json_stringn(str_text(&name), name.len);
    str_free(&name);
    return out;
}

/* The bytes of a token, control tokens with their name. */
static void piece_of(const struct server *s, int32_t token, struct str *out)
{
    str_clear(out);
    tokenizer_piece(s->tokenizer, token, true, out, NULL);
}

/* ---------------------------------------------------------------- calls of tools */

/* Nine letters and digits, which all templates accept. */
static void call_id(char id[10], const struct answer *a, int number)
{
    static const char DIGITS[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    char text[96], hex[HASH_HEX];
    uint64_t value = 0;
    const int n = snprintf(text, sizeof text, "%s %d %d", a->call->id, a->index, number);
    hash_bytes(text, (size_t)n, hex);
    for (int i = 0; i < 15; i++) value = value << 4 | (uint64_t)(strchr(DIGITS, hex[i]) - DIGITS);
    for (int i = 0; i < 9; i++, value /= sizeof DIGITS - 1) id[i] = DIGITS[value % (sizeof DIGITS - 1)];
    id[9] = '\0';
}

void reply_read_calls(struct answer *a, const struct str *text, bool ended)
{
    json_t *found = json_array(), *function;
    size_t i;
    tool_reader_push(&a->reader, str_text(text), text->len, &a->ready, found);
    if (ended) tool_reader_finish(&a->reader, &a->ready, found);
    json_array_foreach(found, i, function)
    {
        char id[10];
        json_t *call = json_object();
        call_id(id, a, a->call_count);
        if (a->call->ask.stream) json_put_int(call, "index", a->call_count);
        json_put_str(call, "id", id);
        json_put_str(call, "type", "function");
        json_put(call, "function", json_incref(function));
        json_array_append_new(a->calls, call);
        a->call_count++;
    }
    json_decref(found);
}

/* Text and calls of a message, or of a part of one. A message that only calls has no text. */
static void put_message(json_t *message, struct answer *a)
{
    const bool calls = json_array_size(a->calls) > 0;
    json_put(message, "content",
             calls && !a->ready.len ? json_null() : reply_text(str_text(&a->ready), a->ready.len));
    if (!calls) return;
    json_put(message, "tool_calls", a->calls);
    a->calls = json_array();
}

/* ---------------------------------------------------------------- log-probabilities */

/* One token of chat: {"token", "logprob", "bytes"}. */
static json_t *chance_json(const struct server *s, int32_t token, double logprob)
{
    struct str piece = { 0 };
    json_t *o = json_object(), *bytes = json_array();
    piece_of(s, token, &piece);
    json_put(o, "token", token_name(&piece, ""));
    json_put_num(o, "logprob", logprob);
    for (size_t i = 0; i < piece.len; i++)
        json_array_append_new(bytes, json_integer((unsigned char)piece.data[i]));
    json_put(o, "bytes", bytes);
    str_free(&piece);
    return o;
}

static json_t *chat_logprobs(const struct server *s, const struct answer *a, int count)
{
    json_t *o = json_object(), *content = json_array();
    for (int i = 0; i < count; i++) {
        const struct note *t = &a->notes[i];
        json_t *one = chance_json(s, t->token, (double)t->logprob), *top = json_array();
        for (int k = 0; k < t->top_count; k++)
            json_array_append_new(top, chance_json(s, t->top[k].token, (double)t->top[k].logprob));
        json_put(one, "top_logprobs", top);
        json_array_append_new(content, one);
    }
    json_put(o, "content", content);
    return o;
}

/* {NAME: log-probability}, likeliest first. Of tokens with the same name, the likeliest is in it. */
static json_t *completion_top(const struct server *s, const struct note *t)
{
    struct str piece = { 0 };
    json_t *top = json_object();
    for (int k = 0; k < t->top_count; k++) {
        piece_of(s, t->top[k].token, &piece);
        json_t *name = token_name(&piece, "bytes:");
        const char *key = json_string_value(name);
        const size_t n = json_string_length(name);
        if (!json_object_getn(top, key, n))
            json_object_setn_new(top, key, n, json_num((double)t->top[k].logprob));
        json_decref(name);
    }
    str_free(&piece);
    return top;
}

/* Of completions: lists side by side. text_offset counts characters from the beginning of the answer; a token
 * that goes on with a character has the place of this character. */
static json_t *completion_logprobs(const struct server *s, struct answer *a, int count)
{
    struct str piece = { 0 };
    json_t *o = json_object(), *tokens = json_array(), *chances = json_array(), *tops = json_array(),
           *offsets = json_array();
    for (int i = 0; i < count; i++) {
        const struct note *t = &a->notes[i];
        piece_of(s, t->token, &piece);
        json_array_append_new(tokens, token_name(&piece, "bytes:"));
        json_array_append_new(chances, json_num((double)t->logprob));
        json_array_append_new(offsets, json_integer((json_int_t)a->noted.characters));
        if (t->bytes) characters_add(&a->noted, str_text(&piece), piece.len);
        json_array_append_new(tops, completion_top(s, t));
    }
    json_put(o, "tokens", tokens);
    json_put(o, "token_logprobs", chances);
    json_put(o, "top_logprobs", tops);
    json_put(o, "text_offset", offsets);
    str_free(&piece);
    return o;
}

/* The notes of the text that is sent now. Those of text that is held back stay. */
static json_t *logprobs_take(const struct server *s, struct call *c, struct answer *a)
{
    int count = 0;
    if (c->ask.top < 0) return json_null();
    while (count < a->note_count &&
           (a->finish || a->notes[count].at + a->notes[count].bytes <= a->held.length))
        count++;
    json_t *o = c->ask.endpoint == ENDPOINT_CHAT ? chat_logprobs(s, a, count)
                                                 : completion_logprobs(s, a, count);
    a->note_count -= count;
    memmove(a->notes, a->notes + count, (size_t)a->note_count * sizeof *a->notes);
    return o;
}

/* ---------------------------------------------------------------- usage and times */

static int64_t earlier(int64_t a_ns, int64_t b_ns)
{
    return !a_ns || (b_ns && b_ns < a_ns) ? b_ns : a_ns;
}

struct call_sums call_sum(const struct call *c)
{
    struct call_sums sum = { 0 };
    for (int i = 0; i < c->prompt_count; i++) sum.prompt += c->prompts[i].n;
    for (int i = 0; i < c->answer_count; i++) {
        const struct answer *a = &c->answers[i];
        sum.admitted_ns = earlier(sum.admitted_ns, a->admitted_ns);
        sum.first_ns = earlier(sum.first_ns, a->first_ns);
        sum.last_ns = MAX(sum.last_ns, a->last_ns);
        sum.made += a->made;
        if (a->index % c->ask.choices == 0) sum.cached += a->cached;
        sum.found += a->cached;
        sum.computed += c->prompts[a->prompt].n - a->cached;
    }
    return sum;
}

static json_t *usage_json(const struct call *c)
{
    const struct call_sums sum = call_sum(c);
    json_t *o = json_object(), *details = json_object();
    json_put_int(o, "prompt_tokens", sum.prompt);
    json_put_int(o, "completion_tokens", sum.made);
    json_put_int(o, "total_tokens", sum.prompt + sum.made);
    json_put_int(details, "cached_tokens", sum.cached);
    json_put(o, "prompt_tokens_details", details);
    return o;
}

static double ms_between(int64_t from_ns, int64_t to_ns)
{
    return from_ns && to_ns ? (double)(to_ns - from_ns) * 1e-6 : (double)NAN;
}

static double rate_of(int64_t n, double ms)
{
    return ms > 0 ? (double)n / ms * 1e3 : (double)NAN;
}

/* Names as llama-server has them, where it has the figure. */
static json_t *timings_json(const struct call *c)
{
    json_t *o = json_object();
    const struct call_sums sum = call_sum(c);
    const double prompt_ms = ms_between(sum.admitted_ns, sum.first_ns),
                 predicted_ms = ms_between(sum.first_ns, sum.last_ns);
    json_put_num(o, "queue_ms", ms_between(c->arrived_ns, sum.admitted_ns));
    json_put_num(o, "ttft_ms", ms_between(c->arrived_ns, sum.first_ns));
    json_put_int(o, "cache_n", sum.found);
    json_put_int(o, "prompt_n", sum.computed);
    json_put_num(o, "prompt_ms", prompt_ms);
    json_put_num(o, "prompt_per_second", rate_of(sum.computed, prompt_ms));
    json_put_int(o, "predicted_n", sum.made);
    json_put_num(o, "predicted_ms", predicted_ms);
    /* the first token of each answer is the prefill's */
    json_put_num(o, "predicted_per_second", rate_of(sum.made - c->answer_count, predicted_ms));
    return o;
}

/* ---------------------------------------------------------------- documents */

static json_t *envelope(const struct server *s, const struct call *c, bool event)
{
    json_t *o = json_object();
    const bool chat = c->ask.endpoint == ENDPOINT_CHAT;
    json_put_str(o, "id", c->id);
    json_put_str(o, "object",
                 !chat   ? "text_completion"
                 : event ? "chat.completion.chunk"
                         : "chat.completion");
    json_put_int(o, "created", c->created);
    json_put_str(o, "model", s->o.name);
    return o;
}

/* What a choice holds: the whole message, or of an event: only its beginning, or a part. */
enum choice_form { CHOICE_WHOLE, CHOICE_BEGIN, CHOICE_PART };

static json_t *choice_of(const struct server *s, struct call *c, struct answer *a, enum choice_form form)
{
    json_t *o = json_object();
    json_put_int(o, "index", a->index);
    if (c->ask.endpoint == ENDPOINT_CHAT) {
        json_t *message = json_object();
        if (form != CHOICE_PART) json_put_str(message, "role", "assistant");
        if (form == CHOICE_BEGIN)
            json_put_str(message, "content", "");
        else
            put_message(message, a);
        json_put(o, form == CHOICE_WHOLE ? "message" : "delta", message);
    } else {
        json_put(o, "text", reply_text(str_text(&a->ready), a->ready.len));
    }
    json_put(o, "logprobs", form == CHOICE_BEGIN ? json_null() : logprobs_take(s, c, a));
    json_put_str(o, "finish_reason", form == CHOICE_BEGIN ? NULL : a->finish);
    return o;
}

json_t *reply_document(const struct server *s, struct call *c)
{
    json_t *o = envelope(s, c, false), *choices = json_array();
    for (int i = 0; i < c->answer_count; i++)
        json_array_append_new(choices, choice_of(s, c, &c->answers[i], CHOICE_WHOLE));
    json_put(o, "choices", choices);
    json_put(o, "usage", usage_json(c));
    json_put(o, "timings", timings_json(c));
    return o;
}

/* ---------------------------------------------------------------- events */

void reply_line(struct str *out, const char *before, json_t *document, const char *after)
{
    char *line = json_line(document);
    json_decref(document);
    if (line)
        str_printf(out, "%s%s%s", before, line, after);
    else
        out->failed = true;
    free(line);
}

void reply_event(struct str *out, json_t *document)
{
    reply_line(out, "data: ", document, "\n\n");
}

static void event_append(const struct server *s, struct call *c, json_t *choice, bool last)
{
    json_t *o = envelope(s, c, true), *choices = json_array();
    json_array_append_new(choices, choice);
    json_put(o, "choices", choices);
    if (c->ask.usage_always)
        json_put(o, "usage", usage_json(c));
    else if (c->ask.usage)
        json_put(o, "usage", json_null());
    if (last) json_put(o, "timings", timings_json(c));
    reply_event(&c->pending, o);
}

void reply_stream_answer(const struct server *s, struct call *c, struct answer *a)
{
    if (a->closed || (!a->ready.len && !a->finish && !json_array_size(a->calls))) return;
    if (!a->begun && c->ask.endpoint == ENDPOINT_CHAT)
        event_append(s, c, choice_of(s, c, a, CHOICE_BEGIN), false);
    a->begun = true;
    event_append(s, c, choice_of(s, c, a, CHOICE_PART), a->finish && !c->left);
    a->closed = a->finish != NULL;
    str_clear(&a->ready);
}

void reply_stream_end(const struct server *s, struct call *c)
{
    if (c->ask.usage) {
        json_t *o = envelope(s, c, true);
        json_put(o, "choices", json_array());
        json_put(o, "usage", usage_json(c));
        json_put(o, "timings", timings_json(c));
        reply_event(&c->pending, o);
    }
    str_append(&c->pending, "data: [DONE]\n\n");
}
