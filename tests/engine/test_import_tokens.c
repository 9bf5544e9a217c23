/* Proves: variants of tokenizer.json and of the files beside it give the ids and texts of the tokenizers
 * library: tokens that stand in other files only, their flags, normal forms of Unicode, replacements,
 * post-processors with their ids, decoders; what is not supported is refused by its name. A token that is
 * null in tokenizer_config.json is none, and all tokens of generation_config.json end an answer. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/gguf/gguf.h"
#include "engine/import/import.h"
#include "engine/text/text.h"
#include "tests/check.h"

enum { VOCAB = 1470, WIDTH = 32 };

static const struct {
    const char *name, *message;
} REFUSED[] = {
    { "normalizer Lowercase", "'Lowercase'" },     { "normalizer StripAccents", "'StripAccents'" },
    { "post-processor two ids", "'X' has 2 ids" }, { "decoder Fuse", "U+2581 that stays" },
    { "decoder without Strip", "without Strip" },  { "decoder Strip 2", "Strip" },
    { "Split MergedWithNext", "MergedWithNext" },  { "byte level with prefix space", "add_prefix_space" },
};

static json_t *read_json(const char *name)
{
    char path[4096], *text;
    struct err why = { 0 };
    json_t *j;
    size_t n;
    data_path(path, sizeof path, "added-tokens/%s", name);
    CHECK_OK(file_read(&text, &n, path, 8 << 20, &why));
    CHECK_OK(json_parse(&j, text, n, &why));
    free(text);
    return j;
}

/* ---------------------------------------------------------------- a checkpoint of zeros */

static void write_bytes(const char *folder, const char *name, const void *bytes, size_t n)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    CHECK(f);
    CHECK_EQ(fwrite(bytes, 1, n, f), n);
    CHECK_EQ(fclose(f), 0);
}

static void write_json(const char *folder, const char *name, const json_t *j)
{
    char *text = json_dumps(j, JSON_COMPACT);
    CHECK(text);
    write_bytes(folder, name, text, strlen(text));
    free(text);
}

static void write_weights(const char *folder)
{
    static const char *const MATRICES[] = { "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                            "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
                                            "mlp.down_proj" };
    static const char *const VECTORS[] = { "model.layers.0.input_layernorm",
                                           "model.layers.0.post_attention_layernorm", "model.norm" };
    struct str s = { 0 };
    size_t at = VOCAB * WIDTH * 4;
    str_printf(
        &s, "{\"model.embed_tokens.weight\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[0,%zu]}",
        VOCAB, WIDTH, at);
    for (size_t i = 0; i < COUNT_OF(MATRICES); i++, at += WIDTH * WIDTH * 4)
        str_printf(
            &s,
            ",\"model.layers.0.%s.weight\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[%zu,%zu]}",
            MATRICES[i], WIDTH, WIDTH, at, at + WIDTH * WIDTH * 4);
    for (size_t i = 0; i < COUNT_OF(VECTORS); i++, at += WIDTH * 4)
        str_printf(&s, ",\"%s.weight\":{\"dtype\":\"F32\",\"shape\":[%d],\"data_offsets\":[%zu,%zu]}",
                   VECTORS[i], WIDTH, at, at + WIDTH * 4);
    str_append(&s, "}");
    const uint64_t n = s.len;
    unsigned char *file = calloc(1, 8 + s.len + at);
    CHECK(file);
    memcpy(file, &n, 8);
    memcpy(file + 8, s.data, s.len);
    write_bytes(folder, "model.safetensors", file, 8 + s.len + at);
    free(file);
    str_free(&s);
}

static const char *const FILES[] = { "tokenizer.json",   "tokenizer_config.json",   "added_tokens.json",
                                     "config.json",      "special_tokens_map.json", "generation_config.json",
                                     "model.safetensors" };

struct opened {
    char folder[4096];
    struct gguf *g;
    struct tokenizer *t;
    struct err why;
};

/* parts: members of tokenizer.json that replace those of the base; files: {name: content}. */
static struct opened open_variant(const char *base, const json_t *parts, const json_t *files)
{
    struct opened o = { 0 };
    char name[64];
    const char *file;
    json_t *content;
    snprintf(name, sizeof name, "%s.json", base);
    json_t *tokenizer = read_json(name);
    json_t *config = json_pack(
        "{s:[s], s:s, s:i, s:i, s:i, s:i, s:i, s:f, s:i, s:i, s:s, s:f, s:b, s:i, s:i}", "architectures",
        "LlamaForCausalLM", "model_type", "llama", "hidden_size", WIDTH, "intermediate_size", WIDTH,
        "num_hidden_layers", 1, "num_attention_heads", 1, "num_key_value_heads", 1, "rms_norm_eps", 1e-5,
        "vocab_size", VOCAB, "max_position_embeddings", 64, "hidden_act", "silu", "rope_theta", 10000.0,
        "tie_word_embeddings", 1, "bos_token_id", 1200, "eos_token_id", 1202);
    CHECK(config);
    snprintf(o.folder, sizeof o.folder, "%s/tests/tokens-%d", TEST_BUILD_DIR, (int)getpid());
    mkdir(o.folder, 0700);
    json_object_update(tokenizer, (json_t *)(uintptr_t)parts);
    write_json(o.folder, "tokenizer.json", tokenizer);
    write_json(o.folder, "config.json", config);
    json_object_foreach((json_t *)(uintptr_t)files, file, content) write_json(o.folder, file, content);
    write_weights(o.folder);
    if (!model_file_open(&o.g, o.folder, &o.why)) tokenizer_open(&o.t, o.g, &o.why);
    json_decref(config);
    json_decref(tokenizer);
    return o;
}

static void close_variant(struct opened *o)
{
    char path[4200];
    tokenizer_close(o->t);
    gguf_close(o->g);
    for (size_t i = 0; i < COUNT_OF(FILES); i++) {
        snprintf(path, sizeof path, "%s/%s", o->folder, FILES[i]);
        unlink(path);
    }
    rmdir(o->folder);
}

/* ---------------------------------------------------------------- recorded variants */

static bool case_is_right(const struct opened *o, const char *name, const json_t *c)
{
    struct err why = { 0 };
    struct token_list l = { 0 };
    struct str back = { 0 };
    const json_t *text = json_array_get(c, 0), *ids = json_array_get(c, 1), *again = json_array_get(c, 2);
    CHECK_OK(tokenizer_encode(o->t, json_string_value(text), json_string_length(text),
                              TOKENIZE_SPECIAL | TOKENIZE_ADD_BOS, &l, &why));
    bool same = l.n == (int64_t)json_array_size(ids);
    for (int64_t i = 0; i < l.n && same; i++)
        same = l.ids[i] == json_integer_value(json_array_get(ids, (size_t)i));
    if (same) CHECK_OK(tokenizer_decode(o->t, l.ids, l.n, true, &back, &why));
    if (!same) print_message("%s: '%s': other ids\n", name, json_string_value(text));
    const bool same_text = !same || (back.len == json_string_length(again) &&
                                     !memcmp(str_text(&back), json_string_value(again), back.len));
    if (!same_text)
        print_message("%s: '%s' becomes '%s', want '%s'\n", name, json_string_value(text), str_text(&back),
                      json_string_value(again));
    token_list_free(&l);
    str_free(&back);
    return same && same_text;
}

static void recorded_variants(void **state)
{
    (void)state;
    json_t *all = read_json("cases.json"), *v, *c;
    size_t i, k, refused = 0;
    int bad = 0;
    json_array_foreach(all, i, v)
    {
        const char *name = json_get_str(v, "name", ""), *message = NULL;
        for (size_t r = 0; r < COUNT_OF(REFUSED); r++)
            if (!strcmp(REFUSED[r].name, name)) message = REFUSED[r].message;
        struct opened o = open_variant(json_get_str(v, "base", ""), json_object_get(v, "parts"),
                                       json_object_get(v, "files"));
        if (!message && !o.t) fail_msg("%s: %s", name, o.why.message);
        if (message && (o.t || !strstr(o.why.message, message)))
            fail_msg("%s: want '%s', got '%s'", name, message, o.why.message);
        if (o.t) json_array_foreach(json_object_get(v, "cases"), k, c) bad += !case_is_right(&o, name, c);
        refused += message != NULL;
        close_variant(&o);
    }
    CHECK_LT(50, i);
    CHECK_EQ(refused, COUNT_OF(REFUSED));
    CHECK_EQ(bad, 0);
    json_decref(all);
}

/* ---------------------------------------------------------------- BOS and ends */

static void null_is_none(void **state)
{
    (void)state;
    struct tokenizer_info info;
    json_t *files = json_pack("{s:{s:n, s:s}}", "tokenizer_config.json", "bos_token", "eos_token",
                              "<|im_end|>");
    struct opened o = open_variant("bytes", NULL, files);
    if (!o.t) fail_msg("%s", o.why.message);
    tokenizer_describe(o.t, &info);
    CHECK_EQ(info.bos, -1); /* though config.json numbers one */
    CHECK_EQ(info.eos, 1202);
    close_variant(&o);
    json_decref(files);
}

static void all_ends_end(void **state)
{
    (void)state;
    json_t *files = json_pack("{s:{s:[i, i, i, i, i]}}", "generation_config.json", "eos_token_id", 1202, 10,
                              11, 12, 13);
    struct opened o = open_variant("bytes", NULL, files);
    if (!o.t) fail_msg("%s", o.why.message);
    for (int32_t id = 10; id <= 13; id++) CHECK(tokenizer_ends(o.t, id));
    CHECK(tokenizer_ends(o.t, 1202));
    CHECK(!tokenizer_ends(o.t, 14));
    close_variant(&o);
    json_decref(files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_variants),
        cmocka_unit_test(null_is_none),
        cmocka_unit_test(all_ends_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
