/* engine/serve/scheduler.h - which tokens of which requests a step computes.
 *
 * A request has known tokens (its prompt, then what it generated) and computed ones (whose keys and values
 * are in the cache). Each step gives some requests their next tokens: one to a request that generates, a
 * chunk to a request whose prompt is not computed yet. Both share a budget of rows, and the chunk is kept so
 * short that a step stays within the limit of the time between tokens (itl_limit_s), as far as the measured
 * cost of earlier steps tells. So, with a limit and a schedule that serves
 * generating requests first, a long prompt cannot stall them.
 *
 * The scheduler owns the blocks of the KV cache (pool.h), but runs no model: the caller computes what a step
 * says, reports the tokens that came of it, and how long it took. Nothing here looks at a clock. Not
 * thread-safe. */
#ifndef QDYNO_ENGINE_SERVE_SCHEDULER_H
#define QDYNO_ENGINE_SERVE_SCHEDULER_H

#include "engine/serve/pool.h"

struct scheduler_options {
    int blocks, block_tokens; /* of the cache */
    int ctx;                  /* most tokens of a request */
    int max_sequences;        /* most requests in the cache at a time */
    int step_tokens;          /* most rows of a step */
    enum schedule schedule;
    enum evict_policy evict;
    enum preempt preempt;
    bool prefix_cache; /* requests use the blocks of earlier ones that begin with the same tokens */
    /* Limit of a step's time while a request generates; 0: none. Where generating alone comes close to it or
     * takes longer, prompts may still add a quarter of that time, so that they go on. */
    double itl_limit_s;
};

enum request_state {
    REQUEST_WAITING, /* not in the cache; it was never there, or it was preempted */
    REQUEST_RUNNING,
};

/* Read only, and valid until the request ends; `blocks` changes with each step. */
struct request {
    int64_t id;
    enum request_state state;
    int priority;      /* higher: more important */
    int32_t *tokens;   /* [known] */
    int known, prompt; /* tokens; of these, in the prompt */
    int most;          /* tokens that it may have in total */
    int computed;      /* tokens whose keys and values are in the cache */
    int found;         /* of these, the ones that the prefix cache had at its last admission */
    int sequence;      /* row of the model's block tables while it runs */
    int32_t *blocks;   /* [block_count] of the cache */
    int block_count;
    int swapped;     /* while it waits: blocks, from the first, whose contents are outside the cache */
    int preemptions; /* how often it lost its place in the cache */
    void *owner;     /* of the caller */
};

/* Rows of one request: tokens[from .. from + n). The logits of the last one are wanted if it is the last
 * known token. */
struct slice {
    const struct request *request;
    int from, n;
    bool logits;
};
/* Move the contents of a block before the rows of the step run. Moves happen in their order: the source of
 * one may be the target of a later one. */
enum move_kind {
    MOVE_COPY, /* from one block to another, because another request uses the original */
    MOVE_OUT,  /* out of the cache (PREEMPT_SWAP) to block `index` of the request */
    MOVE_IN,   /* back into the cache */
};
struct block_move {
    enum move_kind kind;
    int32_t from, to; /* blocks of the cache; the one outside it is -1 */
    int64_t request;
    int index;    /* of the request's blocks */
    int sequence; /* of the request */
};
struct step {
    const struct slice *slice;
    int slices, rows;
    const struct block_move *move;
    int moves;
};

struct scheduler;

/* Errors: ERR_NOMEM; ERR_USAGE for options that leave no room for one token. */
enum err_code scheduler_open(struct scheduler **out, const struct scheduler_options *o, struct err *why);
void scheduler_close(struct scheduler *s); /* NULL is fine */

/* Add a request that waits. generate: most tokens to generate, at least 1. *id: its number, counted from 1.
 * Errors: ERR_USAGE (an empty prompt), ERR_FIT (more tokens than ctx or the whole cache has), ERR_NOMEM. */
enum err_code scheduler_submit(struct scheduler *s, const int32_t *prompt, int n, int generate, int priority,
                               int64_t *id, struct err *why);
/* The caller's data about a request: struct request has it. */
void scheduler_set_owner(struct scheduler *s, int64_t id, void *owner);

/* NULL: no such request. */
const struct request *scheduler_find(const struct scheduler *s, int64_t id);

/* Choose the next step. slices 0: nothing can run now, because no request waits or runs, or (static) too few
 * wait. flush: a static batch need not be full, because no more requests come. */
void scheduler_step(struct scheduler *s, bool flush, struct step *out);

/* The step was computed in `seconds`; its tokens are in the cache. */
void scheduler_computed(struct scheduler *s, double seconds);

/* A request whose slice had logits gets its next token, after scheduler_computed. Nothing happens if the
 * request has ended or has as many tokens as it may. */
void scheduler_append(struct scheduler *s, int64_t id, int32_t token);

/* The request has ended, at its end or because it was cancelled: its blocks lose its references. Between
 * scheduler_step and scheduler_computed they do so at the end of the step. */
void scheduler_end(struct scheduler *s, int64_t id);

struct scheduler_counts {
    int waiting, running;
    int64_t preemptions, found_tokens; /* found_tokens: prompt tokens that the prefix cache had */
    int swapped;                       /* blocks outside the cache */
    int spared;                        /* blocks that would be used more if requests did not share any */
    struct pool_counts blocks;
};
struct scheduler_counts scheduler_count(const struct scheduler *s);

/* What each block is used for: '#' shared by several requests; of one request: the letter of its sequence
 * (0-9 a-z, '+' for later ones); '-' cached; '.' free. */
void scheduler_block_uses(const struct scheduler *s, char *use /* [blocks] */);

const struct scheduler_options *scheduler_options(const struct scheduler *s);
/* Change how it chooses, between two steps: schedule, evict, preempt, prefix_cache, itl_limit_s and
 * max_sequences (1 to that of scheduler_open; requests that run go on). The other members of o are ignored.
 * Errors: ERR_USAGE. */
enum err_code scheduler_change(struct scheduler *s, const struct scheduler_options *o, struct err *why);

/* For tests: NULL, or which invariant is broken. */
const char *scheduler_check(const struct scheduler *s);

#endif
