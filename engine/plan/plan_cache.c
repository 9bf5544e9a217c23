/* The KV cache of a session: its formats, layout and bytes. */
#include "engine/plan/plan.h"

#include "engine/config/config.h"
#include "kernels/kernels.h"

enum { CACHE_LINE = 64 };

static int64_t round_up(int64_t n)
{
    return (n + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

static enum err_code session_resolve_kv(const struct format **out, const struct config *c, enum knob_id id,
                                        int head_dim, struct err *why)
{
    const struct format *f = *out = format_find(config_text(c, id));
    if (!f || !f->decode)
        return err_set(why, ERR_USAGE, "%s=%s: the KV cache cannot use this format", KNOBS[id].key,
                       config_text(c, id));
    if (head_dim % (int)f->block_weights)
        return err_set(why, ERR_USAGE, "%s=%s needs heads of a multiple of %u, this model's have %d: use f16",
                       KNOBS[id].key, f->name, f->block_weights, head_dim);
    return ERR_OK;
}

/* Blocks of fewer numbers would hardly spread an outlier. */
enum { KV_ROTATE_LEAST = 16 };

/* Is a cache of heads of that size rotated? */
static enum err_code session_resolve_rotation(bool *out, const struct config *c, enum knob_id cache,
                                              int head_dim, struct err *why)
{
    const bool fits = head_dim % KV_ROTATE_LEAST == 0, wanted = config_rotates(c, cache);
    *out = fits && wanted;
    if (fits || !wanted || config_choice(c, KNOB_KV_ROTATE) != KV_ROTATE_ON) return ERR_OK;
    return err_set(why, ERR_USAGE,
                   "kv_rotate=on needs heads of a multiple of %d, this model's have %d: use kv_rotate=auto",
                   KV_ROTATE_LEAST, head_dim);
}

/* Without a cache, one pass computes a whole context. */
static enum err_code session_resolve_layout(struct model_session *out, const struct model_shape *s,
                                            const struct config *c, struct err *why)
{
    out->cache = (enum cache_layout)config_choice(c, KNOB_KV_CACHE);
    if (out->cache != CACHE_OFF) return ERR_OK;
    if (s->state.taps)
        return err_set(
            why, ERR_USAGE,
            "kv_cache=off computes earlier tokens again, but layers of this %s model keep a state that "
            "has already seen them: expected kv_cache=paged or contiguous",
            s->arch);
    out->batch = MAX(out->batch, out->ctx);
    return ERR_OK;
}

enum err_code session_resolve_cache(struct model_session *out, const struct model_shape *s,
                                    const struct config *c, struct err *why)
{
    enum err_code rc = session_resolve_layout(out, s, c, why);
    if (rc) return rc;
    bool k, v;
    out->k_rotated = out->v_rotated = true; /* until a layer's are not */
    for (int l = 0; l < s->layers; l++) {
        if (!shape_layer_has_cache(s, l)) continue;
        const struct layer_parts *p = &s->parts[l];
        if ((rc = session_resolve_kv(&out->k_format, c, KNOB_CTK, p->head_dim_k, why))) return rc;
        if ((rc = session_resolve_kv(&out->v_format, c, KNOB_CTV, p->head_dim_v, why))) return rc;
        if ((rc = session_resolve_rotation(&k, c, KNOB_CTK, p->head_dim_k, why))) return rc;
        if ((rc = session_resolve_rotation(&v, c, KNOB_CTV, p->head_dim_v, why))) return rc;
        if (s->latent_cached && out->k_format != out->v_format)
            return err_set(why, ERR_USAGE,
                           "ctk=%s,ctv=%s: this model's values are a part of its keys, stored once; expected "
                           "the same format for both (kv=%s)",
                           out->k_format->name, out->v_format->name, out->k_format->name);
        if (s->latent_cached) k = v = k && p->head_dim_v % hadamard_block(p->head_dim_k) == 0;
        out->k_rotated &= k;
        out->v_rotated &= v;
    }
    if (!out->k_format) out->k_rotated = out->v_rotated = false; /* no layer has a cache */
    return ERR_OK;
}

int session_blocks(const struct model_session *e)
{
    return e->blocks ? e->blocks : kv_blocks_for(e->ctx) * e->sequences;
}

/* Blocks of a sequence whose positions are divided among processes: room for those of this one. */
static int share_blocks(const struct model_session *e)
{
    const struct attention_share own = part_share(&e->part);
    return MAX(kv_blocks_for(share_before(&own, e->ctx)), 1);
}

struct kv_layer session_kv_layer(const struct model_session *e, const struct model_shape *s, int layer)
{
    const struct layer_parts *l = &s->parts[layer];
    const bool paged = e->cache == CACHE_PAGED, divided = e->part.cp > 1;
    return (struct kv_layer){
        .k_format = e->k_format,
        .v_format = e->v_format,
        .kv_heads = split_heads(e->part.tp, e->part.tp_rank, s->heads, l->kv_heads).kv_heads,
        .k_dim = l->head_dim_k,
        .v_dim = l->head_dim_v,
        .v_in_k = s->latent_cached,
        .block_tokens = (paged ? 1 : kv_blocks_for(e->ctx)) * KV_BLOCK_TOKENS,
        .blocks = divided                        ? e->sequences * share_blocks(e)
                  : paged                        ? session_blocks(e)
                  : e->cache == CACHE_CONTIGUOUS ? e->sequences
                                                 : 1,
    };
}

int64_t kv_layer_k_bytes(const struct kv_layer *kv)
{
    const int64_t rows = (int64_t)kv->blocks * kv->block_tokens * kv->kv_heads;
    return round_up(rows * format_row_bytes(kv->k_format, kv->k_dim));
}

int64_t session_kv_bytes(const struct kv_layer *kv)
{
    /* V starts on the next cache line after K, so the sum can exceed the rounded total by one line. */
    return round_up(kv_layer_bytes(kv)) + CACHE_LINE;
}

bool session_layer_is_kept(const struct model_session *e, const struct model_shape *s, int layer)
{
    bool kept = e->cache != CACHE_OFF;
    for (int l = layer + 1; l < s->layers && !kept; l++)
        kept = s->parts[l].mixer == MIXER_ATTENTION && s->parts[l].kv_layer == layer;
    return kept;
}

int64_t session_cache_bytes(const struct model_session *e, const struct model_shape *s, int from, int to)
{
    int64_t bytes = 0, passing = 0;
    for (int l = from; l < to; l++) {
        const struct kv_layer kv = session_kv_layer(e, s, l);
        if (!shape_layer_has_cache(s, l) || !part_has_layer(&e->part, l)) continue;
        if (session_layer_is_kept(e, s, l))
            bytes += session_kv_bytes(&kv);
        else
            passing = MAX(passing, session_kv_bytes(&kv));
    }
    return bytes + passing;
}

int64_t session_history_bytes(const struct model_session *e)
{
    return e->cache == CACHE_OFF ? (int64_t)e->ctx * e->sequences * (int64_t)sizeof(int32_t) : 0;
}

int64_t session_token_bytes(const struct model_session *e, const struct model_shape *s)
{
    int64_t bytes = 0;
    for (int i = 0; i < s->layers; i++) {
        const struct layer_parts *l = &s->parts[i];
        if (shape_layer_has_cache(s, i))
            bytes += l->kv_heads * (format_row_bytes(e->k_format, l->head_dim_k) +
                                    (s->latent_cached ? 0 : format_row_bytes(e->v_format, l->head_dim_v)));
    }
    return bytes;
}
