#!/bin/bash
# Proves: quantize writes what the recipe demands, the same bytes with and without interruption, and prints the errors
# against the source; refused requests leave no file; methods lists and measures; recipes of two methods can be
# compared.
. "$(dirname "$0")/lib.sh" "$@"

expect 0 synth --shape tiny -R f32 "$T/tiny.gguf" || finish
IN=$T/tiny.gguf
TEXT=$(dirname "$QDYNO")/share/text/sample.txt
[ -r "$TEXT" ] || { for _ in $(seq 3000); do printf 'The mill turned slowly while the river went by. '; done >"$T/text"; TEXT=$T/text; }
hash_of() { sha256sum "$1" | cut -d' ' -f1; }

# ---- results
expect 0 quantize "$IN" "$T/q8.gguf" -R q8_0 -o json && json 'd["schema"] == "qdyno.quantize/1" and d["recipe"] == "q8_0"' &&
  json 'd["file_bytes"] < d["file_bytes_before"] / 3 and 8 < d["bits_per_weight"] < 10 and d["weights_s"] > 0' &&
  json '0 < d["nmse"] < 1e-4 and d["nmse"] <= d["nmse_worst"] < 1e-4 and d["worst_tensor"]' &&
  json 'd["file_bytes"] == __import__("os").path.getsize(d["path"]) and "q8_0 x " in d["formats"] and d["dry_run"] is False' &&
  json 'all(x["reason"].startswith("kept") for x in d["left_out"]) and d["random_weights"] is True'
expect 0 info -m "$T/q8.gguf" -o json && json 'd["dominant_format"] == "q8_0"'
expect 0 run -m "$T/q8.gguf" -p Hello -n 4 -o json && a=$(value 'd["text"]')
expect 0 run -m "$IN" -C q8_0 -p Hello -n 4 -o json && [ "$(value 'd["text"]')" = "$a" ] || fail "the file and the recipe say different things"
expect 0 quantize "$IN" "$T/q8t.gguf" -R q8_0 -t 1 && says out 'lost: qdyno eval' && [ "$(hash_of "$T/q8.gguf")" = "$(hash_of "$T/q8t.gguf")" ] || fail "bytes depend on threads"
expect 0 quantize "$IN" "$T/mix.gguf" -R "q4_0,tensors=attn_v:q6_K;ffn_down:q8_0" --tensors -o json &&
  json '{r["format"] for r in d["rows"] if "attn_v.weight" in r["name"]} == {"q6_K"}' &&
  json '{r["format"] for r in d["rows"] if "ffn_down" in r["name"]} == {"q8_0"}' &&
  json '{r["format"] for r in d["rows"] if "attn_q.weight" in r["name"]} == {"q4_0"}' &&
  json 'all((r["nmse"] is None) == r["reason"].startswith("kept") for r in d["rows"])' &&
  json 'abs(sum(r["bytes"] for r in d["rows"]) - d["file"]["weight_bytes"]) == 0'
expect 0 quantize "$IN" "$T/plan.gguf" -R hqq,nbits=3 --dry-run && says out 'dry run' && says out 'u3_g64 x' || true
if [ -r "$MODEL" ]; then # its rows of 64 and 172 weights do not fill blocks of 256: the plan and the command say so
  expect 0 quantize "$MODEL" "$T/plan.gguf" -R q4_K --dry-run -o json &&
    json 'd["tensors_fell_back"] == 36 and d["bits_per_weight"] > 16 and d["fits_instead"] == "q4_0" and d["fits_bits_per_weight"] < 8'
  expect 0 quantize "$MODEL" "$T/misfit.gguf" -R q4_K && says err '36 of 36 matrices cannot be q4_K: rows of 64 weights' &&
    says err 'q4_0 fits all but 5'
fi
[ ! -e "$T/plan.gguf" ] && [ ! -e "$T/plan.gguf.partial" ] || fail "--dry-run wrote"

# ---- progress for programs: JSON on stderr, only if requested
expect 0 quantize "$IN" "$T/far.gguf" -R q4_0 --progress json -o json && json 'd["schema"] == "qdyno.quantize/1"' &&
  python3 - "$T/err" <<'PY' || fail "--progress json: $(head -3 "$T/err")"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert rows and all(r["schema"] == "qdyno.progress/1" and r["text"] for r in rows), rows
done = [r["done"] for r in rows if r["done"] is not None]
assert done and done == sorted(done) and 0 <= done[0] and done[-1] <= 1, done
PY
expect 0 quantize "$IN" "$T/far.gguf" -R q4_0 --force && ! grep -q qdyno.progress "$T/err" || fail "progress that nobody asked for"
expect 4 quantize "$IN" "$T/no.gguf" -R q4_0 --progress sometimes && says err 'auto'

# ---- files of every kind of method can be read: companion tensors, folded scales, own formats
n=0
while read -r line; do
  # shellcheck disable=SC2086
  expect 0 quantize "$IN" "$T/m.gguf" --force -o json -R $line || continue
  json 'd["nmse"] > 0 and d["tensors_quantized"] > 0 and d["nmse_worst"] < 0.1' || echo "  recipe: $line"
  [[ $line != *--calib* ]] || json '"tokens" in d["calibration"] and d["bundled_text"] is False'
  expect 0 logits -m "$T/m.gguf" --ids 5,6,7,8 --out "$T/a.f32" || echo "  recipe: $line"
  ! grep -q 'ignored' "$T/err" || fail "$line: parts of the file are ignored: $(head -1 "$T/err")"
  n=$((n + 1))
done <<RECIPES
hqq,nbits=4,group_size=64
nf4,bnb_4bit_use_double_quant=true
llm_int8
int8_static --calib $TEXT
gptq,bits=4,group_size=64,desc_act=true,nsamples=4,model_seqlen=64 --calib $TEXT
awq,bits=4,group_size=64,max_calib_samples=4,max_calib_seq_len=64 --calib $TEXT
smoothquant --calib $TEXT
RECIPES
[ $n = 7 ] || fail "only $n of 7 methods made a file"
expect 0 quantize "$IN" "$T/m.gguf" --force -o json -R smoothquant && says err 'using the bundled text' && json 'd["bundled_text"] is True'

# ---- a method of whole layers cannot also turn a matrix with an order of its columns into floats
others='attn_q:f32;attn_k:f32;attn_output:f32;ffn_gate:f32;ffn_up:f32;ffn_down:f32'
expect 0 quantize "$IN" "$T/part.gguf" -R "gptq,bits=4,group_size=64,desc_act=true,nsamples=4,model_seqlen=64,tensors=$others" --calib "$TEXT"
expect 4 quantize "$T/part.gguf" "$T/no.gguf" -R 'smoothquant,tensors=attn_v:f16' --calib "$TEXT" &&
  says err "blk.0.attn_v.weight.*tensors that belong to it.*whole layers"

# ---- refusals: status, message, and no file
refused() { # refused STATUS PATTERN ARGUMENTS...: behind `quantize IN $T/no.gguf`
  local status=$1 pattern=$2
  shift 2
  expect "$status" quantize "$IN" "$T/no.gguf" "$@" && says err "$pattern"
  [ ! -e "$T/no.gguf" ] && [ ! -e "$T/no.gguf.partial" ] || { fail "refused, but wrote: $*"; rm -f "$T"/no.gguf*; }
}
refused 4 'expected -R RECIPE'
refused 4 'q4_0' -R q4_9
refused 4 'gptq expects' -R gptq,bits=5
refused 4 'has no parameter' -R rtn:q8_0,bits=4
refused 4 'makes u4_g64, not q4_0' -R hqq:q4_0
refused 4 'not part of a recipe' -R q8_0,threads=2
refused 4 'changes no tensor' -R default
refused 4 'takes no calibration' -R q8_0 --calib "$TEXT"
refused 5 'none.txt' -R gptq,bits=4,group_size=64 --calib "$T/none.txt"
echo "Too short." >"$T/short.txt"
refused 4 'short.txt' -R gptq,bits=4,group_size=64 --calib "$T/short.txt"
expect 0 synth --shape tiny -R f32 --seed 9 "$T/other.gguf"
expect 0 calibrate "$T/other.gguf" -f "$TEXT" -c 64 --tokens 512 --out "$T/other.calib"
refused 4 'other model|another model' -R int8_static --calib "$T/other.calib"
# ---- and back to floats: the values that the file means, proven one by one
expect 0 -o json quantize "$T/q8.gguf" "$T/back.gguf" -R f32 --verify &&
  json 'd["values_rounded"] == 0 and d["largest_difference"] == 0 and d["nmse"] == 0' &&
  json 'd["verified_tensors"] == d["tensors"]'
expect 0 -o json quantize "$T/back.gguf" "$T/again.gguf" -R q8_0
expect 0 -o json quantize "$T/q8.gguf" "$T/back16.gguf" -R f16 --verify --tensors &&
  json 'd["file"]["values_rounded"] > 0 and 0 < d["file"]["largest_difference"] < 0.01' &&
  json 'sum(r["values_rounded"] for r in d["rows"]) == d["file"]["values_rounded"]'
refused 4 'expected -R f32, f16 or bf16' -R q4_0 --verify
refused 4 'exclude each other' -R f16 --verify --recover steps=1
expect 4 quantize "$T/q8.gguf" "$T/no.gguf" -R q4_0 && says err 'already quantized .q8_0.*with -R f16' && [ ! -e "$T/no.gguf" ]
expect 4 quantize "$IN" "$T/q8.gguf" -R q4_0 && says err '\-\-force'
[ "$(hash_of "$T/q8.gguf")" = "$(hash_of "$T/q8t.gguf")" ] || fail "a refused run changed the file that was there"
expect 4 quantize "$IN" "$IN" -R q8_0 --force && says err 'is also IN'
expect 4 quantize "$IN" "$T" -R q8_0 --force && says err 'not a regular file'
expect 5 quantize "$IN" "$T/nowhere/x.gguf" -R q8_0 && says err 'nowhere'
expect 5 quantize "$T/none.gguf" "$T/no.gguf" -R q8_0 && says err 'none.gguf'
expect 4 quantize "$IN" && says err 'needs 2 arguments'
# a NaN in the last weights: found during the work, and no file is left
cp "$IN" "$T/nan.gguf" && printf '\x00\x00\xc0\x7f' | dd of="$T/nan.gguf" bs=1 seek=$(($(stat -c %s "$IN") - 4096)) conv=notrunc 2>/dev/null
expect 5 quantize "$T/nan.gguf" "$T/no.gguf" -R q8_0 && says err 'not a finite number'
[ ! -e "$T/no.gguf" ] && [ ! -e "$T/no.gguf.partial" ] || fail "NaN was refused, but something was written"

# ---- killed in the middle and continued: the same bytes
expect 0 synth --shape 15m -R f32 "$T/15m.gguf"
SLOW="hqq,nbits=4,iters=200"
expect 0 quantize "$T/15m.gguf" "$T/whole.gguf" -R "$SLOW" -t 1
killed=0
for _ in 1 2 3; do
  "$QDYNO" quantize "$T/15m.gguf" "$T/parts.gguf" -R "$SLOW" -t 1 >/dev/null 2>&1 &
  pid=$!
  pids+=($pid)
  for _ in $(seq $((WAIT_S * 50))); do # until there are weights behind the header
    [ "$(stat -c %b "$T/parts.gguf.partial" 2>/dev/null || echo 0)" -gt $((killed * 1500 + 200)) ] && break
    kill -0 $pid 2>/dev/null || break
    sleep 0.02
  done
  kill -9 $pid 2>/dev/null && killed=$((killed + 1))
  wait $pid 2>/dev/null
  [ -e "$T/parts.gguf" ] && break
done
[ $killed -ge 1 ] || fail "it was never killed"
[ ! -e "$T/parts.gguf" ] && [ -e "$T/parts.gguf.partial" ] || fail "killed $killed times, and it is not half made"
expect 0 quantize "$T/15m.gguf" "$T/parts.gguf" -R "$SLOW" && says err 'resuming from .*parts.gguf.partial'
[ "$(hash_of "$T/whole.gguf")" = "$(hash_of "$T/parts.gguf")" ] || fail "what was resumed differs from what was made at once"
[ ! -e "$T/parts.gguf.partial" ] || fail ".partial was left behind"
# Ctrl-C prints what is kept and how to continue
"$QDYNO" quantize "$T/15m.gguf" "$T/stop.gguf" -R "$SLOW" -t 1 >/dev/null 2>"$T/err" &
pid=$!
pids+=($pid)
for _ in $(seq $((WAIT_S * 50))); do
  [ "$(stat -c %b "$T/stop.gguf.partial" 2>/dev/null || echo 0)" -gt 200 ] && break
  kill -0 $pid 2>/dev/null || break
  sleep 0.02
done
kill -INT $pid
wait $pid
[ $? = 130 ] && says err 'stop.gguf.partial; give the same command again' && [ ! -e "$T/stop.gguf" ] || fail "Ctrl-C"
rm -f "$T"/*.partial "$T/15m.gguf" "$T/whole.gguf" "$T/parts.gguf"

# ---- methods
expect 0 methods && says out 'rtn' && says out 'gptq' && says out 'good at' && says out 'group_size='
expect 0 methods -o json && json 'len(d["rows"]) >= 10 and all(r["help"] and r["good"] and r["bad"] for r in d["rows"])' &&
  json 'all(p["default"] and p["help"] and p["allowed"] for r in d["rows"] for p in r["parameters"])' &&
  json 'all(r["formats"] and r["calibration"] for r in d["rows"])'
expect 0 methods --method gptq && says out 'damp_percent=0.01'
expect 4 methods --method gtpq && says err "did you mean 'gptq'"
expect 0 methods -m "$IN" -C q8_0 -C q4_0 -C nf4 -C u4_g64 -o json &&
  json '[r["config"] for r in d["rows"]] == ["q8_0", "q4_0", "nf4", "u4_g64"] and not any(r["error"] for r in d["rows"])' &&
  json '0 < d["rows"][0]["nmse"] < 1e-4 < d["rows"][2]["nmse"] < 2e-2 and d["rows"][0]["bits_quantized"] == 8.5'
expect 0 methods -m "$IN" -C q8_0 -C q4_0 --eval -c 64 --chunks 4 -o json &&
  json '0 < d["rows"][0]["kld_mean"] < d["rows"][1]["kld_mean"] and d["reference"]["perplexity"] > 1' &&
  json 'all(0 < r["top1_ratio"] <= 1 and r["random_weights"] is True for r in d["rows"])'
expect 0 methods -m "$IN" -C hqq,nbits=3 --tensors && says out 'blk.0.attn_q.weight +\|.* u3_g64'
expect 0 methods -m "$IN" -C q8_0 -C model=x.gguf -o json && json 'd["rows"][0]["error"] is None and "model=" in d["rows"][1]["error"]'
expect 4 methods -m "$IN" -C q8_1
expect 5 methods -m "$T/none.gguf"

# ---- A/B of two methods
"$QDYNO" ab -m "$IN" nf4 hqq,nbits=4 -w tg4 --max-blocks 6 --control 2 --budget 30s -o json >"$T/out" 2>"$T/err"
[ $? -le 3 ] || fail "ab of two methods: $(head -c 300 "$T/err")"
json '[a["config"] for a in d["arms"]] == ["nf4", "hqq,bits=4"] or len(d["arms"]) == 2' && json 'all(a["decode_tok_s"] > 0 for a in d["arms"])'
expect 0 eval -m "$IN" -f "$TEXT" -c 64 --chunks 4 -C nf4 -C llm_int8 --ref default -o json && json 'all(r["kld_mean"] > 0 for r in d["rows"])'
finish
