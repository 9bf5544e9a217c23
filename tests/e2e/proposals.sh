#!/bin/bash
# Proves: on a file that is quantized already, the dashboard proposes what runs on it: another file of the same model,
# then cache types; a recipe and a program that is not installed are refused in the form and by `ab`, before anything
# is measured or stored; a command with long paths runs whole.
. "$(dirname "$0")/lib.sh" "$@"
[ -r "$MODEL" ] || { skip "no trained model: the bundled one"; MODEL=$(dirname "$QDYNO")/share/models/bundled.gguf; }
mkdir "$T/two" "$T/one"
cp "$MODEL" "$T/two/plain.gguf"
expect 0 quantize "$T/two/plain.gguf" "$T/two/small.gguf" -R q8_0 || finish
cp "$T/two/small.gguf" "$T/one/small.gguf"
runs() { "$QDYNO" history -o csv 2>/dev/null | tail -n +2 | wc -l; }

# the same checks as in the form, before anything is stored
before=$(runs)
expect 4 ab -m "$T/one/small.gguf" default q4_0 -w tg4 && says err 'arm B: .*already quantized'
expect 7 ab -m "$T/one/small.gguf" default engine=llama-server,bin=/nowhere/server -w tg4 && says err "arm B: .*no program '/nowhere/server'"
expect 5 ab -m "$T/one/small.gguf" default model="$T/none.gguf" -w tg4 && says err 'arm B: .*none.gguf'
[ "$(runs)" = "$before" ] || fail "a refused A/B was stored"

# say_to MODEL: standard input are lines "PATTERN<TAB>ANSWER": each answer is given once the pattern was printed.
say_to() {
  local model=$1 pattern answer from=0 i found
  rm -f "$T/in" && mkfifo "$T/in"
  "$QDYNO" --linear -m "$model" <"$T/in" >"$T/out" 2>"$T/err" &
  local pid=$!
  pids+=($pid)
  exec 7>"$T/in"
  while IFS=$'\t' read -r pattern answer; do
    found=
    for ((i = 0; i < WAIT_S * 10 && ! found; i++)); do
      tail -c +$((from + 1)) "$T/out" | grep -Eq -- "$pattern" && found=1 && break
      sleep 0.1
    done
    [ -n "$found" ] || fail "the dashboard never said '$pattern': $(tail -c 600 "$T/out")"
    from=$(stat -c %s "$T/out")
    [ -z "$answer" ] || printf '%s\n' "${answer#EMPTY}" >&7
  done
  printf 'quit\n' >&7 # nothing runs: it ends at once
  exec 7>&-
  wait "$pid"
}

say_to "$T/one/small.gguf" <<EOF
model: 	b
New A/B: arm A	default
arm B. .empty line: (kv=q8_0|act=int8)	.
EOF
say_to "$T/two/small.gguf" <<EOF
model: 	b
New A/B: arm A	default
arm B. .empty line: model=$T/two/plain.gguf	q4_0
workload	tg4
arm C	EMPTY
quality	EMPTY
margin	EMPTY
budget	EMPTY
arm B: .*already quantized	.
EOF

# every byte of a command with long paths is run
long=$T/$(printf 'd%.0s' {1..200})/$(printf 'e%.0s' {1..200})
mkdir -p "$long"
if cp "$MODEL" "$long/plain.gguf" 2>/dev/null; then
  say_to "$long/plain.gguf" <<EOF
model: 	f
recipe	hqq,bits=8
calib	EMPTY
file	$long/out-of-a-long-name.gguf
has been written	
EOF
  expect 0 info -m "$long/out-of-a-long-name.gguf" -o json && says out '"dominant_format": "u8_'
fi
finish
