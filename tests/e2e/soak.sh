#!/bin/bash
# Proves: a few seconds of random keys and resizes end neither the dashboard nor its manners. The long way, by hand, on a
# build with -DSANITIZE=address,undefined: tests/e2e/soak.py BUILD/qdyno --seconds 1800
. "$(dirname "$0")/lib.sh" "$@"
[ -n "$PYTHON" ] || { echo "SKIPPED: no python3 to press the keys"; exit 77; }
TMPDIR=$T python3 "$(dirname "$0")/soak.py" "$QDYNO" --seconds 5 --seed 3 || fail "see above"
finish
