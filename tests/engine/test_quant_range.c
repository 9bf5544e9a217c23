/* Proves: no quantized file has a value that is not a finite number. A large weight (7e4 to 3e38) in each
 * format and by each method that uses weights only is stored, or refused with the tensor's name, the value
 * and what to do; an infinity in the source is refused, also in tensors that are copied; --verify does not
 * call an infinity verified; values that fp8 codes clip are counted. Importances of 0, of extreme scale, or
 * damaged, do not turn blocks into zeros. Names the bugs: a weight of 1e5 in f16 was infinite and "verified";
 * columns of importance 0 were written as zeros. */
#include <math.h>

#include "engine/quant/calibration.h"
#include "engine/quant/quant.h"
#include "engine/synth/synth.h"
#include "tests/engine/session.h"

#define TENSOR "blk.0.ffn_up.weight"
enum { PLACE = 100 }; /* of the large weight in TENSOR */

static char folder[64];

static const char *place(const char *name)
{
    static char path[96];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/qdyno-test-range-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    struct err why = { 0 };
    return (int)synth_write(place("m.gguf"),
                            &(struct synth_options){ .arch = "llama",
                                                     .shape = synth_shape_find("tiny"),
                                                     .format = &FORMATS[FORMAT_F32],
                                                     .seed = 3,
                                                     .threads = 1 },
                            &why);
}

static int remove_folder(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static struct gguf *file_of(const char *name)
{
    struct err why = { 0 };
    struct gguf *g;
    CHECK_OK(gguf_open(&g, place(name), &why));
    return g;
}

/* Puts a weight into an f32 tensor of m.gguf. */
static void weight_set(const char *tensor, float value)
{
    struct gguf *g = file_of("m.gguf");
    const struct gguf_tensor *t = gguf_tensor_find(g, tensor), *first = t;
    size_t n;
    char *bytes;
    struct err why = { 0 };
    assert_non_null(t);
    CHECK_OK(file_read(&bytes, &n, place("m.gguf"), 1 << 28, &why));
    int64_t data = (int64_t)n;
    for (int64_t i = 0; i < gguf_tensor_count(g);
         i++) { /* all tensors lie behind each other, to the end of the file */
        const struct gguf_tensor *other = gguf_tensor_at(g, i);
        if (other->data > first->data) first = other;
    }
    data = (int64_t)n - (first->data + first->bytes - t->data);
    gguf_close(g);
    memcpy(bytes + data + PLACE * (int64_t)sizeof value, &value, sizeof value);
    FILE *f = fopen(place("m.gguf"), "wb");
    CHECK(f && fwrite(bytes, 1, n, f) == n && !fclose(f));
    free(bytes);
}

static char warnings[4096];

static void keep_warning(void *ctx, enum log_level level, const char *message)
{
    (void)ctx;
    if (level == LOG_WARN)
        snprintf(warnings + strlen(warnings), sizeof warnings - strlen(warnings), "%s\n", message);
}

static enum err_code quantize(const char *line, struct err *why)
{
    struct config c;
    struct gguf *g = file_of("m.gguf");
    const struct log log = { .sink = keep_warning, .level = LOG_WARN };
    assert_int_equal(config_parse(&c, line, why), ERR_OK);
    warnings[0] = '\0';
    unlink(place("q.gguf"));
    const enum err_code rc = quantize_file(
        place("q.gguf"), g, &(struct quantize_options){ .config = &c, .threads = 2, .log = &log }, why);
    gguf_close(g);
    return rc;
}

/* All values of the tensor in q.gguf. */
static void check_finite(const char *line, float value)
{
    struct gguf *g = file_of("q.gguf");
    const struct gguf_tensor *t = gguf_tensor_find(g, TENSOR);
    const int64_t n = t->shape[0] * t->shape[1];
    float *x = malloc((size_t)n * sizeof *x);
    format_decode_rows(t->format, t->data, x, t->shape[1], t->shape[0]);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            fail_msg("%s with %g: value %lld is %g", line, (double)value, (long long)i, (double)x[i]);
    free(x);
    gguf_close(g);
}

static const float LARGE[] = { 7e4f, 1e5f, 1e6f, -1e9f, 1e20f, 3e38f };

static void is_stored_or_refused(const char *line, float value)
{
    struct err why = { 0 };
    const enum err_code rc = quantize(line, &why);
    if (!rc) {
        check_finite(line, value);
        return;
    }
    char text[32];
    snprintf(text, sizeof text, "%g", (double)value);
    if (rc != ERR_FORMAT || !strstr(why.message, TENSOR) || !strstr(why.message, text) ||
        !strstr(why.message, "bf16") || !access(place("q.gguf"), F_OK))
        fail_msg("%s with %s: status %d, '%s'", line, text, rc, why.message);
}

static void each_format(void **state)
{
    (void)state;
    for (size_t v = 0; v < COUNT_OF(LARGE); v++) {
        weight_set(TENSOR, LARGE[v]);
        for (int i = 0; i < FORMAT_COUNT; i++) {
            char line[64];
            struct config c;
            snprintf(line, sizeof line, "tensors=ffn_up:%s", FORMATS[i].name);
            if (!FORMATS[i].encode || FORMATS[i].needs_importance || config_parse(&c, line, NULL)) continue;
            is_stored_or_refused(line, LARGE[v]);
        }
    }
}

static void each_method(void **state)
{
    static const char *const LINES[] = { "q8_0", "hqq,bits=4", "hqq,bits=8",      "int8",
                                         "fp8",  "nf4",        "gguf,type=q4_K_M" };
    (void)state;
    for (size_t v = 0; v < COUNT_OF(LARGE); v++) {
        weight_set(TENSOR, LARGE[v]);
        for (size_t i = 0; i < COUNT_OF(LINES); i++) {
            struct config c;
            struct err why = { 0 };
            CHECK_OK(config_parse(&c, LINES[i], &why));
            is_stored_or_refused(LINES[i], LARGE[v]);
        }
    }
}

/* What must be an error, and what must not. */
static void known_ranges(void **state)
{
    static const struct {
        const char *format;
        float value;
        bool stored;
    } CASES[] = { { "f16", 65504, true },   { "f16", 1e5f, false },  { "q4_1", 1e6f, false },
                  { "q8_0", 1e6f, true },   { "q8_0", 1e9f, false }, { "q4_0", 1e6f, false },
                  { "tq2_0", 1e5f, false }, { "bf16", 3e38f, true }, { "f32", 3e38f, true } };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        char line[64];
        struct err why = { 0 };
        weight_set(TENSOR, CASES[i].value);
        snprintf(line, sizeof line, "tensors=ffn_up:%s", CASES[i].format);
        const enum err_code rc = quantize(line, &why);
        if (!rc != CASES[i].stored)
            fail_msg("%s with %g: status %d, '%s'", CASES[i].format, (double)CASES[i].value, rc, why.message);
        if (rc) CHECK_CONTAINS(why.message, "tensors=blk.0.ffn_up:bf16");
    }
}

static void infinities_of_the_source(void **state)
{
    static const float VALUES[] = { NAN, INFINITY, -INFINITY };
    static const char *const LINES[] = { "tensors=ffn_up:q8_0", "tensors=attn_q:q8_0",
                                         "tensors=ffn_up:bf16" };
    (void)state;
    for (size_t v = 0; v < COUNT_OF(VALUES); v++) {
        weight_set(TENSOR, VALUES[v]);
        for (size_t i = 0; i < COUNT_OF(LINES); i++) { /* converted, and copied */
            struct err why = { 0 };
            CHECK_EQ(quantize(LINES[i], &why), ERR_FORMAT);
            CHECK_CONTAINS(why.message, TENSOR);
            CHECK_CONTAINS(why.message, "not a finite number");
        }
    }
    weight_set(TENSOR, 0.5f);
}

static void clipped_values_are_counted(void **state)
{
    struct err why = { 0 };
    (void)state;
    weight_set(TENSOR, 1e5f);
    CHECK_OK(quantize("tensors=ffn_up:nvfp4", &why));
    CHECK_CONTAINS(warnings, "tensor '" TENSOR "': 1 values are beyond the range of nvfp4");
    weight_set(TENSOR, 0.5f);
    CHECK_OK(quantize("tensors=ffn_up:nvfp4", &why));
    CHECK_STR(warnings, "");
}

/* ---------------------------------------------------------------- importance */

enum { COLS = 512, ROWS = 16 };

/* A legacy importance matrix of one tensor. */
static struct calibration *calibration_of(const float *mean, struct err *why, enum err_code want)
{
    static const char NAME[] = TENSOR;
    struct str s = { 0 };
    struct calibration *c = NULL;
    const int32_t head[] = { 1, sizeof NAME - 1 }, counts[] = { 1, COLS };
    str_append_n(&s, head, sizeof head);
    str_append_n(&s, NAME, sizeof NAME - 1);
    str_append_n(&s, counts, sizeof counts);
    str_append_n(&s, mean, COLS * sizeof *mean);
    CHECK_EQ(calibration_load_memory(&c, str_text(&s), s.len, why), want);
    str_free(&s);
    return c;
}

static float weights[ROWS * COLS], back[ROWS * COLS];
static unsigned char encoded[2][ROWS * COLS * 4];

/* The mean squared error of the weights, relative to their mean square. */
static double error_with(const struct format *f, const float *mean, unsigned char *out)
{
    struct err why = { 0 };
    struct calibration *c = calibration_of(mean, &why, ERR_OK);
    const struct calibration_input *in = calibration_find(c, TENSOR);
    double error = 0, all = 0;
    format_encode_weighted(f, weights, calibration_importance(in, COLS, 0), out, ROWS, COLS);
    format_decode_rows(f, out, back, ROWS, COLS);
    for (int i = 0; i < ROWS * COLS; i++) {
        error += ((double)back[i] - (double)weights[i]) * ((double)back[i] - (double)weights[i]);
        all += (double)weights[i] * (double)weights[i];
    }
    calibration_close(c);
    return error / all;
}

static void importances_of_zero(void **state)
{
    float ordinary[COLS], some[COLS], none[COLS] = { 0 }, one[COLS] = { 0 };
    (void)state;
    srand(1);
    for (int i = 0; i < ROWS * COLS; i++) weights[i] = (float)(rand() % 2001 - 1000) * 1e-4f;
    for (int i = 0; i < COLS; i++) ordinary[i] = 0.5f + (float)(rand() % 100) * 0.01f;
    memcpy(some, ordinary, sizeof some);
    memset(some, 0, 256 * sizeof *some);
    for (int i = 300; i < 330; i++) some[i] = 0;
    one[5] = 1;
    for (int i = 0; i < FORMAT_COUNT; i++) {
        const struct format *f = &FORMATS[i];
        if (!f->weighted || !f->encode) continue;
        const double usual = error_with(f, ordinary, encoded[0]), limit = 3 * usual + 1e-4;
        /* where one column counts alone, its block serves it first; a block of zeros would add 1/16 */
        if (!(error_with(f, some, encoded[1]) < limit) || !(error_with(f, none, encoded[1]) < limit) ||
            !(error_with(f, one, encoded[1]) < limit + 0.03))
            fail_msg("%s: error %g, with zeros %g, with zeros only %g, with one column %g", f->name, usual,
                     error_with(f, some, encoded[1]), error_with(f, none, encoded[1]),
                     error_with(f, one, encoded[1]));
    }
}

/* A scale of all importances changes no byte. */
static void importances_of_any_scale(void **state)
{
    static const int POWERS[] = { -100, -60, 60, 100 };
    float ordinary[COLS], scaled[COLS];
    (void)state;
    srand(2);
    for (int i = 0; i < COLS; i++) ordinary[i] = 0.5f + (float)(rand() % 100) * 0.01f;
    for (int i = 0; i < FORMAT_COUNT; i++) {
        const struct format *f = &FORMATS[i];
        if (!f->weighted || !f->encode) continue;
        error_with(f, ordinary, encoded[0]);
        for (size_t p = 0; p < COUNT_OF(POWERS); p++) {
            for (int k = 0; k < COLS; k++) scaled[k] = ldexpf(ordinary[k], POWERS[p]);
            error_with(f, scaled, encoded[1]);
            if (memcmp(encoded[0], encoded[1], (size_t)(ROWS * format_row_bytes(f, COLS))) != 0)
                fail_msg("%s: a scale of 2^%d changes bytes", f->name, POWERS[p]);
        }
    }
}

static void damaged_importances(void **state)
{
    static const float BAD[] = { NAN, INFINITY, -INFINITY, -1 };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(BAD); i++) {
        float mean[COLS] = { 1 };
        struct err why = { 0 };
        mean[7] = BAD[i];
        assert_null(calibration_of(mean, &why, ERR_FORMAT));
        CHECK_CONTAINS(why.message, TENSOR);
        CHECK_CONTAINS(why.message, "column 7");
    }
    float mean[COLS] = { 1 };
    struct err why = { 0 };
    struct calibration *c = calibration_of(mean, &why, ERR_OK);
    CHECK_EQ(calibration_find(c, TENSOR)->floored, COLS - 1);
    CHECK_EQ(calibration_find(c, TENSOR)->mean_square[1], 0); /* the statistics stay what they are */
    CHECK(calibration_importance(calibration_find(c, TENSOR), COLS, 0)[1] > 0);
    calibration_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_format),
        cmocka_unit_test(each_method),
        cmocka_unit_test(known_ranges),
        cmocka_unit_test(infinities_of_the_source),
        cmocka_unit_test(clipped_values_are_counted),
        cmocka_unit_test(importances_of_zero),
        cmocka_unit_test(importances_of_any_scale),
        cmocka_unit_test(damaged_importances),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
