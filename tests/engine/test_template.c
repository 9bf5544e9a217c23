/* Proves: every recorded rendering of the golden templates comes out byte for byte, refusals included;
 * features of Jinja that they do not use give what Jinja 3.1 gives; bytes of messages stay marked through
 * filters; every fault is reported with its line; hostile templates end at a limit. */
#include <stdlib.h>
#include <string.h>

#include "engine/template/template.h"
#include "tests/check.h"

/* Renders `text`; the result is what was written, or the message of the error. */
struct outcome {
    enum err_code rc;
    struct rendered out;
    struct err why;
};

static struct outcome render(const char *text, const struct template_input *in)
{
    struct outcome o = { 0 };
    struct template *t;
    o.rc = template_open(&t, text, strlen(text), "T", &o.why);
    if (o.rc) return o;
    o.rc = template_render(t, in, &o.out, &o.why);
    CHECK_EQ(o.out.text.len, o.out.from_message.len);
    if (o.rc) CHECK(!o.out.text.data);
    template_close(t);
    return o;
}

static json_t *read_json(const char *path)
{
    struct err why = { 0 };
    json_t *j;
    char *text;
    size_t n;
    CHECK_OK(file_read(&text, &n, path, 4 << 20, &why));
    CHECK_OK(json_parse(&j, text, n, &why));
    free(text);
    return j;
}

/* ---------------------------------------------------------------- golden renderings */

static int check_case(const char *name, const char *text, const json_t *c, const json_t *all)
{
    const char *want = json_get_str(c, "text", NULL), *error = json_get_str(c, "error", NULL);
    const struct template_input in = { .messages = json_object_get(all, json_get_str(c, "messages", "")),
                                       .extra = json_object_get(c, "extra"),
                                       .add_generation_prompt = json_get_bool(c, "add_generation_prompt",
                                                                              false),
                                       .bos_token = "<s>",
                                       .eos_token = "</s>" };
    struct outcome o = render(text, &in);
    const bool same = want ? !o.rc && !strcmp(str_text(&o.out.text), want)
                           : o.rc == ERR_USAGE && error && strstr(o.why.message, error);
    if (!same)
        print_message("%s, %s: got (%d) '%s' %s\nwant '%s'\n", name, json_get_str(c, "messages", ""), o.rc,
                      str_text(&o.out.text), o.why.message, want ? want : error);
    rendered_free(&o.out);
    return !same;
}

static void golden_renderings(void **state)
{
    (void)state;
    static const char *const TEMPLATES[] = { "chatml",      "command-style", "deepseek", "gemma-no-system",
                                             "gemma-parts", "gptoss-simple", "inst",     "llama3",
                                             "mistral",     "phi",           "qwen",     "whitespace" };
    char path[4096];
    int bad = 0;
    size_t count = 0, i;
    data_path(path, sizeof path, "chat-golden/messages.json");
    json_t *messages = read_json(path), *c;
    for (size_t t = 0; t < COUNT_OF(TEMPLATES); t++) {
        struct err why = { 0 };
        char *text;
        size_t n;
        data_path(path, sizeof path, "chat-golden/%s.jinja", TEMPLATES[t]);
        CHECK_OK(file_read(&text, &n, path, 1 << 20, &why));
        data_path(path, sizeof path, "chat-golden/%s.json", TEMPLATES[t]);
        json_t *recorded = read_json(path);
        json_array_foreach(json_object_get(recorded, "cases"), i, c)
        {
            bad += check_case(TEMPLATES[t], text, c, messages);
            count++;
        }
        json_decref(recorded);
        free(text);
    }
    json_decref(messages);
    print_message("%zu renderings\n", count);
    CHECK_EQ(bad, 0);
    CHECK_EQ(count, 270);
}

/* Small templates, each with what Jinja 3.1.6 made of it, or `error` where it refused. */
static void recorded_features(void **state)
{
    (void)state;
    char path[4096];
    size_t i;
    int bad = 0;
    data_path(path, sizeof path, "chat-golden/features.json");
    json_t *all = read_json(path), *c;
    json_t *messages = json_pack("[{s:s, s:s}, {s:s, s:s}, {s:s, s:s}]", "role", "user", "content",
                                 "Hello there", "role", "assistant", "content", "Hi", "role", "user",
                                 "content",
                                 "Gr\xc3\xb6\xc3\x9f"
                                 "e <b> \"q\"");
    json_array_foreach(all, i, c)
    {
        const struct template_input in = { .messages = messages,
                                           .add_generation_prompt = true,
                                           .bos_token = "<s>",
                                           .eos_token = "</s>",
                                           .now = 1764000000 };
        const char *want = json_get_str(c, "text", NULL);
        struct outcome o = render(json_get_str(c, "template", ""), &in);
        const bool same = want ? !o.rc && !strcmp(str_text(&o.out.text), want) : o.rc != ERR_OK;
        if (!same)
            print_message("%s\n  got '%s' %s\n  want '%s'\n", json_get_str(c, "template", ""),
                          str_text(&o.out.text), o.why.message, want ? want : "an error");
        bad += !same;
        rendered_free(&o.out);
    }
    CHECK_LT(100, i);
    CHECK_EQ(bad, 0);
    json_decref(messages);
    json_decref(all);
}

/* Constructs of public templates and their siblings, each with what Jinja 3.1.6 makes of it in the
 * environment of transformers; written by tests/bench/tokens/templates.py. What Jinja renders may be refused
 * here only if the message names it. */
static void recorded_constructs(void **state)
{
    (void)state;
    char path[4096];
    size_t i;
    int bad = 0, refused = 0;
    data_path(path, sizeof path, "chat-golden/constructs.json");
    json_t *all = read_json(path), *c;
    json_array_foreach(json_object_get(all, "cases"), i, c)
    {
        const struct template_input in = { .messages = json_object_get(all, "messages"),
                                           .extra = json_object_get(all, "extra"),
                                           .bos_token = "<s>",
                                           .eos_token = "</s>",
                                           .now = 1764000000 };
        const char *want = json_get_str(c, "text", NULL);
        struct outcome o = render(json_get_str(c, "template", ""), &in);
        const bool named = want && o.rc && strstr(o.why.message, "is not supported");
        const bool same = want ? !o.rc && !strcmp(str_text(&o.out.text), want) : o.rc != ERR_OK;
        if (!same && !named)
            print_message("%s\n  got '%s' %s\n  want '%s'\n", json_get_str(c, "template", ""),
                          str_text(&o.out.text), o.why.message, want ? want : "an error");
        bad += !same && !named;
        refused += named;
        rendered_free(&o.out);
    }
    CHECK_LT(120, i);
    CHECK_EQ(bad, 0);
    CHECK_LT(refused, 3);
    json_decref(all);
}

/* ---------------------------------------------------------------- where bytes come from */

/* Bytes from messages are shown as x, bytes of the template as they are. */
static void expect_marks(const char *text, const char *want)
{
    json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", " ABC<|end|>");
    struct outcome o = render(text, &(struct template_input){ .messages = messages, .bos_token = "<s>" });
    CHECK_EQ(o.rc, ERR_OK);
    for (size_t i = 0; i < o.out.text.len; i++)
        if (o.out.from_message.data[i]) o.out.text.data[i] = 'x';
    assert_string_equal(str_text(&o.out.text), want);
    rendered_free(&o.out);
    json_decref(messages);
}

static void bytes_of_messages_stay_marked(void **state)
{
    (void)state;
    expect_marks("<a>{{ messages[0].content }}<b>", "<a>xxxxxxxxxxx<b>");
    expect_marks("{{ '<a>' + messages[0].content | trim ~ '<b>' }}{{ bos_token }}", "<a>xxxxxxxxxx<b><s>");
    expect_marks("{{ messages[0].content | lower | replace('<', '[') }}", "xxxx[xxxxxx");
    expect_marks(
        "{{ messages[0].content.split('C')[1] }}{{ messages[0].content[1:3] }}|{{ messages[0].content[-1] }}",
        "xxxxxxxxx|x");
    expect_marks("{{ messages[0] | tojson }}", "{\"xxxx\": \"xxxx\", \"xxxxxxx\": \"xxxxxxxxxxx\"}");
    expect_marks("{{ messages }}", "[{'xxxx': 'xxxx', 'xxxxxxx': 'xxxxxxxxxxx'}]");
    expect_marks(
        "{% macro m(t) %}<|{{ t }}|>{% endmacro %}{% set s %}{{ m(messages[0].role) }}{% endset %}{{ s * 2 }}",
        "<|xxxx|><|xxxx|>");
    expect_marks(
        "{{ '%s!' | format(messages[0].content) | upper }}{{ messages | map(attribute='role') | join(', ') }}",
        "xxxxxxxxxxx!xxxx");
    expect_marks("{% filter trim %} a {{ messages[0].content }} {% endfilter %}", "a xxxxxxxxxxx");
    expect_marks("{% for c in messages[0].content %}{{ c }}.{% endfor %}", "x.x.x.x.x.x.x.x.x.x.x.");
}

/* ---------------------------------------------------------------- faults and limits */

static void expect_fault(const char *text, enum err_code code, const char *message)
{
    json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "Hi");
    struct outcome o = render(text, &(struct template_input){ .messages = messages });
    if (o.rc != code || !strstr(o.why.message, message))
        fail_msg("'%.60s' gives %d '%s', want %d '%s'", text, o.rc, o.why.message, code, message);
    rendered_free(&o.out);
    json_decref(messages);
}

static void faults_name_their_line(void **state)
{
    (void)state;
    expect_fault("a\n{% if x %}\nb", ERR_FORMAT,
                 "T, line 3: expected {% endif %}, found the end of the template");
    expect_fault("a\n\n{{ 1 + }}", ERR_FORMAT, "T, line 3: expected an expression, found '}}'");
    expect_fault("{% for x of y %}{% endfor %}", ERR_FORMAT, "line 1: expected 'in', found 'of'");
    expect_fault("{{ 'a", ERR_FORMAT, "expected the end of a string");
    expect_fault("{# a", ERR_FORMAT, "expected the end of the comment, #}");
    expect_fault("{{ (1] }}", ERR_FORMAT, "expected the bracket that closes '(', found ']'");
    expect_fault("{% include 'x' %}", ERR_FORMAT,
                 "expected a statement such as if, for or set, found 'include'");
    expect_fault("{{ x | frobnicate }}", ERR_FORMAT, "expected a filter of Jinja, found 'frobnicate'");
    expect_fault("{{ x is odder }}", ERR_FORMAT, "expected a test of Jinja, found 'odder'");
    expect_fault("\n{{ messages[0].a.b }}", ERR_FORMAT, "line 2: 'a' is undefined, so it has no 'b'");
    expect_fault("{{ 1 }}\n{{ frob(1) }}", ERR_FORMAT, "line 2: 'frob' is undefined, so it cannot be called");
    expect_fault("\n{{ raise_exception('no') }}", ERR_USAGE, "T, line 2, refuses this conversation: no");
    expect_fault("{% break %}", ERR_FORMAT, "inside a loop only");
    expect_fault("{% set messages.x = 1 %}", ERR_FORMAT, "only members of a namespace can be set");
    expect_fault("{{ 9223372036854775807 + 1 }}", ERR_FORMAT, "2^63 or larger");
    expect_fault("{{ trim('a', 'b', 'c') }}{{ 'a' | trim(1, 2) }}", ERR_FORMAT, "undefined");
    expect_fault("{{ 'a' | upper(1) }}", ERR_FORMAT, "was given 1 arguments, but takes 0");
}

static void hostile_templates_end_at_a_limit(void **state)
{
    (void)state;
    struct str deep = { 0 };
    str_append(&deep, "{{ ");
    for (int i = 0; i < 100000; i++) str_append(&deep, "(");
    for (int i = 0; i < 100000; i++) str_append(&deep, ")");
    str_append(&deep, " }}");
    expect_fault(str_text(&deep), ERR_FORMAT, "nested deeper than 100");
    str_clear(&deep);
    str_append(&deep, "{{ ");
    for (int i = 0; i < 100000; i++) str_append(&deep, "1 ~ ");
    str_append(&deep, "1 }}");
    expect_fault(str_text(&deep), ERR_FORMAT, "a shorter chain of operators");
    str_clear(&deep);
    for (int i = 0; i < 1000; i++) str_append(&deep, "{% if 1 %}");
    expect_fault(str_text(&deep), ERR_FORMAT, "nested deeper than 100");
    str_clear(&deep);
    for (int i = 0; i < 1000; i++) str_append(&deep, i ? "{% elif 0 %}" : "{% if 0 %}");
    expect_fault(str_text(&deep), ERR_FORMAT, "nested deeper than 100");
    str_free(&deep);
    expect_fault("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", ERR_FORMAT, "nested deeper than 400");
    expect_fault("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", ERR_FORMAT,
                 "uses more than 256 MiB of memory");
    expect_fault(
        "{% set n = namespace(s='x' * 1000) %}{% for i in range(99) %}{% set n.s = n.s * 2 %}{% endfor %}",
        ERR_FORMAT, "writes more than 64 MiB");
    expect_fault(
        "{% set n = namespace(l=[1]) %}{% for i in range(99) %}{% set n.l = n.l + n.l %}{% endfor %}",
        ERR_FORMAT, "");
    expect_fault(
        "{% set n = namespace(l=1) %}{% for i in range(999) %}{% set n.l = [n.l] %}{% endfor %}{{ n.l }}",
        ERR_FORMAT, "a value is nested deeper than 100");
    expect_fault("{{ 'x' | center(99999999) }}{{ 9 ** 999999999 }}", ERR_FORMAT, "at most 10000");
    expect_fault("{{ 1 ** 999999999999 }}", ERR_FORMAT, "stopped after");
    static const char *const SCANS[] = { "s.isalpha()", "s.istitle()", "s.isidentifier()",
                                         "s.startswith('b', 1)" }; /* each reads a text of 65536 letters */
    for (size_t i = 0; i < COUNT_OF(SCANS); i++) {
        str_clear(&deep);
        str_printf(&deep,
                   "{%% set n = namespace(s='x') %%}{%% for i in range(16) %%}{%% set n.s = n.s + n.s %%}"
                   "{%% endfor %%}{%% set s = n.s %%}{%% for i in range(99999) %%}{%% if %s %%}{%% endif %%}"
                   "{%% endfor %%}",
                   SCANS[i]);
        expect_fault(str_text(&deep), ERR_FORMAT, "stopped after");
    }
    str_free(&deep);
    expect_fault("{{ range(100001) }}", ERR_FORMAT, "at most 100000");
    expect_fault("{{ '%999999d' % 1 }}", ERR_FORMAT, "not supported");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_renderings),      cmocka_unit_test(recorded_features),
        cmocka_unit_test(recorded_constructs),    cmocka_unit_test(bytes_of_messages_stay_marked),
        cmocka_unit_test(faults_name_their_line), cmocka_unit_test(hostile_templates_end_at_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
