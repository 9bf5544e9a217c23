/* tests/telemetry/spans.h - two samples of a machine with a change between them, and rates checked against
 * what may have gone by: no test depends on how long a sleep took. */
#ifndef QDYNO_TESTS_SPANS_H
#define QDYNO_TESTS_SPANS_H

#include "telemetry/sensors/sensors.h"
#include "tests/telemetry/roots.h"

static inline struct telemetry *open_at(const struct root *r)
{
    struct telemetry *t;
    struct err why;
    CHECK_OK(telemetry_open(&t, r->path, &why));
    return t;
}

/* Seconds between two samples, within what the caller can see. */
struct span {
    double least_s, most_s;
};
static inline struct span sample_after(struct telemetry *t, double *row, const struct root *r,
                                       void (*change)(const struct root *))
{
    int64_t a = clock_ns();
    telemetry_sample(t, row);
    int64_t b = clock_ns();
    if (change) change(r);
    clock_sleep_ns(50 * 1000000);
    int64_t c = clock_ns();
    telemetry_sample(t, row);
    return (struct span){ (double)(c - b) / 1e9, (double)(clock_ns() - a) / 1e9 };
}

/* value is a rise of `amount` over the span, in any case within its bounds */
static inline void check_rate(double value, double amount, struct span s)
{
    if (!(value >= amount / s.most_s * 0.999 && value <= amount / s.least_s * 1.001))
        fail_msg("%g is not %g over %g to %g s", value, amount, s.least_s, s.most_s);
}

#endif
