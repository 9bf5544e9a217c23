# train_ranks.sh - training by several processes: the model has the bits of one process, a killed run continues with
# another number of processes, parallel= is an arm, and a rank that dies ends the training with a reason.
. "$(dirname "$0")/lib.sh" "$@"

have mpirun && [ -f "$(dirname "$QDYNO")/qdyno_mpi.so" ] || {
  echo "SKIPPED: no Open MPI (openmpi-bin, libopenmpi-dev): ranks are not tested"
  exit 77
}
SMALL="--layers 2 --width 32 --heads 2 --kv-heads 1 --ff 64 --vocab 512 -b 1 --exam 4 --save-every 2 --accumulate 4"

ranks_left() { pgrep -f "$QDYNO rank --socket" | wc -l; }
none_left() {
  for _ in $(seq $((WAIT_S * 10))); do [ "$(ranks_left)" = 0 ] && return 0; sleep 0.1; done
  fail "$1: $(ranks_left) ranks are left"
}

echo "the same bits with every number of processes"
# same FLAGS...: one, two and four processes write the same model and the same losses.
same() {
  local n
  expect 0 train "$T/one.gguf" $SMALL --steps 6 "$@" -o json && cp "$T/out" "$T/one.json" || return
  for n in 2 4; do
    expect 0 train "$T/several.gguf" $SMALL --steps 6 "$@" --parallel dp$n -o json &&
      json 'd["losses"] == json.load(open("'"$T"'/one.json"))["losses"] and d["losses"][5] < d["losses"][0]'
    cmp -s "$T/one.gguf" "$T/several.gguf" || fail "$*: dp$n trains another model"
    none_left "dp$n"
    rm -f "$T"/several.gguf*
  done
  rm -f "$T"/one.gguf*
}
same --amp bf16
same --amp off --optimizer muon -t 1
same --amp fp16 --checkpoint-every 1 --trim-every 2
# Vectors that are exchanged in several pieces.
expect 0 train "$T/one.gguf" -b 1 --exam 4 --accumulate 2 --steps 2 &&
  expect 0 train "$T/two.gguf" -b 1 --exam 4 --accumulate 2 --steps 2 --parallel dp2 &&
  { cmp -s "$T/one.gguf" "$T/two.gguf" || fail "a larger model differs with dp2"; }

echo "continued with another number of processes"
expect 0 train "$T/whole.gguf" $SMALL --steps 40
# kill_at PARALLEL: starts the training of $T/parts.gguf, kills it after its first save.
kill_at() {
  "$QDYNO" train "$T/parts.gguf" $SMALL --steps 40 $1 >/dev/null 2>"$T/err" </dev/null &
  local pid=$!
  pids+=($pid)
  for _ in $(seq $((WAIT_S * 50))); do
    [ -e "$T/parts.gguf.train" ] && [ "$(stat -c %s "$T/parts.gguf.train")" -gt 200000 ] && break
    kill -0 $pid 2>/dev/null || break
    sleep 0.02
  done
  kill -9 $pid 2>/dev/null
  wait $pid 2>/dev/null
  none_left "killed"
}
kill_at ""
expect 0 train "$T/parts.gguf" $SMALL --steps 40 --parallel dp2
cmp -s "$T/whole.gguf" "$T/parts.gguf" || fail "begun by one process, continued by two: another model"
rm -f "$T"/parts.gguf*
kill_at "--parallel dp4"
expect 0 train "$T/parts.gguf" $SMALL --steps 40
cmp -s "$T/whole.gguf" "$T/parts.gguf" || fail "begun by four processes, continued by one: another model"

echo "as an arm"
# The verdict depends on the load of the machine; that both arms did the same arithmetic does not.
"$QDYNO" ab train_batch=1,accumulate=2 train_batch=1,accumulate=2,parallel=dp2 -w train1 --budget 5s --control 0 -o json >"$T/out" 2>"$T/err" </dev/null
json 'all(a["train_tok_s"] > 0 and a["peak_rss_bytes"] > 0 for a in d["arms"])' &&
  json 'd["arms"][0]["train_loss"] == d["arms"][1]["train_loss"] and d["arms"][1]["plan"]["total"] > 1.5 * d["arms"][0]["plan"]["total"]'
none_left ab

echo "refused"
expect 4 train "$T/no.gguf" $SMALL --parallel tp2 && says err 'dpN'
expect 4 train "$T/no.gguf" $SMALL --parallel dp3 && says err 'power of 2'
expect 4 train "$T/no.gguf" $SMALL --parallel dp8 && says err 'accumulate'
expect 4 train "$T/no.gguf" $SMALL --hosts "$T/hosts" && says err 'parallel'
expect 4 ab default parallel=pp2 -w train1 && says err 'dpN'
expect 4 ab default parallel=dp4 -w train1 && says err 'accumulate'
[ ! -e "$T/no.gguf" ] || fail "a refused run left a model"

echo "a rank that dies or hangs"
rank_pid() { # the process of rank 1, when it is there
  local pid
  for _ in $(seq $((WAIT_S * 10))); do
    for pid in $(pgrep -f "$QDYNO rank --socket"); do
      tr '\0' '\n' 2>/dev/null </proc/"$pid"/environ | grep -qx "OMPI_COMM_WORLD_RANK=1" && { echo "$pid"; return; }
    done
    sleep 0.1
  done
}
for signal in KILL STOP; do
  limit=60 # mpirun reports a dead process late on a busy machine
  [ $signal = STOP ] && limit=3
  QDYNO_RANKS_TIMEOUT=$limit "$QDYNO" train "$T/dies.gguf" -b 1 --accumulate 2 --steps 100000 --parallel dp2 >"$T/out" 2>"$T/err" </dev/null &
  leader=$!
  pids+=($leader)
  pid=$(rank_pid)
  [ -n "$pid" ] || fail "rank 1 did not start"
  sleep 2
  kill -$signal "$pid"
  wait $leader
  status=$?
  [ $status = 5 ] || fail "rank 1 got SIG$signal: status $status, want 5"
  [ $signal = KILL ] && says err 'rank ended'
  [ $signal = STOP ] && says err 'sign of life'
  none_left "rank 1 got SIG$signal"
done
finish
