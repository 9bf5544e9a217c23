/* Metadata from config.json. The same numbers have different names in different families, so each row of KEYS
 * lists all of them; what a family means differently is a function. */
#include "engine/import/metadata.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/import/families.h"
#include "kernels/kernels.h"

/* One value that goes over as it is. */
static const struct key {
    const char *names; /* in config.json; the first that is there counts */
    enum arch_key meta;
    bool real, needed;
} KEYS[] = {
    { "num_hidden_layers n_layer", META_BLOCK_COUNT, false, true },
    { "hidden_size n_embd", META_EMBEDDING_LENGTH, false, true },
    { "max_position_embeddings n_positions", META_CONTEXT_LENGTH, false, false },
    { "num_attention_heads n_head", META_HEAD_COUNT, false, true },
    { "num_experts num_local_experts n_routed_experts", META_EXPERT_COUNT, false, false },
    { "num_experts_per_tok experts_per_token", META_EXPERTS_USED, false, false },
    { "moe_intermediate_size", META_EXPERT_FF, false, false },
    { "attn_logit_softcapping", META_ATTN_SOFTCAP, true, false },
    { "final_logit_softcapping", META_LOGIT_SOFTCAP, true, false },
    { "logit_scale logits_scaling", META_LOGIT_SCALE, true, false },
    { "embedding_multiplier", META_EMBEDDING_SCALE, true, false },
    { "residual_multiplier", META_RESIDUAL_SCALE, true, false },
    { "attention_multiplier", META_ATTN_SCALE, true, false },
};

/* Names in config.json that other code here reads, or that cannot change logits. */
static const char USED_NAMES[] =
    " num_key_value_heads num_kv_heads head_dim intermediate_size n_inner ffn_hidden_size rope_theta rope_scaling "
    "rope_parameters rotary_emb_base rotary_pct partial_rotary_factor rope_local_base_freq sliding_window "
    "use_sliding_window layer_types sliding_window_pattern _sliding_window_pattern max_window_layers hidden_act hidden_activation "
    "activation_function activation rms_norm_eps layer_norm_eps layer_norm_epsilon norm_epsilon norm_topk_prob "
    "query_pre_attn_scalar use_parallel_residual original_max_position_embeddings tie_word_embeddings "
    "quantization_config text_config model_type architectures swiglu_limit new_decoder_architecture multi_query "
    "parallel_attn num_ln_in_parallel_attn alibi use_qk_norm initial_context_length mlp_only_layers decoder_sparse_step "
    "scale_attn_weights scale_attn_by_inverse_layer_idx reorder_and_upcast_attn use_bidirectional_attention "
    "no_rope_layers no_rope_layer_interval is_causal vocab_size ";
static const char HARMLESS_NAMES[] =
    " bos_token_id eos_token_id eod_token_id pad_token_id torch_dtype dtype transformers_version use_cache initializer_range "
    "attention_dropout hidden_dropout residual_dropout embedding_dropout classifier_dropout resid_pdrop embd_pdrop "
    "attn_pdrop summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj "
    "task_specific_params n_ctx pretraining_tp attention_bias mlp_bias bias use_bias qkv_bias use_qkv_bias attention_out_bias qk_layernorm output_router_logits "
    "router_aux_loss_coef router_jitter_noise aux_loss_alpha gradient_checkpointing is_decoder is_encoder_decoder "
    "add_cross_attention cross_attention_hidden_size tie_encoder_decoder name_or_path _name_or_path auto_map "
    "output_attentions output_hidden_states return_dict chunk_size_feed_forward id2label label2id problem_type "
    "use_return_dict cache_implementation embd_dropout resid_dropout ffn_dropout apply_residual_connection_post_layernorm "
    "attention_probs_dropout_prob hidden_dropout_prob shared_expert_intermediate_size unsloth_version unsloth_fixed "
    "sep_token_id cls_token_id decoder_start_token_id vision_config image_token_index boi_token_index eoi_token_index "
    "mm_tokens_per_image initializer_factor summary_hidden_size ";

/* ---------------------------------------------------------------- values */

static const char *key_name(const struct checkpoint *c, char buf[ARCH_KEY_NAME], enum arch_key key)
{
    return arch_key_name(buf, c->arch->name, key);
}

static void put_int(struct checkpoint *c, enum arch_key key, int64_t v)
{
    char name[ARCH_KEY_NAME];
    gguf_writer_put_u32(c->metadata, key_name(c, name, key), (uint32_t)v);
}

static void put_real(struct checkpoint *c, enum arch_key key, double v)
{
    char name[ARCH_KEY_NAME];
    gguf_writer_put_f32(c->metadata, key_name(c, name, key), (float)v);
}

static enum err_code missing(const char *names, struct err *why)
{
    return err_set(why, ERR_FORMAT, "config.json has no '%.*s'", (int)strcspn(names, " "), names);
}

static enum err_code put_values(struct checkpoint *c, struct err *why)
{
    for (size_t i = 0; i < COUNT_OF(KEYS); i++) {
        const struct key *k = &KEYS[i];
        const json_t *value = hf_find(c, k->names);
        if (!value && k->needed) return missing(k->names, why);
        if (!value) continue;
        const int64_t whole = hf_int(c, k->names, -1);
        if (!json_is_number(value) || (!k->real && (whole < 0 || whole > INT32_MAX)))
            return err_set(why, ERR_FORMAT, "config.json: '%.*s' is no number from 0 to %d",
                           (int)strcspn(k->names, " "), k->names, INT32_MAX);
        if (k->real)
            put_real(c, k->meta, json_number_value(value));
        else
            put_int(c, k->meta, whole);
    }
    return ERR_OK;
}

/* A size that config.json must have in a sane range. */
static enum err_code read_size(int64_t *out, const struct checkpoint *c, const char *names, int64_t otherwise,
                               struct err *why)
{
    enum { SIZE_MOST = 1 << 24 };
    *out = hf_int(c, names, otherwise);
    if (*out < 1 || *out > SIZE_MOST)
        return err_set(why, ERR_FORMAT, "config.json: '%.*s' is missing or out of range: expected 1 to %d",
                       (int)strcspn(names, " "), names, SIZE_MOST);
    return ERR_OK;
}

/* Falcon 7B has one KV head; newer ones give their number. */
static int64_t kv_heads_default(const struct checkpoint *c)
{
    const bool one = !strcmp(c->arch->name, "falcon") && hf_bool(c, "multi_query", true) &&
                     !hf_bool(c, "new_decoder_architecture", false);
    return one ? 1 : c->sizes.heads;
}

static enum err_code put_sizes(struct checkpoint *c, struct err *why)
{
    struct hf_sizes *s = &c->sizes;
    int64_t embd, ff;
    enum err_code rc = read_size(&s->layers, c, "num_hidden_layers n_layer", -1, why);
    if (!rc) rc = read_size(&s->heads, c, "num_attention_heads n_head", -1, why);
    if (!rc) rc = read_size(&embd, c, "hidden_size n_embd", -1, why);
    if (rc) return rc;
    const bool falcon = !strcmp(c->arch->name, "falcon"),
               falcon_old = falcon && !hf_bool(c, "new_decoder_architecture", false);
    if ((rc = read_size(&s->kv_heads, c, falcon_old ? "-" : "num_key_value_heads num_kv_heads",
                        kv_heads_default(c), why)))
        return rc;
    if ((rc = read_size(&s->head_dim, c, "head_dim", embd / s->heads, why))) return rc;
    if ((rc = read_size(&ff, c, "intermediate_size n_inner ffn_hidden_size", 4 * embd, why))) return rc;
    s->experts = hf_int(c, "num_experts num_local_experts n_routed_experts", 0);
    if (s->layers > LAYERS_MAX || s->experts < 0 || s->experts > 65536)
        return err_set(why, ERR_FORMAT, "config.json: %lld layers or %lld experts are out of range",
                       (long long)s->layers, (long long)s->experts);
    put_int(c, META_FEED_FORWARD_LENGTH, ff);
    put_int(c, META_HEAD_COUNT_KV, s->kv_heads);
    put_int(c, META_KEY_LENGTH, s->head_dim);
    put_int(c, META_VALUE_LENGTH, s->head_dim);
    if (!hf_find(c, "max_position_embeddings n_positions")) put_int(c, META_CONTEXT_LENGTH, 2048);
    return ERR_OK;
}

/* ---------------------------------------------------------------- what families mean */

static enum err_code put_epsilon(struct checkpoint *c, struct err *why)
{
    const char *names = c->arch->norm == NORM_RMS ? "rms_norm_eps layer_norm_eps"
                                                  : "layer_norm_epsilon layer_norm_eps norm_epsilon";
    const double eps = hf_num(c, names, NAN);
    if (isnan(eps)) return missing(names, why);
    put_real(c, c->arch->norm == NORM_RMS ? META_RMS_EPSILON : META_LAYER_EPSILON, eps);
    return ERR_OK;
}

/* The activation of feed-forwards must be one that the architecture computes, or the exact GELU in place of
 * the approximation by tanh. */
static enum err_code put_activation(struct checkpoint *c, struct err *why)
{
    static const struct {
        const char *name;
        enum activation act;
    } NAMES[] = {
        { "silu", ACT_SILU },          { "swish", ACT_SILU },          { "gelu_pytorch_tanh", ACT_GELU_TANH },
        { "gelu_new", ACT_GELU_TANH }, { "gelu_fast", ACT_GELU_TANH }, { "gelu", ACT_GELU_ERF },
    };
    const enum activation want = c->arch->act;
    const json_t *value = hf_find(c, "hidden_activation hidden_act activation_function activation");
    const char *given = json_string_value(value);
    if (want == ACT_SWIGLU_CLIPPED) { /* the model's own, with this limit */
        if (hf_num(c, "swiglu_limit", 7) == 7) return ERR_OK;
        return err_set(why, ERR_FORMAT, "config.json: a swiglu_limit of %g is not supported: expected 7",
                       hf_num(c, "swiglu_limit", 7));
    }
    if (!given) given = want == ACT_SILU ? "silu" : "gelu";
    for (size_t i = 0; i < COUNT_OF(NAMES); i++) {
        if (strcmp(NAMES[i].name, given)) continue;
        if (NAMES[i].act == want) return ERR_OK;
        if (NAMES[i].act == ACT_GELU_ERF && want == ACT_GELU_TANH) {
            gguf_writer_put_string(c->metadata, ACTIVATION_KEY, "gelu_erf");
            return ERR_OK;
        }
    }
    return err_set(why, ERR_FORMAT, "config.json: activation '%.40s' is not supported in %s models", given,
                   c->arch->name);
}

/* has[l] for layers of layer_types: does it have a sliding window? */
static enum err_code read_layer_types(int32_t has[LAYERS_MAX], const struct checkpoint *c,
                                      const json_t *types, struct err *why)
{
    if (!json_is_array(types) || (int64_t)json_array_size(types) < c->sizes.layers)
        return err_set(why, ERR_FORMAT, "config.json: layer_types has %zu entries, expected %lld",
                       json_array_size(types), (long long)c->sizes.layers);
    for (int64_t l = 0; l < c->sizes.layers; l++) {
        const char *type = json_string_value(json_array_get(types, (size_t)l));
        has[l] = type && !strcmp(type, "sliding_attention");
        if (!type || (!has[l] && strcmp(type, "full_attention")))
            return err_set(why, ERR_FORMAT, "config.json: layers of type '%.40s' are not supported",
                           type ? type : "");
    }
    return ERR_OK;
}

/* The same from letters that repeat: in "LLLG" of EXAONE 4, each fourth layer attends to all tokens. */
static enum err_code read_letters(int32_t has[LAYERS_MAX], const struct checkpoint *c, const char *letters,
                                  struct err *why)
{
    const size_t n = strlen(letters);
    if (!n || letters[strspn(letters, "LG")])
        return err_set(why, ERR_FORMAT,
                       "config.json: sliding_window_pattern '%.40s': expected a number, or the letters L and "
                       "G",
                       letters);
    for (int64_t l = 0; l < c->sizes.layers; l++) has[l] = letters[(size_t)l % n] == 'L';
    return ERR_OK;
}

/* Which layers have a sliding window. */
static enum err_code put_window(struct checkpoint *c, struct err *why)
{
    static const char PATTERN[] = "sliding_window_pattern _sliding_window_pattern";
    char name[ARCH_KEY_NAME];
    const int64_t window = hf_bool(c, "use_sliding_window", true) ? hf_int(c, "sliding_window", 0) : 0;
    const json_t *types = hf_find(c, "layer_types"),
                 *pattern = window > 0 && c->arch->window_period ? hf_find(c, PATTERN) : NULL;
    const char *letters = types ? NULL : json_string_value(pattern);
    const int64_t period = hf_int(c, PATTERN, -1);
    int32_t has[LAYERS_MAX];
    bool any = !types && !letters;
    enum err_code rc = ERR_OK;
    if (types)
        rc = read_layer_types(has, c, types, why);
    else if (letters)
        rc = read_letters(has, c, letters, why);
    else if (pattern && (period < 0 || period > LAYERS_MAX))
        rc = err_set(why, ERR_FORMAT,
                     "config.json: sliding_window_pattern: expected a number from 0 to %d, or the letters L "
                     "and G",
                     LAYERS_MAX);
    if (rc) return rc;
    for (int64_t l = 0; (types || letters) && l < c->sizes.layers; l++) any |= has[l];
    /* an architecture whose table gives a window must be told that there is none */
    if (window > 0 && any)
        put_int(c, META_WINDOW, window);
    else if (c->arch->window)
        put_int(c, META_WINDOW, 0);
    if (window > 0 && any && (types || letters) && c->arch->window_period)
        gguf_writer_put_array(c->metadata, key_name(c, name, META_WINDOW_PATTERN), GGUF_I32, has,
                              (uint64_t)c->sizes.layers);
    else if (pattern && !types &&
             !letters) /* 1: every layer is the last one of its period, without a window */
        put_int(c, META_WINDOW_PATTERN, period == 1 ? 0 : period);
    return ERR_OK;
}

static enum err_code put_router(struct checkpoint *c, struct err *why)
{
    char name[ARCH_KEY_NAME];
    const struct arch *a = c->arch;
    if (!c->sizes.experts || !a->router) return ERR_OK;
    const json_t *dense = hf_find(c, "mlp_only_layers");
    if (json_array_size(dense) || hf_int(c, "decoder_sparse_step", 1) != 1)
        return err_set(why, ERR_FORMAT,
                       "config.json: layers with and without experts in one model (mlp_only_layers, "
                       "decoder_sparse_step) are not supported");
    const json_t *given = hf_find(c, "norm_topk_prob");
    const bool sum = json_is_true(given);
    if (a->router_sum == ROUTER_SUM_BY_KEY)
        gguf_writer_put_bool(c->metadata, key_name(c, name, META_EXPERT_SUM), sum);
    else if (given && sum != (a->router_sum == ROUTER_SUM_ONE))
        return err_set(why, ERR_FORMAT, "config.json: norm_topk_prob=%s is not supported in %s models",
                       sum ? "true" : "false", a->name);
    return ERR_OK;
}

/* Options whose other value would be another model. */
static enum err_code check_options(const struct checkpoint *c, struct err *why)
{
    static const struct {
        const char *name;
        bool want;
    } OPTIONS[] = {
        { "alibi", false },
        { "parallel_attn", true },
        { "is_causal", true },
        { "scale_attn_weights", true },
        { "scale_attn_by_inverse_layer_idx", false },
        { "reorder_and_upcast_attn", false },
        { "use_bidirectional_attention", false },
        { "apply_residual_connection_post_layernorm", false },
    };
    for (size_t i = 0; i < COUNT_OF(OPTIONS); i++)
        if (hf_bool(c, OPTIONS[i].name, OPTIONS[i].want) != OPTIONS[i].want)
            return err_set(why, ERR_FORMAT, "config.json: %s=%s is not supported", OPTIONS[i].name,
                           OPTIONS[i].want ? "false" : "true");
    return ERR_OK;
}

/* Layers without RoPE must be those that the architecture leaves out. */
static enum err_code check_no_rope(const struct checkpoint *c, struct err *why)
{
    const json_t *list = hf_find(c, "no_rope_layers"); /* 1: the layer has RoPE */
    for (int64_t l = 0; l < (int64_t)json_array_size(list) && l < c->sizes.layers; l++) {
        const bool has = json_integer_value(json_array_get(list, (size_t)l)) != 0,
                   want = !c->arch->rope_period || (l + 1) % c->arch->rope_period != 0;
        if (has != want)
            return err_set(why, ERR_FORMAT,
                           "config.json: no_rope_layers: layer %lld %s RoPE, which is not supported",
                           (long long)l, has ? "has" : "lacks");
    }
    return ERR_OK;
}

/* Gemma 2 and 3 give the number whose root divides the scores. */
static void put_query_scale(struct checkpoint *c)
{
    const double scalar = hf_num(c, "query_pre_attn_scalar", NAN);
    if (scalar > 0) put_real(c, META_ATTN_SCALE, 1 / sqrt(scalar));
}

/* ---------------------------------------------------------------- the rest */

static bool is_known(const char *name)
{
    char word[128];
    if (strchr(name, ' ') || (size_t)snprintf(word, sizeof word, " %s ", name) >= sizeof word) return false;
    for (size_t i = 0; i < COUNT_OF(KEYS); i++) {
        char all[160];
        snprintf(all, sizeof all, " %s ", KEYS[i].names);
        if (strstr(all, word)) return true;
    }
    return strstr(USED_NAMES, word) || strstr(HARMLESS_NAMES, word);
}

/* Does the value mean that a feature is off? */
static bool is_off(const json_t *v)
{
    return !v || json_is_null(v) || json_is_false(v) || (json_is_number(v) && json_number_value(v) == 0) ||
           (json_is_array(v) && !json_array_size(v)) || (json_is_object(v) && !json_object_size(v));
}

/* Keys that nobody here knows: arch_unknown names them, and the model runs with force=on only. */
static void put_unknown(struct checkpoint *c)
{
    const json_t *text = json_object_get(c->config, "text_config");
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(json_is_object(text) ? text : c->config), name, value)
    {
        char key[ARCH_KEY_NAME];
        if (is_off(value) || is_known(name)) continue;
        snprintf(key, sizeof key, "%.20s.config.%.95s", c->arch->name, name);
        gguf_writer_put_bool(c->metadata, key, true);
    }
}

static enum err_code find_family(struct checkpoint *c, struct err *why)
{
    const json_t *list = json_object_get(c->config, "architectures");
    const char *name = json_string_value(json_array_get(list, 0));
    struct str known = { 0 };
    c->family = name ? hf_family_find(name) : NULL;
    for (size_t i = 0; !c->family && i < HF_FAMILY_COUNT; i++)
        str_printf(&known, "%s%s", i ? " " : "", HF_FAMILIES[i].architecture);
    if (!c->family)
        err_set(why, ERR_FORMAT, "config.json: architecture '%.64s' is not supported; known: %s",
                name ? name : "", str_text(&known));
    str_free(&known);
    if (!c->family) return ERR_FORMAT;
    const char *arch = c->family->arch;
    c->arch = arch_find((struct gguf_string){ arch, strlen(arch) });
    return c->arch ? ERR_OK : err_set(why, ERR_INTERNAL, "no row of ARCHS is called '%s'", arch);
}

/* The last part of a path. */
static void last_part(char *out, size_t size, const char *path)
{
    size_t n = strlen(path), from;
    while (n && path[n - 1] == '/') n--;
    for (from = n; from && path[from - 1] != '/'; from--) continue;
    snprintf(out, size, "%.*s", (int)(n - from), path + from);
}

/* The folder's own name, also where the path only says where it is (".", ".."). */
static void put_name(struct checkpoint *c)
{
    char name[128];
    const char *given = json_get_str(c->config, "_name_or_path", NULL);
    last_part(name, sizeof name, c->folder);
    if (!*name || !strcmp(name, ".") || !strcmp(name, "..")) {
        char *full = realpath(c->folder, NULL);
        if (full) last_part(name, sizeof name, full);
        free(full);
    }
    gguf_writer_put_string(c->metadata, "general.name", given && *given ? path_file_name(given) : name);
}

enum err_code metadata_put(struct checkpoint *c, struct err *why)
{
    enum err_code rc = find_family(c, why);
    if (!rc) rc = gguf_writer_open_memory(&c->metadata, why);
    if (rc) return rc;
    gguf_writer_put_string(c->metadata, "general.architecture", c->arch->name);
    put_name(c);
    if ((rc = check_options(c, why))) return rc;
    if ((rc = put_values(c, why))) return rc;
    if ((rc = put_sizes(c, why))) return rc;
    if ((rc = put_epsilon(c, why))) return rc;
    if ((rc = put_activation(c, why))) return rc;
    if ((rc = rope_put(c, why))) return rc;
    if ((rc = check_no_rope(c, why))) return rc;
    if ((rc = put_window(c, why))) return rc;
    if ((rc = put_router(c, why))) return rc;
    put_query_scale(c);
    if (c->arch->residual == RESIDUAL_BY_KEY) {
        char name[ARCH_KEY_NAME];
        gguf_writer_put_bool(c->metadata, key_name(c, name, META_PARALLEL_RESIDUAL),
                             hf_bool(c, "use_parallel_residual", true));
    }
    put_unknown(c);
    return ERR_OK;
}
