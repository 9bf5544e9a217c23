#!/bin/bash
# Proves: random keys and resizes for a few seconds do not end the dashboard or break it. For a long run by hand use a
# build with -DSANITIZE=address,undefined: tests/e2e/soak.py BUILD/qdyno --seconds 1800
. "$(dirname "$0")/lib.sh" "$@"
[ -n "$PYTHON" ] || { echo "SKIPPED: no python3 to press the keys"; exit 77; }
TMPDIR=$T python3 "$(dirname "$0")/soak.py" "$QDYNO" --seconds 5 --seed 3 || fail "see above"
finish
