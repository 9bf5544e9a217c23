/* A model file that is nearly right, as far as it goes: `info`, `fit`, loading, prefill and decode,
 * evaluation, quantization. The input is a script: which architecture, formats and vocabulary, then what is
 * changed (draft.h). Each step ends in finite numbers or in a refusal with a message; nothing costs more than
 * the file can ask for. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "advisor/predict/predict.h"
#include "engine/eval/eval.h"
#include "engine/quant/quant.h"
#include "engine/text/text.h"
#include "tests/fuzz/cost.h"
#include "tests/fuzz/draft.h"

/* Larger models are described and planned, but not run: this target's limits, not the program's. */
enum {
    CTX = 32,
    PROMPT = 6,
    STEPS = 3,
    WEIGHTS_MOST = 1 << 20,
    LAYERS_MOST = 8,
    VOCABULARY_MOST = 4096,
    WIDTH_MOST = 2048
};

static const struct cost_ceiling CEILING = { .seconds = 1.5, .mb = 400 };

static const char TEXT[] =
    "the thing in the inn, an er\xc3\xbcr 12345 and the rest of it; the end of the line and then some "
    "more of the same text, until there are enough tokens for two windows of the smallest size.";

static void must_explain(enum err_code rc, const struct err *why)
{
    if (!rc || (rc != ERR_INTERNAL && why->message[0])) return;
    fprintf(stderr, "status %d without a reason, or an internal error: %s\n", rc, why->message);
    abort();
}

static void must_be_finite(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) abort();
}

/* What `info` and `fit` say. */
static void describe(const struct gguf *g, const struct config *c)
{
    struct model_shape shape;
    struct memory_estimate estimate;
    struct memory_plan plan;
    struct tokenizer *t;
    struct err why = { 0 };
    must_explain(model_shape_read(&shape, g, &why), &why);
    must_explain(memory_estimate_read(&estimate, g, CTX, &FORMATS[FORMAT_F16], &FORMATS[FORMAT_F16], &why),
                 &why);
    must_explain(gguf_check_types(g, &why), &why);
    if (!gguf_check_types(g, NULL)) must_explain(recipe_plan_memory(&plan, g, c, CTX, 1, &why), &why);
    const enum err_code rc = tokenizer_open(&t, g, &why);
    must_explain(rc, &why);
    if (!rc) tokenizer_close(t);
}

static bool is_small(const struct gguf *g)
{
    struct model_shape s;
    return !model_shape_read(&s, g, NULL) && s.params <= WEIGHTS_MOST && s.layers <= LAYERS_MOST &&
           s.vocab <= VOCABULARY_MOST && s.embd <= WIDTH_MOST && s.ff <= WIDTH_MOST &&
           (int64_t)s.heads * MAX(s.head_dim_k, s.head_dim_v) <= WIDTH_MOST;
}

static bool forward(struct model *m, const int32_t *ids, int n, int from)
{
    struct batch_row rows[PROMPT];
    struct err why = { 0 };
    for (int i = 0; i < n; i++)
        rows[i] = (struct batch_row){ .token = ids[i], .pos = from + i, .logits = i == n - 1 };
    const enum err_code rc = model_forward(m, rows, n, &why);
    must_explain(rc, &why);
    if (!rc) must_be_finite(model_logits(m, 0), model_shape(m)->vocab);
    return !rc;
}

static void generate(struct model *m)
{
    int32_t ids[PROMPT];
    const int64_t vocab = model_shape(m)->vocab;
    for (int i = 0; i < PROMPT; i++) ids[i] = (int32_t)((i * 37 + 5) % vocab);
    bool on = forward(m, ids, PROMPT, 0);
    for (int i = 0; i < STEPS && on; i++) on = forward(m, ids + i, 1, PROMPT + i);
    if (!on || !model_tokenizer(m)) return;
    struct perplexity p;
    struct err why = { 0 };
    const enum err_code rc = eval_perplexity(&p, m, TEXT, sizeof TEXT - 1, 16, 3, NULL, NULL, &why);
    must_explain(rc, &why);
    if (!rc && !(p.nll >= 0 && isfinite(p.nll))) abort();
}

static void run(const struct gguf *g, const struct config *c)
{
    const struct model_options o = { .gguf = g, .config = c, .ctx = CTX };
    struct model *m;
    struct err why = { 0 };
    const enum err_code rc = model_open(&m, &o, &why);
    must_explain(rc, &why);
    if (rc) return;
    generate(m);
    model_close(m);
}

/* A quantized copy of a file that was accepted runs as well. */
static void quantize(const struct gguf *g, const char *recipe, const struct config *run_as)
{
    static char path[64];
    struct config c;
    struct gguf *made;
    struct err why = { 0 };
    if (!path[0]) snprintf(path, sizeof path, "/dev/shm/fuzz-model-%d.gguf", (int)getpid());
    if (config_parse(&c, recipe, &why)) abort();
    const struct quantize_options o = { .config = &c, .threads = 1 };
    enum err_code rc = quantize_file(path, g, &o, &why);
    must_explain(rc, &why);
    if (rc) return;
    rc = gguf_open(&made, path, &why);
    unlink(path);
    if (rc) {
        fprintf(stderr, "%s made a file that cannot be read: %s\n", recipe, why.message);
        abort();
    }
    run(made, run_as);
    gguf_close(made);
}

static void use_file(const struct str *file, struct script *s)
{
    static const char *const CONFIGS[] = { "threads=1,force=on",
                                           "threads=1,force=on,kv=q8_0,act=int8",
                                           "threads=1,force=on,precision=highest,ctk=q4_0,ctv=fp8_e4m3",
                                           "threads=1,repack=on",
                                           "threads=1,force=on,kv=q4_0,kv_rotate=on",
                                           "threads=1,force=on,batch_invariant=on",
                                           "threads=1,force=on,compile=off" };
    static const char *const RECIPES[] = { "q8_0",
                                           "q4_K_M",
                                           "q4_0",
                                           "u4_g64",
                                           "nf4",
                                           "fp8_e4m3",
                                           "int8",
                                           "mxfp4",
                                           "hqq,format=u4_g64",
                                           "iq4_nl",
                                           "iq4_xs",
                                           "iq3_s",
                                           "iq2_s",
                                           "nvfp4",
                                           "q1_0",
                                           "gptq,group_size=32" };
    struct config c;
    struct gguf *g;
    struct err why = { 0 };
    if (config_parse(&c, CONFIGS[script_below(s, COUNT_OF(CONFIGS))], &why)) abort();
    const size_t recipe = script_below(s, 2 * COUNT_OF(RECIPES));
    enum err_code rc = gguf_open_memory_any_type(&g, file->data, file->len, &why);
    must_explain(rc, &why);
    if (rc) return;
    describe(g, &c);
    gguf_close(g);
    rc = gguf_open_memory(&g, file->data, file->len, &why);
    must_explain(rc, &why);
    if (rc) return;
    if (is_small(g)) {
        run(g, &c);
        if (recipe < COUNT_OF(RECIPES)) quantize(g, RECIPES[recipe], &c);
    }
    gguf_close(g);
}

static void use(const uint8_t *data, size_t size)
{
    static struct draft d;
    struct script s = { data, size };
    struct str file = { 0 };
    memset(&d, 0, sizeof d);
    struct script how = s; /* the first bytes say how it is used, so that longer scripts keep that */
    script_number(&s, 2);
    draft_model(&d, &s);
    for (size_t edits = script_below(&s, 5); edits; edits--) draft_edit(&d, &s);
    draft_write(&d, &file);
    draft_free(&d);
    if (file.failed) abort();
    use_file(&file, &how);
    str_free(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return cost_run(use, data, size, &CEILING);
}
