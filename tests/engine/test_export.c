/* Proves: a model quantized from a Hugging Face folder goes back into one: every matrix is read back with the
 * same codes, scales and zero points, and the logits are those of the quantized file bit by bit, also where
 * AWQ changed norms and GPTQ the order of columns. What a form cannot hold is refused by name, and nothing is
 * left behind. */
#include <dirent.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/import/export.h"
#include "engine/import/import.h"
#include "tests/engine/session.h"

enum { IDS = 12, CHARS = 256, VOCAB = CHARS + 2 };

/* ---------------------------------------------------------------- a checkpoint */

static void write_file(const char *folder, const char *name, const void *bytes, size_t n)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, n, f) == n && !fclose(f));
}

struct weights {
    struct str header, data;
    uint64_t random;
};

static void put_tensor(struct weights *w, const char *name, int64_t rows, int64_t cols, float middle)
{
    const size_t from = w->data.len;
    for (int64_t i = 0; i < MAX(rows, 1) * cols; i++) {
        const double u = (double)(hash_mix(w->random += HASH_STEP) >> 11) * 0x1p-53 - 0.5;
        const uint16_t half = bf16_from_f32(middle + (float)(u * (rows ? 0.2 : 0.5)));
        str_append_n(&w->data, &half, sizeof half);
    }
    str_printf(&w->header, "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":", w->header.len > 1 ? "," : "", name);
    if (rows) str_printf(&w->header, "[%lld,%lld]", (long long)rows, (long long)cols);
    if (!rows) str_printf(&w->header, "[%lld]", (long long)cols);
    str_printf(&w->header, ",\"data_offsets\":[%zu,%zu]}", from, w->data.len);
}

static float matrix_middle; /* around which the weights of matrices lie */

static void put_layer(struct weights *w, int layer, int ff)
{
    const struct {
        const char *name;
        int rows, cols; /* rows 0: a vector */
    } ALL[] = { { "input_layernorm", 0, 128 },    { "post_attention_layernorm", 0, 128 },
                { "self_attn.q_proj", 128, 128 }, { "self_attn.k_proj", 64, 128 },
                { "self_attn.v_proj", 64, 128 },  { "self_attn.o_proj", 128, 128 },
                { "mlp.gate_proj", ff, 128 },     { "mlp.up_proj", ff, 128 },
                { "mlp.down_proj", 128, ff } };
    for (size_t i = 0; i < COUNT_OF(ALL); i++) {
        char name[96];
        snprintf(name, sizeof name, "model.layers.%d.%s.weight", layer, ALL[i].name);
        put_tensor(w, name, ALL[i].rows, ALL[i].cols, ALL[i].rows ? matrix_middle : 1);
    }
}

static void write_weights(const char *folder, int ff)
{
    struct weights w = { .random = 5 };
    struct str file = { 0 };
    str_append(&w.header, "{");
    put_tensor(&w, "model.embed_tokens.weight", VOCAB, 128, 0);
    for (int l = 0; l < 2; l++) put_layer(&w, l, ff);
    put_tensor(&w, "model.norm.weight", 0, 128, 1);
    str_append(&w.header, "}");
    const uint64_t length = w.header.len;
    str_append_n(&file, &length, sizeof length);
    str_append_n(&file, w.header.data, w.header.len);
    str_append_n(&file, w.data.data, w.data.len);
    write_file(folder, "model.safetensors", file.data, file.len);
    str_free(&w.header);
    str_free(&w.data);
    str_free(&file);
}

/* Byte-level BPE without merges: every byte is a token. Bytes that do not print stand for characters from 256
 * on, in order (GPT-2's rule). */
static void write_tokenizer(const char *folder)
{
    json_t *vocab = json_object();
    int next = CHARS;
    for (int b = 0; b < CHARS; b++) {
        const bool prints = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        const int c = prints ? b : next++;
        char utf8[3] = { (char)c, 0, 0 };
        if (c >= 128) utf8[0] = (char)(0xc0 | c >> 6), utf8[1] = (char)(0x80 | (c & 0x3f));
        json_object_set_new(vocab, utf8, json_integer(b));
    }
    json_object_set_new(vocab, "<s>", json_integer(CHARS));
    json_object_set_new(vocab, "</s>", json_integer(CHARS + 1));
    json_t *all = json_pack(
        "{s:s,s:[{s:i,s:s,s:b},{s:i,s:s,s:b}],s:n,s:{s:s,s:b,s:b},s:{s:s},s:{s:s,s:o,s:[]}}", "version",
        "1.0", "added_tokens", "id", CHARS, "content", "<s>", "special", 1, "id", CHARS + 1, "content",
        "</s>", "special", 1, "normalizer", "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", 0,
        "use_regex", 1, "decoder", "type", "ByteLevel", "model", "type", "BPE", "vocab", vocab, "merges");
    CHECK(all);
    char *text = json_dumps(all, 0);
    write_file(folder, "tokenizer.json", text, strlen(text));
    free(text);
    json_decref(all);
}

static void make_checkpoint(char *folder, int ff)
{
    char config[1024], text[1600];
    size_t n = 0;
    CHECK(mkdtemp(folder));
    snprintf(
        config, sizeof config,
        "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_act\":\"silu\",\"hidden_size\":128,"
        "\"intermediate_size\":%d,\"num_hidden_layers\":2,\"num_attention_heads\":2,\"num_key_value_heads\":1,"
        "\"head_dim\":64,\"max_position_embeddings\":512,\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,"
        "\"vocab_size\":%d,\"tie_word_embeddings\":true,\"bos_token_id\":256,\"eos_token_id\":257}",
        ff, VOCAB);
    write_file(folder, "config.json", config, strlen(config));
    write_weights(folder, ff);
    write_tokenizer(folder);
    while (n + 80 < sizeof text)
        n += (size_t)snprintf(text + n, sizeof text - n, "The %zu foxes ran over a hill of %zu. ", n, 7 * n);
    write_file(folder, "calib.txt", text, n);
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static void remove_tree(const char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---------------------------------------------------------------- one export */

static void quantize_to(const char *folder, const char *recipe, const char *out)
{
    struct err why = { 0 };
    struct gguf *g;
    struct config c;
    char line[700];
    snprintf(line, sizeof line, "%s,calib=%s/calib.txt", recipe, folder);
    CHECK_OK(config_parse(&c, strncmp(recipe, "rtn", 3) ? line : recipe, &why));
    CHECK_OK(model_file_open(&g, folder, &why));
    CHECK_OK(quantize_file(out, g, &(struct quantize_options){ .config = &c, .threads = 1 }, &why));
    gguf_close(g);
}

static void logits_of(float *out, const char *path)
{
    struct batch_row rows[IDS];
    struct err why = { 0 };
    int32_t ids[IDS];
    struct model *m = session_open(path, EXACT, 32, 1);
    for (int i = 0; i < IDS; i++) ids[i] = (i * 37 + 65) % CHARS;
    rows_of(rows, ids, IDS, 0, 0);
    CHECK_OK(model_forward(m, rows, IDS, &why));
    memcpy(out, model_logits(m, 0), (size_t)IDS * VOCAB * sizeof *out);
    model_close(m);
}

static int entries_in(const char *folder)
{
    DIR *d = opendir(folder);
    int n = 0;
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) n += *e->d_name != '.';
    if (d) closedir(d);
    return n;
}

/* Exports into "<base>/out". The result's code; *r only when that is ERR_OK. */
static enum err_code export_shards(struct export_report *r, const char *folder, const char *made,
                                   const char *to, enum export_kind kind, int64_t shard, struct err *why)
{
    struct gguf *g;
    enum err_code rc = gguf_open(&g, made, why);
    CHECK_EQ(rc, ERR_OK);
    const struct export_options options = { .kind = kind, .shard_bytes = shard };
    rc = export_write(r, folder, g, to, &options, NULL, NULL, why);
    gguf_close(g);
    return rc;
}

static enum err_code export_to(struct export_report *r, const char *folder, const char *made, const char *to,
                               enum export_kind kind, struct err *why)
{
    return export_shards(r, folder, made, to, kind, 0, why);
}

struct folders {
    char from[64], base[64], made[96], to[96];
};

static void folders_make(struct folders *f, int ff)
{
    snprintf(f->from, sizeof f->from, "/tmp/qdyno-export-in-XXXXXX");
    snprintf(f->base, sizeof f->base, "/tmp/qdyno-export-out-XXXXXX");
    make_checkpoint(f->from, ff);
    CHECK(mkdtemp(f->base));
    snprintf(f->made, sizeof f->made, "%s/made.gguf", f->base);
    snprintf(f->to, sizeof f->to, "%s/out", f->base);
}

static void folders_remove(struct folders *f)
{
    remove_tree(f->from);
    remove_tree(f->base);
}

static const struct {
    const char *recipe;
    enum export_kind kind;
    int bits;
    bool order, symmetric;
} CASES[] = {
    { "gptq,bits=4,group_size=64,sym=true", EXPORT_GPTQ, 4, false, true },
    { "gptq,bits=4,group_size=128,sym=false", EXPORT_GPTQ, 4, false, false },
    { "gptq,bits=3,group_size=64,sym=false", EXPORT_GPTQ, 3, false, false },
    { "gptq,bits=2,group_size=64,sym=false", EXPORT_GPTQ, 2, false, false },
    { "gptq,bits=8,group_size=128,sym=true", EXPORT_GPTQ, 8, false, true },
    { "gptq,bits=4,group_size=64,sym=true,desc_act=true", EXPORT_GPTQ, 4, true, true },
    { "awq,bits=4,group_size=64", EXPORT_AWQ, 4, false, false },
    { "awq,bits=4,group_size=128", EXPORT_PACKED, 4, false, false },
    { "gptq,bits=4,group_size=128,sym=true", EXPORT_PACKED, 4, false, true },
    { "gptq,bits=8,group_size=64,sym=true,desc_act=true", EXPORT_PACKED, 8, true, true },
};

static void check_config(const struct folders *f, const char *text)
{
    struct err why = { 0 };
    char path[128], *config;
    snprintf(path, sizeof path, "%s/config.json", f->to);
    CHECK_OK(file_read(&config, NULL, path, 1 << 20, &why));
    CHECK_CONTAINS(config, text);
    free(config);
}

static void check_case(size_t i)
{
    static float want[IDS * VOCAB], got[IDS * VOCAB];
    struct folders f;
    struct export_report r = { 0 };
    struct err why = { 0 };
    folders_make(&f, 256);
    quantize_to(f.from, CASES[i].recipe, f.made);
    if (export_to(&r, f.from, f.made, f.to, CASES[i].kind, &why))
        fail_msg("%s to %s: %s", CASES[i].recipe, EXPORT_NAMES[CASES[i].kind], why.message);
    CHECK_EQ(r.matrices, 14);
    CHECK_EQ(r.verified, 14);
    CHECK_EQ(r.bits, CASES[i].bits);
    CHECK_EQ(r.act_order, CASES[i].order);
    CHECK_EQ(r.symmetric, CASES[i].symmetric);
    CHECK_EQ(r.files, 1);
    CHECK_EQ(entries_in(f.to), CASES[i].kind == EXPORT_GPTQ ? 4 : 3);
    CHECK_EQ(entries_in(f.base), 2); /* no temporary folder */
    check_config(&f, CASES[i].kind == EXPORT_AWQ ? "\"version\": \"gemm\""
                     : CASES[i].kind == EXPORT_GPTQ
                         ? (CASES[i].symmetric ? "\"checkpoint_format\": \"gptq\"" : "gptq")
                     : CASES[i].order ? "\"actorder\": \"group\""
                                      : "\"actorder\": null");
    logits_of(want, f.made);
    logits_of(got, f.to);
    /* with another order of columns inside the groups, sums round differently */
    if (max_difference(got, want, IDS * VOCAB) > (CASES[i].order ? 1e-5 : 0))
        fail_msg("%s to %s: logits differ by %g", CASES[i].recipe, EXPORT_NAMES[CASES[i].kind],
                 max_difference(got, want, IDS * VOCAB));
    /* again: the folder exists */
    CHECK_EQ(export_to(&r, f.from, f.made, f.to, CASES[i].kind, &why), ERR_USAGE);
    CHECK_EQ(entries_in(f.base), 2);
    folders_remove(&f);
}

static void exported_models_are_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) check_case(i);
}

static void what_a_form_cannot_hold_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *recipe;
        enum export_kind kind;
        int ff;
        const char *text;
    } REFUSED[] = {
        { "rtn:q4_0", EXPORT_GPTQ, 256, "is q4_0, which --to gptq cannot hold" },
        { "gptq,bits=3,group_size=64", EXPORT_AWQ, 256, "has 3 bits, which --to awq cannot hold" },
        { "gptq,bits=4,group_size=64,desc_act=true", EXPORT_AWQ, 256, "columns in another order" },
        { "gptq,bits=4,group_size=128", EXPORT_GPTQ, 320,
          "is not quantized, which --to gptq cannot express" },
        { "rtn:f16", EXPORT_AWQ, 256, "quantized no matrix" },
    };
    for (size_t i = 0; i < COUNT_OF(REFUSED); i++) {
        struct folders f;
        struct export_report r = { 0 };
        struct err why = { 0 };
        folders_make(&f, REFUSED[i].ff);
        quantize_to(f.from, REFUSED[i].recipe, f.made);
        CHECK_EQ(export_to(&r, f.from, f.made, f.to, REFUSED[i].kind, &why), ERR_USAGE);
        CHECK_CONTAINS(why.message, REFUSED[i].text);
        CHECK_EQ(entries_in(f.base), 1);
        folders_remove(&f);
    }
}

/* The first version of GPTQ's format cannot hold a zero point of 0, which groups of positive weights have. */
static void zero_points_of_0_need_the_second_version(void **state)
{
    (void)state;
    struct folders f;
    struct export_report r = { 0 };
    struct err why = { 0 };
    matrix_middle = 0.3f;
    folders_make(&f, 256);
    matrix_middle = 0;
    quantize_to(f.from, "rtn:u4_g64", f.made);
    CHECK_OK(export_to(&r, f.from, f.made, f.to, EXPORT_GPTQ, &why));
    CHECK_EQ(r.verified, 14);
    check_config(&f, "\"checkpoint_format\": \"gptq_v2\"");
    folders_remove(&f);
}

/* A matrix that stays in floats is named in the config, so that other programs leave it alone, too. */
static void kept_matrices_are_named(void **state)
{
    (void)state;
    static float want[IDS * VOCAB], got[IDS * VOCAB];
    struct folders f;
    struct export_report r = { 0 };
    struct err why = { 0 };
    char path[128], *text;
    folders_make(&f, 320);
    quantize_to(f.from, "gptq,bits=4,group_size=128", f.made);
    CHECK_OK(export_to(&r, f.from, f.made, f.to, EXPORT_PACKED, &why));
    CHECK_EQ(r.matrices, 12);
    snprintf(path, sizeof path, "%s/config.json", f.to);
    CHECK_OK(file_read(&text, NULL, path, 1 << 20, &why));
    CHECK_CONTAINS(text, "model.layers.1.mlp.down_proj");
    CHECK_CONTAINS(text, "lm_head");
    free(text);
    logits_of(want, f.made);
    logits_of(got, f.to);
    CHECK_LT(max_difference(got, want, IDS * VOCAB), 0.05); /* f16 there, the checkpoint's own bf16 here */
    folders_remove(&f);
}

/* Several weight files with an index hold the same model as one; a tensor is never divided. */
static void several_files_are_the_same_model(void **state)
{
    (void)state;
    static float want[IDS * VOCAB], got[IDS * VOCAB];
    static const int64_t SIZES[] = { 100000, 1 };
    for (size_t i = 0; i < COUNT_OF(SIZES); i++) {
        struct folders f;
        struct export_report r = { 0 };
        struct err why = { 0 };
        char path[128], *text;
        folders_make(&f, 256);
        quantize_to(f.from, "gptq,bits=4,group_size=64,sym=true", f.made);
        CHECK_OK(export_shards(&r, f.from, f.made, f.to, EXPORT_GPTQ, SIZES[i], &why));
        CHECK_EQ(r.verified, 14);
        CHECK_GE(r.files, 2);
        CHECK_EQ(entries_in(f.to), 3 + r.files + 1); /* and the index */
        snprintf(path, sizeof path, "%s/model.safetensors.index.json", f.to);
        CHECK_OK(file_read(&text, NULL, path, 1 << 20, &why));
        CHECK_CONTAINS(text, "model-00002-of-000");
        free(text);
        logits_of(want, f.made);
        logits_of(got, f.to);
        CHECK_EQ(max_difference(got, want, IDS * VOCAB), 0);
        folders_remove(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exported_models_are_the_same),
        cmocka_unit_test(what_a_form_cannot_hold_is_refused),
        cmocka_unit_test(zero_points_of_0_need_the_second_version),
        cmocka_unit_test(kept_matrices_are_named),
        cmocka_unit_test(several_files_are_the_same_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
