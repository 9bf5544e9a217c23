/* Proves: what clients of the server may send and what they get, without a server. Stop strings and
 * characters that are cut into any pieces leave the same text as in one piece, and no piece has half a
 * character; every field of a request is accepted with right values and refused with a message that names it
 * otherwise; documents and events have OpenAI's form, and memory that ran out fails one request;
 * docs/serve.md names every field and endpoint. */
#include "tests/check.h"

#include <stdlib.h>

#include "advisor/serve/access.h"
#include "advisor/serve/parts.h"

/* ---------------------------------------------------------------- text that is held back */

/* The text in pieces of random length; each piece that leaves must be whole characters. */
static void held_in_pieces(const char *text, const char *const *stop, int stops, const char *want,
                           bool stopped)
{
    for (unsigned seed = 0; seed < 50; seed++) {
        struct held h = { .stop = stop, .stops = stops };
        struct str all = { 0 };
        const size_t n = strlen(text);
        srand(seed);
        for (size_t at = 0, take; at < n; at += take) {
            struct str piece = { 0 };
            const size_t wanted = 1 + (size_t)(rand() % 4);
            take = MIN(n - at, wanted);
            held_push(&h, text + at, take, &piece);
            CHECK_EQ(str_utf8_unfinished(str_text(&piece), piece.len), 0);
            str_append_n(&all, str_text(&piece), piece.len);
            str_free(&piece);
        }
        CHECK_EQ(h.stopped, stopped);
        held_finish(&h, &all);
        CHECK_STR(str_text(&all), want);
        CHECK_EQ(h.length, strlen(want));
        held_free(&h);
        str_free(&all);
    }
}

static void stop_strings_end_the_text(void **state)
{
    static const char *const END[] = { "END" }, *const LINES[] = { "\n\n", "User:" },
                             *const NESTED[] = { "aab", "b" }, *const SHORT[] = { "longer than the text" },
                             *const WITHIN[] = { "banana split", "an", "xan" };
    (void)state;
    held_in_pieces("one two END three", END, 1, "one two ", true);
    held_in_pieces("EN and E and EEND", END, 1, "EN and E and E", true);
    held_in_pieces("no stop here: EN", END, 1, "no stop here: EN", false);
    held_in_pieces("END", END, 1, "", true);
    held_in_pieces("hello\nUser: hi\n\n", LINES, 2, "hello\n", true);
    held_in_pieces("hello\n\nUser:", LINES, 2, "hello", true);
    held_in_pieces("aaab", NESTED, 2, "a", true);
    held_in_pieces("longer than", SHORT, 1, "longer than", false);
    held_in_pieces("a banana split", WITHIN, 2, "a b", true); /* "an" is complete first */
    held_in_pieces("a xan", WITHIN, 3, "a ", true);
    held_in_pieces("any text", NULL, 0, "any text", false);
}

static void characters_are_not_cut(void **state)
{
    static const char *const STOP[] = { "\xe2\x82\xac!" }; /* a euro sign and an exclamation mark */
    (void)state;
    held_in_pieces("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80 x", NULL, 0,
                   "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80 x", false);
    held_in_pieces("5 \xe2\x82\xac? 6 \xe2\x82\xac!", STOP, 1, "5 \xe2\x82\xac? 6 ", true);
}

/* What a model generates need not be UTF-8: all of it leaves, at the latest at the end. */
static void bytes_that_are_no_text_leave(void **state)
{
    static const char BYTES[] = "a\0b\xff\xfe\xe2\x82";
    struct held h = { .stops = 0 };
    struct str out = { 0 };
    (void)state;
    held_push(&h, BYTES, sizeof BYTES - 1, &out);
    CHECK_EQ(out.len, 5); /* the last two bytes begin a character */
    held_finish(&h, &out);
    CHECK_EQ(out.len, sizeof BYTES - 1);
    json_t *text = reply_text(str_text(&out), out.len);
    CHECK_EQ(json_string_length(text), 3 + 4 * 3); /* each wrong byte is U+FFFD */
    json_decref(text);
    held_free(&h);
    str_free(&out);
}

/* ---------------------------------------------------------------- requests */

static void right_requests_are_read(void **state)
{
    static const char BODY[] =
        "{\"model\":\"m\",\"prompt\":[[1,2],\"two\"],\"max_tokens\":7,\"temperature\":0.5,\"top_p\":0.9,\"top_k\":40,"
        "\"min_p\":0.1,\"seed\":-5,\"stop\":[\"a\",\"b\"],\"n\":2,\"logprobs\":3,\"stream\":true,\"priority\":4,"
        "\"stream_options\":{\"include_usage\":true},\"ignore_eos\":true,\"min_tokens\":2,\"user\":\"u\","
        "\"frequency_penalty\":0,\"presence_penalty\":0.0,\"logit_bias\":{},\"suffix\":null,\"best_of\":2}";
    struct ask a;
    struct refusal no = { 0 };
    (void)state;
    CHECK(ask_parse(&a, ENDPOINT_COMPLETIONS, BODY, sizeof BODY - 1, &no));
    CHECK_STR(a.model, "m");
    CHECK_EQ(json_array_size(a.prompt), 2);
    CHECK_EQ(a.most, 7);
    CHECK_EQ(a.least, 2);
    CHECK_EQ(a.temperature, 0.5);
    CHECK_EQ(a.top_p, 0.9);
    CHECK_EQ(a.top_k, 40);
    CHECK_EQ(a.min_p, 0.1);
    CHECK(a.seed_given && a.seed == -5);
    CHECK_EQ(a.stops, 2);
    CHECK_STR(a.stop[1], "b");
    CHECK_EQ(a.choices, 2);
    CHECK_EQ(a.top, 3);
    CHECK_EQ(a.priority, 4);
    CHECK(a.stream && a.usage && !a.usage_always && a.ignore_end);
    ask_free(&a);
}

static void defaults_are_openais(void **state)
{
    struct ask a;
    struct refusal no = { 0 };
    (void)state;
    static const char BODY[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
        "{\"type\":\"text\",\"text\":\"b\"}]},{\"role\":\"assistant\",\"content\":null}]}";
    CHECK(ask_parse(&a, ENDPOINT_CHAT, BODY, sizeof BODY - 1, &no));
    CHECK_EQ(a.temperature, 1);
    CHECK_EQ(a.top_p, 1);
    CHECK_EQ(a.choices, 1);
    CHECK_EQ(a.most, -1);
    CHECK_EQ(a.top, -1);
    CHECK(!a.stream && !a.seed_given && !a.model);
    CHECK_STR(json_get_str(json_array_get(a.messages, 0), "content", ""),
              "ab"); /* parts of a text are joined */
    CHECK(json_is_null(json_object_get(json_array_get(a.messages, 1), "content")));
    ask_free(&a);
}

static void wrong_requests_are_refused(void **state)
{
    static const struct {
        enum endpoint endpoint;
        const char *body, *param, *says;
    } CASES[] = {
        { ENDPOINT_COMPLETIONS, "", "", "bad JSON" },
        { ENDPOINT_COMPLETIONS, "[]", "", "expected a JSON object" },
        { ENDPOINT_COMPLETIONS, "{\"prompt\":\"x\",\"prompt\":\"y\"}", "", "duplicate object key" },
        { ENDPOINT_COMPLETIONS, "{}", "prompt", "found none" },
        { ENDPOINT_COMPLETIONS, "{\"prompt\":5}", "prompt", "found 5" },
        { ENDPOINT_COMPLETIONS, "{\"prompt\":[]}", "prompt", "found []" },
        { ENDPOINT_COMPLETIONS, "{\"prompt\":[1,-2]}", "prompt", "expected a text" },
        { ENDPOINT_COMPLETIONS, "{\"prompt\":[\"a\",1]}", "prompt", "expected a text" },
        { ENDPOINT_COMPLETIONS, "{\"prompt\":[[]]}", "prompt", "expected a text" },
        { ENDPOINT_COMPLETIONS, "{\"prompt\":\"x\",\"max_token\":5}", "max_token",
          "did you mean max_tokens?" },
        { ENDPOINT_COMPLETIONS, "{\"prompt\":\"x\",\"colour\":5}", "colour", "leave it out" },
        { ENDPOINT_COMPLETIONS, "{\"prompt\":\"x\",\"max_tokens\":0}", "max_tokens", "at least 1" },
        { ENDPOINT_COMPLETIONS, "{\"prompt\":\"x\",\"max_tokens\":2.5}", "max_tokens", "found 2.5" },
        { ENDPOINT_COMPLETIONS, "{\"prompt\":\"x\",\"temperature\":-1}", "temperature", "from 0 to 100" },
        { ENDPOINT_COMPLETIONS, "{\"prompt\":\"x\",\"temperature\":\"hot\"}", "temperature",
          "found \"hot\"" },
        { ENDPOINT_COMPLETIONS, "{\"prompt\":\"x\",\"top_p\":1.5}", "top_p", "from 0 to 1" },
        { ENDPOINT_COMPLETIONS, "{\"prompt\":\"x\",\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\"]}", "stop",
          "at most 4" },
        { ENDPOINT_COMPLETIONS, "{\"prompt\":\"x\",\"stop\":\"\"}", "stop", "none of them empty" },
        { ENDPOINT_COMPLETIONS, "{\"prompt\":\"x\",\"n\":0}", "n", "from 1 to 128" },
        { ENDPOINT_COMPLETIONS, "{\"prompt\":[\"x\",\"y\"],\"n\":100}", "n", "at most 128" },
        { ENDPOINT_COMPLETIONS, "{\"prompt\":\"x\",\"best_of\":3}", "best_of", "the value of n" },
        { ENDPOINT_COMPLETIONS, "{\"prompt\":\"x\",\"logprobs\":21}", "logprobs", "from 0 to 20" },
        { ENDPOINT_COMPLETIONS, "{\"prompt\":\"x\",\"echo\":true}", "echo", "supports only false" },
        { ENDPOINT_COMPLETIONS, "{\"prompt\":\"x\",\"frequency_penalty\":0.5}", "frequency_penalty",
          "only 0" },
        { ENDPOINT_COMPLETIONS, "{\"prompt\":\"x\",\"stream\":1}", "stream", "true or false" },
        { ENDPOINT_COMPLETIONS, "{\"prompt\":\"x\",\"stream_options\":{\"include_usage\":true}}",
          "stream_options", "with \"stream\": true" },
        { ENDPOINT_COMPLETIONS, "{\"prompt\":\"x\",\"stream\":true,\"stream_options\":{\"usage\":true}}",
          "stream_options", "include_usage" },
        { ENDPOINT_COMPLETIONS, "{\"prompt\":\"x\",\"min_tokens\":9,\"max_tokens\":8}", "min_tokens",
          "more than" },
        { ENDPOINT_COMPLETIONS, "{\"prompt\":\"x\",\"messages\":[]}", "messages", "does not know" },
        { ENDPOINT_CHAT, "{}", "messages", "found none" },
        { ENDPOINT_CHAT, "{\"messages\":[]}", "messages", "at least one" },
        { ENDPOINT_CHAT, "{\"messages\":[5]}", "messages", "messages[0]: expected an object with a role" },
        { ENDPOINT_CHAT, "{\"messages\":[{\"content\":\"x\"}]}", "messages", "with a role" },
        { ENDPOINT_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":7}]}", "messages",
          "a text or a list" },
        { ENDPOINT_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}",
          "messages", "parts of type \"text\" only" },
        { ENDPOINT_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"logprobs\":3}", "logprobs",
          "true or false" },
        { ENDPOINT_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"top_logprobs\":3}",
          "top_logprobs", "with \"logprobs\": true" },
        { ENDPOINT_CHAT,
          "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"response_format\":{\"type\":\"json_object\"}}",
          "response_format", "supports only" },
        { ENDPOINT_TOKENIZE, "{}", "content", "either" },
        { ENDPOINT_TOKENIZE, "{\"content\":[1]}", "content", "expected a text" },
        { ENDPOINT_DETOKENIZE, "{}", "tokens", "found none" },
        { ENDPOINT_DETOKENIZE, "{\"tokens\":[1,\"x\"]}", "tokens", "a list of token ids" },
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct ask a;
        struct refusal no = { 0 };
        const bool read = ask_parse(&a, CASES[i].endpoint, CASES[i].body, strlen(CASES[i].body), &no);
        ask_free(&a);
        if (read || no.status != 400 || strcmp(no.param, CASES[i].param) ||
            !strstr(no.message, CASES[i].says))
            fail_msg("%s: read %d, status %d, param '%s', message '%s'; want '%s', '%s'", CASES[i].body, read,
                     no.status, no.param, no.message, CASES[i].param, CASES[i].says);
    }
}

static void errors_have_openais_form(void **state)
{
    struct refusal no;
    (void)state;
    CHECK(!refuse(&no, 404, "model_not_found", "model", "no model '%s'", "x"));
    json_t *o = refusal_json(&no);
    const json_t *error = json_object_get(o, "error");
    CHECK_STR(json_get_str(error, "message", NULL), "no model 'x'");
    CHECK_STR(json_get_str(error, "type", NULL), "not_found_error");
    CHECK_STR(json_get_str(error, "param", NULL), "model");
    CHECK_STR(json_get_str(error, "code", NULL), "model_not_found");
    json_decref(o);
    refuse(&no, 500, "model_failed", NULL, "x");
    o = refusal_json(&no);
    CHECK(json_is_null(json_object_get(json_object_get(o, "error"), "param")));
    CHECK_STR(json_get_str(json_object_get(o, "error"), "type", NULL), "server_error");
    json_decref(o);
}

/* ---------------------------------------------------------------- answers */

/* A request with one answer that has this text. */
static struct call *call_new(enum endpoint endpoint, const char *text, const char *finish)
{
    struct call *c = calloc(1, sizeof *c);
    c->ask = (struct ask){ .endpoint = endpoint, .top = -1, .choices = 1 };
    c->prompts = calloc(1, sizeof *c->prompts);
    c->prompt_count = 1;
    for (int i = 0; i < 5; i++) token_list_push(&c->prompts[0], i, NULL);
    c->answers = calloc(1, sizeof *c->answers);
    c->answer_count = 1;
    c->left = !finish;
    c->answers[0] = (struct answer){ .call = c, .made = 3, .cached = 2, .finish = finish };
    str_append(&c->answers[0].ready, text);
    strcpy(c->id, "cmpl-1");
    c->arrived_ns = 1000000;
    c->answers[0].admitted_ns = 3000000;
    c->answers[0].first_ns = 8000000;
    c->answers[0].last_ns = 18000000;
    return c;
}

/* An allocation that failed unnoticed is the cause of whatever error it led to. It fails one request: the
 * thread works on for the next ones. */
static void errors_tell_of_missing_memory(void **state)
{
    (void)state;
    struct refusal no;
    memory_short_set();
    CHECK(!refuse(&no, 404, "model_not_found", "model", "no model '%s' here", "other"));
    CHECK_EQ(no.status, 500);
    assert_string_equal(no.code, "out_of_memory");
    assert_string_equal(no.param, "");
    assert_string_equal(no.message, "out of memory: no model 'other' here");
    CHECK(!memory_is_short());
    json_t *document = refusal_json(&no);
    char *line = json_line(document);
    assert_non_null(line);
    CHECK_CONTAINS(line, "\"server_error\"");
    free(line);
    json_decref(document);
    memory_short_set();
    refuse(&no, 500, "out_of_memory", NULL, "out of memory for the answer");
    assert_string_equal(no.message, "out of memory for the answer");
    CHECK(!memory_is_short());
}

static void a_document(void **state)
{
    const struct server s = { .o.name = "m" };
    struct call *c = call_new(ENDPOINT_CHAT, "hi", "stop");
    (void)state;
    json_t *o = reply_document(&s, c);
    const json_t *choice = json_array_get(json_object_get(o, "choices"), 0),
                 *usage = json_object_get(o, "usage"), *timings = json_object_get(o, "timings");
    CHECK_STR(json_get_str(o, "object", NULL), "chat.completion");
    CHECK_STR(json_get_str(o, "model", NULL), "m");
    CHECK_STR(json_get_str(json_object_get(choice, "message"), "content", NULL), "hi");
    CHECK_STR(json_get_str(json_object_get(choice, "message"), "role", NULL), "assistant");
    CHECK_STR(json_get_str(choice, "finish_reason", NULL), "stop");
    CHECK_EQ(json_get_int(usage, "prompt_tokens", -1), 5);
    CHECK_EQ(json_get_int(usage, "completion_tokens", -1), 3);
    CHECK_EQ(json_get_int(usage, "total_tokens", -1), 8);
    CHECK_EQ(json_get_int(json_object_get(usage, "prompt_tokens_details"), "cached_tokens", -1), 2);
    CHECK_EQ(json_get_num(timings, "queue_ms", -1), 2);
    CHECK_EQ(json_get_num(timings, "ttft_ms", -1), 7);
    CHECK_EQ(json_get_int(timings, "cache_n", -1), 2);
    CHECK_EQ(json_get_int(timings, "prompt_n", -1), 3);
    CHECK_EQ(json_get_num(timings, "prompt_ms", -1), 5);
    CHECK_EQ(json_get_int(timings, "predicted_n", -1), 3);
    CHECK_EQ(json_get_num(timings, "predicted_ms", -1), 10);
    CHECK_NEAR(json_get_num(timings, "predicted_per_second", -1), 200, 1e-9); /* two intervals in 10 ms */
    json_decref(o);
    call_free(c);
}

/* Takes the next event out of the text of a stream. New reference; NULL: [DONE]. */
static json_t *event_next(const char **at)
{
    struct err why = { 0 };
    json_t *o = NULL;
    const char *end = strstr(*at, "\n\n");
    CHECK(end && !strncmp(*at, "data: ", 6));
    if (strncmp(*at, "data: [DONE]\n\n", 14))
        CHECK_OK(json_parse(&o, *at + 6, (size_t)(end - *at) - 6, &why));
    *at = end + 2;
    return o;
}

static const char *delta_of(const json_t *event, const char *key)
{
    return json_get_str(json_object_get(json_array_get(json_object_get(event, "choices"), 0), "delta"), key,
                        NULL);
}

static void a_stream(void **state)
{
    const struct server s = { .o.name = "m" };
    struct call *c = call_new(ENDPOINT_CHAT, "one", NULL);
    struct answer *a = c->answers;
    (void)state;
    c->ask.stream = c->ask.usage = true;
    reply_stream_answer(&s, c, a);
    reply_stream_answer(&s, c, a); /* nothing new */
    str_append(&a->ready, " two");
    a->finish = "length";
    c->left = 0;
    reply_stream_answer(&s, c, a);
    reply_stream_answer(&s, c, a); /* it has ended */
    reply_stream_end(&s, c);
    const char *at = str_text(&c->pending);
    json_t *role = event_next(&at), *first = event_next(&at), *last = event_next(&at),
           *usage = event_next(&at);
    CHECK_STR(json_get_str(role, "object", NULL), "chat.completion.chunk");
    CHECK_STR(delta_of(role, "role"), "assistant");
    CHECK_STR(delta_of(role, "content"), "");
    CHECK(json_is_null(json_object_get(role, "usage")) && json_object_get(role, "usage"));
    CHECK_STR(delta_of(first, "content"), "one");
    CHECK(!delta_of(first, "role"));
    CHECK(!json_object_get(first, "timings"));
    CHECK_STR(delta_of(last, "content"), " two");
    CHECK_STR(json_get_str(json_array_get(json_object_get(last, "choices"), 0), "finish_reason", NULL),
              "length");
    CHECK(json_object_get(last, "timings"));
    CHECK_EQ(json_array_size(json_object_get(usage, "choices")), 0);
    CHECK_EQ(json_get_int(json_object_get(usage, "usage"), "completion_tokens", -1), 3);
    CHECK(!event_next(&at));
    CHECK_STR(at, "");
    json_decref(role);
    json_decref(first);
    json_decref(last);
    json_decref(usage);
    call_free(c);
}

/* ---------------------------------------------------------------- who may ask */

static void hosts_of_this_machine(void **state)
{
    static const struct {
        const char *host;
        bool loopback;
    } CASES[] = {
        { "localhost", true },
        { "LocalHost:8080", true },
        { "127.0.0.1", true },
        { "127.0.0.1:8080", true },
        { "127.8.9.10:1", true },
        { "[::1]", true },
        { "[::1]:8080", true },
        { "localhost:", true },
        { "", false },
        { "example.com", false },
        { "example.com:8080", false },
        { "localhost.example.com", false },
        { "127.0.0.1.nip.io", false },
        { "128.0.0.1", false },
        { "[::2]:80", false },
        { "[::1", false },
        { "[::1]x", false },
        { "[localhost]", false },
        { "localhost:80x", false },
        { "127.0.0.1@example.com", false },
        { ":8080", false },
        { "[]", false },
        { "::1", false },
    };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(CASES); i++)
        if (access_host_is_loopback(CASES[i].host) != CASES[i].loopback)
            fail_msg("'%s': want %d", CASES[i].host, CASES[i].loopback);
    char name[300];
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = '\0';
    CHECK(!access_host_is_loopback(name));
}

/* ---------------------------------------------------------------- the manual */

static void the_manual_has_all_fields_and_endpoints(void **state)
{
    char *page;
    struct err why = { 0 };
    char want[96];
    (void)state;
    CHECK_OK(file_read(&page, NULL, TEST_SOURCE_DIR "/docs/serve.md", 1 << 20, &why));
    const char *name;
    for (size_t i = 0; (name = ask_field_name(i)); i++) {
        snprintf(want, sizeof want, "`%s`", name);
        CHECK_CONTAINS(page, want);
    }
    CHECK(strcmp(ask_field_name(0), "model") == 0);
    static const char *const PATHS[] = { "/v1/completions", "/v1/chat/completions",
                                         "/v1/models",      "/v1/models/x",
                                         "/tokenize",       "/detokenize",
                                         "/health",         "/metrics" };
    for (size_t i = 0; i < COUNT_OF(PATHS); i++) {
        const struct route *r = route_find(PATHS[i]);
        CHECK(r != NULL);
        snprintf(want, sizeof want, "`%s %s", r->method, r->path);
        CHECK_CONTAINS(page, want);
    }
    CHECK(!route_find("/v1/models/") && !route_find("/") && !route_find("/v1/completions/"));
    free(page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stop_strings_end_the_text),
        cmocka_unit_test(characters_are_not_cut),
        cmocka_unit_test(bytes_that_are_no_text_leave),
        cmocka_unit_test(right_requests_are_read),
        cmocka_unit_test(defaults_are_openais),
        cmocka_unit_test(wrong_requests_are_refused),
        cmocka_unit_test(errors_have_openais_form),
        cmocka_unit_test(errors_tell_of_missing_memory),
        cmocka_unit_test(a_document),
        cmocka_unit_test(a_stream),
        cmocka_unit_test(hosts_of_this_machine),
        cmocka_unit_test(the_manual_has_all_fields_and_endpoints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
