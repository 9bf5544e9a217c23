/* Proves: a scale that a file stores beside a matrix multiplies its products, in dense layers (one number)
 * and experts (one number, or one for each), with few and with many rows. Matrices divided by powers of two,
 * with these as scales, give the bits of the original model. Scales of a wrong size, of 0 or not a number are
 * refused by name, and scales of inputs are accepted. */
#include "engine/arch/arch.h"
#include "engine/gguf/gguf.h"
#include "tests/engine/session.h"

enum { TOKENS = 40, CTX = 64 };

/* What is stored beside each matrix of a layer: `values` numbers (0: one for each expert). */
struct stored {
    const char *end; /* ".scale" */
    int values;
    float first; /* 0: a power of two, by which the matrix is divided; else this value, and nothing is divided
                  */
};

static float scale_of(int64_t matrix)
{
    return (float)(2 << matrix % 3);
}

static bool gets_scale(const struct gguf_tensor *t)
{
    return !strncmp(t->name, "blk.", 4) && t->dims >= 2 && t->shape[1] > 1 && str_ends(t->name, ".weight") &&
           !strstr(t->name, "ffn_gate_inp") && t->format == &FORMATS[FORMAT_F32];
}

static int64_t scale_count(const struct gguf_tensor *t, const struct stored *s)
{
    return s->values ? s->values : t->shape[2];
}

/* The matrix divided by what is stored beside it, then that. */
static void write_matrix(struct gguf_writer *w, const struct gguf_tensor *t, const struct stored *s)
{
    struct err why = { 0 };
    const int64_t n = t->bytes / 4, each = t->shape[0] * t->shape[1], count = scale_count(t, s);
    float *x = malloc((size_t)t->bytes), *scale = malloc((size_t)count * sizeof *scale);
    memcpy(x, t->data, (size_t)t->bytes);
    for (int64_t i = 0; i < n && s->first == 0; i++) x[i] /= scale_of(count > 1 ? i / each : 0);
    for (int64_t i = 0; i < count; i++) scale[i] = s->first != 0 ? s->first : scale_of(i);
    CHECK_OK(gguf_writer_write(w, x, t->bytes, &why));
    CHECK_OK(gguf_writer_write(w, scale, count * 4, &why));
    free(x);
    free(scale);
}

static void write_copy(const char *path, const char *model, const struct stored *s)
{
    struct err why = { 0 };
    struct gguf *g;
    struct gguf_writer *w;
    char name[128];
    CHECK_OK(gguf_open(&g, model, &why));
    CHECK_OK(gguf_writer_open(&w, path, &why));
    for (int64_t i = 0; i < gguf_kv_count(g); i++) gguf_writer_copy_kv(w, gguf_kv_at(g, i));
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        gguf_writer_add_tensor(w, t->name, t->format, t->dims, t->shape);
        if (!gets_scale(t)) continue;
        const int64_t count = scale_count(t, s);
        snprintf(name, sizeof name, "%.*s%s", (int)(strlen(t->name) - strlen(".weight")), t->name, s->end);
        gguf_writer_add_tensor(w, name, &FORMATS[FORMAT_F32], 1, &count);
    }
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (gets_scale(t))
            write_matrix(w, t, s);
        else
            CHECK_OK(gguf_writer_write(w, t->data, t->bytes, &why));
    }
    CHECK_OK(gguf_writer_commit(w, &why));
    gguf_close(g);
}

/* Logits of the last of n tokens in one batch, and then of one more token. *out owned. */
static int run(const char *path, int n, float **out)
{
    struct err why = { 0 };
    struct batch_row rows[TOKENS];
    int32_t ids[TOKENS + 1];
    struct model *m = session_open(path, EXACT, CTX, 1);
    const int vocab = model_shape(m)->vocab;
    for (int i = 0; i <= n; i++) ids[i] = 3 + i * 7 % 50;
    *out = malloc(2 * (size_t)vocab * sizeof **out);
    rows_of(rows, ids, n, 0, 0);
    CHECK_OK(model_forward(m, rows, n, &why));
    memcpy(*out, model_logits(m, n - 1), (size_t)vocab * sizeof **out);
    rows_of(rows, ids + n, 1, 0, n);
    CHECK_OK(model_forward(m, rows, 1, &why));
    memcpy(*out + vocab, model_logits(m, 0), (size_t)vocab * sizeof **out);
    model_close(m);
    return 2 * vocab;
}

static void copy_path(char *buf, size_t size)
{
    const char *folder = getenv("TMPDIR");
    snprintf(buf, size, "%s/test_matrix_scale.%d.gguf", folder ? folder : "/tmp", (int)getpid());
}

static void same_logits(const char *model, const struct stored *s)
{
    char path[512];
    float *want, *got;
    copy_path(path, sizeof path);
    write_copy(path, model, s);
    const int n = run(model, TOKENS, &want);
    CHECK_EQ(run(path, TOKENS, &got), n);
    CHECK_NEAR(max_difference(want, got, n), 0, 1e-6);
    unlink(path);
    free(want);
    free(got);
}

#define DENSE   "arch-golden/llama-gqa.gguf"
#define EXPERTS "arch-golden/llama-moe.gguf"

static void scales_multiply(void **state)
{
    (void)state;
    char dense[4096], experts[4096];
    SHARED_OR_SKIP(dense, DENSE);
    SHARED_OR_SKIP(experts, EXPERTS);
    same_logits(dense, &(struct stored){ ".scale", 1, 0 });
    same_logits(dense, &(struct stored){ ".weight.scale", 1, 0 });
    same_logits(dense, &(struct stored){ ".input_scale", 1, 3 });
    same_logits(experts, &(struct stored){ ".scale", 1, 0 });
    same_logits(experts, &(struct stored){ ".scale", 0, 0 });
}

static void bad_scales(void **state)
{
    (void)state;
    static const struct {
        struct stored s;
        const char *message;
    } CASES[] = {
        { { ".scale", 2, 1 }, "expected 1 values of f32, found 2" },
        { { ".scale", 1, INFINITY }, "expected a finite number other than 0" },
    };
    char dense[4096], path[512];
    SHARED_OR_SKIP(dense, DENSE);
    copy_path(path, sizeof path);
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct err why = { 0 };
        struct model *m;
        write_copy(path, dense, &CASES[i].s);
        CHECK_EQ(session_try(&m, path, EXACT, CTX, 1, &why), ERR_FORMAT);
        CHECK_CONTAINS(why.message, CASES[i].message);
        CHECK_CONTAINS(why.message, ".scale'");
        unlink(path);
    }
}

static void names(void **state)
{
    (void)state;
    char matrix[64];
    CHECK(matrix_scale_is("blk.0.ffn_up.scale", matrix, sizeof matrix));
    assert_string_equal(matrix, "blk.0.ffn_up.weight");
    CHECK(matrix_scale_is("blk.0.ffn_up.weight.input_scale", matrix, sizeof matrix));
    assert_string_equal(matrix, "blk.0.ffn_up.weight");
    CHECK(!matrix_scale_is("blk.0.ffn_up.weight", matrix, sizeof matrix));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(scales_multiply),
        cmocka_unit_test(bad_scales),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
