/* Traces of requests come from strangers, and load lines from databases and reports: a trace is refused with
 * a message or read as finite times in order and positive lengths; a line is refused or means what its own
 * line means. Before a NUL: a line; behind it, or without one: a trace. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/serve/load_trace.h"
#include "engine/serve/serve.h"
#include "tests/fuzz/cost.h"

static const struct cost_ceiling CEILING = {
    .seconds = 0.5, .seconds_per_mb = 20, .mb = 16, .mb_per_mb = 200
};

static void line_use(const char *text)
{
    struct workload w, again;
    struct err why = { 0 };
    char line[WORKLOAD_LINE], second[WORKLOAD_LINE];
    if (workload_parse(&w, text, &why)) {
        if (!*why.message) abort();
        return;
    }
    workload_line(&w, line, sizeof line);
    if (workload_parse(&again, line, &why)) abort();
    if (strcmp(workload_line(&again, second, sizeof second), line)) abort();
    if (workload_ctx(&w) < !w.train) abort();
}

static void trace_use(const char *text, size_t size)
{
    struct load_trace t;
    struct err why = { 0 };
    if (load_trace_parse(&t, text, size, 10000, &why)) {
        if (!*why.message) abort();
    } else {
        for (int i = 0; i < t.n; i++) {
            const struct load_trace_row *r = &t.row[i];
            if (!isfinite(r->at_s) || (i && r->at_s < r[-1].at_s) || r->in < 1 || r->out < 1) abort();
            if (r->hash + r->hashes > t.hashes) abort();
        }
    }
    load_trace_free(&t);
}

static void use(const uint8_t *data, size_t size)
{
    const uint8_t *end = size ? memchr(data, '\0', size) : NULL;
    char *text = malloc(size + 1);
    if (!text) abort();
    memcpy(text, data, size);
    text[size] = '\0';
    if (end) line_use(text);
    const size_t from = end ? (size_t)(end - data) + 1 : 0;
    trace_use(text + from, size - from);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return cost_run(use, data, size, &CEILING);
}
