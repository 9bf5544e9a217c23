#!/bin/bash
# Proves: a finished A/B arrives at an OpenTelemetry collector as one trace with correct nesting and as metrics,
# decoded with the official protobuf definitions if python3 has them, else by our own decoder; a second push gives the
# same trace; busy, refusing, partial and absent collectors are handled as docs/monitoring.md states; secrets are
# neither stored nor printed.
. "$(dirname "$0")/lib.sh" "$@"
[ -n "$PYTHON" ] || { echo "SKIPPED: no python3 to stand in for a collector"; exit 77; }
here=$(dirname "$0")
OTLP_PYTHON=${QDYNO_TEST_PYTHON:-python3}

# collector FOLDER [PORT]: starts one; its address is in $address
collector() {
  mkdir -p "$1"
  python3 "$here/otlp_collector.py" "$@" 2>"$1/log" &
  pids+=("$!")
  for _ in $(seq $((WAIT_S * 10))); do [ -s "$1/port" ] && break; sleep 0.1; done
  address=http://127.0.0.1:$(cat "$1/port") || fail "no collector"
}
requests() { find "$1" -name '*.body' | wc -l; }

# the cache is empty, so the arms quantize while they load
"$QDYNO" ab default q4_0 -w pp8+tg16 --max-blocks 6 --control 0 --budget 20s --turns off >"$T/out" 2>"$T/err"
expect 0 history -o json && json 'd["rows"][0]["state"] == "done"' || { cat "$T/out"; finish; }

# no collector: the run is stored, reported, and sent by the next push
expect 7 push 1 --otlp "http://127.0.0.1:$(free_port)" --timeout 3s && says err 'is stored'
"$QDYNO" doctor >"$T/out" 2>"$T/err"
says out ' 1 run waiting for a collector'
collector "$T/first"
echo 503 >"$T/first/plan"
echo '429 1' >>"$T/first/plan"
expect 0 push 1 --otlp "$address" -o json && json 'd["spans"] > 20 and d["points"] > 5 and d["traces_waiting"] == 1'
json 'd["url"] is None and d["pushed"] is None'
[ "$(requests "$T/first")" = 4 ] || fail "503, 429, trace, metrics: $(requests "$T/first") requests"
cmp -s "$T/first/001.body" "$T/first/003.body" || fail "what is sent again is not the same"
[ "$(cat "$T/first/003.path" "$T/first/004.path")" = /v1/traces/v1/metrics ] || fail "paths"
grep -qi '^content-type: application/x-protobuf' "$T/first/003.headers" || fail "content type"

# a second push gives the same trace
expect 0 push 1 --otlp "$address/" && cmp -s "$T/first/003.body" "$T/first/005.body" || fail "a second push is another trace"

# contents of trace and metrics
"$OTLP_PYTHON" "$here/../telemetry/otlp_decode.py" traces "$T/first/003.body" >"$T/spans" 2>"$T/err"
case $? in
0)
  grep -q otlp_wire "$T/err" && skip "no opentelemetry-proto for $OTLP_PYTHON (QDYNO_TEST_PYTHON): read by hand, not with the official definitions"
  "$OTLP_PYTHON" "$here/../telemetry/otlp_decode.py" metrics "$T/first/004.body" >"$T/points" 2>"$T/err" || fail "metrics: $(cat "$T/err")"
  python3 - "$T/spans" "$T/points" >"$T/err" 2>&1 <<'PY' || fail "spans or points are not as they should be"
import json, sys
spans, points = ([json.loads(line) for line in open(path)] for path in sys.argv[1:])
by = {s["id"]: s for s in spans}
names = {}
for s in spans:
    names.setdefault(s["name"].split(" ")[0], []).append(s)
parents = lambda name: {by[s["parent"]]["name"].split(" ")[0] for s in names[name] if s["parent"]}
print({k: len(v) for k, v in names.items()})
assert len(names["experiment"]) == 1 and len(names["block"]) >= 1, names.keys()
assert parents("block") == {"experiment"} and parents("text_completion") == {"experiment", "block"}
assert parents("prefill") == parents("decode") == {"text_completion"}
assert parents("load") <= {"experiment", "block"} and "experiment" in parents("load")
assert len(names["quantize"]) == 1 and parents("quantize") == {"load"}, "made once, then it is in the cache"
root = names["experiment"][0]["attributes"]
assert root["qdyno.run.id"] == 1 and root["qdyno.verdict"] and root["qdyno.arms"] == ["default", "q4_0"]
for s in names["text_completion"]:
    a = s["attributes"]
    assert s["kind"] == 3 and a["gen_ai.operation.name"] == "text_completion" and a["gen_ai.provider.name"] == "qdyno"
    assert s["name"] == "text_completion " + a["gen_ai.request.model"]
    for key, of in (("input", 8), ("output", 16)):
        n = a[f"gen_ai.usage.{key}_tokens"]
        assert type(n) is int and n == of * a["qdyno.cell.repeats"], (key, n, a)
    assert type(a["gen_ai.response.time_to_first_chunk"]) is float and a["qdyno.arm"] in "AB"
    children = [c for c in spans if c["parent"] == s["id"]]
    assert children[0]["name"] == "prefill" and children[1]["name"] == "decode"
    assert sum(c["end"] - c["start"] for c in children) <= s["end"] - s["start"]
for s in names["block"]:
    assert s["attributes"]["qdyno.block.kept"] == (s["status"] != 2), s
resource = names["experiment"][0]["resource"]
assert resource["service.name"] == "qdyno" and resource["service.version"] and resource["host.id"] == root["qdyno.machine.id"]
found = {p["name"]: p for p in points}
verdicts = [p for p in points if p["name"] == "qdyno_ab_verdict"]
assert sum(p["value"] for p in verdicts) == 1, verdicts
assert [p for p in verdicts if p["value"]][0]["attributes"]["verdict"] == root["qdyno.verdict"]
assert found["qdyno_ab_decode_tokens_per_second"]["value"] > 0 and found["qdyno_experiment_duration_seconds"]["unit"] == "s"
PY
  ;;
*) fail "the trace: $(cat "$T/err")" ;;
esac

# the collector from the environment; its headers are sent, but not stored or printed
collector "$T/second"
export OTEL_EXPORTER_OTLP_ENDPOINT=$address OTEL_EXPORTER_OTLP_HEADERS='api-key=s3%20cret' OTEL_SERVICE_NAME=lab
expect 0 push && grep -qi '^api-key: s3 cret' "$T/second/001.headers" || fail "headers of the environment are not sent"
grep -q lab "$T/second/001.body" || fail "OTEL_SERVICE_NAME is not sent"
echo '400 no spans of yours' >"$T/second/plan"
expect 4 push 1 && says err 'no spans of yours'
echo 'partial 7 too old' >"$T/second/plan"
expect 4 push 1 && says err '7 rejected: too old'
echo html >"$T/second/plan"
expect 4 push 1 && says err 'is it the address of a collector'
echo 500 >"$T/second/plan"
expect 4 push 1
echo '503 3600' >"$T/second/plan"
expect 7 push 1 && says err 'is stored'
OTEL_EXPORTER_OTLP_PROTOCOL=grpc "$QDYNO" push 1 >"$T/out" 2>"$T/err" && fail "grpc is not refused"
says err 'http/protobuf'
grep -qa 's3 cret\|s3%20cret' "$XDG_DATA_HOME/qdyno/qdyno.db"* && fail "a secret is in the database"
expect 0 push 1 -o json && json 'd["traces_sent_late"] == 0 and d["traces_waiting"] == 1' # its own wait is over
unset OTEL_EXPORTER_OTLP_ENDPOINT OTEL_EXPORTER_OTLP_HEADERS OTEL_SERVICE_NAME

# stored runs are sent as soon as their collector is back
"$QDYNO" bench -p 8 -n 4 -r 1 >"$T/out" 2>"$T/err" || fail "bench"
port=$(free_port)
expect 7 push 2 --otlp "http://127.0.0.1:$port" --timeout 3s
expect 7 push 1 --otlp "http://127.0.0.1:$port" --timeout 3s
collector "$T/third" "$port"
expect 0 push 1 --otlp "$address" -o json && json 'd["traces_sent_late"] == 1'
[ "$(requests "$T/third")" = 3 ] || fail "trace, metrics, and the trace of the bench: $(requests "$T/third") requests"
"$OTLP_PYTHON" "$here/../telemetry/otlp_decode.py" traces "$T/third/003.body" >"$T/spans" 2>"$T/err" || fail "the trace of a bench: $(cat "$T/err")"
for name in bench load prefill decode; do grep -q "\"name\": \"$name\"" "$T/spans" || fail "a bench without $name"; done

# gateway and collector: a failure of one does not affect the other, and each gets only its own token
collector "$T/both"
export QDYNO_PUSH_BEARER=of-the-gateway
expect 7 push 1 --url "http://127.0.0.1:$(free_port)" --otlp "$address" --timeout 3s && says err 'stored'
unset QDYNO_PUSH_BEARER
[ "$(requests "$T/both")" = 2 ] || fail "the collector was not told: $(requests "$T/both") requests"
grep -qi 'of-the-gateway' "$T"/both/*.headers && fail "the gateway's token went to the collector"
"$OTLP_PYTHON" "$here/../telemetry/otlp_decode.py" traces "$T/both/001.body" >"$T/spans" 2>"$T/err" || fail "the trace: $(cat "$T/err")"
python3 - "$T/spans" >"$T/err" 2>&1 <<'PY' || fail "the push in the trace"
import json, sys
spans = list(map(json.loads, open(sys.argv[1])))
(push,), (root,) = ([s for s in spans if s["name"] == name] for name in ("push", "experiment"))
assert push["links"] == [root["trace"]] and push["trace"] != root["trace"] and push["start"] > root["end"]
assert push["status"] == 2 and "cannot reach" in push["message"], push
PY

# serve-metrics --otlp: a busy collector gets the next values
collector "$T/live"
echo '503 100' >"$T/live/plan"
"$QDYNO" serve-metrics --port 0 --otlp "$address" --otlp-every 1s >"$T/out" 2>"$T/err" &
server=$!
pids+=("$server")
for _ in $(seq $((WAIT_S * 10))); do [ "$(requests "$T/live")" -ge 2 ] && break; sleep 0.1; done
kill "$server" && wait "$server" || fail "serve-metrics: status $?"
says err 'is unavailable now' && says err 'accepts values again'
grep -qa qdyno_cpu_busy_ratio "$T/live/002.body" || fail "no sensors in what was sent"
"$OTLP_PYTHON" "$here/../telemetry/otlp_decode.py" metrics "$T/live/002.body" >"$T/points" 2>"$T/err"
case $? in
0) grep -q '"process.cpu.time", "kind": "sum"' "$T/points" && grep -q '"gen_ai.server.inter_token_latency", "kind": "histogram"' "$T/points" || fail "no process, no latencies" ;;
*) fail "metrics: $(cat "$T/err")" ;;
esac
expect 4 serve-metrics --otlp-every 5s && says err '--otlp URL'

# run --otlp
collector "$T/run"
expect 0 run -p 'One day' -n 12 -C q4_0 --otlp "$address" && [ -s "$T/out" ] || fail "run --otlp"
grep -qa 'One day' "$T/run/001.body" && fail "the prompt is told"
"$OTLP_PYTHON" "$here/../telemetry/otlp_decode.py" traces "$T/run/001.body" >"$T/spans" 2>"$T/err"
case $? in
0) python3 - "$T/spans" >"$T/err" 2>&1 <<'PY' || fail "the spans of a generation" ;;
import json, sys
spans = {s["name"].split(" ")[0]: s for s in map(json.loads, open(sys.argv[1]))}
by = {s["id"]: s for s in spans.values()}
assert {n: by[s["parent"]]["name"].split(" ")[0] for n, s in spans.items() if s["parent"]} == {
    "load": "run", "text_completion": "run", "prefill": "text_completion", "decode": "text_completion"}, spans.keys()
a = spans["text_completion"]["attributes"]
assert a["gen_ai.usage.output_tokens"] == 12 and a["gen_ai.usage.input_tokens"] >= 2
assert a["gen_ai.response.finish_reasons"] == ["length"] and a["gen_ai.response.time_to_first_chunk"] > 0
PY
*) fail "the trace of a generation: $(cat "$T/err")" ;;
esac
expect 7 run -p 'One day' -n 2 --otlp "http://127.0.0.1:$(free_port)" && [ -s "$T/out" ] || fail "run without its collector"

# refusals
QDYNO_PUSH_URL='' expect 4 push 1 && says err 'Pushgateway'
expect 4 push 1 --otlp ftp://127.0.0.1
expect 4 push 1 --otlp "$address/v1/traces" && says err "without '/v1/traces'"
expect 4 push 9 --otlp "$address" && says err 'no run'
finish
