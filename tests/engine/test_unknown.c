/* Proves: a model file with one metadata key or one tensor that nothing uses is refused by its name, for
 * every golden model; with force=on it runs and is marked. Golden models themselves have nothing unknown.
 * Every row of ARCH_KEYS does what it says. */
#include <math.h>

#include "engine/arch/arch.h"
#include "engine/gguf/gguf.h"
#include "tests/engine/golden.h"

#define KEY    "attention.unheard_of"
#define TENSOR "blk.0.attn_unheard_of.weight"

struct addition {
    const char *key; /* NULL: none */
    double value;
    const char *tensor; /* NULL: none */
};

/* Copy the model to `path` with the additions; keys that are already there are left out. */
static void write_copy(const char *path, const struct gguf *g, const struct addition *a)
{
    struct err why = { 0 };
    struct gguf_writer *w;
    const int64_t one = 1;
    const float value = 1;
    CHECK_OK(gguf_writer_open(&w, path, &why));
    for (int64_t i = 0; i < gguf_kv_count(g); i++)
        if (!a->key || !gguf_string_is(gguf_kv_at(g, i)->key, a->key))
            gguf_writer_copy_kv(w, gguf_kv_at(g, i));
    if (a->key) gguf_writer_put_f32(w, a->key, (float)a->value);
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        gguf_writer_add_tensor(w, t->name, t->format, t->dims, t->shape);
    }
    if (a->tensor) gguf_writer_add_tensor(w, a->tensor, &FORMATS[FORMAT_F32], 1, &one);
    for (int64_t i = 0; i < gguf_tensor_count(g); i++)
        gguf_writer_write(w, gguf_tensor_at(g, i)->data, gguf_tensor_at(g, i)->bytes, &why);
    if (a->tensor) gguf_writer_write(w, &value, sizeof value, &why);
    CHECK_OK(gguf_writer_commit(w, &why));
}

static void copy_path(char *buf, size_t size)
{
    const char *folder = getenv("TMPDIR");
    snprintf(buf, size, "%s/test_unknown.%d.gguf", folder ? folder : "/tmp", (int)getpid());
}

/* Without force the copy is refused by the name of the addition, with force it runs and is marked. */
static void check_copy(const struct entry *e, const char *path, const char *name)
{
    struct err why = { 0 };
    struct model *m;
    const enum err_code rc = session_try(&m, path, EXACT, e->ctx, 1, &why);
    if (rc != ERR_FORMAT) fail_msg("%s with '%s': want a refusal, got %d %s", e->name, name, rc, why.message);
    if (!strstr(why.message, name) || !strstr(why.message, "--force"))
        fail_msg("%s: the refusal does not name '%s' and --force: %s", e->name, name, why.message);
    m = session_open(path, EXACT ",force=on", e->ctx, 1);
    CHECK_EQ(model_shape(m)->unknown, 1);
    model_close(m);
}

static void check_entry(const struct entry *e)
{
    struct err why = { 0 };
    struct gguf *g;
    char path[4096], key[ARCH_KEY_NAME];
    struct model *m = session_open(e->model, EXACT, e->ctx, 1);
    CHECK_EQ(model_shape(m)->unknown, 0);
    model_close(m);
    CHECK_OK(gguf_open(&g, e->model, &why));
    copy_path(path, sizeof path);
    snprintf(key, sizeof key, "%s.%s", e->arch, KEY);
    write_copy(path, g, &(struct addition){ .key = key, .value = 1 });
    check_copy(e, path, key);
    write_copy(path, g, &(struct addition){ .tensor = TENSOR });
    check_copy(e, path, TENSOR);
    unlink(path);
    gguf_close(g);
}

static void test_golden(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, GOLDEN "manifest.json");
    assert_in_range(for_entries(true, check_entry), GOLDEN_LEAST, GOLDEN_MOST);
    assert_in_range(for_entries_of(GOLDEN_2, true, check_entry), GOLDEN_2_LEAST, GOLDEN_MOST);
}

static void test_golden_of_this_checkout(void **state)
{
    (void)state;
    assert_int_equal(for_entries_of(GOLDEN_3, true, check_entry), GOLDEN_3_LEAST);
}

/* Number of unknown parts of `model` (a golden file) with the addition. */
static int unknown_with(const char *model, const struct addition *a)
{
    struct err why = { 0 };
    struct gguf *g, *copy;
    struct model_shape s;
    char path[4096];
    CHECK_OK(gguf_open(&g, model, &why));
    copy_path(path, sizeof path);
    write_copy(path, g, a);
    gguf_close(g);
    CHECK_OK(gguf_open(&copy, path, &why));
    CHECK_OK(model_shape_read(&s, copy, &why));
    gguf_close(copy);
    unlink(path);
    return s.unknown;
}

/* Rows that are not used accept the neutral value only, harmless ones any. */
static void test_rows(void **state)
{
    (void)state;
    char llama[4096], key[ARCH_KEY_NAME];
    SHARED_OR_SKIP(llama, GOLDEN "llama-gqa.gguf");
    for (size_t i = 0; i < ARCH_KEY_COUNT; i++) {
        const struct arch_key_row *r = &ARCH_KEYS[i];
        assert_non_null(r->name);
        if (i < META_READ_COUNT) {
            assert_non_null(r->used);
            continue;
        }
        assert_null(r->used);
        snprintf(key, sizeof key, "llama.%s", r->name);
        if (r->harmless) {
            CHECK_EQ(unknown_with(llama, &(struct addition){ .key = key, .value = 7 }), 0);
            continue;
        }
        CHECK_EQ(unknown_with(llama, &(struct addition){ .key = key, .value = r->neutral }), 0);
        CHECK_EQ(unknown_with(llama, &(struct addition){ .key = key, .value = r->neutral + 1 }), 1);
    }
}

/* The same key is used in one architecture and unknown in another. */
static void test_by_architecture(void **state)
{
    (void)state;
    static const struct {
        const char *model, *key;
        double value;
        int unknown;
    } CASES[] = {
        { GOLDEN "llama-gqa.gguf", "llama.attention.sliding_window", 0, 0 },
        { GOLDEN "llama-gqa.gguf", "llama.attention.sliding_window", 8, 1 },
        { GOLDEN "gemma2.gguf", "gemma2.attention.sliding_window", 8, 0 },
        { GOLDEN "gpt2.gguf", "gpt2.rope.freq_base", 500, 1 },
        { GOLDEN "llama-gqa.gguf", "llama.rope.freq_base", 500, 0 },
        { GOLDEN "llama-rope-yarn.gguf", "llama.rope.scaling.attn_factor", 1.2, 1 },
        { GOLDEN "llama-rope-linear.gguf", "llama.rope.scaling.attn_factor", 1.2, 0 },
        { GOLDEN "llama-gqa.gguf", "gemma2.attention.unheard_of", 1, 0 }, /* another architecture's prefix */
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        char path[4096];
        data_path(path, sizeof path, "%s", CASES[i].model);
        if (unknown_with(path, &(struct addition){ .key = CASES[i].key, .value = CASES[i].value }) !=
            CASES[i].unknown)
            fail_msg("%s with %s=%g: want %d unknown", CASES[i].model, CASES[i].key, CASES[i].value,
                     CASES[i].unknown);
    }
}

static void test_tensors(void **state)
{
    (void)state;
    char r[4096], llama[4096];
    SHARED_OR_SKIP(r, GOLDEN "command-r.gguf");
    SHARED_OR_SKIP(llama, GOLDEN "llama-gqa.gguf");
    CHECK_EQ(unknown_with(r, &(struct addition){ .tensor = "blk.0.attn_sinks.weight" }), 1);
    CHECK_EQ(unknown_with(llama, &(struct addition){ .tensor = "blk.99.attn_q.weight" }), 1);
    CHECK_EQ(unknown_with(llama, &(struct addition){ .tensor = "blk.0.attn_rot_embd.weight" }), 0);
    CHECK_EQ(unknown_with(llama, &(struct addition){ .tensor = "blk.0.attn_q.weight.order" }), 0);
    CHECK_EQ(unknown_with(llama, &(struct addition){ .tensor = "blk.0.unheard_of.weight.order" }), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),  cmocka_unit_test(test_golden_of_this_checkout),
        cmocka_unit_test(test_rows),    cmocka_unit_test(test_by_architecture),
        cmocka_unit_test(test_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
