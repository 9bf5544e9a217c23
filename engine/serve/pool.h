/* engine/serve/pool.h - the blocks of a KV cache, shared between requests.
 *
 * A block has the keys and values of a fixed number of tokens. Requests that begin with the same tokens use
 * the same blocks, so each block counts its references. A full block may have a name: a hash of all
 * tokens from the start of the text to its end, because keys and values depend on all of them. A named block
 * without references keeps its contents until the space is needed; a policy then chooses the block to evict.
 *
 * The pool itself knows names only; `qdyno cache` replays traces of names with it. Not
 * thread-safe. */
#ifndef QDYNO_ENGINE_SERVE_POOL_H
#define QDYNO_ENGINE_SERVE_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "engine/config/config.h"

/* What a policy knows of a block that has just lost its last reference. */
struct block_use {
    int64_t tick; /* when it lost its last reference; the clock advances with each such event and each name */
    int64_t named;    /* when the block got its name, by the same clock */
    int64_t priority; /* of the request that used it last; higher: more important */
    int64_t next_use; /* when it will be used again; INT64_MAX: never, or unknown */
};

/* The block with the smallest rank is evicted first: by `first`, among equals by `second`. */
struct evict_rank {
    int64_t first, second;
};

struct evict_row {
    const char *help;
    struct evict_rank (*rank)(const struct block_use *u);
    bool leaves_only; /* a block is evicted only after all blocks that continue its text */
    /* Order in which a caller must release the blocks of a text. The end of a text is useless without its
     * start, so the end must be evicted first. true: release the start first; false: the end first. */
    bool start_first;
};
extern const struct evict_row EVICT_POLICIES[EVICT_COUNT];
const char *evict_name(enum evict_policy evict);

/* The name of a block's contents. All zeros: no name. */
struct block_name {
    uint64_t word[2];
};

struct pool;

/* blocks >= 1. *out owned: pool_close. Errors: ERR_NOMEM. */
enum err_code pool_open(struct pool **out, int blocks, enum evict_policy evict, struct err *why);
void pool_close(struct pool *p); /* NULL is fine */

/* A block with one reference and without a name, for new contents. It was free, or another block's contents
 * are evicted. -1: all blocks have references. */
int32_t pool_take(struct pool *p);

/* The block with these contents; -1: none. It gets one more reference. */
int32_t pool_find(struct pool *p, const struct block_name *name);

/* One more reference to a block that has at least one. */
void pool_share(struct pool *p, int32_t block);

/* One reference less. Without any, a block that has a name can be found or evicted; one without a name is
 * free. priority, next_use: as in struct block_use. */
void pool_release(struct pool *p, int32_t block, int64_t priority, int64_t next_use);

/* Name a full block that has a reference. parent: the block before it in the text; -1: none. Returns false if
 * another block has the name already: that one keeps it, and this one stays without a name. */
bool pool_name(struct pool *p, int32_t block, const struct block_name *name, int32_t parent);

/* The name of the block that follows the text `parent` (NULL: the start of a text) with these n tokens. key:
 * secret of this process, so that nobody can choose tokens whose name is that of another text. */
struct block_name pool_name_of(const struct hash_key *key, const struct block_name *parent,
                               const int32_t *tokens, int n);

/* From now on blocks are evicted by another policy, also those that are cached already. */
void pool_set_policy(struct pool *p, enum evict_policy evict);

int pool_references(const struct pool *p, int32_t block);
/* Has it contents that can be found, and no references? */
bool pool_is_cached(const struct pool *p, int32_t block);
struct pool_counts {
    int blocks;      /* all */
    int used;        /* with a reference */
    int cached;      /* without one, with contents that can be found */
    int free;        /* without contents */
    int64_t evicted; /* contents dropped so far */
};
struct pool_counts pool_count(const struct pool *p);

/* Check all invariants of the data structure, for tests. Returns NULL, or what is wrong. */
const char *pool_check(const struct pool *p);

#endif
