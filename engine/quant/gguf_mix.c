/* GGUF block formats, mixed over tensors as llama.cpp's file types mix them, optionally weighted by an
 * importance matrix. Source: llama.cpp, src/llama-quant.cpp. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/quant/calibration.h"
#include "engine/quant/methods.h"
#include "engine/quant/mixes.h"

#define GGUF_FORMATS                                                                                           \
    "q4_0 q4_1 q5_0 q5_1 q8_0 q2_K q3_K q4_K q5_K q6_K iq1_s iq1_m iq2_xxs iq2_xs iq2_s iq3_xxs iq3_s iq4_nl " \
    "iq4_xs tq1_0 tq2_0 f16 bf16 f32"

static const struct param GGUF_PARAMS[] = {
    { .name = "type",
      .aliases = "ftype",
      .kind = VALUE_CHOICE,
      .choices =
          "q2_K q2_K_S q3_K_S q3_K_M q3_K_L q4_K_S q4_K_M q5_K_S q5_K_M q6_K q4_0 q4_1 q5_0 q5_1 q8_0 "
          "iq1_s iq1_m iq2_xxs iq2_xs iq2_s iq2_m iq3_xxs iq3_xs iq3_s iq3_m iq4_nl iq4_xs tq1_0 tq2_0",
      .otherwise = "q4_K_M",
      .help = "the file type, as llama-quantize names it" },
    { .name = "imatrix",
      .kind = VALUE_BOOL,
      .otherwise = "false",
      .help =
          "weight errors by the inputs' mean squares, from calib= (a calibration, an imatrix, or a text)" },
    { .name = "pure",
      .kind = VALUE_BOOL,
      .otherwise = "false",
      .help = "one format for all matrices instead of a mix" },
    { .name = "output_tensor_type",
      .aliases = "output-tensor-type",
      .kind = VALUE_CHOICE,
      .choices = "auto " GGUF_FORMATS,
      .otherwise = "auto",
      .help = "format of the output matrix" },
    { .name = "token_embedding_type",
      .aliases = "token-embedding-type",
      .kind = VALUE_CHOICE,
      .choices = "auto " GGUF_FORMATS,
      .otherwise = "auto",
      .help = "format of the token embedding" },
    { 0 },
};

/* The value of a CHOICE parameter, as the element of `words` it equals; NULL: none. */
static const char *params_choice(const struct params *p, const char *name, const char *const *words,
                                 size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (params_is(p, name, words[i])) return words[i];
    return NULL;
}

static const struct format_mix *mix_of(const struct params *p)
{
    const char *names[48];
    for (size_t i = 0; i < MIX_COUNT; i++) names[i] = MIXES[i].name;
    return mix_find(params_choice(p, "type", names, MIX_COUNT));
}

/* The format that a parameter names; NULL: auto. */
static const struct format *params_format(const struct params *p, const char *name)
{
    const char *names[FORMAT_COUNT];
    for (int i = 0; i < FORMAT_COUNT; i++) names[i] = FORMATS[i].name;
    const char *word = params_choice(p, name, names, FORMAT_COUNT);
    return word ? format_find(word) : NULL;
}

static enum err_code gguf_check(const struct params *p, struct err *why)
{
    const struct format_mix *mix = mix_of(p);
    if (mix->needs_importance && !params_bool(p, "imatrix"))
        return err_set(
            why, ERR_USAGE,
            "type=%s without an importance matrix gives a useless model: add imatrix=true (and calib=), or "
            "use %s",
            mix->name, mix->base == FORMAT_Q2_K ? "q2_K" : "a larger type, such as iq3_xxs or q2_K");
    return ERR_OK;
}

static const char *gguf_format(const struct params *p)
{
    return FORMATS[mix_of(p)->base].name;
}

static uint32_t gguf_file_type(const struct params *p)
{
    return mix_of(p)->file_type;
}

static enum calibration_need gguf_needs(const struct params *p)
{
    return params_bool(p, "imatrix") ? CALIBRATION_NEEDED : CALIBRATION_NONE;
}

/* ---------------------------------------------------------------- the mix */

static int64_t model_number(const struct gguf *g, const char *arch, const char *key, int64_t otherwise)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", arch, key);
    return gguf_get_int(g, name, otherwise);
}

/* Number of tensors with `part` in their names, in layers below `layer`. */
static int count_tensors_below(const struct gguf *g, const char *part, int layer)
{
    int n = 0;
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const char *name = gguf_tensor_at(g, i)->name;
        n += strstr(name, part) && !strncmp(name, "blk.", 4) && atoi(name + 4) < layer;
    }
    return n;
}

/* Read the model's properties that the rules depend on. */
static struct mix_facts mix_facts_of(const struct gguf *g, bool has_imatrix)
{
    char arch[32];
    const struct gguf_string s = gguf_get_string(g, "general.architecture");
    snprintf(arch, sizeof arch, "%.*s", (int)MIN(s.len, sizeof arch - 1), s.data ? s.data : "");
    struct mix_facts f = { .falcon = !strcmp(arch, "falcon"),
                           .heads = (int)model_number(g, arch, "attention.head_count", 1),
                           .layers = (int)model_number(g, arch, "block_count", 1),
                           .experts = (int)model_number(g, arch, "expert_count", 0),
                           .has_output = gguf_tensor_find(g, "output.weight") != NULL,
                           .has_imatrix = has_imatrix };
    f.kv_heads = (int)model_number(g, arch, "attention.head_count_kv", f.heads);
    f.values = count_tensors_below(g, "attn_v.weight", INT32_MAX) +
               count_tensors_below(g, "attn_qkv.weight", INT32_MAX);
    f.seventy_b = f.layers == 80 &&
                  (!strcmp(arch, "qwen2") || (!strcmp(arch, "llama") && f.heads != f.kv_heads));
    return f;
}

/* The method's `tensor_format`: explicit parameters first, then the rules of the mix. */
static const struct format *gguf_tensor_format(const struct params *p, const struct gguf *g,
                                               const struct gguf_tensor *t)
{
    const struct format_mix *mix = mix_of(p);
    const bool output = !strcmp(t->name, "output.weight"), embedding = !strcmp(t->name, "token_embd.weight");
    const struct format *wanted = output      ? params_format(p, "output_tensor_type")
                                  : embedding ? params_format(p, "token_embedding_type")
                                              : NULL;
    if (embedding && !wanted && !gguf_tensor_find(g, "output.weight"))
        wanted = params_format(p, "output_tensor_type");
    if (wanted) return mix_fitting(wanted, t->shape[0]);
    /* Statistics do not exist for the token embedding, and imatrix files omit the output matrix. */
    const bool unweighed = (output || embedding) && FORMATS[mix->base].needs_importance;
    if (params_bool(p, "pure") && !unweighed) return mix_fitting(&FORMATS[mix->base], t->shape[0]);
    const struct mix_facts facts = mix_facts_of(g, params_bool(p, "imatrix"));
    const bool down = strstr(t->name, "ffn_down") != NULL;
    const int layer = strncmp(t->name, "blk.", 4) ? 0 : atoi(t->name + 4),
              /* with experts, a layer has several such tensors, and the layer's number counts */
        index = down && facts.experts > 1
                    ? layer
                    : count_tensors_below(g, down ? "ffn_down" : "attn_v.weight", layer);
    return mix_format(mix, &facts, t->name, index, t->shape[0]);
}

/* ---------------------------------------------------------------- encoding */

/* Matrices without importance (imatrix files omit the output matrix) are encoded unweighted, as
 * llama-quantize does. */
static void gguf_rows(const struct tensor_job *job, const float *x, void *out, int64_t rows)
{
    const bool weighted = params_bool(&job->params, "imatrix");
    format_encode_weighted(job->format, x, weighted ? job->importance : NULL, out, rows, job->cols);
}

const struct method METHOD_GGUF = {
    .name = "gguf",
    .help = "GGUF block formats mixed as in llama.cpp's file types (q4_K_M ...), optional importance matrix",
    .good = "runs everywhere llama.cpp runs; q4_K_M and larger lose little; imatrix helps below 5 bits",
    .bad = "2 and 3 bits on small models; q2_K and q3_K are limited by arithmetic on few cores",
    .params = GGUF_PARAMS,
    .shorthand = "type",
    .formats = GGUF_FORMATS,
    .calibration = CALIBRATION_OPTIONAL,
    .experts = true,
    .check = gguf_check,
    .format = gguf_format,
    .tensor_format = gguf_tensor_format,
    .needs = gguf_needs,
    .file_type = gguf_file_type,
    .rows = gguf_rows,
};
