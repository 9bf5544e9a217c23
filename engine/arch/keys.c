/* The table of metadata keys under an architecture's prefix, and the check that a file contains nothing that
 * could change answers and that the forward pass does not use. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/arch/arch_internal.h"
#include "engine/gguf/gguf.h"
#include "kernels/kernels.h"

static bool always(const struct arch *a, const struct gguf *g)
{
    (void)a;
    (void)g;
    return true;
}

static bool with_rope(const struct arch *a, const struct gguf *g)
{
    (void)g;
    return a->rope != ROPE_NONE;
}

/* Sections deal the pairs to several positions, which are equal in text. They also say that pairs are halves.
 */
static bool with_rope_halves(const struct arch *a, const struct gguf *g)
{
    (void)g;
    return a->rope == ROPE_HALVES;
}

static bool with_experts(const struct arch *a, const struct gguf *g)
{
    (void)g;
    return a->router != ROUTER_NONE;
}

static bool with_scaled_queries(const struct arch *a, const struct gguf *g)
{
    (void)g;
    return a->scales_queries;
}

static bool with_latent(const struct arch *a, const struct gguf *g)
{
    (void)g;
    return a->latent;
}

static bool with_yarn_multiplier(const struct arch *a, const struct gguf *g)
{
    (void)g;
    return a->scales_queries || a->latent;
}

static bool with_state(const struct arch *a, const struct gguf *g)
{
    (void)g;
    return a->state == MIXER_DELTA || a->state == MIXER_SCAN;
}

static bool with_short_convolution(const struct arch *a, const struct gguf *g)
{
    (void)g;
    return a->state == MIXER_CONVOLUTION;
}

static bool with_attention_period(const struct arch *a, const struct gguf *g)
{
    (void)g;
    return a->attention_period > 0;
}

static bool with_nextn(const struct arch *a, const struct gguf *g)
{
    return with_experts(a, g) || with_state(a, g);
}

bool arch_lists_windows(const struct arch *a, const struct gguf *g)
{
    char key[ARCH_KEY_NAME];
    const struct gguf_kv *kv = gguf_kv_find(g, arch_key_name(key, a->name, META_WINDOW_PATTERN));
    return a->window_listed && kv && kv->type == GGUF_ARRAY;
}

static bool with_window(const struct arch *a, const struct gguf *g)
{
    return a->window_period > 0 || arch_lists_windows(a, g);
}

static bool with_plain_window_rope(const struct arch *a, const struct gguf *g)
{
    (void)g;
    return a->window_rope_plain;
}

static bool with_layers_that_differ(const struct arch *a, const struct gguf *g)
{
    (void)g;
    return a->layers_differ;
}

static bool with_residual_key(const struct arch *a, const struct gguf *g)
{
    (void)g;
    return a->residual == RESIDUAL_BY_KEY;
}

/* With YaRN, engines disagree on whether this factor replaces YaRN's own or multiplies it. */
static bool without_yarn(const struct arch *a, const struct gguf *g)
{
    char key[ARCH_KEY_NAME];
    return with_rope(a, g) &&
           !gguf_string_is(gguf_get_string(g, arch_key_name(key, a->name, META_ROPE_SCALING_TYPE)), "yarn");
}

#define USED_IF(text, condition, value)                                                                      \
    {                                                                                                        \
        .name = text, .used = condition, .neutral = value                                                    \
    }
#define USED(text) USED_IF(text, always, NAN)
#define USED_LIST_IF(text, condition, value)                                                                 \
    {                                                                                                        \
        .name = text, .used = condition, .list = true, .neutral = value                                      \
    }
#define HARMLESS(text)                                                                                       \
    {                                                                                                        \
        .name = text, .harmless = true, .neutral = NAN                                                       \
    }
#define ONLY(text, value)                                                                                    \
    {                                                                                                        \
        .name = text, .neutral = value                                                                       \
    }

/* clang-format off */
const struct arch_key_row ARCH_KEYS[] = {
    [META_BLOCK_COUNT] = USED("block_count"),
    [META_EMBEDDING_LENGTH] = USED("embedding_length"),
    [META_FEED_FORWARD_LENGTH] = USED_LIST_IF("feed_forward_length", always, NAN),
    [META_CONTEXT_LENGTH] = USED("context_length"),
    [META_HEAD_COUNT] = USED("attention.head_count"),
    [META_HEAD_COUNT_KV] = USED_LIST_IF("attention.head_count_kv", always, NAN),
    [META_KEY_LENGTH] = USED("attention.key_length"),
    [META_VALUE_LENGTH] = USED("attention.value_length"),
    [META_KEY_LENGTH_WINDOW] = USED_IF("attention.key_length_swa", with_layers_that_differ, NAN),
    [META_VALUE_LENGTH_WINDOW] = USED_IF("attention.value_length_swa", with_layers_that_differ, NAN),
    [META_SHARED_KV_LAYERS] = USED_IF("attention.shared_kv_layers", with_layers_that_differ, 0),
    [META_LAYER_INPUTS] = USED_IF("embedding_length_per_layer_input", with_layers_that_differ, 0),
    [META_LATENT_KEY_LENGTH] = USED_IF("attention.key_length_mla", with_latent, NAN),
    [META_LATENT_VALUE_LENGTH] = USED_IF("attention.value_length_mla", with_latent, NAN),
    [META_Q_LORA] = USED_IF("attention.q_lora_rank", with_latent, 0),
    [META_KV_LORA] = USED_IF("attention.kv_lora_rank", with_latent, 0),
    [META_EXPERT_COUNT] = USED("expert_count"),
    /* where expert_count is 0, as it must be in other models, no layer needs them */
    [META_EXPERTS_USED] = USED("expert_used_count"),
    [META_EXPERT_FF] = USED("expert_feed_forward_length"),
    [META_EXPERT_GROUPS] = USED("expert_group_count"),
    [META_EXPERT_GROUPS_USED] = USED("expert_group_used_count"),
    [META_EXPERT_SCORE] = USED("expert_gating_func"),
    [META_EXPERT_SUM] = USED("expert_weights_norm"),
    [META_EXPERT_SCALE] = USED("expert_weights_scale"),
    [META_EXPERT_DENSE] = USED("leading_dense_block_count"),
    [META_EXPERT_STEP] = USED("interleave_moe_layer_step"),
    [META_NEXTN] = USED_IF("nextn_predict_layers", with_nextn, 0),
    [META_STATE_TAPS] = USED_IF("ssm.conv_kernel", with_state, NAN),
    [META_STATE_TAPS_SHORT] = USED_IF("shortconv.l_cache", with_short_convolution, NAN),
    [META_STATE_KEY] = USED_IF("ssm.state_size", with_state, NAN),
    [META_STATE_GROUPS] = USED_IF("ssm.group_count", with_state, NAN),
    [META_STATE_HEADS] = USED_IF("ssm.time_step_rank", with_state, NAN),
    [META_STATE_INNER] = USED_IF("ssm.inner_size", with_state, NAN),
    [META_ATTENTION_PERIOD] = USED_IF("full_attention_interval", with_attention_period, NAN),
    [META_RECURRENT_LAYERS] = USED_LIST_IF("attention.recurrent_layers", with_attention_period, NAN),
    [META_RMS_EPSILON] = USED("attention.layer_norm_rms_epsilon"), /* of these two, the one of the norm's kind */
    [META_LAYER_EPSILON] = USED("attention.layer_norm_epsilon"),
    [META_PARALLEL_RESIDUAL] = USED_IF("use_parallel_residual", with_residual_key, NAN),
    [META_ROPE_DIMENSIONS] = USED_IF("rope.dimension_count", with_rope, NAN),
    [META_ROPE_DIMENSIONS_WINDOW] = USED_IF("rope.dimension_count_swa", with_layers_that_differ, NAN),
    [META_ROPE_BASE] = USED_IF("rope.freq_base", with_rope, NAN),
    [META_ROPE_BASE_WINDOW] = USED_IF("rope.freq_base_swa", with_plain_window_rope, NAN),
    [META_ROPE_SCALE_LINEAR] = USED_IF("rope.scale_linear", with_rope, 1),
    [META_ROPE_SCALING_TYPE] = USED_IF("rope.scaling.type", with_rope, NAN),
    [META_ROPE_SECTIONS] = USED_LIST_IF("rope.dimension_sections", with_rope_halves, NAN),
    [META_ROPE_FINETUNED] = USED("rope.scaling.finetuned"),
    [META_ROPE_FACTOR] = USED_IF("rope.scaling.factor", with_rope, 1),
    [META_ROPE_ATTN_FACTOR] = USED_IF("rope.scaling.attn_factor", without_yarn, 1),
    [META_ROPE_CTX_ORIGINAL] = USED_IF("rope.scaling.original_context_length", with_rope, NAN),
    [META_YARN_BETA_FAST] = USED_IF("rope.scaling.yarn_beta_fast", with_rope, 32),
    [META_YARN_BETA_SLOW] = USED_IF("rope.scaling.yarn_beta_slow", with_rope, 1),
    [META_YARN_LOG_MULTIPLIER] = USED_IF("rope.scaling.yarn_log_multiplier", with_yarn_multiplier, 0),
    [META_WINDOW] = USED_IF("attention.sliding_window", with_window, 0),
    [META_WINDOW_PATTERN] = USED_LIST_IF("attention.sliding_window_pattern", with_window, NAN),
    [META_ATTN_SCALE] = USED("attention.scale"),
    [META_ATTN_SOFTCAP] = USED("attn_logit_softcapping"),
    [META_QUERY_SCALE] = USED_IF("attention.temperature_scale", with_scaled_queries, 0),
    [META_LOGIT_SOFTCAP] = USED("final_logit_softcapping"),
    [META_LOGIT_SCALE] = USED("logit_scale"),
    [META_EMBEDDING_SCALE] = USED("embedding_scale"),
    [META_RESIDUAL_SCALE] = USED("residual_scale"),
    /* repeat what tensors say, or describe the file */
    HARMLESS("vocab_size"),
    HARMLESS("tensor_data_layout"),
    HARMLESS("n_deepstack_layers"), /* where features of images enter */
    HARMLESS("pooling_type"), /* of embeddings; logits do not depend on it */
    HARMLESS("expert_shared_count"), /* the tensors say whether there is an expert for every token */
    HARMLESS("expert_shared_feed_forward_length"),
    /* not implemented: accepted only with the value that means "not in this model" */
    ONLY("attention.causal", 1),
    ONLY("attention.clamp_kqv", 0),
    ONLY("attention.max_alibi_bias", 0),
    ONLY("rope.scaling.yarn_ext_factor", 1),
    ONLY("rope.scaling.yarn_attn_factor", 1),
};
/* clang-format on */
const size_t ARCH_KEY_COUNT = COUNT_OF(ARCH_KEYS);

/* Tensors that files contain and no forward pass needs, without the prefix "blk.N.". */
static const char *const HARMLESS_TENSORS[] = {
    "attn_rot_embd.weight", /* RoPE frequencies of old LLaMA files: they follow from rope.freq_base */
};

const char *arch_key_name(char buf[ARCH_KEY_NAME], const char *arch, enum arch_key key)
{
    snprintf(buf, ARCH_KEY_NAME, "%s.%s", arch, ARCH_KEYS[key].name);
    return buf;
}

const char ANSWERS_UNVERIFIED[] = "answers unverified: parts of the model file are unknown";

/* The row of a full key; NULL: none. `name` is its part behind the prefix. */
static const struct arch_key_row *key_find(struct gguf_string name)
{
    for (size_t i = 0; i < ARCH_KEY_COUNT; i++)
        if (gguf_string_is(name, ARCH_KEYS[i].name)) return &ARCH_KEYS[i];
    return NULL;
}

/* Append a message unless the key is used, harmless, or has the value of a missing key. Returns whether the
 * key is unknown. */
static bool key_check(struct str *out, const struct arch *a, const struct gguf *g, const struct gguf_kv *kv,
                      const struct arch_key_row *row)
{
    const double value = kv->type == GGUF_ARRAY ? NAN : gguf_kv_num(kv, 0);
    const bool used = row && row->used && row->used(a, g);
    if (row && (row->harmless || (used && (kv->type != GGUF_ARRAY || row->list)) || value == row->neutral))
        return false;
    if (!out) return true;
    str_printf(out, "metadata '%.*s'", (int)MIN(kv->key.len, (size_t)ARCH_KEY_NAME), kv->key.data);
    if (used)
        str_append(out, ": expected one value for all layers, the file has a list");
    else if (row && !isnan(row->neutral))
        str_printf(out, ": expected %g or no such key in this %s model, the file has %g", row->neutral,
                   a->name, value);
    else
        str_printf(out, " can change answers: expected only keys that qdyno uses in %s models", a->name);
    str_append(out, "\n");
    return true;
}

static bool tensor_known(const char *name, const struct arch *a, const struct model_shape *s,
                         const struct gguf *g)
{
    int layer;
    enum slot slot;
    char matrix[ARCH_NAME + 64];
    if (arch_slot_find(&layer, &slot, a, s, name)) {
        if (arch_expert_of(name) < 0) return true;
        arch_slot_name(matrix, sizeof matrix, layer, slot); /* with all experts: that of one is not used */
        return !gguf_tensor_find(g, matrix);
    }
    if (matrix_scale_is(name, matrix, sizeof matrix) && arch_slot_find(&layer, &slot, a, s, matrix))
        return true;
    if (companion_is(name)) {
        const size_t n = (size_t)(strrchr(name, '.') - name);
        snprintf(matrix, sizeof matrix, "%.*s", (int)MIN(n, sizeof matrix - 1), name);
        return arch_slot_find(&layer, &slot, a, s, matrix);
    }
    int behind = 0;
    layer = -1;
    sscanf(name, "blk.%d.%n", &layer, &behind);
    if (behind && layer >= s->layers && layer < s->layers + s->nextn_layers) return true;
    for (size_t i = 0; i < COUNT_OF(HARMLESS_TENSORS); i++)
        if (!strcmp(name + behind, HARMLESS_TENSORS[i])) return true;
    return false;
}

int arch_unknown(struct str *out, const struct arch *a, const struct model_shape *s, const struct gguf *g)
{
    int count = 0;
    const size_t prefix = strlen(a->name) + 1;
    for (int64_t i = 0; i < gguf_kv_count(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        if (kv->key.len < prefix || memcmp(kv->key.data, a->name, prefix - 1) ||
            kv->key.data[prefix - 1] != '.')
            continue;
        const struct gguf_string name = { kv->key.data + prefix, kv->key.len - prefix };
        count += key_check(out, a, g, kv, key_find(name));
    }
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const char *name = gguf_tensor_at(g, i)->name;
        if (tensor_known(name, a, s, g)) continue;
        count++;
        if (out)
            str_printf(out, "tensor '%s' can change answers: expected only tensors of %s models\n", name,
                       a->name);
    }
    return count;
}

enum err_code arch_check_known(const struct model_shape *s, const struct gguf *g, struct err *why)
{
    if (!s->unknown) return ERR_OK;
    struct str all = { 0 };
    arch_unknown(&all, arch_find(gguf_get_string(g, "general.architecture")), s, g);
    const char *text = str_text(&all);
    char more[64] = "";
    if (s->unknown > 1)
        snprintf(more, sizeof more, " (and %d more: `qdyno info` lists them)", s->unknown - 1);
    enum err_code rc = err_set(
        why, ERR_FORMAT,
        "%.*s%s. Running the model without it may give wrong answers; --force (force=on in a config) runs it anyway",
        (int)strcspn(text, "\n"), text, more);
    str_free(&all);
    return rc;
}
