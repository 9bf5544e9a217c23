/* Proves: checkpoints that do not mean what they seem to say end in a message, or in the model that they
 * describe: repeated tokens, columns of one number, empty tensors, scales that are no numbers, patterns of
 * windows and expressions that other programs read otherwise. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/import/import.h"
#include "engine/text/text.h"
#include "tests/engine/session.h"

#define CONFIG(arch, hidden, heads, layers)                                                                  \
    "{\"architectures\":[\"" arch "\"],\"hidden_size\":" hidden ",\"num_attention_heads\":" heads            \
    ",\"num_hidden_layers\":" layers ",\"intermediate_size\":64,\"rms_norm_eps\":1e-5"
#define LLAMA     CONFIG("LlamaForCausalLM", "64", "2", "1")
#define EXAONE    CONFIG("Exaone4ForCausalLM", "64", "2", "4") ",\"sliding_window\":8"
#define METHOD(m) ",\"quantization_config\":{\"quant_method\":\"" m "\""
#define Q         "model.layers.0.self_attn.q_proj"

enum { TENSORS_MOST = 4 };
struct entry {
    const char *name, *type, *shape;
    const void *data; /* NULL: zeros */
    size_t bytes;
};

static const char *const FILES[] = { "config.json", "tokenizer.json", "model.safetensors" };

static void write_file(const char *folder, const char *name, const char *bytes, size_t n)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, n, f) == n && !fclose(f));
}

/* Make a checkpoint of these parts; tokenizer NULL: none. */
static void write_folder(char *folder, const char *config, const char *tokenizer, const struct entry *tensors)
{
    struct str header = { 0 }, data = { 0 }, file = { 0 };
    CHECK(mkdtemp(folder));
    str_append(&header, "{");
    for (int i = 0; tensors && i < TENSORS_MOST && tensors[i].name; i++) {
        const struct entry *t = &tensors[i];
        str_printf(&header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                   i ? "," : "", t->name, t->type, t->shape, data.len, data.len + t->bytes);
        for (size_t k = 0; !t->data && k < t->bytes; k++) str_append_n(&data, "", 1);
        if (t->data) str_append_n(&data, t->data, t->bytes);
    }
    str_append(&header, "}");
    while (header.len % 8) str_append(&header, " ");
    const uint64_t length = header.len;
    str_append_n(&file, &length, sizeof length);
    str_append_n(&file, header.data, header.len);
    if (data.len) str_append_n(&file, data.data, data.len);
    write_file(folder, "model.safetensors", file.data, file.len);
    write_file(folder, "config.json", config, strlen(config));
    if (tokenizer) write_file(folder, "tokenizer.json", tokenizer, strlen(tokenizer));
    str_free(&header);
    str_free(&data);
    str_free(&file);
}

static void remove_folder(const char *folder)
{
    char path[512];
    for (size_t i = 0; i < COUNT_OF(FILES); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, FILES[i]);
        unlink(path);
    }
    rmdir(folder);
}

/* The model of these parts; it stays readable when its files are gone. */
static struct gguf *open_parts(const char *config, const char *tokenizer, const struct entry *tensors)
{
    char folder[] = "/tmp/qdyno-hostile-XXXXXX";
    struct err why = { 0 };
    struct gguf *g = NULL;
    write_folder(folder, config, tokenizer, tensors);
    if (model_file_open(&g, folder, &why)) fail_msg("%s: %s", config, why.message);
    remove_folder(folder);
    return g;
}

static void expect_refused(const char *config, const char *tokenizer, const struct entry *tensors,
                           const char *message)
{
    char folder[] = "/tmp/qdyno-hostile-XXXXXX";
    struct err why = { 0 };
    struct gguf *g;
    write_folder(folder, config, tokenizer, tensors);
    const enum err_code rc = model_file_open(&g, folder, &why);
    remove_folder(folder);
    if (rc != ERR_FORMAT || !strstr(why.message, message))
        fail_msg("expected '%s', got %d: %s", message, rc, why.message);
}

/* ---------------------------------------------------------------- tokenizers */

#define BPE "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2},\"merges\":[]}"

static void test_repeated_tokens(void **state)
{
    (void)state;
    enum { TIMES = 20000 };
    struct str s = { 0 };
    struct err why = { 0 };
    struct tokenizer *t;
    str_append(&s,
               "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"added_tokens\":[");
    for (int i = 0; i < TIMES; i++)
        str_printf(&s, "%s{\"id\":1,\"content\":\"b\",\"lstrip\":true,\"rstrip\":true}", i ? "," : "");
    str_append(&s, "]," BPE "}");
    struct gguf *g = open_parts(LLAMA "}", s.data, NULL);
    CHECK_OK(tokenizer_open(&t, g, &why));
    tokenizer_close(t);
    gguf_close(g);
    str_free(&s);
}

#define SPLIT(regex)                                                                                         \
    "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"behavior\":"         \
    "\"Isolated\",\"pattern\":{\"Regex\":\"" regex "\"}},{\"type\":\"ByteLevel\",\"add_prefix_space\":"      \
    "false,\"use_regex\":false}]}," BPE "}"

static void test_expressions(void **state)
{
    (void)state;
    struct gguf *g;
    expect_refused(LLAMA "}", SPLIT("[a[bc]]+"), NULL, "another bracket between brackets");
    expect_refused(LLAMA "}", SPLIT("[[:alpha:]]"), NULL, "another bracket between brackets");
    expect_refused(LLAMA "}", SPLIT("[^]a[b]"), NULL, "another bracket between brackets");
    expect_refused(LLAMA "}", SPLIT("[a-z&&b]"), NULL, "&& between brackets");
    gguf_close(g = open_parts(LLAMA "}", SPLIT("[^]a\\\\[&]+|&&|b\\\\[[c]"), NULL));
}

static void test_ends(void **state)
{
    (void)state;
    static const char TOKENIZER[] =
        "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}," BPE "}";
    struct gguf *g = open_parts(LLAMA ",\"eos_token_id\":[1,2]}", TOKENIZER, NULL);
    CHECK_EQ(gguf_get_int(g, "tokenizer.ggml.eos_token_id", -1), 1);
    CHECK_EQ(gguf_get_int(g, "tokenizer.ggml.eot_token_id", -1), 2);
    gguf_close(g);
}

/* ---------------------------------------------------------------- tensors */

/* Rows of one number are no table of vectors. */
static void test_one_column(void **state)
{
    (void)state;
    enum { ROWS = 16384, HEAD = 128 };
    static float values[ROWS];
    for (int i = 0; i < ROWS; i++) values[i] = (float)i;
    const struct entry tensors[TENSORS_MOST] = { { Q ".weight", "F32", "16384,1", values, sizeof values } };
    struct gguf *g = open_parts(CONFIG("LlamaForCausalLM", "16384", "128", "1") "}", NULL, tensors);
    const struct gguf_tensor *t = gguf_tensor_find(g, "blk.0.attn_q.weight");
    CHECK(t && t->made && t->shape[0] == 1 && t->shape[1] == ROWS && t->shape[2] == 1);
    const float *got = (const float *)(const void *)gguf_tensor_data(t);
    for (int i = 0; i < ROWS; i++) {
        const int at = i % HEAD; /* pairs that are halves become neighbours */
        CHECK(got[i] == (float)(i - at + at % 2 * HEAD / 2 + at / 2));
    }
    gguf_close(g);
}

static void test_empty(void **state)
{
    (void)state;
    const struct entry experts[TENSORS_MOST] = {
        { "model.layers.0.mlp.experts.gate_up_proj_blocks", "U8", "0,4611686018427387904,1,16", NULL, 0 },
        { "model.layers.0.mlp.experts.gate_up_proj_scales", "U8", "0,4611686018427387904,1", NULL, 0 }
    };
    expect_refused(
        CONFIG(
            "GptOssForCausalLM", "64", "2",
            "1") ",\"num_local_experts\":2,\"rope_parameters\":{\"rope_type\":\"default\"}" METHOD("mxfp4") "}}",
        NULL, experts, "it is empty");
}

static void test_scales(void **state)
{
    (void)state;
    uint16_t scales[64] = { 0 };
    scales[63] = 0x7e00; /* NaN */
    const struct entry gptq[TENSORS_MOST] = { { Q ".qweight", "I32", "8,64", NULL, 8 * 64 * 4 },
                                              { Q ".qzeros", "I32", "1,8", NULL, 8 * 4 },
                                              { Q ".scales", "F16", "1,64", scales, sizeof scales } };
    expect_refused(LLAMA METHOD("gptq") ",\"bits\":4,\"group_size\":64}}", NULL, gptq,
                   "value 63 is not finite");
    /* as many scales of tiles as there are rows */
    const struct entry tiles[TENSORS_MOST] = { { Q ".weight", "F8_E4M3", "4,256", NULL, 1024 },
                                               { Q ".weight_scale", "F32", "2,2", NULL, 16 } };
    expect_refused(LLAMA METHOD("fp8") "}}", NULL, tiles, "or one for each of 4 rows");
}

/* A weight that became NaN is a difference, whatever follows it. */
static void test_compare(void **state)
{
    (void)state;
    enum { ROWS = 64, COLS = 64 };
    float scales[ROWS];
    uint8_t codes[COLS] = { 0 };
    struct err why = { 0 };
    for (int r = 0; r < ROWS; r++) scales[r] = 1;
    const struct entry tensors[TENSORS_MOST] = { { Q ".weight", "I8", "64,64", NULL, ROWS * COLS },
                                                 { Q ".weight_scale", "F32", "64,1", scales,
                                                   sizeof scales } };
    struct gguf *g = open_parts(LLAMA METHOD("compressed-tensors") "}}", NULL, tensors);
    const struct gguf_tensor *t = gguf_tensor_find(g, "blk.0.attn_q.weight");
    CHECK(t && t->format == &FORMATS[FORMAT_INT8]);
    struct import_check check;
    CHECK_OK(import_compare(&check, t, t, &why));
    CHECK(check.quantized && check.identical && check.difference == 0 && check.rounding == 0);
    unsigned char *bytes = malloc((size_t)t->bytes);
    memcpy(bytes, gguf_tensor_data(t), (size_t)t->bytes);
    format_row_pack(t->format, codes, NAN, bytes, COLS); /* the first row */
    struct gguf_tensor written = *t;
    written.made = NULL;
    written.data = bytes;
    CHECK_OK(import_compare(&check, t, &written, &why));
    CHECK(isnan(check.difference) && isnan(check.rounding));
    free(bytes);
    gguf_close(g);
}

/* ---------------------------------------------------------------- config.json */

static void test_windows(void **state)
{
    (void)state;
    static const char KEY[] = "exaone4.attention.sliding_window_pattern";
    struct gguf *g = open_parts(EXAONE ",\"sliding_window_pattern\":\"LLLG\"}", NULL, NULL);
    const struct gguf_kv *kv = gguf_kv_find(g, KEY);
    CHECK(kv && kv->type == GGUF_ARRAY && kv->count == 4);
    for (uint64_t l = 0; l < 4; l++) CHECK(gguf_kv_num(kv, l) == (l < 3));
    CHECK_EQ(gguf_get_int(g, "exaone4.attention.sliding_window", 0), 8);
    gguf_close(g);
    g = open_parts(EXAONE ",\"_sliding_window_pattern\":3}", NULL, NULL);
    CHECK_EQ(gguf_get_int(g, KEY, -1), 3);
    gguf_close(g);
    g = open_parts(EXAONE ",\"sliding_window_pattern\":1}", NULL, NULL); /* every layer is a period's last */
    CHECK_EQ(gguf_get_int(g, KEY, -1), 0);
    gguf_close(g);
    expect_refused(EXAONE ",\"sliding_window_pattern\":\"LXG\"}", NULL, NULL, "the letters L and G");
    expect_refused(EXAONE ",\"sliding_window_pattern\":[1,0]}", NULL, NULL, "the letters L and G");
    expect_refused(EXAONE ",\"sliding_window_pattern\":-1}", NULL, NULL, "the letters L and G");
}

static void test_unknown(void **state)
{
    (void)state;
    char name[81] = { 0 }, config[512], key[128];
    memset(name, 'x', sizeof name - 1);
    snprintf(config, sizeof config, LLAMA ",\"%s\":1}", name);
    snprintf(key, sizeof key, "llama.config.%s", name);
    struct gguf *g = open_parts(config, NULL, NULL);
    CHECK(gguf_get_bool(g, key, false));
    gguf_close(g);
    g = open_parts(LLAMA ",\"text_config\":5,\"strange\":1}", NULL, NULL);
    CHECK(gguf_get_bool(g, "llama.config.strange", false));
    gguf_close(g);
}

/* ---------------------------------------------------------------- files */

/* A file's name alone, and ".", mean the current folder, whose name the model has. */
static void test_current_folder(void **state)
{
    (void)state;
    static const char *const PATHS[] = { "model.safetensors", ".", "./" };
    char folder[] = "/tmp/qdyno-hostile-XXXXXX", before[4096];
    struct err why = { 0 };
    write_folder(folder, LLAMA "}", NULL, NULL);
    CHECK(getcwd(before, sizeof before) && !chdir(folder));
    for (size_t i = 0; i < COUNT_OF(PATHS); i++) {
        struct gguf *g;
        struct stat st;
        if (model_file_open(&g, PATHS[i], &why)) fail_msg("%s: %s", PATHS[i], why.message);
        CHECK(gguf_string_is(gguf_get_string(g, "general.name"), folder + strlen("/tmp/")));
        CHECK(!stat("config.json", &st) && gguf_has_file(g, st.st_dev, st.st_ino));
        CHECK(!stat("model.safetensors", &st) && gguf_has_file(g, st.st_dev, st.st_ino));
        CHECK(!stat(".", &st) && !gguf_has_file(g, st.st_dev, st.st_ino));
        gguf_close(g);
    }
    CHECK(!chdir(before));
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repeated_tokens),
        cmocka_unit_test(test_expressions),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_one_column),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_scales),
        cmocka_unit_test(test_compare),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_current_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
