#!/bin/bash
# Proves: a profile of a model as a user makes it: its operators add up to the passes, the bytes of products are those of
# the file, folded stacks can be read, the report has a flame graph and loads nothing, and what cannot be profiled is
# refused with what to do.
. "$(dirname "$0")/lib.sh" "$@"
[ -n "$PYTHON" ] || { echo "SKIPPED: no python3 to read documents with"; exit 77; }

expect 0 synth --shape tiny -R q8_0 "$T/tiny.gguf" || finish
IN=$T/tiny.gguf

expect 0 bench --profile -m "$IN" -w pp24+tg6 -r 2 --folded "$T/folded" -o json || finish
cp "$T/out" "$T/profile.json"
run=$(value 'd["run"]')
json 'd["schema"] == "qdyno.profile/1" and set(d["phases"]) == {"prefill", "decode"} and d["repetitions"] == 2'
json 'd["phases"]["prefill"]["passes"] == 2 and d["phases"]["decode"]["passes"] == 12'
json 'all(isinstance(p["overhead_ratio"], float) for p in d["phases"].values())'
# rows of a phase: operators and "other" add up to "all", which is the time of the passes
json 'all(math.isclose(sum(r["seconds"] for r in d["rows"] if r["phase"] == p and r["operator"] != "all"), d["phases"][p]["seconds"], rel_tol=1e-6) for p in d["phases"])'
json 'all(r["seconds"] >= 0 for r in d["rows"])'
# rows of layers add up to the same, and have one call for each pass of each layer
json 'all(math.isclose(sum(r["seconds"] for r in d["layers"] if r["phase"] == p), d["phases"][p]["seconds"], rel_tol=1e-6) for p in d["phases"])'
json 'all(r["calls"] == d["phases"][r["phase"]]["passes"] for r in d["layers"] if r["operator"] in ("qkv matmul", "attention", "ffn down"))'
expect 0 info --tensors -m "$IN" -o json && cp "$T/out" "$T/tensors.json"
python3 - "$T" <<'PY' || fail "the bytes of products are not those of the file"
import json, re, sys
rows = json.load(open(sys.argv[1] + "/profile.json"))["layers"]
tensors = {t["name"]: t["bytes"] for t in json.load(open(sys.argv[1] + "/tensors.json"))["rows"]}
of = {"qkv matmul": ("attn_q", "attn_k", "attn_v"), "output matmul": ("attn_output",), "ffn gate/up": ("ffn_gate", "ffn_up"),
      "ffn down": ("ffn_down",)}
checked = 0
for r in rows:
    if r["operator"] in of:
        want = sum(tensors[f"blk.{r['layer']}.{name}.weight"] for name in of[r["operator"]])
        assert r["pass_bytes"] == want, (r, want)
        checked += 1
assert checked >= 2 * len(of), checked
PY
python3 - "$T" <<'PY' || fail "the folded stacks do not have the times of the profile"
import json, re, sys
d = json.load(open(sys.argv[1] + "/profile.json"))
sums = {}
for line in open(sys.argv[1] + "/folded"):
    stack, us = re.fullmatch(r"((?:prefill|decode)(?:;layer \d+)?;[^;]+) (\d+)\n", line).groups()
    sums[stack.split(";")[0]] = sums.get(stack.split(";")[0], 0) + int(us)
for phase, p in d["phases"].items():
    assert abs(sums[phase] - 1e6 * p["seconds"]) <= len(d["layers"]), (phase, sums[phase], p)
PY
expect 0 bench --profile -m "$IN" -p 8 -n 2 -r 1 --layers && says out '\| decode +\| +0 \| qkv matmul' && says out 'overhead: a decode step took [+-]'
expect 0 show "$run" && says out '\| qkv matmul' && says out "\(profile, done\)"

expect 0 report "$run" --out "$T/p.html"
grep -q '<svg' "$T/p.html" && grep -q 'Flame graph of decode' "$T/p.html" && grep -q 'ffn gate/up of layer 0: ' "$T/p.html" ||
  fail "the report has no flame graph"
grep -Eq '<script|src=|href="http' "$T/p.html" && fail "the report loads something"
expect 0 report "$run" --out "$T/p.md" && grep -q 'ffn down' "$T/p.md" || fail "no report in Markdown"

expect 4 bench --profile -m "$IN" -p 8,16 && says err 'expected one value after -p'
expect 4 bench --profile -m "$IN" -w pp8 -w tg4 && says err 'expected one -w'
expect 4 bench --profile -m "$IN" -C q8_0 -C f16 && says err 'of one config'
expect 4 bench --profile -m "$IN" -w load:concurrency=1,requests=2,in=4,out=2 && says err 'expected a workload such as pp512\+tg128'
expect 4 bench --profile -m "$IN" -C parallel=tp2 && says err 'expected parallel=off'
expect 4 bench --profile -m "$IN" -C device=opencl:0 && says err 'expected device=cpu'
expect 4 bench --profile -m "$IN" -C engine=llama-bench && says err 'engine=llama-bench: its operators cannot be timed'
expect 4 bench --folded "$T/x" -m "$IN" && says err '--folded needs --profile'
expect 4 bench --profile --rows 4 -m "$IN" && says err 'leave --rows out'
finish
