#!/bin/bash
# Proves: ./dev bench peers runs our program and the given programs alternately on the same file, parses the output of
# llama.cpp and ik_llama.cpp, computes the ratios correctly, gives none to a peer with wrong answers, and reports
# programs that are missing, cannot load the model or print unknown output.
. "$(dirname "$0")/lib.sh" "$@"
[ -n "$PYTHON" ] || { echo "SKIPPED: no python3"; exit 77; }
PEERS=$(dirname "$0")/../bench/peers/peers.py
expect 0 synth --shape tiny -R q8_0 "$T/tiny.gguf"

# fake PATH LINE...: a program that records its arguments and prints the lines.
fake() {
  local path=$1
  shift
  mkdir -p "$(dirname "$path")"
  { echo '#!/bin/bash'; echo "echo \"\$0 \$*\" >>'$T/calls'"; printf '%s\n' "$@"; } >"$path"
  chmod +x "$path"
}
row() { echo "{ \"build_commit\": \"$1\", \"build_number\": 7, \"n_prompt\": $2, \"n_gen\": $3, \"avg_ts\": $4 }"; }
fake "$T/one/build/bin/llama-bench" "echo '[ $(row abc 16 0 100.0), $(row abc 0 4 50.0) ]'"
fake "$T/two/build/bin/llama-bench" "echo 'a line [of its own]'" "echo '[ $(row def 16 0 1e9), $(row def 0 4 1e9) ]'"
fake "$T/two/build/bin/llama-batched-bench" "cat >&2 <<'END'" \
  '|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |' \
  '|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|' \
  '|     8 |      4 |    1 |     12 |    0.100 |    80.00 |    0.100 |    40.00 |    0.200 |    60.00 |' \
  '|     8 |      4 |    2 |     24 |    0.100 |   160.00 |    0.100 |    80.00 |    0.200 |   120.00 |' END
fake "$T/broken/llama-bench" 'echo "error: failed to load model" >&2; exit 1'
fake "$T/nonsense/llama-bench" 'echo "| model | t/s |"'

# peers STATUS ARGUMENTS...
peers() {
  local want=$1 got
  shift
  "$PYTHON" "$PEERS" --qdyno "$QDYNO" --models "$T/models" "$@" >"$T/out" 2>"$T/err" </dev/null
  got=$?
  [ "$got" = "$want" ] || { fail "peers $*: status $got, want $want"; return 1; }
}

: >"$T/calls"
peers 0 -m "$T/tiny.gguf" -p 16 -n 4 -t 1 -r 2 --json "$T/one/build/bin/llama-bench" "$T/two/build/bin/llama-bench" &&
  json '[p["name"] for p in d["programs"]] == ["qdyno", "one", "two"]' &&
  json '"abc" in d["programs"][1]["version"] and "def" in d["programs"][2]["version"]' &&
  json 'len(d["rows"]) == 6 and all(r["rounds"] == 2 and r["tok_s"] > 0 for r in d["rows"])' &&
  json '{r["workload"] for r in d["rows"]} == {"pp16", "tg4"}' &&
  json 'all((r["ratio"] is None) == (r["program"] == "qdyno") for r in d["rows"])' &&
  json 'all(r["ratio"] < 1 for r in d["rows"] if r["program"] == "two")' &&
  json 'all(abs(r["ratio"] * r["tok_s"] / o["tok_s"] - 1) < 1e-9 for r in d["rows"] for o in d["rows"]
        if r["program"] == "one" and o["program"] == "qdyno" and o["workload"] == r["workload"])'
# The order is reversed in the second round; file, lengths and threads are equal.
[ "$(sed 's/ .*//; s/.*\/\(one\|two\)\/.*/\1/' "$T/calls" | tr '\n' ' ')" = "one two two one " ] ||
  fail "not in turns: $(cat "$T/calls")"
grep -vq -- "-m $T/tiny.gguf -p 16 -n 4 -t 1 -r 1 -o json" "$T/calls" && fail "other work: $(cat "$T/calls")"

peers 0 -m "$T/tiny.gguf" -r 1 --npp 8 --ntg 4 --npl 1,2 --batched "$T/two/build/bin/llama-batched-bench" &&
  says out 'tg4@b2 \| two \| 80.00' && says out 'tg4@b1 \| qdyno' && says out 'ours / theirs'
peers 0 -m "$T/tiny.gguf" -p 16 -n 4 -r 1 --isa ref "$T/one/build/bin/llama-bench" && says out 'QDYNO_ISA=ref'
peers 0 --shape tiny --formats q4_0 -p 16 -n 4 -r 1 "$T/one/build/bin/llama-bench" && says out 'synth-tiny-q4_0.gguf' &&
  [ -f "$T/models/synth-tiny-q4_0.gguf" ] || fail "the synthesized model is not kept"

# A peer whose perplexity is not ours gets no ratio; one that agrees with many rows but not with one row is wrong, too.
"$QDYNO" stories -n 150 >"$T/stories.txt"
expect 0 -o json eval -f "$T/stories.txt" -c 128 -C "model=$T/tiny.gguf"
ours=$("$PYTHON" -c 'import json, sys; print(json.load(sys.stdin)["rows"][0]["perplexity"])' <"$T/out")
estimate() { echo "echo \"Final estimate: PPL over 3 chunks for n_ctx=128 = $1 +/- 0.1\""; }
fake "$T/one/build/bin/llama-perplexity" "$(estimate "$ours")"
fake "$T/two/build/bin/llama-perplexity" "case \$* in *'-ub 1 '*) $(estimate 1.5) ;; *) $(estimate "$ours") ;; esac"
peers 0 -m "$T/tiny.gguf" -p 16 -n 4 -t 1 -r 1 --json "$T/one/build/bin/llama-bench" "$T/two/build/bin/llama-bench" &&
  json '{r["answers"] for r in d["rows"] if r["program"] == "one"} == {"right"}' &&
  json 'all(r["answers"] == "wrong" and r["ratio"] is None for r in d["rows"] if r["program"] == "two")' &&
  json 'all("with 1 rows" in r["answers_reason"] for r in d["rows"] if r["program"] == "two")' &&
  json 'all(r["ratio"] for r in d["rows"] if r["program"] == "one")'

peers 4 && says err 'at least one llama-bench'
peers 4 "$T/absent/llama-bench" && says err 'absent/llama-bench: no such file'
peers 4 -m "$T/tiny.gguf" "$T/tiny.gguf" && says err 'cannot be executed'
peers 4 -r 0 "$T/one/build/bin/llama-bench" && says err 'want 1 or more'
peers 5 -m "$T/none.gguf" "$T/one/build/bin/llama-bench" && says err 'none.gguf: no such file'
# A failing program becomes a row; the others are measured.
peers 1 -m "$T/tiny.gguf" -p 16 -n 4 -r 1 "$T/broken/llama-bench" "$T/nonsense/llama-bench" "$T/one/build/bin/llama-bench" &&
  says out 'broken \| failed .*failed to load model' && says out 'nonsense \| failed .*not understood' &&
  says out 'pp16 \| one \| 100.00'

finish
