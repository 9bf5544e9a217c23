#!/bin/bash
# Proves: bench, ab, history and other commands give the same values as md, json, jsonl, csv and sql, and common
# programs can read each of the five formats; `show ID -o sql` creates the run in another database.
. "$(dirname "$0")/lib.sh" "$@"

expect 0 bench -p 16 -n 4 -r 2 -C default -C "q8_0 threads=1"
expect 0 detect

check() { # check ROWS ARGUMENTS...: all five formats of one command
  local rows=$1
  shift
  expect 0 "$@" -o json && cp "$T/out" "$T/json" && json 'd["schema"].startswith("qdyno.")'
  expect 0 "$@" -o jsonl && cp "$T/out" "$T/jsonl"
  expect 0 "$@" -o csv && cp "$T/out" "$T/csv"
  : >"$T/sql" # of `show`, it is not the table but the run: copied, below
  [ "$1" = show ] || { expect 0 "$@" -o sql && cp "$T/out" "$T/sql"; }
  expect 0 "$@" -o md
  if [ -n "$PYTHON" ]; then
    python3 - "$T" "$rows" <<'PY' || fail "qdyno $*: the formats do not agree"
import csv, json, sqlite3, sys
t, rows = sys.argv[1], int(sys.argv[2])
MOVING = ("available_bytes", "memory_available_bytes", "ctx_most")  # differs from one call to the next
def number(s):
    try: return float(s)
    except ValueError: return s
doc = json.load(open(t + "/json"))
lines = [json.loads(l) for l in open(t + "/jsonl")]
table = list(csv.DictReader(open(t + "/csv", newline="")))
sql = open(t + "/sql").read()
stored = table
if sql:
    db = sqlite3.connect(":memory:")
    db.row_factory = sqlite3.Row
    db.executescript(sql)
    name = db.execute("select name from sqlite_master").fetchone()[0]
    stored = [dict(r) for r in db.execute("select * from " + name)]
assert len(lines) == len(table) == len(stored) == rows, (len(lines), len(table), len(stored))
if "rows" in doc: assert len(doc["rows"]) == rows
for i, line in enumerate(lines):
    schema = line.pop("schema")
    assert schema == doc["schema"]
    one = doc["rows"][i] if "rows" in doc else doc
    for k in line:
        # an A/B's document has a shape of its own: there only the names that both use are compared
        if k in MOVING or (schema == "qdyno.ab/1" and k not in ("workload", "metric", "verdict")): continue
        if schema == "qdyno.ab/1" and line[k] is None: continue
        assert one[k] == line[k], (k, one[k], line[k])
    assert list(table[i]) == list(line) == list(stored[i])
    for k, v in line.items():
        if isinstance(v, bool): v = int(v)
        if isinstance(v, (dict, list)) or k in MOVING: continue
        assert not sql or stored[i][k] == v, (k, stored[i][k], v)
        assert table[i][k] == ("" if v is None else str(v)) or number(table[i][k]) == float(v), (k, table[i][k], v)
PY
  fi
}

copied() { # copied RUN: SQL of a run makes another database of ours show the same run, and stores it once
  [ -n "$PYTHON" ] || return 0
  expect 0 show "$1" -o json && cp "$T/out" "$T/json"
  rm -f "$T/other.db"*
  expect 0 --db "$T/other.db" history # creates it
  expect 0 show "$1" -o sql && cp "$T/out" "$T/sql"
  load() { python3 -c 'import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(open(sys.argv[2]).read())' "$T/other.db" "$T/sql" 2>"$T/err"; }
  load || fail "the SQL of run $1 is refused"
  expect 0 --db "$T/other.db" show "$1" -o json && { cmp -s "$T/out" "$T/json" || fail "the copy of run $1 differs"; }
  expect 0 --db "$T/other.db" show "$1" -o sql && { cmp -s "$T/out" "$T/sql" || fail "the SQL of the copy of run $1 differs"; }
  load && fail "run $1 was stored twice"
  says err 'UNIQUE'
}
check 1 history
check 4 show 1
copied 1
expect 0 show 1 --capsule -o sql && says out '^CREATE TABLE IF NOT EXISTS qdyno_capsule' # that table as any other
check 1 info
check 1 fit
check 1 detect
expect 0 info --tensors -o json && tensors=$(value 'len(d["rows"])') && check "${tensors:-0}" info --tensors

# JSON types: numbers are never strings, unknown values are null, never 0 or "n/a"
expect 0 show 1 -o json && json 'all(isinstance(r["peak_rss_bytes"], int) and (r["decode_tok_s"] is None or isinstance(r["decode_tok_s"], float)) for r in d["rows"])'

# ab: document, table and exit status agree
"$QDYNO" ab default q8_0 -w tg16 --max-blocks 6 --control 2 --budget 40s -o json >"$T/out" 2>"$T/err"
status=$?
json 'd["schema"] == "qdyno.ab/1" and d["random_weights"] in (True, False) and len(d["arms"]) == 2' &&
  json 'd["verdict"] in ("better", "equivalent", "negligible", "worse", "inconclusive", "invalid")' &&
  json 'd["verdict"] is not None and {"better": 0, "equivalent": 0, "negligible": 0, "worse": 1, "inconclusive": 2, "invalid": 3}[d["verdict"]] == '"$status" &&
  json 'len(d["log_ratios"]) == d["blocks"]' &&
  json 'd["effect"] is None or d["effect"]["lower"] is None or d["effect"]["lower"] <= d["effect"]["ratio"] <= d["effect"]["upper"]'
run=$(value 'd["run"]')
verdict=$(value 'd["verdict"]')
check 2 show "${run:-2}"
copied "${run:-2}"
expect 0 show "${run:-2}" && says out "${verdict:-B against A}"
expect 0 history --filter ab && says out "${verdict:-ab}"
finish
