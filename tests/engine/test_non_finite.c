/* Proves: a model with one infinity or NaN never gives an answer. The value is put into every kind of tensor
 * of eleven architectures (gated, soft-capped, layer-normed with biases, parallel halves; experts, attention
 * sinks, latent attention, recurrent and convolution states), in the first and in the last layer, and into
 * the scales of K-quants and codebooks; loading refuses vectors by name, and a matrix ends prefill, decode
 * and the comparison with a reference, also where activations and caches are 8-bit blocks, which cannot carry
 * such values themselves. Runs at each ISA level. Names the bug: a NaN in a norm of a q8_0 file passed the
 * quality gate. */
#include <math.h>

#include "engine/eval/eval.h"
#include "engine/arch/arch.h"
#include "engine/synth/synth.h"
#include "tests/engine/session.h"

enum { CTX = 32, PROMPT = 9 };

/* Puts `value` into a block: into its first weight, or into the scale of a block format, whose place is found
 * by trying. False: the format cannot carry it. block: [f->block_bytes]. */
static bool poke(unsigned char *block, const struct format *f, float value)
{
    const uint16_t half = isnan(value) ? 0x7e00 : value > 0 ? 0x7c00 : 0xfc00;
    const uint16_t upper = isnan(value) ? 0x7fc0 : value > 0 ? 0x7f80 : 0xff80; /* of a bf16 or f32 */
    float x[256];
    assert_in_range(f->block_weights, 1, COUNT_OF(x));
    for (size_t at = 0; at + sizeof half <= f->block_bytes; at++)
        for (int i = 0; i < 2; i++) {
            unsigned char was[sizeof half];
            memcpy(was, block + at, sizeof was);
            memcpy(block + at, i ? &upper : &half, sizeof was);
            f->decode(block, x, f->block_weights);
            if (!isfinite(x[0])) return true;
            memcpy(block + at, was, sizeof was);
        }
    return false;
}

/* The same at the start of every matrix of a tensor: a token need not be routed to the first expert. */
static void damage(int fd, off_t at, const struct gguf_tensor *t, float value)
{
    const int64_t bytes = format_row_bytes(t->format, t->shape[0]) * t->shape[1];
    for (int64_t i = 0; i < t->shape[2] * t->shape[3]; i++) {
        unsigned char block[1024];
        assert_in_range(t->format->block_bytes, 1, sizeof block);
        memcpy(block, (const unsigned char *)t->data + i * bytes, t->format->block_bytes);
        if (!poke(block, t->format, value)) fail_msg("%s cannot carry %g", t->format->name, (double)value);
        CHECK_EQ(pwrite(fd, block, t->format->block_bytes, at + i * bytes), t->format->block_bytes);
    }
}

static enum err_code prefill(struct model *m, struct err *why)
{
    struct batch_row rows[PROMPT];
    for (int i = 0; i < PROMPT; i++) /* token 0, whose row of the embedding is damaged, is not the last one */
        rows[i] = (struct batch_row){ .token = i == 2 ? 0 : i + 3, .pos = i, .logits = i == PROMPT - 1 };
    int32_t best;
    model_truncate(m, 0, 0);
    return model_forward_best(m, rows, PROMPT, &best, why);
}

static enum err_code decode(struct model *m, struct err *why)
{
    enum err_code rc = ERR_OK;
    int32_t best = 0;
    model_truncate(m, 0, 0);
    for (int i = 0; i < 4 && !rc; i++)
        rc = model_forward_best(m, &(struct batch_row){ .token = best, .pos = i, .logits = true }, 1, &best,
                                why);
    return rc;
}

/* The whole rows of logits, as evaluation reads them. */
static enum err_code whole_rows(struct model *m, struct err *why)
{
    struct batch_row rows[PROMPT];
    model_truncate(m, 0, 0);
    for (int i = 0; i < PROMPT; i++) rows[i] = (struct batch_row){ .token = i, .pos = i, .logits = true };
    return model_forward(m, rows, PROMPT, why);
}

/* The divergence from a reference, which a quality gate judges. The text holds every token of small
 * vocabularies only by chance, so a damaged row of an untied embedding may stay unread. */
static enum err_code quality(struct model *reference, struct model *m, struct err *why)
{
    static char text[4096];
    struct divergence d;
    for (size_t i = 0; i < sizeof text; i++) text[i] = " abc de"[i % 7];
    const struct eval_request r = { .text = text, .n = sizeof text, .ctx = CTX, .max_chunks = 3 };
    return eval_divergence(&d, reference, m, &r, why);
}

static void must_fail(enum err_code rc, const struct err *why, const char *what, const char *tensor,
                      float value, const char *line)
{
    if (rc != ERR_FORMAT || !strstr(why->message, "not numbers"))
        fail_msg("%s with %g in %s and '%s': status %d (%s), want a refusal", what, (double)value, tensor,
                 line, rc, rc ? why->message : "ok");
}

static void check_damaged(const char *path, const struct gguf_tensor *t, float value, const char *line,
                          struct model *reference)
{
    struct err why = { 0 };
    struct model *m;
    const enum err_code rc = session_try(&m, path, line, CTX, 1, &why);
    if (rc) {
        if (rc != ERR_FORMAT || !strstr(why.message, t->name)) /* biases of experts are 2-d vectors */
            fail_msg("loading with %g in %s: status %d: %s", (double)value, t->name, rc, why.message);
        return;
    }
    /* the gate of a shared expert is a matrix of one row */
    if (t->dims == 1 && !strstr(t->name, "_shexp."))
        fail_msg("%g in the vector %s was not refused when loading", (double)value, t->name);
    must_fail(prefill(m, &why), &why, "prefill", t->name, value, line);
    must_fail(decode(m, &why), &why, "decode", t->name, value, line);
    must_fail(whole_rows(m, &why), &why, "all rows", t->name, value, line);
    if (model_tokenizer(m) && (model_shape(m)->tied_output || strcmp(t->name, "token_embd.weight")))
        must_fail(quality(reference, m, &why), &why, "quality", t->name, value, line);
    model_close(m);
}

/* One tensor of each kind in the first layer and one in the last; position tables are read at position 0. */
static bool is_wanted(const struct gguf_tensor *t, const struct model_shape *s)
{
    int layer, end = 0;
    if (sscanf(t->name, "blk.%d.%n", &layer, &end) != 1 || !end) return true;
    return layer == 0 || layer == s->layers - 1;
}

static void each_tensor(const char *source, const char *const *lines, int n_lines)
{
    static const float VALUES[] = { NAN, INFINITY, -INFINITY };
    struct err why = { 0 };
    struct gguf *g;
    struct model_shape shape;
    char *bytes, damaged[] = "/tmp/qdyno-test-non-finite-XXXXXX";
    size_t n;
    CHECK_OK(file_read(&bytes, &n, source, 1 << 26, &why));
    CHECK_OK(gguf_open_memory(&g, bytes, n, &why));
    CHECK_OK(model_shape_read(&shape, g, &why));
    const int fd = mkstemp(damaged);
    CHECK_GE(fd, 0);
    CHECK_EQ(write(fd, bytes, n), (ssize_t)n);
    for (int l = 0; l < n_lines; l++) {
        struct model *reference = session_open(source, lines[l], CTX, 1);
        CHECK_OK(whole_rows(reference, &why)); /* without the value it answers */
        for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
            const struct gguf_tensor *t = gguf_tensor_at(g, i);
            if (!is_wanted(t, &shape)) continue;
            for (size_t v = 0; v < COUNT_OF(VALUES); v++) {
                const off_t at = t->data - (const unsigned char *)bytes;
                damage(fd, at, t, VALUES[v]);
                check_damaged(damaged, t, VALUES[v], lines[l], reference);
                CHECK_EQ(pwrite(fd, t->data, (size_t)t->bytes, at), t->bytes);
            }
        }
        model_close(reference);
    }
    close(fd);
    unlink(damaged);
    gguf_close(g);
    free(bytes);
}

static void each_tensor_of_format(const char *format, const char *const *lines, int n_lines)
{
    char path[] = "/tmp/qdyno-test-non-finite-q-XXXXXX";
    struct err why = { 0 };
    const int fd = mkstemp(path);
    CHECK_GE(fd, 0);
    close(fd);
    CHECK_OK(synth_write(path,
                         &(struct synth_options){ .arch = "llama",
                                                  .shape = synth_shape_find("tiny"),
                                                  .format = format_find(format),
                                                  .seed = 3,
                                                  .threads = 1 },
                         &why));
    each_tensor(path, lines, n_lines);
    unlink(path);
}

static void quantized(void **state)
{
    (void)state;
    static const char *const LINES[] = { "threads=1",
                                         "threads=2,kv=q8_0",
                                         "threads=1,ctk=q4_0,ctv=fp8_e4m3",
                                         "threads=1,act=int8,precision=medium",
                                         "threads=1,kv=q4_0,kv_rotate=on",
                                         "threads=1,batch_invariant=on" };
    each_tensor_of_format("q8_0", LINES, COUNT_OF(LINES));
}

/* Not nvfp4: its scales have no code for such a value. */
static void block_scales(void **state)
{
    (void)state;
    static const char *const FORMATS_TRIED[] = { "q4_K", "q6_K", "iq3_s", "iq4_xs" };
    static const char *const LINES[] = { "threads=1" };
    for (size_t i = 0; i < COUNT_OF(FORMATS_TRIED); i++)
        each_tensor_of_format(FORMATS_TRIED[i], LINES, COUNT_OF(LINES));
}

static void each_file(const char *const *files, int n_files)
{
    static const char *const LINES[] = { "threads=1", "threads=1,kv=fp8_e4m3" };
    for (int f = 0; f < n_files; f++) {
        char path[4096];
        SHARED_OR_SKIP(path, files[f]);
        each_tensor(path, LINES, COUNT_OF(LINES));
    }
}

static void architectures(void **state)
{
    (void)state;
    static const char *const FILES[] = { "arch-golden/gemma2.gguf", "arch-golden/gpt2.gguf",
                                         "arch-golden/gptneox-parallel.gguf", "arch-golden/qwen2.gguf" };
    each_file(FILES, COUNT_OF(FILES));
}

static void experts_sinks_and_states(void **state)
{
    (void)state;
    static const char *const FILES[] = {
        "arch-golden-2/qwen3moe-256-Q4_K.gguf", "arch-golden-2/gpt-oss.gguf",
        "arch-golden-2/deepseek2-lite.gguf",    "arch-golden-2/granitehybrid.gguf",
        "arch-golden-2/qwen35moe.gguf",         "arch-golden-2/gemma4-moe.gguf",
    };
    each_file(FILES, COUNT_OF(FILES));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(quantized), cmocka_unit_test(block_scales),
                                        cmocka_unit_test(architectures),
                                        cmocka_unit_test(experts_sinks_and_states) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
