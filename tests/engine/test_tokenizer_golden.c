/* Proves: for each pre-tokenizer family of the golden data, ids agree with recorded ones, with special tokens
 * parsed and not parsed, and with the tokens that frame a text; bytes that are no character come back; where
 * the recorded tokenizers disagree, ours agrees with one of them. Every row of the table compiles and covers
 * a text without gaps. */
#include <stdlib.h>
#include <string.h>

#include "engine/gguf/gguf.h"
#include "engine/import/hf_tokenizer.h"
#include "engine/text/text.h"
#include "engine/text/text_internal.h"
#include "kernels/kernels.h"
#include "tests/check.h"

static const char *const GOLDEN[] = { "chatglm-bpe", "command-r",  "deepseek-llm", "deepseek-v3", "falcon",
                                      "gemma-spm",   "gemma4",     "glm4",         "gpt-2",       "gpt-4o",
                                      "llama-bpe",   "llama2-spm", "olmo",         "qwen2",       "qwen35",
                                      "smollm",      "tekken" };

static json_t *read_json(const char *path)
{
    struct err why = { 0 };
    char *text;
    size_t n;
    CHECK_OK(file_read(&text, &n, path, 4 << 20, &why));
    json_t *j = json_loadb(text, n, JSON_ALLOW_NUL, NULL); /* texts with U+0000 are cases, too */
    CHECK(j);
    free(text);
    return j;
}

static bool same_ids(const struct token_list *l, const json_t *want)
{
    bool same = l->n == (int64_t)json_array_size(want);
    for (int64_t i = 0; same && i < l->n; i++)
        same = json_integer_value(json_array_get(want, (size_t)i)) == l->ids[i];
    return same;
}

static struct token_list encode(const struct tokenizer *t, const char *text, size_t n, unsigned flags)
{
    struct err why = { 0 };
    struct token_list l = { 0 };
    CHECK_OK(tokenizer_encode(t, text, n, flags, &l, &why));
    return l;
}

/* 0 or 1 differences from json `want` (NULL: nothing recorded). */
static int compare(const struct tokenizer *t, const char *family, const json_t *text, unsigned flags,
                   const json_t *want, const json_t *or_want)
{
    if (!want) return 0;
    struct token_list l = encode(t, json_string_value(text), json_string_length(text), flags);
    bool same = same_ids(&l, want) || (or_want && same_ids(&l, or_want));
    if (!same) {
        struct str s = { 0 };
        for (int64_t i = 0; i < l.n; i++) str_printf(&s, "%s%d", i ? ", " : "", l.ids[i]);
        char *expected = json_dumps(want, 0);
        print_message("%s: '%s' flags %u gives [%s], want %s\n", family, json_string_value(text), flags,
                      str_text(&s), expected);
        free(expected);
        str_free(&s);
    }
    token_list_free(&l);
    return !same;
}

/* Decoding the ids of any bytes gives these bytes. */
static int expect_bytes_back(const struct tokenizer *t, const char *family, const char *hex)
{
    char bytes[512];
    size_t n = strlen(hex) / 2;
    CHECK(n <= sizeof bytes);
    for (size_t i = 0; i < n; i++) {
        unsigned byte;
        CHECK(sscanf(hex + 2 * i, "%2x", &byte) == 1);
        bytes[i] = (char)byte;
    }
    struct err why = { 0 };
    struct str s = { 0 };
    struct token_list l = encode(t, bytes, n, 0);
    CHECK_OK(tokenizer_decode(t, l.ids, l.n, false, &s, &why));
    bool same = s.len == n && !memcmp(str_text(&s), bytes, n);
    if (!same) print_message("%s: bytes %s come back as '%s'\n", family, hex, str_text(&s));
    str_free(&s);
    token_list_free(&l);
    return !same;
}

/* Is there a second opinion about this form of a text? Then the case itself records nothing of it. */
static bool is_contested(const json_t *cases, const json_t *text, const char *what)
{
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(cases, "contested"), i,
                       c) if (json_equal(json_object_get(c, "text"), text) &&
                              !strcmp(json_string_value(json_object_get(c, "what")), what)) return true;
    return false;
}

static void check_family(const char *family, const json_t *cases, const struct tokenizer *t)
{
    size_t i;
    json_t *c;
    int bad = 0;
    json_array_foreach(json_object_get(cases, "cases"), i, c)
    {
        const json_t *text = json_object_get(c, "text"), *ids = json_object_get(c, "ids"),
                     *plain = json_object_get(c, "plain"), *full = json_object_get(c, "full");
        bad += compare(t, family, text, TOKENIZE_SPECIAL, ids, NULL);
        if (!is_contested(cases, text, "plain"))
            bad += compare(t, family, text, 0, plain ? plain : ids, NULL);
        bad += compare(t, family, text, TOKENIZE_SPECIAL | TOKENIZE_ADD_BOS, full ? full : ids, NULL);
    }
    json_array_foreach(json_object_get(cases, "contested"), i, c)
    {
        const char *what = json_string_value(json_object_get(c, "what"));
        unsigned flags = !strcmp(what, "plain") ? 0 : TOKENIZE_SPECIAL;
        if (!strcmp(what, "full")) flags |= TOKENIZE_ADD_BOS;
        bad += compare(t, family, json_object_get(c, "text"), flags, json_object_get(c, "tokenizers"),
                       json_object_get(c, "llama_cpp"));
    }
    json_array_foreach(json_object_get(cases, "invalid_utf8"), i, c)
    {
        const json_t *hex = json_is_string(c) ? c : json_object_get(c, "hex");
        CHECK(json_is_string(hex));
        bad += expect_bytes_back(t, family, json_string_value(hex));
    }
    if (bad) fail_msg("%s: %d differences", family, bad);
}

static void golden_families(void **state)
{
    (void)state;
    int here = 0;
    for (size_t i = 0; i < COUNT_OF(GOLDEN); i++) {
        char vocab[4096], path[4096];
        struct err why = { 0 };
        struct gguf *g;
        struct tokenizer *t;
        data_path(vocab, sizeof vocab, "tokenizer-golden/%s/vocab.gguf", GOLDEN[i]);
        data_path(path, sizeof path, "tokenizer-golden/%s/cases.json", GOLDEN[i]);
        if (access(vocab, R_OK)) {
            print_message("SKIPPED: %s is not here\n", vocab);
            continue;
        }
        json_t *cases = read_json(path);
        CHECK_LT(50, json_array_size(json_object_get(cases, "cases")));
        CHECK_OK(gguf_open(&g, vocab, &why));
        CHECK_OK(tokenizer_open(&t, g, &why));
        check_family(GOLDEN[i], cases, t);
        tokenizer_close(t);
        gguf_close(g);
        json_decref(cases);
        here++;
    }
    CHECK_LT(4, here); /* tests/data has five of them */
}

/* The tokenizer that tokenizer.json describes. own: with a step that cuts nothing and that no family of the
 * table has, so that the file's own expressions are used. *g owned, too. */
static struct tokenizer *open_json(struct gguf **g, struct str *bytes, const char *path, bool own)
{
    struct err why = { 0 };
    struct tokenizer *t;
    struct checkpoint c = { 0 };
    char *text;
    size_t n;
    CHECK_OK(file_read(&text, &n, path, 4 << 20, &why));
    CHECK_OK(hf_tokenizer_parse(&c.tokenizer, text, n, &why));
    free(text);
    json_t *before = json_object_get(c.tokenizer, "pre_tokenizer");
    if (own) {
        json_t *step = json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "String",
                                 "\x01\x01\x01", "behavior", "Isolated", "invert", 0),
               *steps = json_is_null(before) ? json_pack("[o]", step) : json_pack("[oO]", step, before);
        if (!strcmp(json_get_str(before, "type", ""), "Sequence")) {
            json_decref(steps);
            steps = json_deep_copy(json_object_get(before, "pretokenizers"));
            json_array_insert_new(steps, 0,
                                  json_pack("{s:s, s:{s:s}, s:s}", "type", "Split", "pattern", "String",
                                            "\x01\x01\x01", "behavior", "Isolated"));
        }
        json_object_set_new(c.tokenizer, "pre_tokenizer",
                            json_pack("{s:s, s:o}", "type", "Sequence", "pretokenizers", steps));
    }
    CHECK_OK(gguf_writer_open_memory(&c.metadata, &why));
    if (hf_tokenizer_put(&c, &why)) fail_msg("%s: %s", path, why.message);
    CHECK_OK(gguf_writer_preview(c.metadata, bytes, &why));
    gguf_writer_abort(c.metadata);
    json_decref(c.tokenizer);
    CHECK_OK(gguf_open_memory(g, bytes->data, bytes->len, &why));
    CHECK_OK(tokenizer_open(&t, *g, &why));
    return t;
}

static void golden_json(void **state)
{
    (void)state;
    int here = 0;
    for (size_t i = 0; i < 2 * COUNT_OF(GOLDEN); i++) {
        const char *family = GOLDEN[i / 2];
        if (i % 2 && !strcmp(family, "falcon")) continue; /* it cuts bytes, which only the family's row can */
        char json[4096], path[4096];
        struct gguf *g;
        struct str bytes = { 0 };
        struct tokenizer_info info;
        data_path(json, sizeof json, "tokenizer-golden/%s/tokenizer.json", family);
        data_path(path, sizeof path, "tokenizer-golden/%s/cases.json", family);
        if (access(json, R_OK)) {
            print_message("SKIPPED: %s is not here\n", json);
            continue;
        }
        json_t *cases = read_json(path);
        struct tokenizer *t = open_json(&g, &bytes, json, i % 2);
        tokenizer_describe(t, &info);
        if (i % 2) CHECK(!strcmp(info.pre, OWN_PRE));
        check_family(family, cases, t);
        tokenizer_close(t);
        gguf_close(g);
        str_free(&bytes);
        json_decref(cases);
        here++;
    }
    if (!here) skip();
}

/* Spaces in front by Metaspace's schemes, spaces that a special token takes, and runs of unknown characters,
 * as tokenizers 0.23 encodes them. */
static void spaces_in_front(void **state)
{
    (void)state;
    static const char JSON[] =
        "{'added_tokens':[{'id':0,'content':'<unk>','special':true},{'id':1,'content':'<s>','special':true,"
        "'rstrip':true}],'pre_tokenizer':{'type':'Metaspace','replacement':'\xe2\x96\x81','prepend_scheme':'%s','split':"
        "false},'model':{'type':'BPE','unk_token':'<unk>','fuse_unk':true,'byte_fallback':true,'vocab':{'<unk>':0,"
        "'<s>':1,'\xe2\x96\x81':2,'a':3,'\xe2\x96\x81"
        "a':4,'b':5},'merges':['\xe2\x96\x81 a']}}";
    static const char *const TEXTS[] = { "a", " a", "b<s>a", "b<s>  ab", "xya", "ax<s>y" };
    static const struct {
        const char *scheme, *ids[COUNT_OF(TEXTS)];
    } WANT[] = {
        { "first", { "4", "4", "2 5 1 3", "2 5 1 3 5", "2 0 3", "4 0 1 0" } },
        { "always", { "4", "4", "2 5 1 4", "2 5 1 4 5", "2 0 3", "4 0 1 2 0" } },
        { "never", { "3", "4", "5 1 3", "5 1 3 5", "0 3", "3 0 1 0" } },
    };
    for (size_t w = 0; w < COUNT_OF(WANT); w++) {
        struct str text = { 0 }, bytes = { 0 };
        struct err why = { 0 };
        struct checkpoint c = { 0 };
        struct gguf *g;
        struct tokenizer *t;
        str_printf(&text, JSON, WANT[w].scheme);
        for (size_t i = 0; i < text.len; i++)
            if (text.data[i] == '\'') text.data[i] = '"';
        CHECK_OK(hf_tokenizer_parse(&c.tokenizer, text.data, text.len, &why));
        CHECK_OK(gguf_writer_open_memory(&c.metadata, &why));
        if (hf_tokenizer_put(&c, &why)) fail_msg("%s: %s", WANT[w].scheme, why.message);
        CHECK_OK(gguf_writer_preview(c.metadata, &bytes, &why));
        CHECK_OK(gguf_open_memory(&g, bytes.data, bytes.len, &why));
        CHECK_OK(tokenizer_open(&t, g, &why));
        for (size_t i = 0; i < COUNT_OF(TEXTS); i++) {
            struct token_list l = encode(t, TEXTS[i], strlen(TEXTS[i]), TOKENIZE_SPECIAL);
            struct str ids = { 0 };
            for (int64_t k = 0; k < l.n; k++) str_printf(&ids, "%s%d", k ? " " : "", l.ids[k]);
            if (strcmp(str_text(&ids), WANT[w].ids[i]))
                fail_msg("%s: '%s' gives %s, want %s", WANT[w].scheme, TEXTS[i], str_text(&ids),
                         WANT[w].ids[i]);
            str_free(&ids);
            token_list_free(&l);
        }
        tokenizer_close(t);
        gguf_close(g);
        gguf_writer_abort(c.metadata);
        json_decref(c.tokenizer);
        str_free(&bytes);
        str_free(&text);
    }
}

/* Cuts are given as one string with | at the ends of words. */
static void expect_cuts(const char *family, const char *text, const char *want)
{
    struct err why = { 0 };
    struct pretokenizer *p;
    struct str s = { 0 };
    size_t *ends, count, from = 0, n = strlen(text);
    CHECK_OK(pretokenizer_open(&p, (struct gguf_string){ family, strlen(family) }, &why));
    CHECK_OK(pretokenizer_split(p, text, n, &ends, &count, &why));
    for (size_t i = 0; i < count; from = ends[i++])
        str_printf(&s, "%s%.*s", i ? "|" : "", (int)(ends[i] - from), text + from);
    CHECK_EQ(from, n);
    if (want) assert_string_equal(str_text(&s), want);
    str_free(&s);
    free(ends);
    pretokenizer_close(p);
}

static void families_without_golden_data(void **state)
{
    (void)state;
    static const char TEXT[] = "Don't 12345 caféX\n\n\xe4\xbd\xa0\xe5\xa5\xbd, ok!\r\n\t \xff 3.14//";
    for (size_t i = 0; i < TEXT_FAMILY_COUNT; i++) expect_cuts(TEXT_FAMILIES[i].info.name, TEXT, NULL);
    expect_cuts("afmoe", "12345 1234567", "12|345| |1|234|567");
    expect_cuts("superbpe", "a b 12345", "a b |12|345");
    expect_cuts("tiny_aya", "x 1234567", "x| |1|234|567");
    expect_cuts("kimi-k2", "AI\xe4\xba\xba\xe5\xb7\xa5HelloWorld 1234",
                "AI|\xe4\xba\xba\xe5\xb7\xa5|Hello|World| |123|4");
    expect_cuts("minicpm5", "it's 12345", "it|'s| |123|45");
    expect_cuts("laguna", "a\n\nb c", "a|\n\n|b| c");
    expect_cuts("seed-coder", "a!\nb", "a|!|\n|b");
    expect_cuts("qwen2", "a!\nb", "a|!\n|b");
    expect_cuts("ufakzeka", "Ankara'da", "Ankara|'da");
    expect_cuts("k2-horizon",
                "a\xe2\x80\x8d"
                "b 1234",
                "a\xe2\x80\x8d"
                "b| |123|4");
    expect_cuts("jais-2", "a     b", "a|    | b");
    expect_cuts("viking", "one, two2", "one|,| two|2");
    expect_cuts("deepseek-coder", "a1b2 +c", "a|1|b|2| +|c");
    expect_cuts("gemma4", "a b\n\nc", "a b|\n\n|c");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_families),
        cmocka_unit_test(golden_json),
        cmocka_unit_test(spaces_in_front),
        cmocka_unit_test(families_without_golden_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
