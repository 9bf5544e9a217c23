#!/bin/bash
# Proves: no process outlives the command that started it. Each kind of command that starts processes is killed with
# SIGKILL, and all processes of its tree end. In --linear, "help" lists the commands and "quit" ends the
# dashboard without starting anything, and quitting ends a running command.
. "$(dirname "$0")/lib.sh" "$@"
PLUGINS=${3:-}

alive() { case $(ps -o stat= -p "$1" 2>/dev/null) in '' | Z*) return 1 ;; esac; } # a zombie waits for init, no more
tree() {
  local child
  for child in $(pgrep -P "$1"); do echo "$child" && tree "$child"; done
}
# all_end WHAT PID...: fails unless all end within a minute.
all_end() {
  local what=$1 left=x pid
  shift
  for _ in $(seq 600); do
    left=
    for pid in "$@"; do alive "$pid" && left="$left $pid"; done
    [ -z "$left" ] && return
    sleep 0.1
  done
  fail "$what: still running after a minute: $(ps -o pid=,args= -p "$(echo $left | tr ' ' ,)" | tr '\n' ';')"
  kill -9 $left
}
# paused PID: pauses the A/B of that dashboard, and waits until a process of its tree is stopped.
paused() {
  local child
  for _ in $(seq $((WAIT_S * 10))); do grep -q 'run [0-9]*: A ' "$T/out" && break; sleep 0.1; done
  printf '|\n' >&7
  for _ in $(seq $((WAIT_S * 10))); do
    for child in $(tree $1); do
      case $(ps -o stat= -p $child) in T*) return ;; esac
    done
    sleep 0.1
  done
  fail "the A/B of the dashboard was not paused: $(tail -3 "$T/out")"
}
# dies_with LEVELS INPUT ARGUMENTS...: starts the program, waits until its tree has that many generations, kills it.
dies_with() {
  local levels=$1 input=$2 pid all=
  shift 2
  : >"$T/out"
  mkfifo "$T/in"
  "$QDYNO" "$@" <"$T/in" >"$T/out" 2>"$T/err" &
  pid=$!
  pids+=($pid)
  exec 7>"$T/in"
  rm "$T/in"
  printf '%b' "$input" >&7
  [ -z "${PAUSED:-}" ] || paused $pid
  # Stopped while its tree is listed: it starts nothing then. Between two workers it has none: it is listed again.
  for _ in $(seq $((WAIT_S * 10))); do
    kill -STOP $pid 2>/dev/null || break
    all=$(tree $pid)
    [ "$(wc -w <<<"$all")" -ge "$levels" ] && break
    kill -CONT $pid
    sleep 0.1
  done
  [ "$(wc -w <<<"$all")" -ge "$levels" ] || fail "qdyno $*: fewer than $levels processes to end: $(tail -3 "$T/out")"
  kill -9 $pid
  wait $pid 2>/dev/null
  exec 7>&-
  all_end "qdyno $* was killed" $all
}

dies_with 1 '' ab default q8_0 -w tg64 --budget 120s
dies_with 1 '' bench -C default -p 64 -n 64 -r 500
dies_with 1 '' tune --budget 120s
dies_with 1 '' watch --every 1s -w tg64
dies_with 2 'tune\n\n\n\n' dashboard --linear
dies_with 2 'b\n\n\n\n\n\n\n60s\n' dashboard --linear
PAUSED=1 dies_with 1 'b\n\n\n\n\n\n\n60s\n' dashboard --linear
dies_with 1 '' govern default q8_0 --rule itl=1s -n 100000
if [ -r "$PLUGINS/moody.so" ]; then # a plug-in runs in a process of its own, here one that hangs
  expect 0 synth --shape tiny -R f32 "$T/m.gguf"
  QDYNO_PLUGIN_TIMEOUT=100s dies_with 1 '' quantize "$T/m.gguf" "$T/none.gguf" --plugin "$PLUGINS/moody.so" -R moody,mood=hang
else
  skip "no plug-ins beside the program"
fi
# `git describe`, for the label of a run, and a git that hangs
mkdir -p "$T/repo/.git" "$T/slow" && printf '#!/bin/sh\nexec sleep 600\n' >"$T/slow/git" && chmod +x "$T/slow/git"
program=$(readlink -f "$QDYNO")
cd "$T/repo" || exit 1
QDYNO=$program PATH="$T/slow:$PATH" dies_with 1 '' eval -c 64
cd "$T" || exit 1

# help and quit
{ echo help; sleep 1; echo quit; } | timeout 600 "$QDYNO" dashboard --linear >"$T/out" 2>"$T/err"
[ "$?" = 0 ] || fail "quit does not end the dashboard"
says out 'q or quit: ' && says out 't or tune: ' && says out 'bench .*: '
grep -q 'tune --\|about to start' "$T/out" && fail "help and quit started something: $(cat "$T/out")"
finish
