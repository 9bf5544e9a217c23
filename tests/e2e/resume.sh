#!/bin/bash
# Proves: an A/B that is killed loses at most the running block; --resume keeps every finished one.
. "$(dirname "$0")/lib.sh" "$@"
[ -n "$PYTHON" ] || { echo "SKIPPED: no python3 to read JSON with"; exit 77; }

"$QDYNO" ab default q8_0 -w tg16 --max-blocks 8 --control 2 --budget 90s >/dev/null 2>"$T/err" &
pid=$!
pids+=($pid)
# Until the first block is in the database, be it of the control. On a machine that others use it may have been
# discarded: then that it was is what must survive.
finished=0
for _ in $(seq $((WAIT_S * 10))); do
  if "$QDYNO" show 1 -o json >"$T/out" 2>/dev/null; then
    finished=$(value 'len(d["log_ratios"]) + d["discarded"] + d["control"]["blocks"] + d["control"]["discarded"]')
    [ "${finished:-0}" -ge 1 ] && break
  fi
  kill -0 $pid 2>/dev/null || break
  sleep 0.1
done
workers=$(pgrep -P $pid)
kill -9 $pid 2>/dev/null
wait $pid 2>/dev/null
[ "${finished:-0}" -ge 1 ] || { fail "no block was finished"; finish; }
[ -n "$workers" ] || fail "no worker was running"
alive() { case $(ps -o stat= -p "$1" 2>/dev/null) in '' | Z*) return 1 ;; esac; } # a zombie waits for init, no more
for _ in $(seq 600); do
  left=
  for w in $workers; do alive "$w" && left="$left $w"; done
  [ -z "$left" ] && break
  sleep 0.1
done
[ -z "$left" ] || fail "workers outlived the killed workbench:$left"

expect 0 show 1 -o json && json 'd["state"] not in ("done", "invalid")'
cp "$T/out" "$T/before.json"
"$QDYNO" ab --resume 1 --budget 90s -o json >"$T/out" 2>"$T/err"
status=$?
[ $status -le 3 ] || fail "--resume: status $status"
json 'd["run"] == 1 and d["state"] == "done" and d["verdict"]'
python3 - "$T/before.json" "$T/out" <<'PY' || fail "--resume did not keep what was finished"
import json, sys
a, b = (json.load(open(f)) for f in sys.argv[1:])
near = lambda x, y: all(abs(p - q) < 1e-9 for p, q in zip(x, y)) and len(x) <= len(y)
if a["estimand"] == b["estimand"]: # on a busy machine the run may change to blocks that were disturbed, too
    assert near(a["log_ratios"], b["log_ratios"]), (a["log_ratios"], b["log_ratios"])
    assert near(a["control"]["log_ratios"], b["control"]["log_ratios"]), (a["control"], b["control"])
assert a["discarded"] <= b["discarded"] and a["started"] == b["started"]
assert a["control"]["discarded"] <= b["control"]["discarded"]
count = lambda d: d["blocks"] + d["discarded"] + d["control"]["blocks"] + d["control"]["discarded"]
assert count(a) < count(b), "nothing was measured after the kill"
assert [e["text"] for e in a["events"]] == [e["text"] for e in b["events"]][:len(a["events"])]
PY
case $(value 'd["verdict"]') in
inconclusive | invalid) skip "the run settled nothing, so it may be resumed again" ;;
*) expect 4 ab --resume 1 && says err 'is finished' ;;
esac
expect 4 ab --resume 1 -m other.gguf && says err 'leave -m out'
finish
