#!/usr/bin/env bash
# Proves: a device that is too small, out of memory, lacks a feature or is lost (simulated by
# tests/e2e/opencl_faults.c) ends in the documented status with a clear message; nothing silently falls back to the
# CPU; the other arm and the stored cells survive; the next command works.
. "$(dirname "$0")/lib.sh" "$@"
FAULTS=${3:?the library of faults}
export POCL_CACHE_DIR=${POCL_CACHE_DIR:-$T/pocl}
mkdir -p "$POCL_CACHE_DIR"

"$QDYNO" detect -o json >"$T/out" 2>"$T/err"
grep -q '"opencl:0"' "$T/out" || { echo "SKIPPED: no OpenCL device here (pocl-opencl-icd is one)"; exit 77; }
[ -n "$PYTHON" ] || { echo "SKIPPED: no python3"; exit 77; }

# faulty NAME=VALUE ... -- COMMAND...: with these faults. A sanitizer wants to be loaded before anything else is.
faulty() {
  local set=()
  while [ "$1" != -- ]; do set+=("$1"); shift; done
  shift
  ( export "${set[@]}" LD_PRELOAD="$FAULTS" ASAN_OPTIONS="${ASAN_OPTIONS:-}:verify_asan_link_order=0"
    fails=0
    "$@"
    exit $((fails > 0)) ) || fails=$((fails + 1))
}
text() { expect "$1" run -p 'One day' -n 24 --temp 0 "${@:2}"; }
LOST=-2 RESOURCES=-5

# ---------------------------------------------------------------- memory
expect 0 fit -c 64 -C device=opencl:0,gpu_layers=2 -C device=opencl:0 -o json
two=$(value 'd["rows"][0]["device_bytes"]') all=$(value 'd["rows"][1]["device_bytes"]') layers=$(value 'd["rows"][1]["gpu_layers"]')
[ "$layers" -gt 2 ] && [ "$all" -gt "$two" ] || fail "fit: $two bytes for two layers, $all for all $layers"
small=$((two / 15 * 16 + 65536)) # a sixteenth is left to the driver

faulty FAULT_MEMORY_BYTES=1048576 -- expect 6 fit -c 64 -C device=opencl:0 -o json
faulty FAULT_MEMORY_BYTES=1048576 -- expect 6 run -p x -n 1 -c 64 --device opencl:0
says err 'does not fit: a single layer needs [0-9.]+[KMG]? on opencl:0, which has 960(\.0*)?K'
faulty FAULT_MEMORY_BYTES=$small -- expect 6 run -p x -n 1 -c 64 --device opencl:0 --gpu_layers "$layers"
says err 'does not fit: needs [0-9.]+[KMG] on opencl:0, which has [0-9.]+[KMG]'
text 0 -c 64 && cp "$T/out" "$T/here"
faulty FAULT_MEMORY_BYTES=$small -- text 0 -c 64 --device opencl:0
says err "2 of $layers layers run on opencl:0, the others on the CPU"
cmp -s "$T/out" "$T/here" || fail "greedy text differs: $(diff "$T/here" "$T/out" | head -c 300)"

# the plan fits, but other programs use the memory of the device
for bytes in 300000 $((all * 8 / 10)); do
  faulty FAULT_ALLOC_BYTES=$bytes -- expect 6 run -p x -n 1 -c 64 --device opencl:0
  says err 'opencl:0.*(do not fit|does not fit)|does not fit: opencl:0'
done

# ---------------------------------------------------------------- limits
faulty FAULT_GROUP_ITEMS=64 -- expect 7 run -p x -n 1 --device opencl:0
says err 'opencl:0 .* allows work groups of 64 items; the kernels need groups of 256: expected another device, or device=cpu'
faulty FAULT_LOCAL_BYTES=0 -- expect 7 run -p x -n 1 --device opencl:0
says err 'opencl:0 .* has 0 bytes of local memory; the kernels need [0-9]+: expected another device, or device=cpu'
faulty FAULT_GROUP_ITEMS=256 FAULT_LOCAL_BYTES=28672 FAULT_WITHOUT=cl_khr_fp64 -- text 0 -c 64 --device opencl:0
cmp -s "$T/out" "$T/here" || fail "greedy text of the smallest device differs: $(diff "$T/here" "$T/out" | head -c 300)"

# ---------------------------------------------------------------- loss
for call in clEnqueueNDRangeKernel clFinish clEnqueueReadBuffer; do
  faulty FAULT_CALL=$call FAULT_AT=20 FAULT_CODE=$LOST -- text 7 -c 64 --device opencl:0
  says err 'opencl:0 .*CL_DEVICE_NOT_AVAILABLE \(-2\): the device is lost'
done
faulty FAULT_CALL=clFinish FAULT_AT=2 FAULT_CODE=$LOST -- text 7 -c 64 --device opencl:0 # while memory is taken
says err 'the device is lost'
faulty FAULT_CALL=clEnqueueNDRangeKernel FAULT_AT=40 FAULT_CODE=$RESOURCES -- text 70 -c 64 --device opencl:0
says err 'opencl:0 .*CL_OUT_OF_RESOURCES \(-5\)'
text 0 -c 64 --device opencl:0
cmp -s "$T/out" "$T/here" || fail "after a loss: greedy text differs"

faulty FAULT_CALL=clFinish FAULT_AT=60 FAULT_CODE=$LOST -- expect 0 bench -C device=opencl:0 -C default -w tg16 -r 2 -o json
json '"lost" in d["rows"][0]["error"] and not d["rows"][1].get("error") and d["rows"][1]["decode_tok_s"] > 0'
for _ in $(seq 200); do printf 'The mill turned slowly while the river went by. '; done >"$T/text"
faulty FAULT_CALL=clEnqueueNDRangeKernel FAULT_AT=100 FAULT_CODE=$LOST -- expect 0 eval -f "$T/text" -c 64 --chunks 2 -C device=opencl:0 -C default -o json
json '"lost" in d["rows"][0]["error"] and d["rows"][0]["perplexity"] is None and d["rows"][1]["perplexity"] > 0'

# ---------------------------------------------------------------- loss in the middle of a comparison
LD_PRELOAD=$FAULTS FAULT_CALL=clEnqueueNDRangeKernel FAULT_AT=50 FAULT_CODE=$LOST FAULT_WHEN=$T/now \
  ASAN_OPTIONS="${ASAN_OPTIONS:-}:verify_asan_link_order=0" \
  "$QDYNO" ab default device=opencl:0 -w tg16 --control 0 --min-blocks 30 --max-blocks 40 --budget 120s --processes kept \
  --progress json -o json >"$T/out" 2>"$T/err" </dev/null &
pid=$!
pids+=($pid)
for _ in $(seq $((WAIT_S * 10))); do
  grep -q 'A/B blocks, block [1-9]' "$T/err" && break
  kill -0 $pid 2>/dev/null || break
  sleep 0.1
done
touch "$T/now"
wait $pid
status=$?
[ $status = 7 ] || fail "ab with a device that is lost: status $status"
json 'd["state"] == "done" and d["verdict"] == "invalid" and "lost" in d["reason"]'
json '[bool(a.get("error")) for a in d["arms"]] == [False, True]'
python3 - "$XDG_DATA_HOME/qdyno/qdyno.db" "$(value 'd["run"]')" <<'PY' || fail "the cells of the arms are not as they were measured"
import sqlite3, sys
rows = sqlite3.connect(sys.argv[1]).execute("SELECT arm, error FROM cell WHERE run_id = ? ORDER BY id",
                                            (sys.argv[2],)).fetchall()
whole = [(arm, error == "") for arm, error in rows]
sys.exit(0 if (0, True) in whole and (1, True) in whole and whole[-1] == (1, False) and "lost" in rows[-1][1] else 1)
PY
expect 0 show "$(value 'd["run"]')" && says out 'arm B failed: .*the device is lost'
expect 0 bench -C default -w tg16 -r 1
text 0 -c 64 --device opencl:0
cmp -s "$T/out" "$T/here" || fail "after a comparison that lost its device: greedy text differs"
finish
