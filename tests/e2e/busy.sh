#!/usr/bin/env bash
# An A/B beside two programs that run in bursts: load widens its interval and never makes it invalid.
# Whether verdicts are right is counted by ./dev bench load; one run cannot show it.
. "$(dirname "$0")/lib.sh" "$@"

[ -n "$PYTHON" ] || { skip "no python3 for the load generator"; exit 77; }
python3 "$(dirname "$0")/../bench/load/load.py" --generate 250 &
load=$!
pids+=("$load")

"$QDYNO" ab handicap=0 handicap=0 -w tg32 --budget 10s -o json >"$T/out" 2>"$T/err"
status=$?
kill "$load"
# not invalid; the status fits the verdict; the estimands agree with the counts
json "{'better': 0, 'equivalent': 0, 'negligible': 0, 'worse': 1, 'inconclusive': 2}[d['verdict']] == $status"
json "d['estimand'] in ('quiet', 'loaded')"
json "d['estimands']['loaded']['blocks'] == d['blocks'] + d['discarded'] >= d['estimands']['quiet']['blocks']"
json "d['verdict'] not in ('better', 'worse') or d['e_value'] >= 20"
json "d['verdict'] != 'inconclusive' or d['reason']"
finish
