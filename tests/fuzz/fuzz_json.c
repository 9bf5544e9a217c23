/* JSON as clients and models write it, which is refused with a message, or kept by writing and reading it
 * again; and the calls of tools in a text: the pieces that the text comes in change nothing, no byte is lost
 * without a call, and what a client gets as arguments is a JSON object. The first byte chooses the style of
 * the calls. */
#include <stdlib.h>
#include <string.h>

#include "advisor/serve/parts.h"
#include "tests/fuzz/cost.h"

static const struct cost_ceiling CEILING = {
    .seconds = 1, .seconds_per_mb = 60, .mb = 64, .mb_per_mb = 1500
};

static void use_document(const char *text, size_t n)
{
    struct err why = { 0 };
    json_t *v, *again, *plain;
    size_t used;
    const enum err_code rc = json_parse_exact(&v, text, n, 1, &why);
    if (rc) {
        if (!why.message[0] || v) abort();
    } else {
        char *line = json_line(v);
        if (!line || strchr(line, '\n') || json_parse_exact(&again, line, strlen(line), 1, &why)) abort();
        if (!json_equal(v, again)) abort();
        if (json_value_end(line, strlen(line), &used) != JSON_COMPLETE || used != strlen(line)) abort();
        free(line);
        json_decref(again);
        json_decref(v);
    }
    if (json_parse(&plain, text, n, &why)) return; /* all that it takes, the exact reading takes too */
    if (rc) abort();
    json_decref(plain);
}

struct reading {
    struct str out;
    json_t *calls;
};

static void read_all(struct reading *to, const struct tool_style *style, const json_t *tools,
                     const char *text, size_t n, bool pieces)
{
    struct tool_reader r = { .style = style, .tools = tools };
    *to = (struct reading){ .calls = json_array() };
    for (size_t at = 0, some; at < n; at += some) {
        some = pieces ? MIN(n - at, 1 + (size_t)((unsigned char)text[at] % 5)) : n - at;
        tool_reader_push(&r, text + at, some, &to->out, to->calls);
    }
    tool_reader_finish(&r, &to->out, to->calls);
    tool_reader_free(&r);
}

static void use_calls(const struct tool_style *style, const json_t *tools, const char *text, size_t n)
{
    struct reading whole, cut;
    size_t i;
    json_t *call;
    read_all(&whole, style, tools, text, n, false);
    read_all(&cut, style, tools, text, n, true);
    if (whole.out.len != cut.out.len || memcmp(str_text(&whole.out), str_text(&cut.out), whole.out.len) ||
        !json_equal(whole.calls, cut.calls))
        abort();
    if (!json_array_size(whole.calls) && (whole.out.len != n || memcmp(str_text(&whole.out), text, n)))
        abort();
    json_array_foreach(whole.calls, i, call)
    {
        const char *arguments = json_get_str(call, "arguments", "");
        json_t *o;
        if (json_parse_exact(&o, arguments, strlen(arguments), 1, NULL) || !json_is_object(o)) abort();
        json_decref(o);
    }
    json_decref(whole.calls);
    json_decref(cut.calls);
    str_free(&whole.out);
    str_free(&cut.out);
}

static void use(const uint8_t *data, size_t size)
{
    static const char *const TEMPLATES[] = { "<tool_call>", "[TOOL_CALLS]", "<|python_tag|>",
                                             "\"parameters\": " };
    static const char TOOLS[] = "[{\"function\":{\"name\":\"add\"}},{\"function\":{\"name\":\"f\"}}]";
    json_t *tools;
    if (!size) return;
    const char *text = (const char *)data + 1;
    if (json_parse(&tools, TOOLS, sizeof TOOLS - 1, NULL)) abort();
    use_document(text, size - 1);
    use_calls(tool_style_find(TEMPLATES[data[0] % COUNT_OF(TEMPLATES)]), tools, text, size - 1);
    json_decref(tools);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return cost_run(use, data, size, &CEILING);
}
