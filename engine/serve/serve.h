/* engine/serve/serve.h - the public header of engine/serve/: traces of requests, replayed through a cache.
 *
 * A trace is a text file with a JSON object in each line; "hash_ids" has the names of the prompt's blocks, in
 * order (the form of the Mooncake traces). Other keys are ignored. */
#ifndef QDYNO_ENGINE_SERVE_SERVE_H
#define QDYNO_ENGINE_SERVE_SERVE_H

#include "engine/serve/limits.h"
#include "engine/serve/live.h"
#include "engine/serve/load.h"
#include "engine/serve/load_schedule.h"
#include "engine/serve/pool.h"
#include "engine/serve/serving.h"

struct block_trace {
    int64_t *ids;      /* [blocks] of all requests, one after another */
    int64_t *next_use; /* [blocks] the request that asks for the same block next; INT64_MAX: none */
    int64_t *start;    /* [requests + 1] index of each request's first block */
    int64_t requests, blocks, distinct;
    int64_t found_at_most; /* blocks found by a pool that never evicts */
};

/* Read a trace; block_trace_free. Errors: ERR_FORMAT with the line's number, ERR_ABSENT or ERR_IO for the
 * file, ERR_NOMEM. */
enum err_code block_trace_read(struct block_trace *out, const char *path, struct err *why);
void block_trace_free(struct block_trace *t);

struct block_trace_result {
    int64_t found;   /* blocks of prompts that the pool had, up to the first one it had not */
    int64_t evicted; /* blocks evicted */
    int64_t no_room; /* blocks of requests that are larger than the pool */
};
/* Replay the requests one after another. Errors: ERR_NOMEM. */
enum err_code block_trace_replay(struct block_trace_result *out, const struct block_trace *t, int blocks,
                                 enum evict_policy evict, struct err *why);

#endif
