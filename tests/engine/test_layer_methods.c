/* Proves, for methods that work on whole layers: on a trained model GPTQ and AWQ lose less than rounding to
 * nearest at 4 and 3 bits, by KL divergence on text not used for calibration, for every column order. Folding
 * alone changes nothing, also where tensors keep their format. The number of threads does not change a byte.
 * Invalid requests are rejected, and cancelled runs leave nothing behind. */
#include "engine/eval/eval.h"
#include "engine/quant/quant.h"
#include "engine/config/config.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "engine/synth/synth.h"
#include "kernels/kernels.h"
#include "tests/engine/algebra.h"
#include "tests/engine/session.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/qdyno-test-layers-XXXXXX");
    return mkdtemp(folder) ? setenv("XDG_CACHE_HOME", folder, 1) : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* A path in the test's folder, in one of a few static buffers that are reused in turn. */
static const char *place(const char *name)
{
    static char paths[16][160];
    static int next;
    char *path = paths[next++ % 16];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static enum err_code quantize(const char *from, const char *to, const char *line, int threads,
                              struct err *why)
{
    struct config c;
    struct gguf *g;
    enum err_code rc = config_parse(&c, line, why);
    if (!rc) rc = gguf_open(&g, from, why);
    if (rc) return rc;
    rc = quantize_file(to, g, &(struct quantize_options){ .config = &c, .threads = threads }, why);
    gguf_close(g);
    return rc;
}

/* GPTQ and AWQ load OpenBLAS; skip the test without it. */
static void need_algebra(void)
{
    struct algebra a = algebra_open(1);
    algebra_close(&a);
}

/* ---------------------------------------------------------------- real weights */

struct bench {
    char model[4096], *text;
    size_t n;
    char calib[160]; /* ",calib=PATH" of a file with the beginning of the text */
};

enum { CALIBRATION_BYTES = 120000, EVALUATION_BYTES = 24000, WINDOW = 256 };

static void bench_open(struct bench *b, const char *model)
{
    struct err why = { 0 };
    char text[4096];
    need_algebra();
    SHARED_OR_SKIP(b->model, model);
    SHARED_OR_SKIP(text, "text/tinystories-valid-excerpt.txt");
    CHECK_OK(file_read(&b->text, &b->n, text, 1 << 24, &why));
    FILE *f = fopen(place("calibration.txt"), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b->text, 1, CALIBRATION_BYTES, f), CALIBRATION_BYTES);
    assert_int_equal(fclose(f), 0);
    snprintf(b->calib, sizeof b->calib, ",calib=%s/calibration.txt", folder);
}

/* Mean KL divergence of the model quantized with `line`, on the end of the text. */
static double loss_of(const struct bench *b, const char *line)
{
    struct err why = { 0 };
    struct divergence d;
    const char *out = place("out.gguf");
    CHECK_OK(quantize(b->model, out, line, 1, &why));
    struct model *reference = session_open(b->model, EXACT, WINDOW, 1),
                 *candidate = session_open(out, EXACT, WINDOW, 1);
    const struct eval_request r = { .text = b->text + b->n - EVALUATION_BYTES,
                                    .n = EVALUATION_BYTES,
                                    .ctx = WINDOW };
    CHECK_OK(eval_divergence(&d, reference, candidate, &r, &why));
    print_message("%-60.60s KL divergence %.5f\n", line, d.kld_mean);
    model_close(reference);
    model_close(candidate);
    return d.kld_mean;
}

static double calibrated_loss(const struct bench *b, const char *line)
{
    char whole[512];
    snprintf(whole, sizeof whole, "%s%s", line, b->calib);
    return loss_of(b, whole);
}

/* Round to nearest in the same format for the same tensors; both exclude the (tied) embedding. */
#define ROUNDED(format) "rtn:" format ",tensors=token_embd:f16"

/* 10 % is much more than another text or sample changes. */
static void methods_beat_rounding(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, "models/repacked/stories260K-f32.gguf");
    const double four = loss_of(&b, ROUNDED("u4_g64")), three = loss_of(&b, ROUNDED("u3_g64"));
    CHECK_LT(calibrated_loss(&b, "gptq,bits=4,group_size=64,nsamples=24"), 0.9 * four);
    CHECK_LT(calibrated_loss(&b, "awq,bits=4,group_size=64,max_calib_samples=6"), 0.9 * four);
    CHECK_LT(calibrated_loss(&b, "gptq,bits=3,group_size=64,nsamples=24"), 0.9 * three);
    CHECK_LT(calibrated_loss(&b, "awq,bits=3,group_size=64,max_calib_samples=6"), 0.9 * three);
    free(b.text);
}

static void every_order_of_gptq_works(void **state)
{
    (void)state;
    static const char *const LINES[] = {
        "gptq,bits=4,group_size=64,nsamples=24,desc_act=true",
        "gptq,bits=4,group_size=32,nsamples=24,act_group_aware=true",
        "gptq,bits=4,group_size=-1,nsamples=24,desc_act=true,static_groups=true,sym=false",
        "gptq,bits=4,group_size=64,nsamples=24,true_sequential=false,mse=2.4",
    };
    struct bench b;
    bench_open(&b, "models/repacked/stories260K-f32.gguf");
    const double rounded = loss_of(&b, ROUNDED("u4_g64"));
    for (size_t i = 0; i < COUNT_OF(LINES); i++) CHECK_LT(calibrated_loss(&b, LINES[i]), rounded);
    CHECK_LT(calibrated_loss(&b, "gptq,bits=8,group_size=64,nsamples=4"), 0.02 * rounded);
    CHECK_LT(calibrated_loss(&b, "awq,bits=8,group_size=64,max_calib_samples=2"), 0.02 * rounded);
    free(b.text);
}

/* Folding alone: every matrix stays in f32, or in f16, where folded weights are rounded again. */
static void kept_tensors_take_part_in_folds(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, "models/repacked/stories260K-f32.gguf");
    CHECK_LT(calibrated_loss(&b, "smoothquant,tensors=attn_*:f32;ffn_*:f32;token_embd:f32"), 1e-9);
    CHECK_LT(1e-4, calibrated_loss(&b, "smoothquant")); /* without the rules it does quantize */
    CHECK_LT(calibrated_loss(
                 &b, "smoothquant,tensors=attn_?:f16;attn_output:f16;ffn_gate:f16;ffn_up:f16;ffn_down:f16"),
             1e-4);
    const double all = calibrated_loss(&b, "awq,bits=4,group_size=64,max_calib_samples=4");
    CHECK_LT(
        calibrated_loss(&b, "awq,bits=4,group_size=64,max_calib_samples=4,tensors=attn_v:f16;ffn_up:f32"),
        all);
    free(b.text);
}

/* ---------------------------------------------------------------- models of our own */

static const struct synth_shape SMALL = {
    .name = "small", .layers = 2, .heads = 4, .kv_heads = 4, .embd = 64, .ff = 128, .vocab = 512, .ctx = 64
};

static const char *synth(const char *arch)
{
    struct err why = { 0 };
    char name[32];
    snprintf(name, sizeof name, "%s.gguf", arch);
    static char path[160];
    snprintf(path, sizeof path, "%s", place(name));
    const struct synth_options o = {
        .arch = arch, .shape = &SMALL, .format = &FORMATS[FORMAT_F32], .seed = 9, .threads = 1
    };
    CHECK_OK(synth_write(path, &o, &why));
    return path;
}

/* Write a text and return ",calib=PATH". */
static const char *calibration_text(void)
{
    static char line[160];
    FILE *f = fopen(place("text.txt"), "w");
    assert_non_null(f);
    for (int i = 0; i < 60; i++)
        fprintf(f, "Line %d says that %d times %d is %d, and the miller's cat agrees.\n", i, i, i % 13,
                i * (i % 13));
    assert_int_equal(fclose(f), 0);
    snprintf(line, sizeof line, ",calib=%s/text.txt", folder);
    return line;
}

static const char *const LINES[] = {
    "gptq,group_size=64,nsamples=4,desc_act=true",
    "gptq,bits=3,group_size=64,nsamples=4,sym=false,true_sequential=false",
    "awq,group_size=64,max_calib_samples=3,n_grid=5",
    "awq,bits=2,group_size=-1,max_calib_samples=3,n_grid=5,zero_point=false,duo_scaling=false",
    "smoothquant",
};

static void threads_change_no_byte(void **state)
{
    (void)state;
    static const char *const ARCHITECTURES[] = { "llama", "gpt2" };
    struct err why = { 0 };
    need_algebra();
    for (size_t a = 0; a < COUNT_OF(ARCHITECTURES); a++)
        for (size_t i = 0; i < COUNT_OF(LINES); i++) {
            char line[320], *first = NULL, *bytes;
            size_t size = 0, n;
            snprintf(line, sizeof line, "%s%s", LINES[i], calibration_text());
            for (int threads = 1; threads <= 3; threads += 2) {
                const char *out = place("out.gguf");
                CHECK_OK(quantize(synth(ARCHITECTURES[a]), out, line, threads, &why));
                CHECK_OK(file_read(&bytes, &n, out, 1 << 24, &why));
                if (first) {
                    assert_int_equal(n, size);
                    if (memcmp(first, bytes, n)) fail_msg("%s, %s: threads matter", ARCHITECTURES[a], line);
                    free(bytes);
                } else {
                    first = bytes, size = n;
                }
            }
            free(first);
            model_close(session_open(place("out.gguf"), EXACT, 32, 1)); /* and the file can be run */
        }
}

static void refuse(const char *model, const char *line, enum err_code want, const char *says)
{
    struct err why = { 0 };
    char whole[320];
    const char *out = place("refused.gguf");
    snprintf(whole, sizeof whole, "%s%s", line, calibration_text());
    assert_int_equal(quantize(model, out, whole, 1, &why), want);
    if (!strstr(why.message, says)) fail_msg("%s: '%s' does not say '%s'", line, why.message, says);
    assert_int_not_equal(access(out, F_OK), 0);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    need_algebra();
    const char *model = synth("llama");
    refuse(model, "gptq,bits=3,group_size=32", ERR_USAGE, "no format of 3 bits in groups of 32");
    refuse(model, "gptq,desc_act=true,act_group_aware=true", ERR_USAGE, "exclude each other");
    refuse(model, "gptq,bits=5", ERR_USAGE, "2 3 4 8");
    refuse(model, "awq,group_size=48", ERR_USAGE, "-1 32 64 128");
    refuse(model, "smoothquant,alpha=1.5", ERR_USAGE, "alpha");
    setenv("QDYNO_OPENBLAS", "/nowhere/libopenblas.so", 1);
    refuse(model, "gptq,group_size=64", ERR_ABSENT, "libopenblas0");
    refuse(model, "awq,group_size=64", ERR_ABSENT, "libopenblas0");
    unsetenv("QDYNO_OPENBLAS");
}

/* A norm of zeros makes all inputs of the following matrices 0. */
static void dead_layers_are_named(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct gguf *g;
    char *bytes;
    size_t n;
    need_algebra();
    const char *model = synth("llama");
    CHECK_OK(gguf_open(&g, model, &why));
    const struct gguf_tensor *t = gguf_tensor_find(g, "blk.1.ffn_norm.weight");
    assert_non_null(t);
    CHECK_OK(file_read(&bytes, &n, model, 1 << 24, &why));
    char *at = memmem(bytes, n, t->data, (size_t)t->bytes);
    size_t count = 0;
    for (; at; at = memmem(at, n - (size_t)(at - bytes), t->data, (size_t)t->bytes)) {
        memset(at, 0, (size_t)t->bytes); /* norms of other layers may have the same values */
        count++;
    }
    CHECK_GT(count, 0);
    gguf_close(g);
    FILE *f = fopen(model, "wb");
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    free(bytes);
    refuse(model, "gptq,group_size=64,nsamples=2", ERR_FORMAT, "are 0 for the whole calibration text");
}

struct stop {
    double after, most;
    bool fell;
};

static bool stop_later(void *ctx, double done)
{
    struct stop *s = ctx;
    if (done < s->most - 1e-9) s->fell = true;
    s->most = fmax(s->most, done);
    return done < s->after;
}

static void cancelling_leaves_nothing(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct gguf *g;
    struct config c;
    need_algebra();
    CHECK_OK(gguf_open(&g, synth("llama"), &why));
    for (size_t i = 0; i < COUNT_OF(LINES); i++)
        for (double after = 0.3; after < 2; after += 0.9) {
            char line[320];
            const char *out = place("cancelled.gguf");
            struct stop s = { .after = after };
            snprintf(line, sizeof line, "%s%s", LINES[i], calibration_text());
            CHECK_OK(config_parse(&c, line, &why));
            const struct quantize_options o = {
                .config = &c, .threads = 1, .progress = stop_later, .ctx = &s
            };
            const enum err_code rc = quantize_file(out, g, &o, &why);
            CHECK(!s.fell);
            if (after < 1) {
                assert_int_equal(rc, ERR_CANCELLED);
                assert_int_not_equal(access(out, F_OK), 0);
            } else {
                CHECK_OK(rc);
                CHECK_NEAR(s.most, 1, 1e-9);
                unlink(out);
            }
        }
    gguf_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(methods_beat_rounding, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(every_order_of_gptq_works, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(kept_tensors_take_part_in_folds, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(threads_change_no_byte, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(what_cannot_be_is_refused, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(dead_layers_are_named, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(cancelling_leaves_nothing, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
