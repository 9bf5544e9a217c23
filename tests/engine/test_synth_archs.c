/* Proves: synth makes a file of every architecture, dense and with experts, that loads without force=on, has
 * every kind of layer that the architecture knows, and gives finite logits of the documented size, for a
 * prompt as for single tokens; published shapes name an architecture and formats that exist; a shape of one
 * architecture and the layer count are respected; the same options give the same bytes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "engine/quant/quant.h"
#include "engine/synth/synth.h"
#include "engine/text/text.h"
#include "kernels/kernels.h"
#include "tests/check.h"

/* Two periods of the hybrids with a fourth of attention layers, so every kind of layer occurs. */
static const struct synth_shape SMALL = { .name = "small",
                                          .layers = 8,
                                          .heads = 4,
                                          .kv_heads = 2,
                                          .embd = 64,
                                          .ff = 128,
                                          .vocab = 512,
                                          .ctx = 64,
                                          .window = 4,
                                          .help = "" };

static const char *temp_path(void)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/tests/synth-archs-%d.gguf", TEST_BUILD_DIR, (int)getpid());
    return path;
}

static struct synth_options options_of(const struct arch *a, const struct synth_shape *s)
{
    return (struct synth_options){
        .arch = a->name, .shape = s, .format = &FORMATS[FORMAT_Q8_0], .seed = 1, .threads = 1
    };
}

/* Every kind of layer that the row of ARCHS allows. */
static void check_parts(const struct arch *a, const struct model_shape *s, bool experts)
{
    int with_experts = 0, windows = 0, shared = 0, full = 0;
    for (int l = 0; l < s->layers; l++) {
        const struct layer_parts *p = &s->parts[l];
        with_experts += p->experts;
        windows += p->window;
        full += p->mixer == MIXER_ATTENTION && !p->window;
        shared += p->kv_layer != l;
    }
    CHECK_EQ(s->layers, SMALL.layers);
    CHECK_EQ(s->unknown, 0);
    CHECK(s->random_weights);
    CHECK_LT(0, shape_count(s, MIXER_ATTENTION, s->layers));
    CHECK_EQ(shape_count_states(s, s->layers) > 0, a->state != MIXER_ATTENTION);
    CHECK_EQ(shape_count(s, MIXER_NONE, s->layers) > 0, a->one_part);
    CHECK_EQ(with_experts > 0, experts);
    CHECK_EQ(s->experts > 0, experts);
    CHECK_EQ(windows > 0, a->window_period > 0);
    CHECK_EQ(full > 0, a->window_period != 1);
    CHECK_EQ(shared > 0, a->layers_differ && !experts);
    CHECK_EQ(s->layer_inputs > 0, a->layers_differ && !experts);
    CHECK_EQ(s->kv_lora > 0, a->latent);
    const slot_set shared_slots = (a->expert_need | a->expert_may) & SLOT_BIT(SLOT_UP_SHARED);
    CHECK_EQ(s->shared_ff > 0, experts && shared_slots != 0);
}

static void check_logits(struct model *m, int count)
{
    struct err why = { 0 };
    const int64_t vocab = model_shape(m)->vocab;
    struct batch_row rows[8];
    for (int r = 0; r < count; r++) rows[r] = (struct batch_row){ 300 + 7 * r, r, 0, r == count - 1 };
    CHECK_OK(model_forward(m, rows, count, &why));
    for (int token = 0; token < 2; token++) { /* of the prompt, then of one more token */
        const float *logits = model_logits(m, 0);
        double square = 0;
        for (int64_t v = 0; v < vocab; v++) square += (double)logits[v] * logits[v] / (double)vocab;
        CHECK_LT(0.2, square);
        CHECK_LT(square, 5); /* near N(0,1); false for NaN */
        rows[0] = (struct batch_row){ 301, count + token, 0, true };
        CHECK_OK(model_forward(m, rows, 1, &why));
    }
}

/* The pre-tokenizer is known, and text becomes tokens. */
static void check_vocabulary(const char *path)
{
    struct err why = { 0 };
    struct gguf *g;
    struct tokenizer *t;
    struct token_list l = { 0 };
    CHECK_OK(gguf_open(&g, path, &why));
    CHECK_OK(tokenizer_open(&t, g, &why));
    CHECK_OK(tokenizer_encode(t, "the cat", 7, 0, &l, &why));
    CHECK_LT(1, l.n);
    token_list_free(&l);
    tokenizer_close(t);
    gguf_close(g);
}

static void runs(const struct arch *a, const struct synth_shape *shape, bool experts)
{
    struct err why = { 0 };
    struct config c;
    struct model *m;
    const struct synth_options o = options_of(a, shape);
    const enum err_code rc = synth_write(temp_path(), &o, &why);
    if (rc) fail_msg("%s: %s", a->name, why.message);
    CHECK_OK(config_parse(&c, "threads=1", &why));
    const struct model_options with = { .path = temp_path(), .config = &c, .ctx = 16 };
    if (recipe_model_open(&m, &with, &why)) fail_msg("%s: %s", a->name, why.message);
    assert_string_equal(model_shape(m)->arch, a->name);
    print_message("%s%s\n", a->name, experts ? " with experts" : "");
    check_parts(a, model_shape(m), experts);
    check_logits(m, 6);
    check_vocabulary(temp_path());
    model_close(m);
    unlink(temp_path());
}

/* Those that have both kinds of files are made without experts unless the shape has some. */
static bool dense_by_default(const struct arch *a)
{
    static const char *const NAMES[] = { "llama", "gemma4", "granitehybrid" };
    bool found = !a->router;
    for (size_t i = 0; i < COUNT_OF(NAMES); i++) found |= !strcmp(NAMES[i], a->name);
    return found;
}

static void every_architecture(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARCH_COUNT; i++) runs(&ARCHS[i], &SMALL, !dense_by_default(&ARCHS[i]));
}

static void experts_of_both(void **state)
{
    (void)state;
    struct synth_shape s = SMALL;
    s.experts = 6;
    s.experts_used = 3;
    for (size_t i = 0; i < ARCH_COUNT; i++)
        if (ARCHS[i].router && dense_by_default(&ARCHS[i])) runs(&ARCHS[i], &s, true);
}

static void published_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < SYNTH_PRESET_COUNT; i++) {
        const struct synth_shape *s = &SYNTH_PRESETS[i];
        assert_ptr_equal(synth_shape_find(s->name), s);
        CHECK(arch_find((struct gguf_string){ s->arch, strlen(s->arch) }));
        CHECK(!s->expert_format || format_find(s->expert_format));
        CHECK_EQ(s->heads % s->kv_heads, 0);
        CHECK_LE(s->experts_used, s->experts);
        CHECK(s->help[0]);
        const struct synth_options o = { .shape = s, .format = &FORMATS[FORMAT_Q8_0] };
        assert_string_equal(synth_arch_name(&o), s->arch);
        CHECK(s->expert_format || synth_expert_format(&o) == o.format);
    }
}

/* The layers of gpt-oss-20b, made small: sizes that the shape gives are in the file. */
static void sizes_of_shape(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct gguf *g;
    struct model_shape s;
    struct synth_shape shape = *synth_shape_find("gpt-oss-20b");
    shape.embd = 96;
    shape.ff = shape.expert_ff = 64;
    shape.vocab = 512;
    struct synth_options o = { .shape = &shape, .layers = 3, .format = &FORMATS[FORMAT_Q8_0], .threads = 1 };
    CHECK_OK(synth_write(temp_path(), &o, &why));
    CHECK_OK(gguf_open(&g, temp_path(), &why));
    CHECK_OK(model_shape_read(&s, g, &why));
    assert_string_equal(s.arch, "gpt-oss");
    CHECK_EQ(s.layers, 3);
    CHECK_EQ(s.heads, 64);
    CHECK_EQ(s.kv_heads, 8);
    CHECK_EQ(s.head_dim_k, 64);
    CHECK_EQ(s.experts, 32);
    CHECK_EQ(s.experts_used, 4);
    CHECK_EQ(s.window, 128);
    CHECK(!s.tied_output);
    assert_ptr_equal(gguf_tensor_find(g, "blk.2.ffn_up_exps.weight")->format, &FORMATS[FORMAT_MXFP4]);
    assert_ptr_equal(gguf_tensor_find(g, "blk.2.attn_q.weight")->format, &FORMATS[FORMAT_Q8_0]);
    assert_ptr_equal(gguf_tensor_find(g, "blk.2.ffn_gate_inp.weight")->format, &FORMATS[FORMAT_F32]);
    gguf_close(g);
    char one[HASH_HEX], other[HASH_HEX];
    CHECK_OK(hash_file(temp_path(), one, &why));
    o.threads = 3;
    o.expert_format = &FORMATS[FORMAT_MXFP4];
    CHECK_OK(synth_write(temp_path(), &o, &why));
    CHECK_OK(hash_file(temp_path(), other, &why));
    assert_string_equal(one, other);
    unlink(temp_path());
    o.layers = LAYERS_MAX + 1;
    assert_int_equal(synth_write(temp_path(), &o, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "expected 1 to 1024 layers");
    o = options_of(arch_find((struct gguf_string){ "nemotron_h", 10 }), &SMALL);
    o.layers = 2;
    assert_int_equal(synth_write(temp_path(), &o, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "at least 3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_architecture),
        cmocka_unit_test(experts_of_both),
        cmocka_unit_test(published_shapes),
        cmocka_unit_test(sizes_of_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
