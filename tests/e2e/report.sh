#!/bin/bash
# Proves: a real run becomes an HTML page, a Markdown file and a picture that are well-formed, self-contained and state
# the verdict of `show`; killed runs have a report that says so; refused requests leave no file.
. "$(dirname "$0")/lib.sh" "$@"

expect 0 synth --shape tiny "$T/random.gguf"
"$QDYNO" ab -m "$T/random.gguf" default q8_0 -w tg16 --max-blocks 6 --control 2 --budget 30s -o json >"$T/out" 2>"$T/err" </dev/null
case $? in 0 | 1 | 2 | 3) ;; *) fail "ab" ;; esac
verdict=$(value 'd["verdict"]')
for form in html md svg; do
  expect 0 report 1 --out "$T/r.$form" && says err "r.$form"
  [ -s "$T/r.$form" ] || fail "r.$form is not there"
  grep -q "${verdict:-A}" "$T/r.$form" || fail "r.$form does not say '$verdict'"
  if grep -Eiq '<script|src=|@import|<link|https?://[^w]' "$T/r.$form"; then fail "r.$form wants something from elsewhere"; fi
done
if have xmllint; then
  xmllint --noout --nonet "$T/r.html" "$T/r.svg" 2>"$T/err" || fail "not well-formed"
else
  skip "no xmllint: well-formedness is checked by test_report alone"
fi
# the printed command is the one that ran
grep -q 'qdyno ab .* -w tg16 .*--seed 1' "$T/r.md" || fail "the command to repeat it is missing"
grep -q 'random weights' "$T/r.md" || fail "random weights are not named"

# the report does not depend on the locale
LC_ALL=C "$QDYNO" report 1 --out "$T/c.md" 2>/dev/null
cmp -s "$T/r.md" "$T/c.md" || fail "another locale, another report"

# a killed run has a report
"$QDYNO" ab default threads=1 -w tg64 --control 8 --budget 60s >/dev/null 2>&1 </dev/null &
pid=$!
pids+=("$pid")
for _ in $(seq $((WAIT_S * 10))); do "$QDYNO" history -o csv 2>/dev/null | grep -q '^2,' && break; sleep 0.1; done
sleep 1
kill -9 "$pid" 2>/dev/null
wait "$pid" 2>/dev/null
expect 0 report 2 --out "$T/killed.md" && { grep -q 'not finished' "$T/killed.md" || fail "a killed run looks finished"; }

# refusals: status, message, and no partial file
expect 4 report 1 && says err '--out FILE.html'
expect 4 report 1 --out "$T/r.pdf" && says err '.html, .md or .svg'
expect 4 report 1 -m x.gguf --out "$T/r.html" && says err '^qdyno: -m needs --all DIR'
expect 4 report 1 --machine x --out "$T/r.html" && says err '^qdyno: --machine needs --all DIR'
expect 4 report 999 --out "$T/no.html"
expect 4 report nonsense --out "$T/no.html" && says err 'qdyno history'
expect 5 report 1 --out "$T/nowhere/r.html"
[ -e "$T/no.html" ] && fail "a refused report left a file"
expect 0 bench -p 4 -n 4 -r 1
expect 4 report 3 --out "$T/no.html" && says err 'qdyno show 3'
finish
