/* telemetry/otlp.h - spans and metrics for an OpenTelemetry collector: OTLP over HTTP, binary protobuf (part
 * of the door telemetry.h).
 *
 * Three steps that know nothing of each other: describe (the structs), encode (otlp_*_encode: pure), send
 * (otlp_send). What is not known is not there: attributes and points whose value is NAN or NULL are left
 * out, never sent as zero. Source: opentelemetry.io, "OTLP Specification" 1.x and "OTLP Exporter
 * Configuration". */
#ifndef QDYNO_TELEMETRY_OTLP_H
#define QDYNO_TELEMETRY_OTLP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "telemetry/http.h"

/* ---------------------------------------------------------------- describe */

enum otlp_type { OTLP_STRING, OTLP_INT, OTLP_DOUBLE, OTLP_BOOL, OTLP_STRINGS };
struct otlp_attribute {
    const char *key;
    enum otlp_type type;
    union {
        const char *string; /* NULL: left out */
        int64_t integer;
        double number; /* NAN: left out */
        bool truth;
        const char *const *strings; /* [n] */
    };
    int n; /* OTLP_STRINGS only; 0: left out */
};

enum { OTLP_TRACE_ID = 16, OTLP_SPAN_ID = 8 };
enum otlp_span_kind { OTLP_KIND_INTERNAL = 1, OTLP_KIND_SERVER = 2, OTLP_KIND_CLIENT = 3 };
enum otlp_status { OTLP_STATUS_UNSET = 0, OTLP_STATUS_OK = 1, OTLP_STATUS_ERROR = 2 };

struct otlp_event {
    const char *name;
    uint64_t time_ns; /* since 1970, as all times here */
    const struct otlp_attribute *attributes;
    int n_attributes;
};
struct otlp_span {
    uint8_t trace_id[OTLP_TRACE_ID], span_id[OTLP_SPAN_ID], parent_id[OTLP_SPAN_ID]; /* parent 0: a root */
    const char *name;
    enum otlp_span_kind kind;
    uint64_t begun_ns, ended_ns;
    const struct otlp_attribute *attributes;
    int n_attributes;
    const struct otlp_event *events;
    int n_events;
    enum otlp_status status;
    const char *message; /* of an error; NULL: none */
    bool linked;         /* to a span of another trace: */
    uint8_t link_trace_id[OTLP_TRACE_ID], link_span_id[OTLP_SPAN_ID];
};

/* Sums and histograms are cumulative; a SUM only grows, an UP_DOWN need not. */
enum otlp_metric_type { OTLP_GAUGE, OTLP_SUM, OTLP_UP_DOWN, OTLP_HISTOGRAM };
struct otlp_point {
    const struct otlp_attribute *attributes;
    int n_attributes;
    uint64_t begun_ns; /* since when it counts; 0: unknown, and of gauges */
    uint64_t time_ns;
    double value; /* of gauges and sums; NAN: no point */
    /* histograms: counts[i] values were at most bounds[i] and above the bound before; counts[n_bounds]: above
     * all. NULL counts: no point. */
    const double *bounds;
    const uint64_t *counts;
    int n_bounds;
    double sum; /* NAN unknown */
};
struct otlp_metric {
    const char *name, *unit, *description; /* unit: UCUM ("s", "By", "1"), NULL or "": none */
    enum otlp_metric_type type;
    const struct otlp_point *points;
    int n_points;
};

/* Who speaks: attributes of the resource. */
struct otlp_resource {
    const struct otlp_attribute *attributes;
    int n;
};

/* ---------------------------------------------------------------- encode */

/* A request body, appended to *out; out->failed: out of memory. Of metrics: returns how many points it holds;
 * 0: there is nothing to send. */
void otlp_traces_encode(struct str *out, const struct otlp_resource *who, const struct otlp_span *spans,
                        int n);
int otlp_metrics_encode(struct str *out, const struct otlp_resource *who, const struct otlp_metric *metrics,
                        int n);

/* ---------------------------------------------------------------- where to */

enum otlp_signal { OTLP_TRACES, OTLP_METRICS, OTLP_SIGNALS };

enum { OTLP_HEADERS = HTTP_HEADERS };
/* Where one signal goes, and how. */
struct otlp_target {
    char *url;                   /* owned */
    char *headers[OTLP_HEADERS]; /* "name: value", owned: may hold secrets */
    struct http_auth auth;       /* strings borrowed, from the options or the environment */
};
void otlp_target_done(struct otlp_target *t); /* {0} is fine */

/* `base` (an option, NULL: none) with /v1/traces or /v1/metrics behind it; else the environment, as every
 * OpenTelemetry exporter reads it: OTEL_EXPORTER_OTLP_{TRACES,METRICS}_ENDPOINT as it is, or
 * OTEL_EXPORTER_OTLP_ENDPOINT as a base. _HEADERS, _TIMEOUT (milliseconds), _CERTIFICATE, _CLIENT_CERTIFICATE
 * and _CLIENT_KEY likewise, those of the signal first; what `auth` (NULL: nothing) sets comes before them.
 * url NULL in *t: nobody names a collector for this signal. Errors: ERR_USAGE (an address, header or time
 * that cannot be; another protocol than http/protobuf is asked for), ERR_NOMEM. */
enum err_code otlp_target_find(struct otlp_target *t, enum otlp_signal signal, const char *base,
                               const struct http_auth *auth, struct err *why);
/* "name=value" of the environment's lists, text[0..n): blanks around both fall away, the value is
 * percent-decoded. pair: name and value, free() both. False: it is none (or out of memory). */
bool otlp_pair_read(char *pair[2], const char *text, size_t n);
/* Does the environment name a collector for any signal? */
bool otlp_environment(void);

/* ---------------------------------------------------------------- send */

/* What a collector's answer says beyond its status. */
struct otlp_answer {
    int64_t rejected;  /* spans or points that it did not take; 0: it took all */
    char message[256]; /* why, or a warning; "" */
};
/* From the body of an answer with status 200; an empty one is the usual one. False when it is no such answer:
 * another protocol's, garbage, cut short. */
bool otlp_answer_parse(struct otlp_answer *out, const void *body, size_t n);

/* POST one body. 429, 502, 503 and 504 are tried again, after Retry-After or a doubling pause, as long as the
 * target's time (10 s) lasts. *answer (may be NULL) is filled on success: it may hold a warning.
 * Errors: ERR_ABSENT  not reachable, or still not now: worth another try later
 *         ERR_USAGE   refused for good, in the collector's words; or taken in part: how much was rejected,
 * and why; or answered by something that is no collector ERR_NOMEM */
enum err_code otlp_send(const struct otlp_target *t, const struct str *body, struct otlp_answer *answer,
                        struct err *why);

#endif
