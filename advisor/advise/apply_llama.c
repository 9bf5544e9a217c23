/* advisor/advise/apply_llama.c - translates a config to llama.cpp's command line.
 *
 * Only settings with the same meaning are translated. A format or cache type that llama.cpp does not have is
 * an error that says so. Settings that change how this program computes, but not what it computes, become
 * notes. */
#include "advisor/advise/advise.h"

#include <string.h>

#include "advisor/advise/apply_parts.h"
#include "engine/quant/quant.h"

/* cache types that both programs have, under the same name */
static const char *const THEIR_KV = "f32 f16 bf16 q8_0 q4_0";

/* Settings without a counterpart, and what llama.cpp does instead. */
static const struct lost {
    enum knob_id knob;
    const char *what;
} LOST[] = {
    { KNOB_DEVICE, "see --device and llama-server --list-devices" },
    { KNOB_EXPERT_PLACE,
      "see --cpu-moe, and --n-cpu-moe, which counts from the first layer: its experts stay on the CPU" },
    { KNOB_REPACK, "llama.cpp repacks by itself; --no-repack switches it off" },
    { KNOB_COMPILE, "none there" },
    { KNOB_BATCH_INVARIANT, "none there" },
    { KNOB_ATTENTION, "--flash-attn chooses it: attention=plain is off, attention=flash is on" },
    { KNOB_KV_CACHE, "none there: its cache is one piece, and always used" },
    { KNOB_PARALLEL, "nearest: --rpc, whose machines get layers one after the other" },
    { KNOB_HOSTS, "see --rpc" },
    { KNOB_EXCHANGE, "none there" },
    { KNOB_MAX_SEQUENCES, "nearest: --parallel, whose slots divide the context" },
    { KNOB_STEP_TOKENS, "nearest: --ubatch-size" },
    { KNOB_KV_BLOCKS, "none there: the context is reserved as a whole" },
    { KNOB_PREFIX_CACHE, "--no-cache-prompt switches it off" },
    { KNOB_EVICT, "none there" },
    { KNOB_PREEMPT, "none there" },
    { KNOB_SCHEDULE, "none there" },
    { KNOB_ITL_LIMIT, "none there" },
    { KNOB_PRECISION, "llama.cpp chooses it when it is built" },
    { KNOB_ACT, "llama.cpp chooses the activations' format itself" },
    { KNOB_KV_ROTATE, "llama.cpp rotates quantized caches where heads are a multiple of 64, and none with "
                      "LLAMA_ATTN_ROT_DISABLE=1 in the environment" },
    { KNOB_ISA, "llama.cpp chooses it when it is built" },
    { KNOB_AFFINITY, "see --cpu-mask and --cpu-strict" },
    { KNOB_NUMA, "nearest: --numa distribute, isolate or numactl" },
    { KNOB_HUGEPAGES, "none there" },
    { KNOB_PREFETCH, "nearest: --mlock, or --no-mmap to read all at the start" },
    { KNOB_OVERSIZE, "llama.cpp reads weights that exceed memory from disk without being asked" },
    { KNOB_FORCE, "llama.cpp checks the parts of a file itself" },
    { KNOB_HANDICAP, "only for tests of qdyno" },
    { KNOB_GRID, "changes nothing that runs" },
    { KNOB_ENGINE, "a config of another engine is not translated" },
    { KNOB_BIN, "the program of another engine" },
    { KNOB_ARGS, "arguments of another engine" },
    { KNOB_URL, "the address of a running server" },
    { KNOB_KEY_ENV, "the key of a running server" },
};

static void notes_append(struct str *s, const char *key, const char *value, const char *what)
{
    if (s->len) str_append(s, "; ");
    str_printf(s, "%s=%s: %s", key, value, what);
}

static bool leaves_plain_file(const struct params *p)
{
    return !p->method || (!p->method->act && !p->method->companions) ||
           (p->method->act && p->method->act(p).kind == INPUT_FREE && !p->method->companions);
}

/* Can other programs read the file that this recipe makes? */
static enum err_code check_recipe(const struct gguf *g, const struct config *c, struct err *why)
{
    struct quantize_plan plan = { 0 };
    const struct params p = config_params(c);
    enum err_code rc = quantize_plan_init(&plan, g, c, why);
    for (int64_t i = 0; i < plan.count && !rc; i++) {
        const struct tensor_plan *t = &plan.tensors[i];
        if (t->format->ggml_type >= FORMAT_OWN_TYPES)
            rc = err_set(why, ERR_ABSENT, "llama.cpp has no format %s (tensor %s)", t->format->name,
                         t->source->name);
    }
    if (!rc && !leaves_plain_file(&p))
        rc = err_set(why, ERR_ABSENT,
                     "llama.cpp cannot read the companion tensors that %s stores beside the weights",
                     p.method->name);
    quantize_plan_done(&plan);
    return rc;
}

static enum err_code check_kv(const struct config *c, struct err *why)
{
    static const enum knob_id KV[] = { KNOB_CTK, KNOB_CTV };
    for (size_t i = 0; i < COUNT_OF(KV); i++)
        if (!str_has_word(THEIR_KV, config_text(c, KV[i])))
            return err_set(why, ERR_ABSENT, "llama.cpp has no KV cache of %s", config_text(c, KV[i]));
    return ERR_OK;
}

/* The recipe part of a config line. */
static void recipe_line(const struct config *c, char *out, size_t size)
{
    static const enum knob_id RECIPE[] = { KNOB_METHOD, KNOB_FORMAT, KNOB_PARAMS, KNOB_CALIB, KNOB_TENSORS };
    struct config only;
    config_default(&only);
    for (size_t i = 0; i < COUNT_OF(RECIPE); i++) {
        const enum knob_id k = RECIPE[i];
        only.value[k] = c->value[k];
        only.given[k] = c->given[k];
    }
    config_line(&only, out, size);
}

static void runtime_append(struct str *out, const struct config *c)
{
    if (config_int(c, KNOB_THREADS)) str_printf(out, " -t %s", config_text(c, KNOB_THREADS));
    if (config_int(c, KNOB_CTX)) str_printf(out, " -c %s", config_text(c, KNOB_CTX));
    if (c->given[KNOB_GPU_LAYERS] && config_int(c, KNOB_GPU_LAYERS) >= 0)
        str_printf(out, " -ngl %s", config_text(c, KNOB_GPU_LAYERS));
    if (c->given[KNOB_BATCH])
        str_printf(out, " -b %s -ub %s", config_text(c, KNOB_BATCH), config_text(c, KNOB_BATCH));
    if (c->given[KNOB_CTK]) str_printf(out, " -ctk %s", config_text(c, KNOB_CTK));
    if (c->given[KNOB_CTV]) str_printf(out, " -ctv %s", config_text(c, KNOB_CTV));
    /* llama.cpp refuses to quantize V without flash attention */
    if (format_bits_per_weight(format_find(config_text(c, KNOB_CTV))) < 16) str_append(out, " -fa on");
}

/* in the current folder */
static void made_name(const char *model_path, const struct config *c, char *out, size_t size)
{
    char recipe[3 * CONFIG_VALUE];
    const char *slash = strrchr(model_path, '/'), *name = slash ? slash + 1 : model_path;
    const size_t n = strlen(name) - (str_ends(name, ".gguf") ? 5 : 0);
    config_recipe(c, recipe, sizeof recipe);
    if (strlen(recipe) > 24) snprintf(recipe, sizeof recipe, "mixed");
    for (char *p = recipe; *p; p++)
        if (strchr(":;=/*?[] ", *p)) *p = '-';
    snprintf(out, size, "%.*s-%s.gguf", (int)n, name, recipe);
}

enum err_code apply_file(struct str *command, char *made, size_t size, const char *model_path,
                         const struct config *c, struct err *why)
{
    struct gguf *g = NULL;
    char recipe[2048];
    const char *model = *config_text(c, KNOB_MODEL) ? config_text(c, KNOB_MODEL) : model_path;
    enum err_code rc = config_check_own(c, why);
    if (!rc) rc = gguf_open(&g, model, why);
    const bool as_is = !rc && recipe_is_identity(c, g);
    if (!rc) rc = check_recipe(g, c, why);
    gguf_close(g);
    if (rc) return rc;
    snprintf(made, size, "%s", model);
    if (as_is) return ERR_OK;
    recipe_line(c, recipe, sizeof recipe);
    made_name(model, c, made, size);
    str_append(command, "qdyno quantize ");
    word_append(command, model);
    str_append(command, " ");
    word_append(command, made);
    str_append(command, " -R ");
    word_append(command, recipe);
    return ERR_OK;
}

enum err_code apply_llama_cpp(struct str *out, struct str *notes, const char *model_path,
                              const struct config *c, struct err *why)
{
    char made[4096];
    enum err_code rc = check_kv(c, why);
    if (!rc) rc = apply_file(out, made, sizeof made, model_path, c, why);
    if (rc) return rc;
    if (out->len) str_append(out, " && ");
    str_append(out, "llama-server -m ");
    word_append(out, made);
    runtime_append(out, c);
    for (size_t i = 0; i < COUNT_OF(LOST); i++)
        if (c->given[LOST[i].knob] && strcmp(config_text(c, LOST[i].knob), KNOBS[LOST[i].knob].otherwise))
            notes_append(notes, KNOBS[LOST[i].knob].key, config_text(c, LOST[i].knob), LOST[i].what);
    return out->failed || notes->failed ? err_set(why, ERR_NOMEM, "out of memory for a command line")
                                        : ERR_OK;
}
