/* Traces of requests (`qdyno cache FILE`): whatever the file holds, it is refused with a message, or every
 * policy replays it with counts that add up, in time proportional to its length. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/serve/serve.h"
#include "tests/fuzz/cost.h"

/* A block name takes two bytes of the file and about 100 of memory. */
static const struct cost_ceiling CEILING = {
    .seconds = 1, .seconds_per_mb = 60, .mb = 64, .mb_per_mb = 1500
};

static char path[64];

static void file_remove(void)
{
    unlink(path);
}

static void prepare(void)
{
    if (path[0]) return;
    snprintf(path, sizeof path, "/dev/shm/fuzz-trace-%d", (int)getpid());
    atexit(file_remove);
}

static void replay(const struct block_trace *t, int blocks)
{
    for (int evict = 0; evict < EVICT_COUNT; evict++) {
        struct block_trace_result r;
        struct err why = { 0 };
        if (block_trace_replay(&r, t, blocks, (enum evict_policy)evict, &why)) abort();
        if (r.found < 0 || r.found > t->found_at_most || r.evicted < 0 || r.no_room < 0 ||
            r.no_room > t->blocks)
            abort();
        /* where all blocks fit, nothing is evicted and every policy finds the same */
        if (blocks >= t->distinct && (r.evicted || r.no_room || r.found != t->found_at_most)) abort();
    }
}

static void use(const uint8_t *data, size_t size)
{
    enum { ROOM_MOST = 1 << 20 };
    struct block_trace t;
    struct err why = { 0 };
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f)) abort();
    const enum err_code rc = block_trace_read(&t, path, &why);
    if (rc && (rc != ERR_FORMAT || !why.message[0] || t.ids || t.start)) abort();
    if (rc) return;
    if (t.requests < 1 || t.distinct > t.blocks || t.found_at_most > t.blocks - t.distinct) abort();
    replay(&t, 1);
    replay(&t, 3);
    replay(&t, (int)MIN(MAX(t.distinct, (int64_t)1), (int64_t)ROOM_MOST));
    block_trace_free(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    prepare();
    return cost_run(use, data, size, &CEILING);
}
