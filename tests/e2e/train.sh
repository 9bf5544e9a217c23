#!/bin/bash
# Proves: `train` makes a model that `run` and `eval` take for one of ours, without the warning of random weights; a
# run that is killed goes on and ends in the same file; what cannot be is refused and leaves no model; `stories` tells and judges.
. "$(dirname "$0")/lib.sh" "$@"
SMALL="--layers 2 --width 32 --heads 2 --kv-heads 1 --ff 64 --vocab 512 -b 2 --exam 4 --steps 8 --save-every 2"

expect 0 train "$T/whole.gguf" $SMALL -o json &&
  json 'd["schema"] == "qdyno.train/1" and d["steps"] == 8 and len(d["losses"]) == 8 and not d["resumed"]' &&
  json 'd["held_out_nats"] > d["floor_nats"] > 0.1 and d["params"] > 10000 and d["peak_bytes"] > 1 << 20'
expect 0 train "$T/whole.gguf" $SMALL && says out "entropy" && says out "[*]" # over already: examined again
expect 0 run -m "$T/whole.gguf" -p "One day" -n 4 -o json && json 'd["gen_tokens"] == 4 and not d["random_weights"]'
printf 'One day, Tom had two apples. Tom smiled.\n%.0s' $(seq 40) >"$T/text"
expect 0 eval -m "$T/whole.gguf" -f "$T/text" -c 64 -o json

# Killed after something was saved: the same command goes on.
"$QDYNO" train "$T/parts.gguf" $SMALL >/dev/null 2>"$T/err" &
pid=$!
pids+=($pid)
for _ in $(seq 300); do
  [ -e "$T/parts.gguf.train" ] && [ "$(stat -c %s "$T/parts.gguf.train")" -gt 200000 ] && break
  sleep 0.02
done
kill -9 $pid 2>/dev/null
wait $pid 2>/dev/null
expect 0 train "$T/parts.gguf" $SMALL -t 1 --checkpoint-every 1 -o json
cmp -s "$T/whole.gguf" "$T/parts.gguf" || fail "a killed run did not end in the same model"

# The language itself: the same stories again, and a story with a wrong end is none.
expect 0 stories -n 20 && cp "$T/out" "$T/stories" && [ "$(wc -l <"$T/stories")" = 20 ] || fail "want 20 stories"
expect 0 stories -n 20 && cmp -s "$T/out" "$T/stories" || fail "other stories the second time"
sed 1s/.$/!/ "$T/stories" >"$T/wrong"
expect 0 stories -f "$T/wrong" -o json && json '[r["nats"] is None for r in d["rows"]] == [True] + [False] * 19' &&
  json 'd["rows"][0]["told"] == d["rows"][0]["chars"] - 1'

expect 4 train "$T/parts.gguf" $SMALL --rate 0.1 && says err "other options"
expect 4 train "$T/no.gguf" --heads 3 && says err "heads"
expect 4 train "$T/no.gguf" -R q4_0 && says err "f16 or f32"
expect 4 train && says err "want OUT"
[ ! -e "$T/no.gguf" ] || fail "a refused run left a model"
finish
