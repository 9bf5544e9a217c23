/* advisor/span.c - when a part of a run began and ended: see span.h. */
#include "advisor/span.h"

#include <stdio.h>
#include <time.h>

struct moment moment_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (struct moment){ (int64_t)t.tv_sec * 1000000000 + t.tv_nsec, clock_ns() };
}

static struct span_row span_of(const char *name, struct moment begun, int64_t from_ns, int64_t to_ns)
{
    struct span_row row = { .arm = -1,
                            .block = -1,
                            .begun_ns = begun.unix_ns + from_ns - begun.clock_ns,
                            .ended_ns = begun.unix_ns + to_ns - begun.clock_ns };
    snprintf(row.name, sizeof(row.name), "%s", name);
    return row;
}

struct span_row span_until_now(const char *name, struct moment begun, const char *error)
{
    struct span_row row = span_of(name, begun, begun.clock_ns, clock_ns());
    snprintf(row.error, sizeof(row.error), "%s", error ? error : "");
    return row;
}

int spans_read(struct span_row *rows, int n, int most, const json_t *answer, struct moment begun)
{
    const int64_t now = clock_ns();
    const json_t *list = json_object_get(answer, "spans");
    for (size_t i = 0; i < json_array_size(list) && n < most; i++) {
        const json_t *o = json_array_get(list, i);
        const int64_t from = json_get_int(o, "from_ns", -1), to = json_get_int(o, "to_ns", -1);
        const char *name = json_get_str(o, "name", "");
        if (*name && from >= begun.clock_ns && to >= from && to <= now)
            rows[n++] = span_of(name, begun, from, to);
    }
    return n;
}
