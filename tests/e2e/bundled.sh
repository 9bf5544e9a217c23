#!/bin/bash
# Proves: the bundled model is trained and knows its language. It gives no warning about random weights, its perplexity
# is near the entropy of the language, formats rank by their bits, and it writes whole stories that the grammar
# accepts. Another engine writes the same greedy text (LLAMA_COMPLETION: its llama-completion or llama-cli). The
# evaluation texts are not part of the training texts.
. "$(dirname "$0")/lib.sh" "$@"
SHARE=$(dirname "$QDYNO")/share
[ -r "$SHARE/text/held-out.txt" ] || { echo "SKIPPED: no bundled data beside the program"; exit 77; }

# ---- the texts
for split in held-out calibration; do
  expect 0 stories -n 320 --split $split --seed 1 && cmp -s "$T/out" "$SHARE/text/$split.txt" || fail "$split.txt is not what the program tells"
  [ "$(wc -c <"$SHARE/text/$split.txt")" -gt 100000 ] || fail "$split.txt is too short"
done
[ -z "$(sort "$SHARE/text/held-out.txt" "$SHARE/text/calibration.txt" | uniq -d)" ] || fail "a story stands in both texts"
expect 0 stories -f "$SHARE/text/held-out.txt" && says out '320 of 320 lines are stories of the grammar'

[ -e "$(dirname "$0")/../../share/models/bundled.gguf" ] || {
  [ "$fails" = 0 ] || finish
  echo "SKIPPED: no trained model in share/models yet: the bundled one is random"
  exit 77
}

# ---- properties
expect 0 info -o json && json 'd["random_weights"] is False and d["arch"] == "llama" and d["params"] > 1e6'
[ "$(stat -Lc %s "$SHARE/models/bundled.gguf")" -le $((12 << 20)) ] || fail "the bundled model is larger than 12 MB"
expect 0 run -p "One day" -n 4 && ! grep -q 'random weights' "$T/err" || fail "the bundled model is called random"

# ---- quality: near the best possible (see the model card), and the effect of fewer bits
floor=$("$QDYNO" stories -n 320 --split held-out --seed 1 -o json | python3 -c '
import json, sys
rows = json.load(sys.stdin)["rows"]
print(sum(r["nats"] for r in rows) / sum(r["chars"] + 1 for r in rows))' 2>/dev/null)
expect 0 eval -C f16 -C q8_0 -C q6_K -C q4_K -C q2_K --ref default --chunks 24 -o json && [ -n "$PYTHON" ] && {
  json 'all(r["text_label"] == "the bundled stories" for r in d["rows"])' # advisor/quality/text.c knows its SHA-256
  json '[r["config"] for r in d["rows"]] == ["f16", "q8_0", "q6_K", "q4_K", "q2_K"] and not any(r["random_weights"] for r in d["rows"])'
  json 'all(a["kld_mean"] < b["kld_mean"] for a, b in zip(d["rows"], d["rows"][1:]))'
  json '1.4 < d["rows"][0]["perplexity"] < 1.7'
}
[ -z "$floor" ] || echo "language: $floor nats a character"

# ---- stories at temperature 1, tested by the grammar
: >"$T/told"
for seed in $(seq 1 24); do
  [ -n "$PYTHON" ] && expect 0 run -p "" -n 320 --temp 1 --seed "$seed" -t 1 -o json && value 'd["text"].strip().split("\n")[0]' >>"$T/told"
done
if [ -s "$T/told" ]; then
  expect 0 stories -f "$T/told" -o json
  echo "stories wholly within the grammar: $(value 'sum(r["nats"] is not None for r in d["rows"])') of $(value 'len(d["rows"])')," \
    "characters until the first word that is not: $(value 'round(100 * sum(r["told"] for r in d["rows"]) / sum(r["chars"] for r in d["rows"]))') %"
  json 'len(d["rows"]) == 24 and sum(r["nats"] is not None for r in d["rows"]) >= 7'
  json 'sum(r["told"] for r in d["rows"]) >= 0.6 * sum(r["chars"] for r in d["rows"])'
fi

# ---- another engine
if [ -x "${LLAMA_COMPLETION:-}" ]; then
  expect 0 run -p "One day" -n 60 --temp 0 -o json && value '"One day" + d["text"]' >"$T/ours"
  "$LLAMA_COMPLETION" -m "$SHARE/models/bundled.gguf" -p "One day" -n 60 --temp 0 -no-cnv --no-warmup -t 1 2>/dev/null </dev/null |
    sed 's/ *\[end of text\]//; /^$/d' >"$T/theirs"
  [ "$(tr -d '\n' <"$T/ours" | sed 's/^ *//; s/ *$//')" = "$(tr -d '\n' <"$T/theirs" | sed 's/^ *//; s/ *$//')" ] ||
    fail "greedy text differs: ours '$(cat "$T/ours")', llama.cpp's '$(cat "$T/theirs")'"
else
  skip "LLAMA_COMPLETION names no program of llama.cpp: its greedy text is not compared"
fi
finish
