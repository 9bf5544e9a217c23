/* Proves, for models that keep a state: sequences do not influence each other; a state can be saved and
 * restored; a sequence cannot be cut elsewhere; a failed pass leaves it empty; the plan has the bytes of the
 * states, and keys and values only for layers with attention; a list of the file says which these are. */
#include <unistd.h>

#include "engine/arch/arch.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "tests/engine/session.h"

static const char *const MODELS[] = { "arch-golden-2/qwen35moe.gguf", "arch-golden-2/lfm2moe.gguf",
                                      "arch-golden-2/nemotron_h_moe.gguf" };
enum { VOCAB = 264, LENGTH = 40 };

static int32_t id_at(int seq, int pos)
{
    return (seq * 131 + pos * 37 + pos * pos) % VOCAB;
}

/* Append tokens from..to-1 of text `text` to sequence seq; the logits of the last one -> out. */
static void feed(struct model *m, int seq, int text, int from, int to, float *out)
{
    struct err why = { 0 };
    struct batch_row rows[LENGTH];
    for (int i = from; i < to; i++)
        rows[i - from] = (struct batch_row){
            .token = id_at(text, i), .pos = i, .seq = seq, .logits = i == to - 1
        };
    CHECK_OK(model_forward(m, rows, to - from, &why));
    memcpy(out, model_logits(m, 0), VOCAB * sizeof *out);
}

static void check_states(const char *path)
{
    float want[2][VOCAB], got[VOCAB];
    for (int text = 0; text < 2; text++) {
        struct model *alone = session_open(path, EXACT, 64, 1);
        feed(alone, 0, text, 0, LENGTH, want[text]);
        model_close(alone);
    }
    struct model *m = session_open(path, EXACT ",batch=7", 64, 2);
    void *copy = malloc((size_t)model_state_bytes(m));
    assert_true(model_state_bytes(m) > 0);
    feed(m, 1, 1, 0, 11, got);
    feed(m, 0, 0, 0, 20, got);
    model_state_save(m, 0, copy);
    feed(m, 1, 1, 11, LENGTH, got);
    CHECK_NEAR(max_difference(got, want[1], VOCAB), 0, 1e-4);
    feed(m, 0, 0, 20, LENGTH, got);
    CHECK_NEAR(max_difference(got, want[0], VOCAB), 0, 1e-4);

    assert_false(model_truncate(m, 0, 20)); /* the state would stay that of 40 tokens */
    assert_int_equal(model_length(m, 0), LENGTH);
    assert_true(model_truncate(m, 0, LENGTH));
    assert_false(model_state_restore(m, 0, copy, LENGTH + 1));
    assert_true(model_state_restore(m, 0, copy, 20));
    assert_int_equal(model_length(m, 0), 20);
    feed(m, 0, 0, 20, LENGTH, got);
    CHECK_NEAR(max_difference(got, want[0], VOCAB), 0, 1e-4);
    assert_true(model_truncate(m, 0, 0));
    feed(m, 0, 1, 0, LENGTH, got);
    CHECK_NEAR(max_difference(got, want[1], VOCAB), 0, 1e-4);
    free(copy);
    model_close(m);
}

static void test_states(void **state)
{
    (void)state;
    char path[4096];
    for (size_t i = 0; i < COUNT_OF(MODELS); i++) {
        SHARED_OR_SKIP(path, MODELS[i]);
        check_states(path);
    }
}

/* A state that is not a number any more: the pass fails, and the sequence can start again. */
static void test_failed_pass(void **state)
{
    (void)state;
    char path[4096];
    float got[VOCAB], again[VOCAB];
    struct err why = { 0 };
    SHARED_OR_SKIP(path, MODELS[0]);
    struct model *m = session_open(path, EXACT, 64, 1);
    feed(m, 0, 0, 0, 9, got);
    const size_t floats = (size_t)model_state_bytes(m) / sizeof(float);
    float *broken = malloc(floats * sizeof *broken);
    for (size_t i = 0; i < floats; i++) broken[i] = NAN;
    assert_true(model_state_restore(m, 0, broken, 8));
    const struct batch_row row = { .token = 1, .pos = 8, .logits = true };
    assert_int_equal(model_forward(m, &row, 1, &why), ERR_FORMAT);
    assert_int_equal(model_length(m, 0), 0);
    feed(m, 0, 0, 0, 9, again);
    CHECK_NEAR(max_difference(got, again, VOCAB), 0, 0);
    free(broken);
    model_close(m);
}

static void test_plan(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, MODELS[0]);
    struct model *m = session_open(path, EXACT, 64, 3);
    const struct memory_plan *p = model_plan(m);
    /* 3 of 4 layers: 4 heads of 16 x 16, and 3 rows of 2 x 2 x 16 + 4 x 16 channels */
    assert_int_equal(model_state_bytes(m), 3 * 4 * (4 * 16 * 16 + 3 * (2 * 2 * 16 + 4 * 16)));
    assert_int_equal(p->state, 3 * model_state_bytes(m));
    assert_int_equal(p->kv_bytes_per_token, 4 * (16 + 16)); /* 1 layer, 1 KV head, f32 */
    model_close(m);
}

/* Write a copy of a model whose full_attention_interval is wrong and whose list of recurrent layers has
 * `count` values: `every`-th layers have attention. */
static void write_listed(const char *copy, const char *path, int count, int every)
{
    struct err why = { 0 };
    struct gguf *g;
    struct gguf_writer *w;
    uint8_t recurrent[LAYERS_MAX];
    for (int l = 0; l < count; l++) recurrent[l] = (l + 1) % every != 0;
    CHECK_OK(gguf_open(&g, path, &why));
    CHECK_OK(gguf_writer_open(&w, copy, &why));
    for (int64_t i = 0; i < gguf_kv_count(g); i++)
        if (!gguf_string_is(gguf_kv_at(g, i)->key, "qwen35moe.full_attention_interval"))
            gguf_writer_copy_kv(w, gguf_kv_at(g, i));
    gguf_writer_put_u32(w, "qwen35moe.full_attention_interval", 1);
    gguf_writer_put_array(w, "qwen35moe.attention.recurrent_layers", GGUF_BOOL, recurrent, (uint64_t)count);
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        gguf_writer_add_tensor(w, t->name, t->format, t->dims, t->shape);
    }
    for (int64_t i = 0; i < gguf_tensor_count(g); i++)
        CHECK_OK(gguf_writer_write(w, gguf_tensor_at(g, i)->data, gguf_tensor_at(g, i)->bytes, &why));
    CHECK_OK(gguf_writer_commit(w, &why));
    gguf_close(g);
}

/* attention.recurrent_layers, which files of 2026 have, is used instead of the interval. */
static void test_recurrent_layers(void **state)
{
    (void)state;
    char path[4096], copy[] = "/tmp/qdyno-state-XXXXXX";
    float want[VOCAB], got[VOCAB];
    struct err why = { 0 };
    struct model *m;
    SHARED_OR_SKIP(path, MODELS[0]);
    close(mkstemp(copy));
    m = session_open(path, EXACT, 64, 1);
    feed(m, 0, 0, 0, 9, want);
    model_close(m);
    write_listed(copy, path, 4, 4);
    m = session_open(copy, EXACT, 64, 1);
    feed(m, 0, 0, 0, 9, got);
    CHECK_NEAR(max_difference(got, want, VOCAB), 0, 0);
    model_close(m);
    write_listed(copy, path, 3, 4);
    assert_int_equal(session_try(&m, copy, EXACT, 64, 1, &why), ERR_FORMAT);
    assert_non_null(strstr(why.message, "recurrent_layers': expected 4 values, one per layer, file has 3"));
    unlink(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_states), cmocka_unit_test(test_failed_pass),
                                        cmocka_unit_test(test_plan),
                                        cmocka_unit_test(test_recurrent_layers) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
