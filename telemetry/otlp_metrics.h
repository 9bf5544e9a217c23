/* telemetry/otlp_metrics.h - exported families as OTLP metrics (part of the door telemetry.h).
 *
 * What the scrape page shows, told to a collector: the same values through the same struct family_sink. A
 * family that OpenTelemetry has a name for goes by that name, unit and attributes; every other keeps its own
 * name, so that a collector which writes to Prometheus makes the very series that boards and rules use. */
#ifndef QDYNO_TELEMETRY_OTLP_METRICS_H
#define QDYNO_TELEMETRY_OTLP_METRICS_H

#include "telemetry/families.h"
#include "telemetry/otlp.h"

struct family_sink;
struct machine;
struct readings;

/* Samples collected for one request. {0} with the times set is an empty one. */
struct otlp_batch {
    uint64_t time_ns; /* of all points; since 1970 */
    /* since when counters count, 0 unknown: those of this process and its sensors, those of requests */
    uint64_t process_begun_ns, requests_begun_ns;
    struct label common[4]; /* joined to every point from now on; borrowed until it is told */
    int n_common;
    struct arena memory;
    struct otlp_metric *metrics; /* [n], owned by memory, as all they point to */
    int n, cap;
    bool failed; /* out of memory: what came after is not there */
};
/* A sink that fills it; b outlives it. */
struct family_sink otlp_sink(struct otlp_batch *b);
void otlp_batch_free(struct otlp_batch *b);

/* The attributes of this machine and program: what OpenTelemetry calls the resource. In order: the defaults,
 * OTEL_RESOURCE_ATTRIBUTES over them, OTEL_SERVICE_NAME over both. machine NULL: only who speaks. version: of
 * the program that measured; NULL: unknown. ERR_USAGE: OTEL_RESOURCE_ATTRIBUTES is no list of name=value. */
struct otlp_identity {
    struct arena memory;
    struct otlp_attribute *room; /* of the resource's attributes, in memory */
    struct otlp_resource resource;
    bool failed;
};
enum err_code otlp_identify(struct otlp_identity *out, const struct machine *machine, const char *version,
                            struct err *why);
void otlp_identity_free(struct otlp_identity *i); /* {0} is fine */

/* What `tell` hands over, now, as one request of this machine and program. t: of OTLP_METRICS. Errors: those
 * of otlp_send; ERR_ABSENT also when nothing is known that could be told. */
typedef void otlp_tell_fn(void *ctx, const struct family_sink *to);
struct otlp_live {
    const struct machine *machine; /* NULL: not said */
    otlp_tell_fn *tell;
    void *ctx;
};
enum err_code otlp_metrics_send(const struct otlp_target *t, const struct otlp_live *live,
                                struct otlp_answer *answer, struct err *why);
/* The same of readings. */
enum err_code otlp_readings_send(const struct otlp_target *t, const struct readings *r,
                                 struct otlp_answer *answer, struct err *why);

#endif
