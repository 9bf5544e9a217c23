/* Proves: each form of a file of prompts gives its prompts, classes and lengths of answers; what is damaged,
 * too much or of another form is refused with the number of its line; conversations go through the chat
 * template; plain text is cut to exactly the tokens that are asked for; a folder is read in the order of
 * names. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/gguf/gguf.h"
#include "engine/prompts/prompts.h"
#include "tests/check.h"

static struct prompts parsed(const char *name, const char *text)
{
    struct err why = { 0 };
    struct prompts p;
    CHECK_OK(prompts_parse(&p, name, text, strlen(text), &why));
    return p;
}

static const char *content(const struct prompts *p, int i, size_t message)
{
    return json_get_str(json_array_get(p->prompt[i].messages, message), "content", "none");
}

static void test_plain_text(void **state)
{
    (void)state;
    static const char *const TEXTS[] = { "Once upon a time.\n\nThe end.\n", "\xef\xbb\xbfWith a BOM.",
                                         "[Chorus] la la", "{not json} but text", "[1, 2] apples" };
    for (size_t i = 0; i < COUNT_OF(TEXTS); i++) {
        struct prompts p = parsed("a.txt", TEXTS[i]);
        CHECK_EQ(p.form, PROMPTS_TEXT);
        CHECK_EQ(p.n, 1);
        CHECK_STR(p.prompt[0].text, TEXTS[i] + (TEXTS[i][0] == '\xef' ? 3 : 0));
        CHECK_EQ(strlen(p.sha256), 64);
        prompts_free(&p);
    }
}

static void test_lines(void **state)
{
    (void)state;
    struct prompts p = parsed(
        "a.jsonl", "{\"prompt\": \"One\", \"class\": \"x\", \"max_tokens\": 5}\n\n"
                   "  {\"prompt\": \"Two\", \"category\": 7}\r\n"
                   "{\"prompt\": \" \\n\"}\n"
                   "{\"messages\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", "
                   "\"content\": [{\"type\": \"text\", \"text\": \"A\"}, {\"type\": \"text\", \"text\": "
                   "\"B\"}]}, {\"role\": \"assistant\", \"content\": \"C D\"}], \"class\": \"x\"}\n"
                   "{\"messages\": [{\"role\": \"assistant\", \"content\": \"alone\"}]}");
    CHECK_EQ(p.form, PROMPTS_LINES);
    CHECK_EQ(p.n, 3);
    CHECK_EQ(p.skipped, 2);
    CHECK_STR(p.prompt[0].text, "One");
    CHECK_EQ(p.prompt[0].most, 5);
    CHECK_EQ(p.prompt[0].line, 1);
    CHECK_EQ(p.prompt[1].line, 3);
    CHECK_EQ(p.prompt[1].most, 0);
    CHECK_EQ(p.classes, 2);
    CHECK_STR(p.class_name[p.prompt[0].class], "x");
    CHECK_STR(p.class_name[p.prompt[1].class], "7");
    CHECK_EQ(p.prompt[2].class, p.prompt[0].class);
    CHECK_EQ(json_array_size(p.prompt[2].messages), 2);
    CHECK_STR(content(&p, 2, 1), "AB");
    CHECK_STR(p.prompt[2].answer, "C D");
    CHECK(!p.prompt[2].text);
    CHECK(!p.prompt[2].plain);
    prompts_free(&p);
    p = parsed("any", "[\"one\", {\"prompt\": [\"two\"]}]");
    CHECK_EQ(p.form, PROMPTS_LINES);
    CHECK_EQ(p.n, 2);
    CHECK_STR(p.prompt[1].text, "two");
    prompts_free(&p);
}

static void test_sharegpt(void **state)
{
    (void)state;
    struct prompts p = parsed(
        "any",
        "[\n{\"conversations\": [{\"from\": \"system\", \"value\": \"S\"}, {\"from\": \"gpt\", \"value\": \"early\"}, "
        "{\"from\": \"human\", \"value\": \"Q\"}, {\"from\": \"gpt\", \"value\": \"R\"}, {\"from\": \"human\", "
        "\"value\": \"later\"}]},\n{\"conversations\": []},\n{\"conversations\": [{\"from\": \"human\", "
        "\"value\": \"Only\"}]}]\n");
    CHECK_EQ(p.form, PROMPTS_SHAREGPT);
    CHECK_EQ(p.n, 2);
    CHECK_EQ(p.skipped, 1);
    CHECK_EQ(json_array_size(p.prompt[0].messages), 2);
    CHECK_STR(content(&p, 0, 0), "S");
    CHECK_STR(content(&p, 0, 1), "Q");
    CHECK_STR(p.prompt[0].answer, "R");
    CHECK(p.prompt[0].plain);
    CHECK_EQ(p.prompt[1].line, 4);
    CHECK(!p.prompt[1].answer);
    prompts_free(&p);
}

static void test_batch(void **state)
{
    (void)state;
    struct prompts p = parsed(
        "any", "{\"custom_id\": \"1\", \"url\": \"/v1/chat/completions\", \"class\": \"c\", \"body\": "
               "{\"model\": \"m\", \"messages\": [{\"role\": \"user\", \"content\": \"Q\"}], "
               "\"max_completion_tokens\": 9}}\n"
               "{\"body\": {\"prompt\": \"T\", \"max_tokens\": 3}}\n");
    CHECK_EQ(p.form, PROMPTS_BATCH);
    CHECK_EQ(p.n, 2);
    CHECK_STR(content(&p, 0, 0), "Q");
    CHECK_EQ(p.prompt[0].most, 9);
    CHECK_EQ(p.prompt[0].class, 0);
    CHECK_STR(p.prompt[1].text, "T");
    CHECK_EQ(p.prompt[1].most, 3);
    CHECK_EQ(p.prompt[1].class, -1);
    prompts_free(&p);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *says;
    } BAD[] = {
        { "a.txt", "", "no prompt" },
        { "a.txt", " \n\t\n", "no prompt" },
        { "a.txt", "fine\nlatin \xe9 one\n", "line 2: this is no text in UTF-8" },
        { "a.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": \"b\n", "line 2" },
        { "a.jsonl", "{\"prompt\": ", "line 1" },
        { "a.jsonl", "{\"prompt\": \"a\"}\n\nrest", "line 3" },
        { "a.jsonl", "{\"prompt\": 5}", "line 1: prompt is no text" },
        { "a.jsonl", "{\"prompt\": \"a\"}\n{\"question\": \"b\", \"id\": 1}",
          "line 2: expected an object with prompt" },
        { "a.jsonl", "{\"question\": \"b\", \"id\": 1}", "this one has: question id" },
        { "a.jsonl", "{\"prompt\": \"\\u0000\"}", "\\u0000" },
        { "a.jsonl", "{\"messages\": \"x\"}", "line 1: messages is no list" },
        { "a.jsonl", "{\"messages\": [{\"content\": \"x\"}]}", "line 1: expected messages such as" },
        { "a.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]}",
          "image_url" },
        { "a.jsonl", "{\"messages\": []}", "no prompt" },
        { "a.json", "[]", "no prompt" },
        { "a.json", "[{\"prompt\": \"a\"}", "line 1: expected , or ]" },
        { "a.json", "[{\"prompt\": \"a\"}\n{\"prompt\": \"b\"}]", "line 2: expected , or ]" },
        { "a.json", "[{\"prompt\": \"a\"}] x", "behind the list" },
        { "a.json", "[{\"conversations\": [{\"from\": \"alien\", \"value\": \"a\"}]}]", "line 1: message 1" },
        { "a.json", "[{\"conversations\": {}}]", "conversations is no list" },
        { "a.json", "[[1]]", "expected an object or a text" },
        { "a.json", "[{\"prompt\": \"a\", \"prompt\": \"b\"}]", "line 1" },
    };
    for (size_t i = 0; i < COUNT_OF(BAD); i++) {
        struct err why = { 0 };
        struct prompts p;
        if (prompts_parse(&p, BAD[i].name, BAD[i].text, strlen(BAD[i].text), &why) != ERR_FORMAT)
            fail_msg("taken: %s", BAD[i].text);
        CHECK_CONTAINS(why.message, BAD[i].says);
        prompts_free(&p);
    }
    struct err why = { 0 };
    struct prompts p;
    CHECK_EQ(prompts_parse(&p, "a", "a\0b", 3, &why), ERR_FORMAT);
    prompts_free(&p);
}

/* Limits: prompts, depth, classes. */
static void test_limits(void **state)
{
    (void)state;
    struct str s = { 0 };
    struct err why = { 0 };
    struct prompts p;
    for (int i = 0; i <= PROMPTS_MOST; i++) str_append(&s, "\"x\"\n");
    str_append(&s, "\"x\"");
    struct str list = { 0 };
    str_append(&list, "[\"x\"");
    for (int i = 0; i < PROMPTS_MOST; i++) str_append(&list, ",\"x\"");
    str_append(&list, "]");
    CHECK_EQ(prompts_parse(&p, "a.json", list.data, list.len, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "more than 100000 prompts");
    CHECK_EQ(p.n, PROMPTS_MOST);
    prompts_free(&p);
    str_clear(&list);
    str_append(&list, "{\"messages\": ");
    for (int i = 0; i < 5000; i++) str_append(&list, "[");
    CHECK_EQ(prompts_parse(&p, "a.jsonl", list.data, list.len, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "nested deeper");
    prompts_free(&p);
    str_clear(&list);
    for (int i = 0; i < 50; i++) str_printf(&list, "{\"prompt\": \"x\", \"class\": \"c%d\"}\n", i);
    CHECK_OK(prompts_parse(&p, "a.jsonl", list.data, list.len, &why));
    CHECK_EQ(p.classes, PROMPT_CLASSES);
    CHECK_STR(p.class_name[PROMPT_CLASSES - 1], "other");
    CHECK_EQ(p.prompt[31].class, PROMPT_CLASSES - 1);
    CHECK_EQ(p.prompt[49].class, PROMPT_CLASSES - 1);
    CHECK_EQ(p.prompt[30].class, 30);
    prompts_free(&p);
    str_free(&list);
    str_free(&s);
    CHECK_EQ(prompts_class(&p, ""), -1);
    p = parsed("a.jsonl", "{\"prompt\": \"x\", \"class\": \"two\\nlines\"}");
    CHECK_STR(p.class_name[0], "two lines");
    prompts_free(&p);
}

/* ---------------------------------------------------------------- folders */

static void file_write(const char *folder, const char *name, const char *text)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    CHECK(f);
    CHECK_GE(fputs(text, f), 0);
    CHECK_EQ(fclose(f), 0);
}

static void test_folder(void **state)
{
    (void)state;
    char folder[4096], path[4200];
    struct err why = { 0 };
    struct prompts p;
    snprintf(folder, sizeof folder, "%s/tests/prompts-XXXXXX", TEST_BUILD_DIR);
    CHECK(mkdtemp(folder));
    CHECK_EQ(prompts_read(&p, folder, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "no file with text");
    prompts_free(&p);
    file_write(folder, "b.txt", "second");
    file_write(folder, "a.md", "first, {\"prompt\": 1}");
    file_write(folder, ".hidden", "never");
    file_write(folder, "c", "  \n");
    snprintf(path, sizeof path, "%s/sub", folder);
    CHECK_EQ(mkdir(path, 0700), 0);
    CHECK_OK(prompts_read(&p, folder, &why));
    CHECK_EQ(p.form, PROMPTS_FOLDER);
    CHECK_EQ(p.n, 2);
    CHECK_EQ(p.skipped, 1);
    CHECK_STR(p.prompt[0].text, "first, {\"prompt\": 1}");
    CHECK_STR(p.prompt[1].text, "second");
    char before[HASH_HEX];
    memcpy(before, p.sha256, sizeof before);
    prompts_free(&p);
    file_write(folder, "b.txt", "changed");
    CHECK_OK(prompts_read(&p, folder, &why));
    CHECK_STR_NE(p.sha256, before);
    prompts_free(&p);
    file_write(folder, "d.bin", "\xff\xfe");
    CHECK_EQ(prompts_read(&p, folder, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "d.bin");
    prompts_free(&p);
    CHECK_EQ(rmdir(path), 0);
    static const char *const NAMES[] = { "a.md", "b.txt", "c", "d.bin", ".hidden" };
    for (size_t i = 0; i < COUNT_OF(NAMES); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, NAMES[i]);
        CHECK_EQ(unlink(path), 0);
    }
    CHECK_EQ(rmdir(folder), 0);
    CHECK_EQ(prompts_read(&p, folder, &why), ERR_IO);
    prompts_free(&p);
}

/* ---------------------------------------------------------------- ids */

struct opened {
    struct gguf *g;
    struct tokenizer *t;
    struct prompt_reader *r;
};

static struct opened open_reader(void)
{
    struct err why = { 0 };
    struct opened o = { 0 };
    char vocab[4096];
    data_path(vocab, sizeof vocab, "tokenizer-golden/qwen35/vocab.gguf");
    CHECK_OK(gguf_open(&o.g, vocab, &why));
    CHECK_OK(tokenizer_open(&o.t, o.g, &why));
    CHECK_OK(prompt_reader_open(&o.r, o.g, o.t, &why));
    return o;
}

static void close_reader(struct opened *o)
{
    prompt_reader_close(o->r);
    tokenizer_close(o->t);
    gguf_close(o->g);
}

static void test_without_template(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct opened o = open_reader();
    struct token_list ids = { 0 }, want = { 0 };
    int answer;
    struct prompts p = parsed(
        "a", "{\"prompt\": \"One <|im_end|> two\"}\n"
             "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}]}\n"
             "{\"conversations\": [{\"from\": \"human\", \"value\": \"Q\"}, {\"from\": \"gpt\", "
             "\"value\": \"R S\"}]}");
    CHECK_OK(prompt_encode(&ids, o.r, &p, 0, &why));
    CHECK_OK(tokenizer_encode(o.t, "One <|im_end|> two", 18, 0, &want, &why)); /* control tokens stay text */
    CHECK_EQ(ids.n, want.n);
    assert_memory_equal(ids.ids, want.ids, (size_t)ids.n * sizeof *ids.ids);
    CHECK_EQ(prompt_encode(&ids, o.r, &p, 1, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "prompt in line 2");
    CHECK_CONTAINS(why.message, "no chat template");
    ids.n = want.n = 0;
    CHECK_OK(prompt_encode(&ids, o.r, &p, 2, &why)); /* ShareGPT: its text */
    CHECK_OK(tokenizer_encode(o.t, "Q", 1, 0, &want, &why));
    CHECK_EQ(ids.n, want.n);
    CHECK_EQ(ids.ids[0], want.ids[0]);
    want.n = 0;
    CHECK_OK(tokenizer_encode(o.t, "R S", 3, 0, &want, &why));
    CHECK_OK(prompt_answer(&answer, o.r, &p.prompt[2], &why));
    CHECK_EQ(answer, want.n);
    CHECK_OK(prompt_answer(&answer, o.r, &p.prompt[0], &why));
    CHECK_EQ(answer, 0);
    prompts_free(&p);
    token_list_free(&ids);
    token_list_free(&want);
    close_reader(&o);
}

static void test_cut_text(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct opened o = open_reader();
    struct token_list a = { 0 }, b = { 0 };
    struct prompts p = parsed(
        "a", "One two three, four five; \xc3\xbc\xc3\xbc six\nseven eight nine ten eleven twelve.");
    bool repeats = false;
    for (int count = 1; count < 60; count++) {
        a.n = b.n = 0;
        repeats = false;
        CHECK_OK(prompt_text_cut(&a, o.r, p.prompt, 3, count, &repeats, &why));
        CHECK_OK(prompt_text_cut(&b, o.r, p.prompt, 3, count, &repeats, &why));
        CHECK_EQ(a.n, count);
        assert_memory_equal(a.ids, b.ids, (size_t)count * sizeof *a.ids);
        if (count < 5) CHECK(!repeats);
    }
    CHECK(repeats);
    a.n = b.n = 0;
    CHECK_OK(prompt_text_cut(&a, o.r, p.prompt, 4, 8, &repeats, &why));
    CHECK_OK(prompt_text_cut(&b, o.r, p.prompt, 9, 8, &repeats, &why));
    CHECK_NE(memcmp(a.ids, b.ids, 8 * sizeof *a.ids), 0); /* another place */
    prompts_free(&p);
    token_list_free(&a);
    token_list_free(&b);
    close_reader(&o);
}

/* A text without white space, and one that is shorter than a piece. */
static void test_cut_odd_texts(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct opened o = open_reader();
    static char LONG[5000];
    memset(LONG, 'x', sizeof LONG - 1);
    static const char *const TEXTS[] = { "a", "\xf0\x9f\x98\x80", "  b  ", LONG };
    for (size_t i = 0; i < COUNT_OF(TEXTS); i++) {
        struct token_list ids = { 0 };
        struct prompts p = parsed("a", TEXTS[i]);
        for (uint64_t key = 0; key < 20; key++) {
            bool repeats = false;
            ids.n = 0;
            CHECK_OK(prompt_text_cut(&ids, o.r, p.prompt, key, 100, &repeats, &why));
            CHECK_EQ(ids.n, 100);
            CHECK_EQ(repeats, i < 3);
        }
        token_list_free(&ids);
        prompts_free(&p);
    }
    close_reader(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_text),    cmocka_unit_test(test_lines),
        cmocka_unit_test(test_sharegpt),      cmocka_unit_test(test_batch),
        cmocka_unit_test(test_refused),       cmocka_unit_test(test_limits),
        cmocka_unit_test(test_folder),        cmocka_unit_test(test_cut_text),
        cmocka_unit_test(test_cut_odd_texts), cmocka_unit_test(test_without_template),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
