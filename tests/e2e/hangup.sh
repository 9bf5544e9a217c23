#!/bin/bash
# Proves: no run stays "running" without a process. A command or dashboard whose terminal is closed stores its run as
# stopped, one that was started with SIGHUP ignored (nohup) goes on, and a run whose process was killed is interrupted
# as soon as any command opens the database.
. "$(dirname "$0")/lib.sh" "$@"
[ -n "$PYTHON" ] || { echo "SKIPPED: no python3 to make a terminal with"; exit 77; }
DB=$XDG_DATA_HOME/qdyno/qdyno.db

cat >"$T/terminal.py" <<'PY'
"""terminal.py DB HOW KEYS PROGRAM...: run it in a terminal of its own, press KEYS, wait until it has stored cells, then
end it: close (the terminal), hangup (SIGHUP, several), kill (SIGKILL), nohup (SIGHUP is ignored; ends with SIGINT).
Prints the state of the newest run afterwards, read without qdyno."""
import os, pty, select, signal, sqlite3, sys, time

db, how, keys, program = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
def newest():
    try:
        d = sqlite3.connect("file:%s?mode=ro" % db, uri=True)
        return d.execute("SELECT id, state, (SELECT count(*) FROM cell WHERE run_id = run.id) FROM run ORDER BY id DESC LIMIT 1").fetchone() or (0, "none", 0)
    except sqlite3.OperationalError:
        return 0, "none", 0
before = newest()[0]
pid, fd = pty.fork()
if pid == 0:
    signal.signal(signal.SIGHUP, signal.SIG_IGN if how == "nohup" else signal.SIG_DFL)  # the suite may run under nohup
    os.execv(program[0], program)
until = time.monotonic() + 120
def drain(seconds):
    if select.select([fd], [], [], seconds)[0]:
        try:
            os.read(fd, 65536)
        except OSError:
            time.sleep(seconds)
def wait(condition, what):
    global pressed
    while not condition():
        if time.monotonic() > until:
            sys.exit("not within two minutes: %s; %s" % (what, newest()))
        drain(0.1)
        if keys and time.monotonic() > pressed:  # the form may not be open yet: again later
            os.write(fd, keys.encode().decode("unicode_escape").encode())
            pressed = time.monotonic() + 8
pressed = time.monotonic() + 1
measuring = lambda least: (lambda run: run[0] > before and run[2] >= least)(newest())
wait(lambda: measuring(3), "cells are stored")
keys = ""
ended = []
def has_ended():
    ended[:] = os.waitpid(pid, os.WNOHANG)
    return ended[0]
if how == "close":
    os.close(fd)
    drain = lambda seconds: time.sleep(seconds)
elif how == "kill":
    os.kill(pid, signal.SIGKILL)
else:
    for _ in range(3):
        os.kill(pid, signal.SIGHUP)
    if how == "nohup":
        more = newest()[2] + 3
        wait(lambda: measuring(more), "it goes on after SIGHUP")
        os.kill(pid, signal.SIGINT)
wait(has_ended, "the program ends")
print(newest()[1])
PY

# ends HOW KEYS WANT ARGUMENTS...
ends() {
  local how=$1 keys=$2 want=$3 got
  shift 3
  got=$(TERM=xterm-256color python3 "$T/terminal.py" "$DB" "$how" "$keys" "$QDYNO" "$@" 2>"$T/err")
  [ "$got" = "$want" ] || fail "qdyno $* ($how): state '$got', want '$want'"
}
AB="ab default q8_0 -w tg64 --budget 100s"
ends close '' stopped $AB
ends close '' stopped bench -p 0 -n 64 -r 500
ends hangup '' stopped $AB
ends nohup '' stopped $AB
ends close 'b\r' stopped dashboard
ends kill '' running $AB
expect 0 history -o json --limit 1 && json "d['rows'][0]['state'] == 'interrupted' and d['rows'][0]['seconds'] > 0"
expect 0 history --filter interrupted -o json && json "len(d['rows']) == 1"
expect 0 history --filter stopped -o json && json "len(d['rows']) == 5"
finish
