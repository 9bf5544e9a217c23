/* What each layer of a model consists of, and the sizes of layers that keep a state instead of keys and
 * values. */
#include "engine/arch/arch_internal.h"
#include "engine/gguf/gguf.h"
#include "kernels/kernels.h"

/* The value of a key for a layer; 0: the file has no such key. */
static int64_t layer_value(const struct arch *a, const struct gguf *g, enum arch_key name, int layer)
{
    char key[ARCH_KEY_NAME];
    const struct gguf_kv *kv = gguf_kv_find(g, arch_key_name(key, a->name, name));
    if (!kv) return 0;
    if (kv->type != GGUF_ARRAY) return gguf_get_int(g, key, 0);
    return (uint64_t)layer < kv->count ? (int64_t)gguf_kv_num(kv, (uint64_t)layer) : 0;
}

enum err_code shape_read_list(int64_t *out, const struct model_shape *s, const struct arch *a,
                              const struct gguf *g, enum arch_key name, int64_t max, int64_t otherwise,
                              struct err *why)
{
    char key[ARCH_KEY_NAME];
    const struct gguf_kv *kv = gguf_kv_find(g, arch_key_name(key, a->name, name));
    if (!kv || kv->type != GGUF_ARRAY) return shape_read_size(out, g, a->name, name, max, otherwise, why);
    if (kv->count < (uint64_t)s->layers)
        return err_set(why, ERR_FORMAT, "metadata '%s': expected %d values, one per layer, file has %llu",
                       key, s->layers, (unsigned long long)kv->count);
    *out = 0;
    for (int l = 0; l < s->layers; l++) {
        const double value = gguf_kv_num(kv, (uint64_t)l);
        if (!(value >= 0 && value <= (double)max))
            return err_set(why, ERR_FORMAT, "metadata '%s': expected 0 to %lld, file has %g for layer %d",
                           key, (long long)max, value, l);
        const bool fits = value == 0 ? a->state != MIXER_ATTENTION
                                     : *out == 0 || (int64_t)value == *out || a->layers_differ;
        if (!fits)
            return err_set(why, ERR_FORMAT,
                           "metadata '%s' differs by layer, which is not supported in %s models", key,
                           a->name);
        *out = MAX(*out, (int64_t)value);
    }
    if (*out == 0) return err_set(why, ERR_FORMAT, "metadata '%s' is 0 for all layers", key);
    return ERR_OK;
}

/* Which layers have a window: by attention.sliding_window_pattern, a number or a list, or by default. */
static enum err_code read_windows(struct model_shape *s, const struct arch *a, const struct gguf *g,
                                  struct err *why)
{
    char key[ARCH_KEY_NAME];
    if (!a->window_period && !arch_lists_windows(a, g)) return ERR_OK;
    const int64_t window = gguf_get_int(g, arch_key_name(key, a->name, META_WINDOW), a->window);
    const struct gguf_kv *kv = gguf_kv_find(g, arch_key_name(key, a->name, META_WINDOW_PATTERN));
    const bool list = kv && kv->type == GGUF_ARRAY;
    const int64_t period = kv && !list ? gguf_get_int(g, key, -1) : a->window_period;
    if (period < 0 || period > LAYERS_MAX)
        return err_set(why, ERR_FORMAT, "metadata '%s': expected 0 to %d, file has %lld", key, LAYERS_MAX,
                       (long long)period);
    if (list && kv->count < (uint64_t)s->layers)
        return err_set(why, ERR_FORMAT, "metadata '%s': expected %d values, one per layer, file has %llu",
                       key, s->layers, (unsigned long long)kv->count);
    if (window <= 0 || window >= INT32_MAX) return ERR_OK;
    for (int l = 0; l < s->layers; l++) {
        s->parts[l].window = list ? gguf_kv_num(kv, (uint64_t)l) != 0
                                  : period == 1 || (period > 1 && l % period != period - 1);
        if (s->parts[l].window) s->window = (int)window;
    }
    return ERR_OK;
}

/* Sizes of attention in layers with a window, where they differ from those of other layers. */
static enum err_code read_window_heads(struct model_shape *s, const struct arch *a, const struct gguf *g,
                                       struct err *why)
{
    int64_t key, value, rope;
    enum err_code rc;
    if (!a->layers_differ || !s->window) return ERR_OK;
    if ((rc = shape_read_size(&key, g, a->name, META_KEY_LENGTH_WINDOW, HEAD_DIM_MAX, s->head_dim_k, why)))
        return rc;
    if ((rc = shape_read_size(&value, g, a->name, META_VALUE_LENGTH_WINDOW, HEAD_DIM_MAX, s->head_dim_v,
                              why)))
        return rc;
    if ((rc = shape_read_size(&rope, g, a->name, META_ROPE_DIMENSIONS_WINDOW, HEAD_DIM_MAX,
                              MIN(key, (int64_t)s->rope_dims), why)))
        return rc;
    if (rope > key || rope % 2)
        return err_set(why, ERR_FORMAT,
                       "metadata '%s': expected an even number up to the head size %lld, file has %lld",
                       ARCH_KEYS[META_ROPE_DIMENSIONS_WINDOW].name, (long long)key, (long long)rope);
    for (int l = 0; l < s->layers; l++) {
        struct layer_parts *p = &s->parts[l];
        if (!p->window) continue;
        p->head_dim_k = (uint16_t)key;
        p->head_dim_v = (uint16_t)value;
        p->rope_dims = (uint16_t)rope;
    }
    s->head_dim_k = MAX(s->head_dim_k, (int)key);
    s->head_dim_v = MAX(s->head_dim_v, (int)value);
    s->rope_dims = MAX(s->rope_dims, (int)rope);
    return ERR_OK;
}

/* The last layers may read keys and values of the last layers of their kind that have their own. */
static enum err_code read_shared(struct model_shape *s, const struct arch *a, const struct gguf *g,
                                 struct err *why)
{
    char key[ARCH_KEY_NAME];
    if (!a->layers_differ) return ERR_OK;
    const int64_t shared = gguf_get_int(g, arch_key_name(key, a->name, META_SHARED_KV_LAYERS), 0),
                  inputs = gguf_get_int(g, arch_key_name(key, a->name, META_LAYER_INPUTS), 0);
    if (inputs < 0 || inputs > WIDTH_MAX / s->layers)
        return err_set(why, ERR_FORMAT, "metadata '%s' is out of range: %lld", key, (long long)inputs);
    s->layer_inputs = (int)inputs;
    if (shared < 0 || shared > MAX(s->layers - 2, 0))
        return err_set(why, ERR_FORMAT,
                       "metadata 'attention.shared_kv_layers': expected 0 to %d, file has %lld",
                       MAX(s->layers - 2, 0), (long long)shared);
    const int own = s->layers - (int)shared;
    for (int l = own; l < s->layers; l++) {
        struct layer_parts *p = &s->parts[l];
        const int from = p->window ? own - 2 : own - 1;
        const struct layer_parts *q = &s->parts[from];
        if (p->window != q->window || p->kv_heads != q->kv_heads || p->head_dim_k != q->head_dim_k ||
            p->head_dim_v != q->head_dim_v)
            return err_set(why, ERR_FORMAT,
                           "layer %d cannot share keys and values of layer %d: their sizes differ", l, from);
        p->kv_layer = (int16_t)from;
    }
    return ERR_OK;
}

/* Which layers have attention: all, those that attention.recurrent_layers leaves out, each n-th, or those
 * with KV heads. */
static enum err_code read_attention(bool *out, const struct model_shape *s, const struct arch *a,
                                    const struct gguf *g, struct err *why)
{
    char key[ARCH_KEY_NAME];
    const int64_t given = gguf_get_int(g, arch_key_name(key, a->name, META_ATTENTION_PERIOD), 0),
                  period = a->attention_period && given > 0 ? given : a->attention_period;
    const struct gguf_kv *list = a->attention_period
                                     ? gguf_kv_find(g, arch_key_name(key, a->name, META_RECURRENT_LAYERS))
                                     : NULL;
    if (list && (list->type != GGUF_ARRAY || list->count < (uint64_t)s->layers))
        return err_set(why, ERR_FORMAT, "metadata '%s': expected %d values, one per layer, file has %llu",
                       key, s->layers, list->type == GGUF_ARRAY ? (unsigned long long)list->count : 1ULL);
    for (int l = 0; l < s->layers; l++)
        out[l] = a->state == MIXER_ATTENTION || (list     ? gguf_kv_num(list, (uint64_t)l) == 0
                                                 : period ? (l + 1) % period == 0
                                                          : layer_value(a, g, META_HEAD_COUNT_KV, l) > 0);
    return ERR_OK;
}

enum err_code shape_read_parts(struct model_shape *s, const struct arch *a, const struct gguf *g,
                               struct err *why)
{
    bool has_attention[LAYERS_MAX];
    enum err_code rc = read_attention(has_attention, s, a, g, why);
    if (rc) return rc;
    for (int l = 0; l < s->layers; l++) {
        struct layer_parts *p = &s->parts[l];
        const bool attention = has_attention[l];
        const bool alone = a->one_part && layer_value(a, g, META_FEED_FORWARD_LENGTH, l) > 0;
        p->mixer = attention ? MIXER_ATTENTION : alone ? MIXER_NONE : a->state;
        p->feed_forward = !a->one_part || p->mixer == MIXER_NONE;
        const int64_t kv_heads = layer_value(a, g, META_HEAD_COUNT_KV, l),
                      ff = layer_value(a, g, META_FEED_FORWARD_LENGTH, l);
        p->kv_heads = kv_heads && attention ? (int32_t)kv_heads : s->kv_heads;
        p->ff = ff ? (int32_t)ff : (int32_t)s->ff;
        p->head_dim_k = (uint16_t)s->head_dim_k;
        p->head_dim_v = (uint16_t)s->head_dim_v;
        p->rope_dims = (uint16_t)s->rope_dims;
        p->kv_layer = (int16_t)l;
        if (s->heads % p->kv_heads)
            return err_set(why, ERR_FORMAT, "layer %d: %d attention heads cannot share %d KV heads evenly", l,
                           s->heads, p->kv_heads);
    }
    rc = read_windows(s, a, g, why);
    if (!rc) rc = read_window_heads(s, a, g, why);
    return rc ? rc : read_shared(s, a, g, why);
}

/* Heads and groups of a recurrence. */
static enum err_code read_heads(struct state_shape *t, const struct arch *a, const struct gguf *g,
                                struct err *why)
{
    int64_t heads, groups, key_dim, inner;
    enum err_code rc;
    if ((rc = shape_read_size(&heads, g, a->name, META_STATE_HEADS, HEADS_MAX, -1, why))) return rc;
    if ((rc = shape_read_size(&groups, g, a->name, META_STATE_GROUPS, HEADS_MAX, -1, why))) return rc;
    if ((rc = shape_read_size(&key_dim, g, a->name, META_STATE_KEY, RECURRENCE_DIM_MAX, -1, why))) return rc;
    if ((rc = shape_read_size(&inner, g, a->name, META_STATE_INNER, WIDTH_MAX, -1, why))) return rc;
    const int64_t value_dim = inner / heads;
    if (heads % groups || inner % heads || value_dim < 1 || value_dim > RECURRENCE_DIM_MAX ||
        (a->state == MIXER_DELTA && value_dim != key_dim) || groups * key_dim > WIDTH_MAX)
        return err_set(why, ERR_FORMAT,
                       "layers with a state: inner_size %lld, %lld heads (time_step_rank), %lld groups and "
                       "state_size %lld do not belong together",
                       (long long)inner, (long long)heads, (long long)groups, (long long)key_dim);
    t->heads = (int)heads;
    t->groups = (int)groups;
    t->key_dim = (int)key_dim;
    t->value_dim = (int)value_dim;
    t->channels = inner + 2 * groups * key_dim;
    return ERR_OK;
}

enum err_code shape_read_state(struct model_shape *s, const struct arch *a, const struct gguf *g,
                               struct err *why)
{
    struct state_shape *t = &s->state;
    int64_t taps;
    int first = 0;
    while (first < s->layers && !shape_layer_has_state(s, first)) first++;
    if (first == s->layers) return ERR_OK;
    const bool convolution = a->state == MIXER_CONVOLUTION;
    enum err_code rc = shape_read_size(&taps, g, a->name,
                                       convolution ? META_STATE_TAPS_SHORT : META_STATE_TAPS,
                                       CONVOLUTION_TAPS_MAX, -1, why);
    if (rc) return rc;
    if (taps < 2)
        return err_set(why, ERR_FORMAT, "metadata '%s': expected 2 to %d, file has %lld",
                       ARCH_KEYS[convolution ? META_STATE_TAPS_SHORT : META_STATE_TAPS].name,
                       CONVOLUTION_TAPS_MAX, (long long)taps);
    t->channels = s->embd;
    if (!convolution && (rc = read_heads(t, a, g, why))) return rc;
    t->taps = (int)taps;
    t->fused = a->state == MIXER_DELTA && shape_any_layer_has(s, g, SLOT_STATE_IN);
    return ERR_OK;
}
