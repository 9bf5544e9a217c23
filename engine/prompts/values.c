/* What one JSON value of a file of prompts means: which form it has, its text or messages, its class, and the
 * length of its answer (prompts.h). */
#include "engine/prompts/prompts_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_MOST = 1 << 24 /* tokens, as in workloads */ };

/* ---------------------------------------------------------------- parts of an object */

/* The names that files give to the writers of messages, and those of chat templates. */
static const struct {
    const char *from, *role;
} ROLES[] = { { "human", "user" },      { "user", "user" },         { "system", "system" },
              { "gpt", "assistant" },   { "chatgpt", "assistant" }, { "assistant", "assistant" },
              { "model", "assistant" }, { "bing", "assistant" },    { "bard", "assistant" },
              { "tool", "tool" } };

static const char *role_of(const char *from)
{
    for (size_t i = 0; i < COUNT_OF(ROLES); i++)
        if (!strcmp(from, ROLES[i].from)) return ROLES[i].role;
    return "";
}

/* The text of a message: a string, or a list of parts of type text. ERR_FORMAT. *out: str_free in any case.
 */
static enum err_code content_read(struct str *out, const json_t *content, struct err *why)
{
    if (json_is_text(content)) {
        str_append(out, json_string_value(content));
    } else if (json_is_array(content)) {
        for (size_t i = 0; i < json_array_size(content); i++) {
            const json_t *part = json_array_get(content, i);
            const char *text = json_get_str(part, "text", NULL);
            if (!text)
                return err_set(why, ERR_FORMAT,
                               "a message has a part of the type '%.40s': expected text only",
                               json_get_str(part, "type", "unknown"));
            str_append(out, text);
        }
    } else if (content && !json_is_null(content)) {
        return err_set(why, ERR_FORMAT, "the content of a message is no text");
    }
    return out->failed ? err_set(why, ERR_NOMEM, "out of memory for a message") : ERR_OK;
}

/* A copy of a message with its content as one text. New reference. */
static enum err_code message_read(json_t **out, const json_t *message, struct err *why)
{
    struct str text = { 0 };
    *out = NULL;
    if (!json_is_object(message) || !*json_get_str(message, "role", ""))
        return err_set(why, ERR_FORMAT,
                       "expected messages such as {\"role\": \"user\", \"content\": \"...\"}");
    const enum err_code rc = content_read(&text, json_object_get(message, "content"), why);
    if (!rc) {
        *out = json_copy((json_t *)(uintptr_t)message);
        json_put_str(*out, "content", str_text(&text));
    }
    str_free(&text);
    return rc;
}

/* The tokens of an answer that an object asks for; 0: it does not say. */
static int most_of(const json_t *o)
{
    static const char *const KEYS[] = { "max_completion_tokens", "max_tokens", "output_tokens" };
    for (size_t i = 0; i < COUNT_OF(KEYS); i++) {
        const int64_t most = json_get_int(o, KEYS[i], 0);
        if (most > 0) return (int)MIN(most, ANSWER_MOST);
    }
    return 0;
}

/* The class of a line: a text or a number. */
static int class_of(struct prompts *p, const json_t *o)
{
    static const char *const KEYS[] = { "class", "category" };
    char number[32];
    for (size_t i = 0; i < COUNT_OF(KEYS); i++) {
        const json_t *v = json_object_get(o, KEYS[i]);
        if (json_is_text(v)) return prompts_class(p, json_string_value(v));
        if (!json_is_integer(v)) continue;
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(v));
        return prompts_class(p, number);
    }
    return -1;
}

/* ---------------------------------------------------------------- forms of an object */

/* Give the prompt that was added last what else its object says. */
static void prompt_complete(struct prompts *p, int before, const json_t *object, const json_t *lengths)
{
    if (p->n == before) return; /* it was skipped */
    p->prompt[before].class = class_of(p, object);
    p->prompt[before].most = most_of(lengths);
}

/* Add a conversation: all of it up to an answer at its end, which becomes the answer. Steals `messages`. */
static enum err_code conversation_add(struct prompts *p, json_t *messages, bool plain, int64_t line,
                                      struct err *why)
{
    struct prompt q = { .messages = messages, .plain = plain, .class = -1, .line = line };
    bool asked = false;
    enum err_code rc = ERR_OK;
    const size_t n = json_array_size(messages);
    if (n && !strcmp(json_get_str(json_array_get(messages, n - 1), "role", ""), "assistant")) {
        q.answer = strdup(json_get_str(json_array_get(messages, n - 1), "content", ""));
        if (!q.answer) rc = err_set(why, ERR_NOMEM, "out of memory for an answer");
        json_array_remove(messages, n - 1);
    }
    for (size_t i = 0; i < json_array_size(messages); i++)
        asked |= !strcmp(json_get_str(json_array_get(messages, i), "role", ""), "user");
    if (!rc && asked) return prompts_add(p, &q, why);
    p->skipped += !rc;
    free(q.answer);
    json_decref(messages);
    return rc;
}

static enum err_code add_messages(struct prompts *p, const json_t *list, int64_t line, struct err *why)
{
    enum err_code rc = ERR_OK;
    if (!json_is_array(list)) return err_set(why, ERR_FORMAT, "messages is no list");
    json_t *messages = json_array();
    for (size_t i = 0; i < json_array_size(list) && !rc; i++) {
        json_t *message;
        rc = message_read(&message, json_array_get(list, i), why);
        if (message) json_array_append_new(messages, message);
    }
    if (!rc) return conversation_add(p, messages, false, line, why);
    json_decref(messages);
    return rc;
}

/* A prompt is a text; OpenAI's interface also has lists of one. */
static enum err_code add_prompt(struct prompts *p, const json_t *prompt, int64_t line, struct err *why)
{
    if (json_array_size(prompt) == 1) prompt = json_array_get(prompt, 0);
    if (!json_is_text(prompt)) return err_set(why, ERR_FORMAT, "prompt is no text");
    return prompts_add_text(p, json_string_value(prompt), json_string_length(prompt), line, why);
}

/* The first message of the user, with a system prompt before it, and the answer to it. */
static enum err_code add_sharegpt(struct prompts *p, const json_t *list, int64_t line, struct err *why)
{
    if (!json_is_array(list)) return err_set(why, ERR_FORMAT, "conversations is no list");
    json_t *messages = json_array();
    bool asked = false, answered = false;
    for (size_t i = 0; i < json_array_size(list) && !answered; i++) {
        const json_t *m = json_array_get(list, i);
        const char *role = role_of(json_get_str(m, "from", json_get_str(m, "role", ""))),
                   *text = json_get_str(m, "value", json_get_str(m, "content", NULL));
        if (!*role || !text) {
            json_decref(messages);
            return err_set(
                why, ERR_FORMAT,
                "message %zu of the conversation: expected {\"from\": \"human\", \"value\": \"...\"}", i + 1);
        }
        answered = asked && !strcmp(role, "assistant");
        if (asked ? !answered : !strcmp(role, "assistant")) continue;
        asked |= !strcmp(role, "user");
        json_t *message = json_object();
        json_put_str(message, "role", role);
        json_put_str(message, "content", text);
        json_array_append_new(messages, message);
    }
    return conversation_add(p, messages, true, line, why);
}

static const struct {
    const char *key;
    enum prompt_form form;
    enum err_code (*add)(struct prompts *p, const json_t *value, int64_t line, struct err *why);
} PARTS[] = { { "messages", PROMPTS_LINES, add_messages },
              { "prompt", PROMPTS_LINES, add_prompt },
              { "conversations", PROMPTS_SHAREGPT, add_sharegpt },
              { "conversation", PROMPTS_SHAREGPT, add_sharegpt } };

/* For people: the keys of an object. */
static void keys_text(char *out, size_t size, const json_t *object)
{
    size_t at = 0;
    const char *key;
    json_t *value;
    out[0] = '\0';
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        if (at + 40 >= size) break;
        at += (size_t)snprintf(out + at, size - at, " %.32s", key);
    }
}

enum err_code prompts_add_value(struct prompts *p, const json_t *value, int64_t line, struct err *why)
{
    char keys[240];
    const int before = p->n;
    const bool first = !p->n && !p->skipped;
    if (json_is_text(value)) {
        if (first) p->form = PROMPTS_LINES;
        return prompts_add_text(p, json_string_value(value), json_string_length(value), line, why);
    }
    if (!json_is_object(value)) return err_set(why, ERR_FORMAT, "expected an object or a text");
    const json_t *body = json_object_get(value, "body"), *from = json_is_object(body) ? body : value;
    for (size_t i = 0; i < COUNT_OF(PARTS); i++) {
        const json_t *part = json_object_get(from, PARTS[i].key);
        if (!part) continue;
        if (first) p->form = from == body ? PROMPTS_BATCH : PARTS[i].form;
        const enum err_code rc = PARTS[i].add(p, part, line, why);
        if (!rc) prompt_complete(p, before, value, from);
        return rc;
    }
    keys_text(keys, sizeof keys, from);
    return err_set(why, ERR_FORMAT,
                   "expected an object with prompt, messages, conversations or body; this one has:%s",
                   *keys ? keys : " no keys");
}
