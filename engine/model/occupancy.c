/* Shows which sequence owns each block of the KV cache, by inverting the block tables. */
#include "engine/model/model_internal.h"

#include <stdlib.h>
#include <string.h>

#include "engine/model/model.h"
#include "engine/plan/plan.h"

enum { OCCUPANCY_MAP = 1024 };

static char owner_letter(int sequence)
{
    static const char NAMES[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    return sequence < (int)sizeof NAMES - 1 ? NAMES[sequence] : '+';
}

/* The block of a contiguous cache is cut into as many tokens as blocks of a paged one have. */
static int32_t block_of(const struct kv_cache *kv, int seq, int block)
{
    return kv->layout == CACHE_PAGED ? kv->tables[seq][block] : seq * kv->blocks_per_sequence + block;
}

/* With assigned blocks sequences may share some, and the free list is not used. */
static int blocks_used(const struct kv_cache *kv)
{
    bool *seen = kv->assigned ? calloc((size_t)kv->blocks, sizeof *seen) : NULL;
    int used = seen ? 0 : kv->blocks - kv->free_count;
    if (kv->layout == CACHE_CONTIGUOUS) used = 0;
    for (int s = 0; s < kv->sequences && kv->layout == CACHE_CONTIGUOUS; s++)
        used += kv_blocks_for(kv->lengths[s]);
    for (int s = 0; seen && s < kv->sequences; s++)
        for (int b = 0; b < kv_blocks_for(kv->lengths[s]); b++) {
            used += !seen[kv->tables[s][b]];
            seen[kv->tables[s][b]] = true;
        }
    free(seen);
    return used;
}

json_t *model_occupancy_to_json(const struct model *m)
{
    const struct kv_cache *kv = &m->cache;
    char map[OCCUPANCY_MAP + 1];
    const int step = MAX((kv->blocks + OCCUPANCY_MAP - 1) / OCCUPANCY_MAP, 1);
    const int cells = (kv->blocks + step - 1) / step;
    int32_t first[OCCUPANCY_MAP]; /* first used block of each character */
    memset(map, '.', sizeof map);
    map[cells] = '\0';
    for (int i = 0; i < cells; i++) first[i] = INT32_MAX;
    for (int s = 0; s < kv->sequences && kv->blocks; s++)
        for (int b = 0; b < kv_blocks_for(kv->lengths[s]); b++) {
            const int32_t block = block_of(kv, s, b);
            const int at = block / step;
            if (block >= first[at]) continue;
            first[at] = block;
            map[at] = owner_letter(s);
        }
    json_t *o = json_object();
    json_put_int(o, "blocks", kv->blocks);
    json_put_int(o, "used", blocks_used(kv));
    json_put_int(o, "block_tokens", KV_BLOCK_TOKENS);
    json_put_int(o, "rows", m->rows);
    json_put_int(o, "batch", m->session.batch);
    json_put_int(o, "step", step);
    json_put_str(o, "map", map);
    return o;
}
