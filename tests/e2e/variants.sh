#!/bin/bash
# Proves: `tune` over files of one model measures the loss of each against the most exact one, or against --ref; a
# target is answered with the status 0, 1 or 2; a killed search continues with the losses that it has; files of two
# models are refused with what differs; commands that run the answer are printed. No figure of speed decides anything
# here: the targets are about memory and loss.
. "$(dirname "$0")/lib.sh" "$@"
[ -n "$PYTHON" ] || { echo "SKIPPED: no python3 to read JSON with"; exit 77; }

M=$T/models
mkdir "$M"
cp "$(dirname "$QDYNO")/share/models/bundled.gguf" "$M/m-f16.gguf"
for f in q8_0 q4_0 q2_K; do expect 0 quantize "$M/m-f16.gguf" "$M/m-$f.gguf" -R $f; done
head -c 100 "$M/m-f16.gguf" >"$M/mmproj-f16.gguf" # no model: left out, and said
common=(-w tg8 --quality-ctx 64 --budget 4s)

# a target that files reach; the one that loses least is chosen: the reference is too large for the first
expect 0 tune "$M" "${common[@]}" --target 'kld_mean <= 0.5 and peak_rss_bytes < 100G' -o json &&
  json 'd["schema"] == "qdyno.tune/1" and d["target_outcome"] == "reached" and d["summary"]["exit_status"] == 0' &&
  json 'd["reference"].endswith("m-f16.gguf") and d["winner"].endswith("m-f16.gguf") and len(d["tried"]) == 4' &&
  json 'd["written"] is None and d["target_answer"].startswith("reached by m-f16.gguf: ")' &&
  json '{t["config"][-9:-5]: t["kld"] for t in d["tried"]}["-f16"] == 0' &&
  json 'all(t["kld_lower"] < t["kld"] < t["kld_upper"] for t in d["tried"] if t["kld"])' &&
  json '[c["program"] for c in d["commands"]] == ["qdyno", "llama-server", "ollama"]' &&
  json 'all("m-f16.gguf" in c["text"] for c in d["commands"])'
q8=$(value '[t["kld"] for t in d["tried"] if "q8_0" in t["config"]][0]')
q2=$(value '[t["kld"] for t in d["tried"] if "q2_K" in t["config"]][0]')
python3 -c "import sys; sys.exit(0 if 0 < $q8 < $q2 else 1)" || fail "losses: q8_0 $q8, q2_K $q2"

# not reached: every interval violates it; the nearest is named
expect 1 tune "$M" "${common[@]}" --target 'kld_mean > 0.00000001 and peak_rss_bytes < 1k' && says out '^not reached: the nearest is m-' &&
  says out 'which misses peak_rss_bytes < 1k' && says out 'left out: mmproj-f16.gguf' && says out 'losses are against m-f16.gguf'
# undecided: the bound lies within the interval of q2_K, and the others fail for certain; loss alone needs no timing
expect 2 tune "$M" "${common[@]}" --target "kld_mean > $q2" -o json &&
  json 'd["target_outcome"] == "undecided" and d["raced"] == 0 and "m-q2_K.gguf may reach it" in d["target_answer"]' &&
  json '{t["config"].split("m-")[1]: t["target"] for t in d["tried"]}["q8_0.gguf"] == "fail"'
run=$(value 'd["run"]')
cells() { "$QDYNO" show "$1" --cells -o json 2>/dev/null | python3 -c 'import json, sys; print(sum(r["phase"] == "variant" for r in json.load(sys.stdin)["rows"]))' 2>/dev/null; }
before=$(cells "$run")
# ... and continued with its number alone: nothing that is known is measured again
expect 2 tune --resume "$run" -o json && json 'd["run"] == '"$run"' and len(d["tried"]) == 4'
[ "$(cells "$run")" = "$before" ] || fail "a continued search measured losses again: $before cells, then $(cells "$run")"
expect 4 tune --resume "$run" --target 'kld_mean > 9' && says err 'other files or options'
# the losses that it has are not those against another reference, nor those of a file that has changed since
expect 4 tune --resume "$run" --ref "$M/m-q8_0.gguf" && says err 'against another file than .*m-q8_0.gguf'
cp "$M/m-q2_K.gguf" "$T/kept.gguf"
"$QDYNO" quantize "$M/m-f16.gguf" "$T/changed.gguf" -R q3_K >"$T/out" 2>"$T/err" && mv "$T/changed.gguf" "$M/m-q2_K.gguf"
expect 4 tune --resume "$run" && says err 'other files or options'
mv "$T/kept.gguf" "$M/m-q2_K.gguf"
expect 2 tune --resume "$run" -o json

# another reference, and few files; a page that `show` prints again
expect 0 tune "$M/m-q4_0.gguf" "$M/m-q2_K.gguf" --ref "$M/m-q8_0.gguf" "${common[@]}" --target 'kld_mean <= 0.5' && says out 'losses are against m-q8_0.gguf, .* itself quantized' &&
  says out '^reached by m-q8_0.gguf' && says out 'llama-server -m ' && says out '^FROM '
expect 0 show $((run + 1)) && says out '^reached by m-q8_0.gguf' || expect 0 history

# killed while it measures losses
"$QDYNO" tune "$M" -w tg8 --budget 300s --target 'kld_mean > 5' -o json >/dev/null 2>&1 &
pid=$!
pids+=($pid)
killed=$("$QDYNO" history -o json | python3 -c 'import json, sys; print(max(r["run"] for r in json.load(sys.stdin)["rows"]))')
for _ in $(seq $((WAIT_S * 10))); do
  killed=$("$QDYNO" history -o json | python3 -c 'import json, sys; print(max(r["run"] for r in json.load(sys.stdin)["rows"]))')
  seen=$(cells "$killed")
  [ "${seen:-0}" -ge 2 ] && [ "$killed" -gt $((run + 1)) ] && break
  kill -0 $pid 2>/dev/null || break
  sleep 0.1
done
kill -9 $pid 2>/dev/null
wait $pid 2>/dev/null
expect 1 tune --resume "$killed" --budget 4s -o json && json 'd["run"] == '"$killed"' and d["target_outcome"] == "not reached"'

# files of two models
expect 0 synth --shape tiny --layers 1 -R q8_0 "$T/other.gguf"
if [ -s "$T/other.gguf" ]; then
  expect 4 tune "$M/m-q8_0.gguf" "$T/other.gguf" && says err 'not files of one model' && says err 'differs|entries|tensor|architecture'
fi
expect 4 tune "$M" -m "$M/m-q8_0.gguf" && says err 'expected one of both'
expect 4 tune "$M" --target 'speed > 3' && says err 'target' && says err "no figure is called 'speed'"
expect 4 tune "$M" --goal energy && says err 'energy_j_token'
expect 4 tune --ref "$M/m-q8_0.gguf" && says err '\-\-ref'
mkdir "$T/empty"
expect 4 tune "$T/empty" && says err 'no \*.gguf file'

# one model: its configs are the candidates, of --space or of a search
expect 0 tune -m "$M/m-q8_0.gguf" "${common[@]}" --space 'threads=1|2,kv=f16|q4_0' --target 'peak_rss_bytes < 100G and kld_mean <= 1' -o json &&
  json 'd["target_outcome"] == "reached" and len(d["tried"]) == 5 and d["winner"] in ("default", "threads=1", "threads=2")'

# a quantized file again: only when asked for, and its loss is called by its name and kept apart
Q=$M/m-q8_0.gguf
expect 4 ab -m "$Q" default q4_0 -w tg8 --budget 2s && says err 'already quantized' && says err '\-\-requantize'
"$QDYNO" ab -m "$Q" default q4_0 -w tg8 --budget 2s --requantize --quality --quality-chunks 2 --quality-ctx 64 >"$T/out" 2>"$T/err"
says out 'B \(q4_0,requantize=on\)' && says out 'against the quantized file' || fail "ab --requantize"
expect 0 quantize "$Q" "$T/again.gguf" -R q4_0,requantize=on && expect 0 info -m "$T/again.gguf"
cmp -s "$T/again.gguf" "$M/m-q4_0.gguf" && fail "quantizing twice cannot give the file that the original gives"

# the trade-off as a figure, for a search that was measured; on the terminal it is drawn, too
expect 0 tune "$M" "${common[@]}" --target 'peak_rss_bytes < 100G' && says out 'KL divergence, nats \(down is better\)'
run=$(sed -n 's/^next: qdyno show \([0-9]*\).*/\1/p' "$T/out")
for e in svg html md; do expect 0 report "$run" --out "$T/tradeoff.$e"; done
grep -q 'm-q4_0.gguf' "$T/tradeoff.svg" && grep -q 'Speed and memory' "$T/tradeoff.html" && grep -q 'beaten by none' "$T/tradeoff.md" ||
  fail "the report of a search"

# a config that loses, for all files: the reference loses, too; a config saved for another model is not used
expect 0 tune "$M/m-f16.gguf" "$M/m-q8_0.gguf" "${common[@]}" -C kv=q4_0 --target 'kld_mean <= 5' -o json &&
  json 'all(t["kld"] > 0 for t in d["tried"]) and len(d["tried"]) == 2'
expect 0 apply kv=q4_0 && expect 0 tune "$M/m-f16.gguf" "$M/m-q8_0.gguf" "${common[@]}" --target 'kld_mean <= 5' -o json &&
  json 'not any("kv=" in t["config"] for t in d["tried"])'
expect 0 apply --remove
finish
