/* Proves: checkpoints of Hugging Face give the weights that their formats mean, and the logits that another
 * implementation computes from them (../shared/data/import-golden); what is not supported is refused by name;
 * damaged files end in a message. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/import/families.h"
#include "engine/import/import.h"
#include "engine/import/row_order.h"
#include "engine/import/safetensors.h"
#include "engine/quant/quant.h"
#include "tests/engine/session.h"

#define GOLDEN "import-golden/"
enum { IDS = 24, VOCAB = 160 };

/* ---------------------------------------------------------------- golden checkpoints */

static const char *const FOLDERS[] = {
    "llama-f32",
    "llama-f16",
    "qwen2-bf16-sharded",
    "gptq-4b-g128-sym",
    "gptq-4b-g128-asym",
    "gptq-v2-4b-g128-asym",
    "gptq-8b-g128-sym",
    "gptq-4b-g128-actorder",
    "awq-gemm-4b-g128",
    "awq-gemm-4b-g64",
    "bnb-nf4",
    "bnb-nf4-dq",
    "bnb-fp4",
    "bnb-int8",
    "ct-pack-w4a16-g128",
    "ct-pack-w4a16-g128-asym",
    "ct-int-w8a8",
    "ct-float-fp8",
    "ct-nvfp4a16",
    "fp8-block128",
    "hqq-4b-g64-axis1",
    "hqq-3b-g64-axis1",
    "gptoss-mxfp4",
};

static json_t *read_json(const char *path)
{
    struct err why = { 0 };
    char *text;
    size_t n;
    json_t *j;
    CHECK_OK(file_read(&text, &n, path, 1 << 24, &why));
    CHECK_OK(json_parse(&j, text, n, &why));
    free(text);
    return j;
}

/* The checkpoint's name of a tensor of a layer, and ours. */
static const struct {
    const char *theirs, *ours;
    unsigned rotary; /* CHANGE_ROTARY: reordered in llama models */
    bool kv_heads;
} NAMES[] = {
    { "self_attn.q_proj.weight", "attn_q.weight", CHANGE_ROTARY, false },
    { "self_attn.k_proj.weight", "attn_k.weight", CHANGE_ROTARY, true },
    { "self_attn.v_proj.weight", "attn_v.weight", 0, false },
    { "self_attn.q_proj.bias", "attn_q.bias", 0, false },
    { "self_attn.k_proj.bias", "attn_k.bias", 0, false },
    { "self_attn.v_proj.bias", "attn_v.bias", 0, false },
    { "self_attn.o_proj.weight", "attn_output.weight", 0, false },
    { "self_attn.o_proj.bias", "attn_output.bias", 0, false },
    { "self_attn.sinks", "attn_sinks.weight", 0, false },
    { "input_layernorm.weight", "attn_norm.weight", 0, false },
    { "post_attention_layernorm.weight", "ffn_norm.weight", 0, false },
    { "mlp.gate_proj.weight", "ffn_gate.weight", 0, false },
    { "mlp.up_proj.weight", "ffn_up.weight", 0, false },
    { "mlp.down_proj.weight", "ffn_down.weight", 0, false },
    { "mlp.router.weight", "ffn_gate_inp.weight", 0, false },
    { "mlp.router.bias", "ffn_gate_inp.bias", 0, false },
    { "mlp.experts.down_proj", "ffn_down_exps.weight", 0, false },
    { "mlp.experts.down_proj_bias", "ffn_down_exps.bias", 0, false },
};

/* The values of our tensor in the checkpoint's order. [*n], malloc. */
static float *values_of(int64_t *n, const struct gguf *g, const char *name, unsigned rotary, bool kv_heads)
{
    struct err why = { 0 };
    struct arena memory = { 0 };
    const struct gguf_tensor *t = gguf_tensor_find(g, name);
    if (!t) fail_msg("no tensor '%s'", name);
    const int64_t cols = t->shape[0], rows = t->shape[1] * t->shape[2];
    float *stored = malloc((size_t)(cols * rows) * sizeof *stored),
          *out = malloc((size_t)(cols * rows) * sizeof *out);
    format_decode_rows(t->format, gguf_tensor_data(t), stored, rows, cols);
    const struct gguf_tensor *scale = matrix_scale_find(g, name),
                             *order = companion_find(g, name, COMPANION_ORDER);
    const struct hf_sizes s = { .heads = gguf_get_int(g, "llama.attention.head_count", 0),
                                .kv_heads = gguf_get_int(g, "llama.attention.head_count_kv", 0),
                                .head_dim = gguf_get_int(g, "llama.attention.key_length", 0),
                                .rope_dims = gguf_get_int(g, "llama.rope.dimension_count", 0) };
    const int64_t *from = NULL;
    int64_t same;
    if (rotary && s.heads) CHECK_OK(row_order(&from, &same, &memory, &s, rotary, kv_heads, rows, &why));
    float factor = 1;
    if (scale) memcpy(&factor, gguf_tensor_data(scale), sizeof factor);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < cols; i++) {
            float at = (float)i;
            if (order) memcpy(&at, gguf_tensor_data(order) + i * 4, sizeof at);
            out[(from ? from[r] : r) * cols + (int64_t)at] = stored[r * cols + i] * factor;
        }
    *n = cols * rows;
    free(stored);
    arena_free(&memory);
    return out;
}

/* gpt-oss stores rows of gate and up alternately. */
static float *both_experts(int64_t *n, const struct gguf *g, int layer, const char *end, int64_t cols)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%d.ffn_gate_exps.%s", layer, end);
    float *gate = values_of(n, g, name, 0, false);
    snprintf(name, sizeof name, "blk.%d.ffn_up_exps.%s", layer, end);
    float *up = values_of(n, g, name, 0, false), *both = malloc((size_t)*n * 2 * sizeof *both);
    for (int64_t r = 0; r < *n / cols; r++) {
        memcpy(both + 2 * r * cols, gate + r * cols, (size_t)cols * sizeof *both);
        memcpy(both + (2 * r + 1) * cols, up + r * cols, (size_t)cols * sizeof *both);
    }
    *n *= 2;
    free(gate);
    free(up);
    return both;
}

static float *find_values(int64_t *n, const struct gguf *g, const char *theirs)
{
    int layer, end = 0;
    char name[96];
    if (!strcmp(theirs, "model.embed_tokens.weight")) return values_of(n, g, "token_embd.weight", 0, false);
    if (!strcmp(theirs, "model.norm.weight")) return values_of(n, g, "output_norm.weight", 0, false);
    if (!strcmp(theirs, "lm_head.weight")) return values_of(n, g, "output.weight", 0, false);
    CHECK(sscanf(theirs, "model.layers.%d.%n", &layer, &end) == 1 && end);
    if (!strcmp(theirs + end, "mlp.experts.gate_up_proj")) return both_experts(n, g, layer, "weight", 128);
    if (!strcmp(theirs + end, "mlp.experts.gate_up_proj_bias")) return both_experts(n, g, layer, "bias", 1);
    for (size_t i = 0; i < COUNT_OF(NAMES); i++) {
        if (strcmp(NAMES[i].theirs, theirs + end)) continue;
        snprintf(name, sizeof name, "blk.%d.%s", layer, NAMES[i].ours);
        if (!gguf_tensor_find(g, name))
            snprintf(name, sizeof name, "blk.%d.post_attention_norm.weight", layer);
        return values_of(n, g, name, NAMES[i].rotary, NAMES[i].kv_heads);
    }
    fail_msg("no name for '%s'", theirs);
    return NULL;
}

/* Where products are rounded, two units in the last place are allowed, else nothing. */
static void check_tensor(const char *folder, const char *name, const json_t *want, const float *got,
                         int64_t n, bool exact)
{
    char hex[HASH_HEX], path[4096];
    struct err why = { 0 };
    double sum = 0, squares = 0;
    hash_bytes(got, (size_t)n * sizeof *got, hex);
    if (!strcmp(hex, json_get_str(want, "sha256", ""))) return;
    if (exact) fail_msg("%s: '%s': the weights are not those of the checkpoint", folder, name);
    for (int64_t i = 0; i < n; i++) {
        sum += (double)got[i];
        squares += (double)got[i] * (double)got[i];
    }
    const double scale = sqrt(squares);
    if (!(fabs(sum - json_get_num(want, "sum", NAN)) <= 3e-7 * scale * sqrt((double)n)) ||
        !(fabs(squares - json_get_num(want, "sumsq", NAN)) <= 1e-6 * squares))
        fail_msg("%s: '%s': sum %.17g, of squares %.17g", folder, name, sum, squares);
    const char *file = json_get_str(want, "file", NULL);
    if (!file) return;
    struct file_map map;
    data_path(path, sizeof path, GOLDEN "expected/%s/%s", folder, file);
    CHECK_OK(file_map(&map, path, &why));
    CHECK_EQ(map.size, (size_t)n * sizeof *got);
    const float *expected = (const float *)(const void *)map.data;
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)expected[i]) <= 2.4e-7 * fabs((double)expected[i])))
            fail_msg("%s: '%s': weight %lld is %.9g, expected %.9g", folder, name, (long long)i,
                     (double)got[i], (double)expected[i]);
    file_unmap(&map);
}

static void check_weights(const char *folder, const struct gguf *g)
{
    char path[4096];
    const char *name;
    json_t *want;
    data_path(path, sizeof path, GOLDEN "expected/%s/expected.json", folder);
    json_t *expected = read_json(path);
    CHECK(json_object_size(json_object_get(expected, "tensors")) >= 10);
    json_object_foreach(json_object_get(expected, "tensors"), name, want)
    {
        int64_t n, count = 1;
        for (size_t i = 0; i < json_array_size(json_object_get(want, "shape")); i++)
            count *= json_integer_value(json_array_get(json_object_get(want, "shape"), i));
        float *got = find_values(&n, g, name);
        CHECK_EQ(n, count);
        check_tensor(folder, name, want, got, n, json_get_bool(expected, "exact", true));
        free(got);
    }
    json_decref(expected);
}

static void check_logits(const char *folder, const char *model)
{
    struct err why = { 0 };
    struct batch_row rows[IDS];
    int32_t ids[IDS];
    char path[4096];
    struct file_map want;
    data_path(path, sizeof path, GOLDEN "ids.json");
    json_t *list = NULL;
    char *text;
    size_t n;
    CHECK_OK(file_read(&text, &n, path, 1 << 16, &why));
    CHECK_OK(json_parse(&list, text, n, &why));
    CHECK_EQ(json_array_size(list), IDS);
    for (size_t i = 0; i < IDS; i++) ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    json_decref(list);
    free(text);
    data_path(path, sizeof path, GOLDEN "expected/%s/logits.f32", folder);
    CHECK_OK(file_map(&want, path, &why));
    CHECK_EQ(want.size, IDS * VOCAB * sizeof(float));
    struct model *m = session_open(model, EXACT, 64, 1);
    CHECK_EQ(model_shape(m)->vocab, VOCAB);
    rows_of(rows, ids, IDS, 0, 0);
    CHECK_OK(model_forward(m, rows, IDS, &why));
    const double most = max_difference(model_logits(m, 0), (const float *)(const void *)want.data,
                                       IDS * VOCAB);
    if (!(most <= 2e-4)) fail_msg("%s: logits differ by %g", folder, most);
    model_close(m);
    file_unmap(&want);
}

static void test_golden(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, GOLDEN "manifest.json");
    for (size_t i = 0; i < COUNT_OF(FOLDERS); i++) {
        struct gguf *g;
        struct err why = { 0 };
        data_path(path, sizeof path, GOLDEN "%s", FOLDERS[i]);
        const enum err_code rc = model_file_open(&g, path, &why);
        if (rc) fail_msg("%s: %s", FOLDERS[i], why.message);
        check_weights(FOLDERS[i], g);
        gguf_close(g);
        check_logits(FOLDERS[i], path);
    }
}

/* ---------------------------------------------------------------- import */

/* Every tensor of a golden checkpoint goes through a GGUF file with the same codes, and the weights that they
 * mean but for the rounding of one scale in two of the formats. */
static void check_import(const char *folder, const char *model)
{
    char path[] = "/tmp/qdyno-import-XXXXXX";
    struct err why = { 0 };
    struct gguf *source, *made;
    const int fd = mkstemp(path);
    CHECK(fd >= 0 && !close(fd));
    const bool rounded = !strcmp(folder, "bnb-int8") || !strcmp(folder, "ct-nvfp4a16");
    CHECK_OK(model_file_open(&source, model, &why));
    CHECK(!gguf_is_file(source));
    if (import_write(source, path, NULL, NULL, &why)) fail_msg("%s: %s", folder, why.message);
    CHECK_OK(gguf_open(&made, path, &why));
    CHECK_EQ(gguf_tensor_count(made), gguf_tensor_count(source));
    int codes = 0;
    for (int64_t i = 0; i < gguf_tensor_count(source); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(source, i);
        struct import_check check;
        CHECK_OK(import_compare(&check, t, gguf_tensor_find(made, t->name), &why));
        /* rows of 320 do not fill blocks of 128: stored as numbers */
        const bool numbers = !strcmp(folder, "fp8-block128") && strstr(t->name, "ffn_down");
        if (check.identical == numbers || (check.difference != 0 && !rounded) ||
            check.rounding > IMPORT_ROUNDING)
            fail_msg("%s: '%s' differs by %g (%g)", folder, t->name, check.difference, check.rounding);
        codes += check.quantized;
    }
    CHECK_EQ(codes > 0, strncmp(folder, "llama", 5) && strncmp(folder, "qwen2", 5));
    gguf_close(made);
    gguf_close(source);
    check_logits(folder, path);
    unlink(path);
}

static void test_import(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, GOLDEN "manifest.json");
    for (size_t i = 0; i < COUNT_OF(FOLDERS); i++) {
        data_path(path, sizeof path, GOLDEN "%s", FOLDERS[i]);
        check_import(FOLDERS[i], path);
    }
}

/* ---------------------------------------------------------------- files */

/* One file with two tensors and metadata. */
static struct str small_file(const char *header, size_t data)
{
    struct str s = { 0 };
    const uint64_t n = strlen(header);
    str_append_n(&s, &n, sizeof n);
    str_append(&s, header);
    for (size_t i = 0; i < data; i++) str_append_n(&s, &(char){ (char)i }, 1);
    return s;
}

static const char HEADER[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                             "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                             "\"b\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[24,32]},"
                             "\"c\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[32,33]},"
                             "\"d\":{\"dtype\":\"I64\",\"shape\":[0],\"data_offsets\":[33,33]},"
                             "\"e\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[33,34]}}  ";
enum { DATA = 34 };

static void test_file(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct arena memory = { 0 };
    struct st_tensor *t;
    int64_t n;
    struct str s = small_file(HEADER, DATA);
    CHECK_OK(safetensors_parse(&t, &n, (const unsigned char *)s.data, s.len, &memory, &why));
    CHECK_EQ(n, 5);
    CHECK(!strcmp(t[0].name, "a") && t[0].type == ST_F32 && t[0].dims == 2 && t[0].shape[1] == 3 &&
          t[0].bytes == 24);
    CHECK(!strcmp(t[1].name, "b") && t[1].data == t[0].data + 24 && t[1].count == 4);
    CHECK(!strcmp(t[2].name, "c") && t[2].bytes == 1);
    CHECK(!strcmp(t[4].name, "e") && t[4].dims == 0 && t[4].count == 1);
    /* cut anywhere, it is refused; with a byte more, too */
    for (size_t i = 0; i < s.len; i++)
        CHECK_EQ(safetensors_parse(&t, &n, (const unsigned char *)s.data, i, &memory, &why), ERR_FORMAT);
    str_append_n(&s, "x", 1);
    CHECK_EQ(safetensors_parse(&t, &n, (const unsigned char *)s.data, s.len, &memory, &why), ERR_FORMAT);
    str_free(&s);
    arena_free(&memory);
}

static void test_bad_files(void **state)
{
    (void)state;
    static const struct {
        const char *header, *message;
    } CASES[] = {
        { "[1,2]", "does not begin with '{'" },
        { "{\"a\":1}", "expected an object with dtype" },
        { "{\"a\":{\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,4]}}", "'F31': no such type" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", "out of range" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,4]}}",
          "out of range" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,4]}}",
          "no whole bytes" },
        { "{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", "no whole bytes" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,5]}}",
          "take 4 bytes, data_offsets give 5" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", "expected data_offsets" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[32,36]}}", "cut off or damaged" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", "the last 30 bytes" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[30],\"data_offsets\":[4,34]}}", "the 4 bytes before" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[20],\"data_offsets\":[0,20]},"
          "\"b\":{\"dtype\":\"U8\",\"shape\":[20],\"data_offsets\":[14,34]}}",
          "overlap" },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[34],\"data_offsets\":[0,34]},"
          "\"a\":{\"dtype\":\"U8\",\"shape\":[34],\"data_offsets\":[0,34]}}",
          "duplicate object key" },
        { "{\"\":{\"dtype\":\"U8\",\"shape\":[34],\"data_offsets\":[0,34]}}", "name is empty" },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct err why = { 0 };
        struct arena memory = { 0 };
        struct st_tensor *t;
        int64_t n;
        struct str s = small_file(CASES[i].header, DATA);
        CHECK_EQ(safetensors_parse(&t, &n, (const unsigned char *)s.data, s.len, &memory, &why), ERR_FORMAT);
        if (!strstr(why.message, CASES[i].message)) fail_msg("%s: %s", CASES[i].header, why.message);
        str_free(&s);
        arena_free(&memory);
    }
}

/* ---------------------------------------------------------------- folders */

static void write_text(const char *folder, const char *name, const char *text, size_t n)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(text, 1, n, f) == n && !fclose(f));
}

/* What opening a folder with these files says. */
static void expect_refused(const char *config, const char *index, const char *message)
{
    char folder[] = "/tmp/qdyno-import-XXXXXX", path[512];
    static const char *const NAMES_OF_FILES[] = { "config.json", "model.safetensors",
                                                  "model.safetensors.index.json" };
    struct err why = { 0 };
    struct gguf *g;
    CHECK(mkdtemp(folder));
    struct str s = small_file(HEADER, DATA);
    write_text(folder, "model.safetensors", s.data, s.len);
    if (config) write_text(folder, "config.json", config, strlen(config));
    if (index) write_text(folder, "model.safetensors.index.json", index, strlen(index));
    CHECK(model_file_open(&g, folder, &why));
    if (!strstr(why.message, message)) fail_msg("expected '%s', got: %s", message, why.message);
    str_free(&s);
    for (size_t i = 0; i < COUNT_OF(NAMES_OF_FILES); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, NAMES_OF_FILES[i]);
        unlink(path);
    }
    rmdir(folder);
}

#define LLAMA                                                                                                \
    "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":64,\"num_attention_heads\":2,"                \
    "\"num_hidden_layers\":1,\"intermediate_size\":64,\"rms_norm_eps\":1e-5"

static void test_refused(void **state)
{
    (void)state;
    expect_refused(NULL, NULL, "it has no config.json");
    expect_refused("{", NULL, "bad JSON");
    expect_refused("{\"architectures\":[\"T5ForConditionalGeneration\"]}", NULL, "known: LlamaForCausalLM");
    expect_refused("{\"architectures\":[\"LlamaForCausalLM\"]}", NULL, "has no 'num_hidden_layers'");
    expect_refused(LLAMA ",\"hidden_act\":\"relu\"}", NULL, "activation 'relu'");
    expect_refused(LLAMA ",\"rope_scaling\":{\"rope_type\":\"dynamic\"}}", NULL, "RoPE scaling 'dynamic'");
    expect_refused(LLAMA ",\"quantization_config\":{\"quant_method\":\"aqlm\"}}", NULL,
                   "quantized by 'aqlm'");
    expect_refused(LLAMA ",\"num_attention_heads\":0}", NULL, "duplicate object key");
    expect_refused(LLAMA "}", "{}", "has no weight_map");
    expect_refused(LLAMA "}", "{\"weight_map\":{\"a\":\"../x.safetensors\"}}", "of the same folder");
    expect_refused(LLAMA "}", "{\"weight_map\":{\"a\":\"model.safetensors\",\"z\":\"model.safetensors\"}}",
                   "names tensor 'z'");
}

/* ---------------------------------------------------------------- memory */

enum { WIDTH = 1024, BIG_LAYERS = 4 };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { FREED_STAYS = 1 }; /* the sanitizer keeps freed memory */
#else
enum { FREED_STAYS = 0 };
#endif

static int64_t anonymous_bytes(void)
{
    char *text;
    struct err why = { 0 };
    CHECK_OK(file_read(&text, NULL, "/proc/self/status", 1 << 16, &why));
    const char *at = strstr(text, "RssAnon:");
    const int64_t kb = at ? strtoll(at + strlen("RssAnon:"), NULL, 10) : -1;
    free(text);
    CHECK(kb > 0);
    return kb * 1024;
}

static enum err_code note_memory(void *ctx, int64_t done, int64_t count, struct err *why)
{
    int64_t *most = ctx;
    (void)done;
    (void)count;
    (void)why;
    *most = MAX(*most, anonymous_bytes());
    return ERR_OK;
}

static bool note_quantizing(void *ctx, double done)
{
    (void)done;
    return !note_memory(ctx, 0, 0, NULL);
}

static void add_entry(struct str *header, int64_t *at, const char *name, int64_t rows)
{
    const int64_t bytes = rows * WIDTH * 2;
    str_printf(header, "%s\"%s\":{\"dtype\":\"F16\",\"shape\":[%s%lld],\"data_offsets\":[%lld,%lld]}",
               header->len > 1 ? "," : "", name, rows > 1 ? "1024," : "", (long long)WIDTH, (long long)*at,
               (long long)(*at + bytes));
    *at += bytes;
}

/* A checkpoint whose queries and keys must be put into another order: 2 MB each, 16 MB in all. */
static void write_big(const char *folder)
{
    static const struct {
        const char *name;
        int64_t rows;
    } PARTS[] = { { "self_attn.q_proj", WIDTH },    { "self_attn.k_proj", WIDTH },
                  { "self_attn.v_proj", WIDTH },    { "self_attn.o_proj", WIDTH },
                  { "mlp.gate_proj", WIDTH },       { "mlp.up_proj", WIDTH },
                  { "mlp.down_proj", WIDTH },       { "input_layernorm", 1 },
                  { "post_attention_layernorm", 1 } };
    static const char CONFIG[] =
        "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":1024,"
        "\"num_attention_heads\":16,\"num_hidden_layers\":4,\"intermediate_size\":1024,"
        "\"rms_norm_eps\":1e-5,\"max_position_embeddings\":128}";
    struct str header = { 0 }, file = { 0 };
    int64_t at = 0;
    str_append(&header, "{");
    add_entry(&header, &at, "model.embed_tokens.weight", WIDTH);
    add_entry(&header, &at, "model.norm.weight", 1);
    for (int l = 0; l < BIG_LAYERS; l++)
        for (size_t i = 0; i < COUNT_OF(PARTS); i++) {
            char name[96];
            snprintf(name, sizeof name, "model.layers.%d.%s.weight", l, PARTS[i].name);
            add_entry(&header, &at, name, PARTS[i].rows);
        }
    str_append(&header, "}");
    while (header.len % 8) str_append(&header, " "); /* as writers do: numbers begin at whole words */
    const uint64_t length = header.len;
    str_append_n(&file, &length, sizeof length);
    str_append_n(&file, header.data, header.len);
    write_text(folder, "model.safetensors", file.data, file.len);
    write_text(folder, "config.json", CONFIG, strlen(CONFIG));
    char path[512];
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    CHECK(!truncate(path, (off_t)file.len + at)); /* zeros */
    str_free(&header);
    str_free(&file);
}

static void test_memory(void **state)
{
    (void)state;
    char folder[] = "/tmp/qdyno-import-XXXXXX", out[512], path[512];
    struct err why = { 0 };
    struct gguf *g;
    int64_t largest = 0, most = 0, computed = 0;
    CHECK(mkdtemp(folder));
    write_big(folder);
    snprintf(out, sizeof out, "%s/out.gguf", folder);
    CHECK_OK(model_file_open(&g, folder, &why));
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        largest = MAX(largest, t->bytes);
        computed += t->made ? t->bytes : 0;
    }
    CHECK_EQ(computed, 2 * BIG_LAYERS * WIDTH * WIDTH * 2);
    struct file_state one, two; /* by which the model's hash is kept: all its files count */
    CHECK(gguf_state(g, &one) && gguf_state(g, &two) && !memcmp(&one, &two, sizeof one));
    const int64_t before = anonymous_bytes();
    CHECK_OK(import_write(g, out, note_memory, &most, &why));
    enum { WINDOW = 2 << 20 }; /* buffers of the C library */
    if (most - before > largest + WINDOW)
        fail_msg("import used %lld bytes, the largest tensor has %lld", (long long)(most - before),
                 (long long)largest);
    /* quantize also gives computed bytes up; its own buffers take less than a half of all of them */
    struct config config = { 0 };
    CHECK_OK(config_parse(&config, "q8_0", &why));
    most = 0;
    const struct quantize_options o = {
        .config = &config, .threads = 1, .progress = note_quantizing, .ctx = &most
    };
    CHECK_OK(quantize_file(out, g, &o, &why));
    if (!FREED_STAYS && most - before > computed)
        fail_msg("quantize used %lld bytes, all computed tensors have %lld", (long long)(most - before),
                 (long long)computed);
    write_text(folder, "config.json", "{}", 2);
    CHECK(!gguf_state(g, &two));
    CHECK_EQ(gguf_check_unchanged(g, &why), ERR_FORMAT);
    gguf_close(g);
    static const char *const NAMES_OF_FILES[] = { "config.json", "model.safetensors", "out.gguf" };
    for (size_t i = 0; i < COUNT_OF(NAMES_OF_FILES); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, NAMES_OF_FILES[i]);
        unlink(path);
    }
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file),   cmocka_unit_test(test_bad_files), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_memory), cmocka_unit_test(test_golden),    cmocka_unit_test(test_import),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
