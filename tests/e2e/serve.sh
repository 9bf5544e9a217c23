#!/bin/bash
# Proves: a real Prometheus scrapes the page and a Pushgateway, and a query over HTTP returns the verdict of an
# experiment, its histograms and the gauges of the machine; the page survives a missing, locked or replaced database
# and reports it; the server listens only where requested and ends with status 0.
. "$(dirname "$0")/lib.sh" "$@"
have curl || { echo "SKIPPED: no curl here"; exit 77; }

# serve ARGUMENTS...: starts the server; $page is its address, $serving its process.
serve() {
  : >"$T/serve"
  "$QDYNO" serve-metrics --port 0 -o json "$@" >"$T/serve" 2>"$T/serve.err" &
  serving=$!
  pids+=("$serving")
  for _ in $(seq $((WAIT_S * 10))); do [ -s "$T/serve" ] && break; sleep 0.1; done
  page=$(sed -n 's/.*"url": *"\(http[^"]*\)\/metrics".*/\1/p' "$T/serve")
  [ -n "$page" ] || fail "serve-metrics says nothing: $(cat "$T/serve" "$T/serve.err")"
}
# stops SIGNAL: the server ends with status 0 and releases its port.
stops() {
  kill "-$1" "$serving"
  wait "$serving"
  local got=$?
  [ "$got" = 0 ] || fail "serve-metrics ended by SIG$1 with status $got"
  curl -fs --max-time 60 "$page/metrics" >/dev/null && fail "somebody still listens"
}
look() { curl -fs --max-time 60 "$page/metrics" >"$T/metrics" || fail "no page"; }
shows() { grep -Eq "$1" "$T/metrics" || fail "the page has no '$1'"; }

# without a database: the page has the machine and reports the missing database
serve
look
shows '^qdyno_database_up 0$' && shows '^qdyno_mem_used_bytes ' && shows '^qdyno_build_info\{.*version=' && shows '^process_resident_memory_bytes '
[ -e "$XDG_DATA_HOME/qdyno/qdyno.db" ] && fail "who only looks made a database"
[ "$(curl -s --max-time 60 -o "$T/out" -w '%{http_code}' "$page/")" = 200 ] && says out '/metrics'
[ "$(curl -s --max-time 60 -o /dev/null -w '%{http_code}' "$page/-/healthy")" = 200 ] || fail "not healthy"
[ "$(curl -s --max-time 60 -o /dev/null -w '%{http_code}' "$page/nowhere")" = 404 ] || fail "/nowhere is somewhere"
[ "$(curl -s --max-time 60 -o /dev/null -w '%{http_code}' -X POST -d x "$page/metrics")" = 405 ] || fail "POST is taken"
[ "$(curl -sI --max-time 60 -o "$T/out" -w '%{http_code}' "$page/metrics")" = 200 ] && says out '^Content-Type: text/plain; version=0.0.4'
expect 7 serve-metrics --port "${page##*:}" && says err 'another program uses this port'
expect 4 serve-metrics --port 70000
expect 4 serve-metrics --port 0 --listen example.com && says err 'not a numeric address'
expect 4 serve-metrics --port 0 --listen 192.0.2.77 && says err 'not an address of this machine'

# new measurements appear on the page
"$QDYNO" ab default q8_0 -w pp32+tg16 --max-blocks 6 --control 0 --budget 20s >"$T/out" 2>"$T/err"
"$QDYNO" history -o json >"$T/out" && json 'd["rows"][0]["state"] == "done"' || { cat "$T/out"; finish; }
look
shows '^qdyno_database_up 1$' && shows '^qdyno_database_runs\{kind="ab",state="done"\} 1$'
shows '^qdyno_ab_verdict\{experiment=.*verdict="better"\} [01]$' && shows '^qdyno_canary_read_bytes_per_second [0-9]'
shows '^qdyno_time_to_first_token_seconds_bucket\{model=".+",workload="pp32\+tg16",le="\+Inf"\} [1-9]'
have promtool && { promtool check metrics <"$T/metrics" >"$T/lint" 2>&1 || fail "promtool: $(head -3 "$T/lint")"; }
if [ -n "$PYTHON" ]; then
  # the histograms count the values of the database: buckets rise to the count, sums are exact
  python3 - "$T/metrics" "$XDG_DATA_HOME/qdyno/qdyno.db" <<'PY' || fail "the page does not say what the database says"
import array, re, sqlite3, sys
page = open(sys.argv[1], encoding="utf-8").read()
db = sqlite3.connect(sys.argv[2])
tokens = seconds = itl = slow = 0
for n, seq, blob, raw in db.execute("SELECT r.n, sequences, figures_f32, seconds_f32 FROM request r LEFT JOIN itl USING(cell_id)"):
    f = array.array("f", blob)
    tokens += sum(f[1::5])
    seconds += sum(f[4::5])
    steps = array.array("f", raw or b"")
    itl += len(steps) * seq
    slow += sum(seq for s in steps if s > 0.01)
def value(name):
    return sum(float(x) for x in re.findall(r"^%s\{[^\n]*\} (\S+)$" % name, page, re.M))
assert tokens > 0 and value("qdyno_generated_tokens_total") == tokens
assert abs(value("qdyno_generate_seconds_total") - seconds) < 1e-6 * seconds
assert value("qdyno_inter_token_latency_seconds_count") == itl
below = sum(float(x) for x in re.findall(r'^qdyno_inter_token_latency_seconds_bucket\{[^\n]*le="0.01"\} (\S+)$', page, re.M))
assert itl - below == slow
for name in re.findall(r"# TYPE (\S+) histogram", page):
    edges = [float(x) for x in re.findall(r"^%s_bucket\{[^\n]*\} (\S+)$" % name, page, re.M)]
    assert edges == sorted(edges) and edges[-1] == value(name + "_count"), name
PY
  # a locked database: the page repeats the old values and marks them as old
  python3 - "$XDG_DATA_HOME/qdyno/qdyno.db" <<'PY' &
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA locking_mode = EXCLUSIVE")
db.execute("BEGIN EXCLUSIVE")
db.execute("CREATE TABLE lock(x)")
time.sleep(250)
PY
  locker=$!
  pids+=("$locker")
  for _ in $(seq $((WAIT_S * 10))); do look; grep -q '^qdyno_database_up 0$' "$T/metrics" && break; sleep 0.1; done
  shows '^qdyno_database_up 0$' && shows '^qdyno_ab_verdict\{' && shows '^qdyno_generated_tokens_total\{.*\} [1-9]'
  kill "$locker"; wait "$locker" 2>/dev/null
  for _ in $(seq $((WAIT_S * 10))); do look; grep -q '^qdyno_database_up 1$' "$T/metrics" && break; sleep 0.1; done
  shows '^qdyno_database_up 1$'
fi

# another database file: its values replace the old ones; and back again
db=$XDG_DATA_HOME/qdyno
mkdir "$db/away" && mv "$db"/qdyno.db* "$db/away/"
look
shows '^qdyno_database_up 0$'
"$QDYNO" history >/dev/null 2>&1
look
shows '^qdyno_database_up 1$'
grep -Eq '^qdyno_(generated_tokens_total|ab_verdict)' "$T/metrics" && fail "the page tells of a database that is gone"
rm "$db"/qdyno.db* && mv "$db"/away/* "$db/"
look
shows '^qdyno_ab_verdict\{' && shows '^qdyno_generated_tokens_total\{.*\} [1-9]'
stops TERM

# only the loopback address unless another one is given
serve
address=$(hostname -I 2>/dev/null | cut -d' ' -f1)
if [ -n "$address" ]; then
  curl -fs --max-time 5 "http://$address:${page##*:}/metrics" >/dev/null && fail "a page for everybody, and nobody asked for it"
else
  skip "no other address than loopback here"
fi
stops INT
serve --listen 0.0.0.0
[ -z "$address" ] || curl -fs --max-time 5 "http://$address:${page##*:}/-/healthy" >/dev/null || fail "--listen 0.0.0.0 is not everywhere"
page=http://127.0.0.1:${page##*:}

# a real Prometheus scrapes the page and a gateway every three seconds: a busy machine takes longer than one to answer
if have prometheus && have prometheus-pushgateway; then
  gateway=$(free_port)
  prometheus-pushgateway --web.listen-address="127.0.0.1:$gateway" --persistence.file= >"$T/gateway.log" 2>&1 &
  pids+=($!)
  port=$(free_port)
  cat >"$T/prometheus.yml" <<YML
global: { scrape_interval: 3s, scrape_timeout: 3s }
scrape_configs:
  - job_name: qdyno
    static_configs: [{ targets: ['${page#http://}'] }]
  - job_name: pushgateway
    honor_labels: true
    static_configs: [{ targets: ['127.0.0.1:$gateway'] }]
YML
  prometheus --config.file="$T/prometheus.yml" --storage.tsdb.path="$T/tsdb" --web.listen-address="127.0.0.1:$port" >"$T/prometheus.log" 2>&1 &
  pids+=($!)
  for _ in $(seq $((WAIT_S * 10))); do curl -fs --max-time 5 "http://127.0.0.1:$gateway/-/ready" >/dev/null && break; sleep 0.1; done
  expect 0 push 1 --url "http://127.0.0.1:$gateway"
  # ask QUERY PATTERN: until the answer matches
  ask() {
    for _ in $(seq $((WAIT_S * 5))); do
      curl -fsG --max-time 5 "http://127.0.0.1:$port/api/v1/query" --data-urlencode "query=$1" >"$T/out" 2>/dev/null && grep -Eq "$2" "$T/out" && return
      sleep 0.2
    done
    fail "Prometheus, asked for $1: $(head -c 300 "$T/out")"
  }
  ask 'qdyno_ab_verdict{job="qdyno",instance="",verdict="invalid"}' '"result":\[\{.*"experiment":".*"machine":"[0-9a-f]{12}".*"value":\[[0-9.]+,"[01]"\]'
  ask 'count(qdyno_ab_verdict == 1) by (job)' '"value":\[[0-9.]+,"[12]"\]'
  ask 'qdyno_ab_verdict{instance=~".+"}' '"result":\[\{'
  ask 'histogram_quantile(0.95, sum by (le) (qdyno_inter_token_latency_seconds_bucket))' '"value":\[[0-9.]+,"[0-9.e-]+"\]'
  ask 'qdyno_mem_used_bytes / qdyno_mem_total_bytes' '"value":\[[0-9.]+,"0\.[0-9]+"\]'
  ask 'up{job="qdyno"}' '"value":\[[0-9.]+,"1"\]'
else
  skip "no prometheus and prometheus-pushgateway: nobody scrapes"
fi
stops TERM
finish
