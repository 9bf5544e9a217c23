#!/bin/bash
# Proves: one reading lists every sensor or why it is missing; the stream is CSV or JSON lines that other programs
# read, on time, and ends by count, by time, by Ctrl-C and when the reader leaves; given periods are used or refused.
. "$(dirname "$0")/lib.sh" "$@"

expect 0 telemetry && says out 'mem_total_bytes' && says out 'sensors answer' && says out 'n/a: .*proc_rss_bytes'
expect 0 telemetry -o json
json 'd["schema"] == "qdyno.telemetry/1" and len(d["rows"]) > 40 and len(d["cores"]) >= 1 and d["read_s"] > 0'
json 'all((r["value"] is None) == (r["absent"] is not None) == (r["state"] != "ok") for r in d["rows"])'
json 'all(r["unit"] is not None and r["source"] and r["help"] and 0 < r["least_period_ms"] <= r["period_ms"] for r in d["rows"])'
json '(lambda v: v["mem_total_bytes"] > v["mem_used_bytes"] > 0 and 0 <= v["cpu_busy_ratio"] <= 1)({r["name"]: r["value"] for r in d["rows"]})'
grep MemTotal /proc/meminfo | { read -r _ kb _; json "[r[\"value\"] for r in d[\"rows\"] if r[\"name\"] == \"mem_total_bytes\"] == [$kb * 1024]"; } ||
  fail "the machine's memory is another"

# a recorded machine: its files do not change, so rates are unknown
machines=$(cd "$(dirname "$0")/../data/machines" && pwd)
expect 0 telemetry --machine "$machines/avx2-laptop" -o json
json '(lambda v: v["cpu_temperature_celsius"] == 57 and v["mem_total_bytes"] == 16247316 * 1024 and v["disk_read_bytes_s"] is None and v["cpu_cycles_s"] is None)({r["name"]: r["value"] for r in d["rows"]})'
json '[e["domain"] for e in d["energy"]][:2] == ["package-0", "package-0-core"] and len(d["cores"]) == 8'
json 'all(c["frequency_hertz"] > 1e9 for c in d["cores"])'

# the measured process: a busy shell and its child
bash -c 'sleep 60 & while :; do :; done' &
busy=$!
pids+=("$busy")
expect 0 telemetry --pid "$busy" --metrics proc_rss_bytes,proc_cpu_ratio,proc_read_bytes_s -o json
json 'd["rows"][0]["value"] > 1e6 and d["rows"][1]["value"] > 0 and d["rows"][2]["value"] is not None'
pkill -P "$busy" sleep 2>/dev/null || true

# the stream, read by other programs
expect 0 telemetry --follow --count 4 --interval 200 --metrics cpu_busy_ratio,mem_used_bytes,on_battery --pid "$busy"
kill "$busy" && wait "$busy" 2>/dev/null
says err '4 rows; sampling used [0-9.]+ % of one CPU' && cp "$T/out" "$T/rows.csv"
if [ -n "$PYTHON" ]; then
  python3 - "$T/rows.csv" <<'PY' || fail "the CSV is not what it should be: $(cat "$T/rows.csv")"
import csv, datetime, sys
rows = list(csv.DictReader(open(sys.argv[1], newline="")))
assert list(rows[0]) == ["time", "monotonic_s", "cpu_busy_ratio", "mem_used_bytes", "on_battery"], list(rows[0])
assert len(rows) == 4
when = [datetime.datetime.strptime(r["time"], "%Y-%m-%dT%H:%M:%S.%fZ") for r in rows]
clock = [float(r["monotonic_s"]) for r in rows]
assert all(b > a for a, b in zip(clock, clock[1:]))
for a, b, x, y in zip(when, when[1:], clock, clock[1:]):
    assert abs((b - a).total_seconds() - (y - x)) < 0.05, (a, b, x, y)
now = datetime.datetime.utcnow()
assert abs((now - when[-1]).total_seconds()) < 60
assert all(0 <= float(r["cpu_busy_ratio"]) <= 1 and int(r["mem_used_bytes"]) > 0 for r in rows)
assert all(r["on_battery"] in ("", "0", "1", "0.0", "1.0") for r in rows)
PY
fi
expect 0 telemetry --follow --for 700ms --interval 200 -o jsonl --metrics mem_available_bytes,psi_cpu_ratio
[ "$(wc -l <"$T/out")" = 3 ] || fail "700 ms of rows every 200 ms are $(wc -l <"$T/out")"
if [ -n "$PYTHON" ]; then
  python3 - "$T/out" <<'PY' || fail "the lines are not JSON as promised: $(cat "$T/out")"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert all(r["schema"] == "qdyno.telemetry_row/1" and r["time"].endswith("Z") for r in rows)
assert all(isinstance(r["mem_available_bytes"], int) and "psi_cpu_ratio" in r for r in rows)
PY
fi

# each row appears at once, and a reader that closes the pipe ends the stream without an error
mkfifo "$T/pipe"
"$QDYNO" telemetry --follow --interval 100 --metrics cpu_busy_ratio --quiet >"$T/pipe" 2>"$T/err" &
stream=$!
pids+=("$stream")
exec 3<"$T/pipe"
{ read -r -t 10 header && read -r -t 10 _; } <&3 || fail "no row within 10 s"
[ "$header" = "time,monotonic_s,cpu_busy_ratio" ] || fail "header is '$header'"
exec 3<&-
wait "$stream"
status=$?
[ "$status" = 0 ] || fail "a reader that left: status $status"
[ ! -s "$T/err" ] || fail "a reader that left is worth a message"

# Ctrl-C: whole lines, status 0. Emptied here: the background job may do so only after the first look at its lines.
: >"$T/out"
"$QDYNO" telemetry --follow --interval 50 --metrics cpu_busy_ratio >"$T/out" 2>"$T/err" &
stream=$!
pids+=("$stream")
for _ in $(seq $((WAIT_S * 10))); do [ "$(wc -l <"$T/out")" -ge 3 ] && break; sleep 0.1; done
kill -INT "$stream"
wait "$stream"
status=$?
[ "$status" = 0 ] || fail "Ctrl-C: status $status"
[ -z "$(tail -c 1 "$T/out")" ] || fail "the last line is cut: $(tail -1 "$T/out")"
says err 'rows; sampling used'

# unreadable differs from absent: an energy counter for root only, a process of another user
forbidden() {
  unshare -m bash -c '
    mount -t tmpfs none /sys && mkdir -p "/sys/class/powercap/intel-rapl:0" && cd "/sys/class/powercap/intel-rapl:0" &&
      echo package-0 >name && echo 5 >energy_uj && chmod 400 energy_uj && cd / &&
      exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"' forbidden "$@"
}
if [ "$(id -u)" = 0 ] && forbidden test -x "$QDYNO" 2>/dev/null; then
  forbidden "$QDYNO" telemetry --pid 1 -o json >"$T/out" 2>"$T/err" || fail "nobody may not look"
  json '[(r["state"], "only root" in r["absent"]) for r in d["rows"] if r["name"] == "cpu_power_watts"] == [("denied", True)]'
  json '[(r["state"], "owner" in r["absent"]) for r in d["rows"] if r["name"] == "proc_read_bytes_s"] == [("denied", True)]'
  json '[r["state"] for r in d["rows"] if r["name"] == "cpu_temperature_celsius"] == ["absent"]'
  forbidden "$QDYNO" doctor >"$T/out" 2>"$T/err"
  says out 'sensors .* no permission to read: cpu_power_watts .*chmod o.r' || fail "doctor does not tell what is not permitted"
else
  skip "permissions: needs root, unshare and setpriv"
fi

# periods
expect 0 telemetry --period cpu_temperature_celsius=2000 --period mem_used_bytes=50 -o json
json '{r["name"]: r["period_ms"] for r in d["rows"]}["cpu_temperature_celsius"] == 2000'
json '{r["name"]: r["period_ms"] for r in d["rows"]}["mem_used_bytes"] == 50'
QDYNO_PERIODS=mem_used_bytes=70 expect 0 telemetry -o json && json '{r["name"]: r["period_ms"] for r in d["rows"]}["mem_used_bytes"] == 70'
expect 4 telemetry --period cpu_temperature_celsius=10 && says err '1000 or more'
expect 4 telemetry --period mem_used=100 && says err "did you mean 'mem_used_bytes'"
QDYNO_PERIODS=mem_used_bytes expect 4 telemetry && says err 'QDYNO_PERIODS'
QDYNO_PERIODS=nonsense=1 expect 4 bench -p 8 -n 0 -r 1 && says err 'QDYNO_PERIODS'

# refusals
expect 4 telemetry --metrics cpu_busy && says err "did you mean 'cpu_busy_ratio'"
expect 4 telemetry --metrics mem_used_bytes,mem_used_bytes && says err 'twice'
expect 4 telemetry --metrics , && says err 'expected names'
expect 4 telemetry --count 3 && says err 'needs --follow'
expect 4 telemetry --follow -o sql && says err 'csv or jsonl'
expect 4 telemetry --follow --interval 5 && says err 'from 10 to 60000'
expect 4 telemetry --pid 99999999 && says err 'no such process'
expect 5 telemetry --machine "$T/nowhere" && says err '--machine'
[ ! -e /dev/full ] || { "$QDYNO" telemetry --follow --count 2 --interval 50 >/dev/full 2>"$T/err"; [ $? = 6 ] && says err 'cannot write'; } ||
  fail "a full disk is not told"
finish
