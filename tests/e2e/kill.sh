#!/bin/bash
# Proves: when an A/B is killed at any time, the stored data are complete and in order, at most the running cell is
# lost, no worker survives, no file is partial, and --resume continues to a verdict. A second process cannot continue a
# run that is being measured. A worker that is stopped is killed.
. "$(dirname "$0")/lib.sh" "$@"
[ -n "$PYTHON" ] || { echo "SKIPPED: no python3 to read the database with"; exit 77; }

KILLS=10
RANDOM=20261 # the moments, in seconds from the start, are the same in every run of this test
DB=$XDG_DATA_HOME/qdyno/qdyno.db
alive() { case $(ps -o stat= -p "$1" 2>/dev/null) in '' | Z*) return 1 ;; esac; } # a zombie waits for init, no more

# Checks the database and prints the last run's id, state and number of cells ("0 none 0": there is none).
look() { python3 "$(dirname "$0")/stored.py" "$DB"; }

# Waits until the process has stored a cell more than $cells in $run, or one in a newer run, or has ended.
stores_a_cell() {
  local id n
  for _ in $(seq 1200); do
    read -r id _ n <<<"$(look 2>/dev/null)"
    [ "${id:-0}" = "$run" ] && [ "${n:-0}" -gt "$cells" ] && return
    [ "${id:-0}" -gt "$run" ] && [ "${n:-0}" -gt 0 ] && return
    alive "$1" || return
    sleep 0.1
  done
}

# killed SECONDS ARGUMENTS...: run the program for so long, from its start or, with $measuring, from the first cell that
# it stores. $stored: cells in the database when it was killed.
killed() {
  local seconds=$1 pid workers left
  shift
  "$QDYNO" "$@" >"$T/out" 2>"$T/err" </dev/null &
  pid=$!
  pids+=($pid)
  [ -z "$measuring" ] || stores_a_cell $pid
  sleep "$seconds"
  kill -STOP $pid 2>/dev/null # neither a worker more nor a cell more until it is killed
  workers=$(pgrep -P $pid)
  stored=$(look 2>/dev/null | cut -d' ' -f3)
  kill -9 $pid 2>/dev/null
  wait $pid 2>/dev/null
  for _ in $(seq 600); do
    left=
    for w in $workers; do alive "$w" && left="$left $w"; done
    [ -z "$left" ] && break
    sleep 0.1
  done
  [ -z "$left" ] || fail "workers outlived the workbench that was killed after $seconds s:$left"
}

AB="default q8_0 -w tg8 --max-blocks 6 --control 2 --budget 90s"
run=0 state=none cells=0 seen=0 measuring=
for i in $(seq $KILLS); do
  [ $((i % 4)) = 1 ] && rm -rf "$XDG_CACHE_HOME" # arm B's file is made anew: the kill may come in the middle of that
  after=0.$(printf '%03d' $((RANDOM % 300)))     # at first before there is a run, later while it measures
  [ $i -gt 4 ] && measuring=yes && after=$((RANDOM % 5)).$(printf '%03d' $((RANDOM % 1000)))
  last=$run
  if [ "$state" = running ] || [ "$state" = interrupted ]; then # interrupted: killed between opening and resuming
    killed "$after" ab --resume "$run" --budget 90s
  else
    killed "$after" ab $AB --seed "$i"
  fi
  found=$(look 2>"$T/err") || { fail "killed after $after s: $(tail -1 "$T/err")"; finish; }
  read -r run state cells <<<"$found"
  [ "$run" -ge "$last" ] || fail "killed after $after s: run $last is gone"
  [ "$cells" -ge "${stored:-0}" ] || fail "killed after $after s: $stored cells became $cells"
  seen=$((seen + (cells > 0)))
  case $state in none | running | interrupted | done) ;; *) fail "killed after $after s: state $state" ;; esac # done: a busy machine
done
[ $seen -ge 3 ] || fail "only $seen of $KILLS kills came while something was measured"

# One at a time: what is being measured cannot be gone on with by anybody else. It is held still where nearly all of it
# is to come, as a run that is stopped near its end may have come to it.
"$QDYNO" ab $AB --seed 99 >"$T/first" 2>&1 </dev/null &
first=$!
pids+=($first)
last=$run
for _ in $(seq 2000); do
  read -r run state cells <<<"$(look 2>/dev/null)"
  [ "${run:-0}" -gt "$last" ] && grep -aq "^$first " "$DB-holds" && break
done
kill -STOP $first
expect 4 ab --resume "$run" && says err "run $run is being measured by process $first"
kill -9 $first
wait $first 2>/dev/null
expect 4 apply --run "$run" && says err "run $run proved no config better \(verdict: none\)"

"$QDYNO" ab --resume "$run" --budget 90s -o json >"$T/out" 2>"$T/err" </dev/null
status=$?
[ $status -le 3 ] || fail "--resume of a killed run: status $status"
json "d['run'] == $run and d['state'] == 'done' and d['verdict']"
look >/dev/null 2>"$T/err" || fail "after the end: $(tail -1 "$T/err")"

# A worker that is stopped is killed, and the run ends with that reason instead of hanging.
worker_of() {
  local p
  for p in $(pgrep -P "$1"); do
    tr '\0' ' ' <"/proc/$p/cmdline" 2>/dev/null | grep -q ' worker' && echo "$p" && return 0
  done
  return 1
}
"$QDYNO" ab $AB --seed 100 >"$T/out" 2>"$T/err" </dev/null &
pid=$!
pids+=($pid)
for _ in $(seq 6000); do w=$(worker_of $pid) && break; sleep 0.01; done
kill -STOP "$w" || fail "no worker was found"
wait $pid
status=$?
[ $status = 70 ] && says out 'the worker was stopped by a signal for [0-9]+ s and was killed' || fail "a stopped worker: status $status, want 70"
alive "$w" && fail "the stopped worker still lives"
look >/dev/null 2>"$T/err" || fail "after a stopped worker: $(tail -1 "$T/err")"

# Nothing half-written: what is in the cache is whole, and what a killed writer left is gone when the next one writes.
expect 0 bench -C q4_0 -p 0 -n 1 -r 1
for file in $(find "$XDG_CACHE_HOME" -name '*.gguf'); do
  "$QDYNO" info -m "$file" >/dev/null 2>"$T/err" || fail "half-written: $file"
done
left=$(find "$XDG_CACHE_HOME" "$XDG_DATA_HOME" -name '*.partial*' -o -name '*.tmp*' -o -name '*-journal')
[ -z "$left" ] || fail "left behind: $left"
finish
