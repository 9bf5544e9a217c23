/* Proves: the gradient of the KL divergence from a teacher equals finite differences, and is 0 where both
 * agree. One step of recovery moves the f32 copy along the gradient taken at the quantized weights, and the
 * file contains that copy quantized. Recovery brings a 2-bit model closer to its original on unseen text,
 * with the same bytes for any number of threads. only=norms leaves matrices unchanged. Models that cannot be
 * recovered are rejected with a reason, and nothing is left behind. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/eval/eval.h"
#include "engine/quant/quant.h"
#include "engine/train/train.h"
#include "tests/check.h"
#include "engine/synth/synth.h"
#include "engine/text/text.h"

static char *temp_path(char *buf, const char *name)
{
    snprintf(buf, 256, "%s/tests/recover-%d-%s.gguf", TEST_BUILD_DIR, (int)getpid(), name);
    return buf;
}

static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static float uniform(uint64_t *state)
{
    return (float)(next(state) % 20001) / 10000 - 1;
}

/* ---------------------------------------------------------------- the gradient */

static const struct network_shape SMALL = { .layers = 2,
                                            .heads = 4,
                                            .kv_heads = 2,
                                            .ctx = 12,
                                            .embd = 32,
                                            .ff = 48,
                                            .vocab = 70,
                                            .tied = true,
                                            .rope_base = 10000,
                                            .eps = 1e-5f };
enum { BATCH = 2, TOKENS = 2 * 12 };

static struct network *open_small(int threads)
{
    struct network_options o = { .shape = SMALL, .batch = BATCH, .threads = threads };
    struct network *n;
    struct err why = { 0 };
    uint64_t state = 3;
    CHECK_OK(isa_usable(&o.isa, &why));
    CHECK_OK(network_open(&n, &o, &why));
    CHECK_OK(network_randomize(n, 3, &why));
    float *w = network_weights(n);
    for (int64_t i = 0; i < network_params(n); i++) w[i] = w[i] == 1 ? 1 + 0.2f * uniform(&state) : w[i] * 6;
    network_changed(n);
    return n;
}

/* Directional derivative of the divergence within one tensor. */
static double slope(struct network *n, const struct network_tensor *at, const float *direction,
                    const int32_t *tokens, const float *teacher)
{
    const float step = 2e-3f;
    const int64_t count = at->rows * at->cols;
    float *w = network_weights(n) + at->offset, *kept = malloc((size_t)count * sizeof *kept);
    double value[2];
    CHECK_NE(kept, NULL);
    memcpy(kept, w, (size_t)count * sizeof *kept);
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < count; i++) w[i] = kept[i] + (side ? step : -step) * direction[i];
        network_changed(n);
        value[side] = network_distill(n, tokens, teacher, 0);
    }
    memcpy(w, kept, (size_t)count * sizeof *kept);
    network_changed(n);
    free(kept);
    return (value[1] - value[0]) / (2 * (double)step);
}

static void gradients_are_slopes(void **state)
{
    (void)state;
    struct network *n = open_small(2);
    const int64_t logits = TOKENS * SMALL.vocab, params = network_params(n);
    float *teacher = malloc((size_t)logits * sizeof *teacher),
          *direction = malloc((size_t)params * sizeof *direction);
    int32_t tokens[TOKENS], none[TOKENS];
    uint64_t seed = 11;
    CHECK(teacher);
    CHECK(direction);
    for (int i = 0; i < TOKENS; i++) tokens[i] = (int32_t)(next(&seed) % (uint64_t)SMALL.vocab), none[i] = -1;
    network_forward(n, tokens, none);
    memcpy(teacher, network_logits(n), (size_t)logits * sizeof *teacher);

    /* A teacher with the same predictions: no loss, no gradient. */
    memset(network_gradients(n), 0, (size_t)params * sizeof(float));
    CHECK_NEAR(network_distill(n, tokens, teacher, 1), 0, 1e-5);
    for (int64_t i = 0; i < params; i++) CHECK_NEAR((double)network_gradients(n)[i], 0, 1e-4);

    for (int64_t i = 0; i < logits; i++) teacher[i] += uniform(&seed);
    memset(network_gradients(n), 0, (size_t)params * sizeof(float));
    CHECK_LT(1, network_distill(n, tokens, teacher, 1));
    float *g = malloc((size_t)params * sizeof *g);
    CHECK_NE(g, NULL);
    memcpy(g, network_gradients(n), (size_t)params * sizeof *g);
    for (int t = 0; t < network_tensor_count(n); t++) {
        const struct network_tensor *at = network_tensor_at(n, t);
        double along = 0;
        if (!at->rows) continue;
        for (int64_t i = 0; i < at->rows * at->cols; i++) {
            direction[i] = uniform(&seed);
            along += (double)direction[i] * (double)g[at->offset + i];
        }
        const double measured = slope(n, at, direction, tokens, teacher);
        if (!(fabs(measured - along) <= 0.03 * fabs(along) + 0.02))
            fail_msg("%s: gradient says %g, the slope is %g", at->name, along, measured);
    }
    network_close(n);
    free(teacher);
    free(direction);
    free(g);
}

/* ---------------------------------------------------------------- a model, its tokens, and a bad copy */

static const char *original_path(char *buf)
{
    return temp_path(buf, "original");
}

/* A small model after a short training. */
static void make_original(void)
{
    char path[256], state[300];
    struct err why = { 0 };
    struct train_report r;
    struct train_options o = train_defaults();
    o.shape.layers = 2;
    o.shape.heads = 2;
    o.shape.kv_heads = 1;
    o.shape.embd = 64;
    o.shape.ff = 128;
    o.shape.vocab = 512;
    o.shape.ctx = 256;
    o.amp = AMP_OFF;
    o.batch = 2;
    o.accumulate = 1;
    o.steps = 60;
    o.warmup = 5;
    o.adam.rate = 1e-2;
    o.vocabulary_stories = 300;
    o.exam_stories = 2;
    o.threads = 2;
    o.format = &FORMATS[FORMAT_F32];
    CHECK_OK(isa_usable(&o.isa, &why));
    CHECK_OK(train_run(original_path(path), &o, &r, &why));
    train_report_done(&r);
    snprintf(state, sizeof state, "%s.train", path);
    unlink(state);
}

static struct gguf *open_original(void)
{
    char path[256];
    struct gguf *g;
    struct err why = { 0 };
    if (access(original_path(path), R_OK)) make_original();
    CHECK_OK(gguf_open(&g, path, &why));
    return g;
}

static struct gguf *quantized(const struct gguf *original, const char *recipe, char path[256])
{
    struct gguf *g;
    struct config c;
    struct err why = { 0 };
    CHECK_OK(config_parse(&c, recipe, &why));
    CHECK_OK(quantize_file(temp_path(path, "quantized"), original,
                           &(struct quantize_options){ .config = &c, .threads = 2 }, &why));
    CHECK_OK(gguf_open(&g, path, &why));
    return g;
}

/* Stories of a split, and their tokens if `ids` is not NULL. */
static void stories_write(const struct gguf *g, enum corpus_split split, int stories, struct str *text,
                          struct token_list *ids)
{
    struct corpus *c;
    struct tokenizer *t;
    struct err why = { 0 };
    CHECK_OK(corpus_open(&c, &why));
    for (int i = 0; i < stories; i++) {
        corpus_story(c, (struct story_id){ 1, split, (uint64_t)i }, text);
        str_append(text, "\n");
    }
    corpus_close(c);
    if (!ids) return;
    CHECK_OK(tokenizer_open(&t, g, &why));
    CHECK_OK(tokenizer_encode(t, str_text(text), text->len, 0, ids, &why));
    tokenizer_close(t);
}

static struct recover_options quick(const struct token_list *ids)
{
    struct err why = { 0 };
    struct recover_options o = recover_defaults();
    o.steps = 30;
    o.batch = 2;
    o.ctx = 64;
    o.rate = 2e-3;
    o.amp = AMP_OFF;
    o.ids = ids->ids;
    o.n = ids->n;
    o.bos = 1;
    o.threads = 2;
    CHECK_OK(isa_usable(&o.isa, &why));
    return o;
}

static double divergence(const struct gguf *original, const char *path, const struct str *text)
{
    struct config config;
    struct model *a, *b;
    struct divergence d;
    struct err why = { 0 };
    CHECK_OK(config_parse(&config, "threads=2,precision=highest", &why));
    struct model_options o = { .gguf = original, .config = &config, .ctx = 64 };
    CHECK_OK(recipe_model_open(&a, &o, &why));
    o.gguf = NULL;
    o.path = path;
    CHECK_OK(recipe_model_open(&b, &o, &why));
    const struct eval_request q = { .text = str_text(text), .n = text->len, .ctx = 64, .max_chunks = 20 };
    CHECK_OK(eval_divergence(&d, a, b, &q, &why));
    model_close(a);
    model_close(b);
    return d.kld_mean;
}

/* ---------------------------------------------------------------- one step */

static void load(struct network *n, const struct gguf *g)
{
    for (int i = 0; i < network_tensor_count(n); i++) {
        const struct network_tensor *x = network_tensor_at(n, i);
        const struct gguf_tensor *t = gguf_tensor_find(g, x->name);
        if (x->rows) format_decode_rows(t->format, t->data, network_weights(n) + x->offset, x->rows, x->cols);
    }
    network_changed(n);
}

/* All rows are the same token, so it does not matter which are drawn. */
static void one_step_goes_straight_through(void **state)
{
    (void)state;
    char path[256], out[256];
    struct gguf *original = open_original(), *q = quantized(original, "q4_0", path), *made;
    struct err why = { 0 };
    struct recover_report r;
    int32_t same[256], none[128];
    for (int i = 0; i < 256; i++) same[i] = 300;
    for (int i = 0; i < 128; i++) none[i] = -1;
    const struct token_list ids = { same, 256, 256 };
    struct recover_options o = quick(&ids);
    o.steps = 1;
    o.bos = -1;
    CHECK_OK(recover_file(temp_path(out, "step"), original, q, &o, &r, &why));
    CHECK_OK(gguf_open(&made, out, &why));

    const struct network_options options = {
        .shape = { 2, 2, 1, 64, 64, 128, 512, true, 10000, 1e-5f }, .batch = 2, .threads = 1, .isa = o.isa
    };
    struct network *teacher, *student;
    CHECK_OK(network_open(&teacher, &options, &why));
    CHECK_OK(network_open(&student, &options, &why));
    load(teacher, original);
    load(student, q);
    network_forward(teacher, same, none);
    CHECK_LT(0, network_distill(student, same, network_logits(teacher), 1));
    int64_t agree = 0, moved = 0, all = 0;
    for (int i = 0; i < network_tensor_count(student); i++) {
        const struct network_tensor *x = network_tensor_at(student, i);
        const struct gguf_tensor *t = gguf_tensor_find(made, x->name);
        if (!x->matrix || !x->rows) continue;
        const int64_t count = x->rows * x->cols;
        float *want = malloc((size_t)count * sizeof *want);
        uint8_t *codes = malloc((size_t)t->bytes);
        CHECK(want);
        CHECK(codes);
        for (int64_t c = 0; c < count;
             c++) { /* Adam's first step has the length of the learning rate for any gradient */
            const float g = network_gradients(student)[x->offset + c];
            want[c] = network_weights(teacher)[x->offset + c] -
                      (fabsf(g) > 1e-7f ? copysignf((float)o.rate, g) : 0);
        }
        format_encode_rows(t->format, want, codes, x->rows, x->cols);
        const struct gguf_tensor *before = gguf_tensor_find(q, x->name);
        for (int64_t b = 0; b < t->bytes; b++) {
            agree += codes[b] == t->data[b];
            moved += before->data[b] != t->data[b];
        }
        all += t->bytes;
        free(want);
        free(codes);
    }
    print_message("%lld of %lld bytes as computed by hand; %lld moved\n", (long long)agree, (long long)all,
                  (long long)moved);
    CHECK_LT(0.99 * (double)all, (double)agree);
    CHECK_LT(0.02 * (double)all, (double)moved);
    network_close(teacher);
    network_close(student);
    gguf_close(made);
    gguf_close(q);
    gguf_close(original);
    unlink(out);
    unlink(path);
}

/* ---------------------------------------------------------------- the whole */

static void recovers(void **state)
{
    (void)state;
    char path[256], out[256], again[256], one[HASH_HEX], other[HASH_HEX];
    struct gguf *original = open_original(), *q = quantized(original, "u2_g64", path);
    struct err why = { 0 };
    struct recover_report r;
    struct str text = { 0 }, held_out = { 0 };
    struct token_list ids = { 0 };
    stories_write(original, CORPUS_CALIBRATION, 60, &text, &ids);
    stories_write(original, CORPUS_HELD_OUT, 30, &held_out, NULL);
    struct recover_options o = quick(&ids);
    CHECK_OK(recover_file(temp_path(out, "out"), original, q, &o, &r, &why));
    CHECK_LT(r.loss, r.first_loss);
    CHECK_LT(0, r.params);
    CHECK_LT(0, r.memory.activations);
    assert_int_equal(r.tokens, 30 * 2 * 64);
    const double before = divergence(original, path, &held_out), after = divergence(original, out, &held_out);
    print_message("KL on other stories: %.4f nats before, %.4f after\n", before, after);
    CHECK_LT(after, 0.7 * before);

    o.threads = 1;
    CHECK_OK(recover_file(temp_path(again, "again"), original, q, &o, &r, &why));
    CHECK_OK(hash_file(out, one, &why));
    CHECK_OK(hash_file(again, other, &why));
    assert_string_equal(one, other);
    unlink(again);

    /* only=norms: matrices keep their bytes, and the divergence still falls a little. */
    struct gguf *made;
    o.norms_only = true;
    CHECK_OK(recover_file(out, original, q, &o, &r, &why));
    CHECK_OK(gguf_open(&made, out, &why));
    int changed = 0;
    for (int64_t i = 0; i < gguf_tensor_count(q); i++) {
        const struct gguf_tensor *a = gguf_tensor_at(q, i), *b = gguf_tensor_find(made, a->name);
        assert_ptr_equal(a->format, b->format);
        assert_int_equal(a->bytes, b->bytes);
        const bool same = !memcmp(a->data, b->data, (size_t)a->bytes);
        CHECK(same || a->dims == 1);
        changed += !same;
    }
    CHECK_LT(0, changed);
    CHECK_LT(divergence(original, out, &held_out), before);
    gguf_close(made);
    gguf_close(q);
    gguf_close(original);
    token_list_free(&ids);
    str_free(&text);
    str_free(&held_out);
    unlink(out);
    unlink(path);
}

static bool stop(void *ctx, const struct recover_progress *p)
{
    (void)ctx;
    return p->step < 3;
}

static void refuse(const struct gguf *original, const struct gguf *q, const struct recover_options *o,
                   enum err_code code, const char *says)
{
    char out[256];
    struct err why = { 0 };
    struct recover_report r;
    temp_path(out, "refused");
    assert_int_equal(recover_file(out, original, q, o, &r, &why), code);
    if (!strstr(why.message, says)) fail_msg("'%s' lacks '%s'", why.message, says);
    CHECK_NE(access(out, F_OK), 0);
}

static void refuses(void **state)
{
    (void)state;
    char path[256], other[256];
    struct gguf *original = open_original(), *q = quantized(original, "q4_0", path), *g;
    struct err why = { 0 };
    struct token_list ids = { 0 };
    struct str text = { 0 };
    stories_write(original, CORPUS_CALIBRATION, 5, &text, &ids);
    struct recover_options o = quick(&ids);
    o.n = 100;
    refuse(original, q, &o, ERR_USAGE, "expected at least two rows");
    o = quick(&ids);
    o.rate = 2;
    refuse(original, q, &o, ERR_USAGE, "rate between 0 and 1");
    o = quick(&ids);
    o.progress = stop;
    refuse(original, q, &o, ERR_CANCELLED, "cancelled");
    gguf_close(q);

    o = quick(&ids);
    q = quantized(original, "int8_dynamic", path);
    refuse(original, q, &o, ERR_USAGE, "activations");
    gguf_close(q);

    CHECK_OK(synth_write(temp_path(other, "qwen2"),
                         &(struct synth_options){ .arch = "qwen2",
                                                  .shape = synth_shape_find("tiny"),
                                                  .format = &FORMATS[FORMAT_F32],
                                                  .seed = 1,
                                                  .threads = 2 },
                         &why));
    CHECK_OK(gguf_open(&g, other, &why));
    assert_int_equal(recover_check(g, g, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "not llama");
    gguf_close(g);
    gguf_close(original);
    token_list_free(&ids);
    str_free(&text);
    unlink(other);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_slopes),
        cmocka_unit_test(one_step_goes_straight_through),
        cmocka_unit_test(recovers),
        cmocka_unit_test(refuses),
    };
    char path[256];
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(original_path(path));
    return failed;
}
