/* engine/model/kv.h - which place of the KV cache holds which tokens of which sequence.
 *
 * The backend stores the bytes. For a paged cache this module keeps a free list of blocks and a table of
 * blocks per sequence: any block can serve any sequence, so sequences grow and shrink without moving data. In
 * the other layouts a sequence always has its whole context: in a contiguous cache as block `sequence`, of
 * which there are no tables; without a cache all of them use one block, one after the other. Internal to
 * engine/model. */
#ifndef QDYNO_ENGINE_KV_H
#define QDYNO_ENGINE_KV_H

#include <stdint.h>

#include "base/base.h"
#include "engine/plan/plan.h"

struct kv_cache {
    enum cache_layout layout;
    int ctx, sequences, blocks, blocks_per_sequence;
    int32_t *free_list; /* [blocks] a stack of its first free_count entries */
    int free_count;
    int32_t *
        *tables; /* [sequences][blocks_per_sequence] physical block of each logical one; NULL: contiguous */
    int32_t *lengths; /* [sequences] tokens stored */
    int32_t *storage; /* the allocation that contains all of the above */
    bool assigned;    /* kv_cache_assign decides which blocks a sequence has; the free list is not used */
};

/* blocks 0: enough for all sequences with full contexts. ERR_NOMEM. kv_cache_done accepts {0}. */
enum err_code kv_cache_init(struct kv_cache *kv, int ctx, int sequences, int blocks, struct err *why);
void kv_cache_done(struct kv_cache *kv);
/* The same for a layout other than CACHE_PAGED. */
enum err_code kv_cache_init_whole(struct kv_cache *kv, enum cache_layout layout, int ctx, int sequences,
                                  struct err *why);

/* Give sequence `seq` blocks for `tokens` tokens in total. False, without changes: too few free blocks. Does
 * not change the stored length. */
bool kv_cache_grow(struct kv_cache *kv, int seq, int tokens);

/* Keep the first `tokens` tokens and free the blocks after them. */
void kv_cache_truncate(struct kv_cache *kv, int seq, int tokens);

/* From now on the caller chooses the blocks of all sequences, and sequences may share blocks. Sequence `seq`
 * has these `count` blocks and `length` tokens in them. The first call takes all blocks from all sequences.
 */
void kv_cache_assign(struct kv_cache *kv, int seq, const int32_t *blocks, int count, int length);

/* Physical slot of token `pos`; the sequence must have a block for it. */
static inline int32_t kv_slot(const struct kv_cache *kv, int seq, int pos)
{
    const int32_t whole = kv->layout == CACHE_CONTIGUOUS ? seq * kv->blocks_per_sequence * KV_BLOCK_TOKENS
                                                         : 0;
    if (kv->layout != CACHE_PAGED) return whole + pos;
    return kv->tables[seq][pos / KV_BLOCK_TOKENS] * KV_BLOCK_TOKENS + pos % KV_BLOCK_TOKENS;
}

#endif
