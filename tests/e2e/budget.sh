#!/bin/bash
# Proves: --budget is kept within a tenth, or the run says why it is not: `ab` with and without quality, `baseline
# check`, `replay`, `claims quant` and the confirmation of `tune`. Where it cannot be kept, the run says so before its
# first block. Time is what the program accounts for, so a busy machine changes nothing.
. "$(dirname "$0")/lib.sh" "$@"
[ -n "$PYTHON" ] || { echo "SKIPPED: no python3 to read JSON with"; exit 77; }
AB=(default q8_0 -w tg16 --control 2)

# run ARGUMENTS...: whatever its verdict is
run() {
  "$QDYNO" "$@" >"$T/out" 2>"$T/err" </dev/null
  local status=$?
  [ $status -le 3 ] || fail "qdyno $*: status $status"
}
run ab "${AB[@]}" --budget 6s -o json && first=$(value 'd["run"]')
run ab "${AB[@]}" --budget 8s --quality --quality-chunks 2 --quality-ctx 64 -o json &&
  json 'd["comparisons"][0]["quality"]["chunks"] == 2'
run ab "${AB[@]}" --budget 1s --quality --quality-chunks 64 -o json &&
  json 'd["comparisons"][0]["quality"] is not None' &&
  json '[("takes longer than its budget" in e["text"]) for e in d["events"]].count(True) == 1' &&
  json 'min(i for i, e in enumerate(d["events"]) if "takes longer than its budget" in e["text"]) < min([i for i, e in enumerate(d["events"]) if "A/A control" in e["text"] or "quality of arm" in e["text"]])'
"$QDYNO" replay "$first" --budget 4s >"$T/out" 2>"$T/err" </dev/null
[ $? -le 3 ] || says err 'no valid block' # on a very busy machine there is nothing to repeat
expect 0 baseline set best default -w tg16
run baseline check best q8_0 --budget 4s
run claims quant -w tg16 --budget 5s
run tune --space "recipe=file|q8_0,threads=1" -w tg16 --budget 12s --dry-run

# every experiment of these commands
runs=$("$QDYNO" history -o csv | sed -n 's/^\([0-9]*\),[^,]*,ab,.*/\1/p')
[ "$(wc -w <<<"$runs")" -ge 5 ] || fail "fewer than 5 experiments were stored: $runs"
for id in $runs; do
  expect 0 show "$id" -o json && cp "$T/out" "$T/run.json"
  python3 - "$T/data/qdyno/qdyno.db" "$id" "$T/run.json" <<'PY' || fail "run $id does not keep its budget and does not say why"
import json, sqlite3, sys
spec, = sqlite3.connect(sys.argv[1]).execute("SELECT spec_json FROM run WHERE id = ?", (sys.argv[2],)).fetchone()
budget, run = json.loads(spec)["budget_s"], json.load(open(sys.argv[3]))
said = [e["text"] for e in run["events"] if "takes longer than its budget" in e["text"] or "more than a tenth over its budget" in e["text"]]
print("run %s: %.1f s of %.0f s%s" % (sys.argv[2], run["elapsed_s"], budget, "; " + said[0] if said else ""))
sys.exit(not (run["elapsed_s"] <= 1.1 * budget + 0.05 or said))
PY
done
finish
