/* Decides which tensor gets which format, from the config and the tensor's header only. The memory estimate
 * and the quantizer both call this, so they always agree. */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "engine/quant/quant.h"

/* Tensors that are looked up or added instead of multiplied: small, and sensitive to errors. The token
 * embedding is not in this list: models with tied embeddings multiply with it, and llama-quantize converts
 * it. */
static const char *const KEPT[] = { "position_embd.*", "token_types.*",   "*_norm*.weight", "*.bias",
                                    "rope_f*.weight",  "*ffn_gate_inp*",  "*ssm_conv1d*",   "*.ssm_a",
                                    "*.ssm_d",         "*shortconv.conv*" };

/* Whether the tensor's layer is in a set like "0-3+7". Tensors of no layer are in no set. */
static bool layer_in_set(const char *set, const char *name)
{
    int layer, from, to, n;
    if (sscanf(name, "blk.%d.", &layer) != 1) return false;
    for (; sscanf(set, "%d%n", &from, &n) == 1; set++) {
        set += n;
        to = from;
        if (*set == '-' && sscanf(set, "-%d%n", &to, &n) == 1) set += n;
        if (layer >= from && layer <= to) return true;
        if (*set != '+') return false;
    }
    return false;
}

/* Whether a rule's pattern matches this tensor: its full name, its name without ".weight", or one part
 * between dots ("attn_v"). */
static bool rule_matches(const char *pattern, const char *name)
{
    char part[128], *rest = NULL;
    if (!fnmatch(pattern, name, 0)) return true;
    snprintf(part, sizeof part, "%s", name);
    char *tail = strstr(part, ".weight");
    if (tail && !tail[7]) *tail = '\0';
    if (!fnmatch(pattern, part, 0)) return true;
    for (char *p = strtok_r(part, ".", &rest); p; p = strtok_r(NULL, ".", &rest))
        if (!fnmatch(pattern, p, 0)) return true;
    return false;
}

/* Format of the first matching rule in "pattern[@layers]:format;..."; NULL: no rule matches. */
static const struct format *rule_format(const char *rules, const char *name)
{
    char copy[CONFIG_VALUE], *rest = NULL;
    snprintf(copy, sizeof copy, "%s", rules);
    for (char *rule = strtok_r(copy, ";", &rest); rule; rule = strtok_r(NULL, ";", &rest)) {
        char *colon = strchr(rule, ':');
        if (!colon) continue;
        *colon = '\0';
        char *layers = strchr(rule, '@');
        if (layers) *layers++ = '\0';
        if ((!layers || layer_in_set(layers, name)) && rule_matches(rule, name))
            return format_find(colon + 1);
    }
    return NULL;
}

/* First and last matrix, where quantization errors cost most; most methods exclude them. A tied embedding is
 * both. */
static bool tensor_is_outer(const struct gguf_tensor *t)
{
    return !strcmp(t->name, "token_embd.weight") || !strcmp(t->name, "output.weight");
}

static bool tensor_is_kept(const struct gguf_tensor *t)
{
    if (t->dims < 2) return true;
    for (size_t i = 0; i < COUNT_OF(KEPT); i++)
        if (!fnmatch(KEPT[i], t->name, 0)) return true;
    return false;
}

/* The smaller of the tensor's own format and f16. */
static const struct format *tensor_f16_at_most(const struct gguf_tensor *t)
{
    const struct format *f16 = &FORMATS[FORMAT_F16];
    return format_row_bytes(t->format, t->shape[0]) <= format_row_bytes(f16, t->shape[0]) ? t->format : f16;
}

/* Format that the recipe asks for, before row lengths are checked; NULL: leave the tensor as it is. */
static const struct format *recipe_wanted_format(const struct config *c, const struct params *p,
                                                 const struct gguf *g, const struct gguf_tensor *t)
{
    const struct format *rule = rule_format(config_text(c, KNOB_TENSORS), t->name);
    if (rule) return rule;
    if (!p->method) return NULL;
    if (p->method->linear_only && tensor_is_outer(t)) return tensor_f16_at_most(t);
    if (p->method->tensor_format) return p->method->tensor_format(p, g, t);
    return format_find(config_text(c, KNOB_FORMAT)); /* NULL for "file" */
}

const struct format *recipe_tensor_format(const struct config *c, const struct gguf *g,
                                          const struct gguf_tensor *t, bool *fell_back)
{
    if (fell_back) *fell_back = false;
    if (tensor_is_kept(t)) return t->format;
    const struct params p = config_params(c);
    const struct format *wanted = recipe_wanted_format(c, &p, g, t);
    if (!wanted) return t->format;
    if (t->shape[0] % wanted->block_weights == 0) return wanted;
    if (fell_back) *fell_back = true;
    return tensor_f16_at_most(t);
}

const struct format *recipe_asked_format(const struct config *c, const struct gguf *g,
                                         const struct gguf_tensor *t)
{
    const struct params p = config_params(c);
    return tensor_is_kept(t) ? NULL : recipe_wanted_format(c, &p, g, t);
}

enum tensor_fate recipe_tensor_fate(const struct config *c, const struct gguf *g, const struct gguf_tensor *t)
{
    const struct params p = config_params(c);
    bool fell_back;
    if (tensor_is_kept(t)) return FATE_KEPT;
    recipe_tensor_format(c, g, t, &fell_back);
    if (fell_back) return FATE_FELL_BACK;
    if (rule_format(config_text(c, KNOB_TENSORS), t->name)) return FATE_RULE;
    if (p.method && p.method->linear_only && tensor_is_outer(t)) return FATE_OUTER;
    return recipe_wanted_format(c, &p, g, t) ? FATE_METHOD : FATE_AS_IS;
}

bool recipe_converts(const struct config *c, const struct gguf *g, const struct gguf_tensor *t)
{
    const struct format *f = recipe_tensor_format(c, g, t, NULL);
    const struct method *m = method_find(config_text(c, KNOB_METHOD));
    return f != t->format || (m && m->formats && !tensor_is_kept(t) && method_makes(m, f));
}

bool recipe_is_identity(const struct config *c, const struct gguf *g)
{
    for (int64_t i = 0; i < gguf_tensor_count(g); i++)
        if (recipe_converts(c, g, gguf_tensor_at(g, i))) return false;
    return true;
}
