#!/bin/bash
# A model file that becomes shorter while a command uses it: the command says so and ends with status 5, not by a
# signal. Nothing unfinished stays, and no run stays marked as running. The program is stopped while the file
# is cut, when it or a child of it has the file mapped, so nothing depends on the speed of the machine.
# SQLite has a file mapped, too, in which processes agree about the database: without it the program cannot go on, says so,
# and what it stored is whole.
# And a damaged quantized copy in the cache is made again instead of used.
. "$(dirname "$0")/lib.sh" "$@"
MODEL=$(dirname "$QDYNO")/share/models/bundled.gguf # long enough commands need its vocabulary
M=$T/model.gguf
shorter=0
SIZE=$(stat -c %s "$MODEL")
for _ in $(seq 4000); do echo "Once upon a time there was a little cat who sat on a mat."; done >"$T/text"

# Whether the process, or a child of it, has the model mapped.
mapped() {
  local p
  for p in "$1" $(cat /proc/"$1"/task/*/children 2>/dev/null); do
    grep -q "$M" /proc/"$p"/maps 2>/dev/null && echo "$p" && return 0
  done
  return 1
}

# cut SIZE COMMAND...: run, cut the file to SIZE while it is in use, expect status 5. A command that ended before the
# file was cut is started again; what it wrote is complete and removed first.
cut() {
  local to=$1 user pid status try
  shift
  for try in 1 2 3 4 5; do
    rm -f "$T"/out.*
    cp "$MODEL" "$M"
    "$QDYNO" "$@" >"$T/out" 2>"$T/err" </dev/null &
    pid=$!
    until user=$(mapped $pid) || ! kill -0 $pid 2>/dev/null; do sleep 0.01; done
    [ -n "$user" ] && kill -STOP "$user" 2>/dev/null && truncate -s "$to" "$M" && kill -CONT "$user" 2>/dev/null
    wait $pid
    status=$?
    [ $status = 0 ] || break
  done
  [ $status = 5 ] || fail "qdyno $* with the model cut to $to bytes: status $status, want 5"
  # a command that opens the file again, or a worker that opens it later, finds a file that is cut already
  cat "$T/out" "$T/err" | grep -q "model.gguf" || fail "qdyno $*, cut to $to: no message names the file"
  cat "$T/out" "$T/err" | grep -q "model.gguf.*became shorter while it was in use" && shorter=$((shorter + 1))
  left=$(find "$T" -name '*.partial' -o -name '*.tmp.*' -o -name 'out.*')
  [ -z "$left" ] || fail "qdyno $*, cut to $to: left $left"
}

for to in 4096 $((SIZE - 100)); do
  cut $to run -m "$M" -p Once -n 2000 -c 2048 --ignore-eos
  cut $to eval -m "$M" -f "$T/text"
  cut $to bench -m "$M" -p 512 -n 400 -r 20
  cut $to ab -m "$M" threads=1 threads=1,ctk=f32 -w pp64+tg256 --budget 1m
done
cut 4096 eval -m "$M" -f "$T/text" -C q8_0 --ref f32
cut 4096 quantize "$M" "$T/out.gguf" -R method=gptq,bits=4,group=32
cut 4096 logits -m "$M" --ids "$(seq -s, 1 2000)" --out "$T/out.f32"
expect 0 history -o json && ! grep -q '"running"' "$T/out" || fail "a run is still marked as running: $(head -c 400 "$T/out")"
[ $shorter -gt 0 ] || fail "no command says that the file became shorter"

DB=$T/cut.db
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:handle_sigbus=0 TSAN_OPTIONS=${TSAN_OPTIONS:-}:handle_sigbus=0
"$QDYNO" ab --db "$DB" -m "$MODEL" default kv=f32 -w tg16 --min-blocks 200 --control 0 >"$T/out" 2>"$T/err" </dev/null &
pid=$!
until [ -s "$DB-shm" ] && "$QDYNO" show --db "$DB" 1 >/dev/null 2>&1 || ! kill -0 $pid 2>/dev/null; do sleep 0.1; done
truncate -s 0 "$DB-shm"
wait $pid 2>/dev/null
status=$?
[ $status = 135 ] || fail "ab with its database's -shm cut to 0 bytes: status $status, want 135 (SIGBUS)"
says err "^qdyno: '$DB-shm' became shorter while it was mapped, or could not be read: what is stored stays"
expect 0 history --db "$DB" && says out interrupted
expect 2 ab --db "$DB" --resume 1 --budget 2s

head -c 40000 "$T/text" >"$T/short"
rm -rf "$T/cache/qdyno/models" # an eval above may have finished its copy before the file was cut
perplexity() { expect 0 eval -m "$MODEL" -f "$T/short" -C q8_0 -o json && value 'd["rows"][0]["perplexity"]'; }
want=$(perplexity)
[ -n "$PYTHON" ] && ! [[ $want =~ ^[0-9.]+$ ]] && fail "no perplexity: $want"
copy=$(find "$XDG_CACHE_HOME" -path '*/models/*.gguf')
size=$(stat -c %s "$copy")
cp "$copy" "$T/intact"
for damage in 40 $((size / 3)) $((size - 900)) cut0 cut$((size - 1)); do
  case $damage in
    cut*) truncate -s "${damage#cut}" "$copy" ;;
    *) printf '\x7f\x7f\x7f\x7f' | dd of="$copy" bs=1 seek="$damage" conv=notrunc 2>/dev/null ;;
  esac
  got=$(perplexity)
  [ "$got" = "$want" ] || fail "damage $damage of the cached copy: perplexity $got, want $want"
  says err "cached quantized copy .* made again"
  cmp -s "$copy" "$T/intact" || fail "damage $damage: the copy was not made again as it was"
done
finish
