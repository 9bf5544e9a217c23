/* telemetry/otlp/otlp.c - encodes spans and metrics as OTLP request bodies. Attributes and points without a
 * known value are omitted. */
#include "telemetry/otlp/otlp.h"

#include <math.h>
#include <string.h>

#include "telemetry/otlp/otlp_fields.h"
#include "telemetry/otlp/protobuf.h"

/* ---------------------------------------------------------------- attributes */

static bool attribute_is_known(const struct otlp_attribute *a)
{
    switch (a->type) {
    case OTLP_STRING: return a->string != NULL;
    case OTLP_DOUBLE: return !isnan(a->number);
    case OTLP_STRINGS: return a->n > 0;
    case OTLP_INT:
    case OTLP_BOOL: break;
    }
    return true;
}

static void put_value(struct str *out, int field, const struct otlp_attribute *a)
{
    const size_t value = pb_open(out, field);
    switch (a->type) {
    case OTLP_STRING: pb_put_string(out, OTLP_VALUE_STRING, a->string); break;
    case OTLP_INT: pb_put_varint(out, OTLP_VALUE_INT, (uint64_t)a->integer); break;
    case OTLP_DOUBLE: pb_put_double(out, OTLP_VALUE_DOUBLE, a->number); break;
    case OTLP_BOOL: pb_put_varint(out, OTLP_VALUE_BOOL, a->truth); break;
    case OTLP_STRINGS: {
        const size_t array = pb_open(out, OTLP_VALUE_ARRAY);
        for (int i = 0; i < a->n; i++) {
            const struct otlp_attribute one = { .type = OTLP_STRING, .string = a->strings[i] };
            put_value(out, OTLP_ARRAY_VALUES, &one);
        }
        pb_close(out, array);
        break;
    }
    }
    pb_close(out, value);
}

static void put_attributes(struct str *out, int field, const struct otlp_attribute *a, int n)
{
    for (int i = 0; i < n; i++) {
        if (!attribute_is_known(&a[i])) continue;
        const size_t pair = pb_open(out, field);
        pb_put_string(out, OTLP_ATTRIBUTE_KEY, a[i].key);
        put_value(out, OTLP_ATTRIBUTE_VALUE, &a[i]);
        pb_close(out, pair);
    }
}

static void put_resource(struct str *out, int field, const struct otlp_resource *resource)
{
    const size_t message = pb_open(out, field);
    if (resource) put_attributes(out, OTLP_RESOURCE_ATTRIBUTES, resource->attributes, resource->n);
    pb_close(out, message);
}

static void put_scope(struct str *out, int field)
{
    const size_t scope = pb_open(out, field);
    pb_put_string(out, OTLP_SCOPE_NAME, "qdyno");
    pb_put_string(out, OTLP_SCOPE_VERSION, QDYNO_VERSION);
    pb_close(out, scope);
}

/* ---------------------------------------------------------------- spans */

static void put_event(struct str *out, const struct otlp_event *e)
{
    const size_t event = pb_open(out, OTLP_SPAN_EVENTS);
    pb_put_fixed64(out, OTLP_EVENT_TIME, e->time_ns);
    pb_put_string(out, OTLP_EVENT_NAME, e->name);
    put_attributes(out, OTLP_EVENT_ATTRIBUTES, e->attributes, e->n_attributes);
    pb_close(out, event);
}

static void put_status(struct str *out, const struct otlp_span *s)
{
    if (s->status == OTLP_STATUS_UNSET) return;
    const size_t status = pb_open(out, OTLP_SPAN_STATUS);
    if (s->message) pb_put_string(out, OTLP_STATUS_MESSAGE, s->message);
    pb_put_varint(out, OTLP_STATUS_CODE, s->status);
    pb_close(out, status);
}

static void put_span(struct str *out, const struct otlp_span *s)
{
    static const uint8_t NONE[OTLP_SPAN_ID];
    const size_t span = pb_open(out, OTLP_SCOPE_SPANS_SPANS);
    pb_put_bytes(out, OTLP_SPAN_TRACE_ID, s->trace_id, sizeof s->trace_id);
    pb_put_bytes(out, OTLP_SPAN_SPAN_ID, s->span_id, sizeof s->span_id);
    if (memcmp(s->parent_id, NONE, sizeof NONE))
        pb_put_bytes(out, OTLP_SPAN_PARENT_SPAN_ID, s->parent_id, sizeof s->parent_id);
    pb_put_string(out, OTLP_SPAN_NAME, s->name);
    pb_put_varint(out, OTLP_SPAN_KIND, s->kind);
    pb_put_fixed64(out, OTLP_SPAN_START, s->begun_ns);
    pb_put_fixed64(out, OTLP_SPAN_END, s->ended_ns);
    put_attributes(out, OTLP_SPAN_ATTRIBUTES, s->attributes, s->n_attributes);
    for (int i = 0; i < s->n_events; i++) put_event(out, &s->events[i]);
    if (s->linked) {
        const size_t link = pb_open(out, OTLP_SPAN_LINKS);
        pb_put_bytes(out, OTLP_LINK_TRACE_ID, s->link_trace_id, sizeof s->link_trace_id);
        pb_put_bytes(out, OTLP_LINK_SPAN_ID, s->link_span_id, sizeof s->link_span_id);
        pb_close(out, link);
    }
    put_status(out, s);
    pb_close(out, span);
}

void otlp_traces_encode(struct str *out, const struct otlp_resource *resource, const struct otlp_span *spans,
                        int n)
{
    const size_t resource_spans = pb_open(out, OTLP_TRACES_RESOURCE_SPANS);
    put_resource(out, OTLP_RESOURCE_SPANS_RESOURCE, resource);
    const size_t scope_spans = pb_open(out, OTLP_RESOURCE_SPANS_SCOPE_SPANS);
    put_scope(out, OTLP_SCOPE_SPANS_SCOPE);
    for (int i = 0; i < n; i++) put_span(out, &spans[i]);
    pb_close(out, scope_spans);
    pb_close(out, resource_spans);
}

/* ---------------------------------------------------------------- metrics */

static bool point_is_known(const struct otlp_metric *m, const struct otlp_point *p)
{
    return m->type == OTLP_HISTOGRAM ? p->counts != NULL : !isnan(p->value);
}

static int metric_count_points(const struct otlp_metric *m)
{
    int n = 0;
    for (int i = 0; i < m->n_points; i++) n += point_is_known(m, &m->points[i]);
    return n;
}

static void put_number(struct str *out, int field, const struct otlp_point *p)
{
    const size_t point = pb_open(out, field);
    if (p->begun_ns) pb_put_fixed64(out, OTLP_NUMBER_START, p->begun_ns);
    pb_put_fixed64(out, OTLP_NUMBER_TIME, p->time_ns);
    pb_put_double(out, OTLP_NUMBER_DOUBLE, p->value);
    put_attributes(out, OTLP_NUMBER_ATTRIBUTES, p->attributes, p->n_attributes);
    pb_close(out, point);
}

static void put_histogram_point(struct str *out, const struct otlp_point *p)
{
    uint64_t count = 0;
    for (int i = 0; i <= p->n_bounds; i++) count += p->counts[i];
    const size_t point = pb_open(out, OTLP_HISTOGRAM_POINTS);
    if (p->begun_ns) pb_put_fixed64(out, OTLP_HISTOGRAM_START, p->begun_ns);
    pb_put_fixed64(out, OTLP_HISTOGRAM_TIME, p->time_ns);
    pb_put_fixed64(out, OTLP_HISTOGRAM_COUNT, count);
    if (!isnan(p->sum)) pb_put_double(out, OTLP_HISTOGRAM_SUM, p->sum);
    pb_put_packed_fixed64(out, OTLP_HISTOGRAM_BUCKET_COUNTS, p->counts, (size_t)p->n_bounds + 1);
    pb_put_packed_doubles(out, OTLP_HISTOGRAM_BOUNDS, p->bounds, (size_t)p->n_bounds);
    put_attributes(out, OTLP_HISTOGRAM_ATTRIBUTES, p->attributes, p->n_attributes);
    pb_close(out, point);
}

static void put_points(struct str *out, const struct otlp_metric *m)
{
    static const int DATA[] = { [OTLP_GAUGE] = OTLP_METRIC_FIELD_GAUGE,
                                [OTLP_SUM] = OTLP_METRIC_FIELD_SUM,
                                [OTLP_UP_DOWN] = OTLP_METRIC_FIELD_SUM,
                                [OTLP_HISTOGRAM] = OTLP_METRIC_FIELD_HISTOGRAM };
    static const int POINTS[] = {
        [OTLP_GAUGE] = OTLP_GAUGE_POINTS, [OTLP_SUM] = OTLP_SUM_POINTS, [OTLP_UP_DOWN] = OTLP_SUM_POINTS
    };
    const size_t data = pb_open(out, DATA[m->type]);
    for (int i = 0; i < m->n_points; i++) {
        if (!point_is_known(m, &m->points[i])) continue;
        if (m->type == OTLP_HISTOGRAM)
            put_histogram_point(out, &m->points[i]);
        else
            put_number(out, POINTS[m->type], &m->points[i]);
    }
    if (m->type == OTLP_SUM || m->type == OTLP_UP_DOWN) {
        pb_put_varint(out, OTLP_SUM_TEMPORALITY, OTLP_CUMULATIVE);
        pb_put_varint(out, OTLP_SUM_IS_MONOTONIC, m->type == OTLP_SUM);
    }
    if (m->type == OTLP_HISTOGRAM) pb_put_varint(out, OTLP_HISTOGRAM_TEMPORALITY, OTLP_CUMULATIVE);
    pb_close(out, data);
}

int otlp_metrics_encode(struct str *out, const struct otlp_resource *resource,
                        const struct otlp_metric *metrics, int n)
{
    int points = 0;
    const size_t resource_metrics = pb_open(out, OTLP_METRICS_RESOURCE_METRICS);
    put_resource(out, OTLP_RESOURCE_METRICS_RESOURCE, resource);
    const size_t scope_metrics = pb_open(out, OTLP_RESOURCE_METRICS_SCOPE_METRICS);
    put_scope(out, OTLP_SCOPE_METRICS_SCOPE);
    for (int i = 0; i < n; i++) {
        const struct otlp_metric *m = &metrics[i];
        const int known = metric_count_points(m);
        if (!known) continue;
        const size_t metric = pb_open(out, OTLP_SCOPE_METRICS_METRICS);
        pb_put_string(out, OTLP_METRIC_FIELD_NAME, m->name);
        if (m->description && *m->description)
            pb_put_string(out, OTLP_METRIC_FIELD_DESCRIPTION, m->description);
        if (m->unit && *m->unit) pb_put_string(out, OTLP_METRIC_FIELD_UNIT, m->unit);
        put_points(out, m);
        pb_close(out, metric);
        points += known;
    }
    pb_close(out, scope_metrics);
    pb_close(out, resource_metrics);
    return points;
}
