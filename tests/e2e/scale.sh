#!/bin/bash
# Proves: `qdyno serve --processes MIN..MAX` starts processes while requests wait and ends them again, within the limits
# and with its cool-down; no request fails by that, and any process answers /metrics and /health for all of them, with
# counters that never decrease. A process that is killed is replaced while requests are answered. Each change is in the
# database and in `watch --list`; --dry-run only records. SIGTERM lets requests end and leaves no process; so does a
# supervisor that is killed.
. "$(dirname "$0")/lib.sh" "$@"
[ -n "$PYTHON" ] || { echo "SKIPPED: no python3 for clients"; exit 77; }
clients=$(dirname "$0")/scale_clients.py
unset QDYNO_API_KEY

# serve ARGUMENTS...: $url is its address, $serving its supervisor. RUN: words that run the program; default: its path.
serve() {
  : >"$T/serve"
  ${RUN:-"$QDYNO"} serve --port 0 -o json --threads=1 --parallel 2 "$@" >"$T/serve" 2>"$T/serve.err" &
  serving=$!
  pids+=("$serving")
  for _ in $(seq 600); do [ -s "$T/serve" ] && break; sleep 0.1; done
  url=$(sed -n 's/.*"url": *"\(http[^"]*\)\/v1".*/\1/p' "$T/serve")
  [ -n "$url" ] || fail "serve says nothing: $(cat "$T/serve" "$T/serve.err")"
}
# processes: those that serve, by number, of the supervisor.
processes() { cat "/proc/$serving/task/$serving/children" 2>/dev/null; }
# ended PID...: waits until none of them exists.
ended() {
  local pid
  for pid in "$@"; do
    for _ in $(seq $((WAIT_S * 10))); do [ -e "/proc/$pid" ] || continue 2; sleep 0.1; done
    fail "process $pid remains: $(tr '\0' ' ' <"/proc/$pid/cmdline")"
  done
}
# stops: SIGTERM ends the supervisor with status 0, and leaves no process.
stops() {
  local all
  all=$(processes)
  kill -TERM "$serving"
  wait "$serving" || fail "serve ended with status $?: $(cat "$T/serve.err")"
  ended $all
}
clients() { python3 "$clients" "$@" >"$T/out" 2>"$T/err" || fail "$*: $(tail -4 "$T/err"); serve: $(tail -5 "$T/serve.err")"; }
# changes PATTERN: how many changes with this text are in the database.
changes() {
  "$QDYNO" watch --list -o csv >"$T/list" 2>"$T/err" || fail "watch --list: $(cat "$T/err")"
  grep -Ec "serve_processes.*$1" "$T/list"
}

# what cannot be
for wrong in 0 4..2 1..1000 two; do expect 4 serve --port 0 --processes "$wrong" && says err '1\.\.4'; done
expect 4 serve --port 0 --scale up=1s && says err 'needs --processes MIN\.\.MAX'
expect 4 serve --port 0 --processes 2 --dry-run && says err 'needs --processes MIN\.\.MAX'
expect 4 serve --port 0 --processes 1..2 --scale up=soon && says err 'up=soon'
expect 4 serve --port 0 --processes 1..2 --affinity compact && says err 'same cores'
expect 4 serve --port 0 --processes 1..2 -C parallel=tp2 && says err 'ranks for every process'
expect 5 serve --port 0 --processes 1..2 -m "$T/missing.gguf"
printf 'no model\n' >"$T/broken.gguf"
expect 5 serve --port 0 --processes 1..2 -m "$T/broken.gguf"

# one process, more under load but never more than three, one again; one is killed meanwhile
serve --processes 1..3 --scale waiting=2,up=300ms,down=1s,cooldown=500ms
[ "$(processes | wc -w)" = 1 ] || fail "it begins with: $(processes)"
expect 7 serve --port "${url##*:}" --processes 2 && says err 'another program uses this port'
clients load "$url" "$serving" 3
[ "$(changes ',up: 1 to 2')" -ge 1 ] && [ "$(changes ',up: 2 to 3')" -ge 1 ] || fail "records: $(cat "$T/list")"
[ "$(changes 'up: 3 to')" = 0 ] || fail "beyond the limit: $(cat "$T/list")"
[ "$(changes ',down: 2 to 1 .*,done')" -ge 1 ] || fail "records: $(cat "$T/list")"
clients replaced "$url" "$serving"
[ "$(changes ',restart: .* ended by signal 9')" = 1 ] || fail "records: $(cat "$T/list")"
clients settings "$url"
stops
grep -Eq '^[0-9]+ requests: completed [0-9]+' "$T/serve.err" || fail "no totals: $(tail -2 "$T/serve.err")"

# a cool-down that is longer than the test allows one change
"$QDYNO" watch --list >/dev/null 2>&1
before=$(changes ',up:')
serve --processes 1..3 --scale waiting=1,up=0s,down=1h,cooldown=1h
clients reaches "$url" "$serving" 2
[ "$(changes ',up:')" = $((before + 1)) ] || fail "changes within the cool-down: $(cat "$T/list")"
stops

# --dry-run: a record, and one process
before=$(changes 'not done: --dry-run')
serve --processes 1..3 --scale waiting=1,up=0s,down=1h,cooldown=100ms --dry-run
clients stays "$url" "$serving" "$T/serve.err"
[ "$(changes 'not done: --dry-run')" = $((before + 2)) ] || fail "records of --dry-run: $(cat "$T/list")"
stops

# too little memory for another process: a record, and one process. /proc/meminfo is a file of this test, which says so
# once the first process serves.
cp /proc/meminfo "$T/meminfo"
cat >"$T/program" <<SH
#!/bin/sh
mount --bind "$T/meminfo" /proc/meminfo && exec "$QDYNO" "\$@"
SH
chmod +x "$T/program"
if unshare --user --map-root-user --mount mount --bind "$T/meminfo" /proc/meminfo 2>/dev/null; then
  before=$(changes 'not done: a process needs')
  RUN="unshare --user --map-root-user --mount $T/program" serve --processes 1..2 --scale waiting=1,up=0s,down=1h,cooldown=100ms
  sed 's/^MemAvailable:.*/MemAvailable: 1000 kB/' /proc/meminfo >"$T/less" && cat "$T/less" >"$T/meminfo"
  clients refused_memory "$url" "$serving" "$T/serve.err"
  stops
  [ "$(changes 'not done: a process needs')" -gt "$before" ] || fail "no record of missing memory: $(cat "$T/list")"
else
  skip "no user namespaces: the check of memory"
fi

# a fixed number of processes; SIGTERM while requests run lets them end
serve --processes 2
clients drain "$url" "$serving"
wait "$serving" || fail "after draining: status $?: $(cat "$T/serve.err")"

# a supervisor that is killed takes its processes along
serve --processes 2
for _ in $(seq 600); do [ "$(processes | wc -w)" = 2 ] && break; sleep 0.1; done
all=$(processes)
kill -KILL "$serving"
wait "$serving" 2>/dev/null
ended $all
finish
