"""Reads what qdyno sends to an OpenTelemetry collector with the official protobuf definitions.

    otlp_decode.py fields FILE            FILE: "message field number" a line; each as defined?
    otlp_decode.py sample-traces FILE     the bodies of test_otlp.c, value by value
    otlp_decode.py sample-metrics FILE
    otlp_decode.py traces FILE...         request bodies of runs: one tree per trace, nested in time
    otlp_decode.py metrics FILE...        request bodies: types, units, bucket counts

The last two print one JSON line per span or point, and read with otlp_wire.py where the definitions are missing
(said on stderr). The others need them: exit 77 where the Python package opentelemetry-proto is not here. It is
never fetched: Debian 12 has none; a virtual environment with it is used through
QDYNO_TEST_PYTHON=/path/to/its/python.
"""
import importlib
import json
import math
import sys

sys.dont_write_bytecode = True  # no litter in the source tree
import otlp_wire

try:
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
    OFFICIAL = {"Traces": trace_service_pb2.ExportTraceServiceRequest,
                "Metrics": metrics_service_pb2.ExportMetricsServiceRequest}
except ImportError:
    OFFICIAL = None

ATTRIBUTES = {"text": "ü", "count": -5, "share": 0.25, "yes": True, "list": ["a", "b"]}
NOW = 1700000000000000000


def check(truth, what):
    if not truth:
        sys.exit(f"FAIL: {what}")


def value(v):
    kind = v.WhichOneof("value")
    check(kind in ("string_value", "int_value", "double_value", "bool_value", "array_value"), f"value {kind}")
    if kind == "array_value":
        return [value(x) for x in v.array_value.values]
    return getattr(v, kind)


def attributes(list_):
    got = {a.key: value(a.value) for a in list_}
    check(len(got) == len(list_), "an attribute twice")
    return got


def same(got, want):
    """Equal, and of equal type: 1, 1.0 and True are not the same attribute."""
    return got == want and {k: type(v) for k, v in got.items()} == {k: type(v) for k, v in want.items()}


def parse(message, path):
    with open(path, "rb") as f:
        data = f.read()
    if not OFFICIAL:
        print("otlp_decode.py: read with otlp_wire.py: python3 has no opentelemetry-proto", file=sys.stderr)
        return otlp_wire.parse(message, data)
    m = OFFICIAL[message]()
    check(m.ParseFromString(data) == len(data), f"{path}: not read to its end")
    check(not unknown(m), f"{path}: fields that the definitions do not know")
    return m


def unknown(m):
    """Does a message or one inside it hold fields without a definition? Written again without them it is shorter."""
    size = m.ByteSize()
    m.DiscardUnknownFields()
    return m.ByteSize() != size


def fields(path):
    modules = {}
    for line in open(path, encoding="utf-8"):
        message, field, number = line.split()
        parts = message.split(".")
        at = next(i for i, p in enumerate(parts) if p[0].isupper())
        package = ".".join(parts[:at])
        file = parts[at - 2] + ("_service" if parts[0] == "collector" else "")
        name = f"opentelemetry.proto.{package}.{file}_pb2"
        module = modules.setdefault(name, importlib.import_module(name))
        d = module.DESCRIPTOR.message_types_by_name[parts[at]]
        for inner in parts[at + 1:]:
            d = d.nested_types_by_name[inner]
        check(field in d.fields_by_name, f"{message} has no {field}")
        check(d.fields_by_name[field].number == int(number),
              f"{message}.{field} is {d.fields_by_name[field].number}, we say {number}")


def sample_traces(path):
    m = parse("Traces", path)
    check(len(m.resource_spans) == 1 and len(m.resource_spans[0].scope_spans) == 1, "one resource, one scope")
    r, s = m.resource_spans[0].resource, m.resource_spans[0].scope_spans[0]
    check(same(attributes(r.attributes), {"text": "ü"}), "resource")
    check(s.scope.name == "qdyno" and s.scope.version, "scope")
    root, load = s.spans
    check(root.trace_id == bytes(range(1, 17)) and root.span_id == b"\1" + bytes(7), "ids")
    check(root.parent_span_id == b"" and load.parent_span_id == root.span_id, "parents")
    check(root.name == "experiment" and root.kind == root.SPAN_KIND_INTERNAL, "name and kind")
    check(load.kind == load.SPAN_KIND_CLIENT, "kind of the second")
    check(root.start_time_unix_nano == NOW + 100 and root.end_time_unix_nano == NOW + 200, "times")
    check(same(attributes(root.attributes), ATTRIBUTES), f"attributes: {attributes(root.attributes)}")
    check(root.events[0].name == "discarded" and root.events[0].time_unix_nano == NOW + 150, "event")
    check(same(attributes(root.events[0].attributes), {"text": "ü"}), "attributes of an event")
    check(not root.HasField("status"), "unset status")
    check(load.status.code == load.status.STATUS_CODE_ERROR and load.status.message == "gone", "status")
    check(load.links[0].trace_id[0] == 9 and load.links[0].span_id[0] == 8, "link")


def sample_metrics(path):
    m = parse("Metrics", path)
    gauge, total, histogram = m.resource_metrics[0].scope_metrics[0].metrics
    check((gauge.name, gauge.unit, gauge.description) == ("a.gauge", "By", "of bytes"), "gauge")
    check([p.as_double for p in gauge.gauge.data_points] == [1.5], "its one known point")
    check(same(attributes(gauge.gauge.data_points[0].attributes), ATTRIBUTES), "attributes of a point")
    p = total.sum.data_points[0]
    check(total.sum.is_monotonic and total.sum.aggregation_temporality == 2, "a cumulative counter")
    check((p.start_time_unix_nano, p.time_unix_nano, p.as_double) == (NOW - 5 * 10**9, NOW, 42), "its point")
    (h,) = histogram.histogram.data_points
    check(histogram.histogram.aggregation_temporality == 2, "a cumulative histogram")
    check(list(h.bucket_counts) == [3, 0, 2, 1] and list(h.explicit_bounds) == [0.001, 0.01, 0.1], "buckets")
    check(h.count == 6 and h.sum == 0.9, "count and sum")


def traces(paths):
    spans = {}
    for path in paths:
        m = parse("Traces", path)
        for rs in m.resource_spans:
            resource = attributes(rs.resource.attributes)
            check(resource.get("service.name"), "no service.name")
            for s in (s for scope in rs.scope_spans for s in scope.spans):
                check(len(s.trace_id) == 16 and any(s.trace_id), "trace id")
                check(len(s.span_id) == 8 and any(s.span_id), "span id")
                key = (s.trace_id, s.span_id)
                check(key not in spans, f"span {s.name} twice")
                spans[key] = (s, resource)
    for s, _ in spans.values():
        check(s.name and s.kind, "a name and a kind")
        check(0 < s.start_time_unix_nano <= s.end_time_unix_nano, f"times of {s.name}")
        if not s.parent_span_id:
            continue
        check((s.trace_id, s.parent_span_id) in spans, f"the parent of {s.name} is nowhere")
        parent = spans[(s.trace_id, s.parent_span_id)][0]
        check(parent.start_time_unix_nano <= s.start_time_unix_nano and
              s.end_time_unix_nano <= parent.end_time_unix_nano, f"{s.name} is not within {parent.name}")
    for trace in {t for t, _ in spans}:
        roots = [s.name for (t, _), (s, _) in spans.items() if t == trace and not s.parent_span_id]
        check(len(roots) == 1, f"roots of a trace: {roots}")
    for s, resource in spans.values():
        print(json.dumps({
            "trace": s.trace_id.hex(), "id": s.span_id.hex(), "parent": s.parent_span_id.hex(), "name": s.name,
            "kind": s.kind, "start": s.start_time_unix_nano, "end": s.end_time_unix_nano,
            "attributes": attributes(s.attributes), "resource": resource,
            "status": s.status.code, "message": s.status.message,
            "events": [{"name": e.name, "time": e.time_unix_nano, "attributes": attributes(e.attributes)}
                       for e in s.events],
            "links": [x.trace_id.hex() for x in s.links]}, ensure_ascii=False))


def metrics(paths):
    for path in paths:
        m = parse("Metrics", path)
        names = set()
        for rm in m.resource_metrics:
            resource = attributes(rm.resource.attributes)
            check(resource.get("service.name"), "no service.name")
            for x in (x for s in rm.scope_metrics for x in s.metrics):
                check(x.name not in names, f"metric {x.name} twice")
                names.add(x.name)
                kind = x.WhichOneof("data")
                points = getattr(x, kind).data_points
                check(points, f"{x.name} without points")
                seen = [attributes(p.attributes) for p in points]
                check(all(a not in seen[:i] for i, a in enumerate(seen)), f"{x.name}: a series twice")
                for p, a in zip(points, seen):
                    check(p.time_unix_nano, f"{x.name} without a time")
                    check(p.start_time_unix_nano <= p.time_unix_nano, f"{x.name} ends before it begins")
                    if kind == "histogram":
                        check(len(p.bucket_counts) == len(p.explicit_bounds) + 1, f"buckets of {x.name}")
                        check(sum(p.bucket_counts) == p.count, f"bucket counts of {x.name}")
                        check(list(p.explicit_bounds) == sorted(set(p.explicit_bounds)), f"bounds of {x.name}")
                        check(x.histogram.aggregation_temporality == 2, "cumulative")
                    else:
                        check(p.WhichOneof("value") == "as_double" and not math.isnan(p.as_double),
                              f"value of {x.name}")
                    if kind == "sum":
                        check(x.sum.aggregation_temporality == 2, f"{x.name} is not cumulative")
                        check(x.sum.is_monotonic or not x.name.endswith("_total"), f"{x.name} may go down")
                    up_down = kind == "sum" and not x.sum.is_monotonic
                    print(json.dumps({"name": x.name, "kind": "up_down" if up_down else kind, "unit": x.unit, "attributes": a,
                                      "value": p.count if kind == "histogram" else p.as_double,
                                      "resource": resource}, ensure_ascii=False))


COMMANDS = {"fields": lambda a: fields(a[0]), "sample-traces": lambda a: sample_traces(a[0]),
            "sample-metrics": lambda a: sample_metrics(a[0]), "traces": traces, "metrics": metrics}
if not OFFICIAL and sys.argv[1] not in ("traces", "metrics"):
    print("SKIPPED: python3 has no opentelemetry-proto")
    sys.exit(77)
COMMANDS[sys.argv[1]](sys.argv[2:])
