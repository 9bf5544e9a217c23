#!/usr/bin/env bash
# Fetching models: a pull from a hub ends with the right bytes whatever happens on the way (cuts, kill -9, refused ranges, expired links, a busy
# server), in the layout that other programs read; a token never reaches another host; what cannot be fetched leaves nothing that looks
# complete, and the message says what to do.
. "$(dirname "$0")/lib.sh" "$@"
[ -n "$PYTHON" ] || { echo "SKIPPED: no python3 for the hub"; exit 77; }
unset MODEL_ENDPOINT HF_TOKEN HF_TOKEN_PATH HF_HUB_OFFLINE HF_HUB_CACHE HUGGINGFACE_HUB_CACHE LLAMA_CACHE OLLAMA_MODELS MODELSCOPE_CACHE MODELSCOPE_DOMAIN HF_HUB_DISABLE_SYMLINKS HF_HUB_DISABLE_IMPLICIT_TOKEN

HUB=$T/hub
export TMPDIR=$T/tmp
mkdir -p "$TMPDIR"
MODEL=$T/model.gguf
"$QDYNO" synth --shape tiny -R f16 -q "$MODEL" >/dev/null 2>&1 || fail "no model for the hub"
mkdir -p "$HUB/o/tiny/sub" "$HUB/o/split" "$HUB/o/new" "$HUB/o/closed" "$HUB/ollama/library/tiny" "$HUB/modelscope/o/t.iny"
cp "$MODEL" "$HUB/o/tiny/tiny-F32.gguf"
"$QDYNO" quantize "$MODEL" -R q8_0 "$HUB/o/tiny/tiny-Q8_0.gguf" >/dev/null 2>&1 || fail "no q8_0 model for the hub"
"$QDYNO" quantize "$MODEL" -R q4_0 "$HUB/o/tiny/sub/tiny-Q4_K_M.gguf" >/dev/null 2>&1
echo '{"a": 1}' >"$HUB/o/tiny/config.json"
echo readme >"$HUB/o/tiny/README.md"
cp "$HUB/o/tiny/tiny-Q8_0.gguf" "$HUB/o/tiny/mmproj-tiny-F16.gguf"
cp "$MODEL" "$HUB/o/new/new-F32.gguf"
cp "$MODEL" "$HUB/o/closed/closed-F32.gguf"
cp "$HUB/o/tiny/tiny-Q8_0.gguf" "$HUB/ollama/library/tiny/latest"
cp "$HUB/o/tiny/tiny-Q8_0.gguf" "$HUB/modelscope/o/t.iny/tiny-Q8_0.gguf"
# the shards of a split model need not be readable for a pull
for i in 1 2 3; do head -c 30000 /dev/urandom >"$HUB/o/split/s-Q4_0-0000$i-of-00003.gguf"; done

python3 "$(dirname "$0")/fake_hub.py" "$HUB" --ports "$T/ports" &
pids+=($!)
for _ in $(seq $((WAIT_S * 20))); do [ -s "$T/ports" ] && break; sleep 0.05; done
read -r PORT OTHER <"$T/ports" || { fail "the hub did not start"; finish; }
export HF_ENDPOINT=http://127.0.0.1:$PORT HF_HOME=$T/hf
CACHE=$HF_HOME/hub

faults() { printf '%s' "$1" >"$HUB/faults.new"; mv "$HUB/faults.new" "$HUB/faults.json"; }
forget() { rm -rf "$HF_HOME/hub"; }                 # the cache
quiet() { : >"$HUB/requests.log"; }
log() { python3 - "$HUB/requests.log" "$1" <<'PY'
import json, sys
r = [json.loads(l) for l in open(sys.argv[1])]
content = [x for x in r if x["server"] == "other" or "blobs/" in x["path"]]
sys.exit(0 if eval(sys.argv[2]) else 1)
PY
}
sum() { sha256sum <"$1" | cut -d' ' -f1; }
TINY=$CACHE/models--o--tiny
COMMIT=$(printf o/tiny | sha1sum | cut -d' ' -f1)
# is_right: the F32 file is here with its bytes, under its name, and nothing is left over
is_right() {
  cmp -s "$TINY/snapshots/$COMMIT/tiny-F32.gguf" "$MODEL" || fail "$1: not the right bytes"
  [ "$(cat "$TINY/refs/main")" = "$COMMIT" ] || fail "$1: no ref"
  ls "$TINY"/blobs/*.incomplete >/dev/null 2>&1 && fail "$1: an unfinished file was left"
}
is_absent() {
  [ ! -e "$TINY/snapshots/$COMMIT/tiny-F32.gguf" ] && [ ! -e "$TINY/refs/main" ] && [ ! -e "$TINY/blobs/$(sum "$MODEL")" ] || fail "$1: something is visible"
}
PULL=(models --pull hf:o/tiny/tiny-F32.gguf)

# ---- search and lists
expect 0 models --search tin -o json && json '[r["name"] for r in d["rows"]] == ["hf:o/tiny"]'
expect 0 models --search nothing-has-it && says out "no repository"
quiet
expect 0 models --remote o/tiny -o json && json '{r["file"]: r["kind"] for r in d["rows"]} == {"mmproj-tiny-F16.gguf": "projector", "sub/tiny-Q4_K_M.gguf": "weights", "tiny-F32.gguf": "weights", "tiny-Q8_0.gguf": "weights"}' &&
  json 'all(r["decode_tok_s"] > 0 and r["fits"] and r["params"] > 2e5 and r["arch"] == "llama" for r in d["rows"] if r["kind"] == "weights")'
[ ! -e "$CACHE" ] || fail "a list of files wrote into the cache"
log 'sum("/tree/" in x["path"] for x in r) == 2' || fail "the list of files was not read page by page"
ls -d "$TMPDIR"/qdyno-head-* >/dev/null 2>&1 && fail "a folder for headers was left in $TMPDIR"

faults '{"gated": ["o/tiny"]}' # sizes all the same
expect 0 models --remote o/tiny -o json && json 'all(r["bytes"] > 0 and "licence" in r["error"] for r in d["rows"] if r["kind"] == "weights")'
faults '{}'
head -c 10 "$MODEL" >"$HUB/o/split/broken-F16.gguf" # beside a split model whose shards are no GGUF files
expect 0 models --remote o/split -o json && json '{r["file"]: (r["shards"], r["bytes"]) for r in d["rows"]} == {"broken-F16.gguf": (1, 10), "s-Q4_0-00001-of-00003.gguf": (3, 90000)} and all("GGUF" in r["error"] for r in d["rows"])'
rm "$HUB/o/split/broken-F16.gguf"

# ---- a pull, and the layout
quiet
expect 0 "${PULL[@]}" -o json && json 'd["fetched_bytes"] == d["bytes"] > 0'
is_right "first pull"
[ "$(readlink "$TINY/snapshots/$COMMIT/tiny-F32.gguf")" = "../../blobs/$(sum "$MODEL")" ] || fail "the link is not relative"
[ "$(stat -c %s "$TINY/refs/main")" = 40 ] || fail "the ref has more than 40 bytes"
[ -e "$CACHE/.locks/models--o--tiny/$(sum "$MODEL").lock" ] || fail "no lock where the hub's library has it"
quiet
expect 0 "${PULL[@]}" -o json && json 'd["fetched_bytes"] == 0'
log 'not content' || fail "a model that is here was fetched again"
expect 0 models --pull o/tiny && says out 'sub/tiny-Q4_K_M.gguf' # without a tag
[ "$(readlink "$TINY/snapshots/$COMMIT/sub/tiny-Q4_K_M.gguf")" = "../../../blobs/$(sum "$HUB/o/tiny/sub/tiny-Q4_K_M.gguf")" ] || fail "the link of a subfolder is wrong"
expect 0 models --pull hf:o/tiny:q8_0 && says out 'tiny-Q8_0.gguf'
expect 0 models --pull hf:o/split:Q4_0 -o json && json 'd["files"] == 3'
for i in 1 2 3; do cmp -s "$CACHE"/models--o--split/snapshots/*/"s-Q4_0-0000$i-of-00003.gguf" "$HUB/o/split/s-Q4_0-0000$i-of-00003.gguf" || fail "shard $i is wrong"; done
expect 0 models --pull hf:o/tiny/config.json && cmp -s "$TINY/snapshots/$COMMIT/config.json" "$HUB/o/tiny/config.json" || fail "a small file is wrong"
[ -e "$TINY/blobs/$(cd "$HUB" && git hash-object o/tiny/config.json 2>/dev/null || echo .)" ] || fail "the blob of a small file is not named by git's hash"

# ---- names of models that are not here: fetched with --yes or after a question, otherwise never
forget
quiet
expect 5 info -m hf:o/tiny:F32 && says err "models --pull"
log 'not r' || fail "a request was sent without permission"
expect 5 info -m hf:o/tiny:F32 --yes --offline
log 'not r' || fail "a request was sent offline"
expect 0 info -m hf:o/tiny:F32 --yes && says out "tiny-F32"
quiet
expect 0 info -m hf:o/tiny:F32 && expect 0 fit hf:o/tiny:F32
log 'not r' || fail "the hub was asked about a model that is here"
# answer TEXT: asks on a terminal and answers; what the terminal shows is in $T/out
answer() {
  timeout $WAIT_S python3 - "$T/out" "$1" "$QDYNO" info -m hf:o/tiny:Q8_0 <<'PY'
import os, pty, sys
out, text, command = sys.argv[1], sys.argv[2], sys.argv[3:]
pid, fd = pty.fork()
if not pid:
    os.execv(command[0], command)
seen, told = b"", False
while True:
    try:
        part = os.read(fd, 4096)
    except OSError:
        break
    if not part:
        break
    seen += part
    if b"[y/N]" in seen and not told:
        os.write(fd, text.encode() + (b"" if text == "\x03" else b"\n"))
        told = True
open(out, "wb").write(seen)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
PY
}
answer $'\x03' # Ctrl-C
[ $? = 130 ] || fail "Ctrl-C does not end the question with the status 130"
answer n && fail "a refusal has the status 0"
says out "free" && [ ! -e "$TINY/snapshots/$COMMIT/tiny-Q8_0.gguf" ] || fail "fetched though the person said no"
answer y || fail "a person who agrees does not get the model: $(tail -3 "$T/out")"
cmp -s "$TINY/snapshots/$COMMIT/tiny-Q8_0.gguf" "$HUB/o/tiny/tiny-Q8_0.gguf" || fail "not fetched though the person agreed"
# an unfinished file of the whole length, with a hole, as programs leave it that write at several places
forget
mkdir -p "$TINY/blobs"
sparse=$TINY/blobs/$(sum "$HUB/o/tiny/tiny-Q8_0.gguf").0123abcd.incomplete
head -c 65536 "$HUB/o/tiny/tiny-Q8_0.gguf" >"$sparse"
truncate -s "$(stat -c %s "$HUB/o/tiny/tiny-Q8_0.gguf")" "$sparse"
cp --sparse=always "$sparse" "$T/sparse"
answer n && fail "a file with a hole was taken for a whole one, without a question"
quiet
answer y || fail "a file with a hole is not completed: $(tail -3 "$T/out")"
cmp -s "$TINY/snapshots/$COMMIT/tiny-Q8_0.gguf" "$HUB/o/tiny/tiny-Q8_0.gguf" || fail "a file with a hole was not completed"
if [ "$(stat -c %b "$T/sparse")" -lt $(($(stat -c %s "$T/sparse") / 512)) ]; then
  log 'len(content) == 1 and content[0]["range"].startswith("bytes=65536-")' || fail "the beginning before the hole was not used"
fi

# ---- without links, as the hub's library does it
forget
HF_HUB_DISABLE_SYMLINKS=1 expect 0 "${PULL[@]}"
[ -f "$TINY/snapshots/$COMMIT/tiny-F32.gguf" ] && [ ! -L "$TINY/snapshots/$COMMIT/tiny-F32.gguf" ] || fail "there is a link though they are off"
HF_HUB_DISABLE_SYMLINKS=1 expect 0 "${PULL[@]}" -o json && json 'd["fetched_bytes"] == 0'
# a blob that is here already keeps its name: links of other commits lead to it
forget
expect 0 "${PULL[@]}"
mkdir -p "$TINY/snapshots/older"
ln -s "../../blobs/$(sum "$MODEL")" "$TINY/snapshots/older/tiny-F32.gguf"
rm "$TINY/snapshots/$COMMIT/tiny-F32.gguf"
HF_HUB_DISABLE_SYMLINKS=1 expect 0 "${PULL[@]}" && is_right "copy of a blob"
cmp -s "$TINY/snapshots/older/tiny-F32.gguf" "$MODEL" || fail "the link of another commit leads nowhere"
[ -L "$TINY/snapshots/$COMMIT/tiny-F32.gguf" ] && fail "there is a link though they are off"

# ---- something else has the name
rm "$TINY/snapshots/$COMMIT/tiny-F32.gguf"
echo other >"$TINY/snapshots/$COMMIT/tiny-F32.gguf"
expect 0 "${PULL[@]}" && is_right "another file at the name"
[ -L "$TINY/snapshots/$COMMIT/tiny-F32.gguf" ] || fail "another file was not replaced by a link"
rm "$TINY/snapshots/$COMMIT/tiny-F32.gguf"
mkdir "$TINY/snapshots/$COMMIT/tiny-F32.gguf"
expect 5 "${PULL[@]}" && says err "is a folder"
rmdir "$TINY/snapshots/$COMMIT/tiny-F32.gguf"
echo mine >"$T/mine"
ln -sf "$T/mine" "$TINY/refs/main"
expect 5 "${PULL[@]}" && says err "not a regular file"
[ "$(cat "$T/mine")" = mine ] || fail "a file outside the cache was written through a link"
rm "$TINY/refs/main"
expect 0 "${PULL[@]}" && is_right "after a link at the ref"
[ "$(ls -A "$TINY/refs")" = main ] || fail "a file beside the ref was left in refs/"
ls -A "$TINY" "$TINY/snapshots/$COMMIT" | grep -q qdyno && fail "a temporary file was left"

# ---- tokens and refusals
forget
quiet
faults '{"gated": ["o/closed"], "private": ["o/new"]}'
expect 4 models --pull hf:o/closed:F32 && says err "licence" && says err "http://127.0.0.1:$PORT/o/closed"
expect 7 models --pull hf:o/new:F32 && says err "HF_TOKEN"
HF_TOKEN=secret expect 0 models --pull hf:o/closed:F32
mkdir -p "$HF_HOME" && echo secret >"$HF_HOME/token"
expect 0 models --pull hf:o/new:F32
rm "$HF_HOME/token"
log 'any(x["authorization"] == "Bearer secret" for x in r) and content and all(x["authorization"] is None for x in content)' || fail "the token reached another host, or no host"
grep -q secret "$T/out" "$T/err" && fail "the token was printed"
expect 7 models --pull hf:o/missing:F32 && says err "does not exist"
expect 7 models --pull hf:o/tiny/tiny-F23.gguf && says err "did you mean tiny-F32.gguf"
expect 7 models --pull hf:o/tiny:Q9_9 && says err "tiny-Q8_0.gguf"
expect 7 models --pull hf:o/tiny:F32@nobranch && says err "main"
expect 4 models --pull hf:o && says err "OWNER"

# ---- offline
quiet
faults '{}'
expect 7 "${PULL[@]}" --offline && says err "offline"
HF_HUB_OFFLINE=1 expect 7 "${PULL[@]}" && says err "HF_HUB_OFFLINE"
HF_HUB_OFFLINE=1 expect 7 models --remote o/tiny
HF_HUB_OFFLINE=1 expect 7 models --search tiny
log 'not r' || fail "a request was sent offline"

# ---- broken transfers
forget
quiet
faults '{"cut_random": [100, 20000]}'
expect 0 "${PULL[@]}" && is_right "100 cuts"
log 'len(content) > 50 and all(x["range"] for x in content)' || fail "the cuts did not happen"
for fault in '{"no_ranges": true, "cut": [3, 400000]}' '{"refuse_ranges": 1}' '{"expired": 2}' '{"direct": true, "cut": [2, 1000]}' '{"broken": 2}' '{"busy": [1, 1]}' '{"busy": [1, -1]}'; do
  forget
  mkdir -p "$TINY/blobs"
  head -c 100000 "$MODEL" >"$TINY/blobs/$(sum "$MODEL").incomplete" # what an earlier attempt left
  faults "$fault"
  expect 0 "${PULL[@]}" && is_right "$fault"
  case $fault in *busy*) says err "asks to wait" ;; esac
done
forget
faults '{"busy": [1, 5000]}'
expect 7 "${PULL[@]}" && says err "wait 5000 s" # longer than qdyno waits
MODELSCOPE_DOMAIN=ftp://127.0.0.1 expect 4 models --pull modelscope:o/t.iny:Q8_0 && says err MODELSCOPE_DOMAIN
forget
faults '{"wrong": true}'
expect 5 "${PULL[@]}" && says err "expected $(sum "$MODEL" | cut -c1-12)" && is_absent "wrong hash"

# an unfinished file whose bytes are wrong is noticed, and all is fetched again; one that is too long, too
faults '{}'
for bytes in 5000 99999999; do
  forget
  mkdir -p "$TINY/blobs"
  head -c $bytes /dev/zero | tr '\0' x | head -c 3000000 >"$TINY/blobs/$(sum "$MODEL").incomplete"
  expect 0 "${PULL[@]}" && is_right "damaged unfinished file"
done
# the unfinished file of the hub's library since 2026
forget
mkdir -p "$TINY/blobs"
head -c 500000 "$MODEL" >"$TINY/blobs/$(sum "$MODEL").0123abcd.incomplete"
quiet
expect 0 "${PULL[@]}" && is_right "unfinished file of the library"
log 'all(x["range"].startswith("bytes=500000-") for x in content)' || fail "the library's unfinished file was not used"

# ---- kill -9: the next attempt goes on where the last one was
forget
faults '{"slow": 300000}'
partial=$TINY/blobs/$(sum "$MODEL").incomplete
size() { stat -c %s "$partial" 2>/dev/null || echo 0; }
kills=0 last=0
for _ in 1 2 3 4 5 6; do
  "$QDYNO" "${PULL[@]}" >/dev/null 2>&1 &
  pid=$!
  for _ in $(seq $((WAIT_S * 50))); do [ "$(size)" -gt $((last + 20000)) ] && break; kill -0 $pid 2>/dev/null || break; sleep 0.02; done
  kill -9 $pid 2>/dev/null && kills=$((kills + 1))
  wait $pid 2>/dev/null
  [ "$(size)" -gt "$last" ] || fail "a killed pull lost what it had ($last, now $(size))"
  last=$(size)
  is_absent "killed"
done
[ $kills -ge 5 ] || fail "only $kills pulls were killed"
# Ctrl-C
"$QDYNO" "${PULL[@]}" >/dev/null 2>"$T/err" &
pid=$!
for _ in $(seq $((WAIT_S * 50))); do [ "$(size)" -gt "$last" ] && break; sleep 0.02; done
kill -TERM $pid
wait $pid
[ $? = 130 ] || fail "an interrupted pull has another status than 130"
is_absent "interrupted"
quiet
faults '{}'
expect 0 "${PULL[@]}" && is_right "after kills"
log "all(int(x['range'][6:].split('-')[0]) >= $last for x in content)" || fail "after kills all was fetched again"

# ---- two at the same time
forget
quiet
faults '{"slow": 1000000}'
"$QDYNO" "${PULL[@]}" >"$T/one" 2>&1 &
one=$!
"$QDYNO" "${PULL[@]}" >"$T/two" 2>&1 &
two=$!
wait $one || fail "the first of two pulls failed: $(cat "$T/one")"
wait $two || fail "the second of two pulls failed: $(cat "$T/two")"
is_right "two at once"
log 'len(content) == 1' || fail "two pulls fetched the file twice"
faults '{}'

# ---- a renamed repository
forget
faults '{"renamed": {"o/old": "o/new"}}'
expect 0 models --pull hf:o/old:F32 && says err "called o/new now"
cmp -s "$CACHE"/models--o--old/snapshots/*/new-F32.gguf "$MODEL" || fail "a renamed repository is not found under the asked name"

# ---- a full disk
forget
(trap '' XFSZ; ulimit -f 200; "$QDYNO" "${PULL[@]}" >"$T/out" 2>"$T/err"; [ $? = 6 ]) || fail "no room in the middle of a file: another status than 6"
says err "cannot write" && is_absent "full disk"
if unshare -m true 2>/dev/null; then
  forget
  mkdir -p "$CACHE"
  unshare -m sh -c 'mount -t tmpfs -o size=300k none "$1" 2>/dev/null || exit 99; shift; "$@"' sh "$CACHE" "$QDYNO" "${PULL[@]}" >"$T/out" 2>"$T/err"
  case $? in
    99) skip "no permission to mount a small disk" ;;
    6) says err "nothing was transferred" ;;
    *) fail "a disk that is too small has another status than 6" ;;
  esac
else
  skip "no mount namespaces: a disk that is too small is not tested"
fi

# ---- Ollama's registry and ModelScope
quiet
faults '{"cut_random": [3, 20000]}'
NAME=ollama:127.0.0.1:$PORT/library/tiny:latest
if expect 0 models --pull "$NAME" -o json; then
  json 'd["files"] == 3 and "/qdyno/models/ollama/blobs/sha256-" in d["path"]'
  path=$(value 'd["path"]')
  cmp -s "$path" "$HUB/ollama/library/tiny/latest" || fail "the model of the registry has other bytes"
  [ -s "$XDG_DATA_HOME/qdyno/models/ollama/manifests/127.0.0.1:$PORT/library/tiny/latest" ] || fail "no manifest"
fi
expect 0 models -o json && json 'any(r["name"].startswith("ollama:127.0.0.1") for r in d["rows"])'
expect 0 info -m "$NAME"
OLLAMA_MODELS=$T/ollama expect 0 models --pull "$NAME" --into ollama
[ -s "$T/ollama/manifests/127.0.0.1:$PORT/library/tiny/latest" ] && cmp -s "$T/ollama/blobs/sha256-$(sum "$HUB/ollama/library/tiny/latest")" "$HUB/ollama/library/tiny/latest" || fail "Ollama's store is not complete"
expect 4 "${PULL[@]}" --into ollama
expect 7 models --pull "ollama:127.0.0.1:$PORT/library/none:latest"
export MODELSCOPE_DOMAIN=127.0.0.1:$PORT
MODELSCOPE_CACHE=$T/ms expect 0 models --pull modelscope:o/t.iny:Q8_0
cmp -s "$T/ms/models/o/t___iny/tiny-Q8_0.gguf" "$HUB/modelscope/o/t.iny/tiny-Q8_0.gguf" || fail "the model of ModelScope has other bytes"
[ "$(find "$T/ms" -name '._____temp')" = "" ] || fail "ModelScope's own folder for unfinished files was used"
head -c "$(stat -c %s "$HUB/modelscope/o/t.iny/tiny-Q8_0.gguf")" /dev/zero >"$T/ms/models/o/t___iny/tiny-Q8_0.gguf"
MODELSCOPE_CACHE=$T/ms expect 0 models --pull modelscope:o/t.iny:Q8_0 && says err "other bytes"
cmp -s "$T/ms/models/o/t___iny/tiny-Q8_0.gguf" "$HUB/modelscope/o/t.iny/tiny-Q8_0.gguf" || fail "a file of the right size with other bytes was taken for the model"
# another server than that of the endpoint gets no token
quiet
export MODELSCOPE_DOMAIN=127.0.0.1:$OTHER
HF_TOKEN=secret MODELSCOPE_CACHE=$T/ms expect 0 models --remote modelscope:o/t.iny -o json && json 'len(d["rows"]) == 1 and d["rows"][0]["decode_tok_s"] > 0'
log 'r and all(x["server"] == "other" and x["authorization"] is None for x in r)' || fail "ModelScope was sent the hub's token, or was not asked"
finish
