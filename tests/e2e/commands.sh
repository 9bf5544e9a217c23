#!/bin/bash
# Proves: every command works on the bundled model, and on a trained model if present, with the values that other
# programs compute for the same file.
. "$(dirname "$0")/lib.sh" "$@"

expect 0 --version && says out '^qdyno [0-9]+\.[0-9]+'
expect 0 help --all && says out 'bench' && says out 'Exit status'
for command in $("$QDYNO" help --all | sed -n '/^Commands/,/^Flags/s/^  \([a-z]*\) .*/\1/p'); do
  expect 0 help "$command" && says out "usage: qdyno $command"
  expect 0 "$command" --help && says out "usage: qdyno $command"
done
expect 0 help knobs && says out 'threads'
expect 0 help topics && says out 'statistics' && says out 'environment'
expect 0 help busy && says out 'others_busy_ratio'
expect 0 help --man && says out '^\.TH QDYNO 1'
if have groff; then
  [ -z "$(groff -man -ww -z "$T/out" 2>&1)" ] || fail "groff warns of the man page: $(groff -man -ww -z "$T/out" 2>&1 | head -3)"
else
  skip "no groff to check the man page with"
fi
for shell in bash zsh fish; do
  expect 0 help --$shell && cp "$T/out" "$T/completion.$shell"
  have $shell || { skip "no $shell: its completion script is not checked"; continue; }
  $shell -n "$T/completion.$shell" || fail "the completion of $shell has a syntax error"
done
# completes WANTED WORD...: what bash completes for the last word, with = as a border of words, is exactly that.
completes() {
  local want=$1 got
  shift
  # shellcheck disable=SC1091
  got=$(. "$T/completion.bash" && compopt() { :; } && COMP_LINE="$*" && COMP_POINT=${#COMP_LINE} &&
    COMP_WORDS=("$QDYNO" "${@:2:$#-2}" "${!###*=}") && COMP_CWORD=$(($# - 1)) && _qdyno && echo "${COMPREPLY[*]}")
  [ "$got" = "$want" ] || fail "completion of '$*' is '$got', want '$want'"
}
completes speed qdyno advise --goal s
completes 'default' qdyno ab defa
completes 'q8_0,threads=' qdyno ab default q8_0,thr
completes 'off on' qdyno ab default q8_0,repack=o
completes 'pp512 pp512+tg128@d1024' qdyno bench -w pp512
completes 'tune' qdyno tun
# offers LINE PATTERN: `qdyno complete` says so, with an explanation.
offers() { expect 0 complete "$1" && says out "$2"; }
offers 'qdyno ' "^eval	"
offers 'qdyno eval --g' "^--gate	"
offers 'qdyno run -m ' '^:files$'
offers 'qdyno ab --metric pe' "^peak_rss_bytes	"
offers 'qdyno run -ctk q8' "^q8_0	"
expect 0 complete "qdyno ab 'unclosed" && [ ! -s "$T/out" ] || fail "an unclosed quote completes to something"

expect 0 detect -o json && json 'd["schema"] == "qdyno.detect/1" and d["cores"] > 0 and d["memory_bytes"] > 2**20'
expect 0 detect --probe -o json && json 'd["ceilings"] is not None and d["read_bytes_s_all"] > 1e8'
cp "$T/out" "$T/machine.json"
expect 0 doctor && says out 'bundled model +\| ok'

expect 0 info -o json && json 'd["random_weights"] in (True, False) and d["params"] > 1e5 and len(d["sha256"]) == 64'
random=$(value 'd["random_weights"]') # of the bundled model: bundled.sh says what it should be
expect 0 synth --shape tiny -R f16 --seed 1 "$T/random.gguf"
R=$T/random.gguf
expect 0 info -m "$R" && says out 'random weights: quality figures mean nothing'
expect 0 info --tensors -o json && json 'any(r["name"] == "token_embd.weight" for r in d["rows"])'
expect 0 run -m "$R" -p "Hello" -n 8 && says err 'random weights' && says err 'decode 8 tokens'
expect 0 run -m "$R" -p "Hello" -n 8 -o json && json 'd["gen_tokens"] == 8 and d["stopped"] == "length" and d["decode_tok_s"] > 0'
first=$(value 'd["text"]')
expect 0 run -m "$R" -p "Hello" -n 8 -o json && [ "$(value 'd["text"]')" = "$first" ] || fail "greedy text differs between two runs"
expect 0 run -m "$R" -p "Hello" -n 8 --temp 1 --seed 3 -o json && a=$(value 'd["text"]')
expect 0 run -m "$R" -p "Hello" -n 8 --temp 1 --seed 3 -o json && [ "$(value 'd["text"]')" = "$a" ] || fail "same seed, other text"

printf '{"hash_ids":[1,2,3]}\n{"hash_ids":[1,2,4]}\n' >"$T/trace.jsonl"
expect 0 cache "$T/trace.jsonl" --blocks 4 --evict lru -o json && json 'd["rows"][0]["found_blocks"] == 2 and d["distinct_blocks"] == 4'
expect 4 cache "$T/trace.jsonl" --evict lfu && says err 'expected one of lru'
echo '{}' >"$T/trace.jsonl" && expect 5 cache "$T/trace.jsonl" && says err 'line 1.*hash_ids'

expect 0 tokenize -p "Once upon a time" && json 'len(d) > 1 and all(isinstance(i, int) for i in d)'
ids=$(tr -d '[]\n' <"$T/out")
expect 0 tokenize --detokenize -p "$ids" && says out 'Once upon a time'
n=$(awk -F, '{print NF}' <<<"$ids")
expect 0 info && vocab=$(sed -n 's/^vocabulary *//p' "$T/out")
expect 0 logits --ids "$ids" --out "$T/logits"
[ "$(stat -c %s "$T/logits")" = $((n * vocab * 4)) ] || fail "logits: $(stat -c %s "$T/logits") bytes for $n ids of $vocab"

expect 0 fit -o json && json 'd["rows"][0]["fits"] and d["rows"][0]["total_bytes"] == sum(d["rows"][0][k] for k in ("weights_bytes", "kv_bytes", "compute_bytes", "scratch_bytes"))'
expect 0 fit --load -c 256 -o json && json 'd["rows"][0]["actual_bytes"] > 0 and d["rows"][0]["error"] is None'
expect 0 synth --shape tiny -R q8_0 "$T/q8.gguf" -o json && json 'd["file_bytes"] > 1e6'
cp "$T/q8.gguf" "$T/q8.first.gguf"
expect 0 synth --shape tiny -R q8_0 "$T/q8.gguf" && cmp -s "$T/q8.gguf" "$T/q8.first.gguf" || fail "synth is not deterministic"
expect 0 info -m "$T/q8.gguf" -o json && json 'd["dominant_format"] == "q8_0"'
expect 0 synth --shape list -o json && json '{"tiny", "qwen3-30b-a3b", "gpt-oss-20b"} <= {r["shape"] for r in d["rows"]}'
expect 0 synth --arch deepseek2 --layers 2 -R q4_K --expert-format mxfp4 "$T/mla.gguf" -o json && json 'd["arch"] == "deepseek2" and d["layers"] == 2'
expect 0 info --tensors -m "$T/mla.gguf" && says out 'blk.1.ffn_up_exps.weight.*mxfp4'
expect 0 run -m "$T/mla.gguf" -p "Hello" -n 4 -o json && json 'd["gen_tokens"] == 4'

for i in $(seq 60); do echo "Line $i: the miller weighs $((i * 17 % 29)) sacks and is content."; done >"$T/mill.txt"
expect 0 calibrate "$T/q8.gguf" -f "$T/mill.txt" -c 64 --tokens 320 --out "$T/c.gguf" --imatrix "$T/m.dat" -o json &&
  json 'd["sequences"] == 5 and d["ctx"] == 64 and d["bundled_text"] is False and d["random_weights"] is True' &&
  json 'd["text"].endswith("mill.txt") and len(d["model_sha256"]) == 64 and d["file_bytes"] > 1000'
cp "$T/c.gguf" "$T/c.first.gguf"
expect 0 calibrate "$T/q8.gguf" -f "$T/mill.txt" -c 64 --tokens 320 -t 1 --memory 1 --out "$T/c.gguf" &&
  cmp -s "$T/c.gguf" "$T/c.first.gguf" || fail "a calibration depends on threads or memory"
expect 0 calibrate --show "$T/c.gguf" -o json &&
  json 'len(d["rows"]) == d["inputs"] and all(r["count"] == 320 and r["min"] <= r["max"] for r in d["rows"])'
expect 0 calibrate --show "$T/m.dat" --imatrix "$T/m.gguf" -o json && json 'd["rows"][0]["mean_abs"] is None and d["matrices"] > 6'
expect 0 calibrate --show "$T/m.gguf" --imatrix "$T/m2.dat" && cmp -s "$T/m.dat" "$T/m2.dat" ||
  fail "an importance matrix is not the same after both formats"
expect 0 calibrate "$T/q8.gguf" -c 64 --tokens 128 --imatrix "$T/m.gguf" && says out 'calibrated on the bundled text'

expect 0 bench -p 32 -n 8 -r 2 -t 1,2 -C default -C q8_0 -o json &&
  json 'len(d["rows"]) == 8 and all(r["error"] is None and r["peak_rss_bytes"] > 0 for r in d["rows"])' &&
  json 'all((r["decode_tok_s"] or r["prefill_tok_s"]) > 0 for r in d["rows"])' &&
  json 'all(r["itl_p99_s"] is None for r in d["rows"])' &&
  json 'all(0 < (r["decode_limit_share"] or r["prefill_limit_share"]) for r in d["rows"])'
cp "$T/out" "$T/bench.json"
expect 0 show 1 -o json && json 'd["rows"] == json.load(open("'"$T"'/bench.json"))["rows"]'
expect 0 show 1 --capsule -o json && json 'len(d["capsule"]["config"]) == 4 and all(m["sha256"] for m in d["capsule"]["model"])'
expect 0 history -o json && json 'd["rows"][0]["kind"] == "bench" and d["rows"][0]["state"] == "done"'
expect 0 bench -p 16 -n 8 -npl 1,4 -r 1 -t 2 -o json &&
  json '[x["workload"] for x in d["rows"]] == ["pp16", "tg8", "pp16@b4", "tg8@b4"]' &&
  json '[x["sequences"] for x in d["rows"]] == [1, 1, 4, 4]' &&
  json 'all(abs(x["decode_tok_s"] - x["sequences"] * x["decode_seq_tok_s"]) < 1e-6 * x["decode_tok_s"] for x in d["rows"] if x["decode_tok_s"])' &&
  json 'd["rows"][3]["plan_bytes"] > d["rows"][0]["plan_bytes"]'
expect 0 bench -w pp16+tg8@d4@b3 -r 1 && says out 'pp16\+tg8@d4@b3' && says out 'per sequence'
expect 0 bench -p 0 -n 4 -r 1 -C hugepages=all -C hugepages=off -C prefetch=populate -o json &&
  json 'len(d["rows"]) == 3 and not any(x["error"] for x in d["rows"])' &&
  json 'd["rows"][1]["huge_bytes"] in (0, None) and d["rows"][2]["prefetch_s"] > 0'
expect 4 bench -npl 0 && says err '\-npl'
expect 4 bench -npl 2 -w tg8 && says err 'leave -p, -n, -d, -npl and --rows out'
expect 4 bench -w tg8@b0 && says err '@bN'
# The verdict depends on the load of the machine; that both arms did the work does not.
"$QDYNO" ab default threads=1 -w tg4@b2 --budget 5s -o json >"$T/out" 2>"$T/err" </dev/null
json 'd["workload"] == "tg4@b2" and all(a["decode_tok_s"] > 0 for a in d["arms"])'
expect 0 bench -n 100 -p 0 -r 5 -o json && json 'd["rows"][0]["itl_p50_s"] <= d["rows"][0]["itl_p95_s"] <= d["rows"][0]["itl_p99_s"]'

head -c 4000 "$(dirname "$QDYNO")/share/text/sample.txt" >"$T/text" 2>/dev/null || yes "Once upon a time there was a dog." | head -c 4000 >"$T/text"
expect 0 eval -m "$R" -f "$T/text" -c 128 -o json && json 'd["rows"][0]["perplexity"] > 1 and d["rows"][0]["random_weights"] is True'
expect 0 eval -c 128 --chunks 2 -o json && json 'd["rows"][0]["file"].endswith("held-out.txt") and d["rows"][0]["scored_tokens"] == 2 * 63'
expect 0 eval -m "$R" -f "$T/text" -c 128 && says out 'random weights: quality figures mean nothing'
expect 0 eval -f "$T/text" -c 64 -C file -C q8_0 -C q4_0 --ref default -o json && cp "$T/out" "$T/kld.json" &&
  json '[r["kld_mean"] == 0 for r in d["rows"]] == [True, False, False] and d["reference"]["perplexity"] > 1' &&
  json 'd["rows"][1]["kld_mean"] < d["rows"][2]["kld_mean"] and all(r["top1_ratio"] <= 1 for r in d["rows"])' &&
  json 'all(r["ppl_ratio_lower"] <= r["ppl_ratio"] <= r["ppl_ratio_upper"] for r in d["rows"])' &&
  json 'all(len(r["depth"]) == 4 and r["kld_lower"] <= r["kld_mean"] <= r["kld_upper"] for r in d["rows"])' &&
  json 'd["rows"][0]["first_divergence_diverged"] == 0 and d["rows"][0]["mcnemar_p"] == 1' &&
  json 'all(r["first_divergence_prompts"] > 0 and r["first_divergence_limit"] == 32 for r in d["rows"])'
[ -z "$PYTHON" ] || { expect 0 show "$(value 'd["run"]')" -o json && json 'd["rows"] == json.load(open("'"$T"'/kld.json"))["rows"]'; }
# one text per model: a loss on another text is not ranked, until it is measured on the model's text or that changes
expect 0 eval -f "$T/text" -c 64 --chunks 2 -C q8_0 --ref default && says out "measured on text; this model's text is held-out.txt"
expect 0 advise --limit kld=0.02 --top 10000 -o json &&
  json '[(r["kld_mean"], r["kld_other_text"]) for r in d["rows"] if r["config"] in ("q4_0", "q8_0")] == [(None, "text")] * 2' &&
  json 'd["text"]["path"].endswith("held-out.txt") and d["text"]["losses_on_other_texts"] >= 2 and not d["text"]["chosen"]'
expect 0 eval -f "$T/text" -c 64 --chunks 2 --set-text -o json && json 'd["text"]["is_text_of_model"] and len(d["text"]["sha256"]) == 64'
expect 0 eval -c 64 --chunks 2 -o json && json 'd["rows"][0]["file"] == d["text"]["path"] and d["text"]["path"].endswith("/text")'
expect 0 advise --top 10000 -o json && json '"text" in [r["kld_text"] for r in d["rows"] if r["config"] == "q8_0"] and d["text"]["chosen"]'
cp "$T/text" "$T/text.kept" && echo more >>"$T/text"
expect 5 eval -c 64 --chunks 2 && says err 'text was changed after it became the text of this model' && says err 'set-text'
expect 5 ab default q8_0 -w tg4 --quality && says err 'was changed after'
mv "$T/text" "$T/text.away"
expect 5 eval -c 64 --chunks 2 && says err 'cannot be read: No such file'
mv "$T/text.kept" "$T/text"
expect 0 eval -c 64 --chunks 2 --set-text -C q8_0 -C q4_0 --ref default -o json && json 'd["rows"][0]["file"].endswith("held-out.txt") and d["text"]["is_text_of_model"]'
expect 4 eval -f "$T/text" -c 64 --ref q9_0 && says err '--ref q9_0'
expect 0 advise --machine "$T/machine.json" -o json && json 'len(d["rows"]) > 0 and all(r["reason"] and r["check"] for r in d["rows"])'
expect 0 advise --top 2 --goal memory --limit memory=1G -o json && json 'len(d["rows"]) <= 2'
expect 0 advise --limit kld=0.02 --top 10000 -o json && # of the bundled model q8_0 and q4_0 were measured above
  json 'sorted(r["config"] for r in d["rows"] if r["kld_mean"] and "threads" not in r["config"]) == ["q4_0", "q8_0"]' &&
  json '[(r["folded"], r["kld_mean"] is None) for r in d["rows"] if r["kld_mean"] is None or r["kld_mean"] <= 0.02] == sorted((r["folded"], r["kld_mean"] is None) for r in d["rows"] if r["kld_mean"] is None or r["kld_mean"] <= 0.02)'
expect 0 advise --machine h100 --top 1000 -o json && json '{r["device"] for r in d["rows"]} == {"gpu", "cpu"} and all(r["assumed"] for r in d["rows"]) and any(r["rule"] == "fp8" for r in d["rules"]) and d["origin"]["sources"]'
expect 0 advise --machine rpi5 --target development -o json && json 'all(r["decode_low_tok_s"] <= r["decode_tok_s"] <= r["decode_high_tok_s"] for r in d["rows"])'
tasks=$(dirname "$QDYNO")/share/examples/stories.task.jsonl
head -n 40 "$tasks" >"$T/tasks.jsonl"
expect 0 eval --task "$T/tasks.jsonl" -C q4_0 --ref default -o json &&
  json 'd["items"] == 40 and d["chance"] == 0.25 and d["reference"]["accuracy"] > 0.8 and d["rows"][0]["accuracy_lower"] < d["rows"][0]["accuracy"]' &&
  json 'len(d["rows"][0]["flips"]) == d["rows"][0]["only_reference_right"] + d["rows"][0]["only_candidate_right"]' &&
  [ -z "$PYTHON" ] || { expect 0 show "$(value 'd["run"]')" && says out 'McNemar p'; }
expect 4 eval --task "$T/tasks.jsonl" -f "$T/tasks.jsonl" && says err 'exclude each other'
echo '{"question":"x"}' >"$T/bad.jsonl"
expect 5 eval --task "$T/bad.jsonl" && says err 'bad.jsonl: line 1: expected the keys'
expect 0 info --dimensions -o json && json 'd["more_bytes"] == 0 and all(r["cols"] % 256 == 0 and r["one_row_ratio"] is None for r in d["rows"])'
small=$(dirname "$0")/../data/arch-golden-2/cohere2.gguf # rows of 32 and 64 numbers
expect 0 info --dimensions -m "$small" -o json &&
  json '[r["refused_blocks"] for r in d["rows"]] == ["256, 128, 64", "256, 128"] and d["more_bytes"] > 0' &&
  json 'all(r["q4_k_format"] == "f16" and r["one_row_ratio"] > 0 and r["many_rows_ratio"] > 0 for r in d["rows"])'
expect 0 advise -m "$small" -o json && json 'any(r["rule"] == "dimensions" and "256" in r["evidence"] for r in d["rules"])'
expect 0 advise --matrix --goal quality --machine t4 -o json &&
  json 'len(d["rows"]) == 18 and {(r["memory"], r["need"]) for r in d["rows"] if r["here"]} == {(d["memory"], "exact answers")}' &&
  json 'all(r["decode_low_tok_s"] < r["decode_tok_s"] and r["total_bytes"] > 0 for r in d["rows"])'
expect 0 advise --matrix -o json && # with the loss that was measured above
  json 'any(r["config"] == "q8_0" and (r["kld_mean"] or 0) > 0 for r in d["rows"])'
expect 0 quantize "$(dirname "$QDYNO")/share/models/bundled.gguf" "$T/matrix-q8.gguf" -R q8_0
expect 4 advise --matrix -m "$T/matrix-q8.gguf" && says err "needs a model of 16 or 32 bits: this one is Q8_0"
expect 0 advise --limit memory=1M && says out '^none of the [0-9]+ configs fits into 1.00M of memory: the smallest, '
expect 0 advise --accuracy -o json && json 'd["schema"] == "qdyno.accuracy/1" and all(r["predicted"] > 0 and r["measured"] > 0 for r in d["rows"])'
expect 0 fit --models -C q4_K --machine rpi5 -c 4096 -o json && json '[r["fits"] for r in d["rows"] if r["model"] == "7b"] == [True]'
expect 0 fit --models -C f16 --machine t4 -c 8192 -o json && json '[r["fits"] for r in d["rows"] if r["model"] == "7b"] == [False]'
expect 0 synth --arch gemma3 --shape tiny -R q8_0 "$T/window.gguf" # each line about windows names its config and saves memory
expect 0 fit -m "$T/window.gguf" -c 256,4096 -C kv=q8_0 -C default && says out '^kv=q8_0: .* instead of .* at 4096 tokens' &&
  says out '^default: .* at 4096 tokens' && ! grep -q 'at 256 tokens' "$T/out" || fail "fit names a saving of nothing"
expect 0 fit -c 512 -o json && json 'd["rows"][0]["ctx_most"] > 512 and d["rows"][0]["kv_heads"] <= d["rows"][0]["heads"]'

# tune ARGUMENTS...: status 0 if a config won, else 2
tune() {
  "$QDYNO" tune "$@" -o json >"$T/out" 2>"$T/err" </dev/null
  local status=$?
  json 'd["summary"]["exit_status"] == '"$status"' == (0 if d["winner"] != d["current"] else 2) and d["summary"]["applied"] == d["written"]'
}
tune --budget 12s && json 'd["winner"] in (d["current"], d["candidate"]) and d["because"] and d["random_weights"] is '"${random:-True}"
conf=$XDG_CONFIG_HOME/qdyno/bundled.conf # what was proven is kept, and only that
if [ -n "$PYTHON" ] && [ "$(value 'd["not_applied"]')" != None ]; then # found while others used the machine
  json 'd["loaded"] and d["written"] is None and "--wait-quiet" in d["confirm_command"]'
  [ ! -e "$conf" ] || fail "tune kept what it found on a busy machine"
elif [ -n "$PYTHON" ] && [ "$(value 'd["winner"]')" != "$(value 'd["current"]')" ]; then
  grep -qxF -- "$(value 'd["winner"]')" "$conf" || fail "the file is not the winner"
elif [ -n "$PYTHON" ]; then
  [ ! -e "$conf" ] || fail "tune kept a config that won nothing"
fi
expect 0 apply q8_0,threads=1 -o json && json 'd["config"] == "q8_0,threads=1" and "llama-server" in d["llama_cpp"]'
expect 0 bench -n 4 -p 0 -r 1 -o json && says err 'as applied in' && json 'd["rows"][0]["config"] == "q8_0,threads=1"'
expect 0 bench -n 4 -p 0 -r 1 -C default -o json && json 'd["rows"][0]["config"] == "default"'
expect 0 bench -n 4 -p 0 -r 1 -C applied -C "@$conf" -o json && json '[r["config"] for r in d["rows"]] == ["q8_0,threads=1"] * len(d["rows"])'
expect 0 apply nf4 --dry-run -o json && json 'd["llama_cpp"] is None and "nf4" in d["llama_cpp_note"]'
expect 0 apply -o json && json 'd["config"] == "q8_0,threads=1" and d["because"] == "chosen by hand"'
cp "$T/q8.gguf" "$T/my model.gguf"
expect 0 apply threads=1 -m "$T/my model.gguf" -o json
sed -i '1a # load: other programs used 65 % of the processors' "$XDG_CONFIG_HOME/qdyno/my model.conf"
expect 0 bench -n 4 -p 0 -r 1 -m "$T/my model.gguf" -o json &&
  says err "on a quiet one: qdyno ab -m '.*/my model.gguf' default threads=1 -w tg64 --estimand quiet --wait-quiet 1h"
expect 0 apply -m "$T/my model.gguf" && says out "To check that: qdyno ab -m '.*/my model.gguf' default threads=1 -w tg64"
printf '%4096s' 'no database' >"$T/unreadable.db" # the config is complete without the results of earlier searches
expect 0 apply q8_0,threads=2 --db "$T/unreadable.db" -o json && says err 'its results cannot be read' && json 'd["config"] == "q8_0,threads=2" and d["because"] == "chosen by hand"'
expect 0 apply --remove && [ ! -e "$conf" ] || fail "--remove left the file"
expect 4 bench -n 4 -p 0 -r 1 -C applied && says err 'no config is applied'
mkdir "$T/one" "$T/two" && cp "$T/q8.gguf" "$T/one/same.gguf" && cp "$T/random.gguf" "$T/two/same.gguf" # two models of one name
expect 0 apply threads=1 -m "$T/one/same.gguf" && expect 0 apply threads=2 -m "$T/two/same.gguf" && expect 0 apply --remove -m "$T/one/same.gguf"
expect 0 apply -m "$T/two/same.gguf" -o json && json 'd["config"] == "threads=2"'
expect 0 apply -m "$T/one/same.gguf" -o json && json 'd["config"] is None'
for flag in '--host 127.0.0.1' '--api-key-file x' '--parallel 2' '--drain 3s'; do
  expect 4 govern --rule itl=20ms $flag default && says err "^qdyno: ${flag% *} needs --port N"
done
for flag in '--sequences 2' '--hosts x' '--network 1g'; do
  expect 4 advise $flag && says err "^qdyno: ${flag% *} needs --ranks N"
done
expect 4 apply model=x.gguf && says err 'cannot name another model'
tune --budget 5s --dry-run -m "$T/q8.gguf" && [ ! -e "$XDG_CONFIG_HOME/qdyno/q8.conf" ] || fail "--dry-run wrote"
expect 4 && says out '^usage: qdyno' && says err 'needs a terminal' # nothing is measured that was not asked for

if [ -r "$MODEL" ]; then
  expect 0 info -m "$MODEL" -o json && json 'd["arch"] == "llama" and d["params"] == 260032 and d["random_weights"] is False'
  expect 0 run -m "$MODEL" -p "Once upon a time" -n 40 && says out '^, there was a little girl named Lily'
  expect 0 tokenize -m "$MODEL" -p "Once upon a time" && [ "$(cat "$T/out")" = "[1,403,407,261,378]" ] || fail "ids of stories260K: $(cat "$T/out")"
  expect 0 eval -m "$MODEL" -f "$SHARED/text/tinystories-valid-excerpt.txt" --chunks 4 -o json &&
    json '3 < d["rows"][0]["perplexity"] < 5 and d["rows"][0]["scored_tokens"] == 4 * 255'
else
  skip "no trained model in $SHARED"
fi
finish
