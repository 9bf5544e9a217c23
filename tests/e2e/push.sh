#!/bin/bash
# Proves: a finished A/B arrives in a real Prometheus Pushgateway; without one it is kept and sent later; what
# the gateway refuses is told in its own words.
. "$(dirname "$0")/lib.sh" "$@"
have prometheus-pushgateway || { echo "SKIPPED: no prometheus-pushgateway here"; exit 77; }
have curl || { echo "SKIPPED: no curl here"; exit 77; }

"$QDYNO" ab default q8_0 -w tg16 --max-blocks 6 --control 0 --budget 20s >"$T/out" 2>"$T/err"
expect 0 history -o json && json 'd["rows"][0]["state"] == "done"' || { cat "$T/out"; finish; }

port=$(free_port)
expect 7 push 1 --url "http://127.0.0.1:$port" --timeout 3s && says err 'kept'
expect 0 doctor && says out '1 outcomes waiting'

prometheus-pushgateway --web.listen-address="127.0.0.1:$port" --persistence.file="$T/gateway.data" >"$T/gateway.log" 2>&1 &
gateway=$!
pids+=("$gateway")
for _ in $(seq 100); do curl -fs "http://127.0.0.1:$port/-/ready" >/dev/null && break; sleep 0.1; done

expect 0 push --url "http://127.0.0.1:$port" -o json && json 'd["pushed"] is True and d["waiting"] == 0'
curl -fs "http://127.0.0.1:$port/metrics" >"$T/metrics" || fail "the gateway does not answer"
for name in qdyno_ab_blocks qdyno_ab_verdict qdyno_experiment_last_run_timestamp_seconds qdyno_model_info; do
  grep -q "^$name" "$T/metrics" || fail "no $name on the gateway"
done
grep '^qdyno_ab_blocks' "$T/metrics" | grep -q 'job="qdyno"' || fail "no job label"
grep '^qdyno_ab_blocks' "$T/metrics" | grep -q 'machine="' || fail "no machine label"
groups=$(grep -c '^push_time_seconds' "$T/metrics")
expect 0 push 1 --url "http://127.0.0.1:$port"
[ "$(curl -fs "http://127.0.0.1:$port/metrics" | grep -c '^push_time_seconds')" = "$groups" ] || fail "a second push made a second group"

# from the environment; the address wrong
QDYNO_PUSH_URL="http://127.0.0.1:$port" "$QDYNO" push 1 >"$T/out" 2>"$T/err" || fail "QDYNO_PUSH_URL is not used"
expect 4 push 1 --url "ftp://127.0.0.1"
expect 4 push 1 --url "http://127.0.0.1:$port/nowhere" --timeout 5s && says err '404'
kill "$gateway" && wait "$gateway" 2>/dev/null
finish
