/* advisor/advise/apply_targets.c - translates a config for servers that people already run (advise.h).
 *
 * A setting is translated where the other program has one with the same meaning; everything else that the
 * config gives is listed as not carried over, so that nobody believes in a setting that is not there. */
#include "advisor/advise/advise.h"

#include <string.h>

#include "advisor/advise/apply_parts.h"

/* One setting of a program. */
struct setting {
    enum knob_id knob;
    const char *form;   /* with one %s for the value; NULL: there is none */
    const char *values; /* of qdyno that it has, under the same name, space-separated; NULL: any */
    const char *note;   /* what happens instead, or what else is needed; NULL: nothing to say */
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
    const char *before, *after; /* around the file's name, before the settings */
    const char *between;        /* settings */
    const struct setting *setting;
    size_t settings;
    const char *note; /* about all; NULL: none */
};
static const struct target TARGETS[] = {
    { "ollama", "FROM ", "\n", "\n", OLLAMA, COUNT_OF(OLLAMA),
      "save the text as Modelfile, then: ollama create NAME -f Modelfile" },
    { "lmstudio", "# import the file: lms import ", "\n# then, in the dialogue that loads it:\n", "\n",
      LMSTUDIO, COUNT_OF(LMSTUDIO), NULL },
    { "vllm", "vllm serve ", "", " ", VLLM, COUNT_OF(VLLM),
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
    switch (id) {
    case KNOB_MODEL:
    case KNOB_METHOD:
    case KNOB_FORMAT:
    case KNOB_PARAMS:
    case KNOB_CALIB:
    case KNOB_TENSORS: return true;
    default: return false;
    }
}

static void setting_append(struct str *out, const char *form, const char *value)
{
    const char *at = strstr(form, "%s");
    str_append_n(out, form, (size_t)(at - form));
    str_append(out, value);
    str_append(out, at + 2);
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
            setting_append(out, s->form, value);
            any = true;
            if (s->note) str_printf(notes, "%s=%s: %s\n", KNOBS[id].key, value, s->note);
        } else if (strcmp(value, usual)) {
            str_printf(notes, "%s=%s does not carry over%s%s\n", KNOBS[id].key, value,
                       s && s->note ? ": " : "", s && s->note ? s->note : "");
        }
    }
}

enum err_code apply_for(struct str *out, struct str *notes, const char *target, const char *model_path,
                        const struct config *c, struct err *why)
{
    char made[4096];
    struct str command = { 0 };
    if (!strcmp(target, APPLY_TARGETS[0])) {
        const enum err_code rc = apply_llama_cpp(out, notes, model_path, c, why);
        if (notes->len) str_append(notes, "\n");
        return rc;
    }
    const struct target *t = target_find(target);
    if (!t)
        return err_set(why, ERR_USAGE, "--for %s: expected llama-server, ollama, lmstudio or vllm", target);
    enum err_code rc = apply_file(&command, made, sizeof made, model_path, c, why);
    if (!rc) {
        if (command.len) str_printf(out, "# make the file: %s\n", str_text(&command));
        str_append(out, t->before);
        if (strchr(t->before, '#') || !strcmp(t->name, "vllm"))
            word_append(out, made);
        else
            str_append(out, made); /* a Modelfile takes the rest of the line */
        str_append(out, t->after);
        settings_append(out, notes, t, c);
        if (t->note) str_printf(notes, "%s\n", t->note);
    }
    const bool failed = command.failed || out->failed || notes->failed;
    str_free(&command);
    return rc ? rc : failed ? err_set(why, ERR_NOMEM, "out of memory for settings") : ERR_OK;
}
