/* Proves: a model that runs one layer at a time computes the same bits as the whole model, in every
 * architecture; an observer sees each matrix' input once, or up to where it stops; the two halves of a layer
 * add up to the layer; replaced weights are used until they are restored. */
#include "engine/arch/arch.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "engine/synth/synth.h"
#include "kernels/kernels.h"
#include "tests/engine/session.h"

enum { SEEN_MAX = 16, TOKENS = 24 };

/* What an observer saw of one layer. */
struct seen {
    struct layer_input in[SEEN_MAX];
    float *x[SEEN_MAX]; /* [n][cols] copies */
    int count;
};

static void note(void *ctx, const struct layer_input *in)
{
    struct seen *s = ctx;
    assert_in_range(s->count, 0, SEEN_MAX - 1);
    float *copy = malloc((size_t)(in->n * in->cols) * sizeof *copy);
    for (int i = 0; i < in->n; i++)
        memcpy(copy + i * in->cols, in->x + i * in->stride, (size_t)in->cols * sizeof *copy);
    s->in[s->count] = *in;
    s->x[s->count++] = copy;
}

static void forget(struct seen *s)
{
    for (int i = 0; i < s->count; i++) free(s->x[i]);
    s->count = 0;
}

/* The input that a matrix of this name ("ffn_down") was seen with. */
static const float *input_of(const struct seen *s, const char *part)
{
    for (int i = 0; i < s->count; i++)
        for (int t = 0; t < s->in[i].count; t++)
            if (strstr(s->in[i].tensors[t], part)) return s->x[i];
    fail_msg("nobody saw the input of %s", part);
    return NULL;
}

/* Every matrix of the layer once, with its own number of columns. */
static void check_seen(const struct seen *s, const struct gguf *g, int layer)
{
    char prefix[32];
    int matrices = 0, seen = 0;
    snprintf(prefix, sizeof prefix, "blk.%d.", layer);
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (strncmp(t->name, prefix, strlen(prefix)) || t->dims < 2 || t->shape[1] == 1) continue;
        matrices++;
        for (int k = 0; k < s->count; k++)
            for (int n = 0; n < s->in[k].count; n++) {
                if (strcmp(s->in[k].tensors[n], t->name)) continue;
                seen++;
                assert_int_equal(s->in[k].layer, layer);
                assert_int_equal(s->in[k].cols, t->shape[0]);
            }
    }
    assert_int_equal(seen, matrices);
    assert_in_range(s->count, 3, 4); /* one more where q and gate see different norms */
}

/* after = before + what both halves make of the inputs that were seen. */
static void check_halves(struct layers *l, const struct seen *s, int layer, const float *before,
                         const float *after, int n)
{
    struct err why = { 0 };
    const int64_t count = n * layers_width(l);
    float *y = malloc((size_t)count * sizeof *y), *z = malloc((size_t)count * sizeof *z);
    CHECK_OK(layers_attention(l, layer, input_of(s, "attn_q"), n, y, &why));
    CHECK_OK(layers_feed_forward(l, layer, input_of(s, "ffn_up"), n, z, &why));
    double most = 0;
    for (int64_t i = 0; i < count; i++) {
        z[i] = before[i] + y[i] + z[i];
        most = fmax(most, fabs((double)after[i]));
    }
    CHECK_NEAR(max_difference(z, after, count), 0, 1e-6 * fmax(most, 1));
    free(y);
    free(z);
}

/* An observer that ends the layer after some inputs. */
struct stopping {
    struct layers *l;
    struct seen seen;
    int after;
};

static void note_and_stop(void *ctx, const struct layer_input *in)
{
    struct stopping *s = ctx;
    note(&s->seen, in);
    if (s->seen.count == s->after) layers_stop(s->l);
}

/* A run that stops after any input of the layer shows the same ones until then, and no other. */
static void check_stops(struct layers *l, const struct seen *all, int layer, const float *before, int n)
{
    struct err why = { 0 };
    const size_t bytes = (size_t)(n * layers_width(l)) * sizeof(float);
    float *x = malloc(bytes);
    for (int k = 1; k <= all->count; k++) {
        struct stopping s = { .l = l, .after = k };
        CHECK_OK(layers_run(l, layer, memcpy(x, before, bytes), n, note_and_stop, &s, &why));
        CHECK_EQ(s.seen.count, k);
        for (int i = 0; i < k; i++) {
            CHECK_EQ(s.seen.in[i].cols, all->in[i].cols);
            CHECK_EQ(memcmp(s.seen.x[i], all->x[i], (size_t)(n * all->in[i].cols) * sizeof(float)), 0);
        }
        forget(&s.seen);
    }
    free(x);
}

/* Run ids through all layers; logits [n][vocab]. Everything that can be checked on the way is. */
static void run_apart(struct layers *l, const struct gguf *g, const int32_t *ids, int n, float *logits)
{
    struct err why = { 0 };
    const size_t bytes = (size_t)(n * layers_width(l)) * sizeof(float);
    float *x = malloc(bytes), *before = malloc(bytes);
    struct seen seen = { 0 };
    CHECK_OK(layers_embed(l, ids, n, x, &why));
    for (int i = 0; i < layers_count(l); i++) {
        memcpy(before, x, bytes);
        CHECK_OK(layers_run(l, i, x, n, note, &seen, &why));
        check_seen(&seen, g, i);
        check_halves(l, &seen, i, before, x, n);
        check_stops(l, &seen, i, before, n);
        forget(&seen);
    }
    CHECK_OK(layers_head(l, x, n, logits, note, &seen, &why));
    assert_int_equal(seen.count, 1);
    assert_int_equal(seen.in[0].layer, -1);
    assert_string_equal(seen.in[0].tensors[0],
                        gguf_tensor_find(g, "output.weight") ? "output.weight" : "token_embd.weight");
    forget(&seen);
    free(x);
    free(before);
}

/* The file at `path` both ways. Two sequences take turns in the layers: none may see what the other left. */
static void check_same(const char *path, const int32_t *ids, int n)
{
    struct err why = { 0 };
    struct gguf *g;
    struct layers *l;
    struct batch_row rows[TOKENS];
    assert_in_range(n, 2, TOKENS);
    struct model *m = session_open(path, EXACT, n, 1);
    const int64_t count = n * model_shape(m)->vocab;
    float *got = malloc((size_t)count * sizeof *got);
    CHECK_OK(gguf_open(&g, path, &why));
    CHECK_OK(layers_open(&l, g, &(struct layers_options){ .threads = 1, .tokens = n }, &why));
    assert_int_equal(layers_tokens(l), n);
    run_apart(l, g, ids, n, got);
    run_apart(l, g, ids + 1, n - 1, got);
    run_apart(l, g, ids, n, got);
    rows_of(rows, ids, n, 0, 0);
    CHECK_OK(model_forward(m, rows, n, &why));
    const double d = max_difference(got, model_logits(m, 0), count);
    if (!(d == 0)) fail_msg("%s: layers apart are off by %g", path, d);
    layers_close(l);
    gguf_close(g);
    model_close(m);
    free(got);
}

static void test_architectures(void **state)
{
    (void)state;
    struct err why = { 0 };
    char manifest_path[4096], path[8192], *text;
    size_t size;
    json_t *manifest, *ids;
    SHARED_OR_SKIP(manifest_path, "arch-golden/manifest.json");
    CHECK_OK(file_read(&text, &size, manifest_path, 1 << 24, &why));
    CHECK_OK(json_parse(&manifest, text, size, &why));
    free(text);
    int checked = 0;
    for (size_t i = 0; i < json_array_size(manifest); i++) {
        const json_t *row = json_array_get(manifest, i);
        const char *name = json_get_str(row, "name", "");
        if (strcmp(json_get_str(row, "weights", ""), "F32") || strstr(name, "moe") || strstr(name, "real"))
            continue;
        data_path(path, sizeof path, "arch-golden/%s", json_get_str(row, "model", ""));
        if (access(path, R_OK)) continue; /* printed by test_conformance */
        data_path(path, sizeof path, "arch-golden/%s", json_get_str(row, "ids", ""));
        CHECK_OK(file_read(&text, &size, path, 1 << 20, &why));
        CHECK_OK(json_parse(&ids, text, size, &why));
        free(text);
        int32_t list[TOKENS];
        const int n = (int)MIN(json_array_size(ids), TOKENS);
        for (int k = 0; k < n; k++) list[k] = (int32_t)json_integer_value(json_array_get(ids, (size_t)k));
        json_decref(ids);
        data_path(path, sizeof path, "arch-golden/%s", json_get_str(row, "model", ""));
        check_same(path, list, n);
        checked++;
    }
    json_decref(manifest);
    assert_in_range(checked, 20, 100); /* all in F32 but the mixtures of experts */
}

/* ---------------------------------------------------------------- models of our own */

static char folder[] = "/tmp/qdyno-test-layers-XXXXXX";

static const struct synth_shape SMALL = {
    .name = "small", .layers = 3, .heads = 4, .kv_heads = 2, .embd = 64, .ff = 96, .vocab = 512, .ctx = 128
};

static const char *synth(const char *arch, enum format_id format)
{
    static char path[128];
    struct err why = { 0 };
    snprintf(path, sizeof path, "%s/%s-%s.gguf", folder, arch, FORMATS[format].name);
    const struct synth_options o = {
        .arch = arch, .shape = &SMALL, .format = &FORMATS[format], .seed = 7, .threads = 1
    };
    CHECK_OK(synth_write(path, &o, &why));
    return path;
}

static void fill_ids(int32_t *ids, int n)
{
    for (int i = 0; i < n; i++) ids[i] = (i * i * 7 + i * 3 + 5) % (int)SMALL.vocab;
}

static void test_synth(void **state)
{
    (void)state;
    static const char *const ARCHITECTURES[] = { "llama", "qwen2", "gpt2" };
    int32_t ids[TOKENS];
    fill_ids(ids, TOKENS);
    for (size_t i = 0; i < COUNT_OF(ARCHITECTURES); i++) {
        check_same(synth(ARCHITECTURES[i], FORMAT_F32), ids, TOKENS);
        check_same(synth(ARCHITECTURES[i], FORMAT_Q8_0), ids, TOKENS - 3);
    }
}

/* A layer's output for some ids. */
static void run_layer(struct layers *l, int layer, const int32_t *ids, int n, float *x)
{
    struct err why = { 0 };
    CHECK_OK(layers_embed(l, ids, n, x, &why));
    CHECK_OK(layers_run(l, layer, x, n, NULL, NULL, &why));
}

struct bench {
    struct gguf *g;
    struct layers *l;
    int32_t ids[TOKENS];
    float plain[TOKENS * 64], in[TOKENS * 64], out[TOKENS * 64];
};

static void bench_open(struct bench *b)
{
    struct err why = { 0 };
    fill_ids(b->ids, TOKENS);
    CHECK_OK(gguf_open(&b->g, synth("llama", FORMAT_F32), &why));
    CHECK_OK(layers_open(&b->l, b->g, &(struct layers_options){ .threads = 2, .tokens = TOKENS }, &why));
    CHECK_OK(layers_embed(b->l, b->ids, TOKENS, b->in, &why));
    run_layer(b->l, 1, b->ids, TOKENS, b->plain);
}

static void bench_close(struct bench *b)
{
    layers_close(b->l);
    gguf_close(b->g);
}

/* With both matrices that write to the stream zero, a layer does nothing. */
static void test_replace(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct bench b;
    bench_open(&b);
    float *zeros = calloc(64 * 96, sizeof *zeros);
    CHECK_OK(layers_replace(b.l, "blk.1.attn_output.weight", &FORMATS[FORMAT_F32], zeros, &why));
    run_layer(b.l, 1, b.ids, TOKENS, b.out);
    CHECK_LT(0, max_difference(b.out, b.plain, TOKENS * 64));
    CHECK_LT(0, max_difference(b.out, b.in, TOKENS * 64));
    CHECK_OK(layers_replace(b.l, "blk.1.ffn_down.weight", &FORMATS[FORMAT_F32], zeros, &why));
    run_layer(b.l, 1, b.ids, TOKENS, b.out);
    CHECK_NEAR(max_difference(b.out, b.in, TOKENS * 64), 0, 0);
    CHECK_OK(layers_restore(b.l, "blk.1.attn_output.weight", &why));
    run_layer(b.l, 1, b.ids, TOKENS, b.out);
    CHECK_LT(0, max_difference(b.out, b.in, TOKENS * 64));
    CHECK_LT(0, max_difference(b.out, b.plain, TOKENS * 64));
    CHECK_OK(layers_restore(b.l, NULL, &why));
    run_layer(b.l, 1, b.ids, TOKENS, b.out);
    CHECK_NEAR(max_difference(b.out, b.plain, TOKENS * 64), 0, 0);
    free(zeros);
    bench_close(&b);
}

/* Scaling folded into a norm and out of the matrices behind it keeps the function; a quantized matrix gives
 * what its decoded numbers give. */
static void test_replace_values(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct bench b;
    bench_open(&b);
    const struct gguf_tensor *norm = gguf_tensor_find(b.g, "blk.1.ffn_norm.weight");
    float vector[64], *matrix[2], *decoded = malloc(96 * 64 * sizeof *decoded);
    static const char *const READERS[] = { "blk.1.ffn_gate.weight", "blk.1.ffn_up.weight" };
    memcpy(vector, norm->data, sizeof vector);
    for (int i = 0; i < 64; i++) vector[i] /= (float)(1 << i % 4);
    CHECK_OK(layers_replace(b.l, norm->name, &FORMATS[FORMAT_F32], vector, &why));
    for (int k = 0; k < 2; k++) {
        matrix[k] = malloc(96 * 64 * sizeof *matrix[k]);
        memcpy(matrix[k], gguf_tensor_find(b.g, READERS[k])->data, 96 * 64 * sizeof *matrix[k]);
        for (int i = 0; i < 96 * 64; i++) matrix[k][i] *= (float)(1 << i % 64 % 4);
        CHECK_OK(layers_replace(b.l, READERS[k], &FORMATS[FORMAT_F32], matrix[k], &why));
    }
    run_layer(b.l, 1, b.ids, TOKENS, b.out);
    CHECK_NEAR(max_difference(b.out, b.plain, TOKENS * 64), 0, 0); /* powers of two lose nothing */

    const struct format *q8 = &FORMATS[FORMAT_Q8_0];
    void *blocks = malloc((size_t)format_row_bytes(q8, 64) * 96);
    format_encode_rows(q8, matrix[1], blocks, 96, 64);
    format_decode_rows(q8, blocks, decoded, 96, 64);
    CHECK_OK(layers_replace(b.l, READERS[1], &FORMATS[FORMAT_F32], decoded, &why));
    run_layer(b.l, 1, b.ids, TOKENS, b.in);
    CHECK_OK(layers_replace(b.l, READERS[1], q8, blocks, &why));
    run_layer(b.l, 1, b.ids, TOKENS, b.out);
    CHECK_LT(0, max_difference(b.in, b.plain, TOKENS * 64));
    CHECK_NEAR(max_difference(b.in, b.out, TOKENS * 64), 0, 1e-5);
    CHECK_OK(layers_restore(b.l, NULL, &why));
    run_layer(b.l, 1, b.ids, TOKENS, b.out);
    CHECK_NEAR(max_difference(b.out, b.plain, TOKENS * 64), 0, 0);
    for (int k = 0; k < 2; k++) free(matrix[k]);
    free(blocks);
    free(decoded);
    bench_close(&b);
}

static void test_refusals(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct bench b;
    bench_open(&b);
    float numbers[64] = { 0 };
    const struct format *f32 = &FORMATS[FORMAT_F32];
    assert_int_equal(layers_run(b.l, 3, b.in, 1, NULL, NULL, &why), ERR_USAGE);
    assert_int_equal(layers_run(b.l, -1, b.in, 1, NULL, NULL, &why), ERR_USAGE);
    assert_int_equal(layers_run(b.l, 0, b.in, TOKENS + 1, NULL, NULL, &why), ERR_USAGE);
    assert_int_equal(layers_attention(b.l, 0, b.in, 0, b.out, &why), ERR_USAGE);
    assert_int_equal(layers_embed(b.l, (const int32_t[]){ 512 }, 1, b.in, &why), ERR_USAGE);
    assert_int_equal(layers_replace(b.l, "blk.3.ffn_up.weight", f32, numbers, &why), ERR_USAGE);
    assert_int_equal(layers_replace(b.l, "blk.1.ffn_norm.weight", &FORMATS[FORMAT_F16], numbers, &why),
                     ERR_USAGE);
    assert_int_equal(layers_replace(b.l, "blk.1.ffn_up.weight", &FORMATS[FORMAT_Q4_K], numbers, &why),
                     ERR_USAGE);
    run_layer(b.l, 1, b.ids, TOKENS, b.out);
    CHECK_NEAR(max_difference(b.out, b.plain, TOKENS * 64), 0, 0);
    bench_close(&b);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_architectures), cmocka_unit_test(test_synth),
                                        cmocka_unit_test(test_replace), cmocka_unit_test(test_replace_values),
                                        cmocka_unit_test(test_refusals) };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
