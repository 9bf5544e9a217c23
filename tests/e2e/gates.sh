#!/bin/bash
# Proves: `ab --gate` exits with 0, 1, 2 or 3 if its condition passed, failed, is undecided, or the run is invalid;
# --quality measures each challenger once and `show` prints it again; impossible requests are refused before anything
# runs. The conditions concern quality, or speed differences of factors of thousands, so they hold on a busy machine.
. "$(dirname "$0")/lib.sh" "$@"
FAST=(-w tg4 --control 0 --warmup 1 --budget 1s --min-blocks 6 --max-blocks 6)
TEXT=(--quality-ctx 32 --quality-chunks 6)

# gate STATUS EXPRESSION ARGUMENTS...
gate() {
  local want=$1 text=$2
  shift 2
  expect "$want" ab "${FAST[@]}" "${TEXT[@]}" --gate "$text" "$@"
}

gate 0 'kld_mean < 10 and top1 >= 0 and not ppl_ratio > 100' default q8_0 -o json &&
  json 'd["gate"]["outcome"] == "pass" and [t["outcome"] for t in d["gate"]["arms"][0]["terms"]] == ["pass", "pass", "fail"]' &&
  json 'd["comparisons"][0]["quality"]["chunks"] == 6 and d["comparisons"][0]["quality"]["kld_lower"] <= d["comparisons"][0]["quality"]["kld_mean"]' &&
  json 'd["joint"]["arms"][1]["axes"]["quality"]["margin"] == 0.02 and d["joint"]["arms"][1]["sentence"].startswith("q8_0: ")' &&
  cp "$T/out" "$T/first.json"
[ -z "$PYTHON" ] || {
  # The seconds that more blocks would take are known only while the experiment runs.
  expect 0 show "$(value 'd["run"]')" -o json &&
    json 'all(d[k] == json.load(open("'"$T"'/first.json"))[k] for k in ("gate", "joint"))' &&
    json '[{**c, "reason": None} for c in d["comparisons"]] == [{**c, "reason": None} for c in json.load(open("'"$T"'/first.json"))["comparisons"]]'
}
gate 1 'kld_mean > 10' default q8_0 && says out 'B gate: fail' && says out '  fail +kld_mean > 10: ' &&
  says out 'B quality \(the bundled [a-z -]*, 6 windows of 32 tokens\): KLD'
# 6 windows of 32 tokens give 90 positions: too few for a p99
gate 2 'kld_p99 < 1' default q8_0 && says out 'undecided +kld_p99 < 1: the text is too short for it'
# a failed condition decides even if another one is unknown
gate 1 'kld_p99 < 1 and kld_mean > 10' default q8_0
gate 0 'kld_p99 < 1 or kld_mean < 10' default q8_0
# all conditions must hold for all challengers
gate 1 'kld_mean < 10' --gate 'kld_max < 0' default q8_0 && says out 'fail +kld_max < 0'
gate 1 'kld_mean < 1e-9' default default q4_0 -o json &&
  json '[a["outcome"] for a in d["gate"]["arms"]] == ["pass", "fail"] and d["gate"]["outcome"] == "fail"' &&
  json 'd["comparisons"][0]["quality"]["kld_max"] == 0 and d["comparisons"][0]["quality"]["first_divergence"]["diverged"] == 0'
gate 0 'kld_mean < 10' default q4_0 --kld-margin 5 -o json && json 'd["joint"]["arms"][1]["axes"]["quality"]["word"] == "equivalent"'
gate 0 'kld_mean < 10' default q4_0 --kld-margin 1e-6 && says out 'q4_0. .*quality loss .*above the limit of 1e-06'

# two vocabularies: tokens are not the same work, but speed can be compared, and quality in bits per byte
expect 0 synth --shape tiny "$T/a.gguf" && expect 0 synth --shape tiny --arch gpt2 "$T/b.gguf"
expect 0 ab "${FAST[@]/1s/60s}" --gate 'decode_tok_s > 0' model="$T/a.gguf" model="$T/b.gguf" -o json &&
  json 'd["gate"]["outcome"] == "pass" and d["comparisons"][0]["quality"] is None'
expect 2 ab "${FAST[@]}" "${TEXT[@]}" --gate 'kld_mean < 10' model="$T/a.gguf" model="$T/b.gguf" -o json &&
  json 'd["comparisons"][0]["quality"]["bits_per_byte"]["change"] is not None' &&
  json '"same vocabulary" in d["gate"]["arms"][0]["terms"][0]["reason"] and "kld_mean" not in d["comparisons"][0]["quality"]'
printf 'too short' >"$T/short"
expect 2 ab "${FAST[@]}" --quality="$T/short" --gate 'kld_mean < 10' default q8_0 && says out 'quality of arm B is unknown: the text has'

# --quality without a gate does not change the exit status; csv contains its values
"$QDYNO" ab "${FAST[@]}" "${TEXT[@]}" --quality default q8_0 -o csv >"$T/out" 2>"$T/err" </dev/null
says out 'kld_mean,kld_lower,kld_upper,top1_ratio,ppl_ratio,gate,joint' || fail "no columns of quality"

expect 4 ab default q8_0 --gate 'decode_tok > 1' && says err "position 1: .*did you mean 'decode_tok_s'"
expect 4 ab default q8_0 --gate 'kld_mean < 1' --gate 'ttft_s < 5k' && says err "'k' does not go with ttft_s"
expect 4 ab default q8_0 --quality-chunks 3 && says err 'need --quality'
expect 4 ab default q8_0 --quality="$T/none" -w train2 && says err 'arms that train'
expect 5 ab default q8_0 --quality="$T/none" && says err 'cannot be read'
expect 4 ab --resume 1 --gate 'kld_mean < 1' && says err 'leave --gate out'

# perplexity is computed once for each arm, without blocks, and is that of `eval`; equal arms differ by exactly nothing
"$QDYNO" stories -n 40 --split held-out --seed 1 >"$T/words" || fail "no stories for a text"
expect 0 ab -w "eval:$T/words@c64" --budget 1s --gate 'ppl_ratio < 100' default q4_0 -o json && cp "$T/out" "$T/ab.json" &&
  json 'd["metric"] == "perplexity" and d["blocks"] == 0 and d["control"] is None and d["verdict"] not in ("invalid", "")' &&
  json 'any("evaluates the whole text once" in e["text"] for e in d["events"])'
expect 0 eval -f "$T/words" -c 64 --ref default -C q4_0 -o json && [ -z "$PYTHON" ] || {
  cp "$T/out" "$T/eval.json" && cp "$T/ab.json" "$T/out"
  json 'abs(d["effect"]["ratio"] - json.load(open("'"$T"'/eval.json"))["rows"][0]["ppl_ratio"]) < 1e-9'
  json 'abs(d["effect"]["lower"] - json.load(open("'"$T"'/eval.json"))["rows"][0]["ppl_ratio_lower"]) < 1e-9'
}
expect 0 ab -w "eval:$T/words@c64" default default -o json &&
  json 'd["verdict"] == "equivalent" and d["effect"]["ratio"] == d["effect"]["lower"] == d["effect"]["upper"] == 1'
[ -z "$PYTHON" ] || { # one evaluation of each arm, one comparison, and nothing in a block
  run=$(value 'd["run"]')
  python3 - "$T/data/qdyno/qdyno.db" "$run" <<'PY' || fail "ab -w eval: an arm was evaluated more than once"
import sqlite3, sys
rows = sqlite3.connect(sys.argv[1]).execute("SELECT phase, arm FROM cell WHERE run_id = ? ORDER BY phase, arm", (sys.argv[2],)).fetchall()
assert rows == [("quality", 1), ("warmup", 0), ("warmup", 1)], rows
PY
}

# a gate about quality alone needs no timing
EVAL=(eval -c 32 --chunks 6 --ref default)
expect 0 "${EVAL[@]}" -C q8_0 --gate 'kld_mean < 10 and ppl_ratio < 100' -o json &&
  json 'list(d)[0] == "summary" and d["summary"]["gate"] == "pass" == d["rows"][0]["gate"] and d["summary"]["exit_status"] == 0' &&
  json 'd["summary"]["run"] == d["run"] and d["summary"]["lower"] <= d["summary"]["effect"] <= d["summary"]["upper"]' &&
  json 'd["gate"]["outcome"] == "pass" and [t["outcome"] for t in d["gate"]["arms"][0]["terms"]] == ["pass", "pass"]'
expect 1 "${EVAL[@]}" -C default -C q4_0 --gate 'kld_mean < 1e-9' -o json &&
  json '[r["gate"] for r in d["rows"]] == ["pass", "fail"] and d["summary"]["gate"] == "fail" and d["summary"]["exit_status"] == 1'
expect 2 "${EVAL[@]}" -C q8_0 --gate 'kld_p99 < 1' && says out 'undecided +kld_p99 < 1: the text is too short for it'
expect 0 eval -c 32 --chunks 6 --gate 'perplexity < 1e9' && says out 'gate: pass'
expect 4 eval -c 32 --chunks 6 --gate 'kld_mean < 1' && says err 'kld_mean compares with a reference: give --ref'
expect 4 "${EVAL[@]}" --gate 'decode_tok_s > 1' && says err 'eval times nothing, so decode_tok_s is unknown'
expect 4 "${EVAL[@]}" --gate 'kld_men < 1' && says err "did you mean 'kld_mean'"
expect 5 "${EVAL[@]}" -C "model=$T/none.gguf" -C q8_0 --gate 'kld_mean < 10'
expect 0 baseline set best default
expect 1 baseline check best q4_0 --gate 'kld_mean < 1e-9' -o json &&
  json 'd["schema"] == "qdyno.eval/1" and d["baseline"]["name"] == "best" and d["reference"]["config"] and d["summary"]["gate"] == "fail"'
expect 0 baseline check best q8_0 --gate 'kld_mean < 10'
expect 0 baseline check best q8_0 --budget 1s --gate 'kld_mean < 10 or decode_tok_s > 0' -o json &&
  json 'd["schema"] == "qdyno.baseline_check/1" and d["summary"]["gate"] == "pass" and d["summary"]["run"] == d["run"]'
expect 4 baseline list --gate 'kld_mean < 10' && says err 'no flag of'

if [ -r "$MODEL" ]; then
  # a trained model: q8_0 stays within the limit, q4_0 does not
  expect 0 ab "${FAST[@]}" -m "$MODEL" --quality="$SHARED/text/tinystories-valid-excerpt.txt" --quality-ctx 128 --quality-chunks 24 \
    --gate 'decode_tok_s >= 0.0001*A or kld_mean < 0.02' f32 q8_0 -o json &&
    json '0.0001 < d["comparisons"][0]["quality"]["kld_mean"] < 0.002 and d["comparisons"][0]["quality"]["top1_ratio"] > 0.95'
  expect 1 ab "${FAST[@]}" -m "$MODEL" --quality="$SHARED/text/tinystories-valid-excerpt.txt" --quality-ctx 128 --quality-chunks 24 \
    --gate 'kld_mean < 0.02' f32 q4_0 && says out 'q4_0. .*quality loss .*above the limit of 0.02'
else
  skip "no trained model in $SHARED"
fi


# A model with values that are not numbers never passes a gate, whichever tensor holds them.
expect 0 synth --shape tiny -R q8_0 "$T/whole.gguf"
for from_end in 64 200000 1500000; do
  cp "$T/whole.gguf" "$T/nan.gguf"
  size=$(stat -c %s "$T/nan.gguf")
  head -c 2048 /dev/zero | tr '\0' '\377' | dd of="$T/nan.gguf" bs=1 seek=$((size - from_end - 2048)) conv=notrunc status=none
  expect 5 run -m "$T/nan.gguf" -p "one day" -n 4 && says err 'not numbers|finite'
  expect 5 eval -m "$T/nan.gguf" -c 64 --chunks 2 && says err 'not numbers|finite'
  expect 5 bench -m "$T/nan.gguf" -p 8 -n 4 -r 1 && says err 'not numbers|finite'
  expect 5 ab "model=$T/whole.gguf" "model=$T/nan.gguf" -w tg8 --quality --budget 20s --gate 'kld_mean < 0.02'
done
finish
