/* Proves: training reduces the loss, and the engine computes the same logits from the written model as the
 * trainer. A run that was stopped and continued gives the same file, byte for byte, as an uninterrupted one,
 * for any number of threads. Half precision works, and steps with an overflow are skipped. The floor of the
 * evaluation is a lower bound. Rows have the documented structure. Other options for an existing run are
 * rejected. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/config/config.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "engine/text/text.h"
#include "kernels/kernels.h"
#include "engine/train/story_rows.h"
#include "engine/train/train.h"
#include "engine/train/trainer.h"
#include "tests/check.h"
#include "engine/quant/quant.h"

static char *temp_path(char *buf, size_t size, const char *name)
{
    snprintf(buf, size, "%s/tests/train-%d-%s.gguf", TEST_BUILD_DIR, (int)getpid(), name);
    return buf;
}

static void forget(const char *path)
{
    char state[512];
    snprintf(state, sizeof state, "%s.train", path);
    unlink(state);
    unlink(path);
}

static struct train_options tiny(void)
{
    struct err why = { 0 };
    struct train_options o = train_defaults();
    o.shape.layers = 2;
    o.shape.heads = 2;
    o.shape.kv_heads = 1;
    o.shape.embd = 32;
    o.shape.ff = 64;
    o.shape.vocab = 512;
    o.amp = AMP_OFF;
    o.batch = 2;
    o.accumulate = 2;
    o.steps = 6;
    o.warmup = 3;
    o.adam.rate = 1e-2;
    o.vocabulary_stories = 300;
    o.exam_stories = 4;
    o.save_every = 2;
    o.format = &FORMATS[FORMAT_F32];
    CHECK_OK(isa_usable(&o.isa, &why));
    return o;
}

static void train(const char *path, const struct train_options *o, struct train_report *r)
{
    struct err why = { 0 };
    CHECK_OK(train_run(path, o, r, &why));
}

static void learns(void **state)
{
    (void)state;
    char path[256];
    struct train_report r;
    struct train_options o = tiny();
    o.steps = 40;
    o.threads = 2;
    forget(temp_path(path, sizeof path, "learns"));
    train(path, &o, &r);
    CHECK_NEAR((double)r.losses[0], log(512), 0.3); /* an untrained model: uniform predictions */
    print_message("loss %.2f, held-out %.2f, floor %.2f nats a token\n", r.loss, r.held_out, r.floor);
    CHECK_LT((double)r.losses[o.steps - 1], 5.3); /* it has learned the frequencies of tokens */
    CHECK_LT(r.held_out, 5.3);
    CHECK_LT(r.floor, r.held_out);
    CHECK_LT(0.1, r.floor);
    CHECK_LT(r.floor, 1);
    CHECK_LT(1.5, r.characters);
    CHECK_LT(r.characters, 4);
    assert_int_equal(r.tokens, 40 * 4 * o.shape.ctx);
    CHECK_LT(0, r.tokens_s);
    CHECK_LT(0, r.peak_bytes);
    CHECK_LT(0, r.memory.activations);
    train_report_done(&r);
    forget(path);
}

static bool stop_at(void *ctx, const struct train_progress *p)
{
    return p->step < *(const int64_t *)ctx;
}

static void file_hash(const char *path, char hex[HASH_HEX])
{
    struct err why = { 0 };
    CHECK_OK(hash_file(path, hex, &why));
}

static void stopped_or_not_is_the_same(void **state)
{
    (void)state;
    char whole[256], parts[256], one[HASH_HEX], other[HASH_HEX];
    struct err why = { 0 };
    struct train_report r;
    for (int amp = 0; amp < AMP_COUNT; amp++) {
        struct train_options o = tiny();
        o.amp = (enum amp)amp;
        o.optimizer = amp == AMP_BF16 ? OPTIMIZER_MUON : OPTIMIZER_ADAMW;
        forget(temp_path(whole, sizeof whole, "whole"));
        forget(temp_path(parts, sizeof parts, "parts"));
        train(whole, &o, &r);
        assert_false(r.resumed);
        train_report_done(&r);
        int64_t at = 3;
        o.progress = stop_at;
        o.ctx = &at;
        o.threads = 2;
        o.checkpoint_every = 1;
        o.trim_every = 2;
        assert_int_equal(train_run(parts, &o, &r, &why), ERR_CANCELLED);
        CHECK_NE(access(parts, F_OK), 0); /* the model is not written yet */
        train_report_done(&r);
        o.progress = NULL;
        train(parts, &o, &r);
        assert_true(r.resumed);
        assert_int_equal(r.steps, o.steps);
        CHECK_LT(5, r.losses[0]); /* losses of the first part are included */
        train_report_done(&r);
        file_hash(whole, one);
        file_hash(parts, other);
        assert_string_equal(one, other);
        o.steps++;
        assert_int_equal(train_run(parts, &o, &r, &why), ERR_USAGE);
        CHECK_CONTAINS(why.message, "other options");
        train_report_done(&r);
        forget(whole);
        forget(parts);
    }
}

/* Compare the engine's logits for the trained file with the trainer's, for the same tokens. */
static void compare_logits(const char *path, const struct train_options *o, double tolerance)
{
    struct err why = { 0 };
    struct trainer t = { .o = o };
    struct network_options network = { .shape = o->shape, .batch = 1, .threads = 1, .isa = o->isa };
    struct config config;
    struct model *m;
    char state[512];
    bool found;
    enum { COUNT = 64 };
    int32_t tokens[256], targets[256];
    struct batch_row rows[COUNT];

    network.shape.ctx = COUNT;
    snprintf(state, sizeof state, "%s.train", path);
    CHECK_OK(gguf_open(&t.gguf, state, &why));
    CHECK_OK(network_open(&t.learner.network, &network, &why));
    t.state_path = state;
    t.learner.m = calloc((size_t)network_params(t.learner.network), sizeof *t.learner.m);
    t.learner.v = calloc((size_t)network_params(t.learner.network), sizeof *t.learner.v);
    t.losses = calloc((size_t)o->steps, sizeof *t.losses);
    CHECK_OK(trainer_load(&t, &found, &why));
    assert_true(found);
    CHECK_OK(config_parse(&config, "precision=highest,kv=f32,threads=1", &why));
    const struct model_options options = { .path = path, .config = &config };
    CHECK_OK(recipe_model_open(&m, &options, &why));
    for (int i = 0; i < COUNT; i++) {
        tokens[i] = (i * 37 + 5) % (int)o->shape.vocab;
        targets[i] = -1;
        rows[i] = (struct batch_row){ .token = tokens[i], .pos = i, .logits = true };
    }
    network_forward(t.learner.network, tokens, targets);
    CHECK_OK(model_forward(m, rows, COUNT, &why));
    for (int i = 0; i < COUNT; i++)
        for (int64_t c = 0; c < o->shape.vocab; c++)
            CHECK_NEAR((double)model_logits(m, i)[c],
                       (double)network_logits(t.learner.network)[i * o->shape.vocab + c], tolerance);
    model_close(m);
    learner_close(&t.learner);
    gguf_close(t.gguf);
    free(t.losses);
}

static void engine_runs_it(void **state)
{
    (void)state;
    char path[256];
    struct train_report r;
    struct train_options o = tiny();
    forget(temp_path(path, sizeof path, "engine"));
    train(path, &o, &r);
    train_report_done(&r);
    compare_logits(path, &o, 2e-4);
    forget(path);
    o.shape.tied = false;
    o.format = &FORMATS[FORMAT_F16];
    train(path, &o, &r);
    train_report_done(&r);
    compare_logits(path, &o, 5e-2); /* the file has f16 weights */
    forget(path);
}

/* Targets at the start of a document do not count; all others are the next token. */
static void check_row(const struct story_rows *l, const int32_t *tokens, const int32_t *targets)
{
    assert_int_equal(tokens[0], l->bos);
    for (int i = 0; i + 1 < l->ctx; i++)
        if (targets[i] >= 0)
            assert_int_equal(targets[i], tokens[i + 1]);
        else
            CHECK_EQ(tokens[i + 1], l->bos);
    CHECK_LE(0, targets[0]);
}

static void rows_hold_stories(void **state)
{
    (void)state;
    char path[256], kept[512];
    struct err why = { 0 };
    struct train_report r;
    struct train_options o = tiny();
    struct story_rows l = { .seed = 1, .ctx = 256 };
    struct corpus *c;
    struct gguf *g;
    struct tokenizer *k;
    struct tokenizer_info info;
    int32_t tokens[256], targets[256], again[256], other[256];
    struct str text = { 0 }, story = { 0 };
    o.steps = 1;
    forget(temp_path(path, sizeof path, "rows"));
    train(path, &o, &r);
    train_report_done(&r);
    snprintf(kept, sizeof kept, "%s.train", path);
    CHECK_OK(gguf_open(&g, kept, &why));
    CHECK_OK(tokenizer_open(&k, g, &why));
    CHECK_OK(corpus_open(&c, &why));
    tokenizer_describe(k, &info);
    l.corpus = c, l.tokenizer = k, l.bos = info.bos, l.eos = info.eos;

    int ends = 0, newlines = 0;
    for (uint64_t row = 0; row < 32; row++) {
        CHECK_OK(story_rows_train(&l, row, tokens, targets, &why));
        check_row(&l, tokens, targets);
        CHECK_OK(story_rows_train(&l, row, again, other, &why));
        assert_memory_equal(tokens, again, sizeof tokens);
        str_clear(&text);
        CHECK_OK(tokenizer_decode(k, tokens, l.ctx, false, &text, &why));
        str_clear(&story);
        corpus_story(c, (struct story_id){ 1, CORPUS_TRAIN, row * 1024 }, &story);
        const size_t n = MIN(text.len, story.len) / 2;
        assert_int_equal(!memcmp(text.data, story.data, n),
                         row % 8 != 7); /* every eighth row starts in the middle of a story */
        for (int i = 0; i < l.ctx; i++) ends += tokens[i] == l.eos;
        newlines += strchr(text.data, '\n') != NULL;
    }
    CHECK_LT(5, ends);
    CHECK_LT(2, newlines); /* stories also follow after a newline */

    /* Held-out rows contain whole stories; the floor is their -log p plus ln 2 for each. */
    struct held_out_row e = { .number = 3 };
    double nats = 0;
    int64_t counted = 0;
    l.ctx = 256;
    CHECK_OK(story_rows_held_out(&l, &e, tokens, targets, &why));
    check_row(&l, tokens, targets);
    CHECK_LE(1, e.stories);
    CHECK_EQ(e.number, 3 + (uint64_t)e.stories);
    for (int i = 0; i < e.stories; i++) {
        str_clear(&story);
        nats += log(2) - corpus_story(c, (struct story_id){ 1, CORPUS_HELD_OUT, 3 + (uint64_t)i }, &story);
    }
    CHECK_NEAR(e.floor_nats, nats, 1e-9);
    for (int i = 0; i < l.ctx; i++) counted += targets[i] >= 0;
    assert_int_equal(e.counted, counted);
    l.ctx = 16;
    assert_int_equal(story_rows_held_out(&l, &e, tokens, targets, &why), ERR_USAGE);
    str_free(&text);
    str_free(&story);
    tokenizer_close(k);
    gguf_close(g);
    corpus_close(c);
    forget(path);
}

static void overflows_are_skipped(void **state)
{
    (void)state;
    struct loss_scale s = loss_scale_begin(AMP_FP16);
    const float first = s.scale;
    loss_scale_update(&s, AMP_FP16, false);
    CHECK_NEAR((double)s.scale, (double)first / 2, 0);
    for (int i = 0; i < 200; i++) loss_scale_update(&s, AMP_FP16, true);
    CHECK_NEAR((double)s.scale, (double)first, 0);
    s = loss_scale_begin(AMP_BF16);
    loss_scale_update(&s, AMP_BF16, false);
    CHECK_NEAR((double)s.scale, 1, 0);
}

/* One step computed by hand: m = 0.1 g, v = 0.05 g^2, so x changes by rate * sign(g), and decays. */
static void adam_by_hand(void **state)
{
    (void)state;
    struct err why = { 0 };
    const struct network_options o = { .shape = tiny().shape, .batch = 1, .threads = 1, .isa = tiny().isa };
    const struct adam_options a = {
        .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .clip = 0
    };
    struct network *n;
    CHECK_OK(network_open(&n, &o, &why));
    CHECK_OK(network_randomize(n, 1, &why));
    const int64_t params = network_params(n);
    float *m = calloc((size_t)params, sizeof *m), *v = calloc((size_t)params, sizeof *v), before[2];
    const int64_t matrix = network_tensor_at(n, 0)->offset, norm = network_tensor_at(n, 1)->offset;
    before[0] = network_weights(n)[matrix];
    before[1] = network_weights(n)[norm];
    memset(network_gradients(n), 0, (size_t)params * sizeof(float));
    network_gradients(n)[matrix] = 6;
    network_gradients(n)[norm] = -8;
    const double length = adam_step(
        &(struct adam_step){ .o = &a, .network = n, .m = m, .v = v, .t = 1, .rate = 0.01, .scale = 2 });
    CHECK_NEAR(length, 5, 1e-6); /* the length of (3, -4) */
    CHECK_NEAR((double)m[matrix], 0.3, 1e-6);
    CHECK_NEAR((double)v[norm], 0.05 * 16, 1e-6);
    CHECK_NEAR((double)network_weights(n)[matrix], (double)before[0] * (1 - 0.001) - 0.01, 1e-6);
    CHECK_NEAR((double)network_weights(n)[norm], (double)before[1] + 0.01,
               1e-6); /* norms have no weight decay */
    network_gradients(n)[norm] = INFINITY;
    before[0] = network_weights(n)[matrix];
    CHECK(!isfinite(adam_step(
        &(struct adam_step){ .o = &a, .network = n, .m = m, .v = v, .t = 2, .rate = 0.01, .scale = 1 })));
    CHECK_NEAR((double)network_weights(n)[matrix], (double)before[0], 0);
    CHECK_NEAR(learning_rate(1, 0, 100, 10), 0.1, 1e-12);
    CHECK_NEAR(learning_rate(1, 10, 100, 10), 1, 1e-12);
    CHECK_NEAR(learning_rate(1, 55, 100, 10), 0.55, 1e-12);
    CHECK_NEAR(learning_rate(1, 100, 100, 10), 0.1, 1e-12);
    free(m);
    free(v);
    network_close(n);
}

static void refuses(void **state)
{
    (void)state;
    char path[256], kept[512];
    struct err why = { 0 };
    struct train_report r;
    struct train_options o = tiny();
    forget(temp_path(path, sizeof path, "refused"));
    snprintf(kept, sizeof kept, "%s.train", path);
    o.shape.kv_heads = 3;
    assert_int_equal(train_run(path, &o, &r, &why), ERR_USAGE);
    o = tiny();
    o.shape.vocab = 100;
    assert_int_equal(train_run(path, &o, &r, &why), ERR_USAGE);
    o = tiny();
    o.format = &FORMATS[FORMAT_Q4_0];
    assert_int_equal(train_run(path, &o, &r, &why), ERR_USAGE);
    CHECK(access(path, F_OK));
    CHECK(access(kept, F_OK));
    forget(path);
}

static int tensor_of(const struct network *n, const char *name)
{
    for (int i = 0; i < network_tensor_count(n); i++)
        if (!strcmp(network_tensor_at(n, i)->name, name)) return i;
    fail_msg("no tensor %s", name);
    return -1;
}

/* Singular values of Muon's step lie between about 0.7 and 1.2, so its normalized rows (columns of a tall
 * matrix) are orthogonal. Weights start at zero without decay, so afterwards they are the step. */
static void check_step(const struct network_tensor *t, const float *w, double rate)
{
    const bool tall = t->rows > t->cols;
    const int64_t n = tall ? t->cols : t->rows, inner = tall ? t->rows : t->cols;
    const int64_t along = tall ? t->cols : 1, across = tall ? 1 : t->cols;
    const double scale = rate * 0.2 * sqrt((double)inner);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < n; k++) {
            double sum = 0;
            for (int64_t c = 0; c < inner; c++)
                sum += (double)w[i * across + c * along] * (double)w[k * across + c * along];
            sum /= scale * scale;
            CHECK_GT(sum, i == k ? 0.4 : -0.35);
            CHECK_LT(sum, i == k ? 1.6 : 0.35);
        }
}

static void muon_steps_are_orthogonal(void **state)
{
    (void)state;
    struct err why = { 0 };
    const struct adam_options a = { .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .clip = 1 };
    for (int amp = 0; amp < AMP_COUNT; amp++) {
        const struct network_options o = {
            .shape = tiny().shape, .amp = (enum amp)amp, .batch = 1, .threads = 2, .isa = tiny().isa
        };
        struct network *n;
        struct muon *u;
        CHECK_OK(network_open(&n, &o, &why));
        CHECK_OK(muon_open(&u, n, &why));
        const int64_t params = network_params(n);
        float *m = calloc((size_t)params, sizeof *m), *v = calloc((size_t)params, sizeof *v);
        uint64_t random = 9;
        for (int64_t i = 0; i < params; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            network_gradients(n)[i] = (float)((double)(random >> 33) / 2147483648.0 - 0.5);
        }
        memset(network_gradients(n) + network_tensor_at(n, tensor_of(n, "blk.0.attn_k.weight"))->offset, 0,
               16 * 32 * sizeof(float));
        adam_step(&(struct adam_step){
            .o = &a, .network = n, .muon = u, .m = m, .v = v, .t = 1, .rate = 0.01, .scale = 1 });
        int taken = 0;
        for (int i = 0; i < network_tensor_count(n); i++) {
            const struct network_tensor *t = network_tensor_at(n, i);
            const float *w = network_weights(n) + t->offset;
            if (!muon_takes(t)) continue;
            taken++;
            if (!strcmp(t->name, "blk.0.attn_k.weight"))
                CHECK_NEAR((double)w[5], 0, 0); /* a gradient of 0 gives no step */
            else
                check_step(t, w, 0.01);
        }
        assert_int_equal(taken, 2 * 7);
        /* AdamW updated the embeddings: by the learning rate, against the sign of the gradient */
        CHECK_NEAR(fabs((double)network_weights(n)[network_tensor_at(n, 0)->offset]), 0.01, 1e-5);
        free(m);
        free(v);
        muon_close(u);
        network_close(n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adam_by_hand),
        cmocka_unit_test(muon_steps_are_orthogonal),
        cmocka_unit_test(overflows_are_skipped),
        cmocka_unit_test(rows_hold_stories),
        cmocka_unit_test(learns),
        cmocka_unit_test(stopped_or_not_is_the_same),
        cmocka_unit_test(engine_runs_it),
        cmocka_unit_test(refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
