#!/bin/bash
# Proves: when an A/B is killed at any time, the stored data are complete and in order, at most the running cell is
# lost, no worker survives, no file is partial, and --resume continues to a verdict. A second process cannot continue a
# run that is being measured.
. "$(dirname "$0")/lib.sh" "$@"
[ -n "$PYTHON" ] || { echo "SKIPPED: no python3 to read the database with"; exit 77; }

KILLS=10
RANDOM=20261 # the moments, in seconds from the start, are the same in every run of this test
DB=$XDG_DATA_HOME/qdyno/qdyno.db
alive() { case $(ps -o stat= -p "$1" 2>/dev/null) in '' | Z*) return 1 ;; esac; } # a zombie waits for init, no more

# The runs in the database, checked: prints the last one's id, state and number of cells ("0 none 0": there is none).
# Whole: SQLite's own checks; a cell that ran has its figures and its latencies. In order:
# cells stand block by block and slot by slot, so that only what comes behind the last one can be lost.
look() {
  python3 - "$DB" <<'PY'
import os, sqlite3, sys
if not os.path.exists(sys.argv[1]):
    print(0, "none", 0)
    sys.exit()
db = sqlite3.connect(sys.argv[1])
one = lambda sql, *a: db.execute(sql, a).fetchone()[0]
assert one("PRAGMA integrity_check") == "ok", "integrity_check"
assert not db.execute("PRAGMA foreign_key_check").fetchall(), "foreign_key_check"
if not one("SELECT count(*) FROM sqlite_master WHERE name = 'run'") or not one("SELECT count(*) FROM run"):
    print(0, "none", 0)
    sys.exit()
run, state = db.execute("SELECT id, state FROM run ORDER BY id DESC LIMIT 1").fetchone()
cells = db.execute("SELECT id, phase, block, slot, error FROM cell WHERE run_id = ? ORDER BY id", (run,)).fetchall()
figures = lambda cell: {m for m, in db.execute("SELECT metric FROM measurement WHERE cell_id = ? AND value IS NOT NULL", (cell,))}
ran = [c for c in cells if not c[4] and c[1] not in ("warmup", "canary")]
FIGURES = {"decode_tok_s", "decode_seconds", "generated_tokens", "itl_p50_s", "cpu_seconds", "peak_rss_bytes"}
for c in ran:
    assert FIGURES <= figures(c[0]), f"cell {c[0]} lacks {FIGURES - figures(c[0])}"
    assert one("SELECT n FROM itl WHERE cell_id = ?", c[0]) > 0, f"cell {c[0]} lacks its latencies"
blocks = {}
for _, phase, block, slot, _ in ran:
    blocks.setdefault((phase, block), []).append(slot)
for at, slots in blocks.items():
    assert slots == list(range(len(slots))), f"block {at}: slots {slots}"
for phase in {p for p, _ in blocks}:
    numbers = [b for p, b in blocks if p == phase]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) and numbers[0] == 0, f"{phase}: blocks {numbers}"
print(run, state, len(cells))
PY
}

# killed SECONDS ARGUMENTS...: run the program for so long. $stored: cells in the database when it was killed.
killed() {
  local seconds=$1 pid workers left
  shift
  "$QDYNO" "$@" >"$T/out" 2>"$T/err" </dev/null &
  pid=$!
  pids+=($pid)
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
run=0 state=none cells=0 seen=0
for i in $(seq $KILLS); do
  [ $((i % 4)) = 1 ] && rm -rf "$XDG_CACHE_HOME" # arm B's file is made anew: the kill may come in the middle of that
  after=0.$(printf '%03d' $((RANDOM % 300)))     # at first before there is a run, later while it measures
  [ $i -gt 4 ] && after=$((RANDOM % 5)).$(printf '%03d' $((RANDOM % 1000)))
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

"$QDYNO" ab --resume "$run" --budget 90s -o json >"$T/out" 2>"$T/err" </dev/null
status=$?
[ $status -le 3 ] || fail "--resume of a killed run: status $status"
json "d['run'] == $run and d['state'] == 'done' and d['verdict']"
look >/dev/null 2>"$T/err" || fail "after the end: $(tail -1 "$T/err")"

# Nothing half-written: what is in the cache is whole, and what a killed writer left is gone when the next one writes.
expect 0 bench -C q4_0 -p 0 -n 1 -r 1
for file in $(find "$XDG_CACHE_HOME" -name '*.gguf'); do
  "$QDYNO" info -m "$file" >/dev/null 2>"$T/err" || fail "half-written: $file"
done
left=$(find "$XDG_CACHE_HOME" "$XDG_DATA_HOME" -name '*.partial*' -o -name '*.tmp*' -o -name '*-journal')
[ -z "$left" ] || fail "left behind: $left"
finish
