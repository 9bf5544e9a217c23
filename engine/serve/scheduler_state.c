/* What is in the cache and in the queue, and changes of how the scheduler chooses (scheduler.h). */
#include "engine/serve/scheduler_parts.h"

struct scheduler_counts scheduler_count(const struct scheduler *s)
{
    struct scheduler_counts c = { .preemptions = s->preemptions,
                                  .found_tokens = s->found_tokens,
                                  .swapped = s->swapped,
                                  .blocks = pool_count(s->pool) };
    int references = 0;
    for (int i = 0; i < s->count; i++) {
        c.running += s->entries[i]->r.state == REQUEST_RUNNING;
        c.waiting += s->entries[i]->r.state == REQUEST_WAITING;
        references += s->entries[i]->r.block_count;
    }
    c.spared = references - c.blocks.used;
    return c;
}

static char sequence_letter(int sequence)
{
    static const char NAMES[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    return sequence < (int)sizeof NAMES - 1 ? NAMES[sequence] : '+';
}

void scheduler_block_uses(const struct scheduler *s, char *use)
{
    for (int32_t b = 0; b < s->o.blocks; b++) use[b] = pool_is_cached(s->pool, b) ? '-' : '.';
    for (int i = 0; i < s->count; i++) {
        const struct request *r = &s->entries[i]->r;
        for (int k = 0; k < r->block_count; k++)
            use[r->blocks[k]] = pool_references(s->pool, r->blocks[k]) > 1 ? '#'
                                                                           : sequence_letter(r->sequence);
    }
}

/* ---------------------------------------------------------------- changes */

const struct scheduler_options *scheduler_options(const struct scheduler *s)
{
    return &s->o;
}

enum err_code scheduler_change(struct scheduler *s, const struct scheduler_options *o, struct err *why)
{
    if (o->max_sequences < 1 || o->max_sequences > s->sequences_most)
        return err_set(why, ERR_USAGE, "max_sequences=%d: expected 1 to %d, for which memory was set aside",
                       o->max_sequences, s->sequences_most);
    if (o->evict != s->o.evict) pool_set_policy(s->pool, o->evict);
    s->o.schedule = o->schedule;
    s->o.evict = o->evict;
    s->o.preempt = o->preempt;
    s->o.prefix_cache = o->prefix_cache;
    s->o.itl_limit_s = o->itl_limit_s;
    s->o.max_sequences = o->max_sequences;
    return ERR_OK;
}

/* ---------------------------------------------------------------- what is in it */

const char *scheduler_check(const struct scheduler *s)
{
    int64_t held = 0, references = 0, swapped = 0;
    for (int i = 0; i < s->count; i++) {
        const struct request *r = &s->entries[i]->r;
        held += r->block_count;
        swapped += r->swapped;
        if (r->state == REQUEST_WAITING && (r->block_count || r->computed))
            return "a waiting request has blocks";
        if (r->computed > r->block_count * s->o.block_tokens) return "computed tokens have no block";
        if (r->known > r->most || r->computed > r->known) return "a request has more tokens than it may";
    }
    if (swapped != s->swapped || swapped > s->o.blocks) return "blocks outside the cache are miscounted";
    for (int b = 0; b < s->o.blocks; b++) references += pool_references(s->pool, b);
    return held == references ? pool_check(s->pool) : "blocks have other references than requests";
}
