#!/bin/bash
# Proves: every error ends with the documented exit status and a helpful message, and closed or full standard streams
# do no harm.
. "$(dirname "$0")/lib.sh" "$@"

expect 4 benhc && says err "did you mean 'bench'"
expect 4 bench --repititions 3 && says err "did you mean '--repetitions'"
expect 4 bench -r 0 && says err 'whole number from 1'
expect 4 bench -r && says err 'needs a value'
expect 4 bench -r 2 -r 3 && says err 'twice'
expect 4 bench -p 12x && says err 'whole numbers'
expect 4 bench -C threds=2 && says err 'threads'
expect 4 bench -C q9_0
expect 4 bench -C threads=2,threads=3
expect 4 bench --threads 0x2
expect 4 bench -C kv_cache=contiguous,kv_blocks=4 && says err kv_blocks
expect 4 bench --kv_cache contiguous --kv_blocks 4 && says err kv_blocks
expect 4 run -p x --kv_cache contiguous --kv_blocks 4 && says err kv_blocks
expect 4 ab q8_0 -w tg8 && says err '2 to 8 config lines'
expect 4 ab f16 q8_0 f32 q4_0 q4_1 q5_0 q5_1 q6_K q3_K -w tg8 && says err 'too many'
expect 4 ab f16 q8_0 -w tgx
expect 4 ab f16 q8_0 -w tg8 --metric decode_toks && says err 'decode_tok_s'
expect 4 ab --resume 99999

# ---- a database that another process has locked: the run is not stored, has no number, and names what to do
if [ -n "$PYTHON" ]; then
  expect 0 --db "$T/locked.db" history
  "$PYTHON" - "$T/locked.db" "$T/is_locked" <<'PY' &
import sqlite3, sys, time
d = sqlite3.connect(sys.argv[1], isolation_level=None)
d.execute("BEGIN EXCLUSIVE")
open(sys.argv[2], "w").close()
time.sleep(600)
PY
  LOCKER=$!
  for _ in $(seq 300); do [ -e "$T/is_locked" ] && break; sleep 0.1; done
  expect 5 --db "$T/locked.db" ab f16 q8_0 -w tg16 --budget 3s && says out 'nothing was measured: .*locked' &&
    says out 'could not be stored' && says out 'another file \(--db FILE\)' && ! grep -q 'run 0\|show 0' "$T/out" ||
    fail "a run that was not stored is printed as if it were"
  expect 5 --db "$T/locked.db" ab f16 q8_0 -w tg16 --budget 3s -o json && json 'd["run"] is None and "locked" in d["error"]'
  # Every other command that stores a run says what is locked, and names no run.
  while read -r line; do
    eval "expect 5 --db '$T/locked.db' $line" && says err locked && ! grep -qE '(run|show|--resume) 0|"run": 0' "$T/out" "$T/err" ||
      fail "$line: run 0"
  done <<'END'
bench -n 4 -p 0 -r 1
bench --profile -n 4 -r 1
eval --chunks 1 -c 64
tune --budget 3s -o json
recipe --like q8_0 --windows 2
govern f16 q8_0 --rule itl=50ms -n 2
END
  kill $LOCKER
fi
expect 4 advise --goal sped && says err "did you mean 'speed'"
expect 4 advise --limit memory=lots && says err '8G'
expect 4 advise --target soon && says err 'decode_tok_s=VALUE'
expect 4 advise --target decode_tok_s=0 && says err 'above 0'
expect 4 advise --forget && says err '--accuracy'
expect 5 advise --machine nowhere && says err 'known: a100'
expect 4 detect --machine rpi5 --kernels && says err 'which measure this one'
expect 4 fit --machine rpi5 --load && says err 'needs this machine'
expect 4 run -p a -f b && says err 'exclude'
expect 4 eval --chunks 0 && says err '--chunks'
expect 4 logits --ids 1,x --out "$T/x"
expect 4 logits --ids 999999999 --out "$T/x"
expect 4 show nonsense
expect 4 show 99999
expect 4 synth --shape hugge "$T/x.gguf" && says err '1b'
expect 4 synth --arch lama "$T/x.gguf" && says err 'did you mean llama' && says err 'granitehybrid'
expect 4 synth --shape gpt-oss-20b --arch llama "$T/x.gguf" && says err 'expected --arch gpt-oss or none'
expect 4 synth --expert-format q4 "$T/x.gguf" && says err '--expert-format q4'
expect 4 push && says err '--url'
expect 4 calibrate --out "$T/x.gguf" && says err 'expected IN'
expect 4 calibrate "$T/x" && says err '--out FILE'
expect 4 calibrate --show "$T/x" -f "$T/x" && says err 'leave -f out'
expect 4 calibrate "$T/x" --out "$T/x.gguf" -c 4
expect 4 help nonsense
[ ! -e "$T/x" ] && [ ! -e "$T/x.gguf" ] || fail "a refused command left a file behind"

expect 5 info -m "$T/none.gguf" && says err 'none.gguf'
# a name cannot command the terminal
expect 5 info -m "$T/no"$'\e[2J\u202e'"model.gguf" && says err 'no\\x1b\[2J\\u202emodel\.gguf'
! LC_ALL=C grep -q $'\e' "$T/err" || fail 'an error message contains an escape character'
expect 4 watch --every 99999999d && says err 'at most 36500d'
expect 5 bench -m "$T/none.gguf" -n 8 -p 0
expect 5 ab f16 q8_0 -m "$T/none.gguf" -w tg8
expect 5 eval -f "$T/none.txt"
head -c 300 /dev/urandom >"$T/noise.gguf"
printf 'GGUF' | cat - "$T/noise.gguf" >"$T/damaged.gguf"
expect 5 info -m "$T/noise.gguf"
expect 5 info -m "$T/damaged.gguf"
expect 5 run -m "$T/damaged.gguf" -p x
expect 0 synth --shape tiny "$T/tiny.gguf"
for size in 0 3 23 400 5000 100000; do
  head -c "$size" "$T/tiny.gguf" >"$T/cut.gguf"
  expect 5 bench -m "$T/cut.gguf" -n 4 -p 0 -r 1
done
expect 5 info -m "$T" # a folder
expect 5 calibrate "$T/none.gguf" --out "$T/x.gguf"
expect 5 calibrate "$T/tiny.gguf" -f "$T/none.txt" --out "$T/x.gguf"
echo "too short" >"$T/short.txt"
expect 4 calibrate "$T/tiny.gguf" -f "$T/short.txt" --out "$T/x.gguf" && says err 'at least 16'
expect 5 calibrate --show "$T/tiny.gguf" && says err 'this is a model'
expect 5 calibrate --show "$T/damaged.gguf"
expect 5 calibrate --show "$T/noise.gguf"
head -c 100 /dev/zero >"$T/zeros.dat"
expect 5 calibrate --show "$T/zeros.dat"
[ ! -e "$T/x.gguf" ] || fail "a refused calibration left a file behind"
echo "not a database at all, but long enough to be looked at" >"$T/bad.db"
expect 5 history --db "$T/bad.db"

expect 0 synth --shape 15m "$T/15m.gguf" # 7 KB of KV cache a token: 16 M tokens are more than machines have
expect 6 fit -m "$T/15m.gguf" -c 16777216 --ctk f32 --ctv f32
expect 6 run -m "$T/15m.gguf" -p x -c 16777216 --ctk f32 --ctv f32 && says err '[0-9]G'
expect 6 bench -m "$T/15m.gguf" -n 4 -p 0 -C "ctx=16777216,kv=f32"
expect 6 ab -m "$T/15m.gguf" default "ctx=16777216,kv=f32" -w tg4
expect 4 bench -m "$T/15m.gguf" -n 0 -p 64 -r 1 -C ctx=32 && says err 32
rm -f "$T/15m.gguf"

# a config that cannot run becomes a row; the others go on
expect 0 bench -n 4 -p 0 -r 1 -C default -C "model=$T/none.gguf" -o json && json 'len(d["rows"]) == 2 and d["rows"][1]["error"]'

# streams: a reader that closes the pipe, closed streams, a full disk
"$QDYNO" help bench 2>"$T/err" | true
[ "${PIPESTATUS[0]}" = 0 ] && [ ! -s "$T/err" ] || fail "a reader that left: status ${PIPESTATUS[0]}"
"$QDYNO" run -p Hello -n 2000 2>"$T/err" | head -c 1 >/dev/null
[ "${PIPESTATUS[0]}" -lt 128 ] || fail "run into a closed pipe: status ${PIPESTATUS[0]}"
"$QDYNO" history >&- 2>"$T/err"; status=$?
[ $status -lt 128 ] && [ $status != 0 ] || fail "closed stdout: status $status"
"$QDYNO" bench -n 4 -p 0 -r 1 <&- >&- 2>&-; status=$?
[ $status -lt 128 ] || fail "all streams closed: status $status"
expect 0 doctor && says out 'database +\| ok'
if [ -w /dev/full ]; then
  "$QDYNO" info >/dev/full 2>"$T/err"
  [ $? = 6 ] && says err 'No space left' || fail "full disk: wrong status"
else
  skip "no /dev/full"
fi

# A FIFO that nobody writes to is waited for, and a signal ends the wait; as a model it is refused
mkfifo "$T/fifo"
expect 5 info -m "$T/fifo" && says err 'not a regular file'
expect 5 run -m "$T/fifo" -p x && says err 'not a regular file'
waits() {
  "$QDYNO" "$@" >"$T/out" 2>"$T/err" </dev/null &
  local pid=$! status
  pids+=($pid)
  # it waits for the FIFO as soon as it has opened it
  for _ in $(seq 600); do ls -l "/proc/$pid/fd" 2>/dev/null | grep -q "$T/fifo" && break; sleep 0.1; done
  kill -TERM $pid
  for _ in $(seq 600); do kill -0 $pid 2>/dev/null || break; sleep 0.1; done
  kill -KILL $pid 2>/dev/null
  wait $pid
  status=$?
  [ $status = 130 ] && says err 'interrupted' || fail "SIGTERM in qdyno $*: status $status, want 130"
}
waits eval -m "$T/tiny.gguf" -f "$T/fifo"
waits run -m "$T/tiny.gguf" -f "$T/fifo" -n 1
waits cache "$T/fifo"
waits advise --machine "$T/fifo"
waits push 1 --url http://127.0.0.1:1 --user me --password-file "$T/fifo"

# Ctrl-C stops generation cleanly and keeps the text
rm -f "$T/out"
"$QDYNO" run -p Hello -n 1000000 -c 16000 --ignore-eos >"$T/out" 2>"$T/err" &
pid=$!
pids+=($pid)
for _ in $(seq $((WAIT_S * 10))); do [ -s "$T/out" ] && break; sleep 0.1; done
kill -INT $pid
wait $pid
status=$?
[ $status = 130 ] && says err 'stopped: interrupted' || fail "Ctrl-C in run: status $status"
finish
