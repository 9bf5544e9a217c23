#!/bin/bash
# Proves: the workload may be part of an arm of `ab`: two -w make two arms, both rates are measured, and resume, replay,
# show, csv and the report know the workload of each arm. What cannot be compared is refused unless --as-systems is given.
. "$(dirname "$0")/lib.sh" "$@"
[ -n "$PYTHON" ] || { echo "SKIPPED: no python3 to read JSON with"; exit 77; }

# Refused before anything is measured.
expect 4 ab -w pp64 -w tg64 && says err 'arm A \(pp64\) and arm B \(tg64\) do different work.*--as-systems'
expect 4 ab -w tg8 -w tg8@b4 --metric ttft_s && says err 'ttft_s of arm A \(tg8\) and of arm B \(tg8@b4\)'
expect 4 ab -w tg8 -w tg8@b4 --gate 'energy_j < A' && says err 'energy_j of arm A'
expect 4 ab f16 q8_0 q4_0 -w tg8 -w tg16 && says err '3 config lines and 2 workloads'
expect 4 ab -w tg8 -w load:concurrency=2,requests=4,in=8,out=4 && says err 'must all'
expect 4 ab f16 q8_0 -w tg8 --as-systems && says err 'expected several -w'
expect 4 ab -w tg8 -w tg8@b4 --turns on && says err '--turns off'
expect 4 ab -w tg1 -w tg2 -w tg3 -w tg4 -w tg5 -w tg6 -w tg7 -w tg8 -w tg9 && says err 'at most 8 workloads, got 9'
expect 4 ab f16 -w tg8 && says err 'expected 2 to 8 config lines, got 1'

measured() { # STATUS: a verdict of any kind, or none within the budget
  [ "$1" -le 3 ] || fail "status $1"
}
"$QDYNO" ab q8_0 -w tg8 -w tg8@b4 --max-blocks 6 --control 0 --warmup 1 --processes kept --budget 30s -o json >"$T/out" 2>"$T/err"
measured $?
json 'd["workload"] == "tg8 vs tg8@b4" and [a["workload"] for a in d["arms"]] == ["tg8", "tg8@b4"]'
json '[a["config"] for a in d["arms"]] == ["q8_0", "q8_0"] and d["metric"] == "total_tok_s" and not d["as_systems"]'
# The rate of a sequence is the total divided by how many run, in each arm.
json 'all(abs(a["total_tok_s"] / a["sequence_tok_s"] / n - 1) < 1e-6 for a, n in zip(d["arms"], (1, 4)))'
json 'abs(d["arms"][0]["total_tok_s"] / d["arms"][0]["decode_tok_s"] - 1) < 0.5'
json '{"total_tok_s", "sequence_tok_s"} <= set(d["by_metric"]) and not {"ttft_s", "energy_j"} & set(d["by_metric"])'
json '"on tg8@b4" in d["summary"]["text"]'
cp "$T/out" "$T/first.json"
expect 0 show 1 -o csv
python3 - "$T/out" <<'PY' || fail "csv: the workload of each arm"
import csv, sys
rows = list(csv.DictReader(open(sys.argv[1])))
assert [r["workload"] for r in rows] == [r["arm_workload"] for r in rows] == ["tg8", "tg8@b4"], rows
PY
expect 0 show 1 -o md && says out 'sequence_tok_s: '
expect 0 report 1 --out "$T/r.md" && grep -q 'tg8@b4`)' "$T/r.md" || fail "the report does not name the arms' workloads"
grep -q 'qdyno ab.* q8_0 q8_0 -w tg8 -w .\?tg8@b4' "$T/r.md" || fail "the report's command does not repeat the workloads"
expect 0 history -o json && json 'd["rows"][0]["workload"] == "tg8 vs tg8@b4"'

# A stopped run goes on with the workloads of its arms; a replay measures them again.
"$QDYNO" replay 1 --budget 20s -o json >"$T/out" 2>"$T/err"
measured $?
expect 0 show 2 -o json && json '[a["workload"] for a in d["arms"]] == ["tg8", "tg8@b4"] and d["blocks"] + d["discarded"] > 0'
"$QDYNO" ab f16 q8_0 -w pp16 -w tg8 --as-systems --control 0 --warmup 1 --processes kept --budget 300s >/dev/null 2>"$T/err" &
pid=$!
pids+=($pid)
for _ in $(seq $((WAIT_S * 10))); do
  "$QDYNO" show 3 -o json >"$T/out" 2>/dev/null && [ "$(value 'd["blocks"] + d["discarded"]')" -ge 1 ] && break
  kill -0 $pid 2>/dev/null || break
  sleep 0.1
done
kill -9 $pid 2>/dev/null
wait $pid 2>/dev/null
cp "$T/out" "$T/before.json"
"$QDYNO" ab --resume 3 --max-blocks 8 --budget 10s -o json >"$T/out" 2>"$T/err"
status=$?
if [ "$status" = 4 ] && grep -q finished "$T/err"; then
  skip "the run ended before it was stopped"
else
  measured $status
  json '[a["workload"] for a in d["arms"]] == ["pp16", "tg8"] and d["as_systems"] and "ompared as systems" in d["summary"]["text"]'
  json '[a["config"] for a in d["arms"]] == ["f16", "q8_0"] and d["arms"][0]["decode_tok_s"] is None and d["arms"][1]["prefill_tok_s"] is None'
  python3 - "$T/before.json" "$T/out" <<'PY' || fail "--resume did not keep what was finished"
import json, sys
a, b = (json.load(open(f)) for f in sys.argv[1:])
assert a["log_ratios"] == b["log_ratios"][:len(a["log_ratios"])], (a["log_ratios"], b["log_ratios"])
PY
fi
expect 4 ab --resume 3 --as-systems && says err 'leave --as-systems out'

# Loads that differ in concurrency are compared by their own metric.
"$QDYNO" ab -w load:concurrency=1,requests=6,in=8,out=4 -w load:concurrency=3,requests=6,in=8,out=4 --max-blocks 6 \
  --control 0 --warmup 1 --budget 2s -o json >"$T/out" 2>"$T/err"
measured $?
json 'd["metric"] == "out_tok_s" and d["arms"][1]["workload"].startswith("load:") and d["arms"][1]["total_tok_s"] is None'

# Each arm has its reason once, as the run prints it and from the database: 6 blocks are too few for two challengers.
"$QDYNO" ab handicap=0 handicap=0 handicap=0 -w tg8 --max-blocks 6 --control 0 --warmup 1 --budget 120s >"$T/first" 2>"$T/err"
"$QDYNO" show "$(sed -n 's/.*to print it again: qdyno show //p' "$T/first")" >"$T/again" 2>>"$T/err"
for text in first again; do
  [ "$(grep -c 'with this noise reliably show only' "$T/$text")" = 2 ] || { cat "$T/$text" >>"$T/err"; fail "$text: a reason twice"; }
done

# One -w stays what it was: nothing new is measured.
"$QDYNO" ab q8_0 f16 -w tg8 --max-blocks 6 --control 0 --warmup 1 --processes kept --budget 15s -o json >"$T/out" 2>"$T/err"
measured $?
json 'd["workload"] == "tg8" and d["arms"][1]["total_tok_s"] is None and "total_tok_s" not in d["by_metric"]'
finish
