/* Reference counts, names and eviction of blocks. Blocks without references are in an indexed binary heap by
 * the rank that the policy gave them; a hash table with linear probing finds blocks by name. */
#include "engine/serve/pool.h"

#include <stdlib.h>
#include <string.h>

static struct evict_rank rank_lru(const struct block_use *u)
{
    return (struct evict_rank){ u->tick, 0 };
}

static struct evict_rank rank_fifo(const struct block_use *u)
{
    return (struct evict_rank){ u->named, u->tick };
}

static struct evict_rank rank_lifo(const struct block_use *u)
{
    return (struct evict_rank){ -u->tick, 0 };
}

static struct evict_rank rank_priority(const struct block_use *u)
{
    return (struct evict_rank){ u->priority, u->tick };
}

static struct evict_rank rank_farthest(const struct block_use *u)
{
    return (struct evict_rank){ -u->next_use, u->tick };
}

const struct evict_row EVICT_POLICIES[EVICT_COUNT] = {
    [EVICT_LRU] = { .help = "the block that was used longest ago", .rank = rank_lru },
    [EVICT_FIFO] = { .help = "the block that was computed first", .rank = rank_fifo },
    [EVICT_LIFO] = { .help = "the block that was used last", .rank = rank_lifo, .start_first = true },
    [EVICT_LEAF_LRU] = { .help = "as lru, among blocks that no cached block continues",
                         .rank = rank_lru,
                         .leaves_only = true },
    [EVICT_PRIORITY] = { .help = "of the least important requests; among these as lru",
                         .rank = rank_priority },
    [EVICT_FARTHEST] = { .help =
                             "the block that is needed again last (Belady's optimum): the best that a policy could do",
                         .rank = rank_farthest },
};

const char *evict_name(enum evict_policy evict)
{
    return EVICT_NAMES[evict] ? EVICT_NAMES[evict] : "farthest";
}

enum { NONE = -1 };

struct block {
    struct block_name name;                 /* zeros: no name */
    int references, children;               /* children: blocks with a name whose parent this one is */
    int32_t parent;                         /* NONE: none, or it was evicted */
    uint32_t generation, parent_generation; /* how often the contents were dropped */
    int32_t heap_at;                        /* index in the heap; NONE: not there */
    struct block_use use;                   /* what a policy knows of it; `named` as soon as it has a name */
    struct evict_rank rank;
};

struct pool {
    const struct evict_row *evict;
    int blocks, free_count, heap_count;
    int used, cached;    /* blocks with references; named ones without */
    struct block *block; /* [blocks] */
    int32_t *free_list;  /* [blocks] a stack */
    int32_t *heap;       /* [blocks] blocks that can be evicted, the first to go at index 0 */
    int32_t *slots;      /* [slot_count] block of each slot of the hash table; NONE: empty */
    size_t slot_count;   /* a power of two, at least twice the blocks */
    int64_t tick, evicted;
};

/* ---------------------------------------------------------------- names */

struct block_name pool_name_of(const struct hash_key *key, const struct block_name *parent,
                               const int32_t *tokens, int n)
{
    /* 64 bits at a time, each with a key of its own: the second differs from the first in all bits. */
    const struct hash_key second = { { ~key->word[0], ~key->word[1] } };
    const struct block_name start = { { 0, 0 } };
    struct block_name out;
    uint64_t links[4] = { 0 };
    memcpy(links, parent ? parent : &start, sizeof start);
    links[2] = hash_keyed(key, tokens, (size_t)n * sizeof *tokens);
    links[3] = hash_keyed(&second, tokens, (size_t)n * sizeof *tokens);
    out.word[0] = hash_keyed(key, links, sizeof links) | 1; /* never all zeros */
    out.word[1] = hash_keyed(&second, links, sizeof links);
    return out;
}

static bool is_named(const struct block *b)
{
    return b->name.word[0] || b->name.word[1];
}

static size_t slot_of(const struct pool *p, const struct block_name *name)
{
    return (size_t)(name->word[0] ^ name->word[1] * 0x9e3779b97f4a7c15u) & (p->slot_count - 1);
}

/* The slot with that name, or the empty slot where it would go. */
static size_t slot_find(const struct pool *p, const struct block_name *name)
{
    size_t s = slot_of(p, name);
    while (p->slots[s] != NONE && memcmp(&p->block[p->slots[s]].name, name, sizeof *name))
        s = (s + 1) & (p->slot_count - 1);
    return s;
}

/* Empty a slot, and move those behind it that it had pushed on. */
static void slot_remove(struct pool *p, size_t s)
{
    const size_t mask = p->slot_count - 1;
    for (size_t next = (s + 1) & mask; p->slots[next] != NONE; next = (next + 1) & mask) {
        const size_t home = slot_of(p, &p->block[p->slots[next]].name);
        if (((next - home) & mask) < ((next - s) & mask)) continue; /* it is not behind its own slot */
        p->slots[s] = p->slots[next];
        s = next;
    }
    p->slots[s] = NONE;
}

/* ---------------------------------------------------------------- heap */

static bool goes_before(const struct pool *p, int32_t a, int32_t b)
{
    const struct evict_rank *x = &p->block[a].rank, *y = &p->block[b].rank;
    return x->first != y->first ? x->first < y->first : x->second < y->second;
}

static void heap_set(struct pool *p, int at, int32_t block)
{
    p->heap[at] = block;
    p->block[block].heap_at = at;
}

static void heap_up(struct pool *p, int at)
{
    const int32_t block = p->heap[at];
    for (int up; at > 0 && goes_before(p, block, p->heap[up = (at - 1) / 2]); at = up)
        heap_set(p, at, p->heap[up]);
    heap_set(p, at, block);
}

static void heap_down(struct pool *p, int at)
{
    const int32_t block = p->heap[at];
    for (int child; (child = 2 * at + 1) < p->heap_count; at = child) {
        if (child + 1 < p->heap_count && goes_before(p, p->heap[child + 1], p->heap[child])) child++;
        if (!goes_before(p, p->heap[child], block)) break;
        heap_set(p, at, p->heap[child]);
    }
    heap_set(p, at, block);
}

static void heap_add(struct pool *p, int32_t block)
{
    heap_set(p, p->heap_count, block);
    heap_up(p, p->heap_count++);
}

static void heap_remove(struct pool *p, int32_t block)
{
    const int at = p->block[block].heap_at;
    p->block[block].heap_at = NONE;
    if (at == --p->heap_count) return;
    heap_set(p, at, p->heap[p->heap_count]);
    heap_up(p, at);
    heap_down(p, p->block[p->heap[at]].heap_at);
}

/* ---------------------------------------------------------------- life of a block */

enum err_code pool_open(struct pool **out, int blocks, enum evict_policy evict, struct err *why)
{
    struct pool *p = *out = calloc(1, sizeof *p);
    if (!p) return err_set(why, ERR_NOMEM, "out of memory for a pool of blocks");
    p->evict = &EVICT_POLICIES[evict];
    p->blocks = blocks;
    for (p->slot_count = 4; p->slot_count < 2 * (size_t)blocks;) p->slot_count *= 2;
    p->block = calloc((size_t)blocks, sizeof *p->block);
    p->free_list = malloc((size_t)blocks * sizeof *p->free_list);
    p->heap = malloc((size_t)blocks * sizeof *p->heap);
    p->slots = malloc(p->slot_count * sizeof *p->slots);
    if (!p->block || !p->free_list || !p->heap || !p->slots) {
        pool_close(p);
        *out = NULL;
        return err_set(why, ERR_NOMEM, "out of memory for a pool of %d blocks", blocks);
    }
    for (size_t s = 0; s < p->slot_count; s++) p->slots[s] = NONE;
    for (int i = 0; i < blocks; i++) {
        p->block[i].heap_at = p->block[i].parent = NONE;
        p->free_list[i] = blocks - 1 - i; /* the stack pops from its end, so block 0 is used first */
    }
    p->free_count = blocks;
    return ERR_OK;
}

void pool_close(struct pool *p)
{
    if (!p) return;
    free(p->block);
    free(p->free_list);
    free(p->heap);
    free(p->slots);
    free(p);
}

/* The parent of a block, if it still has the contents that the block continues. */
static struct block *parent_of(struct pool *p, const struct block *b)
{
    if (b->parent == NONE) return NULL;
    struct block *parent = &p->block[b->parent];
    return parent->generation == b->parent_generation ? parent : NULL;
}

static bool may_be_evicted(const struct pool *p, const struct block *b)
{
    return !b->references && is_named(b) && !(p->evict->leaves_only && b->children);
}

static void block_drop(struct pool *p, int32_t block)
{
    struct block *b = &p->block[block];
    struct block *parent = parent_of(p, b);
    slot_remove(p, slot_find(p, &b->name));
    if (parent && --parent->children == 0 && may_be_evicted(p, parent) && parent->heap_at == NONE)
        heap_add(p, (int32_t)(parent - p->block));
    b->name = (struct block_name){ { 0, 0 } };
    b->generation++;
    b->children = 0;
    b->parent = NONE;
}

int32_t pool_take(struct pool *p)
{
    int32_t block;
    if (p->free_count) {
        block = p->free_list[--p->free_count];
    } else if (p->heap_count) {
        block = p->heap[0];
        heap_remove(p, block);
        block_drop(p, block);
        p->cached--;
        p->evicted++;
    } else {
        return NONE;
    }
    p->block[block].references = 1;
    p->used++;
    return block;
}

void pool_share(struct pool *p, int32_t block)
{
    struct block *b = &p->block[block];
    if (b->references++) return;
    p->used++;
    p->cached--; /* only a block with a name can be found without a reference */
}

int32_t pool_find(struct pool *p, const struct block_name *name)
{
    const int32_t block = p->slots[slot_find(p, name)];
    if (block == NONE) return NONE;
    if (p->block[block].heap_at != NONE) heap_remove(p, block);
    pool_share(p, block);
    return block;
}

void pool_release(struct pool *p, int32_t block, int64_t priority, int64_t next_use)
{
    struct block *b = &p->block[block];
    if (--b->references) return;
    p->used--;
    if (!is_named(b)) {
        p->free_list[p->free_count++] = block;
        return;
    }
    p->cached++;
    b->use.tick = ++p->tick;
    b->use.priority = priority;
    b->use.next_use = next_use;
    b->rank = p->evict->rank(&b->use);
    if (may_be_evicted(p, b)) heap_add(p, block);
}

bool pool_name(struct pool *p, int32_t block, const struct block_name *name, int32_t parent)
{
    struct block *b = &p->block[block];
    const size_t s = slot_find(p, name);
    if (p->slots[s] != NONE) return false;
    b->name = *name;
    b->use.named = ++p->tick;
    p->slots[s] = block;
    if (parent == NONE || !is_named(&p->block[parent])) return true;
    b->parent = parent;
    b->parent_generation = p->block[parent].generation;
    p->block[parent].children++;
    if (p->evict->leaves_only && p->block[parent].heap_at != NONE) heap_remove(p, parent);
    return true;
}

void pool_set_policy(struct pool *p, enum evict_policy evict)
{
    p->evict = &EVICT_POLICIES[evict];
    p->heap_count = 0;
    for (int32_t i = 0; i < p->blocks; i++) {
        struct block *b = &p->block[i];
        b->heap_at = NONE;
        if (b->references || !is_named(b)) continue;
        b->rank = p->evict->rank(&b->use); /* also of those that can be evicted only after others */
        if (may_be_evicted(p, b)) heap_add(p, i);
    }
}

int pool_references(const struct pool *p, int32_t block)
{
    return p->block[block].references;
}

bool pool_is_cached(const struct pool *p, int32_t block)
{
    return !p->block[block].references && is_named(&p->block[block]);
}

struct pool_counts pool_count(const struct pool *p)
{
    return (struct pool_counts){ .blocks = p->blocks,
                                 .used = p->used,
                                 .cached = p->cached,
                                 .free = p->free_count,
                                 .evicted = p->evicted };
}

/* ---------------------------------------------------------------- invariants */

static const char *check_block(const struct pool *p, int i)
{
    const struct block *b = &p->block[i];
    if (b->references < 0) return "a block has fewer than no references";
    if (is_named(b) && p->slots[slot_find(p, &b->name)] != i) return "a name does not lead to its block";
    if ((b->heap_at != NONE) != may_be_evicted(p, b)) return "the heap has other blocks than it should";
    if (b->heap_at != NONE && p->heap[b->heap_at] != i) return "a block is elsewhere in the heap";
    if (b->heap_at > 0 && goes_before(p, i, p->heap[(b->heap_at - 1) / 2])) return "the heap has no order";
    return NULL;
}

const char *pool_check(const struct pool *p)
{
    int named = 0, filled = 0, free = 0, used = 0, cached = 0;
    for (int i = 0; i < p->blocks; i++) {
        const char *wrong = check_block(p, i);
        if (wrong) return wrong;
        named += is_named(&p->block[i]);
        used += p->block[i].references > 0;
        cached += pool_is_cached(p, i);
        free += !is_named(&p->block[i]) && !p->block[i].references;
    }
    for (size_t s = 0; s < p->slot_count; s++) filled += p->slots[s] != NONE;
    if (used != p->used || cached != p->cached) return "blocks are miscounted";
    if (filled != named) return "the table has other names than the blocks";
    return free == p->free_count ? NULL : "blocks without contents are missing from the free list";
}
