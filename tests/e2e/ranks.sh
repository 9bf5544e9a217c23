# ranks.sh - several processes: exchanges are measured, failures have a reason, and no process is left.
. "$(dirname "$0")/lib.sh" "$@"

have mpirun && [ -f "$(dirname "$QDYNO")/qdyno_mpi.so" ] || {
  echo "SKIPPED: no Open MPI (openmpi-bin, libopenmpi-dev): ranks are not tested"
  exit 77
}

# Processes of ranks that this script started.
ranks_left() { pgrep -f "$QDYNO rank --socket" | wc -l; }
# none_left WHAT: waits until no rank is left.
none_left() {
  for _ in $(seq $((WAIT_S * 10))); do [ "$(ranks_left)" = 0 ] && return 0; sleep 0.1; done
  fail "$1: $(ranks_left) ranks are left"
}

echo "exchanges"
for n in 2 4; do
  expect 0 detect --ranks $n -o json && json "d['schema'] == 'qdyno.links/1' and d['ranks'] == $n and len(d['rows']) == 24" &&
    json "all(r['seconds'] > 0 and r['bytes_s'] > 0 for r in d['rows'])" &&
    json "sorted({r['operation'] for r in d['rows']}) == ['all_gather', 'all_reduce', 'send']"
  none_left "detect --ranks $n"
done

echo "what is missing is named"
expect 4 detect --ranks 1
expect 4 detect --hosts hosts && says err '\-\-ranks'
expect 4 detect --ranks 2 --hosts "$T/none" && says err 'none'
QDYNO_MPIRUN=$T/none expect 7 detect --ranks 2 && says err 'QDYNO_MPIRUN'
QDYNO_MPI_MODULE=$T/none.so expect 7 detect --ranks 2 && says err 'QDYNO_MPI_MODULE'
PATH_BEFORE=$PATH
PATH=/nowhere expect 7 detect --ranks 2 && says err 'openmpi-bin'
PATH=$PATH_BEFORE
expect 4 rank && says err 'mpirun'

echo "the same bits with every number of ranks"
IDS=$(seq -s, 1 70)
MORE= # more of the config line
# same MODEL MODE...: logits of MODEL with each mode are those of one process.
same() {
  local model=$1 mode
  shift
  expect 0 logits -m "$model" -C "${MORE}batch_invariant=on" --ids "$IDS" --out "$T/one" || return
  for mode in "$@"; do
    expect 0 logits -m "$model" -C batch_invariant=on,${MORE}parallel=$mode --ids "$IDS" --out "$T/several" &&
      { cmp -s "$T/one" "$T/several" || fail "$model: parallel=$mode has other logits"; }
    none_left "logits with parallel=$mode"
  done
}
# near_by LIMIT: "several" differs from "one" by a normalized mean squared error below LIMIT.
near_by() {
  [ -z "$PYTHON" ] || python3 - "$T/one" "$T/several" "$1" <<'PY' || fail "logits too far, or the same"
import array, sys
a, b = (array.array("f", open(p, "rb").read()) for p in sys.argv[1:3])
error = sum((x - y) ** 2 for x, y in zip(a, b)) / sum(x * x for x in a)
print(f"normalized mean squared error {error:.2g}")
sys.exit(0 if len(a) == len(b) and 0 < error < float(sys.argv[3]) else 1)
PY
}
# What can differ: biases, fused matrices, both, norms of queries, windows and softcaps, layers that are added together.
for arch in llama gpt2 phi3 gptneox qwen2 qwen3 gemma2 gemma3 command-r falcon; do
  expect 0 synth --arch $arch --shape tiny -R q8_0 "$T/$arch.gguf" && same "$T/$arch.gguf" tp2 tp4 pp2 tp2.pp2
done
# Experts (with biases; beside one that every row uses), a norm over all heads, latent attention, gates, states of each kind.
for arch in qwen3moe gpt-oss glm4moe olmoe deepseek2 qwen35 nemotron_h_moe lfm2; do
  expect 0 synth --arch $arch --shape tiny -R q8_0 "$T/$arch.gguf" && same "$T/$arch.gguf" tp2 tp2.pp2
done
expect 0 synth --arch gemma4 --shape tiny -R q8_0 "$T/gemma4.gguf" && same "$T/gemma4.gguf" tp2
# A feed-forward beside experts, a second embedding and keys that layers share, one matrix for all inputs of a state.
for model in gemma4-moe gemma4-ple granitemoe-shared llama4 deepseek2-kv_b qwen3next-fused; do
  same "$(dirname "$0")/../data/arch-golden-2/$model.gguf" tp2
done
# Experts as products of their own, and more ranks than parts of a feed-forward.
expect 0 logits -m "$T/gpt-oss.gguf" -C batch_invariant=on,compile=off --ids "$IDS" --out "$T/one"
expect 0 logits -m "$T/gpt-oss.gguf" -C batch_invariant=on,compile=off,parallel=tp4 --ids "$IDS" --out "$T/several" &&
  { cmp -s "$T/one" "$T/several" || fail "tp4 with compile=off: other logits"; }
for format in f32 q4_K int8; do
  expect 0 synth --arch llama --shape tiny -R $format "$T/of.gguf" && same "$T/of.gguf" tp2
done
# Positions, of which each process has blocks of 1024: windows, latent attention, sinks and experts, states.
MORE=ctx=4096,
IDS=$(awk 'BEGIN { for (i = 0; i < 1100; i++) printf "%s%d", i ? "," : "", 1 + i * i % 90 }')
for arch in llama gemma3 deepseek2 gpt-oss qwen35; do
  expect 0 synth --arch $arch --shape tiny -R q8_0 "$T/$arch.gguf" && same "$T/$arch.gguf" cp2
done
same "$T/llama.gguf" tp2.cp2 cp2.pp2
IDS=$(awk 'BEGIN { for (i = 0; i < 3200; i++) printf "%s%d", i ? "," : "", 1 + i * i % 90 }')
same "$T/llama.gguf" cp4
expect 0 logits -m "$T/llama.gguf" --ids "$IDS" --out "$T/one"
expect 0 logits -m "$T/llama.gguf" -C parallel=cp2 --ids "$IDS" --out "$T/several" && near_by 1e-3
IDS=$(seq -s, 1 70) MORE=
rm -f "$T"/*.gguf
expect 0 run -p "Once upon a time" -n 24 && cp "$T/out" "$T/one"
expect 0 run -p "Once upon a time" -n 24 -C parallel=tp2 && { cmp -s "$T/one" "$T/out" || fail "run: another text with tp2"; }
expect 0 run -p "Once upon a time" -n 24 -C q4_0 && cp "$T/out" "$T/one"
expect 0 run -p "Once upon a time" -n 24 -C q4_0,parallel=tp2 && { cmp -s "$T/one" "$T/out" || fail "run: another text of a quantized copy with tp2"; }

# A prompt that a pipeline runs in several passes.
head -c 1500 "$(dirname "$QDYNO")/share/text/held-out.txt" >"$T/prompt"
expect 0 run -p "$(cat "$T/prompt")" -n 24 -C batch_invariant=on && cp "$T/out" "$T/one"
for mode in pp2 pp4 tp2.pp2 cp2 pp1+2+3; do
  expect 0 run -p "$(cat "$T/prompt")" -n 24 -C batch_invariant=on,parallel=$mode &&
    { cmp -s "$T/one" "$T/out" || fail "run: another text with $mode"; }
done
# Sequences that several replicas have: each generates what one process does.
expect 0 bench -C batch_invariant=on -C batch_invariant=on,parallel=dp2 -C batch_invariant=on,parallel=tp2.dp2 \
  -C batch_invariant=on,parallel=pp2.dp2 -C batch_invariant=on,parallel=cp2 -w pp40+tg16@b3 -r 1 -o json && json "all(not r['error'] for r in d['rows'])"
[ -z "$PYTHON" ] || python3 - "$XDG_DATA_HOME/qdyno/qdyno.db" <<'PY' || fail "replicas generate something else"
import sqlite3, sys
rows = sqlite3.connect(sys.argv[1]).execute("select config, work_hash, output_hash from cell where output_hash <> ''").fetchall()
sys.exit(0 if len({r[0] for r in rows}) == 5 and len({r[1:] for r in rows}) == 1 else 1)
PY

echo "exchanges in fewer bits"
# near MODE FORMAT LIMIT: its logits are near those of one process.
near() {
  expect 0 logits -C batch_invariant=on,parallel=$1,exchange=$2 --ids "$IDS" --out "$T/several" && near_by $3
}
expect 0 logits -C batch_invariant=on --ids "$IDS" --out "$T/one"
for mode in tp2 tp4 pp2 tp2.pp2; do
  near $mode bf16 1e-3
  near $mode q8_0 1e-2
  # Rows travel one by one: what else is in the batch does not matter.
  cp "$T/several" "$T/whole"
  expect 0 logits -C batch_invariant=on,parallel=$mode,exchange=q8_0,batch=7 --ids "$IDS" --out "$T/several" &&
    { cmp -s "$T/whole" "$T/several" || fail "exchange=q8_0 with $mode: other logits with batch=7"; }
  none_left "$mode"
done
expect 0 logits -C batch_invariant=on,parallel=tp2,exchange=f32 --ids "$IDS" --out "$T/several" &&
  { cmp -s "$T/one" "$T/several" || fail "exchange=f32: other logits"; }
head -c 4000 "$(dirname "$QDYNO")/share/text/held-out.txt" >"$T/text"
expect 0 eval -f "$T/text" -c 128 -C parallel=tp2,exchange=q8_0 --ref parallel=tp2 -o json && json "0 < d['rows'][0]['kld_mean'] < 0.1"
expect 4 logits -C exchange=bf16 --ids 1 --out "$T/x" && says err 'tpN or ppN'
expect 4 bench -C parallel=dp2,exchange=bf16 -w tg4@b2 -r 1 && says err 'tpN or ppN'
expect 4 logits -C parallel=tp2,exchange=q4_0 --ids 1 --out "$T/x" && says err 'q8_0'

echo "as an arm"
expect 0 bench -C default -C parallel=tp2 -p 16 -n 8 -r 1 -o json &&
  json "len(d['rows']) == 4 and all(not r['error'] for r in d['rows']) and all(r['peak_rss_bytes'] > 0 for r in d['rows'])"
expect 0 bench -C parallel=tp2.dp2 -w tg8@b2 -r 1 && says out 'rank 3 \(tp 2/2 dp 2/2\) on .+ computed [0-9]+ %'
expect 0 bench -C parallel=tp2 -w load:concurrency=2,requests=4,in=16,out=8 -r 1 -o json && json "not d['rows'][0]['error']"
expect 0 bench -C parallel=pp2 -w load:concurrency=2,requests=4,in=16,out=8 -r 1 -o json && json "not d['rows'][0]['error']"
expect 4 bench -C parallel=dp2 -w load:concurrency=2,requests=4,in=16,out=8 -r 1 && says err replicas
expect 4 bench -C parallel=cp2 -w load:concurrency=2,requests=4,in=16,out=8 -r 1 && says err 'positions of each sequence'
expect 4 serve -C parallel=cp2 --port 0 && says err 'positions'
"$QDYNO" ab default parallel=tp2 -w tg4 --control 0 --warmup 1 --max-blocks 6 --budget 30s -o json >"$T/out" 2>"$T/err"
[ $? -le 3 ] && [ -n "$PYTHON" ] && { python3 - "$XDG_DATA_HOME/qdyno/qdyno.db" <<'PY' || fail "cells of an A/B have no figures of ranks"; }
import json, sqlite3, sys
rows = sqlite3.connect(sys.argv[1]).execute("select config, worker_json from cell where run_id = (select max(id) from run)").fetchall()
ranks = [json.loads(w).get("ranks") for c, w in rows if "tp2" in c]
def whole(x):
    return x["plan_bytes"] > x["weight_bytes"] > 0 and x["host"] and 0 < x["exchange_s"] and 0 <= x["wait_s"] <= x["exchange_s"] and x["work_s"] > 0
def machine(first, other):  # one of both tells what its machine did
    return first["first_of_machine"] and first["machine_s"] > 0 and (first["machine_busy_s"] is None) == (first["machine_s"] < 0.1) and first["machine_mem_used_bytes"] > 0 and \
        not other["first_of_machine"] and other["machine_s"] is None
sys.exit(0 if ranks and all(len(r) == 2 and all(map(whole, r)) and machine(*r) for r in ranks) else 1)
PY
none_left bench

echo "the dashboard shows ranks side by side"
S=qdyno-ranks-$$
tm() { tmux -L "$S" -f /dev/null "$@" 2>/dev/null; }
screen() { tm capture-pane -p -t 0; }
# shows PATTERN...: the screen has all of them at once.
shows() {
  local pattern missing=
  for _ in $(seq $((WAIT_S * 5))); do
    missing=
    for pattern in "$@"; do screen | grep -Eq -- "$pattern" || missing=$pattern; done
    [ -z "$missing" ] && return 0
    sleep 0.2
  done
  fail "the screen never said '$missing'"
  screen
  return 1
}
start_dashboard() {
  tm new-session -d -x 160 -y 40 "'$QDYNO' -m '$(dirname "$QDYNO")/share/models/bundled.gguf' 2>'$T/err'"
  shows 'Machine'
}
# The rows of both ranks with their shares: while cells run, and when the run is read from the database.
RANKS=('Ranks: share of the time' 'B  0 tp 1/2 .*[0-9]%' 'B  1 tp 2/2 .*[0-9]%')
watch_ranks() {
  start_dashboard || return
  tm send-keys b
  shows 'New A/B' || return
  tm send-keys C-u
  tm send-keys -l default
  tm send-keys Tab C-u
  tm send-keys -l parallel=tp2
  tm send-keys Tab C-u
  tm send-keys -l tg64
  tm send-keys Tab Tab Tab Tab C-u # over arm C, quality and margin
  tm send-keys -l 600s             # it is stopped before
  shows 'budget +✓ 600s' || return
  tm send-keys Enter
  shows 'running A/B|● A/B' || return
  tm send-keys 2
  shows "${RANKS[@]}" '● A/B' || return # it still runs
  tm kill-server
  none_left "the dashboard was closed"
  start_dashboard || return
  tm send-keys 4
  shows 'parallel=tp2|interrupted|stopped' || return
  tm send-keys Enter
  tm send-keys 2
  shows "${RANKS[@]}" 'Stored run'
  tm kill-server
}
if have tmux; then
  trap 'tm kill-server; cleanup' EXIT
  watch_ranks
else
  skip "no tmux: the pane of ranks is not looked at"
fi

echo "plans and predictions"
expect 0 fit -C default -C parallel=tp2 -C parallel=pp2 -C parallel=dp2 -c 128 -o json && json "d['rows'][0]['rank_bytes'] is None" &&
  json "all(0 < r['rank_bytes'] < r['total_bytes'] for r in d['rows'][1:3]) and d['rows'][3]['rank_bytes'] > d['rows'][1]['rank_bytes']"
expect 0 advise --ranks 3 -o json && json "d['schema'] == 'qdyno.parallel/1' and d['measured'] is False and d['rows'][0]['config'] == 'off'" &&
  json "all(r['decode_tok_s'] is None for r in d['rows'][1:])" # 3 processes: exchanges were not measured
expect 0 advise --ranks 2 --sequences 2 -o json && json "d['measured'] is True and [r['config'] for r in d['rows']] == ['off', 'tp2', 'cp2', 'pp2', 'dp2']" &&
  json "all(r['error'] is None and 0 <= r['exchange_ratio'] < 1 for r in d['rows'][1:])"
# By a slow network, tensor parallelism spends nearly all of its time in exchanges, and more than by a fast one.
expect 0 advise --ranks 2 --network 100m/1000us -o json && slow=$(value "d['rows'][1]['exchange_ratio']")
expect 0 advise --ranks 2 --network 100g/5us -o json && fast=$(value "d['rows'][1]['exchange_ratio']")
[ -z "$PYTHON" ] || python3 -c "import sys; sys.exit(0 if 0 < $fast < $slow < 1 and $slow > 0.5 else 1)" || fail "exchange: $fast, $slow"
expect 4 advise --network 25g && says err '\-\-ranks'
expect 4 advise --ranks 2 --network fast && says err '25g'

echo "refused"
expect 4 logits -C parallel=tp1 --ids 1 --out "$T/x" && says err 'tpN'
expect 4 logits -C parallel=two --ids 1 --out "$T/x" && says err 'tpN'
expect 4 logits -C parallel=tp2,device=opencl:0 --ids 1 --out "$T/x" && says err 'CPU'
expect 4 logits -C parallel=tp2,affinity=compact --ids 1 --out "$T/x" && says err 'affinity'
expect 4 logits -C hosts="$T/h" --ids 1 --out "$T/x" && says err 'parallel'
expect 4 logits -m "$(dirname "$0")/../data/arch-golden-2/gemma4-ple.gguf" -C parallel=pp2 --ids 1 --out "$T/x" && says err 'share keys'
expect 4 logits -C parallel=pp3+4 --ids 1 --out "$T/x" && says err '7 layers together'
expect 4 logits -C parallel=pp64 --ids 1 --out "$T/x" && says err 'layers'
expect 4 logits -C parallel=dp2 --ids 1 --out "$T/x" && says err 'sequences'
expect 4 logits -C parallel=cp2,attention=plain --ids 1 --out "$T/x" && says err 'attention=plain'
expect 4 logits -C parallel=tp64 --ids 1 --out "$T/x" && says err 'heads'

echo "a rank that dies or hangs"
rank_pid() { # rank_pid NUMBER: the process of that rank, when it is there
  local pid
  for _ in $(seq $((WAIT_S * 10))); do
    for pid in $(pgrep -f "$QDYNO rank --socket"); do
      [ -r /proc/"$pid"/environ ] && tr '\0' '\n' </proc/"$pid"/environ 2>/dev/null | grep -qx "OMPI_COMM_WORLD_RANK=$1" && { echo "$pid"; return; }
    done
    sleep 0.1
  done
}
expect 0 synth --shape 135M -R q8_0 "$T/large.gguf" # evaluating the text takes a minute
for i in $(seq 40); do cat "$(dirname "$QDYNO")/share/text/held-out.txt"; done >"$T/text"
# start [NAME=VALUE]: begins to evaluate the text with two ranks; $leader is its process.
start() {
  env "$@" "$QDYNO" eval -m "$T/large.gguf" -f "$T/text" -C parallel=tp2 >"$T/out" 2>"$T/err" </dev/null &
  leader=$!
  pids+=($leader)
}
for rank in 0 1; do
  start
  pid=$(rank_pid $rank)
  [ -n "$pid" ] || fail "rank $rank did not start"
  sleep 2
  kill -KILL "$pid"
  wait $leader
  status=$?
  [ $status = 5 ] || fail "rank $rank killed: status $status, want 5"
  says err 'rank ended' && says err 'signal 9'
  none_left "rank $rank killed"
done
# At any other moment: while they start, join, open the file, warm up, or end.
for delay in 0 0.05 0.1 0.2 0.3 0.4 0.5 0.7; do
  "$QDYNO" bench -m "$T/large.gguf" -C parallel=tp2.pp2 -t 1 -p 32 -n 8 -r 1 -o json >"$T/out" 2>"$T/err" </dev/null &
  leader=$!
  pids+=($leader)
  pid=$(rank_pid 2)
  sleep $delay
  kill -KILL "$pid" 2>/dev/null
  wait $leader
  status=$?
  case $status in
  0) ;; # it had ended already, or the error is that of an arm
  5 | 7) says err 'rank|ranks' ;;
  *) fail "rank 2 killed after $delay s: status $status" ;;
  esac
  none_left "rank 2 killed after $delay s"
done
start QDYNO_RANKS_TIMEOUT=3
pid=$(rank_pid 1)
sleep 2
kill -STOP "$pid"
wait $leader
status=$?
[ $status = 5 ] || fail "rank 1 stopped: status $status, want 5"
says err 'sign of life'
none_left "rank 1 stopped"
start
rank_pid 1 >/dev/null
sleep 1
kill -KILL $leader
wait $leader 2>/dev/null
none_left "the leader killed"

finish
