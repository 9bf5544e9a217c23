#!/bin/bash
# Proves: `info --experts` counts the choices of a model's routers on a text, with figures that agree with each other in
# every output format; models without experts, texts that are missing or too short, and flags without --experts are
# refused with the documented status.
. "$(dirname "$0")/lib.sh" "$@"

DATA=$(dirname "$0")/../data/arch-golden-2
M=$DATA/olmoe.gguf # 6 experts, 2 for each token, in 3 layers
for i in $(seq 40); do echo "Line $i: the miller weighs $((i * 17 % 29)) sacks and is content."; done >"$T/mill.txt"

expect 0 info -m "$M" --experts "$T/mill.txt" -c 32 && says out '2 of 6 experts work on a token' &&
  says out 'Distinct experts of a layer that work on a batch' && says out 'qdyno detect --probe'
expect 0 info -m "$M" --experts "$T/mill.txt" -c 32 -o json &&
  json 'd["schema"] == "qdyno.experts/1" and (d["experts"], d["experts_used"], d["ctx"]) == (6, 2, 32)' &&
  json 'd["tokens"] == 32 * d["windows"] and d["windows"] >= 32 and len(d["text_sha256"]) == 64' &&
  json '[r["layer"] for r in d["rows"]] == [c["layer"] for c in d["choices"]] == [0, 1, 2]' &&
  json 'all(sum(c["count"]) == 2 * d["tokens"] for c in d["choices"])' &&
  json 'all(abs(r["hottest_share"] - max(c["count"]) / sum(c["count"])) < 1e-9 for r, c in zip(d["rows"], d["choices"]))' &&
  json 'all(r["never_chosen"] == c["count"].count(0) for r, c in zip(d["rows"], d["choices"]))' &&
  json 'all(abs(2 ** -sum(n / 2 / d["tokens"] * math.log2(n / 2 / d["tokens"]) for n in c["count"] if n) - r["effective_experts"]) < 1e-6 for r, c in zip(d["rows"], d["choices"]))' &&
  json '[b["rows"] for b in d["batches"]] == [1, 2, 4, 8, 16, 32]' &&
  json 'd["batches"][0]["consecutive_experts"] == d["batches"][0]["independent_experts"] == 2' &&
  json 'all(abs(b[k] - sum(c[k][i] for c in d["choices"]) / 3) < 1e-6 for i, b in enumerate(d["batches"]) for k in ("consecutive_experts", "independent_experts"))' &&
  json 'all(a[k] <= b[k] for a, b in zip(d["batches"], d["batches"][1:]) for k in ("consecutive_experts", "consecutive_read_bytes", "independent_read_bytes"))' &&
  json 'all(b["consecutive_time_ratio"] is None for b in d["batches"])'
bytes=$(value 'd["batches"][0]["consecutive_read_bytes"]')
expect 0 fit -m "$M" -o json && [ -z "$bytes" ] || json "d['rows'][0]['decode_read_bytes'] == $bytes"
expect 0 info -m "$M" --experts "$T/mill.txt" -c 32 --chunks 4 -o json && json 'd["windows"] == 4' &&
  json '[b["independent_experts"] is None for b in d["batches"]] == [False] * 3 + [True] * 3' &&
  json '[b["independent_read_bytes"] is None for b in d["batches"]] == [False] * 3 + [True] * 3'
expect 0 info -m "$M" --experts "$T/mill.txt" -c 32 -C q8_0 -o json && json 'd["config"] == "q8_0"' &&
  json "d['batches'][0]['consecutive_read_bytes'] < ${bytes:-1e9}"
expect 0 info -m "$M" --experts "$T/mill.txt" -c 32 -o csv && says out '^layer,hottest,hottest_share,entropy_bits'
[ "$(wc -l <"$T/out")" = 4 ] || fail "csv has $(wc -l <"$T/out") lines, want a header and 3 layers"

expect 0 detect --probe
expect 0 info -m "$M" --experts "$T/mill.txt" -c 32 -o json &&
  json 'd["batches"][0]["consecutive_time_ratio"] == d["batches"][0]["independent_time_ratio"] == 1' &&
  json 'all(d["batches"][5][k] > max(1, d["batches"][1][k]) for k in ("consecutive_time_ratio", "independent_time_ratio"))'

expect 4 info -m "$DATA/mistral3.gguf" --experts "$T/mill.txt" && says err 'mistral3 model has no experts'
expect 5 info -m "$M" --experts "$T/none.txt" && says err 'none.txt'
expect 4 info -m "$M" --experts "$T/mill.txt" -c 2048 && says err 'two windows'
expect 4 info -m "$M" --experts "$T/mill.txt" --tensors && says err 'exclude each other'
for flag in '-c 32' '--chunks 2' '-C q8_0'; do
  # shellcheck disable=SC2086
  expect 4 info -m "$M" $flag && says err 'needs --experts'
done
finish
