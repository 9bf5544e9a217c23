#!/bin/bash
# Proves: compile=off, fused and autotune run in experiments; autotune measures once, says so, and stores its choices,
# which the next run uses; other kernels or precision, and a store without choices, measure again; it is refused with batch_invariant=on.
. "$(dirname "$0")/lib.sh" "$@"
STORE=$XDG_DATA_HOME/qdyno/qdyno.db

"$QDYNO" ab compile=off,threads=1 compile=fused,threads=1 -w pp64 --budget 3s -o json >"$T/out" 2>"$T/err" </dev/null
case $? in 0 | 1 | 2 | 3) json 'd["arms"][0]["merged"]["compile"] == "off" and d["arms"][1]["merged"]["compile"] == "fused"' ;;
*) fail "ab compile=off compile=fused failed" ;; esac

# One thread: threads that wait for each other on a busy machine would make measuring long.
tuned=(run -n 4 --temp 0 --log-level info -p "Once")
MEASURED='autotune: measured [0-9]+ products in [0-9.]+ s; later runs use the stored choices'
silent() { ! grep -q 'autotune: measured' "$T/err" || fail "$1 measured again"; }
expect 0 "${tuned[@]}" -C compile=autotune -t 1 && says err "$MEASURED"
expect 0 "${tuned[@]}" -C compile=autotune -t 1 && silent "a second run"
expect 0 "${tuned[@]}" -C compile=autotune,precision=highest -t 1 && says err "$MEASURED"
expect 0 "${tuned[@]}" -C compile=autotune,precision=highest -t 1 && silent "a second run with that precision"
expect 0 "${tuned[@]}" -C compile=autotune -t 1 && silent "a third run"
QDYNO_ISA=ref expect 0 "${tuned[@]}" -C compile=autotune -t 1 && says err "$MEASURED"

# a worker measures and its parent stores: the first of these two arms measures, the second finds the choices
rm -f "$STORE"*
"$QDYNO" ab compile=autotune,threads=1 compile=autotune,threads=1,ctx=128 -w pp16 --budget 3s --log-level info -o json \
  >"$T/out" 2>"$T/err" </dev/null
case $? in 0 | 1 | 2 | 3) ;; *) fail "ab compile=autotune failed" ;; esac
[ "$(grep -Ec "$MEASURED" "$T/err")" = 1 ] || fail "two arms measured $(grep -c 'autotune: measured' "$T/err") times, not once"
expect 0 "${tuned[@]}" -C compile=autotune -t 1 && silent "a run after an experiment"

expect 4 run -C compile=autotune,batch_invariant=on -p "Once" && says err 'same kernel for every number of rows'
expect 4 run -C compile=jit -p "Once" && says err 'fused off autotune|fused, off'
finish
