/* advisor/run/span.c - when the parts of a run began and ended (run.h). */
#include "advisor/run/run.h"

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

static int64_t nanoseconds(double seconds)
{
    return seconds > 0 ? (int64_t)(seconds * 1e9) : 0;
}

enum err_code spans_store_load(struct db *d, int64_t run_id, int arm, const struct span_load *load,
                               struct err *why)
{
    const struct moment begun = load->begun;
    struct span_row spans[1 + SPANS_MOST];
    spans[0] = span_of("load", begun, begun.clock_ns, begun.clock_ns + nanoseconds(load->seconds));
    snprintf(spans[0].error, sizeof(spans[0].error), "%s", load->error);
    const int n = spans_read(spans, 1, COUNT_OF(spans), load->description, begun);
    for (int i = 0; i < n; i++) {
        spans[i].run_id = run_id;
        spans[i].arm = arm;
    }
    return db_span_insert(d, spans, n, why);
}
