/* Metadata from config.json. The same numbers have different names in different families, so each row of KEYS
 * lists all of them; what a family means differently is a function. */
#include "engine/import/metadata.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/import/config_keys.h"
#include "engine/import/families.h"
#include "kernels/kernels.h"

/* One value that goes over as it is. */
static const struct key {
    const char *names; /* in config.json; the first that is there counts */
    enum arch_key meta;
    bool real, needed;
    bool none; /* without it there is none; ARCHS may have another default for GGUF files */
} KEYS[] = {
    { "num_hidden_layers n_layer", META_BLOCK_COUNT, false, true, false },
    { "hidden_size n_embd", META_EMBEDDING_LENGTH, false, true, false },
    { "max_position_embeddings n_positions", META_CONTEXT_LENGTH, false, false, false },
    { "num_attention_heads n_head", META_HEAD_COUNT, false, true, false },
    { "num_experts num_local_experts n_routed_experts", META_EXPERT_COUNT, false, false, false },
    { "num_experts_per_tok experts_per_token", META_EXPERTS_USED, false, false, false },
    { "moe_intermediate_size", META_EXPERT_FF, false, false, false },
    { "attn_logit_softcapping", META_ATTN_SOFTCAP, true, false, true },
    { "final_logit_softcapping", META_LOGIT_SOFTCAP, true, false, true },
    { "logit_scale logits_scaling", META_LOGIT_SCALE, true, false, false },
    { "embedding_multiplier", META_EMBEDDING_SCALE, true, false, false },
    { "residual_multiplier", META_RESIDUAL_SCALE, true, false, false },
    { "attention_multiplier", META_ATTN_SCALE, true, false, false },
};

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

/* Which of several names of a key config.json has, to buf: the one that hf_find takes. Returns buf. */
static const char *name_found(char buf[ARCH_KEY_NAME], const struct checkpoint *c, const char *names)
{
    for (const char *at = names; *at; at += strspn(at, " ")) {
        const size_t n = strcspn(at, " ");
        snprintf(buf, ARCH_KEY_NAME, "%.*s", (int)n, at);
        if (hf_find(c, buf)) break;
        at += n;
    }
    return buf;
}

static enum err_code put_values(struct checkpoint *c, struct err *why)
{
    char name[ARCH_KEY_NAME];
    for (size_t i = 0; i < COUNT_OF(KEYS); i++) {
        const struct key *k = &KEYS[i];
        const json_t *value = hf_find(c, k->names);
        if (!value && k->needed) return missing(k->names, why);
        if (!value && k->none) put_real(c, k->meta, 0);
        if (!value) continue;
        const int64_t whole = hf_int(c, k->names, -1);
        if (!json_is_number(value) || (!k->real && (whole < 0 || whole > INT32_MAX)))
            return err_set(why, ERR_FORMAT, "config.json: '%s' is no number from 0 to %d",
                           name_found(name, c, k->names), INT32_MAX);
        if (k->real && !(json_number_value(value) > 0))
            return err_set(why, ERR_FORMAT, "config.json: '%s' is %g: expected a number above 0",
                           name_found(name, c, k->names), json_number_value(value));
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
    /* the first configurations of Gemma say gelu and mean the approximation */
    if (!strcmp(c->arch->name, "gemma") && !strcmp(given, "gelu")) given = "gelu_pytorch_tanh";
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

static const char WINDOW_PATTERN[] = "sliding_window_pattern _sliding_window_pattern";

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

/* Which layers have a window, from what config.json says about them; *listed false: as the architecture has
 * it. */
static enum err_code read_window_layers(bool *listed, int32_t has[LAYERS_MAX], int64_t window,
                                        const struct checkpoint *c, struct err *why)
{
    const json_t *types = hf_find(c, "layer_types");
    const char *letters = json_string_value(hf_find(c, WINDOW_PATTERN));
    const int64_t from = hf_int(c, "max_window_layers", -1);
    enum err_code rc = ERR_OK;
    *listed = types || letters || from >= 0 || c->arch->window_listed;
    if (types)
        rc = read_layer_types(has, c, types, why);
    else if (letters)
        rc = read_letters(has, c, letters, why);
    for (int64_t l = 0; *listed && !types && !letters && l < c->sizes.layers; l++)
        has[l] = l >= from; /* max_window_layers of Qwen; else all layers */
    int64_t count = 0;
    for (int64_t l = 0; *listed && !rc && l < c->sizes.layers; l++) count += has[l];
    if (rc || !*listed) return rc;
    if (types && count && window <= 0)
        return err_set(why, ERR_FORMAT,
                       "config.json: layer_types gives %lld layers a window, but sliding_window is null or 0",
                       (long long)count);
    if (window > 0 && c->family->flags & FAMILY_ONE_WINDOW && count < c->sizes.layers)
        return err_set(why, ERR_FORMAT,
                       "config.json: layer_types: %s models have a window in all layers, found %lld of %lld",
                       c->family->architecture, (long long)count, (long long)c->sizes.layers);
    if (window > 0 && !count && c->arch->rope_without_windows)
        return err_set(
            why, ERR_FORMAT,
            "config.json: sliding_window is %lld, but no layer of layer_types has a window: no layer would "
            "have RoPE, which is not supported",
            (long long)window);
    return ERR_OK;
}

/* A number n: all but each n-th layer have a window. 1: every layer is the last one of its period. */
static enum err_code put_window_period(struct checkpoint *c, struct err *why)
{
    const json_t *pattern = hf_find(c, WINDOW_PATTERN), *other = hf_find(c, "layer_switch");
    const int64_t period = hf_int(c, WINDOW_PATTERN, -1);
    if (pattern && (period < 0 || period > LAYERS_MAX))
        return err_set(
            why, ERR_FORMAT,
            "config.json: sliding_window_pattern: expected a number from 0 to %d, or the letters L "
            "and G",
            LAYERS_MAX);
    if (pattern) put_int(c, META_WINDOW_PATTERN, period == 1 ? 0 : period);
    if (other && json_integer_value(other) != (pattern ? period : c->arch->window_period))
        return err_set(why, ERR_FORMAT, "config.json: layer_switch is %lld: expected %lld",
                       (long long)json_integer_value(other),
                       (long long)(pattern ? period : c->arch->window_period));
    return ERR_OK;
}

/* Which layers have a sliding window, and how long it is. */
static enum err_code put_window(struct checkpoint *c, struct err *why)
{
    char name[ARCH_KEY_NAME];
    int32_t has[LAYERS_MAX];
    bool listed, any = false;
    const int64_t window = hf_bool(c, "use_sliding_window", true) ? hf_int(c, "sliding_window", 0) : 0;
    if (window > 0 && !(c->family->flags & FAMILY_WINDOW))
        return err_set(why, ERR_FORMAT, "config.json: sliding_window=%lld is not supported in %s models",
                       (long long)window, c->family->architecture);
    enum err_code rc = read_window_layers(&listed, has, window, c, why);
    if (rc) return rc;
    for (int64_t l = 0; listed && l < c->sizes.layers; l++) any |= has[l];
    if (window > 0 && (any || !listed))
        put_int(c, META_WINDOW, window);
    else if (c->arch->window) /* an architecture whose table gives a window must be told that there is none */
        put_int(c, META_WINDOW, 0);
    if (window > 0 && !listed) return put_window_period(c, why);
    if (window > 0 && any)
        gguf_writer_put_array(c->metadata, key_name(c, name, META_WINDOW_PATTERN), GGUF_I32, has,
                              (uint64_t)c->sizes.layers);
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
    if (!strcmp(c->arch->name, "gpt-oss") && !hf_find(c, "rope_parameters rope_scaling"))
        return err_set(
            why, ERR_FORMAT,
            "config.json: expected rope_parameters or rope_scaling: without them, programs differ");
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
    if (!strcmp(c->arch->name, "gemma3") && hf_find(c, "attn_logit_softcapping"))
        return err_set(
            why, ERR_FORMAT,
            "config.json: attn_logit_softcapping is not supported in Gemma 3 models, because other programs "
            "read it there without using it");
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
static enum err_code put_query_scale(struct checkpoint *c, struct err *why)
{
    const json_t *value = hf_find(c, "query_pre_attn_scalar");
    const double scalar = json_number_value(value);
    if (!value) return ERR_OK;
    if (!(scalar > 0))
        return err_set(why, ERR_FORMAT, "config.json: query_pre_attn_scalar is %g: expected a number above 0",
                       scalar);
    put_real(c, META_ATTN_SCALE, 1 / sqrt(scalar));
    return ERR_OK;
}

/* ---------------------------------------------------------------- the rest */

/* Keys that nobody here knows: arch_unknown names them, and the model runs with force=on only. */
static void put_unknown(struct checkpoint *c)
{
    const json_t *text = json_object_get(c->config, "text_config");
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(json_is_object(text) ? text : c->config), name, value)
    {
        char key[ARCH_KEY_NAME];
        if (config_key_is_known(c, name, value)) continue;
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
    if ((rc = config_fill(c, why))) return rc;
    if ((rc = check_options(c, why))) return rc;
    if ((rc = put_values(c, why))) return rc;
    if ((rc = put_sizes(c, why))) return rc;
    if ((rc = put_epsilon(c, why))) return rc;
    if ((rc = put_activation(c, why))) return rc;
    if ((rc = rope_put(c, why))) return rc;
    if ((rc = check_no_rope(c, why))) return rc;
    if ((rc = put_window(c, why))) return rc;
    if ((rc = put_router(c, why))) return rc;
    if ((rc = put_query_scale(c, why))) return rc;
    if (c->arch->residual == RESIDUAL_BY_KEY) {
        char name[ARCH_KEY_NAME];
        gguf_writer_put_bool(c->metadata, key_name(c, name, META_PARALLEL_RESIDUAL),
                             hf_bool(c, "use_parallel_residual", true));
    }
    put_unknown(c);
    return ERR_OK;
}
