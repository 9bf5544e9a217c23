#!/bin/bash
# Proves, in a real terminal: the dashboard survives stop and continue by the shell, many resizes, a killed worker, a
# database that another process locks or that is not writable, a poor terminal, signals and a lost connection, and
# always leaves the terminal usable.
. "$(dirname "$0")/lib.sh" "$@"
have tmux || { echo "SKIPPED: no tmux here"; exit 77; }
S=qdyno-robust-$$
tm() { tmux -L "$S" "$@" 2>/dev/null; }
trap 'tm kill-server; cleanup' EXIT
screen() { tm capture-pane -p -t 0 "$@"; }
# wait_for SECONDS PATTERN
wait_for() {
  for _ in $(seq $(($1 > WAIT_S ? $1 * 5 : WAIT_S * 5))); do
    screen | grep -Eq -- "$2" && return 0
    sleep 0.2
  done
  fail "the screen never said '$2'"
  screen
  return 1
}
keys() { tm send-keys "$@"; }
# The shell answers, and the terminal echoes and reads lines: the dashboard has restored it.
asked=0
shell_is_whole() {
  asked=$((asked + 1)) # an answer of its own each time: the last one is still on the screen
  keys -l 'stty -a >'"$T/stty"'; echo answer '$asked' $((40 + 2))'
  keys Enter
  wait_for 60 "^answer $asked 42" || return 1
  grep -q ' icanon' "$T/stty" && grep -q ' echo ' "$T/stty" || fail "$1: the terminal was not put back"
}
# The child of this terminal's shell: other tests run dashboards of the same program at the same time.
dashboard_pid() { pgrep -n -P "$(tm list-panes -F '#{pane_pid}')" -f "^$QDYNO --db"; }

tm -f /dev/null new-session -d -x 100 -y 30 "bash --norc"
tm set-option -g remain-on-exit on
start() { # DB
  keys C-l
  keys -l "clear; '$QDYNO' --db '$1' 2>'$T/err'; echo status \$?"
  keys Enter
  wait_for 60 'Machine'
}

# Ctrl-Z and fg; also a stop by another process
start "$T/q.db" || finish
keys C-z
wait_for 60 'Stopped' || finish
shell_is_whole 'Ctrl-Z'
keys -l fg
keys Enter
wait_for 60 'Machine'
pid=$(dashboard_pid)
kill -TSTP "$pid"
wait_for 60 'Stopped'
keys -l fg
keys Enter
wait_for 60 'Machine'
kill -STOP "$pid" # what no program can see
wait_for 60 'Stopped'
keys -l fg
keys Enter
wait_for 60 'Machine'
keys 4
wait_for 60 'History'

# many resizes
for i in $(seq 40); do tm resize-window -x $((1 + RANDOM % 200)) -y $((1 + RANDOM % 60)); done
tm resize-window -x 100 -y 30
keys 1
wait_for 60 'Machine'

# a killed worker is a result, not an error
keys b
wait_for 60 'New A/B'
keys C-u
keys -l default
keys Enter
killed=
for _ in $(seq $((WAIT_S * 10))); do
  ab=$(pgrep -P "$pid" -f ' ab ' | head -1) # the A/B is a process of its own, which starts the workers
  worker=$(pgrep -P "${ab:-0}" -f 'worker --fd' | head -1)
  [ -n "$worker" ] && kill -9 "$worker" 2>/dev/null && killed=1 && break
  sleep 0.1
done
[ -n "$killed" ] || fail "no worker was seen"
wait_for 60 'killed|invalid|failed'
kill -0 "$pid" 2>/dev/null || fail "the dashboard died with its worker"

# the end by a signal
kill -TERM "$pid"
for _ in $(seq $((WAIT_S * 5))); do kill -0 "$pid" 2>/dev/null || break; sleep 0.2; done
kill -0 "$pid" 2>/dev/null && fail "SIGTERM did not end it"
shell_is_whole 'SIGTERM'

# Ctrl-Z on the command line first pauses between two cells, and the run records it
keys -l "clear; '$QDYNO' ab default q8_0 -w tg8 --budget 20s --db '$T/ab.db'"
keys Enter
for _ in $(seq $((WAIT_S * 10))); do "$QDYNO" --db "$T/ab.db" history -o csv 2>/dev/null | grep -q ',running,' && break; sleep 0.1; done
keys C-z
wait_for 60 'Stopped'
keys -l fg
keys Enter
for _ in $(seq $((WAIT_S * 5))); do screen -S -200 | grep -q 'qdyno show 1' && break; sleep 0.2; done # the report may scroll
screen -S -200 | grep -q 'continued after a pause of' || { fail "the report names no pause"; screen -S -200; }

# a database that another process locks: reported, and the screen never waits for it
if [ -n "$PYTHON" ]; then
  python3 - "$T/q.db" "$T/held" <<'PY' &
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN EXCLUSIVE")
open(sys.argv[2], "w").close()
time.sleep(250)
PY
  holder=$!
  pids+=($holder)
  for _ in $(seq $((WAIT_S * 10))); do [ -e "$T/held" ] && break; sleep 0.1; done
  start "$T/q.db"
  keys b
  wait_for 60 'New A/B'
  keys Enter
  keys 9
  sleep 1
  keys '?'
  wait_for 60 'this list|Keys'
  keys Escape
  wait_for 60 'another process has locked it'
  kill "$holder" 2>/dev/null
  wait "$holder" 2>/dev/null
  keys q
  wait_for 60 'status 0' || { keys y; wait_for 60 'status 0'; }
fi

# a database that cannot be written, as on a full disk
keys -l "(trap '' XFSZ; ulimit -f 0; clear; '$QDYNO' --db '$T/full.db' 2>'$T/err'; echo status \$?)"
keys Enter
wait_for 60 'Machine'
keys 4
wait_for 60 'full|cannot|disk|large'
keys q
wait_for 60 'status 0'
shell_is_whole 'a full disk'

# unsuitable terminals
for term in no-such-terminal dumb ''; do
  keys -l "clear; TERM='$term' '$QDYNO' 2>&1; echo \"status \$? of '$term'\""
  keys Enter
  wait_for 60 "^status 7 of '$term'" && screen | tr -d '\n' | grep -q 'TERM=xterm-256color qdyno.*--linear' ||
    fail "TERM='$term' is not told what to do"
done

# a lost connection
start "$T/q.db"
pid=$(dashboard_pid)
tm kill-server
for _ in $(seq $((WAIT_S * 5))); do kill -0 "$pid" 2>/dev/null || break; sleep 0.2; done
kill -0 "$pid" 2>/dev/null && fail "the dashboard outlives its terminal"
finish
