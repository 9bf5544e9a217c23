#!/bin/bash
# Proves: a new user who presses only keys that the screen names can pick a model, run an A/B, see its verdict, verify
# advice, apply it, filter the history, compare two runs, push, quantize, export a report, watch two configs write, and
# pause. On a real model in a real terminal.
. "$(dirname "$0")/lib.sh" "$@"
have tmux || { echo "SKIPPED: no tmux here"; exit 77; }
S=qdyno-stories-$$
tm() { tmux -L "$S" "$@" 2>/dev/null; }
trap 'tm kill-server; cleanup' EXIT
screen() { tm capture-pane -p -t 0; }
# wait_for SECONDS PATTERN
wait_for() {
  for _ in $(seq $(($1 > WAIT_S ? $1 * 10 : WAIT_S * 10))); do
    screen | grep -Eq -- "$2" && return 0
    sleep 0.1
  done
  fail "story '$story': the screen never said '$2'"
  screen
  return 1
}
# press_until KEY PATTERN: a key that is refused while a command ends is pressed again, as a person would
press_until() {
  for _ in $(seq "$WAIT_S"); do
    press "$1"
    for _ in $(seq 10); do
      screen | grep -Eq -- "$2" && return 0
      sleep 0.1
    done
  done
  fail "story '$story': $1 never opened '$2'"
  screen
  return 1
}
gone() { # SECONDS PATTERN
  for _ in $(seq $(($1 > WAIT_S ? $1 * 10 : WAIT_S * 10))); do
    screen | grep -Eq -- "$2" || return 0
    sleep 0.1
  done
  fail "story '$story': the screen still says '$2'"
  screen
  return 1
}
press() { tm send-keys "$@"; }
type_() { tm send-keys -l "$1"; }
story() { story=$1; echo "story: $1"; }
VERDICT='(better|worse|equivalent|negligible|inconclusive|invalid)'
newest() { "$QDYNO" history -o csv --limit 1 2>/dev/null | sed -n 2p; }

mkdir -p "$T/models"
if [ -r "$MODEL" ]; then
  cp "$MODEL" "$T/models/stories.gguf"
else
  skip "no trained model: the bundled one"
  cp "$("$QDYNO" info -o json 2>/dev/null | sed -n 's/.*"path": *"\([^"]*\)".*/\1/p' | head -1)" "$T/models/stories.gguf" || finish
fi
URL=http://127.0.0.1:$(free_port) pushed='stored, will be retried'
if have prometheus-pushgateway; then
  prometheus-pushgateway --web.listen-address="${URL#http://}" --persistence.file="$T/gateway.data" >"$T/gateway.log" 2>&1 &
  pids+=($!)
  pushed='pushed to'
else
  skip "no prometheus-pushgateway: what is pushed waits"
fi

cd "$T" || exit 1
tm -f /dev/null new-session -d -x 110 -y 32 "'$QDYNO' 2>'$T/err'; echo STATUS \$? >'$T/status'; sleep 5"
story 'a fresh start'
wait_for 60 't: find the best setting' || finish

story 'pick a model'
press m
wait_for 60 'Choose a model'
press C-u
type_ "$T/models/"
wait_for 60 'stories.gguf .*(fits|MB|[0-9]K|[0-9]M)'
press Down Down
press Enter
press Enter # a folder is gone into, a file is taken
wait_for 60 'stories.gguf [fF](32|16) ' || finish
press Escape

# ab A B: an A/B on a small workload that ends in seconds
ab() {
  press 1
  press b
  wait_for 60 'New A/B' || return 1
  for text in "$1" "$2" tg4 '' no 2% 5s; do
    press C-u
    type_ "$text"
    press Tab
  done
  wait_for 60 '✓ 5s'
  press Enter
  wait_for 60 'loading|warming|control|block|stopped|done' || return 1
}
# waits until that many A/Bs have a verdict
measured() {
  for _ in $(seq 300); do
    [ "$("$QDYNO" history -o csv 2>/dev/null | grep -c ',ab,done,')" = "$1" ] && return 0
    sleep 0.2
  done
  fail "$1 finished A/Bs were wanted, the newest run is: $(newest)"
}
story 'run an A/B, and see its verdict'
ab default 'handicap=50%' || finish
press "|" # pause, and go on
wait_for 60 '○ paused'
press "|"
gone 60 '(○ paused|● pausing)'
measured 1
press 2
wait_for 60 "$VERDICT"
"$QDYNO" show 1 -o json 2>/dev/null >"$T/out" && json 'd["pauses"] >= 1' # the pause is in the record

story 'filter the history'
ab default threads=1 || finish
measured 2
press 4
wait_for 60 'handicap'
press /
wait_for 60 'Enter keeps it'
type_ 'threads=1'
press Enter
wait_for 60 'History: 1 with "threads=1" .Esc: all' # accepted, and not only typed
gone 60 'vs handicap'
press Escape
wait_for 60 'vs handicap'

story 'compare two runs'
press g
press Space
wait_for 60 'run 2 is marked'
press j
press Space
wait_for 60 'runs 2 and 1 are marked'
press c
wait_for 60 'Run 2 compared with run 1'
press Escape

story 'push a result'
press 4
press p
wait_for 60 'Pushgateway'
press C-u
type_ "$URL"
press Enter
wait_for 60 "$pushed"

story 'export a report'
press e
wait_for 60 'Write a report'
press C-u
type_ "$T/report.html"
press Enter
for _ in $(seq $((WAIT_S * 10))); do [ -s "$T/report.html" ] && break; sleep 0.1; done
grep -q '</html>' "$T/report.html" 2>/dev/null || fail "no report was written"
wait_for 60 'report.html has been written'

story 'quantize'
press_until f 'Write a quantized file'
press C-u
type_ q8_0
press Tab Tab
press C-u
type_ "$T/small.gguf"
press Enter
for _ in $(seq $((WAIT_S * 10))); do [ -s "$T/small.gguf" ] && break; sleep 0.1; done
wait_for 60 'small.gguf has been written'
expect 0 info -m "$T/small.gguf" && says out 'q8_0'

story 'watch two configurations write'
press_until w 'Continue a prompt'
press C-u
type_ 'One day'
press Tab C-u
type_ default
press Tab C-u
type_ q4_0
press Enter
wait_for 60 'tok/s'
wait_for 60 'same for|identical so far'
wait_for 60 'w starts another'
press z
wait_for 60 'fills the screen'
press Escape

story 'advice: verify and apply'
press 3
press a
wait_for 90 'yes|too uncertain to rank' || finish # a row of the table: it fits, or cannot be predicted yet
press =
wait_for 60 'Apply .*\?'
press y
wait_for 60 'applied; press u to undo'
"$QDYNO" run -m "$T/models/stories.gguf" -p x -n 2 >"$T/out" 2>"$T/err" || fail "what was applied does not run"
press 3
press v
wait_for 60 'loading|warming|control|block'
press s
wait_for 60 'stopped|done'
case $(newest) in *,ab,*) ;; *) fail "the advice was not verified by an A/B: $(newest)" ;; esac

story 'leave'
press q
for _ in $(seq $((WAIT_S * 10))); do [ -s "$T/status" ] && break; sleep 0.1; done
[ "$(cat "$T/status" 2>/dev/null)" = "STATUS 0" ] || fail "q did not end it with status 0: $(cat "$T/status" 2>/dev/null)"
finish
