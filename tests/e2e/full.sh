#!/bin/bash
# Proves: a disk that is full while something is measured or written gives status 6 and a message that names the file;
# nothing half-written stays; what was stored before stays, and once there is room the run goes on.
. "$(dirname "$0")/lib.sh" "$@"
SMALL=$T/small
mkdir "$SMALL"
mount -t tmpfs -o size=64k tmpfs "$SMALL" 2>/dev/null || { echo "SKIPPED: no tmpfs may be mounted here"; exit 77; }
trap 'umount -l "$SMALL"; cleanup' EXIT
M=$(dirname "$QDYNO")/share/models/bundled.gguf
TEXT=$(dirname "$QDYNO")/share/text/sample.txt
room() { mount -o "remount,size=$1" "$SMALL"; }

# measurements: the database is full in the middle of a run
DB="--db $SMALL/q.db"
expect 6 $DB bench -p 0 -n 8 && says err "cannot bring the schema up to date in database '$SMALL/q.db': .*full; make room"
room 300k
expect 6 $DB bench -p 0 -n 64 -r 1000 && says err "cannot (store|finish) .*in database '$SMALL/q.db': .*full; make room"
rm "$SMALL"/*
room 400k
expect 6 $DB ab default q8_0 -w tg64 --control 2 --budget 100s -o json &&
  json "d['run'] == 1 and 'full; make room' in d['error'] and '$SMALL/q.db' in d['error']"
cat /dev/zero >"$SMALL/fill" 2>/dev/null # a transaction that was taken back may have left room
for name in $(seq 20); do # the log of the database may have room for a few
  "$QDYNO" $DB baseline set "here$name" q8_0 -w tg8 >"$T/out" 2>"$T/err" </dev/null
  status=$?
  [ $status = 0 ] || break
done
[ $status = 6 ] || fail "baseline set on a full disk: status $status, want 6"
says err "$SMALL/q.db"
rm "$SMALL/fill"
expect 0 $DB history && says out '\| ab '
room 16m
kept=$([ -z "$PYTHON" ] || python3 -c 'import sqlite3, sys
d = sqlite3.connect(sys.argv[1])
assert d.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
print(d.execute("SELECT count(*) FROM cell").fetchone()[0])' "$SMALL/q.db") || fail "the database is damaged"
expect 0 $DB history -o json && json "d['rows'][0]['state'] in ('failed', 'interrupted')"
"$QDYNO" $DB ab --resume 1 --max-blocks 6 --budget 100s -o json >"$T/out" 2>"$T/err" </dev/null
status=$?
[ $status -le 3 ] || fail "with room again: status $status"
json "d['run'] == 1 and d['state'] == 'done'"
[ -z "$PYTHON" ] || [ "$(python3 -c 'import sqlite3, sys
print(sqlite3.connect(sys.argv[1]).execute("SELECT count(*) FROM cell").fetchone()[0])' "$SMALL/q.db")" -gt "$kept" ] || fail "cells were lost"

# files
cp "$SMALL/q.db" "$T/q.db" && rm "$SMALL"/*
for what in "--db $T/q.db report 1 --out $SMALL/r.html" "--db $T/q.db report 1 --out $SMALL/r.md" \
  "logits -m $M --ids 1,2,3,4,5,6,7,8 --out $SMALL/l" "detect --record $SMALL/box" "synth --shape tiny -R f32 $SMALL/m.gguf" \
  "calibrate $M -f $TEXT --out $SMALL/c" "quantize $M $SMALL/q.gguf -R q4_0"; do
  room 4k
  expect 6 $what && says err "$SMALL/[a-z.]+.*(No space left|needs about)"
  [ -z "$(find "$SMALL" -mindepth 1)" ] || { fail "qdyno $what left $(ls -R "$SMALL")"; rm -rf "${SMALL:?}"/*; }
done
room 4k
head -c 4096 /dev/zero >"$SMALL/filler"
XDG_CONFIG_HOME=$SMALL expect 6 apply q8_0 && says err "$SMALL/qdyno/.*No space left"
rm -r "${SMALL:?}"/*
room 100k
XDG_CACHE_HOME=$SMALL expect 6 bench -C q4_0 -p 0 -n 1 -r 1 && says err "$SMALL/qdyno/models/.*No space left"
XDG_CACHE_HOME=$T/cache expect 0 watch --once -w tg8 -r 1 --even-if-busy --alert busy=off --alert disk=off --log /dev/full &&
  says err "log file '/dev/full': No space left on device; lines are missing"
finish
