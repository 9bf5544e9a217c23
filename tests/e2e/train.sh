#!/bin/bash
# Proves: `train` writes a model that `run` and `eval` accept without the warning of random weights; a killed run
# continues to the same file; refused requests leave no model; `stories` writes and tests stories; --recover brings a
# quantized model closer to its original; settings of training are arms of `ab`.
. "$(dirname "$0")/lib.sh" "$@"
SMALL="--layers 2 --width 32 --heads 2 --kv-heads 1 --ff 64 --vocab 512 -b 2 --exam 4 --steps 8 --save-every 2"

expect 0 train "$T/whole.gguf" $SMALL -o json &&
  json 'd["schema"] == "qdyno.train/1" and d["steps"] == 8 and len(d["losses"]) == 8 and not d["resumed"]' &&
  json 'd["held_out_nats"] > d["floor_nats"] > 0.1 and d["params"] > 10000 and d["peak_bytes"] > 1 << 20'
expect 0 train "$T/whole.gguf" $SMALL && says out "entropy" && says out "[*]" # over already: examined again
expect 0 run -m "$T/whole.gguf" -p "One day" -n 4 -o json && json 'd["gen_tokens"] == 4 and not d["random_weights"]'
printf 'One day, Tom had two apples. Tom smiled.\n%.0s' $(seq 40) >"$T/text"
expect 0 eval -m "$T/whole.gguf" -f "$T/text" -c 64 -o json

# Killed after a save: the same command continues.
"$QDYNO" train "$T/parts.gguf" $SMALL >/dev/null 2>"$T/err" &
pid=$!
pids+=($pid)
for _ in $(seq $((WAIT_S * 50))); do
  [ -e "$T/parts.gguf.train" ] && [ "$(stat -c %s "$T/parts.gguf.train")" -gt 200000 ] && break
  kill -0 $pid 2>/dev/null || break
  sleep 0.02
done
kill -9 $pid 2>/dev/null
wait $pid 2>/dev/null
expect 0 train "$T/parts.gguf" $SMALL -t 1 --checkpoint-every 1 -o json
cmp -s "$T/whole.gguf" "$T/parts.gguf" || fail "a killed run did not end in the same model"

# The grammar: the same seed gives the same stories, and a story with a wrong end is rejected.
expect 0 stories -n 20 && cp "$T/out" "$T/stories" && [ "$(wc -l <"$T/stories")" = 20 ] || fail "want 20 stories"
expect 0 stories -n 20 && cmp -s "$T/out" "$T/stories" || fail "other stories the second time"
sed 1s/.$/!/ "$T/stories" >"$T/wrong"
expect 0 stories -f "$T/wrong" -o json && json '[r["nats"] is None for r in d["rows"]] == [True] + [False] * 19' &&
  json 'd["rows"][0]["told"] == d["rows"][0]["chars"] - 1'

# Recovery: closer to the original on other stories, atomic, refused where impossible.
W=$T/whole.gguf
expect 0 quantize "$W" "$T/r.gguf" -R q4_0 --recover steps=20,rate=0.002,batch=2,ctx=64 -o json &&
  json '0 < d["kld_after"] < d["kld_before"] and d["recover_steps"] == 20 and d["recover_tokens"] == 20 * 2 * 64' &&
  json '"q4_0 x " in d["formats"] and d["held_out_tokens"] > 1000'
expect 0 run -m "$T/r.gguf" -p "One day" -n 2
cp "$T/r.gguf" "$T/before.gguf"
expect 4 quantize "$W" "$T/r.gguf" -R q4_0 --recover steps=20 && says err "exists: --force"
expect 5 quantize "$W" "$T/r.gguf" --force -R q4_0 --recover steps=2,rate=0.9 && says err "recovery did not help"
cmp -s "$T/r.gguf" "$T/before.gguf" || fail "a recovery that did not help replaced a file"
expect 4 quantize "$W" "$T/no.gguf" -R q4_0 --recover rate=1e-3 && says err "number of training steps"
expect 4 quantize "$W" "$T/no.gguf" -R q4_0 --recover steps=5,pace=9 && says err "pace=9"
expect 4 quantize "$W" "$T/no.gguf" -R int8_dynamic --recover steps=5 && says err "quantizes activations" && [ ! -e "$T/no.gguf" ]
expect 0 synth --arch qwen2 --shape tiny -R f16 "$T/qwen2.gguf" && expect 4 quantize "$T/qwen2.gguf" "$T/no.gguf" -R q8_0 --recover steps=5 && says err "not llama"
ls "$T" | grep -E 'unrecovered|recovered' && fail "recovery left something behind"

# Settings of training as arms: meaningless ones are refused before anything runs.
expect 4 ab q8_0 amp=off -w train1 && says err "arm A: format=q8_0 does not matter for train1"
expect 4 ab default amp=off -w tg4 && says err "arm B: amp=off is a setting for training"
expect 4 ab default train_batch=4 -w train1 && says err "do the same work"
expect 4 ab -m "$W" default amp=off -w train1 && says err "trains from nothing"
# The verdict depends on the load of the machine; that both arms trained does not.
"$QDYNO" ab train_batch=1,accumulate=1 train_batch=1,accumulate=1,checkpoint_every=1 -w train1 --budget 5s --control 0 -o json >"$T/out" 2>"$T/err" </dev/null
json 'all(a["train_tok_s"] > 0 and a["peak_rss_bytes"] > 0 and a["model"].startswith("trained from scratch") for a in d["arms"])' &&
  json 'd["arms"][0]["train_loss"] == d["arms"][1]["train_loss"] and d["arms"][1]["plan"]["compute"] < d["arms"][0]["plan"]["compute"]'

expect 4 train "$T/parts.gguf" $SMALL --rate 0.1 && says err "other options"
expect 4 train "$T/no.gguf" --heads 3 && says err "heads"
expect 4 train "$T/no.gguf" -R q4_0 && says err "f16 or f32"
expect 4 train && says err "expected OUT"
[ ! -e "$T/no.gguf" ] || fail "a refused run left a model"
finish
