/* telemetry/otlp/otlp.h - sends spans and metrics to an OpenTelemetry collector: OTLP over HTTP with binary
 * protobuf.
 *
 * Three independent steps: describe (the structs), encode (otlp_*_encode, pure functions), send (otlp_send).
 * Unknown values are omitted: an attribute or point whose value is NAN or NULL is not sent, never sent as 0.
 * Source: opentelemetry.io, "OTLP Specification" 1.x and "OTLP Exporter Configuration". */
#ifndef QDYNO_TELEMETRY_OTLP_H
#define QDYNO_TELEMETRY_OTLP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "telemetry/export/export.h"
#include "telemetry/http/http.h"
#include "telemetry/machine/machine.h"

/* ---------------------------------------------------------------- describe */

enum otlp_type { OTLP_STRING, OTLP_INT, OTLP_DOUBLE, OTLP_BOOL, OTLP_STRINGS };
struct otlp_attribute {
    const char *key;
    enum otlp_type type;
    union {
        const char *string; /* NULL: the attribute is omitted */
        int64_t integer;
        double number; /* NAN: the attribute is omitted */
        bool truth;
        const char *const *strings; /* [n] */
    };
    int n; /* OTLP_STRINGS only; 0: the attribute is omitted */
};

enum { OTLP_TRACE_ID = 16, OTLP_SPAN_ID = 8 };
enum otlp_span_kind { OTLP_KIND_INTERNAL = 1, OTLP_KIND_SERVER = 2, OTLP_KIND_CLIENT = 3 };
enum otlp_status { OTLP_STATUS_UNSET = 0, OTLP_STATUS_OK = 1, OTLP_STATUS_ERROR = 2 };

struct otlp_event {
    const char *name;
    uint64_t time_ns; /* Unix time, as all times in this header */
    const struct otlp_attribute *attributes;
    int n_attributes;
};
struct otlp_span {
    uint8_t trace_id[OTLP_TRACE_ID], span_id[OTLP_SPAN_ID], parent_id[OTLP_SPAN_ID]; /* parent 0: root span */
    const char *name;
    enum otlp_span_kind kind;
    uint64_t begun_ns, ended_ns;
    const struct otlp_attribute *attributes;
    int n_attributes;
    const struct otlp_event *events;
    int n_events;
    enum otlp_status status;
    const char *message; /* of an error; NULL: none */
    bool linked;         /* has a link to a span of another trace, given by the two ids: */
    uint8_t link_trace_id[OTLP_TRACE_ID], link_span_id[OTLP_SPAN_ID];
};

/* Sums and histograms are cumulative. OTLP_SUM is monotonic, OTLP_UP_DOWN is not. */
enum otlp_metric_type { OTLP_GAUGE, OTLP_SUM, OTLP_UP_DOWN, OTLP_HISTOGRAM };
struct otlp_point {
    const struct otlp_attribute *attributes;
    int n_attributes;
    uint64_t begun_ns; /* when the counter started; 0: unknown, or a gauge */
    uint64_t time_ns;
    double value; /* of gauges and sums; NAN: no point */
    /* Histograms: counts[i] is the number of values in (bounds[i-1], bounds[i]], counts[n_bounds] that of
     * larger values. counts NULL: no point. */
    const double *bounds;
    const uint64_t *counts;
    int n_bounds;
    double sum; /* NAN: unknown */
};
struct otlp_metric {
    const char *name, *unit, *description; /* unit: UCUM ("s", "By", "1"), NULL or "": none */
    enum otlp_metric_type type;
    const struct otlp_point *points;
    int n_points;
};

/* The attributes that identify the sending program and machine. */
struct otlp_resource {
    const struct otlp_attribute *attributes;
    int n;
};

/* ---------------------------------------------------------------- encode */

/* Appends a request body to *out; out->failed: out of memory. otlp_metrics_encode returns the number of
 * points; 0: nothing to send. */
void otlp_traces_encode(struct str *out, const struct otlp_resource *resource, const struct otlp_span *spans,
                        int n);
int otlp_metrics_encode(struct str *out, const struct otlp_resource *resource,
                        const struct otlp_metric *metrics, int n);

/* ---------------------------------------------------------------- address */

enum otlp_signal { OTLP_TRACES, OTLP_METRICS, OTLP_SIGNALS };

enum { OTLP_HEADERS = HTTP_HEADERS };
/* The address of one signal, with headers and credentials. */
struct otlp_target {
    char *url;                   /* owned */
    char *headers[OTLP_HEADERS]; /* "name: value", owned; may hold secrets */
    struct http_auth auth;       /* strings borrowed from the options or the environment */
    int64_t deadline_ns;         /* clock_ns; requests end by then. 0: only auth.timeout_s limits them */
};
void otlp_target_done(struct otlp_target *t); /* {0} is fine */

/* Determines where to send a signal. `base` (from an option; NULL: none) is extended by /v1/traces or
 * /v1/metrics. Without it the environment decides, as for every OpenTelemetry exporter:
 * OTEL_EXPORTER_OTLP_{TRACES,METRICS}_ENDPOINT unchanged, or OTEL_EXPORTER_OTLP_ENDPOINT as a base. _HEADERS,
 * _TIMEOUT (milliseconds), _CERTIFICATE, _CLIENT_CERTIFICATE and _CLIENT_KEY work the same way, the variable
 * of the signal first. Settings in `auth` (may be NULL) precede the environment. t->url is NULL when no
 * collector is configured for this signal. Errors: ERR_USAGE (invalid address, header or time; a protocol
 * other than http/protobuf), ERR_NOMEM. *t: otlp_target_done. */
enum err_code otlp_target_find(struct otlp_target *t, enum otlp_signal signal, const char *base,
                               const struct http_auth *auth, struct err *why);
/* Parses one "name=value" entry, text[0..n), of a list in the environment: trims blanks around name and
 * value, and percent-decodes the value. pair: name and value; the caller frees both. False: not such an
 * entry, or out of memory. */
bool otlp_pair_read(char *pair[2], const char *text, size_t n);
/* True when the environment configures a collector for any signal. */
bool otlp_environment(void);

/* ---------------------------------------------------------------- send */

/* The content of a collector's response. */
struct otlp_answer {
    int64_t rejected;  /* spans or points that the collector did not accept */
    char message[256]; /* why, or a warning; "": none */
};
/* Parses the body of a response with status 200, which is usually empty. False: not an OTLP response. */
bool otlp_answer_parse(struct otlp_answer *out, const void *body, size_t n);

/* Sends one body by POST. Retries after 429, 502, 503 and 504, with the server's Retry-After or a doubling
 * pause, until the target's timeout (10 s). *answer (may be NULL) is filled on success and may hold a
 * warning. Errors: ERR_ABSENT  unreachable, or still unavailable at the timeout: retrying later may succeed
 *         ERR_USAGE   refused or accepted only in part (the message quotes the collector), or the server is
 * not a collector: retrying is useless ERR_NOMEM */
enum err_code otlp_send(const struct otlp_target *t, const struct str *body, struct otlp_answer *answer,
                        struct err *why);

/* ---------------------------------------------------------------- families as metrics */

/* Metrics reach the collector through the same struct family_sink as the scrape page. A family for which
 * OpenTelemetry defines a name is sent with that name, unit and attributes. Every other family keeps its own
 * name, so that a collector that writes to Prometheus produces the series that dashboards and alert rules
 * use. */

/* The samples of one request. {0} with the three times set is empty. */
struct otlp_batch {
    uint64_t time_ns; /* of all points */
    /* when the counters started (0: unknown): those of this process and its sensors, those of requests */
    uint64_t process_begun_ns, requests_begun_ns;
    struct label common[4]; /* added to every further point; borrowed until the request is encoded */
    int n_common;
    struct arena memory;
    struct otlp_metric *metrics; /* [n]; they and all they point to are allocated in `memory` */
    int n, cap;
    bool failed; /* out of memory: later samples are missing */
};
/* A sink that adds to *b, which must outlive it. */
struct family_sink otlp_sink(struct otlp_batch *b);
void otlp_batch_free(struct otlp_batch *b);

/* The attributes that identify this program and machine (in OpenTelemetry's terms the resource).
 * OTEL_RESOURCE_ATTRIBUTES overrides the defaults, OTEL_SERVICE_NAME overrides both. machine NULL: only the
 * program's attributes. version: of the program that measured; NULL: unknown. ERR_USAGE:
 * OTEL_RESOURCE_ATTRIBUTES is not a list of name=value. */
struct otlp_identity {
    struct arena memory;
    struct otlp_attribute *attributes; /* of the resource, allocated in `memory` */
    struct otlp_resource resource;
    bool failed;
};
enum err_code otlp_identify(struct otlp_identity *out, const struct machine *machine, const char *version,
                            struct err *why);
void otlp_identity_free(struct otlp_identity *i); /* {0} is fine */

/* Sends the values that `collect` passes to its sink, as one request with the current time. t: for
 * OTLP_METRICS. Errors: those of otlp_send; ERR_ABSENT also when there is no value to send. */
typedef void otlp_collect_fn(void *ctx, const struct family_sink *to);
struct otlp_live {
    const struct machine *machine; /* NULL: the request does not describe the machine */
    otlp_collect_fn *collect;
    void *ctx;
};
enum err_code otlp_metrics_send(const struct otlp_target *t, const struct otlp_live *live,
                                struct otlp_answer *answer, struct err *why);

#endif
