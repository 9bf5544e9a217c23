"""OTLP bodies read by hand, for machines without the official definitions: the messages that we send, no more.

A field that is not in the table is an error, so that this reader is no more lenient than the real one. The
numbers are written here a second time on purpose; test_otlp.c compares ours with the official ones.
"""
import struct

# message: {field number: (name, type)}; type s text, x bytes, i int64, u varint, b bool, d double, f fixed64,
# or a message; "*" in front: repeated (numbers: packed)
MESSAGES = {
    "Traces": {1: ("resource_spans", "*ResourceSpans")},
    "Metrics": {1: ("resource_metrics", "*ResourceMetrics")},
    "ResourceSpans": {1: ("resource", "Resource"), 2: ("scope_spans", "*ScopeSpans")},
    "ScopeSpans": {1: ("scope", "Scope"), 2: ("spans", "*Span")},
    "ResourceMetrics": {1: ("resource", "Resource"), 2: ("scope_metrics", "*ScopeMetrics")},
    "ScopeMetrics": {1: ("scope", "Scope"), 2: ("metrics", "*Metric")},
    "Resource": {1: ("attributes", "*KeyValue")},
    "Scope": {1: ("name", "s"), 2: ("version", "s")},
    "KeyValue": {1: ("key", "s"), 2: ("value", "AnyValue")},
    "AnyValue": {1: ("string_value", "s"), 2: ("bool_value", "b"), 3: ("int_value", "i"), 4: ("double_value", "d"),
                 5: ("array_value", "ArrayValue")},
    "ArrayValue": {1: ("values", "*AnyValue")},
    "Span": {1: ("trace_id", "x"), 2: ("span_id", "x"), 4: ("parent_span_id", "x"), 5: ("name", "s"), 6: ("kind", "u"),
             7: ("start_time_unix_nano", "f"), 8: ("end_time_unix_nano", "f"), 9: ("attributes", "*KeyValue"),
             11: ("events", "*Event"), 13: ("links", "*Link"), 15: ("status", "Status")},
    "Event": {1: ("time_unix_nano", "f"), 2: ("name", "s"), 3: ("attributes", "*KeyValue")},
    "Link": {1: ("trace_id", "x"), 2: ("span_id", "x")},
    "Status": {2: ("message", "s"), 3: ("code", "u")},
    "Metric": {1: ("name", "s"), 2: ("description", "s"), 3: ("unit", "s"), 5: ("gauge", "Gauge"), 7: ("sum", "Sum"),
               9: ("histogram", "Histogram")},
    "Gauge": {1: ("data_points", "*Number")},
    "Sum": {1: ("data_points", "*Number"), 2: ("aggregation_temporality", "u"), 3: ("is_monotonic", "b")},
    "Histogram": {1: ("data_points", "*Buckets"), 2: ("aggregation_temporality", "u")},
    "Number": {2: ("start_time_unix_nano", "f"), 3: ("time_unix_nano", "f"), 4: ("as_double", "d"),
               7: ("attributes", "*KeyValue")},
    "Buckets": {2: ("start_time_unix_nano", "f"), 3: ("time_unix_nano", "f"), 4: ("count", "f"), 5: ("sum", "d"),
                6: ("bucket_counts", "*f"), 7: ("explicit_bounds", "*d"), 9: ("attributes", "*KeyValue")},
}
EMPTY = {"s": "", "x": b"", "i": 0, "u": 0, "b": False, "d": 0.0, "f": 0}
WIRE = {"s": 2, "x": 2, "i": 0, "u": 0, "b": 0, "d": 1, "f": 1}


class Message:
    def __init__(self, kind):
        self.kind, self.set = kind, []
        for name, type_ in MESSAGES[kind].values():
            setattr(self, name, [] if type_[0] == "*" else EMPTY[type_] if type_ in EMPTY else None)
            if type_ in MESSAGES:
                setattr(self, name, LazyEmpty(type_))

    def WhichOneof(self, group):
        """All fields of the messages that ask for it but names and units are of one group."""
        mine = {"data": ("gauge", "sum", "histogram"), "value": tuple(x for x in self.set if x.startswith("as_"))}
        names = [x for x in self.set if self.kind == "AnyValue" or x in mine.get(group, ())]
        return names[-1] if names else None


class LazyEmpty:
    """A message that is not there reads as an empty one; it is made when somebody looks."""

    def __init__(self, kind):
        self.kind_of = kind

    def __getattr__(self, name):
        return getattr(Message(self.kind_of), name)


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def convert(type_, value):
    if type_ == "s":
        return value.decode("utf-8")
    if type_ == "b":
        return bool(value)
    if type_ == "i":
        return value - (1 << 64) if value >> 63 else value
    if type_ == "d":
        return struct.unpack("<d", value)[0]
    if type_ == "f":
        return struct.unpack("<Q", value)[0]
    return value


def parse(kind, data):
    m, at = Message(kind), 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag >> 3 not in MESSAGES[kind]:
            raise ValueError(f"{kind} has no field {tag >> 3}")
        name, type_ = MESSAGES[kind][tag >> 3]
        one = type_.lstrip("*")
        packed = type_ in ("*f", "*d")
        if tag & 7 != (2 if packed or one in MESSAGES else WIRE[one]):
            raise ValueError(f"{kind}.{name} has wire type {tag & 7}")
        if tag & 7 == 0:
            raw, at = varint(data, at)
        else:
            n, at = (8, at) if tag & 7 == 1 else varint(data, at)
            raw, at = data[at:at + n], at + n
            if len(raw) != n or at > len(data):
                raise ValueError(f"{kind}.{name} is cut short")
        if packed:
            getattr(m, name).extend(convert(one, raw[i:i + 8]) for i in range(0, len(raw), 8))
        else:
            value = parse(one, raw) if one in MESSAGES else convert(one, raw)
            if type_[0] == "*":
                getattr(m, name).append(value)
            else:
                setattr(m, name, value)
        m.set.append(name)
    return m
