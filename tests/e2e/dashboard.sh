#!/bin/bash
# Proves: key presses in a real terminal lead from the start to a verdict: b, two arms, Enter, verdict, push, quit.
. "$(dirname "$0")/lib.sh" "$@"
have tmux || { echo "SKIPPED: no tmux here"; exit 77; }
S=qdyno-e2e-$$
tm() { tmux -L "$S" "$@" 2>/dev/null; }
trap 'tm kill-server; cleanup' EXIT

screen() { tm capture-pane -p -t 0; }
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

# without a terminal: frames as text
expect 0 dashboard --frames 3 && says out 'Machine' && says out 'qdyno'

port=
if have prometheus-pushgateway && have curl; then
  port=$(free_port)
  prometheus-pushgateway --web.listen-address="127.0.0.1:$port" --persistence.file="$T/gateway.data" >"$T/gateway.log" 2>&1 &
  pids+=($!)
else
  skip "no prometheus-pushgateway: the push key is not tried"
fi
[ -r "$MODEL" ] || { skip "no trained model: the bundled one"; MODEL=$(dirname "$QDYNO")/share/models/bundled.gguf; }

tm -f /dev/null new-session -d -x 80 -y 24 "'$QDYNO' -m '$MODEL' --url http://127.0.0.1:${port:-1} 2>'$T/err'; echo STATUS \$? >'$T/status'; sleep 1"
wait_for 60 'Machine' || finish
tm resize-window -x 120 -y 40
wait_for 60 'Machine'
tm send-keys '?'
wait_for 60 'help|this list'
tm send-keys Escape
sleep 1
tm send-keys b
wait_for 60 'New A/B' || finish
tm send-keys C-u
tm send-keys -l 'f32'
tm send-keys Tab C-u
tm send-keys -l 'q8_0'
tm send-keys Tab C-u
tm send-keys -l 'tg8'
tm send-keys Tab Tab Tab Tab C-u # over arm C, quality and margin
tm send-keys -l '20s'            # budget: a busy machine uses all of it
wait_for 60 'budget +✓ 20s'
sleep 0.5
tm send-keys Enter
wait_for 60 'running|control|block|A/A' || finish
wait_for 170 'better|worse|equivalent|negligible|inconclusive|invalid' && wait_for 170 '● done|○ idle|done|finished' || true
state() { "$QDYNO" history -o csv --limit 1 2>/dev/null | sed -n 2p; }
for _ in $(seq 400); do
  case $(state) in *,ab,running,*) sleep 0.5 ;; *) break ;; esac
done
row=$(state)
case $row in *,ab,done,*) ;; *) fail "the newest run is not a finished A/B: $row" ;; esac
verdict=$(grep -oE 'better|worse|equivalent|negligible|inconclusive|invalid' <<<"$row" | head -1)
[ -n "$verdict" ] || fail "the run has no verdict: $row"
wait_for 60 "${verdict:-verdict}"
if [ -n "$port" ]; then
  tm send-keys p
  sleep 3
  screen | grep -q 'Push' && tm send-keys Enter
  for _ in $(seq $((WAIT_S * 5))); do curl -fs "http://127.0.0.1:$port/metrics" | grep -q '^qdyno_ab_blocks' && break; sleep 0.2; done
  curl -fs "http://127.0.0.1:$port/metrics" | grep -q '^qdyno_ab_blocks' || { fail "p pushed nothing"; screen; }
fi
tm send-keys q
for _ in $(seq $((WAIT_S * 5))); do [ -s "$T/status" ] && break; sleep 0.2; done
[ "$(cat "$T/status" 2>/dev/null)" = "STATUS 0" ] || fail "q did not end the dashboard with status 0: $(cat "$T/status" 2>/dev/null)"
finish
