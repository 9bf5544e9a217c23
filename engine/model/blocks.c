/* Blocks of the KV cache whose owner is a scheduler: which sequence has which, and copies of their contents.
 * In a layer's memory the bytes of one block are consecutive, first of all keys, then of all values (if they
 * are stored at all). */
#include <stdlib.h>

#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/model/model.h"
#include "engine/model/model_internal.h"

int model_blocks(const struct model *m)
{
    return m->cache.blocks;
}

void model_assign_blocks(struct model *m, int seq, const int32_t *blocks, int count, int length)
{
    kv_cache_assign(&m->cache, seq, blocks, count, length);
    if (m->ranks) model_ranks_assign(m, seq, blocks, count, length);
}

/* Bytes of the keys, or the values, of one block of a layer. */
static size_t half_bytes(const struct kv_layer *kv, bool values)
{
    if (values && kv->v_in_k) return 0;
    const struct format *f = values ? kv->v_format : kv->k_format;
    const int64_t row = format_row_bytes(f, values ? kv->v_dim : kv->k_dim);
    return (size_t)(row * kv->block_tokens * kv->kv_heads);
}

int64_t model_block_bytes(const struct model *m)
{
    int64_t bytes = 0;
    if (m->ranks) return 0; /* they cannot be copied to other memory */
    for (int l = 0; l < m->shape.layers; l++)
        if (shape_layer_has_cache(&m->shape, l))
            bytes += (int64_t)(half_bytes(&m->layers[l].kv, false) + half_bytes(&m->layers[l].kv, true));
    return bytes;
}

/* Copy a block out of the cache (out) or into it (in); the other one is NULL. */
static enum err_code move_block(struct model *m, int32_t block, char *out, const char *in, struct err *why)
{
    if (m->ranks)
        return err_set(
            why, ERR_USAGE,
            "parallel=%s: blocks of the KV cache cannot be copied to other memory; expected preempt=recompute",
            config_text(&m->config, KNOB_PARALLEL));
    for (int l = 0; l < m->shape.layers; l++) {
        const struct kv_layer *kv = &m->layers[l].kv;
        struct backend *b = model_site(m, l)->backend;
        if (!shape_layer_has_cache(&m->shape, l)) continue;
        for (int values = 0; values < 2; values++) {
            const size_t bytes = half_bytes(kv, values);
            char *at = (char *)(values ? kv->v : kv->k) + (size_t)block * bytes;
            if (out) {
                backend_read(b, out, at, bytes);
                out += bytes;
            } else {
                backend_write(b, at, in, bytes);
                in += bytes;
            }
        }
    }
    enum err_code rc = ERR_OK;
    for (const struct site *s = m->sites; s < m->sites + SITE_COUNT && !rc; s++)
        if (s->backend) rc = backend_finish(s->backend, why);
    return rc;
}

enum err_code model_read_block(struct model *m, int32_t block, void *to, struct err *why)
{
    return move_block(m, block, to, NULL, why);
}

enum err_code model_write_block(struct model *m, int32_t block, const void *from, struct err *why)
{
    return move_block(m, block, NULL, from, why);
}

enum err_code model_copy_block(struct model *m, int32_t from, int32_t to, struct err *why)
{
    if (m->ranks) return model_ranks_copy_block(m, from, to, why);
    char *contents = malloc((size_t)model_block_bytes(m));
    if (!contents) return err_set(why, ERR_NOMEM, "out of memory for a block of the KV cache");
    enum err_code rc = model_read_block(m, from, contents, why);
    if (!rc) rc = model_write_block(m, to, contents, why);
    free(contents);
    return rc;
}
