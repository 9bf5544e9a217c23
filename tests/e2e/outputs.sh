#!/bin/bash
# Proves: a device, FIFO or symbolic link given as an output file stays what it is, a planted partial file is refused,
# two commands cannot write one file, results that cannot be used are reported, and messages name what to write.
. "$(dirname "$0")/lib.sh" "$@"
[ -n "$PYTHON" ] || { echo "SKIPPED: no python3 to change a model with"; exit 77; }

expect 0 synth --shape tiny -R f32 "$T/tiny.gguf" || finish
IN=$T/tiny.gguf

# ---- output files
ln -s real.f32 "$T/link"
mkfifo "$T/fifo"
ln -s "$T/fifo" "$T/fifo-link"
expect 0 logits -m "$IN" --ids 5,6 --out "$T/plain.f32"
expect 0 logits -m "$IN" --ids 5,6 --out "$T/link"
[ -L "$T/link" ] && cmp -s "$T/plain.f32" "$T/real.f32" || fail "a link was replaced, or its target not written"
timeout 20 cat "$T/fifo" >"$T/read.f32" &
expect 0 logits -m "$IN" --ids 5,6 --out "$T/fifo-link"
wait $!
[ -p "$T/fifo" ] && [ -L "$T/fifo-link" ] && cmp -s "$T/plain.f32" "$T/read.f32" || fail "a FIFO was replaced, or got other bytes"
ln -s /dev/null "$T/null" # if the link were replaced, the device would be, too
expect 0 logits -m "$IN" --ids 5,6 --out "$T/null"
[ -L "$T/null" ] && [ -c /dev/null ] || fail "/dev/null was replaced"
left=$(find "$T" -name '*.tmp*')
[ -z "$left" ] || fail "left behind: $left"

echo precious >"$T/victim"
ln -s "$T/victim" "$T/q.gguf.partial"
expect 5 quantize "$IN" "$T/q.gguf" -R q8_0 && says err 'quantize: .*is a symbolic link, expected a regular file' && ! grep -q 'resuming\|kept' "$T/err"
[ "$(cat "$T/victim")" = precious ] || fail "a planted link was followed"
rm "$T/q.gguf.partial"
(
  flock 9
  "$QDYNO" quantize "$IN" "$T/q.gguf" -R q8_0 9>&- >"$T/out" 2>"$T/err"
  echo $? >"$T/status"
) 9>"$T/q.gguf.partial"
[ "$(cat "$T/status")" = 5 ] && says err 'q.gguf is being written by another process' || fail "two writers: status $(cat "$T/status")"
! grep -q resuming "$T/err" || fail "a refused command said that it resumes"
rm "$T/q.gguf.partial"
ln -s target.gguf "$T/q-link.gguf"
echo old >"$T/target.gguf"
expect 0 quantize "$IN" "$T/q-link.gguf" --force -R q8_0 && [ -L "$T/q-link.gguf" ] || fail "quantize replaced a link"
! grep -q 'n/a' "$T/out" || fail "quantize prints rows without a value"
expect 0 info -m "$T/target.gguf"

# ---- messages
expect 4 quantize "$IN" "$T/no.gguf" -R nf4:nf4_dq && says err '\(double_quant=true\)'
expect 4 eval -m "$IN" --ref other.gguf && says err 'write model=other.gguf'
expect 0 advise -m "$IN" --machine h100 && says out 'through OpenCL' && ! grep -q 'CPUs only' "$T/out" || fail "advise denies OpenCL"

# ---- context of logits
expect 4 logits -m "$IN" --ids 5,6,7 -C ctx=2 --out "$T/x.f32" && says err 'expected ctx=3 or more'

# ---- workloads beyond the trained context
limit=$(expect 0 info -m "$IN" -o json && value 'd["ctx_train"]')
expect 0 bench -m "$IN" -p $((limit + 8)) -n 1 -r 1 -o json && json 'd["beyond_trained_context"] is True' &&
  says err "was trained on $limit"
expect 0 bench -m "$IN" -p 8 -n 1 -r 1 -o json && json 'd["beyond_trained_context"] is False'
"$QDYNO" ab default default -m "$IN" -w "pp$((limit + 8))" --max-blocks 6 --control 2 --budget 30s -o json >"$T/out" 2>"$T/err" </dev/null
json 'd["beyond_trained_context"] is True' && says err "was trained on $limit"
# models that only the configs name; a context that a config sets
"$QDYNO" ab "model=$IN" "q8_0,model=$IN" -w "pp$((limit + 8))" --max-blocks 6 --control 2 --budget 30s -o json >"$T/out" 2>"$T/err" </dev/null
json 'd["beyond_trained_context"] is True' && says err "was trained on $limit"
expect 0 bench -m "$IN" -p 8 -n 1 -r 1 -C "ctx=$((limit + 8))" -o json && json 'd["beyond_trained_context"] is True' &&
  says err "context has $((limit + 8)) tokens.* was trained on $limit"
expect 0 bench -m "$IN" -p 8 -n 1 -r 1 -C "ctx=$limit" -o json && json 'd["beyond_trained_context"] is False'

# ---- what a step of several rows costs
expect 0 bench -m "$IN" --rows 4,2 -n 4 -d 0,8 -r 2 -o json &&
  json '[r["workload"] for r in d["rows"]] == ["tg4", "tg4@b4", "tg4@b2", "tg4@d8", "tg4@d8@b4", "tg4@d8@b2"]' &&
  json 'd["rows"][0]["row_cost"] == 1 and d["rows"][3]["row_cost"] == 1 and all(r["row_cost"] > 0 for r in d["rows"])'
expect 0 bench -m "$IN" -p 0 -n 4 -npl 1,2 -r 1 -o json && json 'all(r["row_cost"] is None for r in d["rows"])'
expect 4 bench -m "$IN" --rows 4 -p 8 && says err 'leave -p and -npl out'
expect 4 bench -m "$IN" --rows 4 -n 4,8 && says err 'one number of at least 2 tokens'
expect 4 bench -m "$IN" --rows 4 -w tg8 && says err 'leave .* --rows out'

# ---- results that cannot be used: the output norm of a model times FACTOR
scaled() {
  python3 - "$IN" "$2" "$1" <<'PY'
import struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
at = 24
u = lambda f, n: struct.unpack_from("<" + f, data, n)[0]
tensors, pairs = u("Q", 8), u("Q", 16)
size = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
def skip(kind, at):
    if kind == 8:
        return at + 8 + u("Q", at)
    if kind == 9:
        element, n = u("I", at), u("Q", at + 4)
        at += 12
        for _ in range(n):
            at = skip(element, at)
        return at
    return at + size[kind]
for _ in range(pairs):
    at += 8 + u("Q", at)
    at = skip(u("I", at), at + 4)
found = None
for _ in range(tensors):
    n = u("Q", at)
    name = data[at + 8:at + 8 + n].decode()
    at += 8 + n
    dims = u("I", at)
    shape = [u("Q", at + 4 + 8 * i) for i in range(dims)]
    at += 4 + 8 * dims + 4
    if name == "output_norm.weight":
        found = u("Q", at), shape[0]
    at += 8
start = (at + 31) // 32 * 32 + found[0]
for i in range(found[1]):
    struct.pack_into("<f", data, start + 4 * i, float(sys.argv[3]) * u("f", start + 4 * i))
open(sys.argv[2], "wb").write(data)
PY
}
for _ in $(seq 400); do printf 'The mill turned slowly while the river went by. '; done >"$T/text"
expect 0 eval -m "$IN" -f "$T/text" -c 64 --chunks 2 -o json && json 'd["rows"][0]["text_fits_model"] is True'
scaled 20 "$T/loud.gguf"
expect 0 eval -m "$T/loud.gguf" -f "$T/text" -c 64 --chunks 2 -o json && json 'd["rows"][0]["text_fits_model"] is False'
expect 0 eval -m "$T/loud.gguf" -f "$T/text" -c 64 --chunks 2 && says out 'text and model do not fit'
scaled 1e6 "$T/huge.gguf"
expect 5 eval -m "$T/huge.gguf" -f "$T/text" -c 64 --chunks 2 && says err 'is not finite'

# ---- the end of the output: the result, evidence, conditions and one command; -q prints the result only
ending() { # RESULT NEXT COMMAND...
  local result=$1 next=$2
  shift 2
  status_of "$@"
  tail -n 4 "$T/out" >"$T/end"
  sed -n 1p "$T/end" | grep -Eq -- "$result" && sed -n 2p "$T/end" | grep -q '^evidence: ' &&
    sed -n 3p "$T/end" | grep -q '^conditions: ' && sed -n 4p "$T/end" | grep -Eq -- "^next: $next" ||
    { fail "qdyno $*: ends with: $(cat "$T/end")"; return; }
  status_of "$@" -q
  grep -Eq -- "$result" "$T/out" && ! grep -Eq '^(evidence|conditions|next):|^\|' "$T/out" && [ ! -s "$T/err" ] ||
    fail "qdyno $* -q prints more than the result: $(cat "$T/out" "$T/err")"
}
status_of() {
  "$QDYNO" "$@" >"$T/out" 2>"$T/err" </dev/null
  [ $? -le 2 ] || fail "qdyno $*: $(head -c 300 "$T/err")"
}
ending '^default, tg4: decoding [0-9.]+ \+- [0-9.]+ tokens/s$' 'qdyno show [0-9]+ ' bench -m "$IN" -p 0 -n 4 -r 2
ending '^default: perplexity [0-9.]+ \+- [0-9.]+$' 'qdyno show [0-9]+ ' eval -m "$IN" -f "$T/text" -c 64 --chunks 2
ending '^q8_0 against default: KL divergence .* nats' "qdyno ab -m $IN default q8_0 -w tg64 " \
  eval -m "$IN" -f "$T/text" -c 64 --chunks 2 -C q8_0 --ref default
ending '(KL divergence|not better|uniform)' "qdyno quantize $IN OUT.gguf -R " \
  recipe -m "$IN" -f "$T/text" --check "$T/text" -c 32 --windows 2 --check-windows 3 --budget 5s
expect 0 bench -m "$IN" -p 0 -n 4 -r 1 && says out '^evidence: 1 repetition in 1 row; one repetition'
# the A/B that is proposed measures each config on its model, and no config that failed
expect 0 quantize "$IN" "$T/small.gguf" -R q8_0
expect 0 eval -m "$T/small.gguf" -C default --ref "model=$IN" -f "$T/text" -c 64 --chunks 2 &&
  says out "^next: qdyno ab -m $IN default model=$T/small.gguf -w tg64 "
expect 0 bench -m "$T/small.gguf" -C default -C "model=$IN" -p 0 -n 4 -r 1 &&
  says out "^next: qdyno ab -m $T/small.gguf default model=$IN -w tg4 "
expect 0 bench -m "$IN" -C ctx=2 -C default -C q8_0 -p 0 -n 4 -r 1 &&
  says out "^next: qdyno ab -m $IN default q8_0 -w tg4 " && says out '^evidence: 2 repetitions in 2 rows'
expect 0 bench -m "$IN" -C ctx=2 -C default -p 0 -n 4 -r 1 && says out '^next: qdyno show '
expect 0 help bench && says out '^-q prints the result only'
finish
