#!/bin/bash
# Proves: in a real terminal, a filter takes effect while it is typed and Esc removes it; a deleted run comes back with
# u, and after a kill with `history --undelete`; a command started while an A/B is paused waits in the queue, can be
# taken out and put back, and starts when the A/B is stopped; a stored run is not shown as live.
. "$(dirname "$0")/lib.sh" "$@"
have tmux || { echo "SKIPPED: no tmux here"; exit 77; }
S=qdyno-e2e-lists-$$
tm() { tmux -L "$S" "$@" 2>/dev/null; }
trap 'tm kill-server; cleanup' EXIT
M=$(dirname "$QDYNO")/share/models/bundled.gguf
[ -r "$M" ] || { echo "SKIPPED: no bundled model"; exit 77; }

screen() { tm capture-pane -p -t 0; }
# wait_for PATTERN: the screen shows it; wait_gone PATTERN: it no longer does
wait_for() {
  for _ in $(seq $((WAIT_S * 5))); do screen | grep -Eq -- "$1" && return 0; sleep 0.2; done
  fail "the screen never said '$1'"
  screen
  return 1
}
wait_gone() {
  for _ in $(seq $((WAIT_S * 5))); do screen | grep -Eq -- "$1" || return 0; sleep 0.2; done
  fail "the screen always said '$1'"
  screen
  return 1
}
runs() { "$QDYNO" history -o csv "$@" 2>/dev/null | sed 1d | grep -c .; }
# wait_runs COUNT [FLAG...]: the database has so many runs
wait_runs() {
  local want=$1
  shift
  for _ in $(seq $((WAIT_S * 5))); do [ "$(runs "$@")" = "$want" ] && return 0; sleep 0.2; done
  fail "expected $want runs of 'history $*', found $(runs "$@")"
}
start() { tm -f /dev/null new-session -d -x 120 -y 40 "exec '$QDYNO' -m '$M' 2>'$T/err'"; }

for w in tg2 tg3 tg4; do expect 0 bench -m "$M" -w "$w" || finish; done
[ "$(runs)" = 3 ] || fail "three runs of bench are $(runs) in the history"

start
wait_for '┌─ Start' || finish
tm send-keys 4
wait_for 'History' && wait_for ' tg4 '
tm send-keys /
tm send-keys -l 'tg3'
wait_for '1 of 3 with "tg3"' && wait_gone ' tg4 ' # before Enter
tm send-keys Escape
wait_for ' tg4 ' && wait_gone 'with "tg3"'

tm send-keys g x # the filter had moved the selection to the row that it left
wait_for 'run 3 deleted: u restores it' && wait_gone ' tg4 '
wait_runs 2
wait_runs 1 --deleted
tm send-keys u
wait_for 'run 3 restored' && wait_for ' tg4 '
wait_runs 3

# a kill right after the deletion loses nothing
tm send-keys g x
wait_runs 2
pid=$(tm list-panes -F '#{pane_pid}')
kill -KILL "$pid"
for _ in $(seq $((WAIT_S * 10))); do tm has-session || break; sleep 0.1; done
wait_runs 1 --deleted
expect 0 show 3 && says out 'tg4'
expect 0 history --undelete 3
wait_runs 3
expect 4 history --undelete 3 && says err 'not deleted'

# the queue; a paused A/B does not end by itself
start
wait_for '┌─ Start' || finish
tm send-keys b
wait_for 'New A/B' || finish
tm send-keys Enter
wait_for '● (A/A|A/B)' || finish # its run is stored from here on
tm send-keys '|'
wait_for 'pausing|paused' || finish
tm send-keys '!'
wait_for 'Run a command'
tm send-keys -l 'help formats'
tm send-keys Enter
wait_for 'queued as number 1'
tm send-keys '&'
wait_for '1 .* help +help formats'
tm send-keys j x
wait_gone 'help formats'
tm send-keys u
wait_for '1 .* help +help formats'
tm send-keys q
wait_for 'drop the queue'
tm send-keys n
tm send-keys s
wait_for '┌─ qdyno help formats' # its output opens when it has run
tm send-keys Escape
wait_gone '┌─ qdyno help formats'
tm send-keys q
for _ in $(seq $((WAIT_S * 5))); do tm has-session || break; sleep 0.2; done
tm has-session && fail "q did not end the dashboard"

# a run of an earlier session
start
wait_for '┌─ Start' && wait_for 'resume the A/B that was stopped' || finish
tm send-keys 4
wait_for 'History'
tm send-keys g Enter
wait_for 'Stored run 4 of 20[0-9-]+, not live'
tm send-keys Escape
wait_for '┌─ History'
finish
