#!/bin/bash
# Proves: a recorded machine is shown as the same machine, also by advise, and names nothing about its owner; a
# recording never overwrites a folder and is never partial; shipped machines list each of their GPUs; invalid
# descriptions are refused.
. "$(dirname "$0")/lib.sh" "$@"
machines=$(cd "$(dirname "$0")/../data/machines" && pwd)

expect 0 detect -o json && cp "$T/out" "$T/here.json"
expect 0 detect --record "$T/box" && says out "recorded in $T/box: host and group names, serial numbers and UUIDs masked"
for file in files.txt recording.json; do [ -s "$T/box/$file" ] || fail "no $file"; done
expect 0 detect --machine "$T/box" -o json
json 'd["recording"]["origin"] == "recorded" and d["recording"]["masked"] is True and d["recording"]["program"].startswith("qdyno ")'
json '(lambda a, b: [k for k in a if a[k] != b[k]])(json.load(open("'"$T"'/here.json"))["machine"], d["machine"]) in (["host", "memory_available_bytes"], ["host"])'
grep -qxF " $(hostname)" "$T/box/files.txt" && fail "the host's name is in the recording"
expect 4 detect --record "$T/box" && says err 'already exists' && [ -s "$T/box/files.txt" ] || fail "the recording is gone"
expect 5 detect --record "$T/none/box" && says err 'cannot create a folder'
(trap '' XFSZ; ulimit -f 4; "$QDYNO" detect --record "$T/box.full" >"$T/out" 2>"$T/err") # as on a full disk
[ $? = 6 ] && says err 'cannot write' || fail "a disk that is full is not told"
[ -z "$(find "$T" -maxdepth 1 -name 'box.*')" ] || fail "a half-written folder is left"
expect 0 telemetry --machine "$T/box" -o json && json '{r["name"]: r["value"] for r in d["rows"]}["mem_total_bytes"] > 0'
mkdir "$T/tmp" && TMPDIR=$T/tmp expect 0 detect --machine "$T/box" && [ -z "$(ls "$T/tmp")" ] || fail "an unpacked machine is left"

# advise needs the measured limits
expect 5 advise --machine "$T/box" && says err 'no measured limits'
expect 0 synth --shape tiny "$T/tiny.gguf"
expect 0 detect --probe --record "$T/probed" && expect 0 advise -m "$T/tiny.gguf" --machine "$T/probed" -o json && json 'len(d["rows"]) > 0'
expect 0 detect --machine "$T/probed" -o json && json 'd["ceilings"]["read_bytes_s_all"] > 0'

# shipped machines
expect 0 detect --machine "$machines/nvidia-box" && says out 'GPU 1: NVIDIA A100-PCIE-40GB, 40.0G, sm_80, driver 550.54.15, at 0000:5e:00.0'
expect 0 telemetry --machine "$machines/nvidia-box" -o json
json '[g["throttle_reasons"] for g in d["gpus"]] == [[], ["power_cap", "thermal"], [], ["idle"]]'
json '[g["partitions"] for g in d["gpus"]] == [0, 0, 2, 0] and d["gpus"][2]["busy_ratio"] is None'
json '{r["name"]: r["value"] for r in d["rows"]}["gpu_power_watts"] == sum(g["power_watts"] for g in d["gpus"])'
expect 0 detect --machine "$machines/numa-server" -o json && json 'd["machine"]["processors"] == 256 and d["machine"]["numa_nodes"] == 8'
expect 0 detect --machine "$machines/numa-server" -o json && json 'd["power_sensors"] == "processor"'
expect 0 detect --machine "$machines/intel-gpu-laptop" -o json && json 'd["power_sensors"] == "GPU"'
expect 0 telemetry --machine "$machines/intel-gpu-laptop" -o json && json '[g["busy_ratio"] for g in d["gpus"]] == [None, None]' # stands still
expect 0 detect --machine "$machines/amd-gpu-box" -o json && json 'd["machine"]["gpus"][0]["source"] == "amdgpu"'

# documents of other machines are accepted; everything else is refused
expect 0 detect --machine "$T/here.json" -o json && json 'd["recording"] is None and d["machine"] == json.load(open("'"$T"'/here.json"))["machine"]'
mkdir "$T/empty" "$T/bad" && echo nonsense >"$T/bad/files.txt"
expect 5 detect --machine "$T/empty" && says err 'contains neither files.txt nor proc/'
expect 5 detect --machine "$T/bad" && says err 'bad/files.txt: line 1: expected a path'
expect 5 detect --machine "$T/nowhere"
printf '/proc/../../../../%s/escaped\n x\n' "$T" >"$T/bad/files.txt"
expect 5 detect --machine "$T/bad" && says err 'is not below /proc' && [ ! -e "$T/escaped" ] || fail "a file left its folder"
expect 4 detect --machine "$T/box" --probe && says err '--record, which measure this one'
expect 4 detect --private && says err '--private needs --record DIR'

finish
