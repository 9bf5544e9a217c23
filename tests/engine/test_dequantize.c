/* Proves: a quantized file is written back to f32, f16 and bf16 with the values that it means: outlier
 * columns, input order, divisors of inputs and scales beside matrices applied, and the tensors that held them
 * left out. Against the original, the dequantized file has the error of the quantized one, tensor by tensor.
 * A damaged value is found. Quantizing a quantized file again stays refused. */
#include "engine/quant/quant.h"

#include <math.h>

#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/gguf/gguf.h"
#include "engine/synth/synth.h"
#include "kernels/kernels.h"
#include "tests/engine/session.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/qdyno-test-dequantize-XXXXXX");
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
    static char paths[32][160];
    static int next;
    char *path = paths[next++ % 32];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static struct gguf *open_file(const char *path)
{
    struct err why = { 0 };
    struct gguf *g;
    CHECK_OK(gguf_open(&g, path, &why));
    return g;
}

static enum err_code quantize(const char *from, const char *to, const char *line, struct err *why)
{
    struct config c;
    const enum err_code parsed = config_parse(&c, line, why);
    if (parsed) return parsed;
    struct gguf *g = open_file(from);
    const enum err_code rc = quantize_file(to, g, &(struct quantize_options){ .config = &c, .threads = 2 },
                                           why);
    gguf_close(g);
    return rc;
}

/* The plan of a recipe on `source`, with the errors of `made` measured. *p owned. */
static void measure(struct quantize_plan *p, const struct gguf *source, const char *made, const char *line)
{
    struct err why = { 0 };
    struct config c;
    CHECK_OK(config_parse(&c, line, &why));
    CHECK_OK(quantize_plan_init(p, source, &c, &why));
    struct gguf *g = open_file(made);
    CHECK_OK(quantize_plan_measure(p, source, g, 2, &why));
    gguf_close(g);
}

static bool has_companions(const struct gguf *g, enum companion_kind what)
{
    char end[64];
    snprintf(end, sizeof end, ".weight.%s", strrchr(companion_name("x", what, (char[32]){ 0 }, 32), '.') + 1);
    for (int64_t i = 0; i < gguf_tensor_count(g); i++)
        if (str_ends(gguf_tensor_at(g, i)->name, end)) return true;
    return false;
}

/* A model, and a text to calibrate with. */
static void make_model(const char *path)
{
    struct err why = { 0 };
    const struct synth_options o = {
        .shape = synth_shape_find("tiny"), .format = &FORMATS[FORMAT_F32], .seed = 7, .threads = 2
    };
    CHECK_OK(synth_write(path, &o, &why));
    FILE *f = fopen(place("text.txt"), "w");
    for (int i = 0; i < 100; i++)
        fprintf(f, "The number %d has the square %d, and the next one is %d. ", i, i * i, i + 1);
    CHECK_EQ(fclose(f), 0);
}

/* As quantize, calibrated with the text where the method needs it. */
static enum err_code quantize_calibrated(const char *from, const char *to, const char *recipe,
                                         struct err *why)
{
    char line[512];
    struct config c;
    const enum err_code rc = config_parse(&c, recipe, why);
    const struct params p = config_params(&c);
    if (rc || method_needs(&p) == CALIBRATION_NONE) return quantize(from, to, recipe, why);
    snprintf(line, sizeof line, "%s,calib=%s", recipe, place("text.txt"));
    return quantize(from, to, line, why);
}

/* Each method, and what its file has beside the matrices (COMPANION_COUNT: nothing). */
static const struct {
    const char *recipe;
    enum companion_kind companion;
} METHODS_WITH[] = {
    { "q5_1", COMPANION_COUNT },
    { "mxfp4", COMPANION_COUNT },
    { "hqq,nbits=4,group_size=64", COMPANION_COUNT },
    { "nf4,bnb_4bit_use_double_quant=true", COMPANION_COUNT },
    { "llm_int8,llm_int8_threshold=1,llm_int8_has_fp16_weight=true", COMPANION_OUTLIERS },
    { "int8_static", COMPANION_INPUT_SCALE },
    { "gptq,bits=4,group_size=64,desc_act=true,nsamples=4,model_seqlen=64", COMPANION_ORDER },
    { "awq,bits=4,group_size=64,max_calib_samples=4,max_calib_seq_len=64", COMPANION_COUNT },
    { "smoothquant", COMPANION_COUNT },
};

static void check_method(const char *recipe, enum companion_kind companion)
{
    struct err why = { 0 };
    struct quantize_plan quantized, floats;
    const char *model = place("model.gguf"), *made = place("made.gguf"), *back = place("back.gguf");
    CHECK_OK(quantize_calibrated(model, made, recipe, &why));
    CHECK_OK(quantize(made, back, "f32", &why));
    struct gguf *source = open_file(model), *from = open_file(made), *to = open_file(back);
    if (companion != COMPANION_COUNT && !has_companions(from, companion))
        fail_msg("%s: the file has no tensor of kind %d", recipe, (int)companion);
    for (int what = 0; what < COMPANION_COUNT; what++) CHECK(!has_companions(to, (enum companion_kind)what));
    CHECK_EQ(gguf_tensor_count(to), gguf_tensor_count(source));
    measure(&quantized, source, made, recipe);
    measure(&floats, source, back, "f32");
    bool lossy = false;
    for (int64_t i = 0; i < floats.count; i++) {
        const struct tensor_plan *q = &quantized.tensors[i], *f = &floats.tensors[i];
        if (q->fate == FATE_KEPT) continue;
        lossy |= q->nmse > 0;
        if (fabs(q->nmse - f->nmse) > 1e-6 * q->nmse + 1e-12)
            fail_msg("%s, %s: error %g quantized, %g in floats", recipe, q->source->name, q->nmse, f->nmse);
    }
    CHECK(lossy);
    quantize_plan_done(&quantized);
    quantize_plan_done(&floats);
    gguf_close(source);
    gguf_close(from);
    gguf_close(to);
}

static void test_methods(void **state)
{
    (void)state;
    make_model(place("model.gguf"));
    for (size_t i = 0; i < COUNT_OF(METHODS_WITH); i++)
        check_method(METHODS_WITH[i].recipe, METHODS_WITH[i].companion);
}

/* Dequantize to `format` and compare; the number of values that were rounded. */
static int64_t verified(const char *made, const char *format, double *largest)
{
    struct err why = { 0 };
    struct config c;
    struct quantize_plan p;
    int64_t rounded = 0;
    const char *back = place("back.gguf");
    CHECK_OK(config_parse(&c, format, &why));
    CHECK_OK(quantize(made, back, format, &why));
    struct gguf *from = open_file(made), *to = open_file(back);
    CHECK_OK(quantize_plan_init(&p, from, &c, &why));
    CHECK_OK(quantize_plan_verify(&p, from, to, 2, &why));
    *largest = 0;
    for (int64_t i = 0; i < p.count; i++) {
        CHECK(p.tensors[i].rounded >= 0);
        rounded += p.tensors[i].rounded;
        *largest = fmax(*largest, p.tensors[i].largest);
    }
    quantize_plan_done(&p);
    gguf_close(from);
    gguf_close(to);
    return rounded;
}

static void test_formats(void **state)
{
    (void)state;
    struct err why = { 0 };
    double largest;
    const char *made = place("q8.gguf");
    make_model(place("model.gguf"));
    CHECK_OK(quantize(place("model.gguf"), made, "q8_0", &why));
    CHECK_EQ(verified(made, "f32", &largest), 0);
    CHECK(largest == 0);
    CHECK(verified(made, "f16", &largest) > 0);
    CHECK(largest > 0 && largest < 1e-3);
    CHECK(verified(made, "bf16", &largest) > 0);
    CHECK(largest > 1e-5 && largest < 1e-2);
    CHECK_EQ(quantize(made, place("no.gguf"), "q4_0", &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "already quantized (q8_0)");
    CHECK_EQ(quantize(made, place("no.gguf"), "tf32", &why), ERR_USAGE);
}

/* Only some matrices: the others keep their format and what belongs to them. */
static void test_some_tensors(void **state)
{
    (void)state;
    struct err why = { 0 };
    char name[160];
    make_model(place("model.gguf"));
    CHECK_OK(quantize_calibrated(place("model.gguf"), place("made.gguf"), "int8_static", &why));
    CHECK_OK(quantize(place("made.gguf"), place("back.gguf"), "tensors=ffn_down:f16", &why));
    struct gguf *from = open_file(place("made.gguf")), *to = open_file(place("back.gguf"));
    const struct gguf_tensor *down = gguf_tensor_find(to, "blk.0.ffn_down.weight"),
                             *up = gguf_tensor_find(to, "blk.0.ffn_up.weight");
    CHECK(down->format == &FORMATS[FORMAT_F16]);
    CHECK(up->format == gguf_tensor_find(from, "blk.0.ffn_up.weight")->format);
    CHECK(!companion_find(to, down->name, COMPANION_INPUT_SCALE));
    CHECK(companion_find(to, up->name, COMPANION_INPUT_SCALE));
    CHECK_EQ(act_kind(to, up), INPUT_INT8_STATIC);
    CHECK_EQ(act_kind(to, down), INPUT_FREE);
    CHECK(gguf_tensor_find(from, companion_name(down->name, COMPANION_INPUT_SCALE, name, sizeof name)));
    gguf_close(from);
    gguf_close(to);
}

/* A copy of `from` with two more tensors: inputs of one matrix are divided by 2, another is multiplied by 4.
 */
static void add_parts(const char *from, const char *to, const char *divided, const char *scaled)
{
    struct err why = { 0 };
    struct gguf *g = open_file(from);
    struct gguf_writer *w;
    char name[2][160];
    const float four = 4;
    float two[1024];
    const int64_t cols = gguf_tensor_find(g, divided)->shape[0], one = 1;
    for (int i = 0; i < 1024; i++) two[i] = 2;
    companion_name(divided, COMPANION_DIVISORS, name[0], sizeof name[0]);
    snprintf(name[1], sizeof name[1], "%s.scale", scaled);
    CHECK_OK(gguf_writer_open(&w, to, &why));
    for (int64_t i = 0; i < gguf_kv_count(g); i++) CHECK_EQ(gguf_writer_copy_kv(w, gguf_kv_at(g, i)), ERR_OK);
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        CHECK_EQ(gguf_writer_add_tensor(w, t->name, t->format, t->dims, t->shape), ERR_OK);
    }
    CHECK_EQ(gguf_writer_add_tensor(w, name[0], &FORMATS[FORMAT_F32], 1, &cols), ERR_OK);
    CHECK_EQ(gguf_writer_add_tensor(w, name[1], &FORMATS[FORMAT_F32], 1, &one), ERR_OK);
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        CHECK_OK(gguf_writer_write(w, t->data, t->bytes, &why));
    }
    CHECK_OK(gguf_writer_write(w, two, cols * 4, &why));
    CHECK_OK(gguf_writer_write(w, &four, 4, &why));
    CHECK_OK(gguf_writer_commit(w, &why));
    gguf_close(g);
}

static void test_divisors_and_scales(void **state)
{
    (void)state;
    static const char *const NAMES[] = { "blk.0.attn_q.weight", "blk.0.attn_k.weight",
                                         "blk.0.attn_v.weight" };
    static const float FACTOR[] = { 0.5f, 4, 1 };
    struct err why = { 0 };
    make_model(place("model.gguf"));
    CHECK_OK(quantize(place("model.gguf"), place("plain.gguf"), "q8_0", &why));
    add_parts(place("plain.gguf"), place("parts.gguf"), NAMES[0], NAMES[1]);
    CHECK_OK(quantize(place("plain.gguf"), place("plain-f32.gguf"), "f32", &why));
    CHECK_OK(quantize(place("parts.gguf"), place("parts-f32.gguf"), "f32", &why));
    struct gguf *plain = open_file(place("plain-f32.gguf")), *parts = open_file(place("parts-f32.gguf"));
    CHECK_EQ(gguf_tensor_count(parts), gguf_tensor_count(plain));
    for (size_t n = 0; n < COUNT_OF(NAMES); n++) {
        const struct gguf_tensor *a = gguf_tensor_find(plain, NAMES[n]),
                                 *b = gguf_tensor_find(parts, NAMES[n]);
        for (int64_t i = 0; i < a->bytes / 4; i++) {
            float x, y;
            memcpy(&x, a->data + 4 * i, 4);
            memcpy(&y, b->data + 4 * i, 4);
            if (x * FACTOR[n] != y)
                fail_msg("%s, value %d: %g, want %g", NAMES[n], (int)i, (double)y, (double)(x * FACTOR[n]));
        }
    }
    gguf_close(plain);
    gguf_close(parts);
}

static void test_damage_is_found(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct config c;
    struct quantize_plan p;
    make_model(place("model.gguf"));
    CHECK_OK(quantize(place("model.gguf"), place("made.gguf"), "q8_0", &why));
    CHECK_OK(quantize(place("made.gguf"), place("back.gguf"), "f32", &why));
    struct gguf *to = open_file(place("back.gguf"));
    const int64_t at = gguf_tensor_find(to, "blk.0.attn_q.weight")->data -
                       gguf_tensor_find(to, "token_embd.weight")->data;
    const unsigned char *first = gguf_tensor_find(to, "token_embd.weight")->data;
    char *all;
    size_t n;
    CHECK_OK(file_read(&all, &n, place("back.gguf"), 1 << 28, &why));
    char *found = memmem(all, n, first, 64);
    assert_non_null(found);
    found[at + 4 * 100] ^= 1; /* the lowest bit of value 100 */
    gguf_close(to);
    FILE *f = fopen(place("bad.gguf"), "wb");
    CHECK_EQ(fwrite(all, 1, n, f), n);
    CHECK_EQ(fclose(f), 0);
    free(all);
    struct gguf *from = open_file(place("made.gguf")), *bad = open_file(place("bad.gguf"));
    CHECK_OK(config_parse(&c, "f32", &why));
    CHECK_OK(quantize_plan_init(&p, from, &c, &why));
    CHECK_EQ(quantize_plan_verify(&p, from, bad, 2, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "tensor 'blk.0.attn_q.weight': value 100 ");
    quantize_plan_done(&p);
    gguf_close(from);
    gguf_close(bad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_methods, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_formats, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_some_tensors, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_divisors_and_scales, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_damage_is_found, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
