/* Reads traces of block names and replays them through a pool (serve.h). */
#include "engine/serve/serve.h"

#include <stdlib.h>
#include <string.h>

#define TRACE_BYTES_MOST (4ull << 30)

/* ---------------------------------------------------------------- reading */

/* A growing array of numbers. */
struct numbers {
    int64_t *at;
    int64_t count, room;
};

static bool number_append(struct numbers *n, int64_t value)
{
    if (n->count == n->room) {
        const int64_t room = MAX(2 * n->room, (int64_t)1024);
        int64_t *more = realloc(n->at, (size_t)room * sizeof *more);
        if (!more) return false;
        n->at = more;
        n->room = room;
    }
    n->at[n->count++] = value;
    return true;
}

static enum err_code read_request(struct numbers *ids, const char *line, size_t n, struct err *why)
{
    json_t *request = NULL;
    const enum err_code rc = json_parse(&request, line, n, why);
    if (rc) return rc;
    const json_t *names = json_object_get(request, "hash_ids");
    enum err_code bad = json_is_array(names) ? ERR_OK
                                             : err_set(why, ERR_FORMAT,
                                                       "expected an object with \"hash_ids\", an array of "
                                                       "block numbers");
    for (size_t i = 0; i < json_array_size(names) && !bad; i++) {
        const json_t *id = json_array_get(names, i);
        if (!json_is_integer(id))
            bad = err_set(why, ERR_FORMAT, "\"hash_ids\": entry %zu is no whole number", i + 1);
        else if (!number_append(ids, json_integer_value(id)))
            bad = err_set(why, ERR_NOMEM, "out of memory for %lld blocks", (long long)ids->count);
    }
    json_decref(request);
    return bad;
}

static bool is_blank(const char *line, size_t n)
{
    return strspn(line, " \t\r") >= n;
}

static enum err_code read_requests(struct numbers *ids, struct numbers *start, const char *text, size_t size,
                                   struct err *why)
{
    int64_t line = 0;
    for (const char *at = text, *end = text + size; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        const size_t n = (size_t)((stop ? stop : end) - at);
        line++;
        if (!is_blank(at, n)) {
            if (!number_append(start, ids->count)) return err_set(why, ERR_NOMEM, "out of memory");
            const enum err_code rc = read_request(ids, at, n, why);
            if (rc) return err_prefix(why, "line %lld", (long long)line);
        }
        at += n + 1;
    }
    if (!start->count) return err_set(why, ERR_FORMAT, "the file has no requests");
    return number_append(start, ids->count) ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
}

/* ---------------------------------------------------------------- the future */

struct visit {
    int64_t id, at, request;
};

static int by_id_and_place(const void *a, const void *b)
{
    const struct visit *x = a, *y = b;
    if (x->id != y->id) return x->id < y->id ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

/* Fill next_use, distinct and found_at_most. */
static enum err_code find_uses(struct block_trace *t, struct err *why)
{
    const size_t blocks = (size_t)MAX(t->blocks, (int64_t)1);
    struct visit *v = malloc(blocks * sizeof *v);
    bool *seen = calloc(blocks, sizeof *seen); /* in an earlier request */
    t->next_use = malloc(blocks * sizeof *t->next_use);
    const bool room = v && seen && t->next_use;
    for (int64_t r = 0; room && r < t->requests; r++)
        for (int64_t i = t->start[r]; i < t->start[r + 1]; i++) v[i] = (struct visit){ t->ids[i], i, r };
    if (room) qsort(v, (size_t)t->blocks, sizeof *v, by_id_and_place);
    int64_t since = 0; /* the first request that has the block; it may name it several times */
    for (int64_t i = 0; room && i < t->blocks; i++) {
        const bool first = !i || v[i - 1].id != v[i].id, last = i + 1 == t->blocks || v[i + 1].id != v[i].id;
        t->distinct += first;
        since = first ? v[i].request : since;
        seen[v[i].at] = since < v[i].request;
        t->next_use[v[i].at] = last ? INT64_MAX : v[i + 1].request;
    }
    for (int64_t r = 0; room && r < t->requests; r++)
        for (int64_t i = t->start[r]; i < t->start[r + 1] && seen[i]; i++) t->found_at_most++;
    free(v);
    free(seen);
    return room ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for %lld blocks", (long long)t->blocks);
}

enum err_code block_trace_read(struct block_trace *out, const char *path, struct err *why)
{
    struct numbers ids = { 0 }, start = { 0 };
    char *text = NULL;
    size_t size = 0;
    *out = (struct block_trace){ 0 };
    enum err_code rc = file_read(&text, &size, path, TRACE_BYTES_MOST, why);
    if (!rc && (rc = read_requests(&ids, &start, text, size, why))) err_prefix(why, "%s", path);
    free(text);
    out->ids = ids.at;
    out->start = start.at;
    out->blocks = ids.count;
    out->requests = start.count - 1;
    if (!rc) rc = find_uses(out, why);
    if (rc) block_trace_free(out);
    return rc;
}

void block_trace_free(struct block_trace *t)
{
    free(t->ids);
    free(t->next_use);
    free(t->start);
    *t = (struct block_trace){ 0 };
}

/* ---------------------------------------------------------------- replaying */

static struct block_name name_of_id(int64_t id)
{
    uint64_t z = (uint64_t)id + 0x9e3779b97f4a7c15u; /* neighbouring ids go to distant slots (SplitMix64) */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (struct block_name){ { z ^ z >> 31, (uint64_t)id ^ 1ull << 63 } };
}

/* Let request r use its blocks: held[i] is the block of its i-th name. Returns how many it has. */
static int64_t request_begin(struct block_trace_result *out, struct pool *p, const struct block_trace *t,
                             int64_t r, int32_t *held)
{
    const int64_t first = t->start[r], count = t->start[r + 1] - first;
    bool prefix = true;
    for (int64_t i = 0; i < count; i++) {
        const struct block_name name = name_of_id(t->ids[first + i]);
        held[i] = pool_find(p, &name);
        prefix &= held[i] >= 0;
        out->found += prefix;
        if (held[i] >= 0) continue;
        held[i] = pool_take(p);
        if (held[i] < 0) {
            out->no_room += count - i;
            return i;
        }
        pool_name(p, held[i], &name, i ? held[i - 1] : -1);
    }
    return count;
}

enum err_code block_trace_replay(struct block_trace_result *out, const struct block_trace *t, int blocks,
                                 enum evict_policy evict, struct err *why)
{
    struct pool *p;
    int64_t longest = 1;
    *out = (struct block_trace_result){ 0 };
    for (int64_t r = 0; r < t->requests; r++) longest = MAX(longest, t->start[r + 1] - t->start[r]);
    int32_t *held = malloc((size_t)longest * sizeof *held);
    if (!held)
        return err_set(why, ERR_NOMEM, "out of memory for a request of %lld blocks", (long long)longest);
    const enum err_code rc = pool_open(&p, blocks, evict, why);
    for (int64_t r = 0; !rc && r < t->requests; r++) {
        const int64_t count = request_begin(out, p, t, r, held);
        for (int64_t k = 0; k < count; k++) {
            const int64_t i = EVICT_POLICIES[evict].start_first ? k : count - 1 - k;
            pool_release(p, held[i], 0, t->next_use[t->start[r] + i]);
        }
    }
    if (!rc) out->evicted = pool_count(p).evicted;
    pool_close(p);
    free(held);
    return rc;
}
