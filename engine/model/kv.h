/* engine/model/kv.h - which block of the KV cache holds which tokens of which sequence.
 *
 * The bytes belong to the backend; this is the bookkeeping: a free list of blocks, a table of blocks per
 * sequence. Any block may serve any sequence, so sequences grow and shrink without moving a byte. Internal to
 * engine/. */
#ifndef QDYNO_ENGINE_KV_H
#define QDYNO_ENGINE_KV_H

#include <stdint.h>

#include "base/base.h"
#include "engine/plan/plan.h"

struct kv_cache {
    int ctx, sequences, blocks, blocks_per_sequence;
    int32_t *free_list; /* [blocks] a stack; the first free_count are free */
    int free_count;
    int32_t **tables; /* [sequences][blocks_per_sequence] physical block of each logical one */
    int32_t *lengths; /* [sequences] tokens stored */
    int32_t *storage; /* what all of the above live in */
};

/* blocks 0: enough for every sequence to fill its context. ERR_NOMEM. kv_cache_done accepts {0}. */
enum err_code kv_cache_init(struct kv_cache *kv, int ctx, int sequences, int blocks, struct err *why);
void kv_cache_done(struct kv_cache *kv);

/* Make room for `tokens` tokens in all of sequence `seq`: false, and nothing changed, when too few blocks are
 * free. Stored length is not touched. */
bool kv_cache_grow(struct kv_cache *kv, int seq, int tokens);

/* Keep the first `tokens` tokens; blocks behind them become free. */
void kv_cache_truncate(struct kv_cache *kv, int seq, int tokens);

/* Physical slot of token `pos`, which must have room. */
static inline int32_t kv_slot(const struct kv_cache *kv, int seq, int pos)
{
    return kv->tables[seq][pos / KV_BLOCK_TOKENS] * KV_BLOCK_TOKENS + pos % KV_BLOCK_TOKENS;
}

#endif
