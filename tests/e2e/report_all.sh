#!/bin/bash
# Proves: report --all writes an index sorted by date, a page of trade-offs and a page for each experiment, which
# stand alone, are well-formed and link to each other; runs of other models are left out with -m; files of others
# are never replaced, and then nothing is written; a second call replaces its own pages; refusals have their status.
. "$(dirname "$0")/lib.sh" "$@"

expect 0 synth --shape tiny "$T/one.gguf"
expect 0 synth --shape tiny --seed 2 -R q8_0 "$T/two.gguf"
experiment() { # MODEL B: a short experiment; its verdict does not matter
  "$QDYNO" ab -m "$1" default "$2" -w tg8 --max-blocks 6 --control 0 --budget 2s >/dev/null 2>"$T/err" </dev/null
  case $? in 0 | 1 | 2 | 3) ;; *) fail "ab $2: $(head -1 "$T/err")" ;; esac
}
expect 4 report --all "$T/site" && says err 'no experiment'
[ ! -e "$T/site" ] || fail "a refused call left a folder"
experiment "$T/one.gguf" q8_0
experiment "$T/one.gguf" threads=1
experiment "$T/two.gguf" threads=1

expect 0 report --all "$T/site" && says err '3 experiments written'
[ "$(cd "$T/site" && echo *)" = "index.html pareto.html run-1.html run-2.html run-3.html" ] || fail "pages: $(ls "$T/site")"
[ "$(grep -o 'href="run-[0-9]*.html"' "$T/site/index.html" | tr -dc '0-9\n' | tr '\n' ' ')" = "3 2 1 " ] || fail "the index is not sorted by date"
for page in "$T"/site/*.html; do
  grep -q '<a href="index.html">' "$page" || fail "$page does not link to the index"
  if grep -Eiq '<script|src=|@import|<link|https?://[^w]' "$page"; then fail "$page wants something from elsewhere"; fi
done
grep -q 'download="run-1-cells.csv" href="data:text/csv' "$T/site/run-1.html" || fail "the raw rows are missing"
python3 - "$T"/site/*.html <<'PY' || fail "a page is not well-formed"
import sys, xml.dom.minidom
for path in sys.argv[1:]:
    xml.dom.minidom.parse(path)
PY

# only one model; pages of earlier calls are replaced
expect 0 report --all "$T/site" -m "$T/one.gguf" && says err '2 experiments written'
grep -q 'run-3.html' "$T/site/index.html" && fail "a run of another model is in the index"

# a file of somebody else: nothing is written at all
mkdir "$T/foreign" && echo mine >"$T/foreign/pareto.html"
expect 4 report --all "$T/foreign" && says err 'was not written by'
[ "$(cat "$T/foreign/pareto.html")" = mine ] && [ "$(ls "$T/foreign")" = pareto.html ] || fail "a refused call wrote"
ln -s "$T/foreign/pareto.html" "$T/linked.html" && mkdir "$T/links" && ln -s "$T/site/index.html" "$T/links/index.html"
expect 4 report --all "$T/links" && says err 'was not written by' # a link is not replaced, wherever it leads

expect 4 report 1 --all "$T/other" && says err 'neither ID nor --out'
expect 4 report --all "$T/other" --machine 000000000000 && says err 'no experiment'
expect 4 report --all "$T/one.gguf" && says err 'expected a folder'
expect 4 report 1 --out "$T/r.html" -m "$T/one.gguf" && says err '--all DIR'
expect 5 report --all "$T/other" -m "$T/site/index.html"
expect 5 report --all /proc/nowhere
finish
