#!/bin/bash
# Proves: a model that is replaced or rewritten while it is compared, at any of 20 moments from the start of the program,
# never gets the figures of another: either the run ends with status 5 and names the file, or all its cells are of one
# file, and the run names the SHA-256 of that file. The output of greedy decoding tells the files apart.
. "$(dirname "$0")/lib.sh" "$@"
[ -n "$PYTHON" ] || { echo "SKIPPED: no python3 to read the database with"; exit 77; }
MOMENTS=20
DB=$XDG_DATA_HOME/qdyno/qdyno.db
M=$T/model.gguf
AB=(ab -m "$M" default kv=f32 -w tg8 --seed 1 --max-blocks 6 --control 0 --warmup 1 --turns off)

expect 0 synth -q --shape tiny --seed 1 "$T/a.gguf"
expect 0 synth -q --shape tiny --seed 2 "$T/b.gguf"
cmp -s "$T/a.gguf" "$T/b.gguf" && fail "the two models are the same"

# cells: prints "SHA-256 HASH..." of the last run: what it says about its model, then the different outputs of arm A.
cells() {
  python3 - "$DB" <<'PY'
import sqlite3, sys
db = sqlite3.connect("file:%s?mode=ro" % sys.argv[1], uri=True)
run, sha = db.execute("SELECT id, model_sha256 FROM run ORDER BY id DESC LIMIT 1").fetchone()
rows = db.execute("SELECT DISTINCT output_hash FROM cell WHERE run_id = ? AND error = '' AND output_hash <> '' AND arm = 0",
                  (run,)).fetchall()
print(sha or "none", *[r[0] for r in rows])
PY
}

# What undisturbed runs say: sha_a, out_a, sha_b, out_b.
for name in a b; do
  cp "$T/$name.gguf" "$M"
  "$QDYNO" "${AB[@]}" >"$T/out" 2>"$T/err" </dev/null
  [ $? -le 3 ] || fail "a run of $name.gguf does not end"
  found=$(cells)
  read -r "sha_$name" "out_$name" <<<"$found"
done
[ "$sha_a" = "$(sha256sum <"$T/a.gguf" | cut -d' ' -f1)" ] || fail "run 1 names $sha_a"
[ "$out_a" != "$out_b" ] || fail "the outputs do not tell the models apart: $out_a"

refused=0 whole=0
for i in $(seq $MOMENTS); do
  cp "$T/a.gguf" "$M"
  cp "$T/b.gguf" "$T/next.gguf"
  "$QDYNO" "${AB[@]}" >"$T/out" 2>"$T/err" </dev/null &
  pid=$!
  pids+=($pid)
  # the first eight moments are while it starts and loads, the others while it measures, in units of its own CPU time
  ticks=$((i <= 8 ? i - 1 : 2 * (i - 6)))
  while kill -0 $pid 2>/dev/null; do
    used=0
    for p in $pid $(cat /proc/$pid/task/*/children 2>/dev/null); do
      t=$(cut -d' ' -f14,15 "/proc/$p/stat" 2>/dev/null) || continue
      used=$((used + ${t% *} + ${t#* }))
    done
    [ $used -ge $ticks ] && break
  done
  if [ $((i % 2)) = 1 ]; then mv "$T/next.gguf" "$M"; else cat "$T/next.gguf" >"$M"; fi
  wait $pid
  status=$?
  if [ $status = 5 ]; then
    refused=$((refused + 1))
    # changed, shorter, or no whole model when the next process opened it: the message names the file
    cat "$T/out" "$T/err" | grep -qF "$M" || fail "moment $i: $(cat "$T/out" "$T/err" | tail -n 5)"
    continue
  fi
  [ $status -le 3 ] || { fail "moment $i: status $status"; continue; }
  whole=$((whole + 1))
  found=$(cells)
  [ "$found" = "$sha_a $out_a" ] || [ "$found" = "$sha_b $out_b" ] ||
    fail "moment $i: the run names one model and has cells of another: $found (a: $sha_a $out_a, b: $sha_b $out_b)"
done
[ $((refused + whole)) = $MOMENTS ] || fail "$refused refused, $whole whole, want $MOMENTS"
[ $whole -gt 0 ] && [ $refused -gt 0 ] || fail "$refused refused, $whole whole: every moment was the same"
echo "$refused refused, $whole whole"
finish
