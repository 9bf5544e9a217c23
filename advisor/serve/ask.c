/* What the body of a request says (parts.h). FIELDS is the list of all fields: everything else is refused, so
 * that no client believes in a setting that does nothing. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/serve/parts.h"

enum {
    C = 1 << ENDPOINT_COMPLETIONS,
    M = 1 << ENDPOINT_CHAT,
    T = 1 << ENDPOINT_TOKENIZE,
    D = 1 << ENDPOINT_DETOKENIZE
};

struct field;
/* Read a value that is not null. False: *no says what is wrong. */
typedef bool field_fn(struct ask *a, const struct field *f, json_t *value, struct refusal *no);

struct field {
    const char *name;
    unsigned endpoints;
    field_fn *read;
    size_t offset;       /* of the member of struct ask */
    double min, max;     /* numbers */
    const char *expects; /* what is allowed, for messages; of field_neutral: the only value, as JSON */
};

/* ---------------------------------------------------------------- kinds of fields */

static bool field_wrong(const struct field *f, const json_t *value, struct refusal *no)
{
    char *text = json_line(value);
    refuse(no, 400, "invalid_value", f->name, "%s: expected %s, found %.80s", f->name, f->expects,
           text ? text : "a value that is too long");
    free(text);
    return false;
}

static bool field_bool(struct ask *a, const struct field *f, json_t *value, struct refusal *no)
{
    if (!json_is_boolean(value)) return field_wrong(f, value, no);
    *(bool *)((char *)a + f->offset) = json_is_true(value);
    return true;
}

static bool field_int(struct ask *a, const struct field *f, json_t *value, struct refusal *no)
{
    const double v = json_is_number(value) ? json_number_value(value) : (double)NAN;
    if (!(v >= f->min && v <= f->max) || v != floor(v)) return field_wrong(f, value, no);
    *(int64_t *)((char *)a + f->offset) = json_is_integer(value) ? json_integer_value(value) : (int64_t)v;
    return true;
}

/* Any integer of 64 bits, with or without a sign. */
static bool field_seed(struct ask *a, const struct field *f, json_t *value, struct refusal *no)
{
    const char *big = json_big_integer(value);
    uint64_t seed;
    a->seed_given = true;
    if (json_is_integer(value))
        a->seed = json_integer_value(value);
    else if (big && str_to_u64(big, &seed))
        a->seed = (int64_t)seed;
    else
        return field_int(a, f, value, no);
    return true;
}

static bool field_number(struct ask *a, const struct field *f, json_t *value, struct refusal *no)
{
    const double v = json_is_number(value) ? json_number_value(value) : (double)NAN;
    if (!(v >= f->min && v <= f->max)) return field_wrong(f, value, no);
    *(double *)((char *)a + f->offset) = v;
    return true;
}

/* A text without U+0000. */
static bool field_text(struct ask *a, const struct field *f, json_t *value, struct refusal *no)
{
    if (!json_text(value)) return field_wrong(f, value, no);
    *(const char **)((char *)a + f->offset) = json_text(value);
    return true;
}

/* Objects and lists that others check. */
static bool field_list(struct ask *a, const struct field *f, json_t *value, struct refusal *no)
{
    if (!json_is_array(value)) return field_wrong(f, value, no);
    *(const json_t **)((char *)a + f->offset) = value;
    return true;
}

/* Functions with a name. Other tools belong to OpenAI's own service. */
static bool field_tools(struct ask *a, const struct field *f, json_t *value, struct refusal *no)
{
    size_t i;
    json_t *tool;
    if (!field_list(a, f, value, no)) return false;
    json_array_foreach(value, i, tool)
    {
        const json_t *function = json_object_get(tool, "function");
        if (!json_text(json_object_get(function ? function : tool, "name")))
            return refuse(no, 400, "invalid_value", f->name,
                          "tools[%zu]: expected {\"type\": \"function\", \"function\": {\"name\": ...}}", i);
    }
    return true;
}

/* Forcing a call would need a grammar. */
static bool field_tool_choice(struct ask *a, const struct field *f, json_t *value, struct refusal *no)
{
    const char *choice = json_text(value);
    a->no_tools = choice && !strcmp(choice, "none");
    return a->no_tools || (choice && !strcmp(choice, "auto")) ||
           refuse(no, 400, "unsupported_value", f->name, "%s: this server supports only %s; leave it out",
                  f->name, f->expects);
}

static bool field_object(struct ask *a, const struct field *f, json_t *value, struct refusal *no)
{
    if (!json_is_object(value)) return field_wrong(f, value, no);
    *(const json_t **)((char *)a + f->offset) = value;
    return true;
}

/* It cannot change an answer here, e.g. because it is for the operator of a public service. */
static bool field_ignored(struct ask *a, const struct field *f, json_t *value, struct refusal *no)
{
    (void)a, (void)f, (void)value, (void)no;
    return true;
}

/* A setting that this server does not have: only the value that means nothing is accepted. */
static bool field_neutral(struct ask *a, const struct field *f, json_t *value, struct refusal *no)
{
    (void)a;
    json_t *only = NULL;
    if (json_parse(&only, f->expects, strlen(f->expects), NULL)) return false;
    const bool same = json_is_number(only) && json_is_number(value)
                          ? json_number_value(only) == json_number_value(value)
                          : json_equal(only, value);
    json_decref(only);
    return same || refuse(no, 400, "unsupported_value", f->name,
                          "%s: this server supports only %s; leave it out", f->name, f->expects);
}

/* ---------------------------------------------------------------- single fields */

static bool is_ids(const json_t *list)
{
    size_t i;
    json_t *id;
    json_array_foreach((json_t *)(uintptr_t)list, i, id) if (!json_is_integer(id) ||
                                                             json_integer_value(id) < 0 ||
                                                             json_integer_value(id) > INT32_MAX) return false;
    return json_array_size(list) > 0;
}

static bool field_ids(struct ask *a, const struct field *f, json_t *value, struct refusal *no)
{
    if (!json_is_array(value) || (json_array_size(value) && !is_ids(value))) return field_wrong(f, value, no);
    a->tokens = value;
    return true;
}

static bool field_prompt(struct ask *a, const struct field *f, json_t *value, struct refusal *no)
{
    size_t i;
    json_t *one;
    a->prompt = value;
    if (json_is_text(value) || a->endpoint == ENDPOINT_TOKENIZE)
        return json_is_text(value) || field_wrong(f, value, no);
    if (!json_is_array(value) || !json_array_size(value)) return field_wrong(f, value, no);
    if (is_ids(value)) return true;
    if (json_array_size(value) > CHOICES_MOST)
        return refuse(no, 400, "invalid_value", f->name, "prompt: %zu prompts: expected at most %d",
                      json_array_size(value), CHOICES_MOST);
    json_array_foreach(value, i, one) if (!json_is_text(one) &&
                                          !(json_is_array(one) && is_ids(one))) return field_wrong(f, value,
                                                                                                   no);
    return true;
}

static bool field_stop(struct ask *a, const struct field *f, json_t *value, struct refusal *no)
{
    size_t i;
    json_t *one;
    if (json_text(value)) {
        a->stop[a->stops++] = json_text(value);
    } else {
        if (!json_is_array(value) || json_array_size(value) > STOPS_MOST) return field_wrong(f, value, no);
        json_array_foreach(value, i, one)
        {
            if (!json_text(one)) return field_wrong(f, value, no);
            a->stop[a->stops++] = json_text(one);
        }
    }
    for (i = 0; i < (size_t)a->stops; i++)
        if (!*a->stop[i]) return field_wrong(f, value, no);
    return true;
}

/* Of completions a number, of chat a switch. */
static bool field_logprobs(struct ask *a, const struct field *f, json_t *value, struct refusal *no)
{
    if (a->endpoint == ENDPOINT_COMPLETIONS) return field_int(a, f, value, no);
    if (!json_is_boolean(value))
        return refuse(no, 400, "invalid_value", f->name,
                      "logprobs: expected true or false, and top_logprobs");
    if (json_is_true(value) && a->top < 0) a->top = 0;
    return true;
}

static bool field_stream_options(struct ask *a, const struct field *f, json_t *value, struct refusal *no)
{
    static const char *const NAMES[] = { "include_usage", "continuous_usage_stats" };
    bool *const to[] = { &a->usage, &a->usage_always };
    const char *name;
    json_t *v;
    if (!json_is_object(value)) return field_wrong(f, value, no);
    json_object_foreach(value, name, v)
    {
        size_t i = 0;
        while (i < COUNT_OF(NAMES) && strcmp(NAMES[i], name)) i++;
        if (i == COUNT_OF(NAMES) || !(json_is_boolean(v) || json_is_null(v)))
            return field_wrong(f, value, no);
        *to[i] = json_is_true(v);
    }
    return true;
}

/* Clients send arguments of calls as the text that they got; templates expect the object. */
static void message_open_arguments(json_t *message)
{
    size_t i;
    json_t *call, *calls = json_deep_copy(json_object_get(message, "tool_calls"));
    json_array_foreach(calls, i, call)
    {
        json_t *function = json_object_get(call, "function");
        const json_t *text = json_object_get(function, "arguments");
        json_t *arguments = NULL;
        if (json_is_text(text))
            json_parse_exact(&arguments, json_string_value(text), json_string_length(text), 1, NULL);
        if (json_is_object(arguments))
            json_object_set_new(function, "arguments", arguments);
        else
            json_decref(arguments);
    }
    if (calls) json_object_set_new(message, "tool_calls", calls);
}

/* A copy of the messages in which the content is a text: clients may send it as a list of parts. */
static bool field_messages(struct ask *a, const struct field *f, json_t *value, struct refusal *no)
{
    size_t i, k;
    json_t *message, *part;
    if (!json_is_array(value) || !json_array_size(value)) return field_wrong(f, value, no);
    a->messages = json_array();
    json_array_foreach(value, i, message)
    {
        const json_t *parts = json_object_get(message, "content");
        if (!json_is_object(message) || !json_text(json_object_get(message, "role")))
            return refuse(no, 400, "invalid_value", f->name,
                          "messages[%zu]: expected an object with a role, e.g. \"role\": \"user\"", i);
        json_t *copy = json_copy(message);
        json_array_append_new(a->messages, copy);
        message_open_arguments(copy);
        if (!json_is_array(parts)) {
            if (parts && !json_is_text(parts) && !json_is_null(parts))
                return refuse(no, 400, "invalid_value", f->name,
                              "messages[%zu].content: expected a text or a list of parts", i);
            continue;
        }
        struct str text = { 0 };
        json_array_foreach((json_t *)(uintptr_t)parts, k, part)
        {
            const json_t *t = json_object_get(part, "text");
            if (!json_is_text(t)) {
                str_free(&text);
                return refuse(no, 400, "unsupported_value", f->name,
                              "messages[%zu].content[%zu]: this server reads parts of type \"text\" only", i,
                              k);
            }
            str_append_n(&text, json_string_value(t), json_string_length(t));
        }
        json_object_set_new(copy, "content", json_stringn(str_text(&text), text.len));
        str_free(&text);
    }
    return true;
}

/* ---------------------------------------------------------------- the table */

#define AT(member) offsetof(struct ask, member)
#define ANY_INT    "a whole number"

/* clang-format off */
static const struct field FIELDS[] = {
    { .name = "model", .endpoints = C | M | T | D, .read = field_text, .offset = AT(model), .expects = "the name of a model" },
    { .name = "prompt", .endpoints = C | T, .read = field_prompt, .expects = "a text, a list of token ids, or a list of such prompts" },
    { .name = "messages", .endpoints = M | T, .read = field_messages, .expects = "a list of at least one message" },
    { .name = "tools", .endpoints = M | T, .read = field_tools, .offset = AT(tools), .expects = "a list of tools" },
    { .name = "chat_template_kwargs", .endpoints = M | T, .read = field_object, .offset = AT(template_variables), .expects = "an object" },
    { .name = "max_tokens", .endpoints = C | M, .read = field_int, .offset = AT(most), .min = 1, .max = 1 << 30,
      .expects = "a whole number of at least 1" },
    { .name = "max_completion_tokens", .endpoints = M, .read = field_int, .offset = AT(most), .min = 1, .max = 1 << 30,
      .expects = "a whole number of at least 1" },
    { .name = "min_tokens", .endpoints = C | M, .read = field_int, .offset = AT(least), .min = 0, .max = 1 << 30,
      .expects = "a whole number of at least 0" },
    { .name = "temperature", .endpoints = C | M, .read = field_number, .offset = AT(temperature), .min = 0, .max = 100,
      .expects = "a number from 0 to 100" },
    { .name = "top_p", .endpoints = C | M, .read = field_number, .offset = AT(top_p), .min = 0, .max = 1,
      .expects = "a number from 0 to 1" },
    { .name = "top_k", .endpoints = C | M, .read = field_int, .offset = AT(top_k), .min = -1, .max = 1 << 24,
      .expects = "a whole number; 0 or -1: off" },
    { .name = "min_p", .endpoints = C | M, .read = field_number, .offset = AT(min_p), .min = 0, .max = 1,
      .expects = "a number from 0 to 1" },
    { .name = "repeat_penalty", .endpoints = C | M, .read = field_number, .offset = AT(repeat_penalty), .min = 0.01, .max = 100,
      .expects = "a number from 0.01 to 100" },
    { .name = "repeat_last_n", .endpoints = C | M, .read = field_int, .offset = AT(repeat_last), .min = 0, .max = 1 << 24,
      .expects = "a whole number of at least 0" },
    { .name = "seed", .endpoints = C | M, .read = field_seed, .offset = AT(seed), .min = -9007199254740992.0, .max = 9007199254740992.0,
      .expects = "a whole number from -2^63 to 2^64-1" },
    { .name = "stop", .endpoints = C | M, .read = field_stop, .expects = "a text, or a list of at most 4 texts, none of them empty or with U+0000" },
    { .name = "n", .endpoints = C | M, .read = field_int, .offset = AT(choices), .min = 1, .max = CHOICES_MOST,
      .expects = "a whole number from 1 to 128" },
    { .name = "best_of", .endpoints = C, .read = field_int, .offset = AT(best_of), .min = 1, .max = CHOICES_MOST,
      .expects = "the value of n" },
    { .name = "logprobs", .endpoints = C | M, .read = field_logprobs, .offset = AT(top), .min = 0, .max = SERVING_TOP_MOST,
      .expects = "a whole number from 0 to 20" },
    { .name = "top_logprobs", .endpoints = M, .read = field_int, .offset = AT(top), .min = 0, .max = SERVING_TOP_MOST,
      .expects = "a whole number from 0 to 20" },
    { .name = "ignore_eos", .endpoints = C | M, .read = field_bool, .offset = AT(ignore_end), .expects = "true or false" },
    { .name = "priority", .endpoints = C | M, .read = field_int, .offset = AT(priority), .min = -1000000, .max = 1000000,
      .expects = ANY_INT " from -1000000 to 1000000" },
    { .name = "stream", .endpoints = C | M, .read = field_bool, .offset = AT(stream), .expects = "true or false" },
    { .name = "stream_options", .endpoints = C | M, .read = field_stream_options, .expects = "an object with include_usage or continuous_usage_stats" },
    { .name = "content", .endpoints = T, .read = field_prompt, .expects = "a text" },
    { .name = "add_special", .endpoints = T, .read = field_bool, .offset = AT(add_special), .expects = "true or false" },
    { .name = "add_special_tokens", .endpoints = T, .read = field_bool, .offset = AT(add_special), .expects = "true or false" },
    { .name = "tokens", .endpoints = D, .read = field_ids, .expects = "a list of token ids" },
    /* settings of other servers: their neutral value is the only one */
    { .name = "frequency_penalty", .endpoints = C | M, .read = field_neutral, .expects = "0" },
    { .name = "presence_penalty", .endpoints = C | M, .read = field_neutral, .expects = "0" },
    { .name = "repetition_penalty", .endpoints = C | M, .read = field_neutral, .expects = "1" },
    { .name = "logit_bias", .endpoints = C | M, .read = field_neutral, .expects = "{}" },
    { .name = "suffix", .endpoints = C, .read = field_neutral, .expects = "\"\"" },
    { .name = "echo", .endpoints = C, .read = field_neutral, .expects = "false" },
    { .name = "response_format", .endpoints = M, .read = field_neutral, .expects = "{\"type\": \"text\"}" },
    { .name = "tool_choice", .endpoints = M | T, .read = field_tool_choice, .expects = "\"auto\" or \"none\"" },
    { .name = "modalities", .endpoints = M, .read = field_neutral, .expects = "[\"text\"]" },
    /* they are about the service, not about the answer */
    { .name = "user", .endpoints = C | M, .read = field_ignored },
    { .name = "metadata", .endpoints = C | M, .read = field_ignored },
    { .name = "store", .endpoints = C | M, .read = field_ignored },
    { .name = "service_tier", .endpoints = C | M, .read = field_ignored },
    { .name = "safety_identifier", .endpoints = C | M, .read = field_ignored },
    { .name = "prompt_cache_key", .endpoints = C | M, .read = field_ignored },
    { .name = "parallel_tool_calls", .endpoints = M, .read = field_ignored },
};
/* clang-format on */

static const struct field *field_find(enum endpoint endpoint, const char *name)
{
    for (size_t i = 0; i < COUNT_OF(FIELDS); i++)
        if (FIELDS[i].endpoints & 1U << endpoint && !strcmp(FIELDS[i].name, name)) return &FIELDS[i];
    return NULL;
}

const char *ask_field_name(size_t i)
{
    return i < COUNT_OF(FIELDS) ? FIELDS[i].name : NULL;
}

static bool field_unknown(enum endpoint endpoint, const char *name, struct refusal *no)
{
    const char *known[COUNT_OF(FIELDS)];
    size_t n = 0;
    for (size_t i = 0; i < COUNT_OF(FIELDS); i++)
        if (FIELDS[i].endpoints & 1U << endpoint) known[n++] = FIELDS[i].name;
    const char *near = strlen(name) < sizeof no->param ? str_nearest(name, known, n) : NULL;
    return refuse(no, 400, "unknown_field", name, "%.60s: this server does not know this field%s%s%s", name,
                  near ? "; did you mean " : "; leave it out", near ? near : "", near ? "?" : "");
}

/* ---------------------------------------------------------------- the whole body */

static bool ask_check(const struct ask *a, struct refusal *no)
{
    const bool generates = a->endpoint == ENDPOINT_COMPLETIONS || a->endpoint == ENDPOINT_CHAT;
    const int64_t prompts = json_is_array(a->prompt) && !json_is_integer(json_array_get(a->prompt, 0))
                                ? (int64_t)json_array_size(a->prompt)
                                : 1;
    if (a->endpoint == ENDPOINT_COMPLETIONS && !a->prompt)
        return refuse(no, 400, "missing_field", "prompt", "prompt: expected a text or token ids, found none");
    if (a->endpoint == ENDPOINT_CHAT && !a->messages)
        return refuse(no, 400, "missing_field", "messages", "messages: expected a list, found none");
    if (a->endpoint == ENDPOINT_TOKENIZE && !a->prompt == !a->messages)
        return refuse(no, 400, "missing_field", "content", "expected either content (a text) or messages");
    if (a->endpoint == ENDPOINT_DETOKENIZE && !a->tokens)
        return refuse(no, 400, "missing_field", "tokens", "tokens: expected a list of token ids, found none");
    if (!generates) return true;
    if (a->best_of && a->best_of != a->choices)
        return refuse(no, 400, "unsupported_value", "best_of",
                      "best_of: this server supports only the value of n");
    if (prompts * a->choices > CHOICES_MOST)
        return refuse(no, 400, "invalid_value", "n",
                      "%lld prompts with %lld choices: expected at most %d answers", (long long)prompts,
                      (long long)a->choices, CHOICES_MOST);
    if (a->most >= 0 && a->least > a->most)
        return refuse(no, 400, "invalid_value", "min_tokens", "min_tokens %lld is more than max_tokens %lld",
                      (long long)a->least, (long long)a->most);
    if ((a->usage || a->usage_always) && !a->stream)
        return refuse(no, 400, "invalid_value", "stream_options",
                      "stream_options: expected with \"stream\": true");
    return true;
}

/* top_logprobs asks for tokens only where logprobs is true. */
static bool chat_top_check(const struct ask *a, struct refusal *no)
{
    const json_t *top = json_object_get(a->body, "top_logprobs");
    if (a->endpoint != ENDPOINT_CHAT || !json_is_integer(top) ||
        json_is_true(json_object_get(a->body, "logprobs")))
        return true;
    return refuse(no, 400, "invalid_value", "top_logprobs", "top_logprobs: expected with \"logprobs\": true");
}

bool ask_parse(struct ask *out, enum endpoint endpoint, const char *body, size_t n, struct refusal *no)
{
    const struct sampler_options plain = SAMPLER_DEFAULTS;
    struct err why = { 0 };
    const char *name;
    json_t *value;
    *out = (struct ask){ .endpoint = endpoint,
                         .most = -1,
                         .choices = 1,
                         .top = -1,
                         .temperature = 1,
                         .top_p = 1,
                         .repeat_penalty = (double)plain.repeat_penalty,
                         .repeat_last = plain.repeat_last,
                         .add_special = true };
    if (json_parse_exact(&out->body, body, n, 1, &why))
        return refuse(no, why.code == ERR_NOMEM ? 500 : 400, "invalid_json", NULL, "the body: %s",
                      why.message);
    if (!json_is_object(out->body))
        return refuse(no, 400, "invalid_json", NULL, "the body: expected a JSON object");
    json_object_foreach(out->body, name, value)
    {
        const struct field *f = field_find(endpoint, name);
        if (!f) return field_unknown(endpoint, name, no);
        if (!json_is_null(value) && !f->read(out, f, value, no)) return false;
    }
    if (out->no_tools) out->tools = NULL;
    return chat_top_check(out, no) && ask_check(out, no);
}

void ask_free(struct ask *a)
{
    json_decref(a->messages);
    json_decref(a->body);
    *a = (struct ask){ 0 };
}
