#!/usr/bin/env bash
# Proves: an OpenCL device is listed, runs the bundled model to the same greedy text as the CPU, can be an arm of an
# A/B, and can run a part of the layers; a missing device gives exit status 7. This also tests our kernels with the
# optimizations of real drivers.
. "$(dirname "$0")/lib.sh" "$@"
export POCL_CACHE_DIR=${POCL_CACHE_DIR:-$T/pocl}
mkdir -p "$POCL_CACHE_DIR"

# without any driver everything else works
no_driver() { OCL_ICD_VENDORS=/nonexistent OPENCL_VENDOR_PATH=/nonexistent expect "$@"; }
no_driver 0 detect -o json && json 'd["opencl"] == [] and d["opencl_devices"] == 0'
no_driver 0 detect && says out 'no OpenCL device: models run on the CPU'
no_driver 7 run -p x -n 1 --device opencl:0 && says err 'no OpenCL device here: install'
no_driver 0 run -p x -n 1

expect 0 detect -o json
json 'all(o["name"] == "opencl:%d" % i and o["model"] for i, o in enumerate(d["opencl"]))'
grep -q '"opencl:0"' "$T/out" || { skip "no OpenCL device here (pocl-opencl-icd is one)"; finish; }
cp "$T/out" "$T/devices"
json 'd["opencl_devices"] == len(d["opencl"]) and d["opencl"][0]["memory_bytes"] > 2**24'
expect 0 detect && says out '^opencl:0: .*compute units'

expect 0 run -p 'One day' -n 24 --temp 0 && cp "$T/out" "$T/here"
expect 0 run -p 'One day' -n 24 --temp 0 --device opencl:0
cmp -s "$T/out" "$T/here" || fail "greedy text differs: $(diff "$T/here" "$T/out" | head -c 300)"
expect 0 run -p 'One day' -n 24 --temp 0 --device opencl:0 --gpu_layers 1
says err '1 of [0-9]+ layers run on opencl:0, the others on the CPU'
cmp -s "$T/out" "$T/here" || fail "greedy text of mixed layers differs: $(diff "$T/here" "$T/out" | head -c 300)"

expect 4 run -p x -n 1 --gpu_layers 1 && says err 'gpu_layers=1, but device=cpu'
if grep -q '"opencl:7"' "$T/devices"; then
  skip "eight devices: none is missing"
else
  expect 7 run -p x -n 1 --device opencl:7 && says err 'the last of [0-9]+ OpenCL devices? is opencl:'
  expect 7 bench -C device=opencl:7 -w tg4 -r 1
fi
expect 0 fit -c 256 -C device=opencl:0 -o json && json 'd["rows"][0]["fits"] and d["rows"][0]["weights_bytes"] > 0'
expect 0 fit -c 256 -C device=opencl:0,act=int8 -o json && json 'd["rows"][0]["fits"] and d["rows"][0]["weights_bytes"] > 0'

# whatever the verdict on a machine that others use: there is one, and the document says which arm ran where
"$QDYNO" ab default device=opencl:0 -w tg16 --max-blocks 6 --budget 8s -o json >"$T/out" 2>"$T/err" </dev/null
status=$?
[ $status -le 3 ] || fail "ab: status $status"
json 'd["state"] == "done" and d["verdict"] in ("better", "worse", "equivalent", "inconclusive", "invalid")'
json '[a["device"] for a in d["arms"]] == ["cpu", "opencl:0"]'
expect 0 show 1 && says out 'device=opencl:0'

# shapes that were measured are used by every command that opens a model: here one that adds in another order, as the last
# bits of the logits tell
logits_to() { expect 0 logits --ids 5 --out "$1" --device opencl:0; }
if [ -n "$PYTHON" ]; then
  logits_to "$T/without.logits"
  python3 - "$XDG_DATA_HOME/qdyno/qdyno.db" "$T/devices" <<'PY' || fail "no shapes could be put into the database"
import json, sqlite3, sys
o = json.load(open(sys.argv[2]))["opencl"][0]
db = sqlite3.connect(sys.argv[1])
shapes = ";".join("product.one.%s:lanes=4 ways=1 rows=1" % family for family in ("2bit", "4bit", "8bit", "16bit", "32bit"))
db.execute("INSERT INTO device_shapes VALUES(?, ?, 0)", ("%s|%s|%s" % (o["platform"], o["model"], o["driver"]), shapes))
db.commit()
PY
  logits_to "$T/with.logits"
  cmp -s "$T/with.logits" "$T/without.logits" && fail "logits: measured shapes are not used"
fi

expect 0 doctor -o json && json 'any(r["check"] == "OpenCL" and "opencl:0" in r["found"] for r in d["rows"])'
# "processor or device?" is a question for measurement: a search takes devices as it takes any other setting
expect 0 tune --space "device=cpu|opencl:0" -w tg8 --budget 8s --goal speed --search-only -o json &&
  json '{t["config"]: t["tok_s"] is not None and t["tok_s"] > 0 for t in d["tried"]} == {"default": True, "device=opencl:0": True}'
finish
