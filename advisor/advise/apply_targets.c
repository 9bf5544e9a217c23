/* advisor/advise/apply_targets.c - translates a config for servers that people already run (advise.h).
 *
 * A setting is translated where the other program has one with the same meaning; everything else that the
 * config gives is listed as not carried over, so that nobody believes in a setting that is not there. */
#include "advisor/advise/advise.h"

#include <string.h>

#include "engine/quant/quant.h"

/* ---------------------------------------------------------------- the file */

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

/* The recipe part of a config line. */
static void recipe_line(const struct config *c, char *out, size_t size)
{
    struct config only;
    config_default(&only);
    for (int k = KNOB_METHOD; k <= KNOB_TENSORS; k++) {
        only.value[k] = c->value[k];
        only.given[k] = c->given[k];
    }
    only.value[KNOB_REQUANTIZE] = c->value[KNOB_REQUANTIZE];
    only.given[KNOB_REQUANTIZE] = c->given[KNOB_REQUANTIZE];
    config_line(&only, out, size);
}

/* in the current folder */
static void made_name(const char *model_path, const struct config *c, char *out, size_t size)
{
    char recipe[3 * CONFIG_VALUE];
    const char *name = path_file_name(model_path);
    const size_t n = strlen(name) - (str_ends(name, ".gguf") ? 5 : 0);
    config_recipe(c, recipe, sizeof recipe);
    if (strlen(recipe) > 24) snprintf(recipe, sizeof recipe, "mixed");
    for (char *p = recipe; *p; p++)
        if (strchr(":;=/*?[] ", *p)) *p = '-';
    snprintf(out, size, "%.*s-%s.gguf", (int)n, name, recipe);
}

/* The GGUF file that another program would load for this config, to made[size], and the command that makes
 * it; nothing is appended when it is the model's own. Errors: ERR_ABSENT when no other program reads such a
 * file; those of gguf_open and of the recipe. */
static enum err_code apply_file(struct str *command, char *made, size_t size, const char *model_path,
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

/* ---------------------------------------------------------------- the settings */

/* One setting of a program. */
struct setting {
    enum knob_id knob;
    const char *form;   /* with %s for the value; NULL: there is none */
    const char *values; /* of qdyno that it has, under the same name, space-separated; NULL: any */
    const char *note;   /* what happens instead, or what else is needed; NULL: nothing to say */
};

#define LLAMA_KV "f32 f16 bf16 q8_0 q4_0" /* types that both programs have, under the same name */

/* llama.cpp: `llama-server --help`. What it does instead of a setting without a counterpart is its note. */
static const struct setting LLAMA[] = {
    { KNOB_THREADS, "-t %s", NULL, NULL },
    { KNOB_CTX, "-c %s", NULL, NULL },
    { KNOB_GPU_LAYERS, "-ngl %s", NULL, NULL },
    { KNOB_BATCH, "-b %s -ub %s", NULL, NULL },
    { KNOB_CTK, "-ctk %s", LLAMA_KV, NULL },
    { KNOB_CTV, "-ctv %s", LLAMA_KV, NULL },
    { KNOB_DEVICE, NULL, NULL, "see --device and llama-server --list-devices" },
    { KNOB_EXPERT_PLACE, NULL, NULL,
      "see --cpu-moe, and --n-cpu-moe, which counts from the first layer: its experts stay on the CPU" },
    { KNOB_REPACK, NULL, NULL, "llama.cpp repacks by itself; --no-repack switches it off" },
    { KNOB_ATTENTION, NULL, NULL, "--flash-attn chooses it: attention=plain is off, attention=flash is on" },
    { KNOB_KV_CACHE, NULL, NULL, "none there: its cache is one piece, and always used" },
    { KNOB_PARALLEL, NULL, NULL, "nearest: --rpc, whose machines get layers one after the other" },
    { KNOB_HOSTS, NULL, NULL, "see --rpc" },
    { KNOB_MAX_SEQUENCES, NULL, NULL, "nearest: --parallel, whose slots divide the context" },
    { KNOB_STEP_TOKENS, NULL, NULL, "nearest: --ubatch-size" },
    { KNOB_KV_BLOCKS, NULL, NULL, "none there: the context is reserved as a whole" },
    { KNOB_PREFIX_CACHE, NULL, NULL, "--no-cache-prompt switches it off" },
    { KNOB_PRECISION, NULL, NULL, "llama.cpp chooses it when it is built" },
    { KNOB_ACT, NULL, NULL, "llama.cpp chooses the activations' format itself" },
    { KNOB_KV_ROTATE, NULL, NULL,
      "llama.cpp rotates quantized caches where heads are a multiple of 64, and none with "
      "LLAMA_ATTN_ROT_DISABLE=1 in the environment" },
    { KNOB_ISA, NULL, NULL, "llama.cpp chooses it when it is built" },
    { KNOB_AFFINITY, NULL, NULL, "see --cpu-mask and --cpu-strict" },
    { KNOB_NUMA, NULL, NULL, "nearest: --numa distribute, isolate or numactl" },
    { KNOB_PREFETCH, NULL, NULL, "nearest: --mlock, or --no-mmap to read all at the start" },
    { KNOB_OVERSIZE, NULL, NULL, "llama.cpp reads weights that exceed memory from disk without being asked" },
    { KNOB_FORCE, NULL, NULL, "llama.cpp checks the parts of a file itself" },
    { KNOB_HANDICAP, NULL, NULL, "only for tests of qdyno" },
    { KNOB_GRID, NULL, NULL, "changes nothing that runs" },
    { KNOB_ENGINE, NULL, NULL, "a config of another engine is not translated" },
    { KNOB_BIN, NULL, NULL, "the program of another engine" },
    { KNOB_ARGS, NULL, NULL, "arguments of another engine" },
    { KNOB_URL, NULL, NULL, "the address of a running server" },
    { KNOB_KEY_ENV, NULL, NULL, "the key of a running server" },
};

/* Ollama: https://docs.ollama.com/modelfile and its environment variables. */
static const struct setting OLLAMA[] = {
    { KNOB_CTX, "PARAMETER num_ctx %s", NULL, NULL },
    { KNOB_THREADS, "PARAMETER num_thread %s", NULL, NULL },
    { KNOB_BATCH, "PARAMETER num_batch %s", NULL, NULL },
    { KNOB_GPU_LAYERS, "PARAMETER num_gpu %s", NULL, NULL },
    { KNOB_CTK, "# environment of the server: OLLAMA_FLASH_ATTENTION=1 OLLAMA_KV_CACHE_TYPE=%s",
      "f16 q8_0 q4_0", "one type for keys and values of all models of the server" },
    { KNOB_CTV, NULL, NULL, "the type of the keys is used for the values, too" },
    { KNOB_MAX_SEQUENCES, "# environment of the server: OLLAMA_NUM_PARALLEL=%s", NULL, NULL },
};

/* LM Studio: names in the dialogue "Load"; `lms load` has two of them as flags. */
static const struct setting LMSTUDIO[] = {
    { KNOB_CTX, "Context Length: %s", NULL, NULL },
    { KNOB_THREADS, "CPU Thread Pool Size: %s", NULL, NULL },
    { KNOB_BATCH, "Evaluation Batch Size: %s", NULL, NULL },
    { KNOB_GPU_LAYERS, "GPU Offload: %s", NULL, NULL },
    { KNOB_CTK, "K Cache Quantization Type: %s", "f32 f16 bf16 q8_0 q4_0", "needs Flash Attention" },
    { KNOB_CTV, "V Cache Quantization Type: %s", "f32 f16 bf16 q8_0 q4_0", "needs Flash Attention" },
    { KNOB_MAX_SEQUENCES, "Max Concurrent Predictions: %s", NULL, NULL },
};

/* vLLM: `vllm serve --help`. */
static const struct setting VLLM[] = {
    { KNOB_CTX, "--max-model-len %s", NULL, NULL },
    { KNOB_BATCH, "--max-num-batched-tokens %s", NULL,
      "it counts all rows of a step, also those that decode" },
    { KNOB_STEP_TOKENS, "--max-num-batched-tokens %s", NULL, NULL },
    { KNOB_MAX_SEQUENCES, "--max-num-seqs %s", NULL, NULL },
    { KNOB_CTK, "--kv-cache-dtype %s", "bf16 fp8_e4m3 fp8_e5m2", "one type for keys and values" },
    { KNOB_CTV, NULL, NULL, "the type of the keys is used for the values, too" },
    { KNOB_THREADS, NULL, NULL, "see VLLM_CPU_OMP_THREADS_BIND for its CPU backend" },
    { KNOB_PREFIX_CACHE, NULL, NULL, "--no-enable-prefix-caching switches it off" },
};

struct target {
    const char *name;
    const char *make;           /* with %s for the command that makes the file, if one has to be made */
    const char *before, *after; /* around the file's name, before the settings */
    bool quotes;                /* the file's name is a word of a shell */
    const char *between;        /* settings */
    const struct setting *setting;
    size_t settings;
    const char *kv_types; /* of the KV cache; another one is an error. NULL: it becomes a note */
    const char *small_v;  /* what values of the cache with fewer than 16 bits need; NULL: nothing */
    const char *note;     /* about all; NULL: none */
};
#define MAKE_FIRST "# make the file: %s\n"
static const struct target TARGETS[] = {
    { .name = "llama-server",
      .make = "%s && ",
      .before = "llama-server -m ",
      .after = "",
      .quotes = true,
      .between = " ",
      .setting = LLAMA,
      .settings = COUNT_OF(LLAMA),
      .kv_types = LLAMA_KV,
      .small_v = " -fa on" },
    { .name = "ollama",
      .make = MAKE_FIRST,
      .before = "FROM ", /* a Modelfile takes the rest of the line */
      .after = "\n",
      .between = "\n",
      .setting = OLLAMA,
      .settings = COUNT_OF(OLLAMA),
      .note = "save the text as Modelfile, then: ollama create NAME -f Modelfile" },
    { .name = "lmstudio",
      .make = MAKE_FIRST,
      .before = "# import the file: lms import ",
      .after = "\n# then, in the dialogue that loads it:\n",
      .quotes = true,
      .between = "\n",
      .setting = LMSTUDIO,
      .settings = COUNT_OF(LMSTUDIO) },
    { .name = "vllm",
      .make = MAKE_FIRST,
      .before = "vllm serve ",
      .after = "",
      .quotes = true,
      .between = " ",
      .setting = VLLM,
      .settings = COUNT_OF(VLLM),
      .note =
          "vLLM runs GGUF files of some architectures only, and wants --tokenizer of the original model" },
};
const char *const APPLY_TARGETS[] = { "llama-server", "ollama", "lmstudio", "vllm", NULL };

static const struct target *target_find(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(TARGETS); i++)
        if (!strcmp(TARGETS[i].name, name)) return &TARGETS[i];
    return NULL;
}

static const struct setting *setting_find(const struct target *t, enum knob_id id)
{
    for (size_t i = 0; i < t->settings; i++)
        if (t->setting[i].knob == id) return &t->setting[i];
    return NULL;
}

/* Part of the recipe, or of the file: the model file has it. */
static bool is_in_file(enum knob_id id)
{
    return id == KNOB_MODEL || id == KNOB_REQUANTIZE || (id >= KNOB_METHOD && id <= KNOB_TENSORS);
}

static void form_append(struct str *out, const char *form, const char *value)
{
    for (const char *at; (at = strstr(form, "%s")); form = at + 2) {
        str_append_n(out, form, (size_t)(at - form));
        str_append(out, value);
    }
    str_append(out, form);
}

static void settings_append(struct str *out, struct str *notes, const struct target *t,
                            const struct config *c)
{
    bool any = false;
    for (int i = 0; i < KNOB_COUNT; i++) {
        const enum knob_id id = (enum knob_id)i;
        const char *value = config_text(c, id), *usual = KNOBS[id].otherwise;
        if (!c->given[id] || is_in_file(id)) continue;
        const struct setting *s = setting_find(t, id);
        const bool automatic = KNOBS[id].kind == VALUE_INT && /* both choose themselves */
                               config_int(c, id) < (id == KNOB_GPU_LAYERS ? 0 : 1);
        if (s && s->form && !automatic && (!s->values || str_has_word(s->values, value))) {
            if (any || !strchr(t->after, '\n')) str_append(out, t->between);
            form_append(out, s->form, value);
            any = true;
            if (s->note) str_printf(notes, "%s=%s: %s\n", KNOBS[id].key, value, s->note);
        } else if (strcmp(value, usual)) {
            str_printf(notes, "%s=%s does not carry over%s%s\n", KNOBS[id].key, value,
                       s && s->note ? ": " : "", s && s->note ? s->note : "");
        }
    }
}

static enum err_code check_kv(const struct target *t, const struct config *c, struct err *why)
{
    static const enum knob_id KV[] = { KNOB_CTK, KNOB_CTV };
    for (size_t i = 0; t->kv_types && i < COUNT_OF(KV); i++)
        if (!str_has_word(t->kv_types, config_text(c, KV[i])))
            return err_set(why, ERR_ABSENT, "llama.cpp has no KV cache of %s", config_text(c, KV[i]));
    return ERR_OK;
}

enum err_code apply_for(struct str *out, struct str *notes, const char *target, const char *model_path,
                        const struct config *c, struct err *why)
{
    char made[4096];
    struct str command = { 0 };
    const struct target *t = target_find(target);
    if (!t)
        return err_set(why, ERR_USAGE, "--for %s: expected llama-server, ollama, lmstudio or vllm", target);
    enum err_code rc = check_kv(t, c, why);
    if (!rc) rc = apply_file(&command, made, sizeof made, model_path, c, why);
    if (!rc) {
        if (command.len) form_append(out, t->make, str_text(&command));
        str_append(out, t->before);
        if (t->quotes)
            word_append(out, made);
        else
            str_append(out, made);
        str_append(out, t->after);
        settings_append(out, notes, t, c);
        if (t->small_v && format_bits_per_weight(format_find(config_text(c, KNOB_CTV))) < 16)
            str_append(out, t->small_v);
        if (t->note) str_printf(notes, "%s\n", t->note);
    }
    const bool failed = command.failed || out->failed || notes->failed;
    str_free(&command);
    return rc ? rc : failed ? err_set(why, ERR_NOMEM, "out of memory for settings") : ERR_OK;
}

enum err_code apply_llama_cpp(struct str *out, struct str *notes, const char *model_path,
                              const struct config *c, struct err *why)
{
    struct str lines = { 0 };
    const enum err_code rc = apply_for(out, &lines, APPLY_TARGETS[0], model_path, c, why);
    for (const char *line = str_text(&lines); *line; line += strcspn(line, "\n") + 1)
        str_printf(notes, "%s%.*s", notes->len ? "; " : "", (int)strcspn(line, "\n"), line);
    str_free(&lines);
    return rc;
}
