#!/bin/bash
# Proves: a plug-in's method is listed, quantizes, runs and can be compared like any other; the output of a plug-in
# stays out of the results; a plug-in that crashes, hangs or is invalid fails an arm or a file, never the program.
# Third argument: the folder with the plug-ins of the tests.
. "$(dirname "$0")/lib.sh" "$@"
P=${3:?the folder of plug-ins}
REFIT="--plugin $P/refit.so"
MOODY="--plugin $P/moody.so"
n=0

expect 0 synth --shape tiny -R f32 "$T/tiny.gguf"
M=$T/tiny.gguf

# listed with the flag and with the variable; unknown without them
expect 0 methods $REFIT --method refit && says out 'least squares' && says out 'iters=20'
expect 0 methods $REFIT $MOODY -o jsonl && says out '"refit"' && says out '"moody"' && says out '"rtn"'
QDYNO_PLUGINS=$P/refit.so expect 0 methods --method refit
expect 4 methods --method refit
expect 4 run -m "$M" -p x -C refit && says err "'refit'"
expect 0 help knobs $REFIT && says out 'refit'

# file and recipe give the same values; the position of the flag does not matter
for flags in "$REFIT run -C refit:u3_g64" "run -C refit:u3_g64 $REFIT" "run --method refit --format u3_g64 $REFIT"; do
  expect 0 $flags -m "$M" -p "Once upon" -n 8 && cp "$T/out" "$T/said.$((++n))"
done
cmp -s "$T/said.1" "$T/said.2" && cmp -s "$T/said.1" "$T/said.3" || fail "the place of --plugin matters"
expect 0 quantize "$M" "$T/refit.gguf" -R refit:u3_g64 $REFIT && says out 'u3_g64'
expect 0 run -m "$T/refit.gguf" -p "Once upon" -n 8 # the file stands by itself
cmp -s "$T/out" "$T/said.1" || fail "the file says something else than the recipe"
expect 0 methods -m "$M" $REFIT -C refit:u3_g64 -C rtn:u3_g64 -o json &&
  json 'd["rows"][0]["nmse"] < 0.9 * d["rows"][1]["nmse"]'

# A/B, with each arm in its own process
"$QDYNO" ab -m "$M" rtn:u4_g64 refit $REFIT -w tg16 --max-blocks 6 --control 2 --budget 40s -o json >"$T/out" 2>"$T/err"
status=$?
[ "$status" -le 3 ] || fail "ab with a plug-in: status $status"
json 'd["arms"][1]["recipe"] == "refit:u4_g64" and d["arms"][1]["error"] is None and d["arms"][1]["rate"] > 0'

# stdout contains only results
expect 0 run -m "$M" $MOODY -C moody,mood=print -p "Once upon" -n 4 -o json && says err 'a remark of' &&
  json 'd["gen_tokens"] == 4'

# what a plug-in prints is shown with its name, without control characters, and not without end
expect 0 run -m "$M" $MOODY -C moody,mood=paint -p x -n 2 && says err '^plug-in moody.so: .x1b]0;owned.x07.x1b.31mred.u202e.x0d$' &&
  says err '^plug-in moody.so: no end$'
expect 0 run -m "$M" $MOODY -C moody,mood=flood -p x -n 2 && says err '^plug-in moody.so: printed [0-9]{7} bytes more'
[ "$(wc -c <"$T/err")" -lt 100000 ] || fail "a plug-in printed $(wc -c <"$T/err") bytes"

# a failure while encoding: that arm or file fails, everything else continues
for mood in crash past exit fail nan; do
  expect 5 run -m "$M" $MOODY -C moody,mood=$mood -p x -n 2 && says err 'plug-in .*moody'
done
expect 6 run -m "$M" $MOODY -C moody,mood=hungry -p x -n 2 && says err 'ran out of memory while encoding .*no memory for a table'
expect 5 ab -m "$M" default moody,mood=crash $MOODY -w tg8 && says out 'arm B failed: plug-in .*SIGSEGV'
expect 0 bench -m "$M" $MOODY -p 0 -n 4 -r 1 -C moody,mood=crash -C moody -o json &&
  json '[bool(r["error"]) for r in d["rows"]] == [True, False]'
QDYNO_PLUGIN_TIMEOUT=500ms expect 5 quantize "$M" "$T/none.gguf" $MOODY -R moody,mood=hang && says err 'hangs'
expect 5 quantize "$M" "$T/none.gguf" $MOODY -R moody,mood=crash && says err 'SIGSEGV'
ls "$T"/none.gguf* >/dev/null 2>&1 && fail "a failed quantization left a file"
expect 0 history && says out 'mood=crash'

# files that are not plug-ins
expect 5 info --plugin "$P/none.so" && says err 'none.so: No such file'
expect 5 info --plugin "$M" && says err 'cannot be loaded'
expect 5 info --plugin "$P/odd_version.so" && says err 'version 2'
expect 5 info --plugin "$P/odd_crash.so" && says err 'SIGSEGV'
QDYNO_PLUGINS=$P/odd_symbol.so expect 5 info && says err 'QDYNO_PLUGINS.*qdyno_plugin_get'
QDYNO_PLUGIN_TIMEOUT=500ms expect 5 info --plugin "$P/odd_hang.so" && says err 'hangs'
QDYNO_PLUGINS=$P/odd_crash.so expect 0 --version # help needs no plug-in

# compiled by hand from the installed files, as the manual states
share=$(dirname "$QDYNO")/share
compiler=
for one in cc gcc clang; do
  [ -z "$compiler" ] && echo 'int x;' | "$one" -xc -c - -o "$T/x.o" 2>/dev/null && compiler=$one
done
if [ -n "$compiler" ] && [ -e "$share/examples/refit.c" ]; then
  "$compiler" -O2 -shared -fPIC -I "$share/include" -o "$T/mine.so" "$share/examples/refit.c" -lm 2>"$T/err" ||
    fail "the example does not compile"
  expect 0 methods --plugin "$T/mine.so" --method refit
else
  skip "no compiler, or no installed example: not compiled by hand"
fi
finish
