#!/usr/bin/env bash
# Models by name: the stores of other programs, in the layouts that these write, are listed; every form of a name works after -m, in model= and as
# the first argument, and means the documented file; ambiguous and absent names are refused with what helps; nothing is measured, hashed or
# fetched without being asked.
. "$(dirname "$0")/lib.sh" "$@"
unset HF_HUB_CACHE HUGGINGFACE_HUB_CACHE HF_HOME LLAMA_CACHE MODELSCOPE_CACHE QDYNO_MODELS HF_HUB_OFFLINE MODEL_ENDPOINT
export OLLAMA_MODELS=$HOME/.ollama/models                # not those of a service on this machine
export HF_ENDPOINT=http://127.0.0.1:9 XDG_CACHE_HOME=$HOME/.cache # a request would fail, and take its time

synth() { mkdir -p "$(dirname "$2")"; "$QDYNO" synth --shape tiny -R "$1" -q "$2" >/dev/null 2>"$T/err" || fail "no model $2"; }
sha() { printf '%s' "$1" | sha256sum | cut -c1-64; }

# ---- the stores
HUB=$XDG_CACHE_HOME/huggingface/hub/models--unsloth--tiny-GGUF
COMMIT=0123456789012345678901234567890123456789
mkdir -p "$HUB/refs/refs/pr" "$HUB/blobs" "$HUB/snapshots/$COMMIT/sub"
printf %s $COMMIT >"$HUB/refs/main"
printf %s $COMMIT >"$HUB/refs/refs/pr/1"
hub() { synth "$1" "$HUB/blobs/$(sha "$2")"; ln -s "$3../../blobs/$(sha "$2")" "$HUB/snapshots/$COMMIT/$2"; }
hub q4_0 tiny-Q4_0.gguf ""
hub q8_0 sub/tiny-Q8_0.gguf "../"
hub f16 mmproj-tiny-F16.gguf ""
printf x >"$HUB/blobs/$(sha x).1a2b3c4d.incomplete"
synth q8_0 "$XDG_CACHE_HOME/llama.cpp/ggml-org_flat-GGUF_flat-Q8_0.gguf"
synth q4_0 "$HOME/.lmstudio/models/pub/studio-GGUF/studio-Q4_0.gguf"
synth f16 "$HOME/.cache/lm-studio/models/pub/older-GGUF/older-F16.gguf"
synth q8_0 "$HOME/.cache/modelscope/hub/models/Qwen/Qwen2___5-GGUF/qwen2.5-q8_0.gguf"
synth q8_0 "$OLLAMA_MODELS/blobs/new"
BLOB=$(sha256sum <"$OLLAMA_MODELS/blobs/new" | cut -c1-64)
mv "$OLLAMA_MODELS/blobs/new" "$OLLAMA_MODELS/blobs/sha256-$BLOB"
layer() { printf '{"mediaType":"application/vnd.ollama.image.%s","digest":"sha256:%s","size":1}' "$1" "$2"; }
manifest() { mkdir -p "$(dirname "$OLLAMA_MODELS/manifests/$1")"; printf '{"schemaVersion":2,"layers":[%s]}' "$2" >"$OLLAMA_MODELS/manifests/$1"; }
manifest registry.ollama.ai/library/llama3.2/3b "$(layer model "$BLOB"),$(layer template "$(sha t)")"
manifest registry.ollama.ai/library/llama3.2/latest "$(layer model "$BLOB")"
manifest registry.ollama.ai/library/broken/latest "$(layer model "$(sha missing)")"
manifest registry.ollama.ai/library/mx/latest "$(layer tensor "$(sha a)"),$(layer tensor "$(sha b)")"
OWN=$T/own
synth q4_0 "$OWN/mine-Q4_0.gguf"
synth q4_0 "$OWN/split-00001-of-00002.gguf"
printf 'GGUF no' >"$OWN/damaged.gguf"
ln -s nowhere "$OWN/dangling.gguf"
ln -s . "$OWN/loop"

# ---- the list
QDYNO_MODELS=$OWN expect 0 models -o json &&
  json 'sorted(r["name"] for r in d["rows"]) == sorted(["hf:unsloth/tiny-GGUF:Q4_0", "hf:unsloth/tiny-GGUF:Q8_0", "hf:unsloth/tiny-GGUF/mmproj-tiny-F16.gguf",
    "llamacpp:ggml-org_flat-GGUF_flat-Q8_0", "lmstudio:pub/studio-GGUF:Q4_0", "lmstudio:pub/older-GGUF:F16", "modelscope:Qwen/Qwen2.5-GGUF:Q8_0",
    "ollama:llama3.2:3b", "ollama:mx", "mine-Q4_0.gguf", "split-00001-of-00002.gguf", "damaged.gguf"])' &&
  json 'all(r["runs"] and r["fits"] and r["arch"] == "llama" and r["total_bytes"] > 0 for r in d["rows"] if r["kind"] == "weights" and r["name"] not in ("split-00001-of-00002.gguf", "damaged.gguf"))' &&
  json '{r["name"]: r["also"] for r in d["rows"] if r["also"]} == {"ollama:llama3.2:3b": ["ollama:llama3.2"]}' &&
  json '{r["name"]: r["kind"] for r in d["rows"] if r["kind"] != "weights"} == {"hf:unsloth/tiny-GGUF/mmproj-tiny-F16.gguf": "projector", "ollama:mx": "no GGUF"}' &&
  json '[r["problem"] for r in d["rows"] if r["name"].startswith("split")] == ["1 of 2 files of the split model are here"]' &&
  json 'd["skipped"] == {"dangling": 2, "unreadable": 0, "manifest": 0, "deep": 0, "many": 0}' &&
  json 'd["predicted"] is False and all(r["decode_tok_s"] is None for r in d["rows"]) and d["headers_cached"] == 0'
QDYNO_MODELS=$OWN expect 0 models -o json && json 'd["headers_read"] == 0 and d["headers_cached"] == 10 and len(d["rows"]) == 12'
QDYNO_MODELS=$OWN expect 0 models && says out 'ollama:llama3.2:3b' && says out 'skipped: 2 links to files that are missing' && says out 'detect --probe' && says out '1 of 2 files'
for format in jsonl csv sql; do expect 0 models -o $format && says out 'hf:unsloth/tiny-GGUF:Q8_0'; done
expect 0 models unsloth --runs -o json && json '{r["name"] for r in d["rows"]} == {"hf:unsloth/tiny-GGUF:Q4_0", "hf:unsloth/tiny-GGUF:Q8_0"}'
expect 0 models --runs --fits --sort size -o json && json '[r["bytes"] for r in d["rows"]] == sorted((r["bytes"] for r in d["rows"]), reverse=True)'
expect 0 models no-such-thing && says out 'none of 9 models matches'
(cd "$T" && "$QDYNO" models --dir own mine -o json >"$T/out" 2>"$T/err") && json '[r["name"] for r in d["rows"]] == [r["path"] for r in d["rows"]] and len(d["rows"]) == 1'
NAME=$(value 'd["rows"][0]["name"]')
[ -z "$NAME" ] || expect 0 info -m "$NAME" # a name of the list works after -m
expect 5 models --dir "$T/none" && says err 'expected a folder'
expect 4 models --pull hf:o/r --fits && says err "leave '--fits' out"
expect 4 models --sort colour && says err 'one of name, size'
(HOME=$T/empty XDG_CACHE_HOME=$T/empty OLLAMA_MODELS=$T/empty expect 0 models && says out 'no models found'; exit "$fails") || fails=$((fails + 1))

# ---- names
means() { # NAME PATTERN: `info -m NAME` opens a path that matches
  expect 0 info -m "$1" -o json && { [ -z "$PYTHON" ] || value 'd["path"]' | grep -Eq -- "$2" || fail "$1 means $(value 'd["path"]'), not $2"; }
}
export QDYNO_MODELS=$OWN
means hf:unsloth/tiny-GGUF 'snapshots/.*/sub/tiny-Q8_0.gguf$'
means hf:unsloth/tiny-GGUF:q4_0 'tiny-Q4_0.gguf$'
means unsloth/tiny-GGUF:Q8_0 'sub/tiny-Q8_0.gguf$'
means hf:unsloth/tiny-GGUF/sub/tiny-Q8_0.gguf 'sub/tiny-Q8_0.gguf$'
means https://huggingface.co/unsloth/tiny-GGUF/blob/main/tiny-Q4_0.gguf 'tiny-Q4_0.gguf$'
means hf:ggml-org/flat-GGUF:Q8_0 'flat-Q8_0.gguf$'
means ollama:llama3.2 "sha256-$BLOB\$"
means llama3.2:3b "sha256-$BLOB\$"
means lmstudio:pub/studio-GGUF 'studio-Q4_0.gguf$'
means OLDER 'older-F16.gguf$'
means modelscope:Qwen/Qwen2.5-GGUF:Q8_0 'qwen2.5-q8_0.gguf$'
means mine 'own/mine-Q4_0.gguf$'
expect 4 info -m gguf && says err "'gguf' matches [0-9]+ models: .*give more of the name"
expect 5 info -m mine-Q5 && says err "did you mean 'mine-Q4_0.gguf'"
expect 5 info -m ollama:phi3 && says err 'not on this machine.*qdyno models --pull ollama:phi3'
expect 5 info -m hf:o/r:Q4_0 && says err 'qdyno models --pull hf:o/r:Q4_0'
expect 4 info -m hf:../secret && says err 'expected hf:OWNER/REPO'
expect 5 info -m ./missing.gguf && says err 'missing.gguf'
(cd "$T" && cp "$OWN/mine-Q4_0.gguf" llama3.2:3b && "$QDYNO" info -m llama3.2:3b -o json | grep -q '"path": "llama3.2:3b"') || fail "an existing path does not win"

# ---- every command that takes a model
expect 0 run -m llama3.2:3b -p 'One day' -n 2
expect 0 fit -m llama3.2:3b -o json && json 'd["rows"][0]["fits"]'
expect 0 tokenize -m llama3.2:3b -p 'One day'
expect 0 bench -m llama3.2:3b -p 8 -n 2 -r 1 -o json && json 'len(d["rows"]) == 2'
expect 0 bench -C model=mine,threads=1 -p 8 -n 0 -r 1 -o json
expect 0 quantize lmstudio:pub/older-GGUF "$T/out.gguf" -R q4_0 --force
expect 0 models llama3.2 -o json && json 'd["rows"][0]["measured_run"] == 1 and d["rows"][0]["measured_prefill_tok_s"] > 0'

yes 'One day a cat sat on a mat.' | head -n 40 >"$T/text.txt"
expect 0 eval -m llama3.2:3b -f "$T/text.txt" -c 32 --chunks 2 --ref model=older && says out "next: qdyno ab -m [^ ]*older-F16.gguf default model=[^ ]*sha256-$BLOB "
expect 0 models llama3.2 -o json && json 'd["rows"][0]["kld_mean"] >= 0 and d["rows"][0]["kld_reference"].endswith("older-F16.gguf") and d["rows"][0]["kld_run"] > 0'
expect 0 eval -m llama3.2:3b -f "$T/text.txt" -c 32 --chunks 2 --ref model=studio-GGUF # newer, but against a file with fewer bits per weight
expect 0 models llama3.2 && says out 'KLD of ollama:llama3.2:3b: against model=.*older-F16.gguf'

# ---- models as arguments
expect 0 info "$OWN/mine-Q4_0.gguf" -o json
expect 0 info ollama:llama3.2:3b -o json
expect 0 fit unsloth/tiny-GGUF:Q8_0 -o json
expect 0 bench "$OWN/mine-Q4_0.gguf" -p 8 -n 0 -r 1
expect 0 --frames 1 "$OWN/mine-Q4_0.gguf" && says out 'mine'
expect 5 bench missing.gguf && says err 'missing.gguf'
expect 5 bench missing && says err "'missing' is neither a file nor in the name of a model"
expect 0 fit older -o json && json 'd["rows"][0]["model"] == "older-F16.gguf"'
expect 4 bench q8_0 && says err 'one argument too many'
expect 4 bench older mine && says err 'one argument too many'
expect 0 --linear "$OWN/mine-Q4_0.gguf" hf:unsloth/tiny-GGUF:Q8_0 && says err 'hf:unsloth/tiny-GGUF:Q8_0: .*sub/tiny-Q8_0.gguf'
expect 5 --frames 1 "$OWN/mine-Q4_0.gguf" hf:o/r:Q4_0 && says err 'qdyno models --pull hf:o/r:Q4_0'
expect 5 ab "$OWN/mine-Q4_0.gguf" hf:o/r:Q4_0 && says err "'hf:o/r:Q4_0' is not on this machine"
expect 5 ab default model=ollama:none && says err 'qdyno models --pull ollama:none'
expect 5 bench -C model=hf:o/r:Q4_0 && says err 'qdyno models --pull hf:o/r:Q4_0'
expect 4 ab "thread=2,model=$OWN/mine-Q4_0.gguf" default && says err "thread"
expect 4 tune hf:unsloth/tiny-GGUF && says err 'names a repository'
expect 4 missing && says err 'unknown command'
expect 4 llama3.2:3b && says err 'if it is a model, give -m llama3.2:3b'
expect 5 run 'Hello there' && says err 'a prompt is given with -p'
cp "$OWN/mine-Q4_0.gguf" "$OWN/q8_0" # a config line is no model, even where a file has its name
(cd "$OWN" && "$QDYNO" bench q8_0 -p 8 -n 0 -r 1 >"$T/out" 2>"$T/err" </dev/null)
[ $? = 4 ] && says err 'one argument too many' || fail "a config line was taken for a model"
rm -f "$OWN/q8_0"
AB=(-w pp8 --control 0 --min-blocks 6 --budget 20s --estimand loaded -o json)
"$QDYNO" ab "$OWN/mine-Q4_0.gguf" threads=1 "${AB[@]}" >"$T/out" 2>"$T/err" </dev/null
json 'd["arms"][0]["config"] == "default" and d["arms"][1]["config"] == "threads=1" and d["model"].endswith("mine-Q4_0.gguf")'
"$QDYNO" ab "$OWN/mine-Q4_0.gguf" hf:unsloth/tiny-GGUF:Q8_0 "${AB[@]}" >"$T/out" 2>"$T/err" </dev/null
json 'd["arms"][0]["config"].endswith("mine-Q4_0.gguf") and d["arms"][1]["config"].endswith("sub/tiny-Q8_0.gguf")'

# ---- completion, predictions
expect 0 complete 'qdyno run -m lm' && says out '^lmstudio:pub/studio-GGUF:Q4_0'
expect 0 detect --probe
expect 0 models mine -o json && json 'd["predicted"] and all(0 < r["decode_low_tok_s"] <= r["decode_tok_s"] <= r["decode_high_tok_s"] and r["prefill_tok_s"] > 0 for r in d["rows"])'
expect 0 models mine -o json && json 'd["headers_read"] == 0'
expect 0 models mine && says out 'decode from' && says out 'prompt from'
finish
