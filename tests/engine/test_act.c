/* Proves: activation quantization that a file declares, per matrix and per format, is read back as it was
 * written; a file whose companion tensors are invalid is refused with a message that names the tensor. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/arch/arch.h"
#include "engine/gguf/gguf.h"
#include "kernels/kernels.h"
#include "tests/check.h"

enum { ROWS = 3, COLS = 32 };

static const char MATRIX[] = "blk.0.attn_q.weight";

/* One companion tensor of the file under test. */
struct side {
    enum companion_kind what;
    int64_t n;
    float value[COLS];
    bool as_f16; /* in the wrong type */
};

static struct gguf *make_file(const struct act_scheme *act, const struct side *sides, int count)
{
    struct err why = { 0 };
    struct gguf_writer *w;
    struct gguf *g;
    char path[] = "/tmp/qdyno-test-act-XXXXXX", name[160];
    const int fd = mkstemp(path);
    CHECK_LE(0, fd);
    close(fd);
    CHECK_OK(gguf_writer_open(&w, path, &why));
    if (act) CHECK_OK(act_put(w, act, &FORMATS[FORMAT_INT8]));
    const int64_t shape[] = { COLS, ROWS };
    gguf_writer_add_tensor(w, MATRIX, &FORMATS[FORMAT_INT8], 2, shape);
    gguf_writer_add_tensor(w, "blk.0.attn_k.weight", &FORMATS[FORMAT_F16], 2, shape);
    for (int i = 0; i < count; i++) {
        const struct format *f = sides[i].as_f16 ? &FORMATS[FORMAT_F16] : companion_format(sides[i].what);
        gguf_writer_add_tensor(w, companion_name(MATRIX, sides[i].what, name, sizeof name), f, 1,
                               &sides[i].n);
    }
    const float zeros[ROWS * COLS] = { 0 };
    unsigned char bytes[4 * ROWS * COLS];
    format_encode_rows(&FORMATS[FORMAT_INT8], zeros, bytes, ROWS, COLS);
    CHECK_OK(gguf_writer_write(w, bytes, ROWS * format_row_bytes(&FORMATS[FORMAT_INT8], COLS), &why));
    format_encode_rows(&FORMATS[FORMAT_F16], zeros, bytes, ROWS, COLS);
    CHECK_OK(gguf_writer_write(w, bytes, ROWS * format_row_bytes(&FORMATS[FORMAT_F16], COLS), &why));
    for (int i = 0; i < count; i++) {
        const struct format *f = sides[i].as_f16 ? &FORMATS[FORMAT_F16] : companion_format(sides[i].what);
        f->encode(sides[i].value, bytes, sides[i].n);
        CHECK_OK(gguf_writer_write(w, bytes, format_row_bytes(f, sides[i].n), &why));
    }
    CHECK_OK(gguf_writer_commit(w, &why));
    CHECK_OK(gguf_open(&g, path, &why));
    unlink(path);
    return g;
}

static struct input_scheme *read_of(const struct gguf *g, const char *matrix)
{
    struct err why = { 0 };
    struct input_scheme *s;
    CHECK_OK(act_read(&s, g, gguf_tensor_find(g, matrix), &why));
    return s;
}

static void test_nothing_said(void **state)
{
    (void)state;
    struct gguf *g = make_file(NULL, NULL, 0);
    assert_null(read_of(g, MATRIX));
    gguf_close(g);
    g = make_file(&(struct act_scheme){ .kind = INPUT_FREE }, NULL, 0);
    CHECK_LE(gguf_kv_count(g), 2);
    CHECK(!gguf_kv_find(g, "qdyno.act")); /* alignment, own formats */
    assert_null(read_of(g, MATRIX));
    gguf_close(g);
}

static void test_kinds(void **state)
{
    (void)state;
    for (int k = INPUT_FREE + 1; k < INPUT_KIND_COUNT; k++) {
        const struct side scale = { COMPANION_INPUT_SCALE, 3, { 0.125f, 117, 127 }, false };
        const struct act_scheme act = { (enum input_kind)k, 6.5f, 1200 };
        struct gguf *g = make_file(&act, &scale, 1);
        struct input_scheme *s = read_of(g, MATRIX);
        CHECK(s);
        CHECK_EQ(s->kind, (enum input_kind)k);
        CHECK_NEAR(s->threshold, 6.5f, 0);
        CHECK_NEAR(s->limit, 1200, 0);
        if (k == INPUT_INT8_STATIC) {
            CHECK_EQ(s->scale, 0.125f);
            CHECK_EQ(s->zero, 117);
            CHECK_EQ(s->most, 127);
        }
        assert_null(read_of(g, "blk.0.attn_k.weight")); /* another format: not the method's */
        act_free(s);
        gguf_close(g);
    }
}

static void test_sides(void **state)
{
    (void)state;
    struct side sides[] = { { .what = COMPANION_ORDER, .n = COLS },
                            { .what = COMPANION_DIVISORS, .n = COLS } };
    for (int i = 0; i < COLS; i++) {
        sides[0].value[i] = (float)((i * 5 + 3) % COLS);
        sides[1].value[i] = 0.5f + (float)i;
    }
    struct gguf *g = make_file(NULL, sides, 2);
    struct input_scheme *s = read_of(g, MATRIX);
    CHECK(s);
    CHECK_EQ(s->kind, INPUT_FREE);
    for (int i = 0; i < COLS; i++) {
        CHECK_EQ(s->order[i], (i * 5 + 3) % COLS);
        CHECK_EQ(s->divide[i], 0.5f + (float)i);
    }
    act_free(s);
    gguf_close(g);

    const struct act_scheme act = { INPUT_INT8_OUTLIERS, 6, 0 };
    const struct side kept[] = { { COMPANION_OUTLIERS, 2, { 4, 30 }, false },
                                 { COMPANION_OUTLIER_WEIGHTS, 2 * ROWS, { 1, 2, 3, 4, 5, 6 }, false } };
    g = make_file(&act, kept, 2);
    s = read_of(g, MATRIX);
    CHECK(s);
    CHECK_EQ(s->outlier_count, 2);
    CHECK_EQ(s->outliers[0], 4);
    CHECK_EQ(s->outliers[1], 30);
    CHECK_NEAR(f16_to_f32(s->outlier_weights[5]), 6, 0);
    act_free(s);
    gguf_close(g);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        enum input_kind kind;
        struct side side;
        const char *says;
    } CASES[] = {
        { INPUT_FREE, { COMPANION_ORDER, COLS - 1, { 0 }, false }, "expected 32 values" },
        { INPUT_FREE, { COMPANION_ORDER, COLS, { 0 }, true }, "expected 32 values of f32" },
        { INPUT_FREE,
          { COMPANION_ORDER, COLS, { 0 }, false },
          "order': value 1 is 0, which occurs twice" }, /* all the same */
        { INPUT_FREE, { COMPANION_ORDER, COLS, { 32 }, false }, "is 32, which is no column" },
        { INPUT_FREE, { COMPANION_ORDER, COLS, { 0.5f }, false }, "is 0.5, which is no column" },
        { INPUT_FREE, { COMPANION_ORDER, COLS, { -1 }, false }, "is -1, which is no column" },
        { INPUT_FREE, { COMPANION_DIVISORS, COLS, { 0 }, false }, "divisor of its inputs is 0" },
        { INPUT_FREE, { COMPANION_DIVISORS, COLS, { __builtin_inff() }, false }, "not a finite" },
        { INPUT_INT8_STATIC, { COMPANION_DIVISORS, 1, { 1 }, false }, "expected 32 values" },
        { INPUT_INT8_STATIC, { COMPANION_INPUT_SCALE, 3, { 0, 5, 255 }, false }, "out of range" },
        { INPUT_INT8_STATIC, { COMPANION_INPUT_SCALE, 3, { 1, 128, 127 }, false }, "out of range" },
        { INPUT_INT8_STATIC, { COMPANION_INPUT_SCALE, 3, { 1, 5, 256 }, false }, "out of range" },
        { INPUT_INT8_STATIC, { COMPANION_INPUT_SCALE, 1, { 1 }, false }, "expected 3 values" },
        { INPUT_INT8_STATIC, { COMPANION_OUTLIERS, 1, { 1 }, false }, "without a scale" },
        { INPUT_INT8_OUTLIERS, { COMPANION_OUTLIERS, 1, { 1 }, false }, "without their weights" },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct err why = { 0 };
        struct input_scheme *s;
        const struct act_scheme act = { CASES[i].kind, 0, 0 };
        struct gguf *g = make_file(&act, &CASES[i].side, 1);
        assert_int_equal(act_read(&s, g, gguf_tensor_find(g, MATRIX), &why), ERR_FORMAT);
        assert_null(s);
        if (!strstr(why.message, CASES[i].says))
            fail_msg("case %zu: '%s', want '%s'", i, why.message, CASES[i].says);
        CHECK_CONTAINS(why.message, "blk.0.attn_q.weight");
        gguf_close(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_said),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_sides),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
