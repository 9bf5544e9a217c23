/* Opens the template, renders conversations, and turns the rendering into ids. */
#include "engine/chat/chat.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/gguf/gguf.h"
#include "engine/template/template.h"

enum { DATE_OF_FILES = 1767268800 /* 2026-01-01 12:00 UTC: that day almost everywhere */ };

/* Special tokens whose texts templates can print: as in transformers, the variable exists only if the
 * tokenizer has the token. */
enum { BOS, EOS, UNKNOWN, PADDING, SPECIAL_COUNT };

struct chat {
    const struct tokenizer *tokenizer;
    struct template *template;
    struct template *for_tools; /* a second one of the file, for conversations with tools; NULL: none */
    struct str specials[SPECIAL_COUNT];
    struct str tools_text; /* of the template for tools */
    bool built_in;         /* `template` is a row of CHAT_TEMPLATES */
};

const char *chat_template_for_tools(const struct chat *c)
{
    return str_text(&c->tools_text);
}

/* ---------------------------------------------------------------- open, close */

static enum err_code open_file(struct chat *c, const char *path, struct err *why)
{
    char *text, names[160];
    size_t n;
    const bool is_file = !access(path, F_OK);
    const struct chat_template_row *row = is_file ? NULL : chat_template_find(path);
    if (row) {
        c->built_in = true;
        str_append(&c->tools_text, row->text);
        return template_open(&c->template, row->text, strlen(row->text), row->name, why);
    }
    if (!is_file && !strpbrk(path, "/."))
        return err_set(why, ERR_USAGE,
                       "--template %s: no file and no built-in template has this name; expected a "
                       "Jinja file, or one of %s",
                       path, chat_template_names(names, sizeof names));
    enum err_code rc = file_read(&text, &n, path, TEMPLATE_TEXT_MOST, why);
    if (rc) return rc;
    rc = template_open(&c->template, text, n, path, why);
    str_append_n(&c->tools_text, text, n);
    free(text);
    return rc;
}

static const char KEY[] = "tokenizer.chat_template", KEY_FOR_TOOLS[] = "tokenizer.chat_template.tool_use";

bool chat_has_template(const struct gguf *g)
{
    return gguf_get_string(g, KEY).len > 0;
}

static enum err_code open_template(struct chat *c, const struct gguf *g, const char *file, struct err *why)
{
    const struct gguf_string text = gguf_get_string(g, KEY), tools = gguf_get_string(g, KEY_FOR_TOOLS);
    char advice[CHAT_ADVICE];
    if (file) return open_file(c, file, why);
    if (!chat_has_template(g))
        return err_set(why, ERR_USAGE, "'%s' has no chat template (%s): %s", gguf_path(g), KEY,
                       chat_template_advice(c->tokenizer, advice));
    enum err_code rc = template_open(&c->template, text.data, text.len, KEY, why);
    if (!rc && tools.len) rc = template_open(&c->for_tools, tools.data, tools.len, KEY_FOR_TOOLS, why);
    str_append_n(&c->tools_text, tools.len ? tools.data : text.data, tools.len ? tools.len : text.len);
    if (rc) err_prefix(why, "'%s'", gguf_path(g));
    return rc;
}

enum err_code chat_open(struct chat **out, const struct gguf *g, const struct tokenizer *t,
                        const char *template_file, struct err *why)
{
    struct tokenizer_info info;
    *out = NULL;
    struct chat *c = calloc(1, sizeof *c);
    if (!c) return err_set(why, ERR_NOMEM, "out of memory for a chat");
    c->tokenizer = t;
    tokenizer_describe(t, &info);
    enum err_code rc = open_template(c, g, template_file, why);
    /* a built-in template writes BOS exactly where this tokenizer begins texts with it */
    const bool writes_bos = info.add_bos || !c->built_in;
    const int64_t padding = gguf_get_int(g, "tokenizer.ggml.padding_token_id", -1),
                  ids[SPECIAL_COUNT] = { writes_bos ? info.bos : -1, info.eos, info.unk, padding };
    for (int i = 0; i < SPECIAL_COUNT && !rc; i++)
        if (ids[i] >= 0 && ids[i] < info.n_vocab)
            rc = tokenizer_piece(t, (int32_t)ids[i], true, &c->specials[i], why);
    if (rc) {
        chat_close(c);
        return rc;
    }
    *out = c;
    return ERR_OK;
}

void chat_close(struct chat *c)
{
    if (!c) return;
    template_close(c->template);
    template_close(c->for_tools);
    str_free(&c->tools_text);
    for (int i = 0; i < SPECIAL_COUNT; i++) str_free(&c->specials[i]);
    free(c);
}

/* ---------------------------------------------------------------- encode */

static enum err_code check_messages(const json_t *messages, struct err *why)
{
    size_t i;
    json_t *m;
    if (!json_is_array(messages) || !json_array_size(messages))
        return err_set(why, ERR_USAGE,
                       "expected a list of at least one message, {\"role\": ..., \"content\": ...}");
    json_array_foreach((json_t *)(uintptr_t)messages, i, m)
    {
        if (!json_is_object(m) || !json_text(json_object_get(m, "role")))
            return err_set(why, ERR_USAGE,
                           "message %zu: expected an object with a role, e.g. \"role\": \"user\"", i + 1);
    }
    return ERR_OK;
}

/* NULL: there is no such token. */
static const char *special_text(const struct chat *c, int which)
{
    return c->specials[which].len ? str_text(&c->specials[which]) : NULL;
}

/* A copy of the messages in which calls of tools without a text have an empty one; NULL: there are none, or
 * no memory. */
static json_t *messages_with_texts(const json_t *messages)
{
    json_t *copy = NULL;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i), *content = json_object_get(m, "content");
        if (!json_array_size(json_object_get(m, "tool_calls")) || (content && !json_is_null(content)))
            continue;
        if (!copy) copy = json_copy((json_t *)(uintptr_t)messages);
        json_t *with = json_copy((json_t *)(uintptr_t)m);
        json_put_str(with, "content", "");
        json_array_set_new(copy, i, with);
    }
    return copy;
}

/* Clients send a call of tools with "content": null. Some templates look for that, and must get it. Others
 * print every content: they fail, or print "None", which was never said; those get an empty text. */
static enum err_code messages_render(const struct template *t, struct template_input in, struct rendered *out,
                                     struct err *why)
{
    struct rendered other = { 0 };
    const enum err_code rc = template_render(t, &in, out, why);
    if (rc == ERR_NOMEM || (!rc && !out->none_printed)) return rc;
    json_t *messages = messages_with_texts(in.messages);
    in.messages = messages;
    if (messages && !template_render(t, &in, &other, NULL) && (rc || !other.none_printed)) {
        rendered_free(out);
        *out = other;
        json_decref(messages);
        return ERR_OK;
    }
    rendered_free(&other);
    json_decref(messages);
    return rc;
}

enum err_code chat_encode(const struct chat *c, const struct chat_request *r, struct token_list *out,
                          struct err *why)
{
    const struct template_input in = { .messages = r->messages,
                                       .tools = r->tools,
                                       .extra = r->extra,
                                       .add_generation_prompt = r->add_generation_prompt,
                                       .bos_token = special_text(c, BOS),
                                       .eos_token = special_text(c, EOS),
                                       .unk_token = special_text(c, UNKNOWN),
                                       .pad_token = special_text(c, PADDING),
                                       .now = r->now };
    struct rendered text = { 0 };
    enum err_code rc = check_messages(r->messages, why);
    const bool tools = json_array_size(r->tools) > 0 && c->for_tools; /* null or no list: none */
    if (!rc) rc = messages_render(tools ? c->for_tools : c->template, in, &text, why);
    if (!rc)
        rc = tokenizer_encode_partly(c->tokenizer, str_text(&text.text), str_text(&text.from_message),
                                     text.text.len, out, why);
    rendered_free(&text);
    return rc;
}

/* ---------------------------------------------------------------- files of conversations */

static size_t line_length(const char *text, size_t n)
{
    const char *end = memchr(text, '\n', n);
    return end ? (size_t)(end - text) : n;
}

static bool is_blank(const char *line, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!memchr(" \t\r", line[i], 3)) return false;
    return true;
}

/* Editors put a byte order mark before UTF-8; it is no part of the text. Returns its length or 0. */
static size_t bom_length(const char *text, size_t n)
{
    static const char BOM[] = "\xef\xbb\xbf";
    return n >= sizeof BOM - 1 && !memcmp(text, BOM, sizeof BOM - 1) ? sizeof BOM - 1 : 0;
}

enum err_code text_kind_find(enum text_kind *out, const char *text, size_t n, struct err *why)
{
    enum { HEAD = 4096 };
    static const char MESSAGES[] = "\"messages\"";
    size_t at = bom_length(text, n), line;
    json_t *j;
    *out = TEXT_PLAIN;
    while (at < n && is_blank(text + at, line = line_length(text + at, n - at))) at += line + 1;
    if (at >= n || !memchr("{[", text[at], 2)) return ERR_OK;
    const enum err_code rc = json_parse_exact(&j, text + at, line, 1, why);
    if (rc == ERR_NOMEM) return rc;
    if (rc) { /* the rendering will say what is wrong */
        if (memmem(text + at, MIN(n - at, HEAD), MESSAGES, sizeof MESSAGES - 1)) *out = TEXT_CONVERSATIONS;
        return ERR_OK;
    }
    if (json_object_get(j, "messages"))
        *out = TEXT_CONVERSATIONS;
    else if (json_is_object(j) || json_is_object(json_array_get(j, 0)))
        *out = TEXT_OTHER_JSON;
    json_decref(j);
    return ERR_OK;
}

/* The messages of an error begin with the number of the line. */
static enum err_code encode_line(const struct chat *c, const char *line, size_t n, int64_t number,
                                 struct token_list *out, struct err *why)
{
    json_t *j;
    enum err_code rc = json_parse_exact(&j, line, n, number, why);
    if (rc) return rc;
    struct chat_request r = { .messages = json_object_get(j, "messages"), .now = DATE_OF_FILES };
    json_t *tools = json_incref(json_object_get(j, "tools"));
    json_t *messages = json_incref(json_object_get(j, "messages"));
    json_object_del(j, "messages");
    json_object_del(j, "tools");
    r.messages = messages;
    r.tools = tools;
    r.extra = j;
    rc = chat_encode(c, &r, out, why);
    json_decref(messages);
    json_decref(tools);
    json_decref(j);
    if (rc == ERR_USAGE && why) why->code = ERR_FORMAT; /* the file is at fault, not the command */
    if (rc) err_prefix(why, "conversation in line %" PRId64, number);
    return rc == ERR_USAGE ? ERR_FORMAT : rc;
}

enum err_code conversations_encode(const struct chat *c, const char *text, size_t n, struct token_list *out,
                                   struct err *why)
{
    int64_t number = 0;
    enum err_code rc = ERR_OK;
    for (size_t at = bom_length(text, n), line; at < n && !rc; at += line + 1) {
        line = line_length(text + at, n - at);
        number++;
        if (!is_blank(text + at, line)) rc = encode_line(c, text + at, line, number, out, why);
    }
    return rc;
}

enum err_code text_encode(const struct gguf *g, const struct tokenizer *t, const char *text, size_t n,
                          struct token_list *out, struct err *why)
{
    enum text_kind kind;
    struct chat *c;
    enum err_code rc = text_kind_find(&kind, text, n, why);
    if (rc) return rc;
    if (kind == TEXT_PLAIN) return tokenizer_encode(t, text, n, TOKENIZE_ADD_BOS, out, why);
    if (kind == TEXT_OTHER_JSON)
        return err_set(
            why, ERR_FORMAT,
            "the text begins with a JSON object without \"messages\": expected plain text, or one "
            "conversation a line ({\"messages\": [...]}); write the texts of such a file to a plain one");
    if (!chat_has_template(g))
        return err_set(why, ERR_USAGE,
                       "the text is a file of conversations, but the model has no chat template "
                       "(tokenizer.chat_template): expected plain text, or a model with a template");
    rc = chat_open(&c, g, t, NULL, why);
    if (!rc) rc = conversations_encode(c, text, n, out, why);
    chat_close(c);
    return rc;
}
