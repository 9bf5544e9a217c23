/* RoPE scaling: config.json's forms of it, as metadata and as tensors with a factor for each frequency. Older
 * files have rope_theta and rope_scaling, those of 2026 rope_parameters. */
#include <math.h>
#include <string.h>

#include "engine/import/families.h"
#include "engine/import/metadata.h"
#include "kernels/kernels.h"

/* The object with the parameters of layers without a window; NULL: none. */
static const json_t *rope_object(const struct checkpoint *c)
{
    const json_t *o = hf_find(c, "rope_parameters rope_scaling");
    const json_t *full = json_object_get(o, "full_attention"); /* one object for each kind of layer */
    return full ? full : o;
}

/* Layers with a window have RoPE like the others, or, where the architecture says so, RoPE without scaling.
 */
static enum err_code check_windows(const struct checkpoint *c, const json_t *full, struct err *why)
{
    const json_t *windows = json_object_get(hf_find(c, "rope_parameters rope_scaling"), "sliding_attention");
    const bool plain = !strcmp(json_get_str(windows, "rope_type", "default"), "default");
    if (!windows || (c->arch->window_rope_plain ? plain : json_equal(windows, full))) return ERR_OK;
    return err_set(
        why, ERR_FORMAT, "config.json: rope_parameters: expected %s for layers with a window in %s models",
        c->arch->window_rope_plain ? "the rope_type default" : "the same values", c->family->architecture);
}

enum err_code rope_read(struct hf_rope *out, const struct checkpoint *c, struct err *why)
{
    const struct family *family = c->family;
    static const char *const KNOWN[] = { "default", "linear", "yarn", "llama3", "longrope" };
    const json_t *o = rope_object(c);
    const char *type = json_get_str(o, "rope_type", json_get_str(o, "type", "default"));
    if (!strcmp(type, "su")) type = "longrope"; /* its name in the first Phi 3 files */
    /* HunYuan: frequencies that do not depend on the length of the text, unlike those of this type elsewhere
     */
    const double alpha = json_get_num(o, "alpha", 0);
    const bool stretched = family->flags & FAMILY_ROPE_ALPHA && !strcmp(type, "dynamic") && alpha > 0 &&
                           c->sizes.head_dim > 2;
    if (stretched) type = "default";
    out->values = o;
    out->type = NULL;
    for (size_t i = 0; i < COUNT_OF(KNOWN); i++)
        if (!strcmp(KNOWN[i], type)) out->type = KNOWN[i];
    if (!out->type)
        return err_set(
            why, ERR_FORMAT,
            "config.json: RoPE scaling '%.40s' is not supported; default, linear, yarn, llama3 and "
            "longrope are",
            type);
    out->base = json_get_num(o, "rope_theta", hf_num(c, "rope_theta rotary_emb_base", 10000));
    if (stretched) out->base *= pow(alpha, (double)c->sizes.head_dim / (double)(c->sizes.head_dim - 2));
    const double part = json_get_num(o, "partial_rotary_factor",
                                     hf_num(c, "partial_rotary_factor rotary_pct", 1));
    out->dims = (int64_t)((double)c->sizes.head_dim * part);
    if (!(part > 0 && part <= 1) || out->dims < 2)
        return err_set(why, ERR_FORMAT, "config.json: a part of %g of each head is rotated: expected up to 1",
                       part);
    if (part != 1 && !(family->flags & FAMILY_PART_ROTATED))
        return err_set(why, ERR_FORMAT,
                       "config.json: a partial_rotary_factor of %g is not supported in %s models: expected 1",
                       part, family->architecture);
    return check_windows(c, o, why);
}

static void put_num(struct checkpoint *c, enum arch_key key, double v)
{
    char name[ARCH_KEY_NAME];
    if (!isnan(v)) gguf_writer_put_f32(c->metadata, arch_key_name(name, c->arch->name, key), (float)v);
}

/* The context length before scaling. */
static int64_t original_context(const struct checkpoint *c, const struct hf_rope *r)
{
    return json_get_int(r->values, "original_max_position_embeddings",
                        hf_int(c, "original_max_position_embeddings max_position_embeddings", 0));
}

/* The factor of attention that longrope implies. */
static double longrope_factor(const struct checkpoint *c, const struct hf_rope *r)
{
    const double original = (double)original_context(c, r),
                 longest = (double)hf_int(c, "max_position_embeddings", 0),
                 scale = json_get_num(r->values, "factor", longest / original);
    const double given = json_get_num(r->values, "attention_factor", NAN);
    if (!isnan(given)) return given;
    return scale <= 1 ? 1 : sqrt(1 + log(scale) / log(original));
}

/* YaRN's factor of attention must be the one that the engine computes. */
static enum err_code check_yarn(const struct hf_rope *r, struct err *why)
{
    const double factor = json_get_num(r->values, "factor", 1),
                 usual = factor <= 1 ? 1 : 0.1 * log(factor) + 1,
                 given = json_get_num(r->values, "attention_factor", usual);
    if (fabs(given - usual) > 1e-6 * usual)
        return err_set(why, ERR_FORMAT,
                       "config.json: YaRN with an attention_factor of %g is not supported: expected %g (0.1 "
                       "ln(factor) + 1)",
                       given, usual);
    if (json_object_get(r->values, "mscale") || json_object_get(r->values, "mscale_all_dim"))
        return err_set(why, ERR_FORMAT, "config.json: YaRN with mscale is not supported");
    return ERR_OK;
}

enum err_code rope_put(struct checkpoint *c, struct err *why)
{
    struct hf_rope r;
    char name[ARCH_KEY_NAME];
    const char *arch = c->arch->name;
    if (c->arch->rope == ROPE_NONE) return ERR_OK;
    enum err_code rc = rope_read(&r, c, why);
    if (rc) return rc;
    c->sizes.rope_dims = r.dims;
    put_num(c, META_ROPE_BASE, r.base);
    gguf_writer_put_u32(c->metadata, arch_key_name(name, arch, META_ROPE_DIMENSIONS), (uint32_t)r.dims);
    const json_t *windows = json_object_get(hf_find(c, "rope_parameters"), "sliding_attention");
    const double window_base = json_get_num(windows, "rope_theta", hf_num(c, "rope_local_base_freq", NAN));
    if (c->arch->window_rope_plain) put_num(c, META_ROPE_BASE_WINDOW, window_base);
    const bool yarn = !strcmp(r.type, "yarn"), linear = !strcmp(r.type, "linear"),
               longrope = !strcmp(r.type, "longrope");
    if (yarn && (rc = check_yarn(&r, why))) return rc;
    if (yarn || linear) {
        gguf_writer_put_string(c->metadata, arch_key_name(name, arch, META_ROPE_SCALING_TYPE), r.type);
        put_num(c, META_ROPE_FACTOR, json_get_num(r.values, "factor", 1));
    }
    if (yarn) {
        put_num(c, META_YARN_BETA_FAST, json_get_num(r.values, "beta_fast", 32));
        put_num(c, META_YARN_BETA_SLOW, json_get_num(r.values, "beta_slow", 1));
        if (!json_get_bool(r.values, "truncate", true))
            gguf_writer_put_bool(c->metadata, YARN_EXACT_KEY, true);
    }
    if (longrope) put_num(c, META_ROPE_ATTN_FACTOR, longrope_factor(c, &r));
    if (yarn || longrope)
        gguf_writer_put_u32(c->metadata, arch_key_name(name, arch, META_ROPE_CTX_ORIGINAL),
                            (uint32_t)original_context(c, &r));
    return ERR_OK;
}

/* ---------------------------------------------------------------- factors of frequencies */

/* One tensor with a factor for each rotated pair, allocated and named. *values: to fill. */
static enum err_code new_factors(struct gguf_tensor *t, float **values, struct checkpoint *c, enum slot slot,
                                 int64_t n, struct err *why)
{
    if (!((c->arch->need | c->arch->may) & SLOT_BIT(slot)))
        return err_set(why, ERR_FORMAT, "config.json: this RoPE scaling is not supported in %s models",
                       c->arch->name);
    *values = arena_alloc(&c->parts.memory, (size_t)n * sizeof **values);
    if (!*values) return err_set(why, ERR_NOMEM, "out of memory for RoPE factors");
    *t = (struct gguf_tensor){ .name = ARCH_SLOTS[slot].name,
                               .format = &FORMATS[FORMAT_F32],
                               .type_name = FORMATS[FORMAT_F32].name,
                               .dims = 1,
                               .shape = { n, 1, 1, 1 },
                               .data = (const unsigned char *)*values,
                               .bytes = n * (int64_t)sizeof **values };
    return ERR_OK;
}

/* Llama 3: frequencies with long waves are divided by `factor`, those with short waves are not, those between
 * change smoothly. Source: transformers, modeling_rope_utils.py. */
static void llama3_factors(float *out, const struct checkpoint *c, const struct hf_rope *r)
{
    const double factor = json_get_num(r->values, "factor", 8),
                 low = json_get_num(r->values, "low_freq_factor", 1),
                 high = json_get_num(r->values, "high_freq_factor", 4),
                 context = (double)original_context(c, r);
    for (int64_t i = 0; i < r->dims / 2; i++) {
        const double frequency = pow(r->base, -2.0 * (double)i / (double)r->dims),
                     wave = 2 * 3.14159265358979323846 / frequency;
        const double smooth = (context / wave - low) / (high - low);
        out[i] = wave < context / high  ? 1
                 : wave > context / low ? (float)factor
                                        : (float)(1 / ((1 - smooth) / factor + smooth));
    }
}

static enum err_code list_factors(float *out, const struct hf_rope *r, const char *key, struct err *why)
{
    const json_t *list = json_object_get(r->values, key);
    if ((int64_t)json_array_size(list) != r->dims / 2)
        return err_set(why, ERR_FORMAT,
                       "config.json: '%s' has %zu numbers, expected %lld, one for each rotated pair", key,
                       json_array_size(list), (long long)(r->dims / 2));
    for (int64_t i = 0; i < r->dims / 2; i++) {
        out[i] = (float)json_number_value(json_array_get(list, (size_t)i));
        if (!(out[i] > 0))
            return err_set(why, ERR_FORMAT, "config.json: '%s' has a factor of %g", key, out[i]);
    }
    return ERR_OK;
}

enum err_code rope_tensors(struct gguf_tensor out[ROPE_TENSORS], int *count, struct checkpoint *c,
                           struct err *why)
{
    struct hf_rope r;
    float *values;
    *count = 0;
    if (c->arch->rope == ROPE_NONE) return ERR_OK;
    enum err_code rc = rope_read(&r, c, why);
    if (!rc && !strcmp(r.type, "llama3")) {
        rc = new_factors(&out[(*count)++], &values, c, SLOT_ROPE_FREQS, r.dims / 2, why);
        if (!rc) llama3_factors(values, c, &r);
    }
    if (!rc && !strcmp(r.type, "longrope")) {
        rc = new_factors(&out[(*count)++], &values, c, SLOT_ROPE_LONG, r.dims / 2, why);
        if (!rc) rc = list_factors(values, &r, "long_factor", why);
        if (!rc) rc = new_factors(&out[(*count)++], &values, c, SLOT_ROPE_SHORT, r.dims / 2, why);
        if (!rc) rc = list_factors(values, &r, "short_factor", why);
    }
    return rc;
}
