#!/bin/bash
# Proves: a workload at a depth fills the KV cache once for each process, also in the blocks of an experiment and in turns, and
# says how many tokens that were; quality of such a workload is measured in windows of its length, or a note says why not.
. "$(dirname "$0")/lib.sh" "$@"
ROW='d["rows"][0]'

for more in "" --no-warmup; do
  expect 0 bench -w tg4@d200 -r 3 $more -o json &&
    json "$ROW['repetitions'] == 3 and $ROW['filled_tokens'] == 200 and $ROW['fill_s'] > 0 and $ROW['decode_tok_s'] > 0"
done
expect 0 bench -n 4 -d 96 --rows 1,2 -r 2 -o json && json "sum(r['filled_tokens'] or 0 for r in d['rows']) <= 96 + 2 * 96"
expect 0 bench -w tg4 -r 1 -o json && json "$ROW['fill_s'] is None and $ROW['filled_tokens'] is None"

# Arms do the same work, in cells and in turns.
for turns in off on; do
  "$QDYNO" ab default kv=q8_0 -w pp8+tg8@d100 --turns $turns --budget 3s --control 0 -o json >"$T/out" 2>"$T/err" </dev/null
  [ $? -le 3 ] || fail "ab --turns $turns"
  json "all(a['error'] is None for a in d['arms'])"
done

"$QDYNO" ab default kv=q4_0 -w tg4@d600 --quality --quality-chunks 2 --budget 3s --control 0 -o json >"$T/out" 2>"$T/err" </dev/null
[ $? -le 3 ] || fail "ab --quality at a depth"
says err "quality is measured in windows of 512 tokens and not at the workload's 604: the text has .* tokens, and the model was trained on contexts of 512"
# A budget that filling the caches uses up: the run ends after the first arm, and names one that is enough.
expect 2 ab kv=f16 kv=q8_0 -w tg4@d400 --budget 0.01s --warmup 1 && says out 'ends before its first block: filling the cache' &&
  says out 'next: qdyno ab --resume [0-9]+ --budget [0-9]+[smh] '

"$QDYNO" tune -w tg4@d300 --space 'recipe=file|q4_0' --quality-ctx 64 --budget 6s --search-only --dry-run >"$T/out" 2>"$T/err" </dev/null
[ $? -le 3 ] || fail "tune --quality-ctx"
says out "quality is measured in windows of 64 tokens and not at the workload's 304 \(--quality-ctx N sets another length\)"
finish
