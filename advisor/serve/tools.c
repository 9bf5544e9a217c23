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

/* Marks of a part in which the model thinks. A call in it is a thought, which is not carried out. */
static const struct {
    const char *begin, *end;
} THOUGHTS[] = { { "<think>", "</think>" }, { "[THINK]", "[/THINK]" } };
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

/* ---------------------------------------------------------------- calls */

static bool is_tool(const json_t *tools, const char *name)
{
    size_t i;
    json_t *tool;
    json_array_foreach((json_t *)(uintptr_t)tools, i, tool)
    {
        const json_t *function = json_object_get(tool, "function");
        const char *known = json_text(json_object_get(function ? function : tool, "name"));
        if (known && !strcmp(known, name)) return true;
    }
    return false;
}

/* Some models write the arguments as a text, which must be a JSON object. */
static char *object_text(const json_t *arguments)
{
    const char *text = json_text(arguments);
    json_t *o = NULL;
    if (!text || json_parse_exact(&o, text, strlen(text), 1, NULL)) return NULL;
    char *copy = json_is_object(o) ? strdup(text) : NULL;
    json_decref(o);
    return copy;
}

/* Appends {"name", "arguments": TEXT}. False: there is no such tool, or these are no arguments. */
static bool add_call(const struct tool_reader *r, const char *name, const json_t *arguments, json_t *calls)
{
    if (!name || !is_tool(r->tools, name)) return false;
    char *text = !arguments                  ? strdup("{}")
                 : json_is_object(arguments) ? json_line(arguments)
                                             : object_text(arguments);
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
    return json_is_object(o) && add_call(r, json_text(json_object_get(o, "name")), arguments, calls);
}

/* The calls of a JSON value: an object, or a list of objects, which must all be calls. name: of a function,
 * whose arguments the value is; NULL: none. */
static bool add_value(const struct tool_reader *r, const char *name, const char *text, size_t n,
                      json_t *calls)
{
    json_t *value = NULL;
    bool ok = !json_parse_exact(&value, text, n, 1, NULL);
    if (ok && name)
        ok = json_is_object(value) && add_call(r, name, value, calls);
    else if (ok && json_is_array(value))
        for (size_t i = 0; ok && i < json_array_size(value); i++)
            ok = add_object(r, json_array_get(value, i), calls);
    else if (ok)
        ok = add_object(r, value, calls);
    json_decref(value);
    return ok;
}

/* ---------------------------------------------------------------- the text */

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

/* Where the word begins, at place `from` or behind it; s->len: nowhere. */
static size_t find(const struct str *s, size_t from, const char *word)
{
    const char *at = memmem(str_text(s) + from, s->len - from, word, strlen(word));
    return at ? (size_t)(at - str_text(s)) : s->len;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Bytes of white space before place n. */
static size_t blank_before(const struct str *s, size_t n)
{
    size_t blank = 0;
    while (blank < n && is_blank(str_text(s)[n - blank - 1])) blank++;
    return blank;
}

/* Bytes at the end of the text that `word` begins with. */
static size_t tail_of(const struct str *s, const char *word)
{
    size_t k = MIN(strlen(word) - 1, s->len);
    while (k && memcmp(str_text(s) + s->len - k, word, k)) k--;
    return k;
}

/* ---------------------------------------------------------------- one part of a call */

enum step {
    STEP_ON,    /* a part was read */
    STEP_SHORT, /* the text ends in it */
    STEP_END,   /* the mark that ends the calls was read */
    STEP_WRONG, /* what stands at r->at is no part of a call */
};

/* Is the word at r->at? STEP_ON: it was read. */
static enum step take(struct tool_reader *r, const char *word)
{
    const size_t n = word ? strlen(word) : 0, left = r->kept.len - r->at;
    if (!n || memcmp(str_text(&r->kept) + r->at, word, MIN(n, left))) return STEP_WRONG;
    if (left < n) return STEP_SHORT;
    r->at += n;
    return STEP_ON;
}

/* Where the JSON value at r->at ends: by its brackets, because strings may have every mark in them. Goes on
 * where the last look ended, so that a long value is not read again for each token. */
static enum step value_end(struct tool_reader *r, size_t *end)
{
    struct tool_scan *s = &r->scan;
    const char *text = str_text(&r->kept);
    for (s->at = MAX(s->at, r->at); s->at < r->kept.len; s->at++) {
        const char c = text[s->at];
        if (s->escape)
            s->escape = false;
        else if (s->string && c == '\\')
            s->escape = true;
        else if (c == '"')
            s->string = !s->string;
        else if (!s->string && (c == '{' || c == '['))
            s->depth++;
        else if (!s->string && (c == '}' || c == ']') && !--s->depth) {
            *end = s->at + 1;
            *s = (struct tool_scan){ 0 };
            return STEP_ON;
        }
    }
    return STEP_SHORT;
}

static enum step take_value(struct tool_reader *r, const char *name)
{
    size_t end;
    if (r->at == r->kept.len) return STEP_SHORT;
    if (str_text(&r->kept)[r->at] != '{' && (name || str_text(&r->kept)[r->at] != '[')) return STEP_WRONG;
    const enum step step = value_end(r, &end);
    if (step != STEP_ON) return step;
    if (!add_value(r, name, str_text(&r->kept) + r->at, end - r->at, r->found)) {
        size_t used;
        /* the marks in the strings of a whole value are no marks */
        const bool whole = json_value_end(str_text(&r->kept) + r->at, end - r->at, &used) == JSON_COMPLETE;
        if (whole) r->at = end;
        return STEP_WRONG;
    }
    r->at = end;
    return STEP_ON;
}

/* Of Mistral's later models: NAME[ARGS]{...}, also with [CALL_ID]ID before [ARGS], or without [ARGS]. */
static enum step take_named(struct tool_reader *r)
{
    char name[128];
    const char *text = str_text(&r->kept);
    size_t end = r->at;
    while (end < r->kept.len && text[end] && (isalnum((unsigned char)text[end]) || strchr("_-.", text[end])))
        end++;
    const size_t n = end - r->at;
    if (!n || n >= sizeof name) return STEP_WRONG;
    if (end == r->kept.len) return STEP_SHORT;
    memcpy(name, text + r->at, n);
    name[n] = '\0';
    if (!is_tool(r->tools, name) && text[end] != '[' && text[end] != '{') return STEP_WRONG;
    const size_t from = r->at;
    r->at = end;
    enum step step = take(r, "[CALL_ID]");
    if (step == STEP_ON)
        while (r->at < r->kept.len && text[r->at] != '[' && text[r->at] != '{') r->at++;
    if (step != STEP_SHORT) step = take(r, "[ARGS]");
    if (step != STEP_SHORT) {
        while (r->at < r->kept.len && is_blank(text[r->at])) r->at++;
        step = take_value(r, name);
    }
    if (step == STEP_SHORT) r->at = from; /* its name is needed again */
    return step;
}

static enum step take_part(struct tool_reader *r)
{
    const struct tool_style *style = r->style;
    while (r->at < r->kept.len &&
           (is_blank(str_text(&r->kept)[r->at]) || strchr(";,", str_text(&r->kept)[r->at])) &&
           str_text(&r->kept)[r->at])
        r->at++;
    if (r->at == r->kept.len) return STEP_SHORT;
    enum step step = take(r, style->end);
    if (step == STEP_ON) return STEP_END;
    if (step == STEP_WRONG) step = take(r, style->begin ? style->begin : style->mark);
    if (step != STEP_WRONG) return step;
    const char c = str_text(&r->kept)[r->at];
    return c == '{' || c == '[' ? take_value(r, NULL) : take_named(r);
}

/* ---------------------------------------------------------------- calls in a text */

/* A mark that begins calls is at place `at`. White space before it belongs to them, if they are some. */
static void enter_calls(struct tool_reader *r, size_t at, struct str *out)
{
    const size_t blank = blank_before(&r->kept, at);
    release(r, at - blank, out);
    r->at = blank + (r->style->begin ? strlen(r->style->begin) : 0);
    r->inside = true;
    r->chained = false;
    r->scan = (struct tool_scan){ 0 };
    json_array_clear(r->found);
}

/* The calls so far are some; the text goes on behind them. */
static void accept_calls(struct tool_reader *r, json_t *calls)
{
    if (!json_array_size(r->found)) return;
    json_array_extend(calls, r->found);
    json_array_clear(r->found);
    drop(&r->kept, r->at);
    r->at = 0;
    r->called = r->chained = true;
}

static void leave_calls(struct tool_reader *r)
{
    json_array_clear(r->found);
    r->inside = false;
    r->searched = r->at;
    r->at = 0;
}

/* Styles with a mark at the end: all before it are calls, or none. Others: each complete call is one. */
static bool is_open_ended(const struct tool_style *style)
{
    return style->begin && !style->end;
}

/* Reads calls. False: the text has to go on first. */
static bool read_calls(struct tool_reader *r, json_t *calls)
{
    for (;;) {
        const enum step step = take_part(r);
        if (step == STEP_SHORT) return false;
        if (step == STEP_ON && is_open_ended(r->style)) accept_calls(r, calls);
        if (step == STEP_END) accept_calls(r, calls);
        if (step == STEP_END || step == STEP_WRONG) {
            leave_calls(r);
            return true;
        }
    }
}

/* At the end of the text, in what may be calls: without a mark at their end they are some. False: it is no
 * call, and the text behind r->at is still to be searched. */
static bool end_calls(struct tool_reader *r, json_t *calls)
{
    const char *text = str_text(&r->kept), *value = memchr(text + r->at, '{', r->kept.len - r->at);
    const struct str rest = { .data = r->kept.data + r->at, .len = r->kept.len - r->at };
    size_t used;
    bool over = !rest.len;
    if (rest.len && r->style->end) over = tail_of(&rest, r->style->end) == rest.len;
    if (over && json_array_size(r->found)) r->at = r->kept.len;
    if (over) accept_calls(r, calls);
    if (over && r->chained) r->kept.len = 0;
    /* a call that was cut off: the marks in its strings are no marks */
    return over || !value || json_value_end(value, (size_t)(text + r->kept.len - value), &used) != JSON_WRONG;
}

/* Llama: only an answer that begins with { or with the mark can be calls. */
static void read_whole(struct tool_reader *r, struct str *out, json_t *calls)
{
    size_t at = 0;
    while (at < r->kept.len && is_blank(r->kept.data[at])) at++;
    const size_t n = MIN(r->kept.len - at, strlen(r->style->mark));
    if (at == r->kept.len) return;
    if (r->kept.data[at] == '{' || !memcmp(r->kept.data + at, r->style->mark, n)) {
        r->inside = true;
        if (!read_calls(r, calls)) return;
    }
    r->plain = true;
    release(r, r->kept.len, out);
}

/* Text outside of calls: it leaves up to a mark. False: there is none. */
static bool read_text(struct tool_reader *r, struct str *out)
{
    const size_t at = find(&r->kept, MIN(r->searched, r->kept.len), r->style->begin);
    r->searched = 0;
    if (at < r->kept.len) {
        enter_calls(r, at, out);
        return true;
    }
    const size_t mark = tail_of(&r->kept, r->style->begin),
                 keep = mark + blank_before(&r->kept, r->kept.len - mark);
    release(r, r->kept.len - keep, out);
    return false;
}

/* Does the text begin with a thought? False: its next bytes decide. */
static bool read_beginning(struct tool_reader *r)
{
    size_t at = 0;
    while (at < r->kept.len && is_blank(r->kept.data[at])) at++;
    if (at == r->kept.len) return false;
    for (size_t i = 0; i < COUNT_OF(THOUGHTS); i++) {
        const size_t n = strlen(THOUGHTS[i].begin), left = r->kept.len - at;
        if (memcmp(r->kept.data + at, THOUGHTS[i].begin, MIN(n, left))) continue;
        if (left < n) return false;
        r->thought = THOUGHTS[i].end;
    }
    r->begun = true;
    return true;
}

/* False: the thought goes on. */
static bool read_thought(struct tool_reader *r, struct str *out)
{
    const size_t at = find(&r->kept, 0, r->thought);
    const bool ends = at < r->kept.len;
    release(r, ends ? at + strlen(r->thought) : r->kept.len - tail_of(&r->kept, r->thought), out);
    if (ends) r->thought = NULL;
    return ends;
}

static void read_on(struct tool_reader *r, struct str *out, json_t *calls)
{
    for (;;) {
        if (!r->begun && !read_beginning(r)) return;
        if (r->thought && !read_thought(r, out)) return;
        if (!r->style->begin) {
            read_whole(r, out, calls);
            return;
        }
        if (r->inside ? !read_calls(r, calls) : !read_text(r, out)) return;
    }
}

void tool_reader_prompt(struct tool_reader *r, const char *text, size_t n)
{
    while (n && is_blank(text[n - 1])) n--;
    for (size_t i = 0; i < COUNT_OF(THOUGHTS); i++) {
        const size_t length = strlen(THOUGHTS[i].begin);
        if (n < length || memcmp(text + n - length, THOUGHTS[i].begin, length)) continue;
        r->thought = THOUGHTS[i].end;
        r->begun = true;
    }
}

void tool_reader_control(struct tool_reader *r, const char *piece)
{
    for (size_t i = 0; i < COUNT_OF(THOUGHTS); i++) {
        if (!strcmp(piece, THOUGHTS[i].begin) && !r->inside) {
            r->thought = THOUGHTS[i].end;
            r->begun = true;
        }
        if (r->thought && !strcmp(piece, THOUGHTS[i].end)) r->thought = NULL;
    }
}

void tool_reader_push(struct tool_reader *r, const char *bytes, size_t n, struct str *out, json_t *calls)
{
    if (!r->style || r->plain) {
        str_append_n(out, bytes, n);
        return;
    }
    if (!r->found) r->found = json_array();
    str_append_n(&r->kept, bytes, n);
    if (n && !r->kept.failed) read_on(r, out, calls);
}

void tool_reader_finish(struct tool_reader *r, struct str *out, json_t *calls)
{
    if (!r->style || r->plain) return;
    while (r->inside && !end_calls(r, calls) && r->style->begin) {
        leave_calls(r);
        read_on(r, out, calls);
    }
    const bool blank = blank_before(&r->kept, r->kept.len) == r->kept.len;
    if (!r->called || !blank) release(r, r->kept.len, out);
    r->kept.len = 0;
    r->inside = false;
}

void tool_reader_free(struct tool_reader *r)
{
    str_free(&r->kept);
    json_decref(r->found);
    r->found = NULL;
}
