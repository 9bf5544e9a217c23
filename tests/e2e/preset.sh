#!/bin/bash
# Proves: a preset measures all scenarios of a folder as runs of their own and prints one table; what a model cannot run
# is a row with the reason; a preset that was killed goes on behind its last complete scenario, repeats none and loses
# none; another model, other files and --again measure anew; broken scenario files are refused with file and line.
. "$(dirname "$0")/lib.sh" "$@"
[ -n "$PYTHON" ] || { echo "SKIPPED: no python3 to read documents with"; exit 77; }

expect 0 synth --shape tiny -R f16 "$T/tiny.gguf" || finish
P=$T/mine
mkdir "$P"
printf '# as it is\n\n  workload pp8\nworkload tg4  \n' >"$P/a.conf"
printf 'config q8_0\nworkload tg4@b2\nrepetitions 2\n' >"$P/b.conf"
printf 'config parallel=tp64\r\nworkload tg4\r\n' >"$P/c.conf"
printf 'not read' >"$P/notes.txt"
bench() { expect "$1" bench -m "$T/tiny.gguf" --preset "$P" -r 1 -o json "${@:2}"; }
runs() { "$QDYNO" history -o json 2>/dev/null | python3 -c 'import json,sys; print(len(json.load(sys.stdin)["rows"]))'; }

echo "one table"
bench 0
json '[r["scenario"] for r in d["rows"]] == ["a", "a", "b", "c"] and [r["workload"] for r in d["rows"][:3]] == ["pp8", "tg4", "tg4@b2"]'
json 'd["rows"][0]["prefill_tok_s"] > 0 and d["rows"][1]["decode_tok_s"] > 0 and d["rows"][2]["config"] == "q8_0" and d["rows"][2]["sequences"] == 2'
json 'd["rows"][0]["run"] == d["rows"][1]["run"] != d["rows"][2]["run"] and d["rows"][3]["run"] is None'
json '"heads" in d["rows"][3]["error"] and not d["rows"][0]["error"]'
json 'all(r["repetitions"] == 1 for r in d["rows"][:3]) and d["summary"]["exit_status"] == 0 and d["preset"].endswith("mine")'
[ "$(runs)" = 2 ] || fail "$(runs) runs instead of 2"
cp "$T/out" "$T/first"

echo "measured once"
bench 0 && [ "$(runs)" = 2 ] || fail "$(runs) runs after the second call instead of 2"
python3 - "$T/first" "$T/out" <<'PY' || fail "other rows without measuring"
import json, sys
a, b = (json.load(open(p))["rows"] for p in sys.argv[1:])
sys.exit(a[:3] != b[:3])
PY
printf 'config q8_0\nworkload tg4@b2\nworkload tg4\n' >"$P/b.conf"
bench 0 && [ "$(runs)" = 3 ] || fail "a changed scenario is not measured"
bench 0 --again && [ "$(runs)" = 5 ] || fail "--again: $(runs) runs instead of 5"
expect 0 synth --shape tiny --seed 2 -R f16 "$T/other.gguf"
expect 0 bench -m "$T/other.gguf" --preset "$P" -r 1 -o json && [ "$(runs)" = 7 ] || fail "another model: $(runs) runs instead of 7"
bench 4 -r 2 && says err 'given twice'
[ "$(runs)" = 7 ] || fail "refused flags measure"

echo "killed and continued"
rm "$P/c.conf"
for name in d e f; do printf 'workload tg%d\n' $((${#name} + 40)) >"$P/$name.conf"; done
printf 'workload tg400\nrepetitions 10000\n' >"$P/e.conf"
: >"$T/err"
"$QDYNO" bench -m "$T/tiny.gguf" --preset "$P" >/dev/null 2>"$T/err" &
pid=$!
for _ in $(seq $((WAIT_S * 10))); do grep -q 'scenario 4 of 5' "$T/err" && break; sleep 0.1; done
for _ in $(seq $((WAIT_S * 10))); do "$QDYNO" history -o json | grep -q '"running"' && break; sleep 0.1; done
kill -9 $pid; wait $pid 2>/dev/null
before=$(runs)
expect 0 history -o json && json 'd["rows"][0]["state"] == "interrupted"'
printf 'workload tg5\n' >"$P/e.conf" # the other one would take hours
expect 0 bench -m "$T/tiny.gguf" --preset "$P" -o json && json '[r["scenario"] for r in d["rows"]] == ["a", "a", "b", "b", "d", "e", "f"] and not any(r["error"] for r in d["rows"])'
[ "$(runs)" = $((before + 2)) ] || fail "continued: $(runs) runs instead of $((before + 2))"

echo "refused"
refuse() { # TEXT PATTERN
  mkdir -p "$T/bad"
  printf "$1" >"$T/bad/x.conf"
  expect 5 bench --preset "$T/bad" && says err "$2"
}
refuse 'workload tg4\nspeed high\n' "x.conf:2: expected 'config LINE'.*found 'speed high'"
refuse 'workload\n' 'x.conf:1'
refuse 'workload tg4\nworkload nonsense\n' 'x.conf:2: .*nonsense'
refuse 'config q99\nworkload tg4\n' 'x.conf:1: .*q99'
refuse 'config q8_0\nconfig q4_0\nworkload tg4\n' 'x.conf:2: expected one config'
refuse 'repetitions 0\nworkload tg4\n' 'x.conf:1: expected one number'
refuse '# nothing\n' "expected a line 'workload"
refuse 'workload tg4\0\n' 'byte 0'
expect 4 bench --preset "$T/none" && says err 'main quick all'
mkdir "$T/empty" && expect 4 bench --preset "$T/empty" && says err 'no scenarios'
expect 4 bench --preset quick -w tg4 && says err 'leave -w out'
expect 4 bench --again && says err '\-\-preset'

echo "shipped"
expect 0 bench --preset quick -m "$T/tiny.gguf" -r 1 -o json && json 'len({r["scenario"] for r in d["rows"]}) >= 3 and not any(r["error"] for r in d["rows"])'
finish
