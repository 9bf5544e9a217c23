/* advisor/run/canary.c - the fixed reference workload at the start and end of a run (run.h). */
#include "advisor/run/run.h"

#include <math.h>

enum { READ_BYTES = 64 << 20 };
static const double READ_SECONDS = 0.12, OPS_SECONDS = 0.10;

void canary_measure(struct canary *out)
{
    const int threads = threadpool_default_threads();
    /* independent of QDYNO_ISA, so that canaries stay comparable */
    const struct ceiling *c = ceiling_widest("f32_fma", isa_detect());
    const int64_t start = clock_ns();
    *out = (struct canary){ NAN, NAN, "", NAN };
    snprintf(out->work, sizeof out->work, "read 64M, %s %s, %d threads", c ? c->name : "none",
             c ? c->isa : "", threads);
    out->read_bytes_s = ceiling_read_bytes_s(&(struct ceiling_reading){ .threads = threads }, READ_BYTES,
                                             READ_SECONDS);
    if (c) out->ops_s = ceiling_ops_s(c, isa_detect(), threads, OPS_SECONDS);
    out->seconds = (double)(clock_ns() - start) * 1e-9;
}

void canary_best(struct canary *best, const struct canary *c)
{
    if (!*c->work) return;
    if (!*best->work) *best = *c;
    best->read_bytes_s = fmax(best->read_bytes_s, c->read_bytes_s); /* fmax ignores one NAN */
    best->ops_s = fmax(best->ops_s, c->ops_s);
}

enum err_code canary_store(struct db *d, int64_t run_id, enum canary_when when, const struct canary *c,
                           struct err *why)
{
    struct cell_row row = {
        .run_id = run_id, .arm = -1, .block = -1, .slot = (int)when, .seconds = c->seconds
    };
    row.started_ms = clock_unix_ms() - (int64_t)(1e3 * c->seconds);
    snprintf(row.phase, sizeof row.phase, "%s", CANARY_PHASE);
    snprintf(row.config, sizeof row.config, "%s", c->work);
    const struct measurement m[] = {
        { METRICS[METRIC_CANARY_READ].name, METRICS[METRIC_CANARY_READ].unit, c->read_bytes_s },
        { METRICS[METRIC_CANARY_OPS].name, METRICS[METRIC_CANARY_OPS].unit, c->ops_s },
    };
    return db_cell_insert(d, &row, m, COUNT_OF(m), NULL, 0, NULL, 0, why);
}

enum metric_id canary_of(enum metric_id metric, int *sign)
{
    /* Decoding is limited by reading weights, prefill by arithmetic (docs/history.md). */
    static const struct {
        enum metric_id metric, canary;
        int sign;
    } BY[] = {
        { .metric = METRIC_PREFILL_RATE, .canary = METRIC_CANARY_OPS, .sign = 1 },
        { .metric = METRIC_DECODE_RATE, .canary = METRIC_CANARY_READ, .sign = 1 },
        { .metric = METRIC_TTFT, .canary = METRIC_CANARY_OPS, .sign = -1 },
        { .metric = METRIC_ITL_P50, .canary = METRIC_CANARY_READ, .sign = -1 },
        { .metric = METRIC_ITL_P95, .canary = METRIC_CANARY_READ, .sign = -1 },
        { .metric = METRIC_ITL_P99, .canary = METRIC_CANARY_READ, .sign = -1 },
    };
    for (size_t i = 0; i < COUNT_OF(BY); i++)
        if (BY[i].metric == metric) {
            *sign = BY[i].sign;
            return BY[i].canary;
        }
    *sign = 0;
    return METRIC_COUNT;
}
