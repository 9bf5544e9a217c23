#!/bin/bash
# Proves: runs can be compared with each other and over time. A regression planted in a database is found at its run,
# with what changed at that time, and exit statuses report it; every run has a capsule and a canary; a replay is a
# linked run of the same work and refuses a missing or different model; a champion is measured again beside its
# challenger. Test machines are busy, so this script checks only structure and statuses of measurements.
. "$(dirname "$0")/lib.sh" "$@"
[ -n "$PYTHON" ] || { echo "SKIPPED: no python3 to prepare and read databases with"; exit 77; }

# status_in ALLOWED ARGUMENTS...: like expect, with several allowed statuses, for results that depend on the load.
status_in() {
  local allowed=$1 got
  shift
  "$QDYNO" "$@" >"$T/out" 2>"$T/err" </dev/null
  got=$?
  [[ " $allowed " == *" $got "* ]] || { fail "qdyno $*: status $got, want one of $allowed"; return 1; }
}
sql() { python3 -c 'import sqlite3,sys; d=sqlite3.connect(sys.argv[1]); print(*[r[0] for r in d.execute(sys.argv[2])]); d.commit()' "$DB" "$1"; }

# ---- an empty database
DB=$T/empty.db
expect 0 --db "$DB" history --detect && says out '0 series examined' && says out 'not enough history yet \(0 of 6\)'
expect 4 --db "$DB" history --raw && says err 'needs --detect'
expect 4 --db "$DB" history --detect --metric decode_toks && says err "did you mean 'decode_tok_s'"
expect 4 --db "$DB" compare 1 2 && says err 'no run 1'
expect 4 --db "$DB" compare q8_0 q4_0 && says err 'qdyno ab q8_0 q4_0'
expect 4 --db "$DB" compare one 2 && says err "'one' is not a run number"
expect 4 --db "$DB" replay 1 && says err 'no run 1'
expect 0 --db "$DB" baseline list && says out 'no baseline yet'
expect 4 --db "$DB" baseline check && says err 'there is no baseline yet'

# ---- a prepared history: 20 experiments; from the 13th on arm B is 8 % slower and the kernel is another one
DB=$T/planted.db
expect 0 --db "$DB" history
python3 - "$DB" <<'PY' || fail "cannot prepare a database"
import json, math, random, sqlite3, sys
d = sqlite3.connect(sys.argv[1])
random.seed(5)
d.execute("INSERT INTO machine VALUES('m1','{}',0)")
d.execute("INSERT INTO model VALUES('feed','toy.gguf','/m/toy.gguf','{}',0)")
def cell(run, arm, block, phase, config, work, values):
    id = d.execute("INSERT INTO cell VALUES(NULL,?,?,?,0,?,0,'',?,?,'',0,1,'','')", (run, arm, block, phase, config, work)).lastrowid
    d.executemany("INSERT INTO measurement VALUES(?,?,'',?)", [(id, k, v) for k, v in values.items()])
for i in range(20):
    run = d.execute("INSERT INTO run VALUES(NULL,'ab','done','m1','feed','toy.gguf','tg64','f32 vs q8_0','decode_tok_s',1,'better',NULL,?,?,?,NULL)",
                    (1700000000000 + i * 86400000, 1700000001000 + i * 86400000, json.dumps({"margin": 0.02}))).lastrowid
    capsule = {"kernel": {"release": "6.1.0" if i < 12 else "6.9.1"}, "governor": {"governor": "performance"},
               "config": [{"line": "f32"}, {"line": "q8_0"}], "model": [{"sha256": "feed"}] * 2}
    d.execute("INSERT INTO capsule VALUES(?,?)", (run, json.dumps(capsule)))
    day = math.exp(random.gauss(0, 0.05))            # how fast the whole machine is today: the canary knows
    for slot in range(2):
        cell(run, -1, -1, "canary", "read 64M", "", {"canary_read_bytes_s": 1e10 * day, "canary_ops_s": 1e11 * day})
    for block in range(8):
        for arm, rate in ((0, 100), (1, 120 if i < 12 else 110)):
            cell(run, arm, block, "block", ("f32", "q8_0")[arm], "work", {"decode_tok_s": rate * day * math.exp(random.gauss(0, 0.01))})
d.commit()
PY
expect 1 --db "$DB" history --detect -o json &&
  json '[(r["finding"], r["run"], r["config"]) for r in d["rows"] if r["finding"] == "change"] == [("change", 13, "q8_0")]' &&
  json 'len(d["rows"]) == 1 and 0.89 < d["rows"][0]["effect_ratio"] < 0.94' &&
  json 'd["rows"][0]["p"] < 1e-6 and d["rows"][0]["priority"] == "high"' &&
  json '[(c["group"], c["key"], c["before"], c["after"]) for c in d["rows"][0]["changes"]] == [("kernel", "release", "6.1.0", "6.9.1")]' &&
  json 'd["rows"][0]["started"].startswith("2023-11-26T") and d["judged"] == 2 and d["worse"] == 1' &&
  json 'all(len(s["points"]) == 20 and all(p["normalized"] > 0 for p in s["points"]) for s in d["series"])'
json 'all(r["first"] and isinstance(r["moved"], list) for r in d["rows"] if r["finding"] == "change")'
expect 0 --db "$DB" show 1 --causes -o json && json 'd["cells"] > 0 and all(r["first"] for r in d["rows"])'
expect 1 --db "$DB" history --detect && says out 'kernel.release 6.1.0 -> 6.9.1' && says out '\| high '
expect 0 --db "$DB" history --detect --margin 20% -o json && json 'd["worse"] == 0 and d["judged"] == 2'
expect 0 --db "$DB" history --detect --limit 5 && says out '2 series with fewer than 6' && says out 'not enough history yet \([1-5] of 6\)'
expect 0 --db "$DB" history --detect --metric perplexity -o json && json 'd["enough_history"] is False and d["needed_runs"] == 6'
expect 0 --db "$DB" history --detect --limit 8 -o json && json 'd["judged"] == 2 and d["worse"] == 0' # all after the change
expect 0 --db "$DB" history --detect -o csv --margin 20% && expect 0 --db "$DB" history -o json && json 'len(d["rows"]) == 20'

# ---- other methods on the same history: the newest 8 runs are slower
expect 1 --db "$DB" history --detect --method baseline-test -o json &&
  json 'd["method"] == "baseline-test" and d["parameters"] == {"window": 5, "alpha": 0.001}' &&
  json 'd["needed_runs"] == 10 and d["judged"] == 2 and d["worse"] == 1 and d["summary"]["exit_status"] == 1' &&
  json '[(r["finding"], r["config"], r["run"]) for r in d["rows"]] == [("shift", "q8_0", 16)] and d["rows"][0]["p"] < 0.001'
expect 0 --db "$DB" history --detect --method moving-average -o json &&
  json '[(r["finding"], r["config"], r["run"]) for r in d["rows"]][0] == ("deviation", "q8_0", 13) and d["worse"] == 0' &&
  json 'all(s["points"][4]["band_low"] is None and s["points"][19]["band_low"] < s["points"][19]["band_high"] for s in d["series"] if not s["canary"])'
expect 0 --db "$DB" history --detect --method isolation-forest -o csv # one metric has nothing to compare with
expect 0 --db "$DB" history --detect --method changes --margin 20% -o json && json 'd["method"] == "changes" and d["parameters"]["min_segment"] == 3'
status_in "0 1" --db "$DB" history --detect --method robust-z && says out 'method robust-z: .*min_robust_z 3.5'
expect 4 --db "$DB" history --detect --method z-score && says err 'changes, moving-average, robust-z, baseline-test'
expect 4 --db "$DB" history --method robust-z && says err '--method needs --detect'
expect 0 help history --all && says out 'moving-average'

# ---- a summary: figures of the prepared runs by hand, none that was not observed
expect 0 --db "$DB" history --summary 36500d -o json &&
  json 'd["schema"] == "qdyno.history_summary/1" and all(set(r) <= {"figure", "of", "reason", "value", "unit", "shown", "n", "at", "run"} for r in d["rows"])' &&
  json '[(r["of"], r["reason"], r["value"]) for r in d["rows"] if r["figure"] in ("runs", "cells")] == [("done", "better", 20), ("kept", None, 320)]' &&
  json '[r["value"] for r in d["rows"] if r["figure"] == "error_rate"] == [0, 0]' &&
  json '[r["n"] for r in d["rows"] if r["figure"] == "ttft_s"] == [0] * 4 and all(r["value"] is None and r["shown"] == "n/a" for r in d["rows"] if r["figure"] == "ttft_s")' &&
  json '[r["value"] for r in d["rows"] if (r["figure"], r["of"]) in (("run_s", "p50"), ("run_s", "max"))] == [1, 1]' &&
  json '[(r["of"], r["value"]) for r in d["rows"] if r["figure"] == "most_at_once"][2] == ("requests", None)'
expect 0 --db "$DB" history --summary 1h && says out 'no run took place' && says out '\| ttft_s .*n/a'
expect 0 --db "$DB" history --summary 36500d && says out '^\| figure +\| of +\| value' && says out 'most_at_once .* \(run [0-9]+\)' # no column of n/a
expect 0 --db "$DB" history --summary 36500d --filter nothing -o csv && [ "$(head -1 "$T/out")" = "figure,of,reason,value,unit,shown,n,at,run" ] ||
  fail "the csv of a summary has other columns"
expect 4 --db "$DB" history --summary && expect 4 --db "$DB" history --summary soon && says err '90s or 5m'
expect 4 --db "$DB" history --summary 1h --detect && says err '--summary and --detect exclude each other'
expect 4 --db "$DB" history --summary 1h --limit 3 && says err 'every run of its time'
expect 4 --db "$DB" history --summary 1h --margin 2% && says err '--margin needs --detect'

# runs 1 and 20: the speed of the day is in the measured difference, but not in the normalized one
status_in "0 1 2" --db "$DB" compare 1 20 -o json &&
  json 'd["schema"] == "qdyno.compare/1" and len(d["rows"]) == 2 and d["margin"] == 0.02' &&
  json 'abs(d["rows"][0]["normalized_ratio"] - 1) < 0.03 and 0.88 < d["rows"][1]["normalized_ratio"] < 0.95' &&
  json 'all(abs(r["effect_ratio"] / r["canary_ratio"] - r["normalized_ratio"]) < 1e-9 for r in d["rows"])' &&
  json '[c["key"] for c in d["changes"]] == ["release"]'
status_in "0 1 2" --db "$DB" compare 1 20 && says out 'use .(normalized|second/first).: the canary was'
sql "UPDATE measurement SET value = value * 0.8 WHERE metric = 'decode_tok_s' AND cell_id IN (SELECT id FROM cell WHERE run_id = 2)" >/dev/null
sql "UPDATE measurement SET value = (SELECT m.value FROM measurement m JOIN cell c ON c.id = m.cell_id WHERE c.run_id = 2 AND m.metric = measurement.metric LIMIT 1) WHERE metric LIKE 'canary%' AND cell_id IN (SELECT id FROM cell WHERE run_id = 3)" >/dev/null
# the proposed A/B names both configs: "qdyno ab" alone is refused; two configs of one arm are named, too
sql "UPDATE cell SET config = 'q4_0' WHERE run_id = 5 AND arm = 1" >/dev/null
status_in "0 1 2" --db "$DB" compare 4 5 && says out 'row 2 compares different configs: q8_0 in run 4, q4_0 in run 5' &&
  says out 'the model file toy.gguf is not where it was' && ! grep -q 'next:' "$T/out" ||
  fail "a command is proposed whose model is gone"
touch "$T/it's a toy.gguf"
sql "UPDATE model SET path = '$T/it''s a toy.gguf'" >/dev/null
status_in "0 1 2" --db "$DB" compare 4 5 && grep -qF "next: qdyno ab -m '$T/it'\\''s a toy.gguf' q8_0 q4_0 -w tg64" "$T/out" ||
  fail "the proposed command does not quote its model: $(grep next: "$T/out")"
expect 1 --db "$DB" compare 3 2 && says out 'worse' && says out 'nothing that was recorded differs' && says out 'during both runs was not recorded'
expect 0 --db "$DB" compare 2 3 -o json && json 'd["verdict"] == "better"'
expect 4 --db "$DB" compare 3 3 && says err 'both numbers name run 3' && says err 'qdyno show 3'
expect 3 --db "$DB" compare 2 3 --metric ttft_s && says out 'ttft_s is missing in at least one'
expect 5 --db "$DB" replay 3 && says err 'run 3'

# ---- runs on this machine: each has a capsule and a canary
unset QDYNO_ISA
DB=$XDG_DATA_HOME/qdyno/qdyno.db
MODEL_COPY=$T/model.gguf
expect 0 info -o json && cp "$(value 'd["path"]')" "$MODEL_COPY" || fail "no bundled model to copy"
expect 0 bench -m "$MODEL_COPY" -p 0 -n 8 -r 3
QDYNO_ISA=ref expect 0 bench -m "$MODEL_COPY" -p 0 -n 8 -r 3
[ "$(sql "SELECT count(*) FROM cell WHERE phase = 'canary'")" = 4 ] || fail "two runs have no two canaries each"
[ "$(sql 'SELECT count(*) FROM capsule')" = 2 ] || fail "two runs have no two capsules"
status_in "0 1 2" compare 1 2 -o json && json 'any(c["key"] == "QDYNO_ISA" and c["after"] == "ref" for c in d["changes"])' &&
  json 'd["rows"][0]["canary_ratio"] > 0 and d["rows"][0]["n_before"] == 3 and d["rows"][0]["verdict"]'
expect 0 history --summary 1h -o json &&
  json '[r["value"] for r in d["rows"] if (r["figure"], r["of"]) == ("runs", "done")] == [2]' &&
  json 'all(r["n"] >= 42 and r["value"] > 0 for r in d["rows"] if r["figure"] == "itl_s")' &&
  json '[r["value"] for r in d["rows"] if r["figure"] == "most_at_once"] == [1, 1, 1]'
expect 0 show 1 --capsule && says out '\| program +\| version' && says out '\| config +\| A.threads'
expect 0 show 1 --capsule -o json && json 'd["capsule"]["model"][0]["sha256"] and any(r["key"] == "release" for r in d["rows"])'
expect 4 --db "$T/planted.db" show 99 --capsule
expect 0 show 1 && expect 4 replay 1 && says err "of kind 'bench'"

status_in "0 1 2 3" ab -m "$MODEL_COPY" default precision=highest -w tg8 --budget 4s --control 2 --max-blocks 6 -o json
id=$(value 'd["run"]')
json 'd["run"] == 3'
[ "$(sql "SELECT json_extract(json, '\$.config[1].precision') FROM capsule WHERE run_id = 3")" = highest ] || fail "no resolved config in the capsule"
# mark all blocks as kept, as on an idle machine, so that there is something to reproduce
python3 - "$DB" "$id" <<'PY' || fail "cannot add blocks"
import sqlite3, sys
d = sqlite3.connect(sys.argv[1])
for block in range(200, 206):
    for arm in (0, 1):
        c = d.execute("INSERT INTO cell SELECT NULL,run_id,?,?,?,'block',0,'',config,work_hash,'',0,1,'','{}' FROM cell WHERE run_id=? AND arm=? AND error='' LIMIT 1",
                      (arm, block, arm, sys.argv[2], arm)).lastrowid
        d.execute("INSERT INTO measurement VALUES(?,'decode_tok_s','tokens/s',?)", (c, 1000 + arm + block % 3))
d.commit()
PY
status_in "0 1 2 3" replay "$id" --budget 4s -o json &&
  json 'd["schema"] == "qdyno.replay/1" and d["replay_of"] == '"$id"' and d["run"] == '"$id"' + 1' &&
  json 'd["verdict"] in ("reproduced", "not reproduced", "inconclusive", "invalid") and all(c["group"] == "conditions" for c in d["changes"])' &&
  json 'd["rows"][0]["arm"] == "B" and d["rows"][0]["blocks_before"] >= 6'
[ "$(sql "SELECT of_run FROM run_link WHERE run_id = $id + 1")" = "$id" ] || fail "the replay is not linked to what it repeats"
[ "$(sql "SELECT count(DISTINCT seed) FROM run WHERE id IN ($id, $id + 1)")" = 1 ] || fail "the replay has another seed"
runs=$(sql 'SELECT count(*) FROM run')
printf x >>"$MODEL_COPY"
expect 5 replay "$id" && says err 'is another model than before'
mv "$MODEL_COPY" "$T/elsewhere.gguf"
expect 5 replay "$id" && says err 'missing or cannot be read'
[ "$(sql 'SELECT count(*) FROM run')" = "$runs" ] || fail "a refused replay left a run behind"

# ---- baselines
expect 0 synth --shape tiny -R f32 "$T/champion.gguf" && expect 0 synth --shape tiny -R q8_0 "$T/other.gguf"
expect 0 baseline set release -m "$T/champion.gguf" -w tg8 --margin 2% -o json &&
  json 'd["rows"][0]["config"] == "default" and d["rows"][0]["margin_ratio"] == 0.02 and len(d["rows"][0]["model_sha256"]) == 64'
expect 4 baseline check && says err 'equals the champion of .release.'
expect 4 baseline check "model=$T/champion.gguf" && says err 'equals the champion of .release.'
status_in "0 1 2 3" baseline check threads=1 --budget 4s -o json &&
  json 'd["schema"] == "qdyno.baseline_check/1" and d["baseline"]["name"] == "release" and "run" not in d["baseline"] and d["verdict"]' &&
  json '[r["config"] for r in d["rows"]] == ["default", "threads=1"]'
status_in "0 1 2 3" baseline check release -m "$T/other.gguf" --budget 4s -o json &&
  json 'd["rows"][0]["config"].startswith("model=") and "other.gguf" in d["rows"][1]["config"]'
expect 0 baseline set nightly "$id" -o json && json 'd["rows"][0]["run"] == '"$id"' and d["rows"][0]["metric"] == "decode_tok_s" and d["rows"][0]["value"] > 0'
expect 0 baseline set nightly "$id" --arm B -o json && json '"precision=highest" in d["rows"][0]["config"]'
expect 0 baseline list -o json && json '[r["name"] for r in d["rows"]] == ["nightly", "release"]'
expect 5 baseline check nightly && says err 'missing or cannot be read' # its model was moved
expect 4 baseline check && says err 'one of nightly, release'
expect 4 baseline check weekly && says err "no baseline 'weekly'"
expect 4 baseline set x 9999 && says err 'no run 9999'
expect 4 baseline set x "$id" --arm Z && says err 'one letter from A to H'
expect 4 baseline set x "$id" -m other.gguf && says err 'already fixes'
expect 4 baseline set x -w tg8 --metric prefill_tok_s && says err 'prefill_tok_s needs'
expect 4 baseline set && says err 'expected a name'
expect 4 baseline sett x && says err "did you mean 'set'"
expect 4 baseline list --budget 5s && says err 'is no flag of'
expect 5 baseline set x -m "$T/none.gguf"

# ---- the command that compare proposes runs as it is printed: models and configs that a shell would take apart
mkdir "$T/two words" && mv "$T/champion.gguf" "$T/two words/it's.gguf"
cd "$T/two words" || fail "no folder"
expect 0 --db "$T/proposed.db" bench -m "it's.gguf" -p 0 -n 8 -r 3 -C 'q8_0 tensors=attn_v:q4_0;ffn_down:f16'
expect 0 --db "$T/proposed.db" bench -m "it's.gguf" -p 0 -n 8 -r 3 -C q4_0
expect 0 --db "$T/proposed.db" bench -m "$T/other.gguf" -p 0 -n 8 -r 3
cd "$T" || fail "no folder"
proposed() { # FIRST SECOND: runs what `compare FIRST SECOND` proposes
  local command
  status_in "0 1 2" --db "$T/proposed.db" compare "$1" "$2" || return 1
  command=$(sed -n 's/^next: qdyno ab //p' "$T/out")
  [ -n "$command" ] || { fail "compare $1 $2 proposes no A/B"; return 1; }
  eval "\"\$QDYNO\" --db \"\$T/proposed.db\" ab --budget 4s --max-blocks 6 --control 0 -o json $command" >"$T/ab" 2>"$T/err" </dev/null
  [ "$?" -le 3 ] || { fail "the proposed command fails: qdyno ab $command: $(head -c 300 "$T/err")"; return 1; }
  mv "$T/ab" "$T/out"
}
proposed 1 2 && json '[r["config"] for r in d["arms"]] == ["q8_0,tensors=attn_v:q4_0;ffn_down:f16", "q4_0"]'
status_in "0 1 2" --db "$T/proposed.db" compare 1 2 && says out '^the configs differ: q8_0,tensors=.* in run 1, q4_0 in run 2$'
proposed 1 3 && json '"other.gguf" in d["arms"][1]["config"] and "model=" not in d["arms"][0]["config"]'
status_in "0 1 2" --db "$T/proposed.db" compare 1 3 && says out "^the models differ: it's.gguf in run 1, other.gguf in run 3$"
finish
