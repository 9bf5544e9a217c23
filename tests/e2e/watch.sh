#!/bin/bash
# Proves: `watch` works for scripts, services and Prometheus: exit statuses of --once; an alert reaches a webhook as
# JSON, is not repeated after a restart, and its end arrives in order although nobody listened for a while; SIGTERM
# ends with 0 and no partial work, SIGHUP reopens the log; a slow config is rolled back to that of the champion; the
# shipped rules load into a real Prometheus and pass promtool, as do the expressions of the board.
. "$(dirname "$0")/lib.sh" "$@"
here=$(dirname "$0")
unset QDYNO_WATCH_URL QDYNO_WATCH_PASSWORD QDYNO_WATCH_BEARER QDYNO_ALERTMANAGER_BEARER

# switch off alerts that the test machine may raise itself: busy, hot or full
quiet=()
for name in $("$QDYNO" watch --print-alerts -o csv | tail -n +2 | cut -d, -f1 | tr -d '"'); do quiet+=("$name=off"); done
[ ${#quiet[@]} -ge 20 ] || fail "only ${#quiet[@]} alerts are printed"
printf '%s\n' "${quiet[@]}" >"$T/off"
long=(watch --alerts "$T/off" --even-if-busy -w tg4096 -r 1000)
watch=(watch --alerts "$T/off" --even-if-busy -r 2)

# ---- refusals
expect 4 watch --alert memry=90% --once && says err "did you mean 'memory'"
expect 4 watch --alert memory=95 --once && says err 'a share such as'
expect 4 watch --once -o csv && says err 'md or jsonl'
expect 4 watch --once --webhook ftp://x && says err 'webhook'
expect 4 watch --once --rollback "$T/none" && says err 'baseline set'
expect 4 watch --once --baseline none && says err "no baseline 'none'"
expect 4 watch --once --baseline x -w tg16 && says err 'leave -m'
expect 4 watch --every 0.1s -w tg16 && says err 'at least 1s'
expect 5 watch --once -m "$T/none.gguf" -w tg16
echo 'memory=80%:1m extra' >"$T/bad"
expect 4 watch --once --alerts "$T/bad" && says err 'line 1'

# ---- --once
expect 0 "${watch[@]}" --once -w tg16 && says out 'not enough history yet \(0 of 1\)'
expect 0 "${watch[@]}" --once -w tg16 --alert performance=99% && says out 'against its own first rounds'
expect 1 "${watch[@]}" --once -w tg16 --alert memory=1% --alert performance=99% && says out 'firing +warning: memory: .* of memory is in use \(limit 1 %\)'
expect 1 "${watch[@]}" --once --alert memory=1% && ! grep -q ' firing ' "$T/out" || fail "a second run tells again"
expect 0 "${watch[@]}" --once && says out 'resolved .*memory: switched off' && says out '0 still firing'
expect 0 watch --list -o json && json 'len(d["rows"]) == 1 and d["rows"][0]["alert"] == "memory" and d["rows"][0]["reason"] == "switched off"'
expect 0 history -o json && json 'all(r["kind"] == "watch" and r["state"] == "done" for r in d["rows"]) and len(d["rows"]) == 3'

# ---- a webhook that is down at first
if have python3; then
  port=$(free_port)
  hook=http://127.0.0.1:$port/hook
  expect 1 "${watch[@]}" --once --alert memory=1% --webhook "$hook" && says out 'does not accept notices'
  expect 0 "${watch[@]}" --once --alert memory=100% --webhook "$hook" && says out 'resolved .*memory'
  cat >"$T/hook.py" <<'PY'
import http.server, json, sys
class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open(sys.argv[2], "ab") as f:
            f.write(json.dumps({"path": self.path, "type": self.headers["Content-Type"],
                                "auth": self.headers["Authorization"], "body": json.loads(body)}).encode() + b"\n")
        self.send_response(200); self.end_headers()
    def log_message(self, *a): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Hook).serve_forever()
PY
  python3 "$T/hook.py" "$port" "$T/heard" &
  pids+=($!)
  for _ in $(seq $((WAIT_S * 10))); do (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break; sleep 0.1; done
  export QDYNO_WATCH_BEARER=s3cret QDYNO_ALERTMANAGER_BEARER=another
  "$QDYNO" "${watch[@]}" --every 1h --webhook "$hook" --alert memory=1%:1s --alertmanager "http://127.0.0.1:$port" \
    --log "$T/watch.log" -o jsonl >"$T/lines" 2>"$T/err" &
  daemon=$!
  pids+=("$daemon")
  heard() { [ -e "$T/heard" ] && [ "$(grep -c "$1" "$T/heard")" -ge "$2" ]; }
  for _ in $(seq $((WAIT_S * 10))); do heard '"/hook"' 3 && heard '/api/v2/alerts' 1 && break; sleep 0.1; done
  mv "$T/watch.log" "$T/watch.log.1"
  kill -HUP "$daemon"
  for _ in $(seq $((WAIT_S * 10))); do [ -e "$T/watch.log" ] && break; sleep 0.1; done
  [ -e "$T/watch.log" ] || fail "SIGHUP does not open the log anew"
  kill -TERM "$daemon" && wait "$daemon"
  status=$?
  [ $status = 0 ] || fail "SIGTERM: status $status, want 0"
  unset QDYNO_WATCH_BEARER QDYNO_ALERTMANAGER_BEARER
  python3 - "$T/heard" "$T/lines" "$T/watch.log.1" <<'PY' || fail "what the webhook heard is not what happened: $(head -c 600 "$T/heard")"
import json, sys
heard = [json.loads(l) for l in open(sys.argv[1])]
hook = [h["body"] for h in heard if h["path"] == "/hook"]
assert [b["status"] for b in hook] == ["firing", "resolved", "firing"], hook  # in order, each once
for b in hook:
    assert b["schema"] == "qdyno.alert/1" and b["alert"] == "memory" and b["severity"] == "warning"
    assert b["threshold"] == (1 if b["status"] == "resolved" else 0.01) and 0 < b["value"] <= 1
    assert b["labels"]["alertname"] == "QdynoMemory" and len(b["machine"]) == 12 and b["since"].endswith("Z")
    assert (b["ended"] is None) == (b["status"] == "firing")
am = [h for h in heard if h["path"] == "/api/v2/alerts"]
assert am and am[-1]["body"][0]["labels"]["alertname"] == "QdynoMemory" and am[-1]["body"][0]["startsAt"]
tokens = {"/hook": "Bearer s3cret", "/api/v2/alerts": "Bearer another"}  # a secret of one never reaches the other
assert all(h["auth"] == tokens[h["path"]] and h["type"] == "application/json" for h in heard), heard
lines = [json.loads(l) for l in open(sys.argv[2])]
assert [l["event"] for l in lines][0] == "start" and "firing" in [l["event"] for l in lines]
assert all(l["schema"] == "qdyno.watch/1" for l in lines)
assert open(sys.argv[3]).read() in open(sys.argv[2]).read()
PY
  expect 1 "${watch[@]}" --once --alert memory=1% --webhook "$hook" # a restart: it still fires, and is not told again
  sleep 0.3
  [ "$(grep -c '"/hook"' "$T/heard")" = 3 ] || fail "a restart tells the webhook again"
else
  skip "no python3: no webhook"
fi

# ---- stopped in the middle of a measurement
"$QDYNO" "${long[@]}" >"$T/lines" 2>"$T/err" &
daemon=$!
pids+=("$daemon")
running() { "$QDYNO" history -o jsonl 2>/dev/null | head -1 | grep -q '"running"'; }
for _ in $(seq $((WAIT_S * 10))); do running && break; sleep 0.1; done
running || fail "no measurement begins"
expect 4 watch --once && says err 'a watch already uses'
kill -TERM "$daemon" && wait "$daemon"
status=$?
[ $status = 0 ] || fail "SIGTERM in a cell: status $status, want 0"
expect 0 history -o json && json 'd["rows"][0]["state"] == "stopped" and not [r for r in d["rows"] if r["state"] == "running"]'

# ---- a worker that is stopped: the round fails with that reason, and the watch goes on
worker_of() {
  local p
  for p in $(pgrep -P "$1"); do
    tr '\0' ' ' <"/proc/$p/cmdline" 2>/dev/null | grep -q ' worker' && echo "$p" && return 0
  done
  return 1
}
"$QDYNO" "${long[@]}" --every 1h -o jsonl >"$T/lines" 2>"$T/err" &
daemon=$!
pids+=("$daemon")
for _ in $(seq 6000); do w=$(worker_of "$daemon") && break; sleep 0.01; done
kill -STOP "$w" || fail "no worker was found"
for _ in $(seq 600); do grep -q 'stopped by a signal' "$T/lines" && break; sleep 0.1; done
grep -q '"event":"failed".*the worker was stopped by a signal' "$T/lines" || fail "a stopped worker is not reported: $(tail -1 "$T/lines")"
kill -0 "$w" 2>/dev/null && fail "the stopped worker still lives"
kill -TERM "$daemon" && wait "$daemon"
status=$?
[ $status = 0 ] || fail "SIGTERM after a stopped worker: status $status, want 0"

# ---- back to the champion
expect 0 baseline set best default -w tg24
expect 0 "${watch[@]}" --once && says out 'not enough history yet' # it has no number: its first rounds are it
if have python3; then # a number that this machine cannot reach: what is too slow is not left to the noise of the test
  python3 -c 'import sqlite3,sys; d=sqlite3.connect(sys.argv[1]); d.execute("UPDATE baseline SET value = 1e6"); d.commit()' "$T/data/qdyno/qdyno.db"
  printf '# ours\nisa=ref\n' >"$T/model.conf"
  expect 1 "${watch[@]}" --once --alert performance=2% --rollback "$T/model.conf" && says out 'against baseline best' &&
    says out 'rolled back to default'
  tail -n 1 "$T/model.conf" | grep -qx default || fail "the champion's config was not written: $(cat "$T/model.conf")"
  grep -qx 'isa=ref' "$T/model.conf.previous" || fail "the file before is gone"
  expect 1 "${watch[@]}" --once --alert performance=2% --rollback "$T/model.conf" && says out 'the rollback (helped|did not help)' &&
    says out 'switched off|not watched any more'
else
  skip "no python3: no rollback"
fi

# ---- Prometheus
"$QDYNO" watch --print-board | cmp - "$here/../../share/monitoring/grafana-qdyno.json" || fail "--print-board prints another board than the one that ships"
if have promtool; then
  "$QDYNO" watch --print-rules >"$T/qdyno.rules.yml"
  promtool check rules "$T/qdyno.rules.yml" >"$T/out" 2>&1 || fail "promtool check rules: $(cat "$T/out")"
  cp "$here/qdyno.rules.test.yml" "$T"
  (cd "$T" && promtool test rules qdyno.rules.test.yml) >"$T/out" 2>&1 || fail "promtool test rules: $(cat "$T/out")"
  if have python3; then # every expression of the board, as rules
    "$QDYNO" watch --print-board >"$T/board.json"
    python3 - "$T/board.json" >"$T/board.rules.yml" <<'PY'
import json, sys
print("groups:\n  - name: board\n    rules:")
n = 0
for panel in json.load(open(sys.argv[1]))["panels"]:
    for target in panel.get("targets", []):
        e = target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*").replace("$machine", ".*")
        print(f"      - record: board:expression:{n}\n        expr: {json.dumps(e)}")
        n += 1
PY
    promtool check rules "$T/board.rules.yml" >"$T/out" 2>&1 && grep -Eq '(2|3)[0-9] rules' "$T/out" ||
      fail "the board's expressions: $(cat "$T/out")"
  fi
else
  skip "no promtool: the rules are not checked"
fi
if have prometheus && have curl; then # the live page, scraped, with rules that must fire
  "$QDYNO" serve-metrics --port 0 -o json >"$T/page" 2>"$T/err" &
  pids+=($!)
  for _ in $(seq $((WAIT_S * 10))); do grep -q '"url"' "$T/page" && break; sleep 0.1; done
  page=$(grep -o '127.0.0.1:[0-9]*' "$T/page" | head -1)
  port=$(free_port)
  "$QDYNO" watch --print-rules --alert memory=1%:0s --alert stale=0s >"$T/qdyno.rules.yml"
  cat >"$T/prometheus.yml" <<YML
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [qdyno.rules.yml]
scrape_configs: [{job_name: qdyno, static_configs: [{targets: ['$page']}]}]
YML
  prometheus --config.file="$T/prometheus.yml" --storage.tsdb.path="$T/tsdb" --web.listen-address="127.0.0.1:$port" >"$T/prometheus.log" 2>&1 &
  pids+=($!)
  for _ in $(seq $((WAIT_S * 10))); do
    curl -fs "http://127.0.0.1:$port/api/v1/alerts" >"$T/out" && grep -q '"QdynoMemory"' "$T/out" && grep -q '"QdynoStale"' "$T/out" && break
    sleep 0.1
  done
  json 'sum(a["labels"]["alertname"] in ("QdynoMemory", "QdynoStale") and a["state"] == "firing" for a in d["data"]["alerts"]) == 2'
  curl -fs "http://127.0.0.1:$port/api/v1/rules" >"$T/out"
  json 'len([r for g in d["data"]["groups"] for r in g["rules"]]) >= 25 and all(r["health"] == "ok" for g in d["data"]["groups"] for r in g["rules"])'
  curl -fsG "http://127.0.0.1:$port/api/v1/query" --data-urlencode 'query=qdyno_watch_performance_ratio' >"$T/out"
  json 'any("tg24" in r["metric"]["subject"] and float(r["value"][1]) > 0 for r in d["data"]["result"])'
else
  skip "no prometheus: the rules are not loaded"
fi

# ---- the service
unit=$(dirname "$QDYNO")/share/monitoring/qdyno-watch.service
if have systemd-analyze; then
  mkdir -p "$T/unit"
  sed "s|/usr/bin/qdyno|$(readlink -f "$QDYNO")|" "$unit" >"$T/unit/qdyno-watch.service"
  systemd-analyze verify "$T/unit/qdyno-watch.service" >"$T/out" 2>&1 || fail "systemd-analyze verify: $(cat "$T/out")"
  # exposure from 0 (all rights taken away) to 10; versions before 250 cannot read a file
  if systemd-analyze security --offline=true "$T/unit/qdyno-watch.service" >"$T/out" 2>&1; then
    exposure=$(sed -n 's/.*Overall exposure level.*: \([0-9.]*\) .*/\1/p' "$T/out")
    awk -v x="$exposure" 'BEGIN { exit !(x != "" && x < 3) }' || fail "the service's exposure is $exposure, expected below 3"
  else
    skip "systemd-analyze cannot judge a unit file"
  fi
else
  skip "no systemd-analyze: the service is not verified"
fi
finish
