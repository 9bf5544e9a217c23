#!/bin/bash
# Proves: a Hugging Face checkpoint works where a GGUF file does: info, fit, run, tokenize, eval, quantize, a worker of ab;
# import writes a file with the same tensors and says so; damaged checkpoints end with status 5 and leave no file.
. "$(dirname "$0")/lib.sh" "$@"

[ -n "$PYTHON" ] || { echo "SKIPPED: no python3"; exit 77; }
DATA=$(dirname "$0")/../data/import-golden-2/manifest.json

# A checkpoint of bfloat16 numbers from the manifest of tests/data.
python3 - "$DATA" "$T/hf" <<'PY' || { fail "no checkpoint"; finish; }
import json, os, struct, sys
model = json.load(open(sys.argv[1]))["models"][0]
os.mkdir(sys.argv[2])
json.dump(model["config"], open(sys.argv[2] + "/config.json", "w"))
header, data = {}, b""
for name, (shape, width, middle) in model["tensors"].items():
    n = 1
    for size in shape: n *= size
    f32 = b"".join(struct.pack("<f", ((i * 2654435761 >> 7) % 1000 / 1000 - 0.5) * width + middle) for i in range(n))
    numbers = b"".join(f32[i + 2:i + 4] for i in range(0, len(f32), 4))
    header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [len(data), len(data) + len(numbers)]}
    data += numbers
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
open(sys.argv[2] + "/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data)
letters = {chr(c): c - 33 for c in range(33, 97)}
json.dump({"added_tokens": [], "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
           "model": {"type": "BPE", "vocab": letters, "merges": []}}, open(sys.argv[2] + "/tokenizer.json", "w"))
PY
IN=$T/hf

# ---- a folder as a model
expect 0 info -m "$IN" -o json && json 'd["arch"] == "llama" and d["dominant_format"] == "bf16" and d["layers"] == 2 and len(d["sha256"]) == 64'
sha=$(value 'd["sha256"]')
expect 0 info -m "$IN/model.safetensors" -o json && [ "$(value 'd["sha256"]')" = "$sha" ] || fail "the file is not the folder's model"
expect 0 fit -m "$IN" -o json && json 'd["rows"][0]["weights_bytes"] > 10000'
expect 0 tokenize -m "$IN" -p 'ABC' && says out '\[32,33,34\]'
expect 0 run -m "$IN" -p ABC -n 4 -o json
said=$(value 'd["text"]')
for _ in $(seq 400); do printf 'ABCD EFGH IJKL %s ' "$RANDOM"; done >"$T/text"
expect 0 eval -m "$IN" -f "$T/text" -C q8_0 --ref default --chunks 2 -c 32 -o json && json '0 <= d["rows"][0]["kld_mean"] < 0.1'
expect 0 bench -m "$IN" -p 8 -n 8 -r 1 -o json

# ---- files made from it
expect 0 quantize "$IN" "$T/q8.gguf" -R q8_0 -o json && json '0 < d["nmse"] < 1e-3'
expect 0 import "$IN" "$T/out.gguf" --verify -o json && json 'd["differ"] == 0 and d["equal"] == len(d["rows"]) and d["rounded"] == 0' &&
  json 'all(r["identical"] and r["largest_difference"] == 0 for r in d["rows"])' && json "d['source_sha256'] == '$sha'"
expect 0 run -m "$T/out.gguf" -p ABC -n 4 -o json && [ "$(value 'd["text"]')" = "$said" ] || fail "the file and the folder say different things"
expect 0 import "$IN" "$T/out2.gguf" && cmp -s "$T/out.gguf" "$T/out2.gguf" || fail "import is not deterministic"

# ---- OUT is not IN, and nothing is replaced by accident
expect 4 import "$IN" "$T/out2.gguf" && says err 'force replaces it'
expect 0 import "$IN" "$T/out2.gguf" --force
sum=$(cat "$IN"/* | sha256sum)
for file in model.safetensors config.json tokenizer.json; do
  expect 4 import "$IN" "$IN/$file" --force && says err 'one of its files'
  expect 4 quantize "$IN" "$IN/$file" -R q8_0 --force && says err 'one of its files'
  expect 4 recipe -m "$IN" --size 1M --gguf "$IN/$file" --force && says err 'one of its files'
done
ln "$IN/model.safetensors" "$T/same.gguf.partial"
expect 4 quantize "$IN" "$T/same.gguf" -R q8_0 && says err 'one of its files'
[ "$(cat "$IN"/* | sha256sum)" = "$sum" ] || fail "a refused command changed the checkpoint"

# ---- the path of the current folder
(cd "$IN" && "$QDYNO" info -m model.safetensors -o json >"$T/here") && [ "$(python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["sha256"])' "$T/here")" = "$sha" ] ||
  fail "a file's name alone is not the folder's model"

# ---- refused
expect 4 import "$IN" && says err 'two arguments'
expect 4 import "$T/out.gguf" "$T/x.gguf" && says err 'config.json'
expect 5 info -m "$T" && says err 'no config.json'
head -c 3000 "$IN/model.safetensors" >"$T/cut"
mkdir "$T/bad" && cp "$IN/config.json" "$IN/tokenizer.json" "$T/bad/" && mv "$T/cut" "$T/bad/model.safetensors"
expect 5 run -m "$T/bad" -p A -n 1 && says err 'cut off'
expect 5 import "$T/bad" "$T/x.gguf" && [ ! -e "$T/x.gguf" ] || fail "a refused import left a file"
sed 's/LlamaForCausalLM/LlumaForCausalLM/' "$IN/config.json" >"$T/bad/config.json" && cp "$IN/model.safetensors" "$T/bad/"
expect 5 info -m "$T/bad" && says err "'LlumaForCausalLM' is not supported; known: LlamaForCausalLM"
sed 's/"hidden_size"/"strange_option": 3, "hidden_size"/' "$IN/config.json" >"$T/bad/config.json"
expect 5 run -m "$T/bad" -p A -n 1 && says err 'strange_option'

# ---- and back; two matrices have rows of 48, which no group of 32 divides
back() { "$QDYNO" quantize "$IN" "$T/back" -R gptq,group_size=32 --calib "$T/text" --to "$1" -o json >"$T/out" 2>"$T/err" </dev/null; }
back gptq && fail "an export of what GPTQ cannot hold"
says err 'is not quantized, which --to gptq cannot express'
back compressed-tensors || fail "export: $(tail -n 2 "$T/err")"
json 'd["exported_as"] == "compressed-tensors" and d["exported_matrices"] == 12 and d["exported_bytes"] == d["file_bytes"]'
expect 0 info -m "$T/back" && [ -f "$T/back/tokenizer.json" ] && [ ! -e "$T/back.quantized" ] || fail "the exported folder"
back compressed-tensors && fail "an export replaced a folder"
says err "back' exists"
expect 4 quantize "$IN" "$T/back2" -R q4_0 --to awq && says err 'is q4_0, which --to awq cannot hold'
[ ! -e "$T/back2" ] && [ ! -e "$T/back2.quantized" ] || fail "a refused export left something"
expect 4 quantize "$T/out.gguf" "$T/back2" -R q4_0 --shard-size 1G && says err "shard-size needs --to"
expect 4 quantize "$T/out.gguf" "$T/back2" -R gptq --to gptq && says err 'needs an unquantized Hugging Face folder'
expect 4 quantize "$IN" "$T/back2" -R q4_0 --to marlin && says err 'gptq'

# ---- a quantized one, and a trained one
if [ -d "$SHARED/import-golden" ]; then
  for folder in gptq-4b-g128-actorder awq-gemm-4b-g64 bnb-nf4-dq gptoss-mxfp4; do
    expect 0 import "$SHARED/import-golden/$folder" "$T/q.gguf" --force --verify -o json && json 'd["differ"] == 0 and d["rounded"] == 0' &&
      json 'any(r["quantized"] for r in d["rows"])'
  done
  expect 0 import "$SHARED/import-golden/bnb-int8" "$T/q.gguf" --force --verify -o json && json 'd["differ"] == 0 and d["rounded"] == 7'
  expect 0 run -m "$SHARED/models/tinystories-656k" -p 'Once upon a time' -n 30 && says out 'a little girl named Lily lived in a small house'
else
  skip "no $SHARED/import-golden"
fi
finish
