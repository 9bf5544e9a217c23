/* Proves: Unigram tokenizers of checkpoints give the ids that the package `tokenizers` gives, with and
 * without byte_fallback, replacements and cutting into words; decoding returns the text; vocabularies that do
 * not say what a text becomes are refused, in a checkpoint and in a GGUF file. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/gguf/gguf.h"
#include "engine/import/import.h"
#include "engine/text/text.h"
#include "tests/check.h"

static const char CONFIG[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":64,\"num_attention_heads\":2,"
    "\"num_hidden_layers\":1,\"intermediate_size\":64,\"rms_norm_eps\":1e-5}";
static const char NO_TENSORS[] = "\x08\0\0\0\0\0\0\0{}      ";

static void write_file(const char *folder, const char *name, const char *bytes, size_t n)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, n, f) == n && !fclose(f));
}

/* Open a checkpoint with this tokenizer.json and no tensors; its files are gone afterwards. */
static enum err_code open_folder(struct gguf **out, const char *tokenizer, struct err *why)
{
    static const char *const FILES[] = { "config.json", "tokenizer.json", "model.safetensors" };
    char folder[] = "/tmp/qdyno-unigram-XXXXXX", path[512];
    CHECK(mkdtemp(folder));
    write_file(folder, FILES[0], CONFIG, strlen(CONFIG));
    write_file(folder, FILES[1], tokenizer, strlen(tokenizer));
    write_file(folder, FILES[2], NO_TENSORS, sizeof NO_TENSORS - 1);
    const enum err_code rc = model_file_open(out, folder, why);
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, FILES[i]);
        unlink(path);
    }
    rmdir(folder);
    return rc;
}

/* ---------------------------------------------------------------- golden ids */

static void put(json_t *to, const char *key, const json_t *from)
{
    CHECK(!json_object_set_new(to, key, json_deep_copy(from)));
}

/* The tokenizer.json of a config; owned by the caller: free(). */
static char *tokenizer_text(const json_t *golden, const json_t *config)
{
    json_t *root = json_object(), *model = json_object();
    const bool fallback = json_get_bool(config, "byte_fallback", false);
    put(root, "normalizer", json_object_get(config, "normalizer"));
    put(root, "pre_tokenizer", json_object_get(config, "pre_tokenizer"));
    put(root, "added_tokens", json_object_get(config, "added_tokens"));
    put(model, "vocab", json_object_get(golden, "vocab"));
    for (int b = 0; fallback && b < 256; b++) {
        char byte[8];
        snprintf(byte, sizeof byte, "<0x%02X>", b);
        CHECK(!json_array_append_new(json_object_get(model, "vocab"), json_pack("[sf]", byte, -20.0)));
    }
    CHECK(!json_object_set_new(model, "type", json_string("Unigram")));
    CHECK(!json_object_set_new(model, "unk_id", json_integer(0)));
    CHECK(!json_object_set_new(model, "byte_fallback", json_boolean(fallback)));
    CHECK(!json_object_set_new(root, "model", model));
    char *text = json_dumps(root, JSON_COMPACT);
    CHECK(text);
    json_decref(root);
    return text;
}

static void expect_ids(const struct tokenizer *t, const char *name, const char *text, const json_t *want)
{
    struct token_list l = { 0 };
    struct err why = { 0 };
    struct str s = { 0 };
    CHECK_OK(tokenizer_encode(t, text, strlen(text), TOKENIZE_SPECIAL, &l, &why));
    bool same = (size_t)l.n == json_array_size(want);
    for (int64_t i = 0; i < l.n; i++) {
        str_printf(&s, " %d", l.ids[i]);
        same = same && l.ids[i] == json_integer_value(json_array_get(want, (size_t)i));
    }
    if (!same) {
        char *ids = json_dumps(want, 0);
        fail_msg("%s: '%s' gives%s, want %s", name, text, str_text(&s), ids);
    }
    token_list_free(&l);
    str_free(&s);
}

static void expect_config(const json_t *golden, const json_t *config)
{
    char *text = tokenizer_text(golden, config);
    struct err why = { 0 };
    struct gguf *g;
    struct tokenizer *t;
    struct tokenizer_info info;
    CHECK_OK(open_folder(&g, text, &why));
    CHECK_OK(tokenizer_open(&t, g, &why));
    tokenizer_describe(t, &info);
    CHECK_STR(info.kind, "unigram");
    const json_t *texts = json_object_get(golden, "texts"), *ids = json_object_get(config, "ids");
    CHECK(json_array_size(texts) > 20 && json_array_size(texts) == json_array_size(ids));
    for (size_t i = 0; i < json_array_size(texts); i++)
        expect_ids(t, json_get_str(config, "name", "?"), json_string_value(json_array_get(texts, i)),
                   json_array_get(ids, i));
    tokenizer_close(t);
    gguf_close(g);
    free(text);
}

static json_t *read_golden(void)
{
    char path[4096], *text;
    size_t n;
    struct err why = { 0 };
    json_t *golden;
    data_path(path, sizeof path, "unigram-golden/golden.json");
    CHECK_OK(file_read(&text, &n, path, 1 << 20, &why));
    CHECK_OK(json_parse(&golden, text, n, &why));
    free(text);
    return golden;
}

static void test_golden_ids(void **state)
{
    (void)state;
    json_t *golden = read_golden();
    const json_t *configs = json_object_get(golden, "configs");
    CHECK_EQ(json_array_size(configs), 9);
    for (size_t i = 0; i < json_array_size(configs); i++) expect_config(golden, json_array_get(configs, i));
    json_decref(golden);
}

/* ---------------------------------------------------------------- back to text */

#define PIECES                                                                                               \
    "[\"<unk>\",0],[\"\xe2\x96\x81\",-3],[\"a\",-2],[\"b\",-2],[\"ab\",-3.5],[\"\xe2\x96\x81\xe2\x96\x81\",-9]"
#define SPACES                                                                                               \
    "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"first\"}"

static void test_any_bytes_come_back(void **state)
{
    (void)state;
    static const char *const TEXTS[] = { "ab b", "\xff\xfe ab", "a\xe2\x98", "\xf0\x9f\x99\x82 \n", "" };
    struct str s = { 0 };
    struct err why = { 0 };
    struct gguf *g;
    struct tokenizer *t;
    str_append(&s, "{" SPACES
                   ",\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":true,\"vocab\":[" PIECES);
    for (int b = 0; b < 256; b++) str_printf(&s, ",[\"<0x%02X>\",-20]", (unsigned)b);
    str_append(&s, "]}}");
    CHECK_OK(open_folder(&g, str_text(&s), &why));
    CHECK_OK(tokenizer_open(&t, g, &why));
    for (size_t i = 0; i < COUNT_OF(TEXTS); i++) {
        struct token_list l = { 0 };
        str_clear(&s);
        CHECK_OK(tokenizer_encode(t, TEXTS[i], strlen(TEXTS[i]), 0, &l, &why));
        CHECK_OK(tokenizer_decode(t, l.ids, l.n, false, &s, &why));
        CHECK_STR(str_text(&s), TEXTS[i]);
        token_list_free(&l);
    }
    tokenizer_close(t);
    gguf_close(g);
    str_free(&s);
}

/* ---------------------------------------------------------------- refusals */

/* Replacements that double the text again and again end in an error, not in memory running out. */
static void test_growth_is_bounded(void **state)
{
    (void)state;
    struct str s = { 0 };
    struct err why = { 0 };
    struct gguf *g;
    struct tokenizer *t;
    struct token_list l = { 0 };
    str_append(&s, "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
    for (int i = 0; i < 30; i++)
        str_printf(&s, "%s{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aa\"}",
                   i ? "," : "");
    str_append(&s, "]}," SPACES ",\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[" PIECES "]}}");
    CHECK_OK(open_folder(&g, str_text(&s), &why));
    CHECK_OK(tokenizer_open(&t, g, &why));
    CHECK_EQ(tokenizer_encode(t, "a b", 3, 0, &l, &why), ERR_FORMAT);
    CHECK(strstr(why.message, "times as long"));
    token_list_free(&l);
    tokenizer_close(t);
    gguf_close(g);
    str_free(&s);
}

static void test_checkpoints_are_refused(void **state)
{
    (void)state;
#define MODEL(rest) "\"model\":{\"type\":\"Unigram\"" rest "}}"
    static const struct {
        const char *tokenizer, *message;
    } CASES[] = {
        { "{" SPACES "," MODEL(",\"vocab\":[" PIECES "]"), "expected unk_id" },
        { "{" SPACES "," MODEL(",\"unk_id\":6,\"vocab\":[" PIECES "]"), "expected unk_id" },
        { "{" SPACES "," MODEL(",\"unk_id\":null,\"vocab\":[" PIECES "]"), "expected unk_id" },
        { "{" SPACES "," MODEL(",\"unk_id\":0,\"vocab\":[" PIECES ",[\"ab\",-4]]"), "have the same text" },
        { "{" SPACES "," MODEL(",\"unk_id\":0,\"vocab\":[[\"a\"]]"), "no text with a score" },
        { "{" SPACES "," MODEL(",\"unk_id\":0,\"vocab\":{\"a\":0}"), "no vocabulary" },
        { "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}," MODEL(
              ",\"unk_id\":0,\"vocab\":[" PIECES "]"),
          "Unigram with byte level" },
        { "{\"normalizer\":{\"type\":\"Precompiled\"}," SPACES "," MODEL(",\"unk_id\":0"), "not base64" },
        { "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Replace\",\"pattern\":"
          "{\"String\":\" \"},\"content\":\"\xe2\x96\x81\"},{\"type\":\"Strip\"}]}," MODEL(",\"unk_id\":0"),
          "behind the one that writes U+2581" },
        { "{" SPACES ",\"model\":{\"type\":\"WordPiece\"}}", "'WordPiece' is not supported" },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct err why = { 0 };
        struct gguf *g;
        const enum err_code rc = open_folder(&g, CASES[i].tokenizer, &why);
        if (rc != ERR_FORMAT || !strstr(why.message, CASES[i].message))
            fail_msg("expected '%s', got %d: %s", CASES[i].message, rc, why.message);
    }
}

/* Open the tokenizer of a GGUF file with three tokens and these scores and this id of "unknown". */
static enum err_code open_gguf(const double *scores, uint64_t count, int64_t unknown, struct gguf_string word,
                               struct err *out)
{
    const struct gguf_string tokens[] = { { "<unk>", 5 }, { "a", 1 }, word };
    static const int32_t TYPES[] = { 2, 1, 1 };
    struct err why = { 0 };
    char path[] = "/tmp/qdyno-unigram-XXXXXX";
    struct gguf_writer *w;
    struct gguf *g;
    struct tokenizer *t = NULL;
    close(mkstemp(path));
    unlink(path);
    CHECK_OK(gguf_writer_open(&w, path, &why));
    gguf_writer_put_string(w, "tokenizer.ggml.model", OWN_UNIGRAM);
    gguf_writer_put_string(w, "tokenizer.ggml.pre", OWN_PRE);
    gguf_writer_put_bool(w, OWN_CHARACTERS, true);
    gguf_writer_put_strings(w, "tokenizer.ggml.tokens", tokens, 3);
    gguf_writer_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, TYPES, 3);
    if (count) gguf_writer_put_array(w, OWN_SCORES, GGUF_F64, scores, count);
    if (unknown >= 0) gguf_writer_put_u32(w, "tokenizer.ggml.unknown_token_id", (uint32_t)unknown);
    CHECK_OK(gguf_writer_commit(w, &why));
    CHECK_OK(gguf_open(&g, path, &why));
    const enum err_code rc = tokenizer_open(&t, g, out);
    tokenizer_close(t);
    gguf_close(g);
    unlink(path);
    return rc;
}

static void test_files_are_refused(void **state)
{
    (void)state;
    static char longest[600];
    memset(longest, 'b', sizeof longest);
    const struct gguf_string b = { "b", 1 }, too_long = { longest, 513 }, fits = { longest, 512 };
    const double good[] = { 0, -1, -2 }, nan[] = { 0, NAN, -2 }, endless[] = { 0, -INFINITY, -2 };
    struct err why = { 0 };
    CHECK_OK(open_gguf(good, 3, 0, b, &why));
    CHECK_OK(open_gguf(good, 3, 0, fits, &why));
    CHECK_EQ(open_gguf(good, 0, 0, b, &why), ERR_FORMAT);
    CHECK_EQ(open_gguf(good, 2, 0, b, &why), ERR_FORMAT);
    CHECK_EQ(open_gguf(nan, 3, 0, b, &why), ERR_FORMAT);
    CHECK_EQ(open_gguf(endless, 3, 0, b, &why), ERR_FORMAT);
    CHECK_EQ(open_gguf(good, 3, -1, b, &why), ERR_FORMAT);
    CHECK_EQ(open_gguf(good, 3, 0, too_long, &why), ERR_FORMAT);
    CHECK(strstr(why.message, "513 bytes"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_ids),        cmocka_unit_test(test_any_bytes_come_back),
        cmocka_unit_test(test_growth_is_bounded), cmocka_unit_test(test_checkpoints_are_refused),
        cmocka_unit_test(test_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
