#!/bin/bash
# Proves: an artificial slowdown of known size is found in decoding and in prompts, with about its size. A machine that
# is too busy skips this test visibly; any verdict other than "worse" fails.
. "$(dirname "$0")/lib.sh" "$@"
[ -n "$PYTHON" ] || { echo "SKIPPED: no python3 to read JSON with"; exit 77; }

expect 4 ab default handicap=101% -w tg8 && says err 'from 0 to 100'

# B waits 30 % of every step, so its rate is 1/1.3 of A's: -23 %. The interval tells it, or misses it by less than 3 %:
# the estimate of a few blocks on a busy machine may lie far from it, within an interval that says so. There the slowdown
# is larger, too: whoever waits gets the processor back late.
SIZE='d["effect"]["lower"] < 1.03 / 1.3 and (d["effect"]["upper"] > 0.97 / 1.3 or d["summary"]["estimand"] == "loaded")'

# slowed WORKLOAD: runs a second time if the first run misses it, as one interval in twenty may.
slowed() {
  local status
  for _ in 1 2; do
    "$QDYNO" ab default handicap=30% -w "$1" --budget 45s -o json >"$T/out" 2>"$T/err" </dev/null
    status=$?
    [ $status = 1 ] && [ "$(value "$SIZE")" = True ] && break
  done
  [ $status = 3 ] && { skip "$1: $(value 'd["reason"]')"; return; }
  [ $status = 2 ] && [ "$(value 'd["blocks"]')" -lt 6 ] && { skip "$1: $(value 'd["reason"]')"; return; }
  [ $status = 1 ] || { fail "$1: status $status, want 1 (worse)"; return; }
  json 'd["verdict"] == "worse" and d["arms"][1]["merged"]["handicap"] == 30'
  json "d['effect']['upper'] < 1 and $SIZE"
  echo "$1: $(value '"%+.1f %% (%+.1f to %+.1f %%) after %d blocks" % (*(100 * (d["effect"][k] - 1) for k in ("ratio", "lower", "upper")), d["blocks"])')"
}
slowed tg64
slowed pp64
finish
