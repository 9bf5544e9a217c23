/* Reads and checks a model's metadata, before any number in it is used as a size: keys that are missing, out
 * of range or not supported are ERR_FORMAT. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "engine/arch/arch_internal.h"
#include "engine/gguf/gguf.h"
#include "kernels/kernels.h"

enum err_code shape_read_size(int64_t *out, const struct gguf *g, const char *arch, enum arch_key name,
                              int64_t max, int64_t otherwise, struct err *why)
{
    char key[ARCH_KEY_NAME];
    const struct gguf_kv *kv = gguf_kv_find(g, arch_key_name(key, arch, name));
    if (!kv && otherwise < 0) return err_set(why, ERR_FORMAT, "metadata '%s' is missing", key);
    *out = kv ? gguf_get_int(g, key, -1) : otherwise;
    if (kv && kv->type == GGUF_ARRAY)
        return err_set(why, ERR_FORMAT, "metadata '%s' differs by layer, which is not supported", key);
    if (*out < 1 || *out > max)
        return err_set(why, ERR_FORMAT, "metadata '%s': expected 1 to %lld, file has %lld", key,
                       (long long)max, (long long)*out);
    return ERR_OK;
}

bool shape_any_layer_has(const struct model_shape *s, const struct gguf *g, enum slot slot)
{
    char name[ARCH_NAME];
    bool found = false;
    for (int layer = 0; layer < s->layers && !found; layer++) {
        arch_slot_name(name, sizeof name, layer, slot);
        found = gguf_tensor_find(g, name);
    }
    return found;
}

static enum err_code arch_error(struct gguf_string name, struct err *why)
{
    struct str known = { 0 };
    for (size_t i = 0; i < ARCH_COUNT; i++) str_printf(&known, "%s%s", i ? " " : "", ARCHS[i].name);
    enum err_code rc = err_set(why, ERR_FORMAT, "architecture '%.*s' is not supported; known: %s",
                               (int)MIN(name.len, 64), name.data ? name.data : "", str_text(&known));
    str_free(&known);
    return rc;
}

/* Accepts tensors without a format: they count in the sums. */
static void shape_read_tensor_sums(struct model_shape *out, const struct gguf *g)
{
    enum { NO_FORMAT = FORMAT_COUNT };
    int64_t by_format[FORMAT_COUNT + 1] = { 0 };
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        out->params += t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3];
        out->weight_bytes += t->bytes;
        by_format[t->format ? t->format - FORMATS : NO_FORMAT] += t->bytes;
    }
    int most = 0;
    for (int f = 1; f <= NO_FORMAT; f++)
        if (by_format[f] > by_format[most]) most = f;
    snprintf(out->dominant_format, sizeof out->dominant_format, "%s",
             most == NO_FORMAT ? "unsupported" : FORMATS[most].name);
}

static enum err_code shape_read_heads(struct model_shape *out, const struct arch *a, const struct gguf *g,
                                      struct err *why)
{
    int64_t heads, kv_heads, dim_k, dim_v, rope;
    enum err_code rc;
    if ((rc = shape_read_size(&heads, g, a->name, META_HEAD_COUNT, HEADS_MAX, -1, why))) return rc;
    if ((rc = shape_read_list(&kv_heads, out, a, g, META_HEAD_COUNT_KV, HEADS_MAX, heads, why))) return rc;
    if (heads % kv_heads)
        return err_set(why, ERR_FORMAT, "%lld attention heads cannot share %lld KV heads evenly",
                       (long long)heads, (long long)kv_heads);
    char key[ARCH_KEY_NAME];
    const bool given = gguf_kv_find(g, arch_key_name(key, a->name, META_KEY_LENGTH));
    if (!given && out->embd % heads)
        return err_set(why, ERR_FORMAT,
                       "embedding_length %lld is not a multiple of %lld heads and '%s' is missing",
                       (long long)out->embd, (long long)heads, key);
    const int64_t even = MAX(out->embd / heads, 1);
    if ((rc = shape_read_size(&dim_k, g, a->name, META_KEY_LENGTH, HEAD_DIM_MAX, even, why))) return rc;
    if ((rc = shape_read_size(&dim_v, g, a->name, META_VALUE_LENGTH, HEAD_DIM_MAX, even, why))) return rc;
    if ((rc = shape_read_size(&rope, g, a->name, META_ROPE_DIMENSIONS, HEAD_DIM_MAX, dim_k, why))) return rc;
    if (a->rope != ROPE_NONE && (rope > dim_k || rope % 2))
        return err_set(
            why, ERR_FORMAT,
            "metadata '%s.rope.dimension_count': expected an even number up to the head size %lld, file has %lld",
            a->name, (long long)dim_k, (long long)rope);
    if (heads * MAX(dim_k, dim_v) > WIDTH_MAX)
        return err_set(why, ERR_FORMAT, "%lld heads of size %lld exceed %d columns", (long long)heads,
                       (long long)MAX(dim_k, dim_v), WIDTH_MAX);
    out->heads = (int)heads;
    out->kv_heads = (int)kv_heads;
    out->head_dim_k = (int)dim_k;
    out->head_dim_v = (int)dim_v;
    out->rope_dims = a->rope == ROPE_NONE ? 0 : (int)rope;
    return ERR_OK;
}

/* Sizes of latent attention. Files store its keys and values either expanded for each head, or as the kv_lora
 * numbers they come from; key_length and value_length are those of the cache. */
static enum err_code shape_read_latent(struct model_shape *out, const struct arch *a, const struct gguf *g,
                                       struct err *why)
{
    int64_t key, value, q_lora = 0;
    char name[ARCH_KEY_NAME];
    enum err_code rc = shape_read_size(&out->kv_lora, g, a->name, META_KV_LORA, HEAD_DIM_MAX, -1, why);
    if (!rc)
        rc = shape_read_size(&key, g, a->name, META_LATENT_KEY_LENGTH, HEAD_DIM_MAX, out->head_dim_k, why);
    if (!rc)
        rc = shape_read_size(&value, g, a->name, META_LATENT_VALUE_LENGTH, HEAD_DIM_MAX, out->head_dim_v,
                             why);
    if (rc) return rc;
    if (gguf_kv_find(g, arch_key_name(name, a->name, META_Q_LORA))) q_lora = gguf_get_int(g, name, -1);
    if (q_lora < 0 || q_lora > WIDTH_MAX)
        return err_set(why, ERR_FORMAT, "metadata '%s': expected 0 to %d, file has %lld", name, WIDTH_MAX,
                       (long long)q_lora);
    out->q_lora = q_lora;
    out->nope_dims = (int)key - out->rope_dims;
    out->latent_v_dims = (int)value;
    const bool may_cache = out->kv_heads == 1 && out->head_dim_k == out->kv_lora + out->rope_dims &&
                           out->head_dim_v == out->kv_lora,
               may_expand = out->kv_heads == out->heads && out->head_dim_k == key && out->head_dim_v == value;
    out->latent_cached = may_cache &&
                         !(may_expand && shape_any_layer_has(out, g, SLOT_LATENT_KV_B)); /* with one head */
    if (out->nope_dims < 1 || (!may_cache && !may_expand))
        return err_set(
            why, ERR_FORMAT,
            "latent attention: key_length %d, value_length %d, %d KV heads and kv_lora_rank %lld do "
            "not belong together",
            out->head_dim_k, out->head_dim_v, out->kv_heads, (long long)out->kv_lora);
    return ERR_OK;
}

/* Layers behind those of the model that predict further tokens do not run. */
static enum err_code shape_read_layers(struct model_shape *out, const struct arch *a, const struct gguf *g,
                                       struct err *why)
{
    char key[ARCH_KEY_NAME];
    int64_t layers;
    const enum err_code rc = shape_read_size(&layers, g, a->name, META_BLOCK_COUNT, LAYERS_MAX, -1, why);
    if (rc) return rc;
    const bool may = a->router || a->state == MIXER_DELTA;
    const int64_t nextn = may ? gguf_get_int(g, arch_key_name(key, a->name, META_NEXTN), 0) : 0;
    if (nextn < 0 || nextn >= layers)
        return err_set(why, ERR_FORMAT, "metadata '%s': expected 0 to %lld, file has %lld", key,
                       (long long)layers - 1, (long long)nextn);
    out->layers = (int)(layers - nextn);
    out->nextn_layers = (int)nextn;
    return ERR_OK;
}

/* Width of the expert that every token uses, from the first of its tensors in the file. 0: none. */
static int64_t shared_width(const struct model_shape *s, const struct gguf *g)
{
    for (int layer = 0; layer < s->layers; layer++) {
        char name[ARCH_NAME];
        if (!shape_layer_has_experts(s, layer)) continue;
        arch_slot_name(name, sizeof name, layer, SLOT_UP_SHARED);
        const struct gguf_tensor *t = gguf_tensor_find(g, name);
        if (t) return t->shape[1];
    }
    return 0;
}

static enum err_code shape_read_experts(struct model_shape *out, const struct arch *a, const struct gguf *g,
                                        struct err *why)
{
    enum { EXPERTS_MAX = 65536 };
    char key[ARCH_KEY_NAME];
    int64_t used, step;
    const int64_t experts = gguf_get_int(g, arch_key_name(key, a->name, META_EXPERT_COUNT), 0);
    if (experts == 0) return ERR_OK;
    if (!a->router)
        return err_set(why, ERR_FORMAT, "metadata '%s' is %lld: %s models with experts are not supported",
                       key, (long long)experts, a->name);
    if (experts < 0 || experts > EXPERTS_MAX)
        return err_set(why, ERR_FORMAT, "metadata '%s': expected 0 to %d, file has %lld", key, EXPERTS_MAX,
                       (long long)experts);
    const int64_t dense = gguf_get_int(g, arch_key_name(key, a->name, META_EXPERT_DENSE), 0);
    if (dense < 0 || dense > out->layers)
        return err_set(why, ERR_FORMAT, "metadata '%s': expected 0 to %d, file has %lld", key, out->layers,
                       (long long)dense);
    enum err_code rc = shape_read_size(&used, g, a->name, META_EXPERTS_USED, experts, -1, why);
    if (!rc) rc = shape_read_size(&step, g, a->name, META_EXPERT_STEP, LAYERS_MAX, 1, why);
    if (!rc) rc = shape_read_size(&out->expert_ff, g, a->name, META_EXPERT_FF, WIDTH_MAX, out->ff, why);
    if (rc) return rc;
    out->experts = (int)experts;
    out->experts_used = (int)used;
    for (int l = (int)dense; l < out->layers; l++)
        out->parts[l].experts = out->parts[l].feed_forward && (l + 1) % step == 0;
    out->shared_ff = shared_width(out, g);
    if (out->shared_ff < 0 || out->shared_ff > WIDTH_MAX)
        return err_set(why, ERR_FORMAT, "an expert for every token with %lld values is out of range",
                       (long long)out->shared_ff);
    return ERR_OK;
}

static void shape_put_string(char *out, size_t size, struct gguf_string s)
{
    snprintf(out, size, "%.*s", (int)MIN(s.len, size - 1), s.data ? s.data : "");
}

/* What can be told of a file of any architecture. */
static void shape_read_any(struct model_shape *out, const struct gguf *g)
{
    shape_put_string(out->arch, sizeof out->arch, gguf_get_string(g, "general.architecture"));
    shape_put_string(out->name, sizeof out->name, gguf_get_string(g, "general.name"));
    shape_read_tensor_sums(out, g);
    quantization_name_read(&out->quantization, g, gguf_path(g), out->dominant_format);
}

enum err_code model_shape_read(struct model_shape *out, const struct gguf *g, struct err *why)
{
    *out = (struct model_shape){ 0 };
    const struct gguf_string arch = gguf_get_string(g, "general.architecture");
    const struct arch *a = arch_find(arch);
    shape_read_any(out, g);
    if (!arch.data)
        return err_set(why, ERR_FORMAT, "metadata 'general.architecture' is missing: not a model");
    if (!a) return arch_error(arch, why);

    enum err_code rc;
    if ((rc = shape_read_layers(out, a, g, why))) return rc;
    if ((rc = shape_read_size(&out->embd, g, a->name, META_EMBEDDING_LENGTH, WIDTH_MAX, -1, why))) return rc;
    if ((rc = shape_read_list(&out->ff, out, a, g, META_FEED_FORWARD_LENGTH, WIDTH_MAX, -1, why))) return rc;
    if ((rc = shape_read_size(&out->ctx_train, g, a->name, META_CONTEXT_LENGTH, CTX_MAX, -1, why))) return rc;
    if ((rc = shape_read_heads(out, a, g, why))) return rc;
    if (a->latent && (rc = shape_read_latent(out, a, g, why))) return rc;
    if ((rc = shape_read_parts(out, a, g, why))) return rc;
    if ((rc = shape_read_state(out, a, g, why))) return rc;
    out->fused_qkv = a->qkv_forms && shape_any_layer_has(out, g, SLOT_QKV);
    if ((rc = shape_read_experts(out, a, g, why))) return rc;

    const struct gguf_tensor *embd = gguf_tensor_find(g, "token_embd.weight");
    if (!embd)
        return err_set(why, ERR_FORMAT,
                       "tensor 'token_embd.weight': expected [%lld,vocabulary], file has none of this name",
                       (long long)out->embd);
    if (embd->shape[1] > INT32_MAX)
        return err_set(why, ERR_FORMAT, "vocabulary of %lld is out of range", (long long)embd->shape[1]);
    out->vocab = embd->shape[1];

    /* an architecture without an output matrix multiplies with the embedding, even if force=on ignores one */
    out->tied_output = !((a->need | a->may) & SLOT_BIT(SLOT_OUTPUT)) || !gguf_tensor_find(g, "output.weight");
    out->random_weights = gguf_get_bool(g, "qdyno.synthetic", false);
    out->unknown = arch_unknown(NULL, a, out, g);
    return ERR_OK;
}

/* NULL-terminated names of the rows of ARCHS, which C cannot compute at compile time. */
enum { NAMES_MAX = 64 };
static const char *arch_names[NAMES_MAX];
static pthread_once_t arch_names_once = PTHREAD_ONCE_INIT;

static void arch_names_fill(void)
{
    for (size_t i = 0; i < ARCH_COUNT && i + 1 < NAMES_MAX; i++) arch_names[i] = ARCHS[i].name;
}

const char *const *model_architectures(void)
{
    pthread_once(&arch_names_once, arch_names_fill);
    return arch_names;
}

/* Read a number that must be positive and finite if the key exists. */
static enum err_code hyper_read_positive(double *out, const struct gguf *g, const char *arch,
                                         enum arch_key name, double otherwise, struct err *why)
{
    char key[ARCH_KEY_NAME];
    *out = gguf_get_num(g, arch_key_name(key, arch, name), otherwise);
    if (!(*out > 0) || !isfinite(*out))
        return err_set(why, ERR_FORMAT, "metadata '%s': expected a positive number, file has %g", key, *out);
    return ERR_OK;
}

static enum err_code hyper_read_rope(struct hyper *out, const struct model_shape *s, const struct gguf *g,
                                     struct err *why)
{
    char key[ARCH_KEY_NAME];
    const char *arch = out->arch->name;
    enum err_code rc;
    if ((rc = hyper_read_positive(&out->rope_base, g, arch, META_ROPE_BASE, 10000, why))) return rc;
    /* Older files use scale_linear. A stored factor of 0 means "no scaling". */
    const double old = gguf_get_num(g, arch_key_name(key, arch, META_ROPE_SCALE_LINEAR), 0);
    const double factor = gguf_get_num(g, arch_key_name(key, arch, META_ROPE_FACTOR), old);
    out->rope_factor = factor == 0 ? 1 : factor;
    if (!(out->rope_factor > 0) || !isfinite(out->rope_factor))
        return err_set(why, ERR_FORMAT, "metadata '%s': expected a positive number, file has %g", key,
                       factor);
    if ((rc = hyper_read_positive(&out->rope_attn_factor, g, arch, META_ROPE_ATTN_FACTOR, 1, why))) return rc;
    out->rope_ctx_original = gguf_get_int(g, arch_key_name(key, arch, META_ROPE_CTX_ORIGINAL), s->ctx_train);
    if (out->rope_ctx_original < 1)
        return err_set(why, ERR_FORMAT, "metadata '%s': expected at least 1, file has %lld", key,
                       (long long)out->rope_ctx_original);
    if ((rc = hyper_read_positive(&out->yarn_beta_fast, g, arch, META_YARN_BETA_FAST, 32, why))) return rc;
    if ((rc = hyper_read_positive(&out->yarn_beta_slow, g, arch, META_YARN_BETA_SLOW, 1, why))) return rc;
    out->yarn_exact = gguf_get_bool(g, YARN_EXACT_KEY, false);

    const struct gguf_string type = gguf_get_string(g, arch_key_name(key, arch, META_ROPE_SCALING_TYPE));
    if (!type.data || gguf_string_is(type, "linear") || gguf_string_is(type, "longrope")) return ERR_OK;
    if (gguf_string_is(type, "none"))
        out->rope_factor = 1;
    else if (gguf_string_is(type, "yarn"))
        out->yarn = true;
    else
        return err_set(why, ERR_FORMAT,
                       "metadata '%s': expected none, linear, yarn or longrope, file has '%.*s'", key,
                       (int)MIN(type.len, 64), type.data);
    return ERR_OK;
}

static enum err_code hyper_read_router(struct hyper *out, const struct model_shape *s, const struct gguf *g,
                                       struct err *why)
{
    static const enum router_score BY_KEY[] = { ROUTER_NONE, ROUTER_SOFTMAX, ROUTER_SIGMOID, ROUTER_CHOSEN };
    const struct arch *a = out->arch;
    char key[ARCH_KEY_NAME];
    if (!s->experts) return ERR_OK;
    const int64_t score = gguf_get_int(g, arch_key_name(key, a->name, META_EXPERT_SCORE), 0);
    if (a->router == ROUTER_BY_KEY && (score < 0 || score >= (int64_t)COUNT_OF(BY_KEY)))
        return err_set(why, ERR_FORMAT, "metadata '%s': expected 1 to 3, file has %lld", key,
                       (long long)score);
    /* files of DeepSeek V2 are older than the key; those of GLM-4.7-Flash lack it, too */
    const bool old = a->latent && s->layers != 47 && s->layers != 48;
    out->router.score = a->router != ROUTER_BY_KEY ? a->router
                        : score                    ? BY_KEY[score]
                        : old                      ? ROUTER_SOFTMAX
                                                   : ROUTER_SIGMOID;
    out->router.sum_one = a->router_sum == ROUTER_SUM_ONE ||
                          (a->router_sum == ROUTER_SUM_BY_KEY &&
                           gguf_get_bool(g, arch_key_name(key, a->name, META_EXPERT_SUM), false));
    const double scale = gguf_get_num(g, arch_key_name(key, a->name, META_EXPERT_SCALE), 0);
    if (!isfinite(scale))
        return err_set(why, ERR_FORMAT, "metadata '%s': expected a number, file has %g", key, scale);
    out->router.scale = scale == 0 ? 1 : (float)scale;
    /* files without groups have 0 or 1 of them */
    const int64_t groups = gguf_get_int(g, arch_key_name(key, a->name, META_EXPERT_GROUPS), 1);
    if (groups < 0 || groups > s->experts || s->experts % MAX(groups, 1))
        return err_set(why, ERR_FORMAT, "metadata '%s': %d experts cannot form %lld groups of equal size",
                       key, s->experts, (long long)groups);
    out->router.groups = (int)MAX(groups, 1);
    const int64_t best = gguf_get_int(g, arch_key_name(key, a->name, META_EXPERT_GROUPS_USED), 0);
    out->router.groups_used = best ? (int)best : out->router.groups;
    if (best < 0 || best > out->router.groups ||
        s->experts / out->router.groups * out->router.groups_used < s->experts_used)
        return err_set(why, ERR_FORMAT,
                       "metadata '%s': %d of %d experts cannot be chosen from %lld of %d groups", key,
                       s->experts_used, s->experts, (long long)best, out->router.groups);
    return ERR_OK;
}

bool hyper_layer_has_rope(const struct hyper *h, const struct model_shape *s, int layer)
{
    const struct arch *a = h->arch;
    if (a->rope == ROPE_NONE || h->no_rope) return false;
    const bool all_alike = a->rope_without_windows && !s->window;
    if (a->rope_in_windows && !all_alike && !s->parts[layer].window) return false;
    return !a->rope_period || (layer + 1) % a->rope_period != 0;
}

static void hyper_read_scales(struct hyper *out, const struct model_shape *s, const struct gguf *g)
{
    const struct arch *a = out->arch;
    char key[ARCH_KEY_NAME];
    const struct {
        enum arch_key key;
        size_t at;
        float otherwise;
    } SCALES[] = {
        { .key = META_ATTN_SCALE, .at = offsetof(struct hyper, attn_scale) },
        { .key = META_ATTN_SOFTCAP,
          .at = offsetof(struct hyper, attn_softcap),
          .otherwise = a->attn_softcap },
        { .key = META_LOGIT_SOFTCAP,
          .at = offsetof(struct hyper, logit_softcap),
          .otherwise = a->logit_softcap },
        { .key = META_LOGIT_SCALE, .at = offsetof(struct hyper, logit_scale), .otherwise = 1 },
        { .key = META_EMBEDDING_SCALE,
          .at = offsetof(struct hyper, embedding_scale),
          .otherwise = a->embedding_root ? sqrtf((float)s->embd) : 1 },
        { .key = META_RESIDUAL_SCALE, .at = offsetof(struct hyper, residual_scale), .otherwise = 1 },
    };
    for (size_t i = 0; i < COUNT_OF(SCALES); i++)
        *(float *)((char *)out + SCALES[i].at) = (float)gguf_get_num(
            g, arch_key_name(key, a->name, SCALES[i].key), SCALES[i].otherwise);
    const bool wide = a->wide_query_layers == s->layers;
    if (out->attn_scale == 0) out->attn_scale = (float)a->attn_scale;
    if (out->attn_scale == 0)
        out->attn_scale = 1.0f / sqrtf(wide ? (float)s->embd / (float)s->heads : (float)s->head_dim_k);
    if (a->latent) { /* YaRN changes the scores instead of the rotated parts */
        const double grown = out->yarn ? 1 + out->yarn_log_multiplier * log(out->rope_factor) : 1;
        out->attn_scale = (float)(grown * grown / sqrt(s->nope_dims + s->rope_dims));
    }
    if (a->logits_divided) out->logit_scale = 1.0f / out->logit_scale;
}

enum err_code hyper_read(struct hyper *out, const struct model_shape *s, const struct gguf *g,
                         struct err *why)
{
    *out = (struct hyper){ 0 };
    const struct arch *a = out->arch = arch_find(gguf_get_string(g, "general.architecture"));
    if (!a) return err_set(why, ERR_INTERNAL, "hyper_read before model_shape_read");
    char key[ARCH_KEY_NAME];
    const struct gguf_string act = gguf_get_string(g, ACTIVATION_KEY);
    out->act = a->act;
    if (act.data) {
        if (!gguf_string_is(act, "gelu_erf") || a->act != ACT_GELU_TANH)
            return err_set(why, ERR_FORMAT,
                           "metadata '" ACTIVATION_KEY
                           "': expected gelu_erf in a model with GELU, file has '%.*s'",
                           (int)MIN(act.len, 40), act.data);
        out->act = ACT_GELU_ERF;
    }
    const enum arch_key eps_key = a->norm == NORM_RMS ? META_RMS_EPSILON : META_LAYER_EPSILON;
    const double eps = gguf_get_num(g, arch_key_name(key, a->name, eps_key), NAN);
    if (!(eps >= 0 && eps < 1))
        return err_set(why, ERR_FORMAT, "metadata '%s': expected a small number, file has %s", key,
                       gguf_kv_find(g, key) ? "one out of range" : "none");
    out->eps = (float)eps;
    enum err_code rc = a->rope == ROPE_NONE ? ERR_OK : hyper_read_rope(out, s, g, why);
    if (rc) return rc;
    out->no_rope = a->rope_if_finetuned &&
                   !gguf_get_bool(g, arch_key_name(key, a->name, META_ROPE_FINETUNED), true);
    out->parallel = a->residual == RESIDUAL_PARALLEL ||
                    (a->residual == RESIDUAL_BY_KEY &&
                     gguf_get_bool(g, arch_key_name(key, a->name, META_PARALLEL_RESIDUAL), true));
    if (s->window && a->window_rope_plain &&
        (rc = hyper_read_positive(&out->window_rope_base, g, a->name, META_ROPE_BASE_WINDOW,
                                  a->window_rope_base > 0 ? a->window_rope_base : out->rope_base, why)))
        return rc;
    if ((rc = hyper_read_router(out, s, g, why))) return rc;
    out->query_scale_step = a->query_scale_step;
    out->query_scale_tokens = a->query_scale_tokens ? a->query_scale_tokens : out->rope_ctx_original;
    if (a->scales_queries || a->latent) {
        if (a->scales_queries)
            out->query_scale_step = gguf_get_num(g, arch_key_name(key, a->name, META_QUERY_SCALE), 0);
        out->yarn_log_multiplier = gguf_get_num(g, arch_key_name(key, a->name, META_YARN_LOG_MULTIPLIER), 0);
        if (!isfinite(out->query_scale_step) || !isfinite(out->yarn_log_multiplier))
            return err_set(why, ERR_FORMAT, "metadata '%s' or attention.temperature_scale is not finite",
                           key);
    }

    hyper_read_scales(out, s, g);
    return ERR_OK;
}
