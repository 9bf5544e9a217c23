/* qdyno cache: how many blocks of prompts a cache would have had, for each eviction policy and size. Replays
 * a trace of block names; needs no model. */
#include <math.h>
#include <string.h>

#include "engine/serve/serve.h"
#include "tui/cli/commands.h"

/* clang-format off */
const struct cli_flag FLAGS_CACHE[] = {
    { .name = "--blocks", .value = "N,...", .kind = FLAG_INTS, .min = 1, .max = 1 << 28,
      .help = "blocks that the cache has room for; default 1000,3000,10000,30000" },
    { .name = "--evict", .value = "POLICY", .many = true,
      .help = "lru, fifo, lifo, leaf_lru or farthest (it knows the future: the best possible one); default: all" },
    { .name = NULL },
};

static const struct column COLUMNS[] = {
    COL("blocks", "blocks", .kind = COLUMN_INT),
    COL("evict", "evict"),
    COL("found_ratio", "found %", .kind = COLUMN_NUM, .scale = 100, .digits = 1),
    COL("of_best_ratio", "of the best %", .kind = COLUMN_NUM, .scale = 100, .digits = 1),
    KEY("found_blocks", .kind = COLUMN_INT),
    COL("evicted_blocks", "evicted", .kind = COLUMN_INT),
    KEY("no_room_blocks", .kind = COLUMN_INT),
};

DOCUMENT(CACHE, "qdyno.cache/1", COLUMNS, .members = "requests prompt_blocks distinct_blocks found_at_most_ratio");
/* clang-format on */

/* Requests of a trace have no priorities: that policy would be lru. */
static const enum evict_policy COMPARED[] = { EVICT_LRU, EVICT_LEAF_LRU, EVICT_FIFO, EVICT_LIFO,
                                              EVICT_FARTHEST };

/* Sets wanted[i] for each policy of COMPARED. */
static enum err_code policies_wanted(bool wanted[], const struct cli_args *a, struct err *why)
{
    const char *names[ARGS_GIVEN];
    const int n = args_all(a, "--evict", names, ARGS_GIVEN);
    for (size_t i = 0; i < COUNT_OF(COMPARED); i++) wanted[i] = !n;
    for (int k = 0; k < n; k++) {
        size_t i = 0;
        while (i < COUNT_OF(COMPARED) && strcmp(evict_name(COMPARED[i]), names[k])) i++;
        if (i == COUNT_OF(COMPARED)) {
            struct str known = { 0 };
            for (i = 0; i < COUNT_OF(COMPARED); i++)
                str_printf(&known, "%s%s", i ? ", " : "", evict_name(COMPARED[i]));
            err_set(why, ERR_USAGE, "--evict %s: expected one of %s", names[k], str_text(&known));
            str_free(&known);
            return ERR_USAGE;
        }
        wanted[i] = true;
    }
    return ERR_OK;
}

static double ratio(int64_t part, int64_t all)
{
    return all ? (double)part / (double)all : NAN;
}

/* Adds the rows of one size of the cache. */
static enum err_code replay_size(struct table *out, const struct block_trace *t, int blocks,
                                 const bool wanted[], struct err *why)
{
    struct block_trace_result best, r;
    enum err_code rc = block_trace_replay(&best, t, blocks, EVICT_FARTHEST, why);
    for (size_t i = 0; i < COUNT_OF(COMPARED) && !rc; i++) {
        if (!wanted[i]) continue;
        rc = block_trace_replay(&r, t, blocks, COMPARED[i], why);
        if (rc) return rc;
        json_t *row = table_row(out);
        json_put_int(row, "blocks", blocks);
        json_put_str(row, "evict", evict_name(COMPARED[i]));
        json_put_num(row, "found_ratio", ratio(r.found, t->blocks));
        json_put_num(row, "of_best_ratio", ratio(r.found, best.found));
        json_put_int(row, "found_blocks", r.found);
        json_put_int(row, "evicted_blocks", r.evicted);
        json_put_int(row, "no_room_blocks", r.no_room);
        if (r.no_room && i == 0)
            table_note(
                out,
                "a cache of %d blocks cannot hold the largest prompt: %lld blocks of such prompts were "
                "not cached; --blocks tries larger caches",
                blocks, (long long)r.no_room);
    }
    return rc;
}

int command_cache(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct block_trace trace = { 0 };
    struct table t;
    int64_t blocks[64];
    bool wanted[COUNT_OF(COMPARED)];
    table_init(&t, &DOCUMENT_CACHE);
    const int sizes = args_ints(a, "--blocks", "1000,3000,10000,30000", blocks, COUNT_OF(blocks));
    enum err_code rc = policies_wanted(wanted, a, &why);
    if (!rc) rc = block_trace_read(&trace, a->arg[0], &why);
    for (int i = 0; i < sizes && !rc; i++) rc = replay_size(&t, &trace, (int)blocks[i], wanted, &why);
    json_put_int(t.extra, "requests", trace.requests);
    json_put_int(t.extra, "prompt_blocks", trace.blocks);
    json_put_int(t.extra, "distinct_blocks", trace.distinct);
    json_put_num(t.extra, "found_at_most_ratio", ratio(trace.found_at_most, trace.blocks));
    table_note(
        &t, "%lld request%s with %lld block%s, of which %lld are distinct; a cache without end finds %.1f %%",
        (long long)trace.requests, str_plural(trace.requests), (long long)trace.blocks,
        str_plural(trace.blocks), (long long)trace.distinct, 100 * ratio(trace.found_at_most, trace.blocks));
    const int status = rc ? cli_fail(a, &why) : cli_print(g, a, &t, EXIT_DONE);
    block_trace_free(&trace);
    table_done(&t);
    return status;
}
