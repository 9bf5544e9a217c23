#!/bin/bash
# Proves: `qdyno serve` answers real HTTP clients as docs/serve.md says: completions and chat as documents and as
# streams, errors, log-probabilities, the prefix cache; too many requests are refused; clients that go away at any moment
# cost nothing that remains; settings change while requests are served, and the dashboard shows the server; SIGTERM lets running requests end, and --drain limits that; no key, no use from other
# machines. 500 random requests with random disconnects end as exactly one outcome each, no block of the KV cache and no
# memory is lost.
. "$(dirname "$0")/lib.sh" "$@"
[ -n "$PYTHON" ] || { echo "SKIPPED: no python3 for clients"; exit 77; }
clients=$(dirname "$0")/server_clients.py
unset QDYNO_API_KEY

# serve ARGUMENTS...: starts the server, with one thread, because on a busy machine threads would wait for each other; $url is its address, $serving its process.
serve() {
  : >"$T/serve"
  "$QDYNO" serve --port 0 -o json --threads=1 "$@" >"$T/serve" 2>"$T/serve.err" &
  serving=$!
  pids+=("$serving")
  for _ in $(seq 600); do [ -s "$T/serve" ] && break; sleep 0.1; done
  url=$(sed -n 's/.*"url": *"\(http[^"]*\)\/v1".*/\1/p' "$T/serve")
  [ -n "$url" ] || fail "serve says nothing: $(cat "$T/serve" "$T/serve.err")"
}
# stops SIGNAL STATUS: the server ends.
stops() {
  kill "-$1" "$serving"
  wait "$serving"
  local got=$?
  [ "$got" = "$2" ] || fail "serve ended by SIG$1 with status $got, want $2: $(cat "$T/serve.err")"
}
# clients TEST ARGUMENTS...
clients() {
  python3 "$clients" "$1" "$url" "${@:2}" >"$T/out" 2>"$T/err" || fail "$*: $(tail -4 "$T/err")"
}

# what cannot be
expect 4 serve --port 70000
expect 4 serve --host 0.0.0.0 --port 0 && says err 'API key'
expect 4 serve --host example.com --port 0
expect 4 serve --parallel 0
expect 5 serve -m "$T/missing.gguf"
printf 'two words\n' >"$T/key"
expect 4 serve --api-key-file "$T/key" --port 0 && says err 'visible ASCII'
: >"$T/key"
expect 4 serve --api-key-file "$T/key" --port 0 && says err 'is empty'
expect 5 serve --api-key-file "$T/no-key" --port 0

# documents, streams, errors
serve --max-body 1M
cp "$T/serve" "$T/out" && json 'd["schema"] == "qdyno.serve/1" and d["chat"] is False and d["max_sequences"] == 8'
grep -q 'no chat template' "$T/serve.err" || fail "nothing is said about the missing template"
expect 7 serve --port "${url##*:}" && says err 'another program uses this port'
clients completions
clients errors
# a person's client
if have curl; then
  curl -sN --max-time 60 "$url/v1/completions" -H 'Content-Type: application/json' -d '{"prompt": "One day", "stream": true}' >"$T/out" 2>"$T/err"
  says out '^data: \{"id":"cmpl-[0-9a-f]{24}","object":"text_completion"' && says out '^data: \[DONE\]$'
  have promtool && { curl -s --max-time 60 "$url/metrics" | promtool check metrics >"$T/out" 2>&1 || fail "promtool: $(head -3 "$T/out")"; }
else
  skip "no curl"
fi
stops TERM 0
grep -Eq '^[0-9]+ requests: completed [0-9]+, refused [0-9]+' "$T/serve.err" || fail "no totals: $(tail -2 "$T/serve.err")"
[ -e "$XDG_DATA_HOME/qdyno/qdyno.db" ] && fail "serving wrote to the database"

# chat, by a template of the user; every schedule
cat >"$T/template" <<'JINJA'
{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}
{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}
JINJA
serve --template "$T/template" --name tiny
clients chat
stops INT 0
serve --template "$T/template" --parallel 1 -c 128
clients fills 96
stops TERM 0
for schedule in prefill_first static dynamic; do
  serve --schedule "$schedule"
  clients completions
  stops TERM 0
done

# the key
printf 'sesame-open-0123456789\n' >"$T/key"
serve --api-key-file "$T/key" --host 0.0.0.0
url=http://127.0.0.1:${url##*:}
clients key sesame-open-0123456789
tr '\0' ' ' <"/proc/$serving/cmdline" | grep -q sesame && fail "the key is in the command line"
stops TERM 0
grep -q sesame "$T/serve.err" "$T/serve" && fail "the key was printed"
QDYNO_API_KEY=sesame-open-0123456789 serve
clients key sesame-open-0123456789
stops TERM 0

# settings change while requests are served; the dashboard shows the server, also one with a key
serve --parallel 8
clients settings
expect 0 dashboard --server "$url/v1/" --frames 40 && says out "server ${url#http://}  b" && says out 'arrived' && says out 'blocks of 32'
stops TERM 0
expect 0 dashboard --server "$url" --frames 12 && says out 'cannot reach'
expect 4 dashboard --server 'not an address' --frames 1
QDYNO_API_KEY=sesame-open-0123456789 serve
expect 0 dashboard --server "$url" --frames 40 && says out '401'
expect 0 dashboard --server "$url" --api-key-file "$T/key" --frames 40 && says out 'arrived'
stops TERM 0

# govern serves through it: the config changes under load and no request is lost
expect 4 govern f32 q4_0 --rule memory=2G --port 0 && says err 'expected --rule queue'
expect 4 govern f32 q4_0 --rule queue=2 -n 5 && says err '--port'
govern() {
  : >"$T/serve.err"
  "$QDYNO" govern "$@" --rule queue=2 --threads=1 --port 0 -o json >"$T/govern" 2>"$T/serve.err" &
  serving=$!
  pids+=("$serving")
  for _ in $(seq 600); do grep -q '^serving http' "$T/serve.err" && break; sleep 0.1; done
  url=$(sed -n 's/^serving \(http.*\)\/v1$/\1/p' "$T/serve.err")
  [ -n "$url" ] || fail "govern does not serve: $(cat "$T/serve.err")"
}
govern f32 q4_0,kv_blocks=5,max_sequences=1
clients some_levels 128
stops TERM 0
govern f32 q8_0 q4_0 --parallel 2 --every 100ms
clients governed q4_0
kill -TERM "$serving"
wait "$serving" || fail "govern ended with status $?: $(cat "$T/serve.err")"
cp "$T/govern" "$T/out"
json 'd["run"] is None and d["switches"][0]["to"].startswith("q8_0") and any(s["to"].startswith("q4_0") for s in d["switches"]) and d["rows"][2]["loaded"] and sum(r["requests"] for r in d["rows"]) > 0'

# goodput
expect 4 serve --slo 'ttft<quick' --port 0 && says err 'itl_p99<60ms'
expect 4 serve --slo 'speed<5ms' --port 0
serve --slo 'ttft<1h,itl_p99<1h,queue<1h'
clients one_of_each
clients goodput 1 0
stops TERM 0
serve --slo 'ttft<1h,e2e<1ms'
clients one_of_each
clients goodput 0 1
stops TERM 0

# a trace for each request, also for one that is refused; a collector that is away is reported once and disturbs nothing
here=$(dirname "$0")
mkdir "$T/otlp"
python3 "$here/otlp_collector.py" "$T/otlp" 2>"$T/otlp/log" &
pids+=("$!")
for _ in $(seq 600); do [ -s "$T/otlp/port" ] && break; sleep 0.1; done
serve --otlp "http://127.0.0.1:$(cat "$T/otlp/port")"
clients one_of_each
stops TERM 0
for body in "$T"/otlp/*.body; do python3 "$here/../telemetry/otlp_decode.py" traces "$body"; done >"$T/spans" 2>"$T/err"
python3 - "$T/spans" >"$T/out" 2>"$T/err" <<'PY' || fail "spans are not as they should be: $(tail -2 "$T/err")"
import json, sys
spans = [json.loads(line) for line in open(sys.argv[1])]
roots = {s["attributes"]["qdyno.outcome"]: s for s in spans if not s["parent"]}
assert set(roots) == {"completed", "refused"}, roots
root = roots["completed"]
parts = {s["name"]: s for s in spans if s["parent"] == root["id"]}
assert set(parts) == {"queue", "prefill", "decode"} and root["name"] == "text_completion bundled", (parts, root)
assert root["attributes"]["gen_ai.usage.output_tokens"] == 20 and root["attributes"]["gen_ai.response.finish_reasons"] == ["length"], root
assert not [s for s in spans if s["parent"] == roots["refused"]["id"]]
PY
serve --otlp "http://127.0.0.1:$(free_port)"
clients one_of_each
stops TERM 0
[ "$(grep -c 'collector was not reached' "$T/serve.err")" = 1 ] || fail "an absent collector: $(cat "$T/serve.err")"

# a slow model, so that requests can be caught in the middle
expect 0 synth --shape 15M "$T/slow.gguf" || finish
serve -m "$T/slow.gguf" --parallel 1 --queue 1 -c 2048
clients overload
stops TERM 0

# SIGTERM: a stream that runs is completed, new requests are refused; --drain ends what takes longer; a second signal ends
# at once
serve -m "$T/slow.gguf" -c 2048 --drain 5m
clients drain "$serving"
wait "$serving" || fail "after draining: status $?"
serve -m "$T/slow.gguf" -c 2048 --drain 100ms
clients cut_off "$serving"
wait "$serving" || fail "after cutting off: status $?"
grep -q 'stopped 1' "$T/serve.err" || fail "no totals: $(tail -2 "$T/serve.err")"
serve -m "$T/slow.gguf" -c 2048 --drain 5m
clients killed "$serving"
wait "$serving"
[ $? = 130 ] || fail "after two signals: not 130"

# random requests and disconnects, also with a cache that is too small for all
serve --kv_blocks 48 --parallel 6 --queue 40
clients memory 500 1
stops TERM 0
lost() { # requests without an outcome, from the line of totals
  sed -n 's/^\([0-9]*\) requests: \([^;]*\);.*/\1 \2/p' "$T/serve.err" | awk '{n = $1; for (i = 3; i <= NF; i += 2) n -= $i; print n}'
}
[ "$(lost)" = 0 ] || fail "requests without an outcome: $(tail -1 "$T/serve.err")"
serve --kv_blocks 40 --parallel 6 --preempt swap --batch 64
clients random_requests 150 3
stops TERM 0
finish
