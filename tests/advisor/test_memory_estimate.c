/* Proves: the memory estimate equals sums worked by hand (shared heads, sliding windows, experts of which
 * some are active per token), also for a shape without a file, and agrees with the loader's own plan where
 * there is one. */
#include "tests/advisor/shape_file.h"
#include "engine/quant/quant.h"
#include "engine/synth/synth.h"

struct at {
    char dir[256], path[300];
};

static int set_up(void **state)
{
    struct at *a = calloc(1, sizeof *a);
    if (!a) return -1;
    scratch(a->dir, sizeof a->dir);
    snprintf(a->path, sizeof a->path, "%s/m.gguf", a->dir);
    *state = a;
    return 0;
}

static int tear_down(void **state)
{
    struct at *a = *state;
    unlink(a->path);
    rmdir(a->dir);
    free(a);
    return 0;
}

static const struct shape_file SHAPE = { .arch = "llama",
                                         .format = &FORMATS[FORMAT_F16],
                                         .layers = 4,
                                         .heads = 8,
                                         .kv_heads = 2,
                                         .embd = 512,
                                         .ff = 1024,
                                         .vocab = 1000,
                                         .ctx = 2048 };

static struct memory_estimate estimate_of(const char *path, const struct shape_file *s, int64_t ctx)
{
    struct memory_estimate l;
    struct gguf *g = NULL;
    struct err why = { 0 };
    shape_file_write(path, s);
    CHECK_OK(gguf_open(&g, path, &why));
    CHECK_OK(memory_estimate_read(&l, g, ctx, &FORMATS[FORMAT_F16], &FORMATS[FORMAT_Q8_0], &why));
    gguf_close(g);
    return l;
}

static void shared_heads_and_the_plan(void **state)
{
    const struct at *a = *state;
    const struct memory_estimate l = estimate_of(a->path, &SHAPE, 1024);
    /* two heads of 64: K in f16, V in blocks of 34 bytes for 32 */
    assert_int_equal(l.kv_bytes_per_token, 4 * (2 * 64 * 2 + 2 * 2 * 34));
    assert_int_equal(l.kv_bytes, 1024 * l.kv_bytes_per_token);
    assert_int_equal(l.kv_window_bytes, l.kv_bytes);
    CHECK_NEAR(l.kv_heads, 2, 0);
    CHECK_NEAR(l.heads, 8, 0);
    CHECK(!l.experts);
    CHECK(!l.windowed_layers);
    const int64_t layer = 2 * (512 * 512 * 2 + 2 * 512 * 128 + 3 * 512 * 1024) + 2 * 4 * 512;
    assert_int_equal(l.weight_bytes, 4 * layer + 2 * 2 * 512 * 1000 + 4 * 512);
    assert_int_equal(l.read_bytes, l.weight_bytes - 2 * 512 * 999); /* one row of the embedding */
    struct gguf *g = NULL;
    struct config c;
    struct memory_plan p;
    struct err why = { 0 };
    CHECK_OK(gguf_open(&g, a->path, &why));
    CHECK_OK(config_parse(&c, "ctk=f16,ctv=q8_0", &why));
    CHECK_OK(recipe_plan_memory(&p, g, &c, 1024, 1, &why));
    gguf_close(g);
    assert_int_equal(p.kv_bytes_per_token, l.kv_bytes_per_token);
    assert_int_equal(p.decode_read_bytes, l.read_bytes);
    assert_int_equal(p.weights, l.weight_bytes);
}

static void windows_and_experts(void **state)
{
    const struct at *a = *state;
    struct shape_file s = SHAPE;
    /* in an architecture that this engine does not know, every layer has the window */
    s.arch = "some-new-one";
    s.window = 256;
    const struct memory_estimate w = estimate_of(a->path, &s, 1024);
    CHECK_NEAR(w.windowed_layers, 4, 0);
    CHECK_NEAR(w.window, 256, 0);
    assert_int_equal(w.kv_window_bytes, w.kv_bytes / 4);
    s = SHAPE;
    s.experts = 8;
    s.experts_used = 2;
    const struct memory_estimate e = estimate_of(a->path, &s, 1024);
    const struct memory_estimate plain = estimate_of(a->path, &SHAPE, 1024);
    const int64_t expert = 2 * 3 * 512 * 1024, router = 4 * 512 * 8;
    assert_int_equal(e.expert_bytes, 4 * 8 * expert);
    assert_int_equal(e.weight_bytes, plain.weight_bytes + 4 * (7 * expert + router));
    assert_int_equal(e.read_bytes, plain.read_bytes + 4 * (expert + router));
    CHECK_NEAR(e.experts, 8, 0);
    CHECK_NEAR(e.experts_used, 2, 0);
    CHECK_EQ(e.kv_bytes, plain.kv_bytes);
}

static void shapes_that_are_no_file(void **state)
{
    const struct at *a = *state;
    struct memory_estimate l;
    struct err why = { 0 };
    const struct synth_options o = { .arch = "llama",
                                     .shape = synth_shape_find("tiny"),
                                     .seed = 1,
                                     .threads = 1,
                                     .format = &FORMATS[FORMAT_Q4_0] };
    CHECK_OK(synth_write(a->path, &o, &why));
    memory_estimate_of(&l, o.shape, o.format, 512, &FORMATS[FORMAT_F16], &FORMATS[FORMAT_F16]);
    struct gguf *g = NULL;
    struct memory_estimate file;
    CHECK_OK(gguf_open(&g, a->path, &why));
    CHECK_OK(memory_estimate_read(&file, g, 512, &FORMATS[FORMAT_F16], &FORMATS[FORMAT_F16], &why));
    gguf_close(g);
    assert_int_equal(l.kv_bytes, file.kv_bytes);
    CHECK_NEAR((double)l.weight_bytes / (double)file.weight_bytes, 1, 0.01); /* except for its last norm */
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = { T(shared_heads_and_the_plan), T(windows_and_experts),
                                        T(shapes_that_are_no_file) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
