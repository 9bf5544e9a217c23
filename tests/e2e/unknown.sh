#!/bin/bash
# Proves: commands that run a model refuse a file with a tensor or a metadata key that nothing uses, with status 5 and
# its name; --force and force=on run it and mark every result; info and fit name what is unknown and succeed. A file with a
# tensor of a type that qdyno cannot read is refused by everything but info and fit, which name the tensor and count its bytes.
. "$(dirname "$0")/lib.sh" "$@"
[ -n "$PYTHON" ] || { echo "SKIPPED: no python3 to make the files"; exit 77; }
DATA=$(dirname "$0")/../data/arch-golden

# add IN OUT key|tensor NAME: a copy of a GGUF file with one more key (the number 8) or tensor (8 ones)
add() {
  python3 - "$@" <<'PY' || fail "no file was made"
import struct, sys
source, target, what, name = sys.argv[1:]
data = open(source, "rb").read()
tensors, keys = struct.unpack_from("<QQ", data, 8)
at = 24
SIZE = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
def number(format):
    global at
    value = struct.unpack_from("<" + format, data, at)[0]
    at += struct.calcsize(format)
    return value
def skip_text():
    global at
    length = number("Q")
    at += length
def skip_value(kind):
    global at
    if kind == 8:
        skip_text()
    elif kind == 9:
        element, count = number("I"), number("Q")
        for _ in range(count):
            skip_value(element)
    else:
        at += SIZE[kind]
for _ in range(keys):
    skip_text()
    skip_value(number("I"))
keys_end = at
for _ in range(tensors):
    skip_text()
    dims = number("I")
    at += 8 * dims + 12
infos_end = at
text = struct.pack("<Q", len(name)) + name.encode()
weights = data[-(-infos_end // 32) * 32:]
more_key = more_tensor = b""
if what == "key":
    more_key, keys = text + struct.pack("<II", 4, 8), keys + 1
else:
    weights += b"\0" * (-len(weights) % 32)
    more_tensor, tensors = text + struct.pack("<IQIQ", 1, 8, 0, len(weights)), tensors + 1
    weights += struct.pack("<8f", *[1] * 8)
head = data[:8] + struct.pack("<QQ", tensors, keys) + data[24:keys_end] + more_key + data[keys_end:infos_end] + more_tensor
open(target, "wb").write(head + b"\0" * (-len(head) % 32) + weights)
PY
}

# retype IN OUT NAME TYPE: a copy of a GGUF file in which the tensor has another type number
retype() {
  python3 - "$@" <<'PY' || fail "no file was made"
import struct, sys
source, target, name, kind = sys.argv[1:]
data = bytearray(open(source, "rb").read())
text = struct.pack("<Q", len(name)) + name.encode()
assert data.count(text) == 1
at = data.index(text) + len(text)
struct.pack_into("<I", data, at + 4 + 8 * struct.unpack_from("<I", data, at)[0], int(kind))
open(target, "wb").write(data)
PY
}
add "$DATA/command-r.gguf" "$T/norm.gguf" tensor blk.0.attn_sinks.weight
add "$DATA/llama-gqa.gguf" "$T/window.gguf" key llama.attention.sliding_window
MARK='answers unverified'

# ---- refused by name
refuses() { # PATTERN ARGUMENTS...
  expect 5 "${@:2}" && says err "$1" && says err '--force'
}
refuses blk.0.attn_sinks.weight logits -m "$T/norm.gguf" --ids 1,2,3 --out "$T/logits"
refuses blk.0.attn_sinks.weight bench -m "$T/norm.gguf" -p 8 -n 0 -r 1
refuses blk.0.attn_sinks.weight quantize "$T/norm.gguf" "$T/q.gguf" -R q8_0
refuses llama.attention.sliding_window logits -m "$T/window.gguf" --ids 1,2,3 --out "$T/logits"
expect 5 ab default kv=f32 -m "$T/window.gguf" -w tg4 --budget 5s && says out llama.attention.sliding_window && says out '--force'
[ ! -e "$T/q.gguf" ] || fail "a refused model was quantized"

# ---- run with --force or force=on, and marked
expect 0 logits -m "$T/norm.gguf" --ids 1,2,3 --out "$T/logits" --force && says err "$MARK"
expect 0 bench -m "$T/norm.gguf" -p 8 -n 0 -r 1 --force && says out "$MARK"
expect 0 bench -m "$T/norm.gguf" -p 8 -n 0 -r 1 --force -o json && json 'd["rows"][0]["answers_unverified"] is True'
expect 0 bench -m "$DATA/command-r.gguf" -p 8 -n 0 -r 1 --force -o json && json 'd["rows"][0]["answers_unverified"] is False'
expect 0 quantize "$T/norm.gguf" "$T/q.gguf" -R q8_0 --force && says out "$MARK"
refuses blk.0.attn_sinks.weight logits -m "$T/q.gguf" --ids 1,2,3 --out "$T/logits"
# Gemma has no output matrix: one in a file is ignored, and the embedding is used
add "$DATA/gemma.gguf" "$T/output.gguf" tensor output.weight
expect 0 logits -m "$T/output.gguf" --ids 1,2,3 --out "$T/logits" --force && says err "$MARK"
# the run's verdict is not the point, the mark is
"$QDYNO" ab force=on kv=f32,force=on -m "$T/window.gguf" -w tg4 --budget 8s -o json >"$T/out" 2>"$T/err" </dev/null
json 'd["answers_unverified"] is True'

# ---- described
for command in info fit; do
  expect 0 $command -m "$T/norm.gguf" && says out blk.0.attn_sinks.weight
  expect 0 $command -m "$T/window.gguf" -o json && json 'len(d["unknown"]) == 1 and "sliding_window" in d["unknown"][0]'
done
expect 0 info -m "$DATA/llama-gqa.gguf" -o json && json '"unknown" not in d and "unsupported_tensors" not in d'

# ---- every step of a command that opens the model gets the permission
expect 0 info -o json
bundled=$(value 'd["path"]')
add "$bundled" "$T/bundled.gguf" key llama.attention.unheard_of
RECOVER="-R q2_K --recover steps=8,rate=0.0005,batch=2,ctx=64"
refuses unheard_of quantize "$T/bundled.gguf" "$T/r.gguf" $RECOVER
expect 0 quantize "$T/bundled.gguf" "$T/r.gguf" $RECOVER --force -o json && json 'd["answers_unverified"] is True'

# ---- types of tensors
retype "$DATA/llama-gqa.gguf" "$T/fork.gguf" blk.0.ffn_up.weight 200
retype "$DATA/llama-gqa.gguf" "$T/iq4k.gguf" blk.0.ffn_up.weight 139
retype "$DATA/llama-gqa.gguf" "$T/unnamed.gguf" blk.0.ffn_up.weight 57
expect 0 info -m "$DATA/llama-gqa.gguf" --tensors -o json
bytes=$(value '[r["bytes"] for r in d["rows"] if r["name"] == "blk.0.ffn_up.weight"][0]')
shape=$(value '[r["shape"] for r in d["rows"] if r["name"] == "blk.0.ffn_up.weight"][0]')
expect 0 info -m "$DATA/llama-gqa.gguf" -o json
weights=$(value 'd["weight_bytes"]')
while read -r file type name; do
  model=$T/$file.gguf
  wanted="[{'name': 'blk.0.ffn_up.weight', 'type': $type, 'type_name': $name, 'shape': '$shape', 'bytes': $bytes}]"
  for command in info fit; do
    expect 0 $command -m "$model" && says out "tensor 'blk.0.ffn_up.weight': type $type .*not supported; shape $shape"
    expect 0 $command -m "$model" -o json && json "d['unsupported_tensors'] == $wanted"
  done
  # this tensor has no padding behind it, so the distance is the size
  expect 0 fit -m "$model" -o json && json "d['rows'][0]['weights_bytes'] == $weights and d['rows'][0]['compute_bytes'] is None"
  expect 0 fit -m "$model" && says out "estimated from its shapes"
  expect 0 info -m "$model" --tensors && says out 'blk.0.ffn_up.weight'
  for command in "run -p Once" "logits --ids 1,2 --out $T/logits" "bench -p 8 -n 0 -r 1" "fit --load" "fit --format q8_0" "eval"; do
    expect 5 $command -m "$model" --force && says err "blk.0.ffn_up.weight" && says err "type $type"
  done
  expect 5 quantize "$model" "$T/q2.gguf" -R q8_0 --force && says err "type $type"
done <<'EOF'
fork 200 None
iq4k 139 'iq4_k'
unnamed 57 None
EOF
expect 5 logits -m "$T/fork.gguf" --ids 1,2 --out "$T/logits" && says err 'ik_llama.cpp'
expect 5 logits -m "$T/unnamed.gguf" --ids 1,2 --out "$T/logits" && ! grep -q 'ik_llama.cpp' "$T/err" || fail "type 57 is taken for one of the fork"
finish
