/* Block tables of a paged KV cache: a stack of free blocks, and a table per sequence; -1: no physical block
 * yet. Lengths of sequences in the other layouts. */
#include "engine/model/kv.h"

#include <assert.h>
#include <stdlib.h>

#include "engine/plan/plan.h"
#include "kernels/kernels.h"

enum err_code kv_cache_init(struct kv_cache *kv, int ctx, int sequences, int blocks, struct err *why)
{
    *kv = (struct kv_cache){ .ctx = ctx, .sequences = sequences, .blocks_per_sequence = kv_blocks_for(ctx) };
    kv->blocks = blocks > 0 ? blocks : sequences * kv->blocks_per_sequence;
    const size_t tables = (size_t)sequences * (size_t)kv->blocks_per_sequence;
    kv->storage = calloc((size_t)kv->blocks + (size_t)sequences + tables, sizeof *kv->storage);
    kv->tables = calloc((size_t)sequences, sizeof *kv->tables);
    if (!kv->storage || !kv->tables) {
        kv_cache_done(kv);
        return err_set(why, ERR_NOMEM, "out of memory for the block tables of %d sequences", sequences);
    }
    kv->free_list = kv->storage;
    kv->lengths = kv->free_list + kv->blocks;
    for (int s = 0; s < sequences; s++) {
        kv->tables[s] = kv->lengths + sequences + (size_t)s * (size_t)kv->blocks_per_sequence;
        for (int b = 0; b < kv->blocks_per_sequence; b++) kv->tables[s][b] = -1;
    }
    /* The stack pops from its end, so block 0 is used first. */
    for (int b = 0; b < kv->blocks; b++) kv->free_list[b] = kv->blocks - 1 - b;
    kv->free_count = kv->blocks;
    return ERR_OK;
}

enum err_code kv_cache_init_whole(struct kv_cache *kv, enum cache_layout layout, int ctx, int sequences,
                                  struct err *why)
{
    const bool tables = layout == CACHE_OFF;
    *kv = (struct kv_cache){
        .layout = layout, .ctx = ctx, .sequences = sequences, .blocks_per_sequence = kv_blocks_for(ctx)
    };
    kv->blocks = tables ? 0 : sequences * kv->blocks_per_sequence;
    kv->storage = calloc((size_t)sequences + 1, sizeof *kv->storage);
    if (tables) kv->tables = calloc((size_t)sequences, sizeof *kv->tables);
    if (!kv->storage || (tables && !kv->tables)) {
        kv_cache_done(kv);
        return err_set(why, ERR_NOMEM, "out of memory for the lengths of %d sequences", sequences);
    }
    kv->lengths = kv->storage;
    for (int s = 0; s < sequences && tables; s++) kv->tables[s] = kv->storage + sequences; /* block 0 */
    return ERR_OK;
}

void kv_cache_done(struct kv_cache *kv)
{
    free(kv->storage);
    free(kv->tables);
    *kv = (struct kv_cache){ 0 };
}

static int blocks_held(const struct kv_cache *kv, int seq)
{
    int held = kv_blocks_for(kv->lengths[seq]);
    while (held < kv->blocks_per_sequence && kv->tables[seq][held] >= 0) held++;
    return held;
}

void kv_cache_assign(struct kv_cache *kv, int seq, const int32_t *blocks, int count, int length)
{
    assert(kv->layout == CACHE_PAGED && count <= kv->blocks_per_sequence && kv_blocks_for(length) <= count);
    if (!kv->assigned) {
        kv->assigned = true;
        for (int s = 0; s < kv->sequences; s++) kv_cache_truncate(kv, s, 0);
    }
    for (int b = 0; b < kv->blocks_per_sequence; b++) kv->tables[seq][b] = b < count ? blocks[b] : -1;
    kv->lengths[seq] = length;
}

bool kv_cache_grow(struct kv_cache *kv, int seq, int tokens)
{
    if (kv->layout != CACHE_PAGED) return tokens <= kv->ctx;
    const int held = blocks_held(kv, seq), wanted = kv_blocks_for(tokens);
    if (kv->assigned) return wanted <= held;
    if (wanted - held > kv->free_count) return false;
    for (int b = held; b < wanted; b++) kv->tables[seq][b] = kv->free_list[--kv->free_count];
    return true;
}

void kv_cache_truncate(struct kv_cache *kv, int seq, int tokens)
{
    if (tokens < 0) tokens = 0;
    if (tokens < kv->lengths[seq]) kv->lengths[seq] = tokens;
    if (kv->layout != CACHE_PAGED) return;
    for (int b = blocks_held(kv, seq) - 1; b >= kv_blocks_for(kv->lengths[seq]); b--) {
        if (!kv->assigned) kv->free_list[kv->free_count++] = kv->tables[seq][b];
        kv->tables[seq][b] = -1;
    }
}
