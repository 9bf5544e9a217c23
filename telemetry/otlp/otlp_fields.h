/* telemetry/otlp/otlp_fields.h - the field numbers of OTLP messages, in one place (internal to
 * telemetry/otlp).
 *
 * They were compared with the definitions in the Python package opentelemetry-proto 1.45.2; a test compares
 * them with the definitions of whatever version is installed. Message names are relative to
 * opentelemetry.proto. */
#ifndef QDYNO_TELEMETRY_OTLP_FIELDS_H
#define QDYNO_TELEMETRY_OTLP_FIELDS_H

/* X(our name, message, field, number) */
#define OTLP_FIELDS(X)                                                                                       \
    X(TRACES_RESOURCE_SPANS, "collector.trace.v1.ExportTraceServiceRequest", "resource_spans", 1)            \
    X(TRACES_PARTIAL_SUCCESS, "collector.trace.v1.ExportTraceServiceResponse", "partial_success", 1)         \
    X(TRACES_REJECTED, "collector.trace.v1.ExportTracePartialSuccess", "rejected_spans", 1)                  \
    X(TRACES_MESSAGE, "collector.trace.v1.ExportTracePartialSuccess", "error_message", 2)                    \
    X(METRICS_RESOURCE_METRICS, "collector.metrics.v1.ExportMetricsServiceRequest", "resource_metrics", 1)   \
    X(METRICS_PARTIAL_SUCCESS, "collector.metrics.v1.ExportMetricsServiceResponse", "partial_success", 1)    \
    X(METRICS_REJECTED, "collector.metrics.v1.ExportMetricsPartialSuccess", "rejected_data_points", 1)       \
    X(METRICS_MESSAGE, "collector.metrics.v1.ExportMetricsPartialSuccess", "error_message", 2)               \
    X(RESOURCE_ATTRIBUTES, "resource.v1.Resource", "attributes", 1)                                          \
    X(SCOPE_NAME, "common.v1.InstrumentationScope", "name", 1)                                               \
    X(SCOPE_VERSION, "common.v1.InstrumentationScope", "version", 2)                                         \
    X(ATTRIBUTE_KEY, "common.v1.KeyValue", "key", 1)                                                         \
    X(ATTRIBUTE_VALUE, "common.v1.KeyValue", "value", 2)                                                     \
    X(VALUE_STRING, "common.v1.AnyValue", "string_value", 1)                                                 \
    X(VALUE_BOOL, "common.v1.AnyValue", "bool_value", 2)                                                     \
    X(VALUE_INT, "common.v1.AnyValue", "int_value", 3)                                                       \
    X(VALUE_DOUBLE, "common.v1.AnyValue", "double_value", 4)                                                 \
    X(VALUE_ARRAY, "common.v1.AnyValue", "array_value", 5)                                                   \
    X(ARRAY_VALUES, "common.v1.ArrayValue", "values", 1)                                                     \
    X(RESOURCE_SPANS_RESOURCE, "trace.v1.ResourceSpans", "resource", 1)                                      \
    X(RESOURCE_SPANS_SCOPE_SPANS, "trace.v1.ResourceSpans", "scope_spans", 2)                                \
    X(SCOPE_SPANS_SCOPE, "trace.v1.ScopeSpans", "scope", 1)                                                  \
    X(SCOPE_SPANS_SPANS, "trace.v1.ScopeSpans", "spans", 2)                                                  \
    X(SPAN_TRACE_ID, "trace.v1.Span", "trace_id", 1)                                                         \
    X(SPAN_SPAN_ID, "trace.v1.Span", "span_id", 2)                                                           \
    X(SPAN_PARENT_SPAN_ID, "trace.v1.Span", "parent_span_id", 4)                                             \
    X(SPAN_NAME, "trace.v1.Span", "name", 5)                                                                 \
    X(SPAN_KIND, "trace.v1.Span", "kind", 6)                                                                 \
    X(SPAN_START, "trace.v1.Span", "start_time_unix_nano", 7)                                                \
    X(SPAN_END, "trace.v1.Span", "end_time_unix_nano", 8)                                                    \
    X(SPAN_ATTRIBUTES, "trace.v1.Span", "attributes", 9)                                                     \
    X(SPAN_EVENTS, "trace.v1.Span", "events", 11)                                                            \
    X(SPAN_LINKS, "trace.v1.Span", "links", 13)                                                              \
    X(SPAN_STATUS, "trace.v1.Span", "status", 15)                                                            \
    X(EVENT_TIME, "trace.v1.Span.Event", "time_unix_nano", 1)                                                \
    X(EVENT_NAME, "trace.v1.Span.Event", "name", 2)                                                          \
    X(EVENT_ATTRIBUTES, "trace.v1.Span.Event", "attributes", 3)                                              \
    X(LINK_TRACE_ID, "trace.v1.Span.Link", "trace_id", 1)                                                    \
    X(LINK_SPAN_ID, "trace.v1.Span.Link", "span_id", 2)                                                      \
    X(STATUS_MESSAGE, "trace.v1.Status", "message", 2)                                                       \
    X(STATUS_CODE, "trace.v1.Status", "code", 3)                                                             \
    X(RESOURCE_METRICS_RESOURCE, "metrics.v1.ResourceMetrics", "resource", 1)                                \
    X(RESOURCE_METRICS_SCOPE_METRICS, "metrics.v1.ResourceMetrics", "scope_metrics", 2)                      \
    X(SCOPE_METRICS_SCOPE, "metrics.v1.ScopeMetrics", "scope", 1)                                            \
    X(SCOPE_METRICS_METRICS, "metrics.v1.ScopeMetrics", "metrics", 2)                                        \
    X(METRIC_FIELD_NAME, "metrics.v1.Metric", "name", 1)                                                     \
    X(METRIC_FIELD_DESCRIPTION, "metrics.v1.Metric", "description", 2)                                       \
    X(METRIC_FIELD_UNIT, "metrics.v1.Metric", "unit", 3)                                                     \
    X(METRIC_FIELD_GAUGE, "metrics.v1.Metric", "gauge", 5)                                                   \
    X(METRIC_FIELD_SUM, "metrics.v1.Metric", "sum", 7)                                                       \
    X(METRIC_FIELD_HISTOGRAM, "metrics.v1.Metric", "histogram", 9)                                           \
    X(GAUGE_POINTS, "metrics.v1.Gauge", "data_points", 1)                                                    \
    X(SUM_POINTS, "metrics.v1.Sum", "data_points", 1)                                                        \
    X(SUM_TEMPORALITY, "metrics.v1.Sum", "aggregation_temporality", 2)                                       \
    X(SUM_IS_MONOTONIC, "metrics.v1.Sum", "is_monotonic", 3)                                                 \
    X(HISTOGRAM_POINTS, "metrics.v1.Histogram", "data_points", 1)                                            \
    X(HISTOGRAM_TEMPORALITY, "metrics.v1.Histogram", "aggregation_temporality", 2)                           \
    X(NUMBER_START, "metrics.v1.NumberDataPoint", "start_time_unix_nano", 2)                                 \
    X(NUMBER_TIME, "metrics.v1.NumberDataPoint", "time_unix_nano", 3)                                        \
    X(NUMBER_DOUBLE, "metrics.v1.NumberDataPoint", "as_double", 4)                                           \
    X(NUMBER_ATTRIBUTES, "metrics.v1.NumberDataPoint", "attributes", 7)                                      \
    X(HISTOGRAM_START, "metrics.v1.HistogramDataPoint", "start_time_unix_nano", 2)                           \
    X(HISTOGRAM_TIME, "metrics.v1.HistogramDataPoint", "time_unix_nano", 3)                                  \
    X(HISTOGRAM_COUNT, "metrics.v1.HistogramDataPoint", "count", 4)                                          \
    X(HISTOGRAM_SUM, "metrics.v1.HistogramDataPoint", "sum", 5)                                              \
    X(HISTOGRAM_BUCKET_COUNTS, "metrics.v1.HistogramDataPoint", "bucket_counts", 6)                          \
    X(HISTOGRAM_BOUNDS, "metrics.v1.HistogramDataPoint", "explicit_bounds", 7)                               \
    X(HISTOGRAM_ATTRIBUTES, "metrics.v1.HistogramDataPoint", "attributes", 9)

enum otlp_field {
#define OTLP_FIELD_ENUM(id, message, field, number) OTLP_##id = (number),
    OTLP_FIELDS(OTLP_FIELD_ENUM)
#undef OTLP_FIELD_ENUM
};

/* Field of google.rpc.Status, the body of a response that refuses a request. */
enum { RPC_STATUS_MESSAGE = 2 };

/* Enum values in messages. */
enum { OTLP_CUMULATIVE = 2 }; /* metrics.v1.AggregationTemporality */

#endif
