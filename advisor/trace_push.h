/* advisor/trace_push.h - a run to an OpenTelemetry collector: its trace, and its outcome as metrics. */
#ifndef QDYNO_ADVISOR_TRACE_PUSH_H
#define QDYNO_ADVISOR_TRACE_PUSH_H

#include "db/db.h"
#include "telemetry/telemetry.h"

struct trace_target {
    const char *base; /* "http://host:4318"; NULL: what the environment names (telemetry/otlp.h) */
    const struct http_auth *auth; /* NULL: nothing beyond the environment's */
};
struct trace_sent {
    int spans, points;
    bool kept;         /* not reachable now: noted, the next push to this collector sends it */
    char warning[256]; /* of a collector that took it all the same; "" */
};
/* Traces and metrics go to their addresses by the rules of telemetry/otlp.h; where only one is named, only
 * that is sent. A run that is no experiment has a trace and no metrics. One that is pushed again is the same
 * trace. On ERR_ABSENT the run is noted as waiting (sent->kept), without any payload: it is made anew from
 * the database.
 * Errors: ERR_USAGE (no such run, no collector named, or refused: those of otlp_send), ERR_ABSENT, those of
 * the database. */
enum err_code trace_push(struct db *d, int64_t run_id, const struct trace_target *to, struct trace_sent *sent,
                         struct err *why);

/* The other runs that wait for this collector, oldest first; *n were sent. One that is refused for good waits
 * no longer. The first error is returned. */
enum err_code trace_flush(struct db *d, const struct trace_target *to, int *n, struct err *why);

#endif
