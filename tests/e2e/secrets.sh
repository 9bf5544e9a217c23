#!/bin/bash
# Proves: a secret in an address, in a file or in the environment appears in no message, log, database or report, and
# not in the arguments of child processes, however the address is misspelled and wherever it is given; databases and caches
# are readable by their user only, also those that an earlier version created.
. "$(dirname "$0")/lib.sh" "$@"
umask 022
CANARY=canary4711

# quiet STATUS... : the last output has no secret.
quiet() { grep -aq "$CANARY" "$T/out" "$T/err" && { fail "a secret is shown by: $1"; grep -a "$CANARY" "$T/out" "$T/err" | head -3; }; }
try() { "$QDYNO" "$@" >"$T/out" 2>"$T/err" </dev/null; quiet "qdyno $*"; }

"$QDYNO" ab default q8_0 -w tg16 --max-blocks 6 --control 0 --budget 20s >"$T/out" 2>"$T/err"
expect 0 history || finish

addresses=("http://bob:$CANARY@127.0.0.1:1" "http://$CANARY@127.0.0.1:1" "http:/bob:$CANARY@h" "bob:$CANARY@h:9091"
  "htp://bob:$CANARY@h" "http//bob:$CANARY@h" "HTTP://bob:$CANARY@h" "http://bob:$CANARY" "http://bob:$CANARY%40h"
  "http://bob:a/$CANARY@h" "http://bob:1/$CANARY@127.0.0.1" "http://bob:a?$CANARY@h" "http://bob:a#$CANARY@h"
  "http://bob:a@$CANARY@h" "http://127.0.0.1:1/?token=$CANARY" "http://h h/$CANARY" "https://bob:
$CANARY@h")
for address in "${addresses[@]}"; do
  try push 1 --url "$address" --timeout 1s
  try push 1 --otlp "$address" --timeout 1s
  try push "$address"
  try push 1 1 "$address"
  try push 1 --url "$address" --url "$address"
  try "$address"
  try prune --url "$address"
  try serve-metrics --port 0 --otlp "$address" --otlp-every 0
  for flag in --webhook --alertmanager --push --otlp; do try watch --once -w tg8 --every 0 "$flag" "$address"; done
  QDYNO_PUSH_URL=$address try push 1
  QDYNO_PUSH_URL=$address try --frames 1
  OTEL_EXPORTER_OTLP_ENDPOINT=$address try push 1
  QDYNO_WATCH_URL=$address try watch --once -w tg8 --every 0
done

# a webhook whose path is its password, with a token: nothing answers, so an alert waits in the database
printf '%s\n' "$CANARY" >"$T/token"
export QDYNO_WATCH_URL=http://127.0.0.1:1/services/$CANARY OTEL_EXPORTER_OTLP_HEADERS=api-key=$CANARY
"$QDYNO" watch --once -w tg8 -r 1 --even-if-busy --alert memory=0:0s --bearer-file "$T/token" --log "$T/watch.log" --push \
  http://127.0.0.1:1 --otlp http://127.0.0.1:1 >"$T/out" 2>"$T/err" &
watch=$!
pids+=("$watch")
while kill -0 "$watch" 2>/dev/null; do
  for child in $(pgrep -P "$watch" 2>/dev/null); do tr '\0' '\n' 2>/dev/null <"/proc/$child/cmdline"; done >>"$T/children"
  sleep 0.05
done
wait "$watch"
quiet watch
grep -q worker "$T/children" || skip "no child process was seen"
grep -q "the webhook does not accept notices" "$T/out" || fail "no alert was sent to the webhook: $(cat "$T/out")"
for name in QDYNO_PUSH_BEARER QDYNO_PUSH_PASSWORD; do export $name=$CANARY; done
try push 1 --url http://127.0.0.1:1 --user bob --timeout 1s
try push 1 --url http://127.0.0.1:1 --bearer-file "$T/token" --timeout 1s
try push 1 --url http://192.0.2.1:1 --bearer-file "$T/token" --timeout 1s
for how in "report 1" "report 1 --html $T/report.html" "history" "show 1" "doctor" "watch --list"; do try $how; done
grep -al "$CANARY" -r "$T/watch.log" "$T/children" "$XDG_DATA_HOME" "$XDG_CACHE_HOME" "$XDG_CONFIG_HOME" "$T/report.html" 2>/dev/null |
  while read -r file; do echo "$file"; done >"$T/found"
[ -s "$T/found" ] && fail "the secret is in $(cat "$T/found")"

# only for the user
check_private() {
  find "$XDG_DATA_HOME/qdyno" "$XDG_CACHE_HOME/qdyno" -perm /077 >"$T/open" 2>/dev/null
  [ -s "$T/open" ] && fail "$1: others may read $(tr '\n' ' ' <"$T/open")"
}
[ -f "$XDG_DATA_HOME/qdyno/qdyno.db" ] || fail "no database"
check_private "new files"
chmod 755 "$XDG_DATA_HOME/qdyno" "$XDG_CACHE_HOME/qdyno"
chmod 644 "$XDG_DATA_HOME"/qdyno/qdyno.db*
expect 0 bench -C q8_0 -w tg8 -r 1
check_private "existing files"
expect 0 --db "$T/mine.db" history
[ "$(stat -c %a "$T/mine.db")" = 600 ] || fail "a database that --db names has mode $(stat -c %a "$T/mine.db")"
finish
