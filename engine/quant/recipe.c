/* Which tensor gets which format. Decided from the config and the tensor's own header only, so that the
 * memory plan, the quantizer and a reader of either can never disagree. */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "engine/quant/quant.h"

/* Looked up or added rather than multiplied; tiny and sensitive. The token embedding is not among them: tied
 * models multiply with it, and the field's quantizers include it. */
static const char *const KEPT[] = { "position_embd.*", "token_types.*",  "*_norm*.weight",
                                    "*.bias",          "rope_f*.weight", "*ffn_gate_inp*" };

/* Does a rule's pattern mean this tensor? It may name the whole tensor, or one part between dots ("attn_v").
 */
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

/* The first rule of "pattern:format;pattern:format" that fits; NULL when none does. */
static const struct format *rule_format(const char *rules, const char *name)
{
    char copy[CONFIG_VALUE], *rest = NULL;
    snprintf(copy, sizeof copy, "%s", rules);
    for (char *rule = strtok_r(copy, ";", &rest); rule; rule = strtok_r(NULL, ";", &rest)) {
        char *colon = strchr(rule, ':');
        if (!colon) continue;
        *colon = '\0';
        if (rule_matches(rule, name)) return format_find(colon + 1);
    }
    return NULL;
}

static bool is_kept(const struct gguf_tensor *t)
{
    if (t->dims < 2) return true;
    for (size_t i = 0; i < COUNT_OF(KEPT); i++)
        if (!fnmatch(KEPT[i], t->name, 0)) return true;
    return false;
}

const struct format *recipe_tensor_format(const struct config *c, const struct gguf_tensor *t,
                                          bool *fell_back)
{
    if (fell_back) *fell_back = false;
    if (is_kept(t)) return t->format;
    const struct format *wanted = rule_format(config_text(c, KNOB_TENSORS), t->name);
    if (!wanted) wanted = format_find(config_text(c, KNOB_FORMAT)); /* NULL for "file" */
    if (!wanted) return t->format;
    if (t->shape[0] % wanted->block_weights == 0) return wanted;
    if (fell_back) *fell_back = true;
    const struct format *f16 = &FORMATS[FORMAT_F16];
    return format_row_bytes(t->format, t->shape[0]) <= format_row_bytes(f16, t->shape[0]) ? t->format : f16;
}

bool recipe_is_identity(const struct config *c, const struct gguf *g)
{
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (recipe_tensor_format(c, t, NULL) != t->format) return false;
    }
    return true;
}
