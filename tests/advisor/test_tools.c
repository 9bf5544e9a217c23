/* Proves: calls of tools are found in generated text, in any pieces, in the styles of Hermes, Mistral and
 * Llama; what is no call of a tool of the request stays text, byte for byte; text before and after a call is
 * kept; documents and streams have calls in OpenAI's form, with ids that differ. */
#include "tests/check.h"

#include <stdlib.h>

#include "advisor/serve/parts.h"

#define HERMES  "{% if tools %}<tools></tools> in <tool_call> tags{% endif %}"
#define MISTRAL "{{ '[TOOL_CALLS] [' }}"
#define LLAMA   "{{ '<|python_tag|>' }}"
#define LLAMA32 "Respond in the format {\"name\": function name, \"parameters\": {}}. \"parameters\": "
#define NO      "{{ messages }}"

static const char TOOLS[] = "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{}}},"
                            "{\"type\":\"function\",\"function\":{\"name\":\"add\"}}]";

/* calls: "name arguments\n" for each. */
static const struct {
    const char *chat_template, *text, *want, *calls;
} CASES[] = {
    { HERMES, "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\"}}\n</tool_call>", "",
      "weather {\"city\":\"Bern\"}\n" },
    { HERMES,
      "I look it up.\n\n<tool_call>{\"name\":\"add\",\"arguments\":{\"b\":2,\"a\":[1,\"</tool\"]}}</tool_call>\n"
      "<tool_call>\n{\"name\": \"weather\", \"arguments\": {}}\n</tool_call>\n",
      "I look it up.", "add {\"b\":2,\"a\":[1,\"</tool\"]}\nweather {}\n" },
    { HERMES, "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}}", "",
      "add {\"a\":1}\n" }, /* no end */
    { HERMES, "<tool_call>{\"name\": \"rm\", \"arguments\": {}}</tool_call>",
      "<tool_call>{\"name\": \"rm\", \"arguments\": {}}</tool_call>", "" },
    { HERMES, "a <tool_call>{\"name\": \"add\", \"argu</tool_call> b",
      "a <tool_call>{\"name\": \"add\", \"argu</tool_call> b", "" },
    { HERMES, "a \n <tool_call>", "a \n <tool_call>", "" },
    { HERMES, "Calls begin with <tool_call>.\n<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>",
      "Calls begin with <tool_call>.", "add {}\n" },
    { HERMES, "<tool_call> or \t<tool_call> b <tool_call>{\"name\": \"add\", \"arguments\": {}}", /* no end */
      "<tool_call> or \t<tool_call> b", "add {}\n" },
    { HERMES, "\n<tool_call>x <tool_call> y</tool_call> z", "\n<tool_call>x <tool_call> y</tool_call> z",
      "" },
    { HERMES, "<tool_call>{\"name\": \"add\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>", "",
      "add {\"a\": 1}\n" },
    { HERMES, "<tool_call>{\"name\": \"add\", \"arguments\": \"{\\\"a\\\": \"}</tool_call>",
      "<tool_call>{\"name\": \"add\", \"arguments\": \"{\\\"a\\\": \"}</tool_call>", "" },
    { HERMES, "<tool_call>{\"name\": \"add\", \"arguments\": \"[1]\"}</tool_call>",
      "<tool_call>{\"name\": \"add\", \"arguments\": \"[1]\"}</tool_call>", "" },
    { HERMES, "<tool_call>{\"name\": \"add\", \"arguments\": \"{\\\"a\\\":1,\\\"a\\\":2}\"}</tool_call>",
      "<tool_call>{\"name\": \"add\", \"arguments\": \"{\\\"a\\\":1,\\\"a\\\":2}\"}</tool_call>", "" },
    { HERMES, "1 < 2 and <tool is no <tool_cal  ", "1 < 2 and <tool is no <tool_cal  ", "" },
    { HERMES, "{\"name\": \"add\", \"arguments\": {}}", "{\"name\": \"add\", \"arguments\": {}}", "" },
    { HERMES, "one\n", "one\n", "" },
    { MISTRAL,
      "[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {\"a\": 1}}, {\"name\": \"weather\", \"arguments\": {}}]",
      "", "add {\"a\":1}\nweather {}\n" },
    { MISTRAL,
      "[TOOL_CALLS]add[ARGS]{\"a\": 1}[TOOL_CALLS]weather[CALL_ID]x7[ARGS]{\"city\": \"Z\\u00fcrich\"}", "",
      "add {\"a\":1}\nweather {\"city\":\"Z\xc3\xbcrich\"}\n" },
    { MISTRAL, "Well: [TOOL_CALLS] [{\"name\": \"add\"", "Well: [TOOL_CALLS] [{\"name\": \"add\"", "" },
    { MISTRAL, "[TOOL_CALLS] comes first. [TOOL_CALLS]add[ARGS]{}", "[TOOL_CALLS] comes first.", "add {}\n" },
    { MISTRAL, "[TOOL_CALLS]rm[ARGS]{}", "[TOOL_CALLS]rm[ARGS]{}", "" },
    { LLAMA, "{\"name\": \"weather\", \"parameters\": {\"city\": \"Bern\"}}", "",
      "weather {\"city\":\"Bern\"}\n" },
    { LLAMA,
      "<|python_tag|>{\"name\": \"add\", \"parameters\": {\"a\": 1}}; {\"name\": \"add\", \"parameters\": {\"a\": 2}}",
      "", "add {\"a\":1}\nadd {\"a\":2}\n" },
    { LLAMA32, " \n{\"name\": \"add\", \"parameters\": {}}", "", "add {}\n" },
    { LLAMA, "{\"name\": \"rm\", \"parameters\": {}}", "{\"name\": \"rm\", \"parameters\": {}}", "" },
    { LLAMA, "{\"a\": 1, \"b\": [2", "{\"a\": 1, \"b\": [2", "" },
    { LLAMA, "The answer is {\"name\": \"add\", \"parameters\": {}}",
      "The answer is {\"name\": \"add\", \"parameters\": {}}", "" },
    { LLAMA, "<|python", "<|python", "" },
    { LLAMA, "", "", "" },
    /* marks, brackets and quotes in strings are part of them */
    { HERMES,
      "<tool_call>{\"name\": \"add\", \"arguments\": {\"t\": \"</tool_call> {[\\\"<tool_call>\"}}</tool_call>",
      "", "add {\"t\":\"</tool_call> {[\\\"<tool_call>\"}\n" },
    { HERMES,
      "<tool_call>{\"name\": \"add\", \"arguments\": {\"t\": \"</tool_call>\"}}</tool_call> x "
      "<tool_call>{\"name\": \"weather\", \"arguments\": {\"t\": \"}\\\\\"}}</tool_call> y",
      " x y", "add {\"t\":\"</tool_call>\"}\nweather {\"t\":\"}\\\\\"}\n" },
    { MISTRAL, "[TOOL_CALLS]add[ARGS]{\"t\": \"[TOOL_CALLS]weather[ARGS]{}\"}", "",
      "add {\"t\":\"[TOOL_CALLS]weather[ARGS]{}\"}\n" },
    { LLAMA, "{\"name\": \"add\", \"parameters\": {\"t\": \"<|python_tag|>}; {\"}}", "",
      "add {\"t\":\"<|python_tag|>}; {\"}\n" },
    /* numbers stay as they are; U+0000 is a character */
    { HERMES,
      "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 0.1, \"b\": 18446744073709551615}}</tool_call>",
      "", "add {\"a\":0.1,\"b\":18446744073709551615}\n" },
    { MISTRAL,
      "[TOOL_CALLS] [{\"name\": \"add\", \"arguments\": {\"a\": -99999999999999999999, \"b\": [1.5]}}]", "",
      "add {\"a\":-99999999999999999999,\"b\":[1.5]}\n" },
    { LLAMA, "{\"name\": \"add\", \"parameters\": {\"a\": 18446744073709551616, \"b\": \"x\\u0000y\"}}", "",
      "add {\"a\":18446744073709551616,\"b\":\"x\\u0000y\"}\n" },
    { HERMES, "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": \"\\u0000\"}}</tool_call>", "",
      "add {\"a\":\"\\u0000\"}\n" },
    { HERMES, "<tool_call>{\"name\": \"add\\u0000\", \"arguments\": {}}</tool_call>",
      "<tool_call>{\"name\": \"add\\u0000\", \"arguments\": {}}</tool_call>", "" },
    { HERMES,
      "<tool_call>{\"name\": \"add\", \"arguments\": \"{\\\"a\\\": 18446744073709551615}\"}</tool_call>", "",
      "add {\"a\": 18446744073709551615}\n" },
    /* thoughts are not carried out */
    { HERMES, "<think>I could <tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>\n</think>\n\nNo.",
      "<think>I could <tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>\n</think>\n\nNo.", "" },
    { HERMES,
      "\n<think>\n<tool_call>{\"name\": \"rm\"</think>\n<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>",
      "\n<think>\n<tool_call>{\"name\": \"rm\"</think>", "add {}\n" },
    { HERMES, "<think><tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>",
      "<think><tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>", "" },
    { MISTRAL, "[THINK][TOOL_CALLS]add[ARGS]{}[/THINK][TOOL_CALLS]weather[ARGS]{}",
      "[THINK][TOOL_CALLS]add[ARGS]{}[/THINK]", "weather {}\n" },
    { LLAMA32, "<think>{\"name\": \"add\"}</think>{\"name\": \"add\", \"parameters\": {}}",
      "<think>{\"name\": \"add\"}</think>", "add {}\n" },
    { HERMES, "<thinking> <tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>", "<thinking>",
      "add {}\n" },
    { HERMES, "The tag <think> is text. <tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>",
      "The tag <think> is text.", "add {}\n" },
    /* a call that the limit of tokens cut off is none, nor is what its strings have in them */
    { HERMES,
      "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>\n<tool_call>{\"name\": \"add\", \"argu",
      "\n<tool_call>{\"name\": \"add\", \"argu", "add {}\n" },
    { MISTRAL, "[TOOL_CALLS]add[ARGS]{}[TOOL_CALLS]weather[ARGS]{\"t\": \"[TOOL_CALLS]add[ARGS]{}",
      "[TOOL_CALLS]weather[ARGS]{\"t\": \"[TOOL_CALLS]add[ARGS]{}", "add {}\n" },
    { HERMES, "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_c", "", "add {}\n" },
    { MISTRAL, "[TOOL_CALLS]rm[ARGS]{\"t\": \"[TOOL_CALLS]add[ARGS]{}\"}",
      "[TOOL_CALLS]rm[ARGS]{\"t\": \"[TOOL_CALLS]add[ARGS]{}\"}", "" },
    /* a broken call does not hide the next one */
    { HERMES,
      "<tool_call>{\"name\": \"add\", \"argu</tool_call>\n<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>",
      "<tool_call>{\"name\": \"add\", \"argu</tool_call>", "add {}\n" },
    { HERMES, "<tool_call>{\"name\": \"add\", \"arguments\": {}} and more</tool_call>",
      "<tool_call>{\"name\": \"add\", \"arguments\": {}} and more</tool_call>", "" },
    /* text around calls; a fence of code around one is text */
    { MISTRAL, "[TOOL_CALLS]add[ARGS]{\"a\": 1} and then text", " and then text", "add {\"a\":1}\n" },
    { HERMES, "```json\n<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>\n```", "```json\n```",
      "add {}\n" },
    { HERMES, "```json\n{\"name\": \"add\", \"arguments\": {}}\n```",
      "```json\n{\"name\": \"add\", \"arguments\": {}}\n```", "" },
    { HERMES,
      "<tool_call>[{\"name\": \"add\", \"arguments\": {\"a\": [[]]}}, {\"name\": \"weather\"}]</tool_call>",
      "", "add {\"a\":[[]]}\nweather {}\n" },
    { NO, "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>",
      "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>", "" },
};

static void read_in_pieces(size_t i, const json_t *tools, unsigned seed)
{
    struct tool_reader r = { .style = tool_style_find(CASES[i].chat_template), .tools = tools };
    struct str out = { 0 }, called = { 0 };
    json_t *calls = json_array(), *call;
    const size_t n = strlen(CASES[i].text);
    size_t k;
    srand(seed);
    for (size_t at = 0, some; at < n; at += some) {
        const size_t wanted = 1 + (size_t)(rand() % (seed % 3 ? 4 : 60));
        some = MIN(n - at, wanted);
        tool_reader_push(&r, CASES[i].text + at, some, &out, calls);
    }
    tool_reader_finish(&r, &out, calls);
    json_array_foreach(calls, k, call)
        str_printf(&called, "%s %s\n", json_get_str(call, "name", ""), json_get_str(call, "arguments", ""));
    if (strcmp(str_text(&out), CASES[i].want) || strcmp(str_text(&called), CASES[i].calls))
        fail_msg("case %zu, seed %u: text '%s', calls '%s'", i, seed, str_text(&out), str_text(&called));
    json_decref(calls);
    str_free(&out);
    str_free(&called);
    tool_reader_free(&r);
}

static void calls_are_found(void **state)
{
    struct err why = { 0 };
    json_t *tools;
    (void)state;
    CHECK_OK(json_parse(&tools, TOOLS, sizeof TOOLS - 1, &why));
    for (size_t i = 0; i < COUNT_OF(CASES); i++)
        for (unsigned seed = 0; seed < 40; seed++) read_in_pieces(i, tools, seed);
    json_decref(tools);
}

/* The prompt, or a token that is no text, can begin a thought. */
static void thoughts(void **state)
{
    static const char CALL[] = "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>";
    static const struct {
        const char *prompt, *control;
        bool called;
    } BEGIN[] = { { "<|im_start|>assistant\n<think>\n", "", false },
                  { "<|im_start|>assistant\n<think>\n\n</think>\n\n", "", true },
                  { "assistant\n", "[THINK]", false },
                  { "[THINK]", "[/THINK]", true },
                  { "", "", true } };
    struct err why = { 0 };
    json_t *tools;
    (void)state;
    CHECK_OK(json_parse(&tools, TOOLS, sizeof TOOLS - 1, &why));
    for (size_t i = 0; i < COUNT_OF(BEGIN); i++) {
        struct tool_reader r = { .style = tool_style_find(HERMES), .tools = tools };
        struct str out = { 0 };
        json_t *calls = json_array();
        tool_reader_prompt(&r, BEGIN[i].prompt, strlen(BEGIN[i].prompt));
        tool_reader_control(&r, BEGIN[i].control);
        tool_reader_push(&r, CALL, sizeof CALL - 1, &out, calls);
        tool_reader_finish(&r, &out, calls);
        CHECK_EQ(json_array_size(calls), BEGIN[i].called);
        CHECK_STR(str_text(&out), BEGIN[i].called ? "" : CALL);
        json_decref(calls);
        str_free(&out);
        tool_reader_free(&r);
    }
    json_decref(tools);
}

static void styles(void **state)
{
    (void)state;
    CHECK_STR(tool_style_name(tool_style_find(HERMES)), "hermes");
    CHECK_STR(tool_style_name(tool_style_find(MISTRAL)), "mistral");
    CHECK_STR(tool_style_name(tool_style_find(LLAMA)), "llama");
    CHECK_STR(tool_style_name(tool_style_find(LLAMA32)), "llama");
    CHECK_STR(tool_style_name(tool_style_find(NO)), "");
    assert_null(tool_style_find(NULL));
    CHECK(tool_style_marks(tool_style_find(MISTRAL), "[TOOL_CALLS]"));
    CHECK(tool_style_marks(tool_style_find(LLAMA), "<|python_tag|>"));
    CHECK(!tool_style_marks(tool_style_find(HERMES), "<|im_end|>"));
}

/* ---------------------------------------------------------------- answers */

static struct call *call_new(json_t *tools, bool stream)
{
    struct call *c = calloc(1, sizeof *c);
    c->ask = (struct ask){
        .endpoint = ENDPOINT_CHAT, .top = -1, .choices = 1, .stream = stream, .tools = tools
    };
    c->prompts = calloc(1, sizeof *c->prompts);
    c->prompt_count = 1;
    c->answers = calloc(1, sizeof *c->answers);
    c->answer_count = c->left = 1;
    c->answers[0] = (struct answer){ .call = c,
                                     .calls = json_array(),
                                     .reader = { .style = tool_style_find(HERMES), .tools = tools } };
    strcpy(c->id, "chatcmpl-1");
    return c;
}

static void generate(struct answer *a, const char *text, bool ended)
{
    struct str s = { 0 };
    str_append(&s, text);
    reply_read_calls(a, &s, ended);
    str_free(&s);
    if (!ended) return;
    a->finish = a->call_count ? "tool_calls" : "stop";
    a->call->left = 0;
}

static const json_t *at(const json_t *o, const char *key)
{
    return json_object_get(o, key);
}

static void answers(void **state)
{
    const struct server s = { .o.name = "m" };
    struct err why = { 0 };
    json_t *tools;
    (void)state;
    CHECK_OK(json_parse(&tools, TOOLS, sizeof TOOLS - 1, &why));
    struct call *c = call_new(tools, false);
    generate(c->answers,
             "<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":1}}</tool_call>"
             "<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":1}}</tool_call>",
             true);
    json_t *o = reply_document(&s, c);
    const json_t *choice = json_array_get(at(o, "choices"), 0), *message = at(choice, "message"),
                 *calls = at(message, "tool_calls");
    CHECK_STR(json_get_str(choice, "finish_reason", ""), "tool_calls");
    CHECK(json_is_null(at(message, "content")));
    CHECK_EQ(json_array_size(calls), 2);
    CHECK_STR(json_get_str(json_array_get(calls, 0), "type", ""), "function");
    CHECK_STR(json_get_str(at(json_array_get(calls, 1), "function"), "arguments", ""), "{\"a\":1}");
    const char *first = json_get_str(json_array_get(calls, 0), "id", ""),
               *second = json_get_str(json_array_get(calls, 1), "id", "");
    CHECK_EQ(strlen(first), 9);
    CHECK_EQ(strspn(first, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"), 9);
    CHECK(strcmp(first, second));
    json_decref(o);
    call_free(c);

    c = call_new(tools, true); /* a stream: text, then each call when it is complete, then the end */
    struct answer *a = c->answers;
    generate(a, "Wait.\n<tool_call>{\"name\":\"add\",", false);
    reply_stream_answer(&s, c, a);
    CHECK_CONTAINS(str_text(&c->pending), "\"delta\":{\"role\":\"assistant\",\"content\":\"\"}");
    CHECK_CONTAINS(str_text(&c->pending), "\"delta\":{\"content\":\"Wait.\"}");
    CHECK_LACKS(str_text(&c->pending), "tool_call");
    str_clear(&c->pending);
    generate(a, "\"arguments\":{}}", false);
    reply_stream_answer(&s, c, a); /* nothing yet */
    CHECK_EQ(c->pending.len, 0);
    generate(a, "</tool_call>", false);
    reply_stream_answer(&s, c, a);
    CHECK_CONTAINS(str_text(&c->pending),
                   "\"delta\":{\"content\":null,\"tool_calls\":[{\"index\":0,\"id\":\"");
    CHECK_CONTAINS(str_text(&c->pending), "\"function\":{\"name\":\"add\",\"arguments\":\"{}\"}}]}");
    CHECK_CONTAINS(str_text(&c->pending), "\"finish_reason\":null");
    str_clear(&c->pending);
    generate(a, "\n", true);
    reply_stream_answer(&s, c, a);
    CHECK_CONTAINS(str_text(&c->pending), "\"finish_reason\":\"tool_calls\"");
    CHECK_LACKS(str_text(&c->pending), "\"tool_calls\":[");
    c->ask.tools = NULL;
    call_free(c);
    json_decref(tools);
}

/* Templates get the arguments of earlier calls as an object; without tools none are given. */
static void requests(void **state)
{
    static const char BODY[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":["
        "{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"add\",\"arguments\":\"{\\\"a\\\": 1}\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"3\"}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"add\"}}],"
        "\"tool_choice\":\"%s\"}";
    struct ask a;
    struct refusal no;
    char body[600];
    (void)state;
    snprintf(body, sizeof body, BODY, "auto");
    CHECK(ask_parse(&a, ENDPOINT_CHAT, body, strlen(body), &no));
    const json_t *call = json_array_get(at(json_array_get(a.messages, 1), "tool_calls"), 0);
    CHECK_EQ(json_get_int(at(at(call, "function"), "arguments"), "a", 0), 1);
    CHECK(json_is_string(
        at(at(json_array_get(at(json_array_get(at(a.body, "messages"), 1), "tool_calls"), 0), "function"),
           "arguments"))); /* the client's own is as it was */
    CHECK_EQ(json_array_size(a.tools), 1);
    ask_free(&a);
    snprintf(body, sizeof body, BODY, "none");
    CHECK(ask_parse(&a, ENDPOINT_CHAT, body, strlen(body), &no));
    assert_null(a.tools);
    ask_free(&a);
    snprintf(body, sizeof body, BODY, "required");
    CHECK(!ask_parse(&a, ENDPOINT_CHAT, body, strlen(body), &no));
    CHECK_EQ(no.status, 400);
    CHECK_STR(no.param, "tool_choice");
    ask_free(&a);
    static const char NAMELESS[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[{\"type\":\"web_search\"}]}";
    CHECK(!ask_parse(&a, ENDPOINT_CHAT, NAMELESS, sizeof NAMELESS - 1, &no));
    CHECK_STR(no.param, "tools");
    ask_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(calls_are_found), cmocka_unit_test(thoughts),
                                        cmocka_unit_test(styles), cmocka_unit_test(answers),
                                        cmocka_unit_test(requests) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
