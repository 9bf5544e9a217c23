/* Calls of tools in generated text (tools.h). */
#include "advisor/serve/tools.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- styles */

/* How models of a family write calls. The first row whose sign is in the chat template is the model's. */
struct tool_style {
    const char *name;
    const char *sign;
    /* Texts that begin a call; NULL: the answer itself is one if it begins with {. */
    const char *begin;
    /* Text that ends it; NULL: the rest of the answer belongs to it. */
    const char *end;
    const char *mark; /* of a style without `begin`: may stand before the {; NULL: nothing may */
};
/* clang-format off */
static const struct tool_style STYLES[] = {
    { .name = "hermes", .sign = "<tool_call>", .begin = "<tool_call>", .end = "</tool_call>" }, /* Hermes, Qwen */
    { .name = "mistral", .sign = "[TOOL_CALLS]", .begin = "[TOOL_CALLS]" },
    { .name = "llama", .sign = "<|python_tag|>", .mark = "<|python_tag|>" },
    { .name = "llama", .sign = "\"parameters\": ", .mark = "<|python_tag|>" }, /* Llama 3.2 */
};
/* clang-format on */

const struct tool_style *tool_style_find(const char *chat_template)
{
    for (size_t i = 0; chat_template && i < COUNT_OF(STYLES); i++)
        if (strstr(chat_template, STYLES[i].sign)) return &STYLES[i];
    return NULL;
}

const char *tool_style_name(const struct tool_style *style)
{
    return style ? style->name : "";
}

bool tool_style_marks(const struct tool_style *style, const char *piece)
{
    const char *const marks[] = { style->begin, style->end, style->mark, "[ARGS]", "[CALL_ID]" };
    for (size_t i = 0; i < COUNT_OF(marks); i++)
        if (marks[i] && !strcmp(marks[i], piece)) return true;
    return false;
}

/* ---------------------------------------------------------------- parsing */

/* A place in text[0..n). */
struct place {
    const char *text;
    size_t n;
};

static void place_advance(struct place *p, size_t by)
{
    p->text += by;
    p->n -= by;
}

static void skip(struct place *p, const char *characters)
{
    while (p->n && strchr(characters, *p->text) && *p->text) place_advance(p, 1);
}

static bool take(struct place *p, const char *word)
{
    const size_t n = strlen(word);
    if (p->n < n || memcmp(p->text, word, n)) return false;
    place_advance(p, n);
    return true;
}

/* One JSON value. New reference; NULL: there is none. */
static json_t *take_json(struct place *p)
{
    json_error_t error;
    json_t *value = json_loadb(p->text, p->n, JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES, &error);
    if (value) place_advance(p, (size_t)error.position);
    return value;
}

static bool is_tool(const json_t *tools, const char *name)
{
    size_t i;
    json_t *tool;
    json_array_foreach((json_t *)(uintptr_t)tools, i, tool)
    {
        const json_t *function = json_object_get(tool, "function");
        const char *known = json_string_value(json_object_get(function ? function : tool, "name"));
        if (known && !strcmp(known, name)) return true;
    }
    return false;
}

/* Some models write the arguments as a text, which must be a JSON object. */
static bool is_object_text(const json_t *arguments)
{
    json_t *o = json_is_string(arguments)
                    ? json_loads(json_string_value(arguments), JSON_REJECT_DUPLICATES, NULL)
                    : NULL;
    const bool is = json_is_object(o);
    json_decref(o);
    return is;
}

/* Appends {"name", "arguments": TEXT}. False: there is no such tool, or these are no arguments. */
static bool add_call(const struct tool_reader *r, const char *name, const json_t *arguments, json_t *calls)
{
    if (!name || !is_tool(r->tools, name)) return false;
    char *text = json_is_object(arguments)   ? json_dumps(arguments, JSON_COMPACT | JSON_PRESERVE_ORDER)
                 : is_object_text(arguments) ? strdup(json_string_value(arguments))
                 : !arguments                ? strdup("{}")
                                             : NULL;
    json_t *call = text ? json_object() : NULL;
    if (call) {
        json_put_str(call, "name", name);
        json_put_str(call, "arguments", text);
        json_array_append_new(calls, call);
    }
    free(text);
    return call != NULL;
}

/* {"name": ..., "arguments" or "parameters": ...} */
static bool add_object(const struct tool_reader *r, const json_t *o, json_t *calls)
{
    const json_t *arguments = json_object_get(o, "arguments");
    if (!arguments) arguments = json_object_get(o, "parameters");
    return json_is_object(o) && add_call(r, json_string_value(json_object_get(o, "name")), arguments, calls);
}

/* Of Mistral's later models: NAME[ARGS]{...}, also with [CALL_ID]ID before [ARGS], or without [ARGS]. */
static bool take_named(const struct tool_reader *r, struct place *p, json_t *calls)
{
    char name[128];
    size_t n = 0;
    while (n < p->n && (isalnum((unsigned char)p->text[n]) || strchr("_-.", p->text[n])) && p->text[n]) n++;
    if (!n || n >= sizeof name) return false;
    memcpy(name, p->text, n);
    name[n] = '\0';
    place_advance(p, n);
    if (take(p, "[CALL_ID]"))
        while (p->n && *p->text != '[' && *p->text != '{') place_advance(p, 1);
    take(p, "[ARGS]");
    json_t *arguments = take_json(p);
    const bool ok = json_is_object(arguments) && add_call(r, name, arguments, calls);
    json_decref(arguments);
    return ok;
}

/* All calls of a text that has nothing else. False: it has something else. */
static bool parse_calls(const struct tool_reader *r, struct place p, json_t *calls)
{
    static const char BETWEEN[] = " \t\r\n;,";
    const size_t before = json_array_size(calls);
    bool ok = true;
    for (skip(&p, BETWEEN); p.n && ok; skip(&p, BETWEEN)) {
        if (r->style->begin && take(&p, r->style->begin)) continue;
        if (*p.text != '{' && *p.text != '[') {
            ok = take_named(r, &p, calls);
            continue;
        }
        json_t *value = take_json(&p);
        for (size_t i = 0; ok && i < json_array_size(value); i++)
            ok = add_object(r, json_array_get(value, i), calls);
        if (!json_is_array(value)) ok = add_object(r, value, calls);
        json_decref(value);
    }
    ok = ok && json_array_size(calls) > before;
    while (!ok && json_array_size(calls) > before) json_array_remove(calls, json_array_size(calls) - 1);
    return ok;
}

/* ---------------------------------------------------------------- reading */

/* Where the word begins, at place `from` or behind it; s->len: nowhere. */
static size_t find(const struct str *s, size_t from, const char *word)
{
    const char *at = memmem(str_text(s) + from, s->len - from, word, strlen(word));
    return at ? (size_t)(at - str_text(s)) : s->len;
}

/* Bytes of white space before place n. */
static size_t blank_before(const struct str *s, size_t n)
{
    size_t blank = 0;
    while (blank < n && str_text(s)[n - blank - 1] && strchr(" \t\r\n", str_text(s)[n - blank - 1])) blank++;
    return blank;
}

/* Bytes at the end of the text that may belong to a call: white space, and the beginning of `word`. */
static size_t tail_to_keep(const struct str *s, const char *word)
{
    size_t k = MIN(strlen(word) - 1, s->len);
    while (k && memcmp(str_text(s) + s->len - k, word, k)) k--;
    return k + blank_before(s, s->len - k);
}

static void drop(struct str *s, size_t n)
{
    s->len -= n;
    if (s->len) memmove(s->data, s->data + n, s->len);
}

static void release(struct tool_reader *r, size_t n, struct str *out)
{
    str_append_n(out, str_text(&r->kept), n);
    drop(&r->kept, n);
}

/* A mark that begins a call is at place `at`. White space before it belongs to the call, if it is one. */
static void enter_call(struct tool_reader *r, size_t at, struct str *out)
{
    r->blank = blank_before(&r->kept, at);
    release(r, at - r->blank, out);
    r->inside = true;
}

static bool ends_with(const struct str *s, size_t n, const char *word)
{
    const size_t length = strlen(word);
    return n >= length && !memcmp(str_text(s) + n - length, word, length);
}

/* The first n bytes of `kept` are a call with its marks, or what looked like one. A mark without a call can
 * stand before a call, which is then inside. */
static void end_call(struct tool_reader *r, size_t n, struct str *out, json_t *calls)
{
    const struct tool_style *style = r->style;
    const size_t begin = r->blank + (style->begin ? strlen(style->begin) : 0);
    const size_t end = style->end && ends_with(&r->kept, n, style->end) ? strlen(style->end) : 0;
    struct place p = { str_text(&r->kept) + begin, n - begin - end };
    if (style->mark) {
        skip(&p, " \t\r\n");
        take(&p, style->mark);
    }
    if (parse_calls(r, p, calls)) {
        drop(&r->kept, n);
        r->called = true;
    } else {
        const size_t next = style->begin ? find(&r->kept, begin, style->begin) : n;
        if (next < n) {
            enter_call(r, next, out);
            return;
        }
        release(r, n, out);
    }
    r->inside = false;
    r->blank = 0;
}

/* Llama: only an answer that begins with { or with the mark can be a call. */
static void read_whole(struct tool_reader *r, struct str *out)
{
    struct place p = { str_text(&r->kept), r->kept.len };
    const size_t mark = strlen(r->style->mark);
    skip(&p, " \t\r\n");
    if (!p.n || *p.text == '{' || !memcmp(p.text, r->style->mark, MIN(p.n, mark))) return;
    r->plain = true;
    release(r, r->kept.len, out);
}

void tool_reader_push(struct tool_reader *r, const char *bytes, size_t n, struct str *out, json_t *calls)
{
    if (!r->style || r->plain) {
        str_append_n(out, bytes, n);
        return;
    }
    str_append_n(&r->kept, bytes, n);
    if (!r->style->begin) {
        read_whole(r, out);
        return;
    }
    for (;;) {
        if (!r->inside) {
            const size_t at = find(&r->kept, 0, r->style->begin);
            if (at == r->kept.len) {
                release(r, r->kept.len - tail_to_keep(&r->kept, r->style->begin), out);
                return;
            }
            enter_call(r, at, out);
        }
        const size_t end = r->style->end ? find(&r->kept, 0, r->style->end) : r->kept.len;
        if (end == r->kept.len) return;
        end_call(r, end + strlen(r->style->end), out, calls);
    }
}

void tool_reader_finish(struct tool_reader *r, struct str *out, json_t *calls)
{
    if (!r->style || r->plain) return;
    if (!r->style->begin) end_call(r, r->kept.len, out, calls);
    while (r->inside) end_call(r, r->kept.len, out, calls);
    const bool blank = blank_before(&r->kept, r->kept.len) == r->kept.len;
    if (!r->called || !blank) release(r, r->kept.len, out);
    r->kept.len = 0;
}

void tool_reader_free(struct tool_reader *r)
{
    str_free(&r->kept);
}
