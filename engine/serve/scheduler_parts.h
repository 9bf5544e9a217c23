/* engine/serve/scheduler_parts.h - internal: the state of a scheduler, for the files that implement it. */
#ifndef QDYNO_ENGINE_SERVE_SCHEDULER_PARTS_H
#define QDYNO_ENGINE_SERVE_SCHEDULER_PARTS_H

#include "engine/serve/scheduler.h"
#include "engine/serve/step_cost.h"

enum { NONE = -1 };

struct entry {
    struct request r;
    struct block_name *names; /* [named] of the full blocks of its tokens */
    int named;                /* blocks whose names are computed */
    int swapped_tokens;       /* while it waits: computed tokens in r.swapped blocks */
    bool in_step, ended, in_batch;
    int64_t rank; /* among requests of the same state; the smallest is next */
};

struct scheduler {
    struct scheduler_options o;
    int sequences_most; /* max_sequences of scheduler_open */
    struct pool *pool;
    struct hash_key key;
    struct entry **entries; /* [count] in order of arrival */
    struct entry **order;   /* [room] scratch */
    int count, room;
    bool *sequence_used;      /* [sequences_most] */
    int32_t *contents;        /* [blocks][block_tokens] tokens of each named block */
    struct slice *slices;     /* [sequences_most] */
    struct block_move *moves; /* [moves_room] */
    int moves_room;
    int swapped; /* blocks outside the cache, of all requests */
    struct step step;
    struct step_work work;        /* of the step */
    struct step_work decode_work; /* of its rows that generate */
    struct step_cost cost;
    bool preempted; /* some request lost its blocks in this step */
    int64_t next_id, preemptions, found_tokens;
};

#endif
